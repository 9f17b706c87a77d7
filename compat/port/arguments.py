"""The arguments of an original: which numbers become hypers, and which constants of its graph are made of them."""
from __future__ import absolute_import, division, print_function

import inspect
import itertools
import numbers
from collections import OrderedDict

import numpy as np

from everstep.compat.port.algebra import number_of, ops
from everstep.compat.port.spelling import declared_name
from everstep.errors import PortError

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments

# Of every Keras, and of no rule.
NATIVE = frozenset(
    "name use_locking clipnorm clipvalue global_clipnorm jit_compile use_ema ema_momentum ema_overwrite_frequency "
    "loss_scale_factor gradient_accumulation_steps kwargs args dtype self".split()
)
CLIPPING = ("clipnorm", "clipvalue", "global_clipnorm")
# What every Keras does around a rule.
BESIDE = CLIPPING + ("use_ema", "ema_momentum", "ema_overwrite_frequency", "gradient_accumulation_steps")


def is_number(value):
    return isinstance(value, (numbers.Real, np.number)) and not isinstance(value, (bool, np.bool_))


def factory_of(optimizer, arguments):
    """Returns (factory, arguments) of what the user gave."""
    if isinstance(optimizer, type) or inspect.isfunction(optimizer):
        return optimizer, arguments
    cls = type(optimizer)
    if callable(getattr(optimizer, "get_config", None)) and callable(getattr(cls, "from_config", None)):
        config = dict(optimizer.get_config(), **arguments)
        known = given_and_defaults(cls, {})
        absent = [name for name in known if name not in config or isinstance(config[name], dict)]
        if not absent:
            beside = [name for name in BESIDE if config.get(name)]
            wanted = list(known) + list(arguments) + beside
            return cls, {name: value for name, value in config.items() if name in wanted}
        raise PortError("the config of {} does not say {}. Give its class and its arguments".format(
            cls.__name__, ", ".join(absent)))
    if callable(optimizer) and not hasattr(optimizer, "apply_gradients"):
        return optimizer, arguments
    raise PortError(
        "{!r} does not say what it was made with. Give its class and its arguments: everstep.port({}, "
        "{{\"learning_rate\": 0.01}})".format(optimizer, cls.__name__))


def given_and_defaults(factory, arguments):
    """Returns {name: value} of all arguments of an original: those given, else the defaults."""
    found = OrderedDict()  # type: OrderedDict[str, Any]
    classes = factory.__mro__ if isinstance(factory, type) else (factory,)
    for each in classes:
        function = vars(each).get("__init__") if isinstance(factory, type) else each
        if function is None or not (inspect.isfunction(function) or inspect.ismethod(function)):
            continue
        names, defaults = _signature(function)
        for name in names:
            if name not in NATIVE and (name in defaults or name in arguments):
                found[name] = defaults.get(name)
        break  # only the user knows where **kwargs lead
    given, ordered = {declared_name(name): name for name in arguments}, OrderedDict()
    for name, value in found.items():
        name = given.get(declared_name(name), name)  # lr is learning_rate
        ordered[name] = arguments.get(name, value)
    for name in sorted(arguments):
        ordered.setdefault(name, arguments[name])
    return ordered


def _signature(function):
    """Returns (names, {name: default}) of a function. Looks through decorators where Python can."""
    if hasattr(inspect, "signature"):
        parameters = list(inspect.signature(function).parameters.values())
        names = [each.name for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
        defaults = {each.name: each.default for each in parameters if each.default is not each.empty}
        return names, defaults
    names, _, _, values = getattr(inspect, "getargspec")(function)  # noqa: B009  # Python 2.7
    values = values or ()
    return names, dict(zip(names[len(names) - len(values):], values))


def check_given(cls, arguments):
    """Raises PortError if an argument is of a kind that cannot be read."""
    for name, value in arguments.items():
        if name in CLIPPING and value is not None:
            raise PortError(
                "{}({}={!r}): clipping is not part of the rule. Port without it, and wrap the definition: "
                "everstep.clip(definition, {}={!r})".format(
                    cls.__name__, name, value,
                    {"clipnorm": "norm", "clipvalue": "value", "global_clipnorm": "global_norm"}[name], value))


def is_whole(value):
    """Returns whether an argument is a whole number that may be a fraction, too, or a count."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) > 1


def moved(arguments, names, counts=()):
    """Returns arguments in which some numbers are a little other ones. Zeros stay, as they switch terms off.

    Args:
        counts: names of whole numbers that stay whole.
    """
    changed = dict(arguments)
    for place, name in enumerate(sorted(names)):
        value = arguments[name]
        if isinstance(value, numbers.Integral):
            whole = int(value)  # type: ignore[call-overload]
            step = 1 if whole < 50 else whole // 100 + 1
            if whole > 1:
                changed[name] = whole + step if name in counts else whole + 0.4 * step
        else:
            changed[name] = float(value) * (1 - 0.004 - 0.0013 * place % 0.006)
    return changed


# What a constant may be made of: one hyper or two.
_OF_ONE = [  # type: list[Any]
    lambda x: x, lambda x: 1 - x, lambda x: -x, lambda x: 1 / x, lambda x: x * x, lambda x: 2 * x, lambda x: x / 2,
    lambda x: 1 + x, lambda x: x - 1, lambda x: ops.sqrt(x), lambda x: ops.log(x), lambda x: 2 / (1 - x) - 1,
]
_OF_TWO = [  # type: list[Any]
    lambda x, y: x * y, lambda x, y: x / y, lambda x, y: x - y, lambda x, y: x + y, lambda x, y: 1 - x * y,
    lambda x, y: x * (1 - y), lambda x, y: 2 * (x * y), lambda x, y: -(x * y),
]


def _is_close(value, number):
    """Returns whether a value is a constant, close to a number."""
    found = number_of(value)
    return found is not None and abs(found - number) <= 3e-7 * max(abs(found), abs(number), 1e-30)


def explain(before, after, given, changed):
    """Returns the expression, made of hypers, that a constant stands for; None if none is found.

    Args:
        before, after: the constant with the given arguments, and with changed ones.
        given, changed: {hyper: number}. The first of `given` that fits is taken.
    """
    names = [name for name in given if given[name] != changed[name]]
    for count, forms in ((1, _OF_ONE), (2, _OF_TWO)):
        for form in forms:
            for chosen in itertools.permutations(names, count):
                fits = all(_is_close(form(*[ops.constant(numbers_of[name]) for name in chosen]), number)
                           for numbers_of, number in ((given, before), (changed, after)))
                if fits:
                    return form(*[ops.leaf("hyper." + name) for name in chosen])
    return None


def explained(one, two, given, changed):
    """Returns ({place: expression} of the constants of a graph that differ in another, [place] of those unexplained).

    Args:
        one, two: the constants of both, [(name, value)].
    """
    found, left = {}, []
    for place, ((_, before), (_, after)) in enumerate(zip(one, two)):
        if before != after:
            found[place] = explain(before, after, given, changed)
            left += [place] if found[place] is None else []
    return found, left


def as_hypers(arguments, names):
    """Returns {name of a hyper: number} of some arguments."""
    return OrderedDict((declared_name(name), float(arguments[name])) for name in names)
