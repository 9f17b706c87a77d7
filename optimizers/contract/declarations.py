"""The declarations in the class body of a definition: `hyper`, `option`, `slot`, `scalar`, `child`.

A declaration is a descriptor. Read from an instance it is the argument's value, read from the class the declaration.
"""
from __future__ import absolute_import, division, print_function

import contextlib
import itertools
import numbers
import threading
import types

import numpy as np

from everstep.errors import DefinitionError, HyperTypeError, HyperValueError, RuleError
from everstep.optimizers.contract.checks import TEXT_OR_BYTES, check_number, compute_dtype, is_tensor, static_shape
from everstep.optimizers.contract.counted_random import RandomStart
from everstep.optimizers.contract.instances import instead_of, is_a, that_is_fixed

_order = itertools.count()  # Python 2.7 does not keep the order of a class body, so declarations count
_running = threading.local()
_NUMBERS = ("float", "int")  # parts of the names of allowed dtypes: float32, bfloat16, uint8, torch.float64, ...
_SLOT_DTYPES = ("float16", "float32", "float64", "int32", "int64")
MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments
REQUIRED = object()  # the default of a declaration without one: the argument must be given


@contextlib.contextmanager
def running_rule(running=True):
    """Marks that a verb runs. It gets hypers as arguments; reading one through `self` would freeze its value."""
    before = getattr(_running, "now", False)
    _running.now = running
    try:
        yield
    finally:
        _running.now = before


class Declaration(object):
    """Base class of declarations. Each knows its name and its place in the class body."""

    kind = "declaration"
    is_argument = False  # whether it is an argument of the constructor
    default = REQUIRED
    when = None  # type: Any  # of a slot or scalar

    def __init__(self):
        self.order = next(_order)
        self.name = None  # type: str | None

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        return self.read(instance)

    def read(self, instance):
        """Returns what reading the attribute on an instance gives."""
        raise RuleError(
            "{0}.{1} is a {2}: it has no value outside a step. Inside one, read it from the arguments of the verb "
            "(`slots.{1}`, `hyper.{1}`).".format(type(instance).__name__, self.name, self.kind)
        )

    def check(self, owner, value):
        """Returns an argument's value as the definition keeps it, or raises HyperTypeError or HyperValueError.

        Args:
            owner: the class's name, for the message.
            value: the argument.
        """
        return value

    def check_declaration(self, owner):
        """Raises DefinitionError if the declaration does not fit its class, such as a default outside of the bounds.

        Args:
            owner: the class.
        """
        if self.is_argument and self.default is not REQUIRED:
            try:
                self.default = self.check(owner.__name__, self.default)
            except (HyperTypeError, HyperValueError) as error:
                raise DefinitionError("the default does not fit its own declaration: {}".format(error))

    def exists(self, definition):
        """Returns whether a definition has this state, by `when`."""
        if self.when is None:
            return True
        with running_rule(False):  # a verb may ask `has_slot`; the answer was fixed at construction
            value = self.when(definition) if callable(self.when) else getattr(definition, self.when)
        if isinstance(definition.declarations.get(self.when), Hyper):
            return not (isinstance(value, float) and value == 0)
        return bool(value)

    def check_when(self, what, owner):
        if isinstance(self.when, TEXT_OR_BYTES):
            self.check_named(what, owner, "when", self.when, ("option", "hyper"))
        elif not (self.when is None or callable(self.when)):
            raise DefinitionError(
                "{}: `when` is a name or a function of the definition; got {!r}".format(what, self.when))

    @staticmethod
    def check_named(what, owner, argument, name, kinds):
        declared = owner.declarations.get(name)
        if declared.kind not in kinds if declared else not hasattr(owner, name):
            raise DefinitionError(
                "{}: `{}` names {!r}, which is no {} of {}".format(
                    what, argument, name, " or ".join(kinds), owner.__name__))

    def __repr__(self):
        return "everstep.{}(...)".format(self.kind)


class Hyper(Declaration):
    """Declares a hyperparameter: a number that the user sets, and that may change during training.

    It becomes an argument of the constructor. The user gives a float, a scalar tensor, a callable without arguments or
    an `everstep.Schedule`. Verbs read it as `hyper.NAME`, a single number, evaluated at each step.

    Args:
        default: a number. Without it the argument must be given.
        minimum, maximum: inclusive bounds of numbers. Default None: no bound. Tensors, callables and schedules are not
            checked when the definition is built.

    Raises:
        DefinitionError: the default does not fit the bounds, or the name is reserved. Raised when the class is defined.

    >>> import everstep
    >>> class Descent(everstep.Definition):
    ...     learning_rate = everstep.hyper(0.01, minimum=0)
    ...     def update(self, ops, grad, var, slots, hyper, t):
    ...         return hyper.learning_rate * grad, {}
    >>> Descent(learning_rate=0.5).learning_rate
    0.5
    """

    kind = "hyper"
    is_argument = True

    def __init__(self, default=REQUIRED, minimum=None, maximum=None):
        super(Hyper, self).__init__()
        self.default, self.minimum, self.maximum = default, minimum, maximum

    def read(self, instance):
        if getattr(_running, "now", False):
            form = "{0}.{1} was read through `self` inside a rule, which would freeze its value; use `hyper.{1}`."
            raise RuleError(form.format(type(instance).__name__, self.name))
        return instance._values[self.name]

    def check(self, owner, value):
        what = "{}.{}".format(owner, self.name)
        no_number = (bool, np.bool_, list, tuple, dict, set, type(None), type, types.ModuleType)
        plain = isinstance(value, TEXT_OR_BYTES + no_number)
        if isinstance(value, (numbers.Real, np.ndarray)) and not plain:
            return check_number(what, value, self.minimum, self.maximum)
        if is_tensor(value) and not plain:
            return self.check_tensor(what, value)
        if callable(value) and not isinstance(value, type):
            return value
        raise HyperTypeError(
            "{} takes a number, a scalar tensor, a callable or an everstep.Schedule; got {!r}".format(what, value))

    def check_tensor(self, what, value):
        if static_shape(value) not in ((), None):
            raise HyperTypeError("{} takes a scalar; got a tensor of shape {}".format(what, static_shape(value)))
        if not any(kind in str(value.dtype) for kind in _NUMBERS):
            raise HyperTypeError("{} takes a number; got a tensor of dtype {}".format(what, value.dtype))
        return value


class Option(Declaration):
    """Declares an option: a setting of the rule that never changes during training.

    It becomes an argument of the constructor. Verbs read it as `self.NAME` and may use Python's `if` on it. The
    default sets the type: bool, int, float or str. An option whose default is None takes any value, or with a minimum
    None or a number. Lists become tuples.

    Args:
        default: the value if the argument is not given. Without it the argument must be given.
        choices: a tuple of the values allowed. Default None: any value of the type.
        minimum, maximum: inclusive bounds of a number. Default None: no bound.
        schedule: True to allow an `everstep.Schedule` too, which the verbs evaluate themselves; "any" to allow native
            schedules and functions as well. Default False.

    Raises:
        DefinitionError: the default does not fit the other arguments, or the name is reserved. Raised when the class is
            defined.

    >>> import everstep
    >>> class Descent(everstep.Definition):
    ...     learning_rate = everstep.hyper(0.01)
    ...     signed = everstep.option(False)
    ...     def update(self, ops, grad, var, slots, hyper, t):
    ...         return hyper.learning_rate * (ops.sign(grad) if self.signed else grad), {}
    >>> Descent(signed=True).signed
    True
    """

    kind = "option"
    is_argument = True

    def __init__(self, default=REQUIRED, choices=None, minimum=None, maximum=None, schedule=False):
        super(Option, self).__init__()
        self.default, self.choices, self.schedule = default, choices, schedule
        self.minimum, self.maximum = minimum, maximum

    def read(self, instance):
        return instance._values[self.name]

    def check(self, owner, value):
        what = "{}.{}".format(owner, self.name)
        if self.schedule and self._is_schedule(what, value):
            return value
        default_type = type(self.default)
        if self.choices is not None:
            if value not in self.choices:
                choices = ", ".join(map(repr, self.choices))
                raise HyperValueError("{} must be one of {}; got {!r}".format(what, choices, value))
        elif default_type is bool:
            if not isinstance(value, (bool, np.bool_)):
                raise HyperTypeError("{} takes True or False; got {!r}".format(what, value))
            return bool(value)
        elif default_type in (int, float):
            number_type = numbers.Integral if default_type is int else numbers.Real
            if isinstance(value, bool) or not isinstance(value, number_type):
                kind = "a whole number" if default_type is int else "a number"
                raise HyperTypeError("{} takes {}; got {!r}{}".format(what, kind, value, that_is_fixed(value)))
            check_number(what, value, self.minimum, self.maximum)
            return int(value) if default_type is int else float(value)  # type: ignore[call-overload]  # a Real has neither
        elif self.default is None and self.minimum is not None and value is not None:
            return float(check_number(what, value, self.minimum, self.maximum))
        elif default_type in TEXT_OR_BYTES and not isinstance(value, TEXT_OR_BYTES):
            raise HyperTypeError("{} takes a text; got {!r}".format(what, value))
        # JSON has neither tuples nor NumPy numbers. A list could change, and a definition must not.
        value = value.item() if isinstance(value, np.generic) else value
        return tuple(value) if isinstance(value, list) else value

    def _is_schedule(self, what, value):
        if self.schedule == "any":
            return callable(value) and not isinstance(value, type) and not is_tensor(value)
        if is_a("schedule", value) and value._natives():
            raise HyperTypeError("{} takes no native schedule, nor one in another: got {!r}".format(what, value))
        return is_a("schedule", value)


class Slot(Declaration):
    """Declares a slot: state that the optimizer keeps for each variable, such as a momentum.

    Verbs read it as `slots.NAME` and return its new value as `{NAME: value}`. Each slot must be returned by `update`
    or `collect`, unchanged if need be.

    Args:
        init: the initial value: a number, the name of an option that holds it, `everstep.VARIABLE` for the variable's
            value, `everstep.random_normal(...)` or `everstep.random_uniform(...)`, or a function that returns a NumPy
            array of the slot's shape or a number. Default 0.
        shape: None (default) for the variable's shape, "row" for one number for each row (shape[:1] + (1, ..., 1)), a
            tuple, or a function that returns a tuple. For as many slots as an option says, a slot with one more axis.
            Functions take the `everstep.Variable`, or that and the definition, whose options they may read.
        dtype: "float16", "float32", "float64", "int32" or "int64". Default None: the dtype in which rules compute,
            which is float32 for 16-bit variables (Adam's v would underflow in float16) and else the variable's own.
        when: whether the slot exists. The name of an option: if it is true. The name of a hyper: unless it was given as
            the number 0. A function of the definition: if it returns True. Default None: always.

    Raises:
        DefinitionError: an argument is none of these, or the name is reserved. Raised when the class is defined.

    >>> import everstep
    >>> class Momentum(everstep.Definition):
    ...     learning_rate = everstep.hyper(0.01)
    ...     m = everstep.slot()
    ...     def update(self, ops, grad, var, slots, hyper, t):
    ...         m = 0.9 * slots.m + grad
    ...         return hyper.learning_rate * m, {"m": m}
    >>> import numpy
    >>> weights = numpy.zeros(2)
    >>> optimizer = Momentum().bind(numpy)
    >>> optimizer.apply_gradients([(numpy.array([1.0, -2.0]), weights)])
    >>> optimizer.get_slot(weights, "m")
    array([ 1., -2.])
    """

    kind = "slot"

    def __init__(self, init=0.0, shape=None, dtype=None, when=None):
        super(Slot, self).__init__()
        self.init, self.shape, self.dtype, self.when = init, shape, dtype, when

    def initial_value(self, definition):
        """Returns a slot's initial value: a number, VARIABLE for the variable's own value, or a `RandomStart`.

        A function of a whole variable, which returns an array or a number, if the declaration has one.

        Args:
            definition: the definition that has the slot.
        """
        if callable(self.init):
            return lambda record: _asked(self.init, record, definition)
        if self.init is VARIABLE or isinstance(self.init, RandomStart):
            return self.init
        number = getattr(definition, str(self.init)) if isinstance(self.init, TEXT_OR_BYTES) else self.init
        return int(number) if self.dtype in ("int32", "int64") else float(number)

    def check_declaration(self, owner):
        what = "{}.{}".format(owner.__name__, self.name)
        if isinstance(self.init, TEXT_OR_BYTES):
            self.check_named(what, owner, "init", self.init, ("option",))
        elif isinstance(self.init, RandomStart):
            if isinstance(self.init.seed, TEXT_OR_BYTES):
                self.check_named(what, owner, "seed", self.init.seed, ("option",))
        elif self.init is not VARIABLE and not callable(self.init):
            needed = "a number, an option's name, a function or everstep.VARIABLE, random_normal() or random_uniform()"
            self.init = _checked_init(what, self.init, needed)
        self.check_when(what, owner)
        if not (self.shape in (None, "row") or callable(self.shape) or isinstance(self.shape, (tuple, list))):
            raise DefinitionError(
                '{}: the shape of a slot is None (the variable\'s), "row", a tuple or a function of the variable; '
                "got {!r}".format(what, self.shape))
        if not (self.dtype is None or self.dtype in _SLOT_DTYPES):
            raise DefinitionError(
                "{}: the dtype of a slot is None (the one in which rules compute) or one of {}; got {!r}".format(
                    what, ", ".join(_SLOT_DTYPES), self.dtype))

    def shape_for(self, record, definition):
        """Returns the slot's shape for one variable.

        Args:
            record: the variable, an `everstep.Variable`.
            definition: the definition that has the slot.

        Returns:
            A tuple of ints. The shape of a variable whose shape is not known has None for each unknown size, or is
            None.

        Raises:
            DefinitionError: the function given as `shape` returned something else, or failed.
        """
        if self.shape is None:
            return record.shape
        if self.shape == "row":
            return tuple(record.shape[:1]) + (1,) * (len(record.shape) - 1)
        try:
            shape = _asked(self.shape, record, definition) if callable(self.shape) else self.shape
        except (TypeError, IndexError, ValueError, AttributeError) as error:  # of the user's function
            raise DefinitionError(
                "the function that gives the shape of slot {} fails for {} of shape {}: {}: {}. It takes an "
                "everstep.Variable, or that and the definition, and returns a tuple of whole numbers".format(
                    self.name, record.name, record.shape, type(error).__name__, error))
        if not isinstance(shape, (tuple, list)) or not all(isinstance(size, numbers.Integral) for size in shape):
            raise DefinitionError(
                "the shape of slot {} for {} must be a tuple of whole numbers; it is {!r}".format(
                    self.name, record.name, shape))
        return tuple(int(size) for size in shape)

    def dtype_for(self, record):
        return self.dtype or compute_dtype(record.dtype)


class Scalar(Declaration):
    """Declares a scalar: one float32 of state for the whole optimizer, such as a product of betas.

    Verbs read it as `hyper.NAME`. `advance` returns its new value, once for each update.

    Args:
        init: the initial value: a number, or the name of an option that holds it. Default 0.
        when: whether the scalar exists, as for `everstep.slot`. Default None: always.

    Raises:
        DefinitionError: an argument is none of these, or the name is reserved. Raised when the class is defined.

    >>> import everstep
    >>> class Warming(everstep.Definition):
    ...     learning_rate = everstep.hyper(0.01)
    ...     product = everstep.scalar(1.0)
    ...     def advance(self, ops, scalars, hyper, t):
    ...         return {"product": scalars.product * 0.9}
    ...     def update(self, ops, grad, var, slots, hyper, t):
    ...         return hyper.learning_rate * (1 - hyper.product) * grad, {}
    """

    kind = "scalar"

    def __init__(self, init=0.0, when=None):
        super(Scalar, self).__init__()
        self.init = init
        self.when = when

    def check_declaration(self, owner):
        what = "{}.{}".format(owner.__name__, self.name)
        if isinstance(self.init, TEXT_OR_BYTES):
            self.check_named(what, owner, "init", self.init, ("option",))
        else:
            self.init = _checked_init(what, self.init, "a number or an option's name")
        self.check_when(what, owner)

    def initial_value(self, definition):
        """Returns the scalar's initial value, a float.

        Args:
            definition: the definition that has the scalar.
        """
        return float(getattr(definition, str(self.init)) if isinstance(self.init, TEXT_OR_BYTES) else self.init)


class Child(Declaration):
    """Declares a child: another definition that a wrapper contains. It is an argument of the constructor.

    `everstep.Wrapper` declares `inner = child()`. Verbs call it as `self.NAME`; it has `slots.NAME` and `hyper.NAME`.
    """

    kind = "child"
    is_argument = True

    def read(self, instance):
        return instance._values[self.name]

    def check(self, owner, value):
        if not is_a("definition", value):
            raise HyperTypeError(
                "{}.{} takes an everstep definition; got {!r}; {}".format(owner, self.name, value, instead_of(value)))
        return value


def _asked(function, record, definition):
    """Returns what a function of a variable, or of a variable and a definition, returns."""
    code = getattr(function, "__code__", None)
    return function(record, definition) if code is not None and code.co_argcount > 1 else function(record)


def _checked_init(what, init, needed):
    """Returns `init` as a float, or raises DefinitionError, which says what is `needed`."""
    try:
        return check_number(what, init)
    except (HyperTypeError, HyperValueError):
        raise DefinitionError("{}: `init` is {}; got {!r}".format(what, needed, init))


class _Variable(object):
    def __repr__(self):
        return "everstep.VARIABLE"


VARIABLE = _Variable()  # the `init` of slots that start at the variable's value

hyper = Hyper
option = Option
slot = Slot
scalar = Scalar
child = Child
