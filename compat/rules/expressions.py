"""The values of a rule that runs on symbols: expressions of operations and leaves, which hold no numbers.

A rule's `update` runs on leaves with names, such as ("slot", "m"). What it returns is kept; an `Interpreter` computes
it at each step on what the leaves stand for then. A step-wide expression (of hypers, t, scalars) is one object wherever
rules write it, so that a step computes it once for all variables.
"""
from __future__ import absolute_import, division, print_function

import contextlib
import numbers
import threading

import numpy as np

from everstep.compat.rules.counts import OPS, Whole, counted
from everstep.compat.rules.operations import COMPOSED, END, LINALG, NAMES, TABLE, composed, missing_op, unknown_op
from everstep.compat.rules.shapes import agree, part_of, result_shape
from everstep.errors import RuleError, UnknownOpError
from everstep.optimizers.contract.checks import TEXT_OR_BYTES
from everstep.optimizers.contract.refreshing import refreshed_update

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments

_REFLECTED = "add sub mul truediv div floordiv mod pow and or".split()  # Python's operators with a reflected form
_OPERATORS = {  # {Python's operator: op}
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "div": "divide",
    "floordiv": "floor_divide", "mod": "remainder", "pow": "pow", "and": "logical_and", "or": "logical_or",
    "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
}
# {NumPy's name of an operator on its scalars: op}
_UFUNCS = dict({op: op for op in _OPERATORS.values()}, true_divide="divide", power="pow")


class Value(object):
    """A node of a rule's expression: an op on other values, or a leaf.

    Attributes:
        leaf: the name of a leaf, (what it is, name or None), such as ("slot", "m"); None for an op.
        leaf_shape: the shape of a leaf, if rules may ask for it; else None.
        step_wide: whether it is one value for all variables of a step.
        exact: the integer of a count, see rules/counts.py; None for all other values.
    """

    __slots__ = ("tracer", "op", "args", "options", "dtype", "step_wide", "leaf", "leaf_shape", "exact", "__weakref__")

    def __init__(self, tracer, op, args, options, dtype, step_wide, leaf=None, leaf_shape=None, exact=None):
        self.tracer, self.op, self.args, self.options = tracer, op, args, options
        self.dtype, self.step_wide, self.leaf, self.leaf_shape = dtype, step_wide, leaf, leaf_shape
        self.exact = exact

    @property
    def shape(self):
        shape = result_shape(self)
        if shape is None:
            raise RuleError("the shape of this value is not known; read that of grad, var or a slot")
        return shape

    @property
    def ndim(self):
        return len(self.shape)

    @property
    def is_buffer(self):
        """Whether the native value may share memory with a variable."""
        is_view = self.op in ("cast", "reshape", "transpose") and self.args[0].is_buffer
        return self.leaf is not None or is_view or self.op == "chosen"  # perhaps an old value

    def __repr__(self):
        return "<a value of {}>".format("ops." + self.op if self.op else "the rule's arguments")

    def __getattr__(self, name):
        if name in NAMES or name in LINALG or name in COMPOSED:
            raise UnknownOpError("a value has no method {0!r}; write ops.{0}(value)".format(name))
        raise AttributeError(
            "a value has no {!r}; it has arithmetic, dtype and, where known, shape and ndim".format(name)
        )

    def __getitem__(self, index):
        return self.tracer.node("part", (self,), {"index": part_of(result_shape(self), index)}, self.dtype)

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
        return self.tracer.apply(_UFUNCS[ufunc.__name__], inputs)  # an operator with a NumPy scalar on its left

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


for _python, _op in _OPERATORS.items():
    setattr(Value, "__{}__".format(_python), _operator(_op, False))
for _python in _REFLECTED:
    setattr(Value, "__r{}__".format(_python), _operator(_OPERATORS[_python], True))


class Tracer(object):
    """Records expressions in one compute dtype. Rules get it as `ops`.

    Args:
        dtype: the compute dtype.
        integer: the dtype of counters.
        lacks: the operations of `LINALG` that the backend lacks. Default: none.
        owner: the backend's name for people.
    """

    def __init__(self, dtype, integer="int64", lacks=(), owner=""):
        self.dtype, self.integer, self._lacks, self._owner = dtype, integer, frozenset(lacks), owner
        self._inner_kernel, self._lock = None, threading.RLock()
        self.updated = []  # the definitions whose `update` ran in this trace
        self._shared = {}  # type: Any  # {structure of a step-wide value, or name and shape of a leaf: the value}
        self.shapes = {}  # {value: its shape}, see `result_shape`
        self._kept = {}  # what is made of the values: see `once`
        self._schedules = {}  # {(id of a schedule, id of a count): (schedule, value)}

    def __len__(self):
        return len(self._shared)

    def __getattr__(self, name):
        if name in COMPOSED:
            return composed(name, self)
        if name in LINALG:
            return lambda *args, **options: self._linalg(name, args, options)
        if name not in NAMES:
            raise unknown_op(name)
        return lambda *args, **options: self.apply(name, args, options)

    def update_of(self, definition, grad, var, slots, hyper, t):
        """Returns what `definition.update` returns. Within `by_kernel` these may be the opaque values of a kernel."""
        opaque = self._inner_kernel and self._inner_kernel.update(definition, grad, var, slots, hyper, t)
        self.updated.append(definition)
        return opaque or refreshed_update(self, definition, grad, var, slots, hyper, t)

    def values_if(self, due, new, old):
        """Returns the values `new` at steps where a condition holds, else `old`. Only then are the new ones computed.

        Raises:
            RuleError: a new value has another shape or dtype than the old one.
        """
        new = [self.as_value(value) for value in new]
        for value, before in zip(new, old):
            shapes = result_shape(value), result_shape(before)
            if value.dtype != before.dtype or not agree(*shapes):
                raise RuleError("a method that runs every few updates gave {} of shape {} for {} of shape {}".format(
                    value.dtype, shapes[0], before.dtype, shapes[1]))
        several = self.node("values_if", (due,) + tuple(new) + tuple(old), {}, self.dtype)
        return [self.node("chosen", (several,), {"place": place}, value.dtype) for place, value in enumerate(new)]

    @contextlib.contextmanager
    def by_kernel(self, inner_kernel):
        """Returns a context in which an `InnerKernel` computes the update that it finds; None for none."""
        self._inner_kernel = inner_kernel
        try:
            yield
        finally:
            self._inner_kernel = None

    def leaf(self, name, step_wide=False, shape=None, dtype=None):
        """Returns the leaf of a name and shape, in this tracer's dtype or in `dtype`: the same at each call."""
        key = name, shape
        found = self._shared.get(key)
        if found is None:
            found = self._shared[key] = Value(self, None, (), {}, dtype or self.dtype, step_wide, name, shape)
        return found

    def count_leaf(self, name, step_wide=False, shape=None):
        """Returns the count of a name: an integer that is not negative, as a float that knows this integer."""
        return self.count(self.leaf(name, step_wide, shape, self.integer), 0, END[self.integer], shape)

    def count(self, integer, low, high, shape=None):
        """Returns a count: `integer`, a value of the counters' dtype, as a float that knows this integer."""
        options, exact = {"to": self.dtype}, Whole(integer, low, high)
        value = Value(self, "cast", (integer,), options, self.dtype, integer.step_wide, None, shape, exact)
        return self._shared.setdefault(("count", id(integer)), value) if integer.step_wide else value

    def scheduled(self, schedule, count):
        """Returns the value of an everstep.Schedule at a count."""
        key = id(schedule), id(count)
        if key not in self._schedules:
            self._schedules[key] = schedule, self.as_value(schedule.value(self, count))
        return self._schedules[key][1]

    def as_value(self, value):
        return value if isinstance(value, Value) else self.constant(value)

    def once(self, key, make):
        """Returns what `make()` returned for a key, which is asked once as long as this tracer lives."""
        if key not in self._kept:
            with self._lock:  # a rule runs in one thread at a time
                if key not in self._kept:
                    self._kept[key] = make()
        return self._kept[key]

    def apply(self, op, args, options=None):
        args, options = _arguments(op, args, options or {})
        value = counted(self, op, args) if op in OPS else None
        if value is not None:
            return value
        if op == "cast" and getattr(args[0], "exact", None):
            args = (args[0].exact.integer,)
        like = self._common_dtype(op, args)
        values = tuple([a if isinstance(a, Value) else self.constant(a, like, op) for a in args])
        return self.node(op, values, options, {"same": like, "to": options.get("to")}.get(TABLE[op].gives, "bool"))

    def _linalg(self, op, args, options):
        if op in self._lacks:
            raise missing_op(op, self._owner)
        result = self.apply(op, args, options)
        if LINALG[op] == 1:
            return result
        return tuple(self.node("item", (result,), {"place": place}, result.dtype) for place in range(LINALG[op]))

    def concat(self, values, axis=0):
        """Returns the values of a list joined along an axis."""
        return self._of_list("concat", values, {"axis": axis})

    def einsum(self, equation, *values):
        """Returns Einstein's sum of some values. The equation has "->" and a letter for each axis."""
        if not isinstance(equation, TEXT_OR_BYTES) or not values:
            raise RuleError('ops.einsum takes an equation, such as "ij,jk->ik", and values; got {!r} and {}'.format(
                equation, len(values)))
        return self._of_list("einsum", values, {"equation": equation})

    def _of_list(self, op, values, options):
        values = [self.as_value(value) for value in values]
        return self.node(op, tuple(values), options, self._common_dtype(op, values))

    def eye(self, size):
        """Returns the matrix of ones on the diagonal, shape (size, size), in the compute dtype."""
        return self.node("eye", (), {"size": _size("eye", size), "dtype": self.dtype}, self.dtype)

    def arange(self, size):
        """Returns the whole numbers from 0 on, shape (size,), int32."""
        return self.node("arange", (), {"size": _size("arange", size), "dtype": "int32"}, "int32")

    def node(self, op, values, options, dtype):
        """Returns an op on values as a value. Equal ops on equal step-wide values are one value."""
        step_wide = bool(values) and False not in [value.step_wide for value in values]
        value = Value(self, op, values, options, dtype, step_wide)
        if not step_wide:
            return value
        structure = (op, tuple(map(id, values)), tuple(sorted(options.items())))
        return self._shared.setdefault(structure, value)

    def _common_dtype(self, op, args):
        """Returns the dtype that an op computes in, which Python numbers take too.

        Raises:
            RuleError: the values are of several dtypes, or of one that the op does not take.
        """
        operands = args[1:] if op == "where" else args
        dtypes = [arg.dtype for arg in operands if isinstance(arg, Value)]
        conditions = args[:1] if op == "where" else args if TABLE[op].takes == "bools" else ()
        if any([isinstance(arg, Value) and arg.dtype != "bool" for arg in conditions]):
            raise RuleError("ops.{} takes booleans; give it a comparison, such as value > 0".format(op))
        if "bool" in dtypes and TABLE[op].takes == "numbers":
            raise RuleError("ops.{} got booleans; make numbers of them with ops.cast(value, grad.dtype)".format(op))
        if len(set(dtypes)) > 1:
            raise RuleError(
                "ops.{} got values of {}; make one dtype of them with ops.cast".format(
                    op, " and ".join(sorted(set(dtypes)))
                )
            )
        return dtypes[0] if dtypes else self.dtype

    def constant(self, number, dtype=None, op=None):
        if isinstance(number, (np.ndarray, np.generic)) and not np.ndim(number):
            number = number.item()  # comparing NumPy scalars gives arrays
        if not isinstance(number, numbers.Real):
            raise RuleError(
                "{} {!r}; a rule computes with the values it is given and Python numbers alone".format(
                    "ops.{} got".format(op) if op else "a rule returned", number
                )
            )
        dtype = dtype or self.dtype
        value = Value(self, "constant", (), {"number": number, "dtype": dtype}, dtype, True)
        return self._shared.setdefault(("constant", repr(number), dtype), value)


def equal(one, other):
    """Returns whether two values are the same expression."""
    same, waiting = set(), [(one, other)]
    while waiting:
        one, other = waiting.pop()
        if one is other or (one, other) in same:
            continue
        if one.op is None or one.op != other.op or len(one.args) != len(other.args) or one.options != other.options:
            return False
        same.add((one, other))
        waiting.extend(zip(one.args, other.args))
    return True


def leaves_of(value, known=()):
    """Returns the set of the leaves that a value is computed from, if the values `known` are there."""
    leaves, waiting, seen = set(), [value], set(known)
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        if value.op is None:
            leaves.add(value)
        waiting.extend(value.args)
    return leaves


def step_wide_parts(values, ops=()):
    """Returns the largest parts of some values that are step-wide or of one of `ops`, each once."""
    parts, waiting, seen = [], list(values), set()
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        if value.step_wide or value.op in ops:
            parts.append(value)
        else:
            waiting.extend(value.args)
    return parts


def _arguments(op, args, options):
    """Splits the arguments of an op into (values, settings).

    Raises:
        RuleError: the op takes others.
    """
    count, names = TABLE[op].arity, TABLE[op].settings
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


def _size(op, size):
    if not isinstance(size, numbers.Integral) or isinstance(size, bool) or size < 0:
        raise RuleError("ops.{} takes a whole number, such as one of a shape; got {!r}".format(op, size))
    return int(size)


def _dtype_name(dtype):
    try:
        return dtype if dtype == "bfloat16" else np.dtype(dtype).name
    except TypeError:
        raise RuleError('ops.cast takes the name of a dtype, such as "float32" or grad.dtype; got {!r}'.format(dtype))
