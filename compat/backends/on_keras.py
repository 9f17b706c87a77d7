"""Keras 3 where it runs on JAX or torch."""
from __future__ import absolute_import, division, print_function

import contextlib

import numpy as np

from everstep.compat.backends.base import WithoutGraphs


class KerasBackend(WithoutGraphs):
    """Variables of Keras 3 where it runs on JAX or torch: eager values or, in a jitted function, traced ones.

    Gradients are dense there, so there is nothing that moves rows.

    Args:
        keras: the module `keras`.
        variable: the class of all its variables; in Keras 3.0 `keras.Variable` is a subclass of that.
    """

    eager = True
    moves_rows = False

    def __init__(self, keras, variable):
        self.keras, self.variable = keras, variable
        self.ops = _keras_table(keras.ops)

    @property
    def name(self):
        return self.keras.backend.backend()

    def computing(self):
        """What a step runs in: torch would else record it for backpropagation."""
        if self.name != "torch":
            return self.after(())
        import torch

        return torch.no_grad()

    def constant(self, number, dtype):
        return self.keras.ops.convert_to_tensor(number, dtype)

    def cast(self, value, dtype):
        dtype = self.stored(dtype)
        return value if self.dtype(value) == dtype else self.keras.ops.cast(value, dtype)

    def stored(self, dtype):
        """The dtype that stands for another here: JAX and torch count in Keras's own integer."""
        return self.keras.backend.standardize_dtype("int" if dtype == "int64" else dtype)

    def dtype(self, variable):
        return self.keras.backend.standardize_dtype(variable.dtype)

    def shape(self, value):
        return tuple(value.shape)

    def read(self, variable):
        return variable.value if isinstance(variable, self.variable) else variable

    def write(self, variable, value, rows=None):
        variable.assign(self.cast(value, self.dtype(variable)))

    def add(self, variable, value):
        self.write(variable, self.read(variable) + value)

    def subtract(self, variable, value, rows=None):
        self.write(variable, self.cast(self.read(variable), self.dtype(value)) - value)

    def copy(self, value, variable):
        return self.keras.ops.copy(value)

    def slices(self, grad):
        return None

    def tensor(self, value):
        return self.keras.ops.convert_to_tensor(value)

    def rows_of(self, variable):
        return variable.shape[0]

    def iota(self, count):
        return self.keras.ops.arange(count, dtype="int32")

    def lowers(self, way):
        return way == "grouped" and self.name == "torch"  # XLA does it by itself where JAX compiles

    def is_here(self, variable):
        return True

    def device(self, variable):
        return str(self.read(variable).device)

    def shares_variables(self):
        return False

    def concat_flat(self, values):
        import torch  # whose own operations take a fifth of the time of keras.ops

        return torch.cat([value.reshape(-1) for value in values])

    def split(self, value, shapes):
        parts = value.split([int(np.prod(shape)) for shape in shapes])
        return [part.reshape(shape) for part, shape in zip(parts, shapes)]

    def can_branch(self, variable):
        return True

    def branch(self, predicate, yes, no, variables):
        if not self._is_traced(predicate):
            return yes() if bool(predicate) else no()
        before = [(variable, self.read(variable)) for variable in variables]

        def values(act):
            with self.keras.StatelessScope(before) as scope:
                act()
            return [scope.get_current_value(variable) for variable in variables]

        after = self.keras.ops.cond(predicate, lambda: values(yes), lambda: values(no))
        return [self.write(variable, value) for variable, value in zip(variables, after)]

    def values_if(self, predicate, values, dtypes):
        zeros = lambda: [self.constant(0, dtype) for dtype in dtypes]  # noqa: E731  # a branch
        if not self._is_traced(predicate):
            return values() if bool(predicate) else zeros()
        return list(self.keras.ops.cond(predicate, values, zeros))

    def _is_traced(self, value):
        if self.name != "jax":
            return False
        import jax

        return isinstance(value, jax.core.Tracer)

    def choose(self, predicate, yes, no):
        return self.keras.ops.where(predicate, yes, no)

    def barrier(self, values):
        return None

    def wait(self, value, operations):
        return value

    def outside(self):
        return self.after(())

    def first_replica(self):
        return self.after(())

    def group(self, operations):
        """What stands for all of the operations: nothing where they are done."""

    def plain(self, function):
        return function

    @contextlib.contextmanager
    def after(self, operations):
        yield

    def value(self, variable, session):
        return np.array(self.keras.ops.convert_to_numpy(self.read(variable)))

    def put(self, variable, value, session):
        variable.assign(self.constant(value, self.dtype(variable)))


def _keras_table(ops):
    return {
        "abs": ops.abs,
        "sqrt": ops.sqrt,
        "rsqrt": ops.rsqrt,
        "square": ops.square,
        "exp": ops.exp,
        "log": ops.log,
        "pow": ops.power,
        "sin": ops.sin,
        "cos": ops.cos,
        "sign": ops.sign,
        "floor": ops.floor,
        "maximum": ops.maximum,
        "minimum": ops.minimum,
        "clip": lambda x, low, high: ops.minimum(ops.maximum(x, low), high),
        "where": ops.where,
        "equal": ops.equal,
        "isfinite": ops.isfinite,
        "logical_and": ops.logical_and,
        "logical_or": ops.logical_or,
        "logical_not": ops.logical_not,
        "sum": ops.sum,
        "mean": ops.mean,
        "max": ops.max,
        "min": ops.min,
        "any": ops.any,
        "all": ops.all,
        "cast": lambda x, to: ops.cast(x, to),
        "sigmoid": ops.sigmoid,
        "tanh": ops.tanh,
        "zeros_like": ops.zeros_like,
        "ones_like": ops.ones_like,
        "reshape": lambda x, to: ops.reshape(x, to),
        "add": ops.add,
        "subtract": ops.subtract,
        "multiply": ops.multiply,
        "divide": ops.true_divide,
        "floor_divide": ops.floor_divide,
        "remainder": ops.mod,
        "negative": ops.negative,
        "less": ops.less,
        "less_equal": ops.less_equal,
        "greater": ops.greater,
        "greater_equal": ops.greater_equal,
    }
