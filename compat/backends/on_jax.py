"""The backend for JAX without Keras: values of a tree, held for the length of one call of a pure function.

A variable is a `Place`: a name, a shape and a dtype, without a value. `Held` gives places their values for one call. A
write replaces the value there; a write of a trained variable is kept as what it adds, which is all that optax wants.
"""
from __future__ import absolute_import, division, print_function

import contextlib
import threading

import numpy as np

from everstep.compat.backends.arrays_in_memory import as_own, to_give
from everstep.compat.backends.base import GRAPHS, ROWS, Backend
from everstep.compat.backends.ops_table import add_linalg, ops_table
from everstep.compat.rules.operations import END
from everstep.optimizers.contract import SIXTEEN_BITS


class Place(object):
    """A variable, counter, scalar or slot of a tree. Its value is in `Held`.

    Attributes:
        name: the path in the tree, or the name of the counter, scalar or slot.
        shape, dtype: what the tree had when this was made.
        slots: {name: `Place`} of a variable.
        change: of a trained variable, the `Place` of what a step adds to it; None for others.
    """

    def __init__(self, name, shape, dtype, is_trained=False):
        self.name, self.shape, self.dtype, self.slots = name, shape, dtype, {}
        self.change = Place("change of " + name, shape, dtype) if is_trained else None

    def __repr__(self):
        return "<{} of shape {}, {}>".format(self.name, self.shape, self.dtype)


class Held(object):
    """The values of places, for the calls that run: each thread has its own.

    Args:
        missing: the text of the ValueError for a read of a variable whose value was not given.
    """

    def __init__(self, missing):
        self._missing, self._calls = missing, threading.local()

    @property
    def values(self):
        """{`Place`: value} of the call that runs in this thread; empty outside of calls."""
        return getattr(self._calls, "values", {})

    @contextlib.contextmanager
    def holding(self, values):
        """Returns a context in which places have these values, a dictionary that writes change. It gives them."""
        before = self.values
        self._calls.values = values
        try:
            yield values
        finally:
            self._calls.values = before

    def read(self, place):
        if place not in self.values:
            raise ValueError(self._missing)
        return self.values[place]


class Axes(object):
    """Axes of devices over which variables can be in parts: those of `jax.shard_map`, `jax.pmap` and `jax.vmap`.

    Args:
        names: the names of the axes.
    """

    def __init__(self, names):
        import jax

        self.names, self._jax = tuple(names), jax

    def unbound(self):
        """Returns the names of the axes that do not exist here."""
        return [name for name in self.names if self._index(name) is None]

    def of(self, value):
        """Returns the names of the axes over which a value differs, or may differ where JAX does not say.

        `shard_map` says it unless `check_vma=False`: https://docs.jax.dev/en/latest/201/shard-map.html
        """
        return tuple(name for name in self.names
                     if name in self._varying(value) or name not in self._varying(self._index(name)))

    def sum(self, values, names):
        """Returns the sums over axes of a list of values, by one operation of all devices."""
        return self._jax.lax.psum(values, names) if names else values

    def _index(self, name):
        try:
            return self._jax.lax.axis_index(name)
        except NameError:
            return None

    def _varying(self, value):
        kind = getattr(value.aval, "manual_axis_type", value.aval)
        return getattr(kind, "varying", getattr(kind, "vma", ()))  # older JAX has `vma` instead, or neither


class JaxBackend(Backend):
    """JAX arrays, eager or traced. Gradients are dense, so no verb writes rows. `held`: a `Held`."""

    name = "jax"
    moves_rows = False
    unsupported = GRAPHS + ROWS + ("all_or_nothing", "concat_flat", "split")

    def __init__(self, held):
        import jax

        self._jax, self._held = jax, held
        names = {"pow": "power", "divide": "true_divide", "remainder": "mod"}
        self.ops = ops_table(jax.numpy, names, {
            "cast": lambda x, to: self.cast(self.tensor(x), to),
            "rsqrt": jax.lax.rsqrt,
            "sigmoid": jax.nn.sigmoid,
        })
        linalg = jax.numpy.linalg
        add_linalg(self.ops, linalg.qr, linalg.eigh, lambda x: linalg.svd(x, full_matrices=False), linalg.cholesky,
                   linalg.solve, jax.numpy.diagonal)

    def constant(self, number, dtype):
        return self._jax.numpy.asarray(number, self.stored(dtype))

    def tensor(self, value):
        return self._jax.numpy.asarray(value)

    def cast(self, value, dtype):
        old, dtype = self.dtype(value), self.stored(dtype)
        if old == "float32" and dtype in SIXTEEN_BITS and self.is_traced(value):
            value = rounded(value, dtype)
        # This makes weak types strong, even if the dtype stays: a state of weak types would compile a step twice.
        return self._jax.lax.convert_element_type(value, self._jax.numpy.dtype(dtype))

    def stored(self, dtype):
        return "int32" if dtype == "int64" else dtype  # optax counts so, and JAX has no int64 by default

    def is_traced(self, value):
        return isinstance(value, self._jax.core.Tracer)

    def dtype(self, variable):
        value = self._held.values.get(variable, variable) if isinstance(variable, Place) else variable
        return getattr(value.dtype, "name", value.dtype)

    def shape(self, value):
        return tuple(value.shape)

    def read(self, variable):
        return self._held.read(variable) if isinstance(variable, Place) else variable

    def write(self, variable, value, rows=None):
        if variable.change is not None:
            self.subtract(variable, self.cast(self.read(variable), self.dtype(value)) - value)
        else:
            self._held.values[variable] = self.cast(value, self.dtype(variable))

    def add(self, variable, value):
        total, dtype = self.read(variable) + value, self.dtype(variable)
        if dtype in END:  # a counter stops at the largest number of its dtype
            total = self._jax.numpy.minimum(total, self.constant(END[dtype], dtype))
        self.write(variable, total)

    def subtract(self, variable, value, rows=None, share=None):
        before = self._held.values.get(variable.change)
        self._held.values[variable.change] = -value if before is None else before - value

    def copy(self, value, variable):
        return self._jax.numpy.array(value, copy=True)  # a donated state must not share its arrays

    def gradient(self, value, dtype):
        return value if self.is_traced(value) else super(JaxBackend, self).gradient(value, dtype)

    def rows_of(self, variable):
        return variable.shape[0]

    def filled(self, shape, number, dtype, variable):
        numbers, dtype = np.asarray(number), self.stored(dtype)
        if numbers.ndim == 0 and tuple(shape) == self.shape(variable):  # sharded as the variable is
            return self._jax.numpy.full_like(self.read(variable), numbers, dtype=dtype)
        return self._jax.numpy.broadcast_to(self.constant(numbers, dtype), shape)

    def iota(self, count):
        return self._jax.numpy.arange(count, dtype="int32")

    def branch(self, predicate, yes, no, variables):
        if not self.is_traced(predicate):
            return super(JaxBackend, self).branch(predicate, yes, no, variables)
        places, held = [variable.change or variable for variable in variables], self._held.values
        for variable, place in zip(variables, places):
            if place not in held:  # both branches must assign to the same variables
                held[place] = self._no_change(variable)

        def values_after(branch):
            with self._held.holding(dict(held)) as after:
                branch()
                return [after[place] for place in places]

        held.update(zip(places, self._jax.lax.cond(predicate, lambda: values_after(yes), lambda: values_after(no))))
        return []

    def _no_change(self, variable):
        """Returns zeros, of the type that a change has: in `shard_map` it differs over the axes that the variable does.
        """
        dtype, numpy = self.dtype(variable), self._jax.numpy
        dtype = "float32" if dtype in SIXTEEN_BITS else dtype
        # a slot stands in if the variable's own value was not passed
        for place in [variable] + list(variable.slots.values()):
            if place in self._held.values and place.shape == variable.shape:
                return numpy.zeros_like(self._held.values[place], dtype)
        return numpy.zeros(variable.shape, dtype)

    def values_if(self, predicate, yes, no):
        if not self.is_traced(predicate):
            return super(JaxBackend, self).values_if(predicate, yes, no)
        return list(self._jax.lax.cond(predicate, lambda: list(yes()), lambda: list(no())))

    def choose(self, predicate, yes, no):
        return self._jax.numpy.where(predicate, yes, no)

    def values(self, variables, session):
        return [as_own(np.asarray(self.read(variable))) for variable in variables]

    def put(self, writes, session):
        for variable, value, is_shared in writes:
            value = to_give(value, np.asarray(value).dtype, is_shared)  # JAX keeps it; NumPy has no bfloat16
            self._held.values[variable] = self.constant(value, self.dtype(variable))
            del value  # before the next one is read


def rounded(value, dtype):
    """Returns a float32 value of a jitted function of JAX, rounded to what a 16-bit dtype can hold.

    XLA of JAX 0.4.30 drops a cast to 16 bits and back, and the rounding with it. It keeps `reduce_precision`:
    https://docs.jax.dev/en/latest/_autosummary/jax.lax.reduce_precision.html
    """
    import jax

    narrow = jax.lax.reduce_precision(value, exponent_bits=8, mantissa_bits=7 if dtype == "bfloat16" else 10)
    if dtype == "bfloat16":
        return narrow
    smallest = 2.0**-24  # float16 holds its multiples up to 2^-14
    return jax.numpy.where(abs(value) < 2.0**-14, jax.numpy.round(value / smallest) * smallest, narrow)
