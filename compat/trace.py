"""What a rule sees: values that record the maths, which the engine then lowers to a backend's ops.

A rule runs once for each variable, on values that hold no numbers. Expressions of step-wide values alone (hypers,
t, scalars) are shared by all variables of a step and computed once for each dtype.
"""
from __future__ import absolute_import, division, print_function

import numbers

import numpy as np

from everstep.compat.ops import NAMES, unknown_op
from everstep.errors import RuleError

_TO_BOOL = frozenset("less less_equal greater greater_equal equal isfinite logical_and logical_or logical_not any all".split())


class Value(object):
    """One node of a rule's expression: an op on other values, or a leaf that is read when needed."""

    __slots__ = ("tracer", "op", "args", "options", "dtype", "step_wide", "read", "leaf_shape")
    __array_ufunc__ = None  # NumPy scalars on the left leave the operation to us

    def __init__(self, tracer, op, args, options, dtype, step_wide, read=None, leaf_shape=None):
        self.tracer, self.op, self.args, self.options = tracer, op, args, options
        self.dtype, self.step_wide, self.read, self.leaf_shape = dtype, step_wide, read, leaf_shape

    @property
    def shape(self):
        if self.leaf_shape is None:
            raise RuleError("only what a rule is given (grad, var, slots) has a known shape; ask those")
        return self.leaf_shape

    @property
    def ndim(self):
        return len(self.shape)

    @property
    def is_buffer(self):
        """Whether the native form may be the very memory of a variable, not a new result."""
        return self.read is not None or self.op in ("cast", "reshape") and self.args[0].is_buffer

    def __eq__(self, other):
        raise RuleError("a rule compares values with ops.equal(a, b), not ==")

    __ne__ = __eq__
    __hash__ = object.__hash__

    def _no_number(self, *unused):
        raise RuleError(
            "a rule cannot look at a number (if, float(), len(), numpy functions): it runs before there are any. Use "
            "ops.where for a choice by value, and an option for a choice made at construction"
        )

    __bool__ = __nonzero__ = __float__ = __int__ = __len__ = __iter__ = __array__ = __index__ = _no_number

    def __neg__(self):
        return self.tracer.apply("negative", (self,))

    def __abs__(self):
        return self.tracer.apply("abs", (self,))

    def __invert__(self):
        return self.tracer.apply("logical_not", (self,))


def _operator(op, swapped):
    def method(self, other):
        return self.tracer.apply(op, (other, self) if swapped else (self, other))

    return method


for _python, _op in [
    ("add", "add"),
    ("sub", "subtract"),
    ("mul", "multiply"),
    ("truediv", "divide"),
    ("div", "divide"),
    ("floordiv", "floor_divide"),
    ("mod", "remainder"),
    ("pow", "pow"),
    ("and", "logical_and"),
    ("or", "logical_or"),
]:
    setattr(Value, "__{}__".format(_python), _operator(_op, False))
    setattr(Value, "__r{}__".format(_python), _operator(_op, True))
for _python, _op in [("lt", "less"), ("le", "less_equal"), ("gt", "greater"), ("ge", "greater_equal")]:
    setattr(Value, "__{}__".format(_python), _operator(_op, False))


class Tracer(object):
    """Records and lowers the expressions of one step in one compute dtype. It is the `ops` that rules get."""

    def __init__(self, backend, dtype):
        self._backend, self._dtype = backend, dtype
        self._shared = {}  # structure of a step-wide value -> the value
        self._lowered = {}  # id of a step-wide value -> (the value, its native form)

    def __getattr__(self, name):
        if name not in NAMES:
            raise unknown_op(name)
        return lambda *args, **options: self.apply(name, args, options)

    def leaf(self, read, step_wide=False, shape=None):
        """A value whose native form `read()` gives, in this tracer's dtype."""
        return Value(self, None, (), {}, self._dtype, step_wide, read, shape)

    def apply(self, op, args, options=None):
        options = dict(options or {})
        if op in ("cast", "reshape"):
            args, options["to"] = args[:1], args[1]
        elif op in ("sum", "mean", "max", "min", "any", "all") and len(args) == 2:
            args, options["axis"] = args[:1], args[1]
        like = next((a.dtype for a in args if isinstance(a, Value) and a.dtype != "bool"), None)
        like = like or next((a.dtype for a in args if isinstance(a, Value)), self._dtype)
        values = tuple(a if isinstance(a, Value) else self.constant(a, like, op) for a in args)
        step_wide = all(value.step_wide for value in values)
        dtype = "bool" if op in _TO_BOOL else options["to"] if op == "cast" else like
        made = Value(self, op, values, options, dtype, step_wide)
        if not step_wide:
            return made
        structure = (op, tuple(map(id, values)), tuple(sorted(options.items())))
        return self._shared.setdefault(structure, made)

    def constant(self, number, dtype=None, op="constant"):
        if not isinstance(number, (numbers.Real, np.bool_)):
            raise RuleError(
                "ops.{} got {!r}; a rule computes with the values it is given and Python numbers alone".format(op, number)
            )
        number = bool(number) if isinstance(number, (bool, np.bool_)) else number
        dtype = dtype or self._dtype
        made = Value(self, "constant", (), {"number": number, "dtype": dtype}, dtype, True)
        return self._shared.setdefault(("constant", repr(number), dtype), made)

    def lower(self, value, results):
        """A value's native form; `results` remembers those that are not step-wide."""
        store = self._lowered if value.step_wide else results
        if id(value) not in store:
            if value.read is not None:
                native = value.read()
            elif value.op == "constant":
                native = self._backend.constant(**value.options)
            else:
                native = self._backend.ops[value.op](*[self.lower(arg, results) for arg in value.args], **value.options)
            store[id(value)] = (value, native)  # the value too: an id is only its own while it lives
        return store[id(value)][1]

    def hoist(self, values):
        """Lowers the step-wide parts of values now, outside of any branch that will need them."""
        waiting, seen = list(values), set()
        while waiting:
            value = waiting.pop()
            if id(value) in seen:
                continue
            seen.add(id(value))
            if value.step_wide:
                self.lower(value, {})
            else:
                waiting.extend(value.args)
