"""Traces rules: a rule runs on values that only record the maths, and the engine lowers them to a backend's ops.

A rule runs once for each variable, on values that hold no numbers. An expression of step-wide values only (hypers, t,
scalars) is shared by all variables of a step, and computed once for each dtype.
"""
from __future__ import absolute_import, division, print_function

import contextlib
import functools
import numbers

import numpy as np

from everstep.compat.backends.ops import COMPOSED, END, NAMES, PAIRS, check_has, unknown_op
from everstep.compat.engine.counts import OPS, Whole, counted
from everstep.errors import RuleError, UnknownOpError

REDUCTIONS = ("sum", "mean", "max", "min", "any", "all")
MIXING = REDUCTIONS + ("matmul", "transpose", "qr", "eigh")  # an element of the result depends on other places
_OPERATORS = {  # {Python's operator: (has a reflected form, op)}
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
# How many values an op takes; by default 1.
_VALUES = {"clip": 3, "where": 3, "maximum": 2, "minimum": 2, "equal": 2, "matmul": 2}
_VALUES.update((op, 2) for _, op in _OPERATORS.values())
_SETTINGS = dict({op: ("axis", "keepdims") for op in REDUCTIONS}, cast=("to",), reshape=("to",), transpose=("axes",))
# {NumPy's name of an operator on its scalars: op}
_UFUNCS = dict({op: op for _, op in _OPERATORS.values()}, true_divide="divide", power="pow")

_TO_BOOL = frozenset(
    "less less_equal greater greater_equal equal isfinite logical_and logical_or logical_not any all".split()
)
_ONLY_BOOL = frozenset("logical_and logical_or logical_not any all".split())
_FROM_BOOL = frozenset(
    "where equal logical_and logical_or logical_not any all cast zeros_like ones_like reshape transpose".split()
)


class Value(object):
    """A node of a rule's expression: an op on other values, or a leaf that `read()` returns when it is needed.

    `exact` is the integer of a count, see `compat/engine/counts.py`; None for all other values.
    """

    __slots__ = ("tracer", "op", "args", "options", "dtype", "step_wide", "read", "leaf_shape", "exact")

    def __init__(self, tracer, op, args, options, dtype, step_wide, read=None, leaf_shape=None, exact=None):
        self.tracer, self.op, self.args, self.options = tracer, op, args, options
        self.dtype, self.step_wide, self.read, self.leaf_shape = dtype, step_wide, read, leaf_shape
        self.exact = exact

    @property
    def shape(self):
        if self.leaf_shape is None:
            raise RuleError("only grad, var and slots have a known shape; read it from them")
        return self.leaf_shape

    @property
    def ndim(self):
        return len(self.shape)

    @property
    def is_buffer(self):
        """Whether the native value may share memory with a variable."""
        return self.read is not None or self.op in ("cast", "reshape", "transpose") and self.args[0].is_buffer

    def __repr__(self):
        return "<a value of {}>".format("ops." + self.op if self.op else "the rule's arguments")

    def __getattr__(self, name):
        if name in NAMES or name in PAIRS or name in COMPOSED:
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


for _python, (_reflected, _op) in _OPERATORS.items():
    setattr(Value, "__{}__".format(_python), _operator(_op, False))
    if _reflected:
        setattr(Value, "__r{}__".format(_python), _operator(_op, True))


class Tracer(object):
    """Records and lowers the expressions of one step in one compute dtype. Rules get it as `ops`."""

    def __init__(self, backend, dtype):
        self._backend, self._dtype = backend, dtype
        self.integer = backend.stored("int64")  # the dtype of counters
        self._inner_kernel = None
        self._shared = {}  # {structure of a step-wide value: the value}
        self._lowered = {}  # {id of a step-wide value: (the value, its native value)}

    def __getattr__(self, name):
        if name in COMPOSED:
            return functools.partial(COMPOSED[name], self)
        if name in PAIRS:
            return lambda *args, **options: self._pair(name, args, options)
        if name not in NAMES:
            raise unknown_op(name)
        return lambda *args, **options: self.apply(name, args, options)

    def update_of(self, definition, grad, var, slots, hyper, t):
        """Returns what `definition.update` returns. Within `by_kernel` these may be the opaque values of a kernel."""
        opaque = self._inner_kernel and self._inner_kernel.update(definition, grad, var, slots, hyper, t)
        return opaque or definition.update(self, grad, var, slots, hyper, t)

    @contextlib.contextmanager
    def by_kernel(self, inner_kernel):
        """Returns a context in which an `InnerKernel` computes the update that it finds; None for none."""
        self._inner_kernel = inner_kernel
        try:
            yield
        finally:
            self._inner_kernel = None

    def leaf(self, read, step_wide=False, shape=None, dtype=None):
        """Returns a value that `read()` computes, in this tracer's dtype or in `dtype`."""
        return Value(self, None, (), {}, dtype or self._dtype, step_wide, read, shape)

    def count_leaf(self, read, step_wide=False, shape=None):
        """Returns a count that `read()` computes, an integer of any dtype that is not negative."""
        integer = self.leaf(lambda: self._backend.cast(read(), self.integer), step_wide, shape, self.integer)
        return self.count(integer, 0, END[self.integer], shape)

    def count(self, integer, low, high, shape=None):
        """Returns a count: `integer`, a value of the counters' dtype, as a float that knows this integer."""
        options, exact = {"to": self._dtype}, Whole(integer, low, high)
        value = Value(self, "cast", (integer,), options, self._dtype, integer.step_wide, None, shape, exact)
        return self._shared.setdefault(("count", id(integer)), value) if integer.step_wide else value

    def apply(self, op, args, options=None):
        args, options = _arguments(op, args, options or {})
        value = counted(self, op, args) if op in OPS else None
        if value is not None:
            return value
        if op == "cast" and getattr(args[0], "exact", None):
            args = (args[0].exact.integer,)
        like = self._common_dtype(op, args)
        values = tuple(a if isinstance(a, Value) else self.constant(a, like, op) for a in args)
        return self.node(op, values, options, "bool" if op in _TO_BOOL else options["to"] if op == "cast" else like)

    def _pair(self, op, args, options):
        check_has(self._backend, op)
        pair = self.apply(op, args, options)
        return tuple(self.node("item", (pair,), {"place": place}, pair.dtype) for place in range(2))

    def node(self, op, values, options, dtype):
        """Returns an op on values as a value. Equal ops on equal step-wide values are one value."""
        step_wide = all(value.step_wide for value in values)
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
        conditions = args[:1] if op == "where" else args if op in _ONLY_BOOL else ()
        if any(isinstance(arg, Value) and arg.dtype != "bool" for arg in conditions):
            raise RuleError("ops.{} takes booleans; give it a comparison, such as value > 0".format(op))
        if "bool" in dtypes and op not in _FROM_BOOL:
            raise RuleError("ops.{} got booleans; make numbers of them with ops.cast(value, grad.dtype)".format(op))
        if len(set(dtypes)) > 1:
            raise RuleError(
                "ops.{} got values of {}; make one dtype of them with ops.cast".format(
                    op, " and ".join(sorted(set(dtypes)))
                )
            )
        return dtypes[0] if dtypes else self._dtype

    def constant(self, number, dtype=None, op=None):
        if isinstance(number, (np.ndarray, np.generic)) and not np.ndim(number):
            number = number.item()  # comparing NumPy scalars gives arrays
        if not isinstance(number, numbers.Real):
            raise RuleError(
                "{} {!r}; a rule computes with the values it is given and Python numbers alone".format(
                    "ops.{} got".format(op) if op else "a rule returned", number
                )
            )
        dtype = dtype or self._dtype
        value = Value(self, "constant", (), {"number": number, "dtype": dtype}, dtype, True)
        return self._shared.setdefault(("constant", repr(number), dtype), value)

    def lower(self, value, results):
        """Returns the native value. `results` caches values that are not step-wide."""
        store = self._lowered if value.step_wide else results
        if id(value) not in store:
            if value.read is not None:
                native = value.read()
            elif value.op == "constant":
                native = self._backend.constant(**value.options)
            elif value.op == "sum" and not value.options and _squared(value.args[0]) is not None:
                native = self._backend.sum_of_squares(self.lower(_squared(value.args[0]), results))
            else:
                natives = [self.lower(arg, results) for arg in value.args]
                if value.exact:  # perhaps the read of a ref variable, which needs the backend's own cast
                    native = self._backend.cast(natives[0], value.dtype)
                else:
                    native = computed(self._backend, value.op, natives, value.options)
            store[id(value)] = (value, native)  # keeps the value alive, so that no other gets its id
        return store[id(value)][1]

    @contextlib.contextmanager
    def forgetting(self):
        """Returns a context that forgets what is lowered in it: tensors of a loop's body do not exist outside."""
        lowered_before = dict(self._lowered)
        try:
            yield
        finally:
            self._lowered = lowered_before

    def hoist(self, values):
        """Lowers the step-wide parts of values now, outside of the branches that use them."""
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


def _squared(value):
    """Returns what a value is the square of, or None."""
    product = value.op == "multiply" and value.args[0] is value.args[1]
    return value.args[0] if product or value.op == "square" else None


def computed(backend, op, natives, options):
    """Returns the result of an op on native values.

    Raises:
        RuleError: the op does not take values of these shapes.
    """
    if op == "item":
        return natives[0][options["place"]]
    try:
        return backend.ops[op](*natives, **options)
    except (IndexError, TypeError, ValueError, np.linalg.LinAlgError) as error:
        raise RuleError(
            "ops.{} cannot take values of shapes {}{}: {}".format(
                op,
                " and ".join(str(backend.shape(native)) for native in natives),
                " with {}".format(options) if options else "",
                error,
            )
        )


def _arguments(op, args, options):
    """Splits the arguments of an op into (values, settings).

    Raises:
        RuleError: the op takes others.
    """
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
