"""The backend for NumPy arrays, which are updated in place."""
from __future__ import absolute_import, division, print_function

import contextlib

import numpy as np

from everstep.compat.backends.base import GRAPHS, Backend
from everstep.compat.backends.gradient_values import check_row_numbers, numbers_of
from everstep.compat.backends.ops_table import add_linalg
from everstep.compat.rules.operations import COMPOSED, LINALG, NAMES, OPERATORS, TABLE, composed, unknown_op
from everstep.errors import GradientError
from everstep.optimizers.contract.checks import compute_dtype
from everstep.optimizers.contract.refreshing import refreshed_update


class IndexedSlices(object):
    """A sparse gradient for NumPy arrays: `values[i]` is the gradient of row `indices[i]`. Equal indices add up.

    Args:
        values: an array of shape (n,) + variable.shape[1:], or a list of rows.
        indices: a vector of n whole numbers, each the number of a row.

    Raises:
        GradientError: indices is no vector of whole numbers, or values has another number of rows.

    >>> import numpy, everstep
    >>> table = numpy.zeros((3, 2))
    >>> grad = everstep.IndexedSlices(numpy.ones((2, 2)), [0, 2])
    >>> everstep.optimizers.SGD(1.0).bind(numpy).apply_gradients([(grad, table)])
    >>> table
    array([[-1., -1.],
           [ 0.,  0.],
           [-1., -1.]])
    """

    def __init__(self, values, indices):
        self.values, self.indices = np.asarray(values), np.asarray(indices)
        if not self.indices.size:  # NumPy takes an empty list for floats
            self.indices = self.indices.astype(np.int64)
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


NUMPY = {name: TABLE[name].numpy for name in NAMES.union(OPERATORS)}
add_linalg(NUMPY, np.linalg.qr, np.linalg.eigh, lambda x: np.linalg.svd(x, full_matrices=False), np.linalg.cholesky,
           np.linalg.solve, np.diagonal)


class _NumpyOps(object):
    """The ops on plain arrays, as attributes. A schedule that is called, and oracles in tests, run a rule with them."""

    def update_of(self, definition, *arguments):
        """Returns what `definition.update` returns, as `Tracer.update_of` does."""
        return refreshed_update(self, definition, *arguments)

    def values_if(self, due, new, old):
        return new if due else old

    def concat(self, values, axis=0):
        return np.concatenate(values, axis)

    def einsum(self, equation, *values):
        return np.einsum(equation, *values)

    def eye(self, size):
        return np.eye(size)

    def arange(self, size):
        return np.arange(size, dtype=np.int32)

    def native_schedule(self, schedule, count):
        """Returns the value of a framework's schedule at a count, where it has one here."""
        value = schedule(np.float32(count))
        value = value.detach().cpu() if hasattr(value, "detach") else value  # torch
        return float(value.eval() if hasattr(value, "graph") and hasattr(value, "eval") else value)

    def __getattr__(self, name):
        if name in COMPOSED:
            return composed(name, self)
        if name not in NAMES and name not in LINALG:
            raise unknown_op(name)
        return NUMPY[name]


numpy_ops = _NumpyOps()


class NumpyBackend(Backend):
    """NumPy arrays, updated in place."""

    name = "NumPy"
    ops = NUMPY
    unsupported = GRAPHS + ("concat_flat", "split")

    def __init__(self):
        self._written = []  # (array, index, old value) of each write of the running step

    def constant(self, number, dtype):
        return np.asarray(number, dtype)

    def tensor(self, value):
        return np.asarray(value)

    def cast(self, value, dtype):
        return np.asarray(value).astype(dtype, copy=False)

    def dtype(self, variable):
        return variable.dtype.name

    def shape(self, value):
        return np.shape(value)

    def read(self, variable):
        return variable

    def write(self, variable, value, rows=None):
        index = Ellipsis if rows is None else rows
        self._written.append((variable, index, np.array(variable[index])))
        variable[index] = value

    def add(self, variable, value):
        self.write(variable, variable + value)

    def subtract(self, variable, value, rows=None, share=None):
        self.write(variable, (variable if rows is None else variable[rows]) - value, rows)

    def copy(self, value, variable):
        return np.array(value)

    @contextlib.contextmanager
    def all_or_nothing(self):
        self._written = []
        try:
            yield
        except BaseException:
            for array, index, old in reversed(self._written):
                array[index] = old
            raise
        finally:
            self._written = []

    def gradient(self, value, dtype):
        array = numbers_of(value)
        return None if array is None else self.cast(array, compute_dtype(dtype))

    def fitting(self, grad, variable, name):
        if isinstance(grad, IndexedSlices):
            self.existing_rows(grad.indices, variable, name)
        return grad

    def slices(self, grad):
        return (grad.values, grad.indices) if isinstance(grad, IndexedSlices) else None

    def sparse(self, values, rows, like):
        return IndexedSlices(values, self.cast(rows, "int64"))

    def existing_rows(self, rows, variable, name):
        check_row_numbers(rows, len(variable), name)
        return rows

    def no_rows(self, variable):
        return IndexedSlices(np.zeros((0,) + variable.shape[1:], variable.dtype), np.zeros(0, np.int64))

    def gather(self, variable, rows):
        return variable[rows]

    def rows_of(self, variable):
        return len(variable)

    def iota(self, count):
        return np.arange(count, dtype=np.int32)

    def stack(self, numbers):
        return np.stack(numbers)

    def concat(self, values, axis):
        return np.concatenate(values, axis)

    def unique(self, rows):
        return np.unique(rows)

    def sum_duplicates(self, values, indices):
        rows, segments = np.unique(indices, return_inverse=True)
        sums = np.zeros((len(rows),) + values.shape[1:], values.dtype)
        np.add.at(sums, segments.reshape(-1), values)
        return sums, rows

    def scatter_to_dense(self, values, rows, count):
        dense = np.zeros((count,) + values.shape[1:], values.dtype)
        dense[rows] = values
        return dense

    def rows_equal(self, marks, mark):
        return np.flatnonzero(marks.reshape(-1) == mark)

    def largest(self, counts):
        return int(np.max(counts)) if np.size(counts) else 0

    def repeat(self, count, body, values):
        for step in range(count):
            values = body(step, values)
        return values

    def choose(self, predicate, yes, no):
        return yes if predicate else no

    def values(self, variables, session):
        return [np.array(variable) for variable in variables]

    def put(self, writes, session):
        for variable, value, _ in writes:
            variable[Ellipsis] = value
            del value  # before the next one is read
