"""NumPy arrays, updated in place."""
from __future__ import absolute_import, division, print_function

import contextlib

import numpy as np

from everstep.compat.backends.base import NAMES, WithoutGraphs, unknown_op
from everstep.errors import GradientError


class IndexedSlices(object):
    """A sparse gradient for NumPy arrays: `values[i]` belongs to row `indices[i]`; equal indices add up.

    Args:
        values: array of shape (n,) + shape[1:] of the variable.
        indices: n whole numbers, each the number of a row.
    """

    def __init__(self, values, indices):
        self.values, self.indices = np.asarray(values), np.asarray(indices)
        if self.indices.ndim != 1 or self.indices.dtype.kind not in "iu":
            raise GradientError("indices must be a list of whole numbers; got {!r}".format(indices))
        if self.values.shape[:1] != self.indices.shape:
            raise GradientError(
                "IndexedSlices of {} indices needs as many rows of values; got shape {}".format(
                    len(self.indices), self.values.shape
                )
            )

    def __repr__(self):
        return "everstep.IndexedSlices(values of shape {}, {} indices)".format(self.values.shape, len(self.indices))


def _sigmoid(x):
    half = x / 2  # keeps exp from overflowing on either side
    return (np.tanh(half) + 1) / 2


NUMPY = {
    "abs": np.abs,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "square": np.square,
    "exp": np.exp,
    "log": np.log,
    "pow": np.power,
    "sin": np.sin,
    "cos": np.cos,
    "sign": np.sign,
    "floor": np.floor,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "clip": lambda x, low, high: np.minimum(np.maximum(x, low), high),
    "where": np.where,
    "equal": np.equal,
    "isfinite": np.isfinite,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_not": np.logical_not,
    "sum": np.sum,
    "mean": np.mean,
    "max": np.max,
    "min": np.min,
    "any": np.any,
    "all": np.all,
    "cast": lambda x, to: np.asarray(x).astype(to),
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
    "zeros_like": np.zeros_like,
    "ones_like": np.ones_like,
    "reshape": lambda x, to: np.reshape(x, to),
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.true_divide,
    "floor_divide": np.floor_divide,
    "remainder": np.remainder,
    "negative": np.negative,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}


class _NumpyOps(object):
    """The table as attributes, on plain arrays: what an oracle or a schedule's call runs a rule with."""

    def __getattr__(self, name):
        if name not in NAMES:
            raise unknown_op(name)
        return NUMPY[name]


numpy_ops = _NumpyOps()


class NumpyBackend(WithoutGraphs):
    """Arrays that are updated in place."""

    ops = NUMPY
    eager = True
    moves_rows = True  # whether gradients can be sparse

    def __init__(self):
        self._written = []  # (array, place, what was there) of the step that runs

    @contextlib.contextmanager
    def all_or_nothing(self):
        """Takes back what was written where the body fails: the shape of the last of many variables may not fit."""
        self._written = []
        try:
            yield
        except BaseException:
            for array, place, old in reversed(self._written):
                array[place] = old
            raise
        finally:
            self._written = []

    def constant(self, number, dtype):
        return np.asarray(number, dtype)

    def cast(self, value, dtype):
        return np.asarray(value).astype(dtype, copy=False)

    def dtype(self, variable):
        return variable.dtype.name

    def shape(self, value):
        return np.shape(value)

    def read(self, variable):
        return variable

    def gather(self, variable, rows):
        return variable[rows]

    def write(self, variable, value, rows=None):
        place = Ellipsis if rows is None else rows
        self._written.append((variable, place, np.array(variable[place])))
        variable[place] = value

    def add(self, variable, value):
        self.write(variable, variable + value)

    def subtract(self, variable, value, rows=None):
        self.write(variable, (variable if rows is None else variable[rows]) - value, rows)

    def copy(self, value, variable):
        """A value in memory of its own."""
        return np.array(value)

    def constrain(self, variable, write):
        return write

    def slices(self, grad):
        """(values, indices) of a sparse gradient, None of a dense one."""
        return (grad.values, grad.indices) if isinstance(grad, IndexedSlices) else None

    def no_rows(self, variable):
        """A sparse gradient of no row."""
        return IndexedSlices(np.zeros((0,) + variable.shape[1:], variable.dtype), np.zeros(0, np.int64))

    def tensor(self, value):
        return np.asarray(value)

    def rows_of(self, variable):
        return len(variable)

    def stack(self, numbers):
        return np.stack(numbers)

    def unique(self, rows):
        return np.unique(rows)

    def sum_duplicates(self, values, indices):
        rows, place = np.unique(indices, return_inverse=True)
        summed = np.zeros((len(rows),) + values.shape[1:], values.dtype)
        np.add.at(summed, place.reshape(-1), values)
        return summed, rows

    def iota(self, count):
        """0, 1, 2, ..., so many."""
        return np.arange(count, dtype=np.int32)

    def scatter_to_dense(self, values, rows, count):
        """Rows laid into zeros."""
        whole = np.zeros((count,) + values.shape[1:], values.dtype)
        whole[rows] = values
        return whole

    def rows_equal(self, marks, mark):
        return np.flatnonzero(marks.reshape(-1) == mark)

    def largest(self, counts):
        """The largest of some counts; 0 of none."""
        return int(np.max(counts)) if np.size(counts) else 0

    def repeat(self, count, body, values):
        """`values = body(step, values)`, so many times."""
        for step in range(count):
            values = body(step, values)
        return values

    def can_branch(self, variable):
        return True

    def branch(self, predicate, yes, no, variables):
        return yes() if predicate else no()

    def values_if(self, predicate, values, dtypes):
        """A list of scalars, computed only where `predicate`; else each is 0."""
        return values() if predicate else [self.constant(0, dtype) for dtype in dtypes]

    def choose(self, predicate, yes, no):
        return yes if predicate else no

    def barrier(self, values):
        return None

    def wait(self, value, operations):
        return value

    def group(self, operations):
        """What stands for all of the operations: nothing where they are done."""

    def plain(self, function):
        return function

    def outside(self):
        return self.after(())

    def at(self, variable):
        return self.after(())

    @contextlib.contextmanager
    def after(self, operations):
        yield

    def value(self, variable, session):
        return np.array(variable)

    def put(self, variable, value, session):
        variable[Ellipsis] = value
