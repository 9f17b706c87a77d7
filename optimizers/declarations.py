"""What a definition is declared with: `hyper`, `option`, `slot`, `scalar`, `child`.

A declaration is a descriptor: on an instance it gives the value that was set, on the class itself.
"""
from __future__ import absolute_import, division, print_function

import itertools
import math
import numbers
import threading

import numpy as np

from everstep.errors import DefinitionError, HyperTypeError, HyperValueError, RuleError

_order = itertools.count()  # class bodies keep no order on Python 2.7; a counter does
_running = threading.local()
_TEXT = (str, bytes, type(u""))


class running_rule(object):
    """While a rule runs, its hypers come as arguments; reading them through `self` would freeze them."""

    def __enter__(self):
        _running.depth = getattr(_running, "depth", 0) + 1

    def __exit__(self, *exc_info):
        _running.depth -= 1


class Declaration(object):
    """Base of all declarations: knows its name, its owner and its place in the class body."""

    kind = "declaration"
    is_argument = False  # whether the constructor takes it

    def __init__(self):
        self.order = next(_order)
        self.name = None  # type: str | None

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        return self.read(instance)

    def __set__(self, instance, value):
        raise AttributeError(
            "{} is fixed once made; use .replace({}=...) for a changed copy".format(type(instance).__name__, self.name)
        )

    def read(self, instance):
        raise RuleError(
            "{0}.{1} is a {2}: it has no value outside a step. Read it from the argument that the rule is "
            "given (`slots.{1}`, `hyper.{1}`).".format(type(instance).__name__, self.name, self.kind)
        )

    def check(self, owner, value):
        """The value as it is kept, or an error that says what was needed."""
        return value

    def __repr__(self):
        return "everstep.{}(...)".format(self.kind)


class Hyper(Declaration):
    """A number the user sets: a float, a scalar tensor, a callable or a schedule."""

    kind = "hyper"
    is_argument = True

    required = False

    def __init__(self, default, minimum=None, maximum=None):
        super(Hyper, self).__init__()
        self.default = float(default)
        self.minimum = minimum
        self.maximum = maximum

    def read(self, instance):
        if getattr(_running, "depth", 0):
            raise RuleError(
                "{0}.{1} was read through `self` inside a rule, which would freeze it; use `hyper.{1}`.".format(
                    type(instance).__name__, self.name
                )
            )
        return instance._values[self.name]

    def check(self, owner, value):
        what = "{}.{}".format(owner, self.name)
        if isinstance(value, (bool, np.bool_)) or value is None or isinstance(value, _TEXT + (list, tuple, dict, set)):
            raise HyperTypeError(
                "{} takes a number, a scalar tensor, a callable or an everstep.Schedule; got {!r}".format(what, value)
            )
        if isinstance(value, (numbers.Real, np.ndarray)):
            return self.check_number(what, value)
        if is_tensor(value):
            shape = static_shape(value)
            if shape not in ((), None):
                raise HyperTypeError("{} takes a scalar; got a tensor of shape {}".format(what, shape))
            return value
        if callable(value):
            return value
        raise HyperTypeError(
            "{} takes a number, a scalar tensor, a callable or an everstep.Schedule; got {!r}".format(what, value)
        )

    def check_number(self, what, value):
        if np.ndim(value):
            raise HyperTypeError("{} takes a scalar; got an array of shape {}".format(what, np.shape(value)))
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise HyperTypeError("{} takes a number; got {!r}".format(what, value))
        if math.isnan(number) or math.isinf(number):
            raise HyperValueError("{} must be finite; got {!r}".format(what, number))
        if self.minimum is not None and number < self.minimum:
            raise HyperValueError("{} must be at least {}; got {!r}".format(what, self.minimum, number))
        if self.maximum is not None and number > self.maximum:
            raise HyperValueError("{} must be at most {}; got {!r}".format(what, self.maximum, number))
        return number


class Option(Declaration):
    """A setting fixed at construction; its default gives its type."""

    kind = "option"
    is_argument = True

    def __init__(self, default=None, choices=None, minimum=None):
        super(Option, self).__init__()
        self.default = default
        self.required = default is None and choices is None
        self.choices = choices
        self.minimum = minimum

    def read(self, instance):
        return instance._values[self.name]

    def check(self, owner, value):
        what = "{}.{}".format(owner, self.name)
        if self.choices is not None and value not in self.choices:
            raise HyperValueError("{} must be one of {}; got {!r}".format(what, ", ".join(map(repr, self.choices)), value))
        wanted = type(self.default)
        if wanted is bool:
            if not isinstance(value, (bool, np.bool_)):
                raise HyperTypeError("{} takes True or False; got {!r}".format(what, value))
            return bool(value)
        if wanted in (int, float):
            whole = wanted is int
            if isinstance(value, bool) or not isinstance(value, numbers.Integral if whole else numbers.Real):
                raise HyperTypeError("{} takes {}; got {!r}".format(what, "a whole number" if whole else "a number", value))
            if math.isnan(value) or math.isinf(value):
                raise HyperValueError("{} must be finite; got {!r}".format(what, value))
            if self.minimum is not None and value < self.minimum:
                raise HyperValueError("{} must be at least {}; got {!r}".format(what, self.minimum, value))
            return wanted(value)
        return value


class Slot(Declaration):
    """Per-variable state, by role.

    `init` is a number, the name of an option that holds it, or `everstep.VARIABLE` (start at the variable's
    value). `shape` is None (the variable's), "row" (one number for each row), a tuple, or a function of the
    variable's record. `dtype` is None (the variable's) or a name. `when` is an option's name or a predicate on
    the definition: whether the slot exists.
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
        if callable(self.when):
            return bool(self.when(definition))
        return bool(getattr(definition, self.when))

    def initial_value(self, definition):
        """A float, or VARIABLE."""
        if self.init is VARIABLE:
            return VARIABLE
        return float(getattr(definition, self.init) if isinstance(self.init, _TEXT) else self.init)

    def shape_for(self, record):
        """The slot's shape for a variable's record: a tuple of ints."""
        if self.shape is None:
            return tuple(record.shape)
        if self.shape == "row":
            return tuple(record.shape[:1]) + (1,) * (len(record.shape) - 1)
        return tuple(self.shape(record) if callable(self.shape) else self.shape)

    def dtype_for(self, record):
        return self.dtype or record.dtype


class Scalar(Declaration):
    """State shared by all variables, advanced once per update."""

    kind = "scalar"

    def __init__(self, init=0.0):
        super(Scalar, self).__init__()
        self.init = float(init)


class Child(Declaration):
    """Another definition that a wrapper is made of."""

    kind = "child"
    is_argument = True
    required = True
    default = None

    def read(self, instance):
        return instance._values[self.name]

    def check(self, owner, value):
        from everstep.optimizers.definition import Definition

        if not isinstance(value, Definition):
            raise HyperTypeError(
                "{}.{} takes an everstep definition, such as everstep.optimizers.Adam(); got {!r}".format(
                    owner, self.name, value
                )
            )
        return value


class _Variable(object):
    def __repr__(self):
        return "everstep.VARIABLE"


VARIABLE = _Variable()  # a slot with this `init` starts at its variable's value

hyper = Hyper
option = Option
slot = Slot
scalar = Scalar
child = Child


def is_tensor(value):
    """Whether a value looks like a framework's tensor or variable, without importing any."""
    return hasattr(value, "dtype") and (hasattr(value, "get_shape") or hasattr(value, "shape"))


def static_shape(tensor):
    """A tensor's shape as a tuple, or None where it is not known before it runs."""
    shape = tensor.get_shape() if hasattr(tensor, "get_shape") else tensor.shape
    dimensions = getattr(shape, "dims", shape)
    if dimensions is None:
        return None
    return tuple(None if getattr(d, "value", d) is None else int(getattr(d, "value", d)) for d in dimensions)


class Declared(type):
    """Metaclass that collects declarations in order and refuses names that would hide something."""

    reserved = frozenset()  # type: frozenset[str]

    def __new__(mcs, class_name, bases, body):
        inherited = {}
        for base in reversed(bases):
            inherited.update(getattr(base, "declarations", {}))
        for name, value in body.items():
            if isinstance(value, Declaration):
                mcs.check_name(class_name, bases, name, value, inherited)
                value.name = name
            elif name in inherited and not isinstance(value, Declaration):
                raise DefinitionError(
                    "{0}.{1} overrides the {2} {1} with {3!r}; write `{1} = everstep.{2}({3!r})`".format(
                        class_name, name, inherited[name].kind, value
                    )
                )
        own = [value for value in body.values() if isinstance(value, Declaration)]
        declared = dict(inherited, **{value.name: value for value in own})
        # An overridden declaration keeps the place of the first one, so that positional arguments stay put.
        place = {name: inherited.get(name, value).order for name, value in declared.items()}
        for value in own:
            value.order = place[value.name]
        made = super(Declared, mcs).__new__(mcs, class_name, bases, body)
        made.declarations = {name: declared[name] for name in declared}
        made.declared_order = tuple(sorted(declared, key=lambda name: place[name]))
        return made

    @classmethod
    def check_name(mcs, class_name, bases, name, value, inherited):
        if name in inherited:
            if inherited[name].kind != value.kind:
                raise DefinitionError(
                    "{}.{} is declared as a {}, but it is a {} in a base class".format(
                        class_name, name, value.kind, inherited[name].kind
                    )
                )
            return
        if name.startswith("_") or "__" in name:
            raise DefinitionError("{}.{}: a declared name has no leading or double underscore".format(class_name, name))
        taken = name in mcs.reserved or any(hasattr(base, name) for base in bases)
        if taken:
            raise DefinitionError(
                "{}.{} clashes with a reserved or inherited name. Reserved are: {}".format(
                    class_name, name, ", ".join(sorted(mcs.reserved))
                )
            )
