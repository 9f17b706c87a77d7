"""What a rule sees: values that record the maths, which the engine then lowers to a backend's ops.

A rule runs once for each variable, on values that hold no numbers. Expressions of step-wide values alone (hypers,
t, scalars) are shared by all variables of a step and computed once for each dtype.
"""
from __future__ import absolute_import, division, print_function

import contextlib
import numbers

import numpy as np

from everstep.compat.ops import NAMES, unknown_op
from everstep.errors import RuleError, UnknownOpError

REDUCTIONS = ("sum", "mean", "max", "min", "any", "all")
_OPERATORS = {  # Python's: (with its mirror, the op)
    "add": (True, "add"),
    "sub": (True, "subtract"),
    "mul": (True, "multiply"),
    "truediv": (True, "divide"),
    "div": (True, "divide"),
    "floordiv": (True, "floor_divide"),
    "mod": (True, "remainder"),
    "pow": (True, "pow"),
    "and": (True, "logical_and"),
    "or": (True, "logical_or"),
    "lt": (False, "less"),
    "le": (False, "less_equal"),
    "gt": (False, "greater"),
    "ge": (False, "greater_equal"),
}
_VALUES = {"clip": 3, "where": 3, "maximum": 2, "minimum": 2, "equal": 2}  # how many an op takes; else one
_VALUES.update((op, 2) for _, op in _OPERATORS.values())
_SETTINGS = dict({op: ("axis", "keepdims") for op in REDUCTIONS}, cast=("to",), reshape=("to",))
# NumPy's names for its scalars' operators.
_UFUNCS = dict({op: op for _, op in _OPERATORS.values()}, true_divide="divide", power="pow")

_TO_BOOL = frozenset(
    "less less_equal greater greater_equal equal isfinite logical_and logical_or logical_not any all".split()
)
_ONLY_BOOL = frozenset("logical_and logical_or logical_not any all".split())
_FROM_BOOL = frozenset(
    "where equal logical_and logical_or logical_not any all cast zeros_like ones_like reshape".split()
)


class Value(object):
    """One node of a rule's expression: an op on other values, or a leaf that is read when needed."""

    __slots__ = ("tracer", "op", "args", "options", "dtype", "step_wide", "read", "leaf_shape")

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

    def __repr__(self):
        return "<a value of {}>".format("ops." + self.op if self.op else "the rule's arguments")

    def __getattr__(self, name):
        if name in NAMES:
            raise UnknownOpError("a value has no method {0!r}; write ops.{0}(value)".format(name))
        raise AttributeError(
            "a value has no {!r}; it has arithmetic, dtype and, where known, shape and ndim".format(name)
        )

    def __getitem__(self, place):
        raise RuleError("a rule cannot take parts of a value; ops.where chooses, ops.reshape arranges")

    def __eq__(self, other):
        raise RuleError("a rule compares values with ops.equal(a, b), not ==")

    __ne__ = __eq__
    __hash__ = object.__hash__

    def _no_number(self, *unused, **options):
        raise RuleError(
            "a rule cannot look at a number (if, float(), len(), numpy functions): it runs before there are any. Use "
            "ops.where for a choice by value, and an option for a choice made at construction"
        )

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        if method != "__call__" or options or ufunc.__name__ not in _UFUNCS:
            self._no_number()
        return self.tracer.apply(_UFUNCS[ufunc.__name__], inputs)  # a NumPy scalar stands on the left of an operator

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


for _python, (_mirrored, _op) in _OPERATORS.items():
    setattr(Value, "__{}__".format(_python), _operator(_op, False))
    if _mirrored:
        setattr(Value, "__r{}__".format(_python), _operator(_op, True))


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

    def leaf(self, read, step_wide=False, shape=None, dtype=None):
        """A value whose native form `read()` gives, in this tracer's dtype or another."""
        return Value(self, None, (), {}, dtype or self._dtype, step_wide, read, shape)

    def apply(self, op, args, options=None):
        args, options = _arguments(op, args, options or {})
        like = self._common_dtype(op, args)
        values = tuple(a if isinstance(a, Value) else self.constant(a, like, op) for a in args)
        step_wide = all(value.step_wide for value in values)
        dtype = "bool" if op in _TO_BOOL else options["to"] if op == "cast" else like
        made = Value(self, op, values, options, dtype, step_wide)
        if not step_wide:
            return made
        structure = (op, tuple(map(id, values)), tuple(sorted(options.items())))
        return self._shared.setdefault(structure, made)

    def _common_dtype(self, op, args):
        """The dtype in which an op computes, and which plain numbers take; an error where its values have no one."""
        chosen = args[1:] if op == "where" else args
        dtypes = [arg.dtype for arg in chosen if isinstance(arg, Value)]
        asked = args[:1] if op == "where" else args if op in _ONLY_BOOL else ()
        if any(isinstance(arg, Value) and arg.dtype != "bool" for arg in asked):
            raise RuleError("ops.{} asks whether something is so; give it a comparison, such as value > 0".format(op))
        if "bool" in dtypes and op not in _FROM_BOOL:
            raise RuleError(
                "ops.{} got a value of yes and no; make numbers of it with ops.cast(value, grad.dtype)".format(op)
            )
        if len(set(dtypes)) > 1:
            raise RuleError(
                "ops.{} got values of {}; bring them together with ops.cast".format(
                    op, " and ".join(sorted(set(dtypes)))
                )
            )
        return dtypes[0] if dtypes else self._dtype

    def constant(self, number, dtype=None, op=None):
        if isinstance(number, (np.ndarray, np.generic)) and not np.ndim(number):
            number = number.item()  # NumPy's scalars compare as arrays
        if not isinstance(number, numbers.Real):
            raise RuleError(
                "{} {!r}; a rule computes with the values it is given and Python numbers alone".format(
                    "ops.{} got".format(op) if op else "a rule returned", number
                )
            )
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
                native = self._computed(value, [self.lower(arg, results) for arg in value.args])
            store[id(value)] = (value, native)  # the value too: an id is only its own while it lives
        return store[id(value)][1]

    def _computed(self, value, natives):
        try:
            return self._backend.ops[value.op](*natives, **value.options)
        except (IndexError, TypeError, ValueError) as error:
            raise RuleError(
                "ops.{} cannot take values of shapes {}{}: {}".format(
                    value.op,
                    " and ".join(str(self._backend.shape(native)) for native in natives),
                    " with {}".format(value.options) if value.options else "",
                    error,
                )
            )

    @contextlib.contextmanager
    def forgetting(self):
        """Forgets what is lowered within: outside of a loop's body that is not there."""
        before = dict(self._lowered)
        try:
            yield
        finally:
            self._lowered = before

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


def _arguments(op, args, options):
    """(values, settings) of a call of an op, or an error where it takes others."""
    count, names = _VALUES.get(op, 1), _SETTINGS.get(op, ())
    if len(args) == count and not names and not options:
        return args, options
    values, settings = args[:count], dict(zip(names, args[count:]), **options)
    needed = "to" not in names or "to" in settings
    if len(values) < count or len(args) > count + len(names) or not needed or not set(settings).issubset(names):
        raise RuleError(
            "ops.{} takes {}{}; got {} and {}".format(
                op,
                "one value" if count == 1 else "{} values".format(count),
                " and " + ", ".join(names) if names else "",
                len(args),
                ", ".join(sorted(options)) or "nothing by name",
            )
        )
    if op == "cast":
        settings["to"] = _dtype_name(settings["to"])
    return values, {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}


def _dtype_name(dtype):
    try:
        return dtype if dtype == "bfloat16" else np.dtype(dtype).name
    except TypeError:
        raise RuleError('ops.cast takes the name of a dtype, such as "float32" or grad.dtype; got {!r}'.format(dtype))
