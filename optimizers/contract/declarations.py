"""What a definition is declared with: `hyper`, `option`, `slot`, `scalar`, `child`.

A declaration is a descriptor: on an instance it gives the value that was set, on the class itself.
"""
from __future__ import absolute_import, division, print_function

import contextlib
import itertools
import numbers
import threading

import numpy as np

from everstep.errors import DefinitionError, HyperTypeError, HyperValueError, RuleError
from everstep.optimizers.contract.checks import TEXT, check_number, compute_dtype, is_tensor, static_shape

_order = itertools.count()  # class bodies keep no order on Python 2.7; a counter does
_running = threading.local()
_NUMBERS = ("float", "int")  # what the name of a tensor's dtype may hold: float32, bfloat16, uint8, torch.float64, ...
_SLOT_DTYPES = ("float16", "float32", "float64", "int32", "int64")
REQUIRED = object()  # a declaration without a default: its argument must be given


@contextlib.contextmanager
def running_rule(running=True):
    """While a rule runs, its hypers come as arguments; reading them through `self` would freeze them."""
    before = getattr(_running, "now", False)
    _running.now = running
    try:
        yield
    finally:
        _running.now = before


class Declaration(object):
    """Base of all declarations: knows its name, its owner and its place in the class body."""

    kind = "declaration"
    is_argument = False  # whether the constructor takes it
    default = REQUIRED

    def __init__(self):
        self.order = next(_order)
        self.name = None  # type: str | None

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        return self.read(instance)

    def read(self, instance):
        raise RuleError(
            "{0}.{1} is a {2}: it has no value outside a step. Read it from the argument that the rule is "
            "given (`slots.{1}`, `hyper.{1}`).".format(type(instance).__name__, self.name, self.kind)
        )

    def check(self, owner, value):
        """The value as it is kept, or an error that says what was needed."""
        return value

    def check_declaration(self, owner):
        """Raises DefinitionError where the declaration makes no sense in its class, `owner`."""
        if self.is_argument and self.default is not REQUIRED:
            try:
                self.default = self.check(owner.__name__, self.default)
            except (HyperTypeError, HyperValueError) as error:
                raise DefinitionError("the default does not fit its own declaration: {}".format(error))

    def __repr__(self):
        return "everstep.{}(...)".format(self.kind)


class Hyper(Declaration):
    """A number the user sets: a float, a scalar tensor, a callable or a schedule."""

    kind = "hyper"
    is_argument = True

    def __init__(self, default=REQUIRED, minimum=None, maximum=None):
        super(Hyper, self).__init__()
        self.default = default
        self.minimum = minimum
        self.maximum = maximum

    def read(self, instance):
        if getattr(_running, "now", False):
            raise RuleError(
                "{0}.{1} was read through `self` inside a rule, which would freeze it; use `hyper.{1}`.".format(
                    type(instance).__name__, self.name
                )
            )
        return instance._values[self.name]

    def check(self, owner, value):
        what = "{}.{}".format(owner, self.name)
        plain = isinstance(value, TEXT + (bool, np.bool_, list, tuple, dict, set, type(None)))
        if isinstance(value, (numbers.Real, np.ndarray)) and not plain:
            return check_number(what, value, self.minimum, self.maximum)
        if is_tensor(value) and not plain:
            return self.check_tensor(what, value)
        if callable(value) and not isinstance(value, type):
            return value
        raise HyperTypeError(
            "{} takes a number, a scalar tensor, a callable or an everstep.Schedule; got {!r}".format(what, value)
        )

    def check_tensor(self, what, value):
        if static_shape(value) not in ((), None):
            raise HyperTypeError("{} takes a scalar; got a tensor of shape {}".format(what, static_shape(value)))
        if not any(kind in str(value.dtype) for kind in _NUMBERS):
            raise HyperTypeError("{} takes a number; got a tensor of dtype {}".format(what, value.dtype))
        return value


class Option(Declaration):
    """A setting fixed at construction. Its default gives its type; one of None takes anything.

    With `schedule`, it may be an everstep.Schedule too, which the rule asks itself.
    """

    kind = "option"
    is_argument = True

    def __init__(self, default=REQUIRED, choices=None, minimum=None, maximum=None, schedule=False):
        super(Option, self).__init__()
        self.default = default
        self.choices = choices
        self.minimum = minimum
        self.maximum = maximum
        self.schedule = schedule

    def read(self, instance):
        return instance._values[self.name]

    def check(self, owner, value):
        if self.schedule and _is_a("schedule", value):
            return value
        what = "{}.{}".format(owner, self.name)
        wanted = type(self.default)
        if self.choices is not None:
            if value not in self.choices:
                choices = ", ".join(map(repr, self.choices))
                raise HyperValueError("{} must be one of {}; got {!r}".format(what, choices, value))
        elif wanted is bool:
            if not isinstance(value, (bool, np.bool_)):
                raise HyperTypeError("{} takes True or False; got {!r}".format(what, value))
            return bool(value)
        elif wanted in (int, float):
            if isinstance(value, bool) or not isinstance(value, numbers.Integral if wanted is int else numbers.Real):
                kind = "a whole number" if wanted is int else "a number"
                raise HyperTypeError("{} takes {}; got {!r}".format(what, kind, value))
            check_number(what, value, self.minimum, self.maximum)
            return int(value) if wanted is int else float(value)  # type: ignore[call-overload]  # a Real has neither
        elif self.default is None and self.minimum is not None and value is not None:
            return float(check_number(what, value, self.minimum, self.maximum))
        elif wanted in TEXT and not isinstance(value, TEXT):
            raise HyperTypeError("{} takes a text; got {!r}".format(what, value))
        # JSON knows neither tuples nor NumPy's numbers; and a list would change under a definition that is fixed.
        value = value.item() if isinstance(value, np.generic) else value
        return tuple(value) if isinstance(value, list) else value


class Slot(Declaration):
    """Per-variable state, by role.

    `init` is a number, the name of an option that holds it, or `everstep.VARIABLE` (start at the variable's
    value). `shape` is None (the variable's), "row" (one number for each row), a tuple, or a function of the
    variable's record. `dtype` is a name, or None: the dtype in which rules compute, which is float32 for 16-bit
    variables (Adam's v would be lost to underflow in float16) and else the variable's own. `when` says whether the
    slot exists: the name of an option (it is true) or of a hyper (it was not given as the number 0), or a predicate
    on the definition.
    """

    kind = "slot"

    def __init__(self, init=0.0, shape=None, dtype=None, when=None):
        super(Slot, self).__init__()
        self.init = init
        self.shape = shape
        self.dtype = dtype
        self.when = when

    def exists(self, definition):
        if self.when is None:
            return True
        with running_rule(False):  # a rule may ask for it, but it was decided at construction
            value = self.when(definition) if callable(self.when) else getattr(definition, self.when)
        if isinstance(definition.declarations.get(self.when), Hyper):
            return not (isinstance(value, float) and value == 0)
        return bool(value)

    def initial_value(self, definition):
        """A float, or VARIABLE."""
        if self.init is VARIABLE:
            return VARIABLE
        return float(getattr(definition, str(self.init)) if isinstance(self.init, TEXT) else self.init)

    def check_declaration(self, owner):
        what = "{}.{}".format(owner.__name__, self.name)
        if isinstance(self.init, TEXT):
            self.check_named(what, owner, "init", self.init, ("option",))
        elif self.init is not VARIABLE:
            self.init = _checked_init(what, self.init, "a number, an option's name or everstep.VARIABLE")
        if isinstance(self.when, TEXT):
            self.check_named(what, owner, "when", self.when, ("option", "hyper"))
        elif not (self.when is None or callable(self.when)):
            raise DefinitionError(
                "{}: `when` is a name or a function of the definition; got {!r}".format(what, self.when)
            )
        if not (self.shape in (None, "row") or callable(self.shape) or isinstance(self.shape, (tuple, list))):
            raise DefinitionError(
                '{}: the shape of a slot is None (the variable\'s), "row", a tuple or a function of the variable; '
                "got {!r}".format(what, self.shape)
            )
        if not (self.dtype is None or self.dtype in _SLOT_DTYPES):
            raise DefinitionError(
                "{}: the dtype of a slot is None (the variable's) or one of {}; got {!r}".format(
                    what, ", ".join(_SLOT_DTYPES), self.dtype
                )
            )

    @staticmethod
    def check_named(what, owner, argument, name, kinds):
        declared = owner.declarations.get(name)
        if declared.kind not in kinds if declared else not hasattr(owner, name):
            raise DefinitionError(
                "{}: `{}` names {!r}, which is no {} of {}".format(
                    what, argument, name, " or ".join(kinds), owner.__name__
                )
            )

    def shape_for(self, record):
        """The slot's shape for a variable's record: a tuple of ints."""
        if self.shape is None:
            return tuple(record.shape)
        if self.shape == "row":
            return tuple(record.shape[:1]) + (1,) * (len(record.shape) - 1)
        shape = self.shape(record) if callable(self.shape) else self.shape
        if not isinstance(shape, (tuple, list)) or not all(isinstance(size, numbers.Integral) for size in shape):
            raise DefinitionError(
                "the shape of slot {} for {} must be a tuple of whole numbers; it is {!r}".format(
                    self.name, record.name, shape
                )
            )
        return tuple(int(size) for size in shape)

    def dtype_for(self, record):
        return self.dtype or compute_dtype(record.dtype)


class Scalar(Declaration):
    """State shared by all variables, advanced once per update."""

    kind = "scalar"

    def __init__(self, init=0.0):
        super(Scalar, self).__init__()
        self.init = init

    def check_declaration(self, owner):
        self.init = _checked_init("{}.{}".format(owner.__name__, self.name), self.init, "a number")


class Child(Declaration):
    """Another definition that a wrapper is made of."""

    kind = "child"
    is_argument = True

    def read(self, instance):
        return instance._values[self.name]

    def check(self, owner, value):
        if not _is_a("definition", value):
            raise HyperTypeError(
                "{}.{} takes an everstep definition, such as everstep.optimizers.Adam(); got {!r}".format(
                    owner, self.name, value
                )
            )
        return value


def _is_a(kind, value):
    """Whether a value is an everstep definition or schedule, told by what their metaclass gives all such classes."""
    return hasattr(type(value), "declared_order") and type(value).kind == kind


def _checked_init(what, init, needed):
    try:
        return check_number(what, init)
    except (HyperTypeError, HyperValueError):
        raise DefinitionError("{}: `init` is {}; got {!r}".format(what, needed, init))


class _Variable(object):
    def __repr__(self):
        return "everstep.VARIABLE"


VARIABLE = _Variable()  # a slot with this `init` starts at its variable's value

hyper = Hyper
option = Option
slot = Slot
scalar = Scalar
child = Child
