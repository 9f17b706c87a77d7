"""What a rule sees: values that record the maths, which the engine then lowers to a backend's ops.

A rule runs once for each variable, on values that hold no numbers. Expressions of step-wide values alone (hypers,
t, scalars) are shared by all variables of a step and computed once for each dtype.
"""
from __future__ import absolute_import, division, print_function

import contextlib
import numbers

import numpy as np

from everstep.compat.backends.base import NAMES, unknown_op
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
                natives = [self.lower(arg, results) for arg in value.args]
                native = computed(self._backend, value.op, natives, value.options)
            store[id(value)] = (value, native)  # the value too: an id is only its own while it lives
        return store[id(value)][1]

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


class Program(object):
    """Some values as a plain list of operations, which holds nothing of the step that they were traced in.

    Two variables that do the same to leaves of the same roles have equal programs, whose results may differ in the
    values that come from `outside` alone.

    Args:
        values: what it computes, in order.
        roles: `{id of a leaf: its role}`; other leaves, and what is the same for the whole step, are computed outside.

    Attributes:
        nodes: a tuple of ("role", name), ("outside", place), ("constant", number, dtype) or (op, places, options).
        roles: those that it reads.
        results: the places of the values in it.
        outside: the values that are computed before; `dtypes` are theirs.
    """

    def __init__(self, values, roles):
        self.outside, self._places, nodes = [], {}, []
        for value in values:
            self._add(value, roles, nodes)
        self.nodes = tuple(nodes)
        self.roles = {node[1] for node in nodes if node[0] == "role"}
        self.results = tuple(self._places[id(value)] for value in values)
        self.dtypes = tuple(value.dtype for value in values)
        del self._places

    def _add(self, value, roles, nodes):
        if id(value) in self._places:
            return
        if id(value) in roles:
            node = ("role", roles[id(value)])  # type: tuple
        elif value.op == "constant":
            node = ("constant", value.options["number"], value.dtype)
        elif value.step_wide or value.read is not None:
            node = ("outside", len(self.outside))
            self.outside.append(value)
        else:
            for arg in value.args:
                self._add(arg, roles, nodes)
            places = tuple(self._places[id(arg)] for arg in value.args)
            node = (value.op, places, tuple(sorted(value.options.items())))
        self._places[id(value)] = len(nodes)
        nodes.append(node)

    def key(self):
        return self.nodes, self.results, self.dtypes

    def is_elementwise(self):
        """Whether each element of the results comes of the same element of the roles alone."""
        alone = not any(node[0] in REDUCTIONS or node[0] == "reshape" for node in self.nodes)
        return alone and all(value.step_wide for value in self.outside)

    def moved(self, roles):
        """Results that are an old value moved, `old + share * x * ... - share * old`, and what they are made of.

        Args:
            roles: of the results after the first, in order.

        Returns:
            `{role: (place of the result, places of the factors x, place of the share)}`; where it is `old + x`, the
            share is None. Only those whose old value nothing else asks for.
        """
        found = {}
        used = self._used()
        for role, result in zip(roles, self.results[1:]):
            op, args = self.nodes[result][:2]
            for old, moving in (args, args[::-1]) if op == "add" else ():
                parts = self._parts(role, old, moving)
                if parts and used.count(self._place_of(role)) == used.count(moving) == 1:
                    found[role] = (result,) + parts
        return found

    def scaled(self):
        """(place of a scalar, places of x and of y) where the first result is `scalar * x` or `scalar * x / y`.

        The place of y is None where there is none; all is None of another form, and where another result needs it.
        """
        op, args = self.nodes[self.results[0]][:2]
        product, divisor = args if op == "divide" else (self.results[0], None)
        used = self._used()
        if self.nodes[product][0] != "multiply" or used.count(product) > 1 or used.count(self.results[0]) > 1:
            return None
        for scalar, other in (self.nodes[product][1], self.nodes[product][1][::-1]):
            node = self.nodes[scalar]
            if node[0] == "constant" or node[0] == "outside" and self.outside[node[1]].step_wide:
                return scalar, other, divisor
        return None

    def _place_of(self, role):
        return next(place for place, node in enumerate(self.nodes) if node[:2] == ("role", role))

    def _parts(self, role, old, moving):
        """(factors, share) of `old + moving`; None where it is not of the form."""
        if self.nodes[old] == ("role", role):
            return (moving,), None
        if self.nodes[old][0] != "multiply":
            return None
        kept = [place for place in self.nodes[old][1] if self.nodes[place] != ("role", role)]
        return self._shared(moving, kept[0]) if len(kept) == 1 else None

    def _used(self):
        """The place of a value as often as an operation or a result asks for it."""
        operations = [node for node in self.nodes if node[0] not in ("role", "outside", "constant")]
        return [place for _, places, _ in operations for place in places] + list(self.results)

    def _shared(self, place, kept):
        """(other factors, share) of a product with a share that is `1 - kept`; None of others."""
        factors, waiting = [], [place]
        while waiting:
            node = self.nodes[waiting[0]]
            if node[0] == "multiply":
                waiting[:1] = node[1]
            else:
                factors.append(waiting.pop(0))
        for share in factors:
            others = tuple(factor for factor in factors if factor != share)
            if others and self._add_to_one(self.nodes[share], self.nodes[kept]):
                return others, share
        return None

    def _add_to_one(self, share, kept):
        if share[0] == kept[0] == "constant":
            return abs(share[1] + kept[1] - 1) < 1e-9
        share = self._outside_of(share)
        if share is None or share.op != "subtract" or share.args[0].options.get("number") != 1:
            return False
        left = share.args[1]
        return left.options.get("number") == kept[1] if kept[0] == "constant" else left is self._outside_of(kept)

    def _outside_of(self, node):
        return self.outside[node[1]] if node[0] == "outside" else None

    def run(self, backend, given, outside, instead=None):
        """The native results.

        Args:
            given: `{role: native}`.
            outside: the natives of `self.outside`.
            instead: `{place: a function that makes its native}`, given what makes those of other places.
        """
        natives, instead = {}, instead or {}

        def native(place):
            if place not in natives:
                natives[place] = instead[place](native) if place in instead else compute(*self.nodes[place])
            return natives[place]

        def compute(op, what, options=None):
            if op == "role":
                return given[what]
            if op == "outside":
                return outside[what]
            if op == "constant":
                return backend.constant(what, options)
            return computed(backend, op, [native(place) for place in what], dict(options))

        return [native(place) for place in self.results]


def computed(backend, op, natives, options):
    """An op on natives, or an error that says what their shapes are."""
    try:
        return backend.ops[op](*natives, **options)
    except (IndexError, TypeError, ValueError) as error:
        raise RuleError(
            "ops.{} cannot take values of shapes {}{}: {}".format(
                op,
                " and ".join(str(backend.shape(native)) for native in natives),
                " with {}".format(options) if options else "",
                error,
            )
        )


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
