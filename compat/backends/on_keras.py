"""The backend for Keras 3 on JAX or torch."""
from __future__ import absolute_import, division, print_function

import sys

import numpy as np

from everstep.compat.backends.arrays_in_memory import as_own, to_give
from everstep.compat.backends.base import GRAPHS, ROWS, Backend
from everstep.compat.backends.on_jax import rounded
from everstep.compat.backends.on_torch import TorchLists
from everstep.compat.backends.ops_table import add_linalg, ops_table
from everstep.compat.rules.operations import END, LINALG
from everstep.optimizers.contract import SIXTEEN_BITS

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments


class KerasBackend(Backend):
    """Keras 3 variables on JAX or torch. Values are eager or, in a jitted function, traced.

    Gradients are dense, so no verb writes rows. `dense` converts sparse ones.

    Args:
        keras: the module `keras`.
        variable: the class of all its variables. In Keras 3.0, `keras.Variable` is a subclass of it.
    """

    moves_rows = False
    lists = None  # type: Any

    def __init__(self, keras, variable):
        self.keras, self.variable = keras, variable
        self.name = keras.backend.backend()
        self.separates = self.name == "jax"
        self._barrier = None  # type: Any  # the function of JAX that `separate` calls, False if there is none
        names = {"pow": "power", "divide": "true_divide", "remainder": "mod"}
        self.ops = ops_table(keras.ops, names, {"cast": lambda x, to: self.cast(self.tensor(x), to)})
        linalg = {name: getattr(keras.ops, name, None) for name in LINALG}
        svd = linalg["svd"] and (lambda x: keras.ops.svd(x, full_matrices=False))
        cholesky = linalg["cholesky"] and self._cholesky
        add_linalg(self.ops, linalg["qr"], linalg["eigh"], svd, cholesky, linalg["solve"], keras.ops.diagonal)
        self.unsupported = GRAPHS + ROWS + ("all_or_nothing", "concat_flat", "split")
        if self.name == "torch":
            self.lists = TorchLists(variable)
            self.adds_in_place = True

    def constant(self, number, dtype):
        return self.keras.ops.convert_to_tensor(number, dtype)

    def tensor(self, value):
        return self.keras.ops.convert_to_tensor(value)

    def cast(self, value, dtype):
        old, dtype = self.dtype(value), self.stored(dtype)
        if old == "float32" and dtype in SIXTEEN_BITS and self.is_traced(value):
            value = rounded(value, dtype)
        return value if old == dtype else self.keras.ops.cast(value, dtype)

    def stored(self, dtype):
        # On JAX and torch, counters have Keras's own integer dtype.
        return self.keras.backend.standardize_dtype("int" if dtype == "int64" else dtype)

    def is_traced(self, value):
        if self.name != "jax":
            return False
        import jax

        return isinstance(value, jax.core.Tracer)

    def _cholesky(self, value):
        # Keras 3.0's own looks for NaN in the result, which a jitted function cannot.
        if self.is_traced(value):
            import jax

            return jax.numpy.linalg.cholesky(value)
        return self.keras.ops.cholesky(value)

    def separate(self, values):
        if not any(self.is_traced(value) for value in values):
            return None
        if self._barrier is None:
            self._barrier = _optimization_barrier() or False
        return self._barrier(values) if self._barrier else None

    def dtype(self, variable):
        return self.keras.backend.standardize_dtype(variable.dtype)

    def shape(self, value):
        return tuple(value.shape)

    def read(self, variable):
        return variable.value if isinstance(variable, self.variable) else variable

    def write(self, variable, value, rows=None):
        variable.assign(self.cast(value, self.dtype(variable)))

    def add(self, variable, value):
        if self.lists and self.lists.add(variable, value):
            return
        total, dtype = self.read(variable) + value, self.dtype(variable)
        if dtype in END and self.is_traced(total):  # at its end a traced counter stops; an eager step raises an error
            total = self.keras.ops.minimum(total, self.constant(END[dtype], dtype))
        self.write(variable, total)

    def subtract(self, variable, value, rows=None, share=None):
        self.write(variable, self.cast(self.read(variable), self.dtype(value)) - value)

    def copy(self, value, variable):
        return self.keras.ops.copy(value)

    def surely_fits(self, grad, variable):
        return self.lists is not None and self.lists.surely_fits(grad, variable)

    def dense(self, grad):
        if self.name == "jax":
            return grad.todense() if hasattr(grad, "todense") else grad
        return grad.to_dense() if getattr(grad, "is_sparse", False) else grad

    def rows_of(self, variable):
        return variable.shape[0]

    def iota(self, count):
        return self.keras.ops.arange(count, dtype="int32")

    def branch(self, predicate, yes, no, variables):
        if not self.is_traced(predicate):
            return super(KerasBackend, self).branch(predicate, yes, no, variables)
        old_values = [(variable, self.read(variable)) for variable in variables]

        def values_after(branch):
            with self.keras.StatelessScope(old_values) as scope:
                branch()
            return [scope.get_current_value(variable) for variable in variables]

        new_values = self.keras.ops.cond(predicate, lambda: values_after(yes), lambda: values_after(no))
        return [self.write(variable, value) for variable, value in zip(variables, new_values)]

    def values_if(self, predicate, yes, no):
        if not self.is_traced(predicate):
            return super(KerasBackend, self).values_if(predicate, yes, no)
        return list(self.keras.ops.cond(predicate, yes, no))

    def choose(self, predicate, yes, no):
        return self.keras.ops.where(predicate, yes, no)

    def plain(self, function):
        if self.name != "torch" or "torch._dynamo" not in sys.modules:  # its compiler; importing it takes a second
            return function
        import torch

        # torch.compile would trace the engine anew for each shape of a variable, and then give up.
        return torch.compiler.disable(function)

    def computing(self):
        if self.name != "torch":
            return self.after(())
        import torch  # because torch would record the step for backpropagation

        return torch.no_grad()

    def lowers(self, strategy):
        return self.lists is not None and strategy in ("kernel", "flattened")  # XLA fuses a jitted step on JAX anyway

    def device(self, variable):
        native = self.read(variable)
        devices = getattr(native, "devices", None)  # JAX only: its arrays have no `device` before 0.4.31
        return str(sorted(map(str, devices()))) if devices else str(native.device)

    def values(self, variables, session):
        return [as_own(self.keras.ops.convert_to_numpy(self.read(variable))) for variable in variables]

    def put(self, writes, session):
        for variable, value, is_shared in writes:
            value = to_give(value, np.asarray(value).dtype, is_shared)  # JAX keeps it; NumPy has no bfloat16
            variable.assign(self.constant(value, self.dtype(variable)))
            del value  # before the next one is read


def _optimization_barrier():
    """Returns JAX's optimization_barrier where it pays: on processors. Devices compute all in one pass without it.

    XLA of JAX before 0.11.2 takes it out before it decides what to copy. It copies all the same, for Lion once more.
    """
    import jax

    pays = jax.default_backend() == "cpu" and jax.__version_info__ >= (0, 11, 2)
    return jax.lax.optimization_barrier if pays else None
