"""Construction and config: makes native classes, checks arguments, writes and reads native configs."""
from __future__ import absolute_import, division, print_function

import itertools
import re
from collections import namedtuple

import numpy as np

from everstep.compat.targets import hypers
from everstep.compat.targets.hypers import attribute, is_off
from everstep.compat.targets.loading import remember_saved_model
from everstep.compat.targets.native_classes import name_subclass, native_class, stock_class_of, subclass_in_scope
from everstep.errors import (
    ConfigError,
    DefinitionError,
    EverstepError,
    GradientError,
    HyperTypeError,
    NativeArgumentError,
    UnsupportedError,
    UnsupportedMemberError,
    VariableError,
)
from everstep.optimizers.contract import Definition, Schedule, defines, flat, with_hypers
from everstep.optimizers.contract.checks import TEXT_OR_BYTES
from everstep.optimizers.contract.spelling import advice

# A feature that a target does not support: its name, the error class and its text. {optimizer} is the class name.
Unsupported = namedtuple("Unsupported", "what error text")
_BOUNDS = ("clipnorm", "clipvalue", "global_clipnorm")
CONFIG_KEY = "everstep"  # stock classes refuse this key, so our config never becomes a stock optimizer


def member(name, instead):
    """Declares that the target has no method of that name."""
    return Unsupported(name, UnsupportedMemberError, "{optimizer} on {target} has no " + name + ": " + instead)


def keyword(name, instead):
    """Declares that `bind` takes no keyword of that name."""
    return Unsupported(name, DefinitionError, "{optimizer} does not take " + name + ": " + instead)


PARTITIONED = Unsupported(
    "partitioned variables",
    VariableError,
    "{optimizer} trains whole variables; got {got!r}, which is in parts. Make it without a partitioner, or bind to "
    "tf.train",
)
COMPLEX = Unsupported(
    "complex variables",
    GradientError,
    "{optimizer} trains variables of real numbers; {got} is of dtype {dtype}. Keep its real and its imaginary part in "
    "two variables",
)
DECAY = keyword("decay", Definition.hints["decay"])


def in_parts(variable):
    return hasattr(variable, "_get_partitions") or isinstance(variable, (list, tuple))


def take_config(native_class, kwargs):
    """Puts the definition in the place of a native config: a subclass's `from_config` may be `cls(**config)`."""
    if CONFIG_KEY in kwargs:
        definition, rest = split_config(kwargs, native_class.__name__)
        kwargs.clear()
        kwargs.update(native_class.adapter_class.native_keywords(rest), definition=definition)


def definition_of(native_class, definition, args, kwargs):
    """Returns the definition to bind: the one given, or one made of the arguments, which it takes out of `kwargs`."""
    definition_class = native_class.definition_class
    if definition is None:
        own = definition_class.argument_names()
        return definition_class(*args, **{name: kwargs.pop(name) for name in own if name in kwargs})
    is_own = bool(args or kwargs) and has_own_init(native_class)
    if args and not is_own or not isinstance(definition, definition_class):
        raise DefinitionError(
            "{} binds a {}; got {!r}".format(native_class.__name__, definition_class.__name__, definition)
        )
    for name in definition_class.argument_names() if is_own else ():
        kwargs.pop(name, None)
    return definition


def has_own_init(native_class):
    """Returns whether a class of a user's has an `__init__`, which copies and configs run.

    It gives the base class arguments of the definition, such as its own default of a rate. The definition has them.
    """
    own = itertools.takewhile(lambda each: "native_base" not in vars(each), native_class.__mro__)
    return any("__init__" in vars(each) for each in own)


def check_native(bound, native):
    """Checks keywords of `bind`, and takes those out that are off."""
    definition = bound.definition
    for item in bound.adapter.unsupported:
        if item.what in native and item.error is DefinitionError:
            if not is_off(native.pop(item.what)):
                raise hypers.refusal(bound, item.what)
    for name in sorted(set(native).intersection(definition.hints)):
        raise DefinitionError("{} does not take {}: {}".format(bound.owner, name, definition.hints[name]))
    names = set(name.split("/")[-1] for name in flat(definition, "hyper"))
    for name in sorted(set(native).intersection(names | {"learning_rate"}) - {"weight_decay"}):
        raise DefinitionError(
            "{} is no argument of bind: it belongs to the definition, as in {}({}=...).bind(module); the "
            "definition here is {}".format(name, type(definition.base).__name__, name, definition._short())
        )
    bounds = [name for name in _BOUNDS if native.get(name)]
    if bounds and defines(definition, "loss_scale"):
        raise UnsupportedError(
            "{} would bound gradients of the scaled loss; put everstep.clip inside of {}".format(
                bounds[0], definition._short()
            )
        )
    _check_gradients(bound)
    _check_schedules(bound)


def _check_schedules(bound):
    """Raises HyperTypeError for an everstep.Schedule that has a native schedule of another API in it."""
    for name, (owner, declared) in bound.hyper_declarations().items():
        given = owner._values[declared.name]
        natives = given._natives() if isinstance(given, Schedule) else ()
        native = native_schedules(bound) if natives else None
        for part in natives:
            if native is None or not isinstance(part, native.LearningRateSchedule):
                raise HyperTypeError(
                    "{}.{} has {!r} in it, a schedule of another API than {}. {}".format(
                        bound.owner, name, part, bound.adapter.target,
                        "This one has no schedules of its own: use everstep's" if native is None
                        else "Give one of {}, or everstep's".format(native.__name__)
                    )
                )


def _check_gradients(bound):
    gradients = bound.gradients
    if gradients is not None and not bound.adapter.takes_gradients:
        raise UnsupportedError(
            "gradients={!r}: on {} no optimizer takes gradients of a loss; give yours to apply_gradients".format(
                gradients, bound.adapter.target
            )
        )
    if gradients is not None and not callable(gradients):
        raise DefinitionError("gradients is a function of (loss, variables); got {!r}".format(gradients))


def start(bound, native):
    """Makes what is native: the backend, and all that the base class's constructor makes of its keywords.

    Raises:
        NativeArgumentError, DefinitionError: the base class does not take the keywords.
    """
    try:
        bound.adapter.start(**native)
    except EverstepError:
        raise
    except (TypeError, ValueError) as error:
        kind = NativeArgumentError if isinstance(error, ValueError) else DefinitionError
        said = _said(bound, error), _advice(bound, error)
        raise kind("{} on {}: {}{}".format(bound.owner, bound.adapter.target, *said))
    bound.started = True
    bound.lowerings.check()
    name_subclass(type(bound.native))


def _said(bound, error):
    """Returns what is wrong with keywords: the base class's words, or ours where the target alone takes them."""
    unknown = re.search(r"\bstart\(\) got an unexpected keyword argument '(\w+)'", str(error))
    if unknown is None:
        return error
    code = bound.adapter.start.__code__
    return "it takes no keyword {}; beside the arguments of the definition it takes {}".format(
        unknown.group(1), ", ".join(sorted(code.co_varnames[1:code.co_argcount])))


def _advice(bound, error):
    """Returns what to write instead of the arguments that the native base class does not know."""
    owner, known = type(bound.definition.base).__name__, bound.definition.argument_names()
    unknown = [name for name in sorted(bound.arguments) if re.search(r"\b{}\b".format(re.escape(name)), str(error))]
    found = [advice(name, owner, known) for name in unknown]
    return "".join("; " + text for text in found if text)


def prefix(name, definition):
    """Returns the prefix of variable names on disk: the given name, else the class name of a definition."""
    if not isinstance(name, TEXT_OR_BYTES + (type(None),)):
        raise HyperTypeError("name is a text; got {!r}".format(name))
    name = name or type(definition).__name__.lstrip("_")
    if not re.match(r"[A-Za-z0-9.][A-Za-z0-9_.\\/-]*$", str(name)):  # the names that TensorFlow accepts for a scope
        raise DefinitionError(
            "{!r} cannot be the prefix of variable names: it must begin with a letter, a digit or a dot, and may "
            "contain only those, _, - and /. Give another one with bind(module, name=...)".format(name)
        )
    return name


# Config.


def config_of(bound):
    """Returns the definition's part of a native config: hypers by name, and its structure under one key."""
    config = {CONFIG_KEY: bound.definition.get_config(strict=False)}
    for name in bound.hyper_declarations():
        value = written(bound, name)
        config[attribute(name)] = _schedule_config(bound, value) if isinstance(value, Schedule) else value
    if bound.gradients is not None:
        config["gradients"] = repr(bound.gradients)
    return config


def _schedule_config(bound, schedule):
    """Returns the config of an everstep.Schedule, with native schedules in it as their own module writes them."""
    if not schedule._natives():
        return schedule.get_config()
    schedules = native_schedules(bound)
    config = {Schedule.kind: type(schedule).__name__, "module": type(schedule).__module__}
    for name, value in schedule._values.items():
        if isinstance(value, Schedule):
            config[name] = _schedule_config(bound, value)
        elif isinstance(value, schedules.LearningRateSchedule):
            config[name] = schedules.serialize(value)
        else:
            config[name] = schedule._plain(name)
    return config


def native_schedules(bound):
    """Returns the native module of schedules; None if the API has none."""
    return bound.adapter.schedules(type(bound.native).native_base)


def written(bound, name):
    """Returns a hyper's value in the form that a config holds: a number, a Schedule or a native schedule's config.

    Raises:
        ConfigError: it has no value here.
    """
    value, schedules = bound.adapter.read(name), native_schedules(bound)
    if isinstance(value, Schedule):
        return value
    if schedules is not None and isinstance(value, schedules.LearningRateSchedule):
        return schedules.serialize(value)
    try:
        return as_given(bound, name, float(bound.adapter.number(name, value)))
    except Exception as error:  # a traced value, a placeholder or a tensor of another graph; the error's type varies
        raise ConfigError("{}.{} has no value that a config could hold: {}".format(bound.owner, name, error))


def as_given(bound, name, value):
    """Returns the hyper as given if `value` is that number in float32; else `value`, shortened to float32."""
    given = bound.given(name)
    if not isinstance(given, float):
        return value
    return given if np.float32(given) == value else float(str(np.float32(value)))


def split_config(config, owner="an optimizer"):
    """Returns (definition, what else there is) of a native config. Hypers at its top level override the structure."""
    config = _checked(config, owner)
    if CONFIG_KEY not in config:
        raise ConfigError(
            "this config has no {!r} key, so everstep did not write it; it has {}".format(
                CONFIG_KEY, ", ".join(sorted(config))
            )
        )
    if "gradients" in config:
        raise ConfigError(
            "this optimizer took its gradients by {}, a function, which no config holds; load the model with "
            "compile=False and bind again".format(config["gradients"])
        )
    definition = Definition.from_config(config.pop(CONFIG_KEY))
    changed = {}
    for name in flat(definition, "hyper"):
        if attribute(name) in config:
            value = config.pop(attribute(name))
            is_schedule = isinstance(value, dict) and Schedule.kind in value
            changed[name] = Schedule.from_config(value) if is_schedule else value
    return with_hypers(definition, changed), config


def from_config(cls, config, custom_objects=None):
    """Returns the optimizer of a native config: a stock one, if everstep did not write it.

    It is of another class if that has the definition: Keras finds classes by name, and two definitions may share one.
    """
    wanted = subclass_in_scope(cls, custom_objects)
    if wanted is not cls:
        return wanted.from_config(config)
    stock = stock_class_of(cls, config) if CONFIG_KEY not in _checked(config, cls.__name__) else None
    if stock is not None:
        arguments = () if custom_objects is None else (custom_objects,)
        return stock.from_config(config, *arguments)
    schedules = cls.adapter_class.schedules(cls.native_base)
    if schedules is not None:
        config = {name: _with_schedules(schedules, value, custom_objects) for name, value in config.items()}
    definition, rest = split_config(config, cls.__name__)
    if type(definition) is not cls.definition_class:
        cls = native_class(cls.adapter_class, type(definition), cls.native_base)
    optimizer = cls.from_definition(definition, **cls.adapter_class.native_keywords(rest))
    remember_saved_model(optimizer._bound)
    return optimizer


def _with_schedules(schedules, value, custom_objects):
    """Returns a value of a config with native schedules in place of their configs."""
    if not isinstance(value, dict):
        return value
    if "class_name" in value:
        return schedules.deserialize(value, custom_objects=custom_objects)
    if Schedule.kind not in value:
        return value
    return {name: _with_schedules(schedules, inner, custom_objects) for name, inner in value.items()}


def _checked(config, owner):
    """Returns a copy of a config. Raises ConfigError if it is no dictionary."""
    if not hasattr(config, "keys"):
        raise ConfigError("the config of {} is a dictionary; got {!r}".format(owner, config))
    return dict(config)
