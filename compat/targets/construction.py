"""Construction and config: a native class made of a definition, its arguments checked, and its config read back."""
from __future__ import absolute_import, division, print_function

import re
from collections import namedtuple

import numpy as np

from everstep.compat.engine.lowering import Lowerings
from everstep.compat.targets.hypers import Hypers, attribute, attribute_names
from everstep.compat.targets.native_classes import native_class, stock_class, target_class_of
from everstep.compat.targets.signature import NativeSignature
from everstep.errors import (
    ConfigError,
    DefinitionError,
    EverstepError,
    UnsupportedError,
    UnsupportedMemberError,
    VariableError,
)
from everstep.optimizers.contract import Definition, Schedule, defines, flat, with_hypers

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments

# What a target does not support: the error that asking for it raises, and its text; {optimizer} stands for the class.
Unsupported = namedtuple("Unsupported", "what error text")
_BOUNDS = ("clipnorm", "clipvalue", "global_clipnorm")
CONFIG_KEY = "everstep"  # no stock class takes it, so that loading our config as a stock one fails


def member(name, instead):
    """Declares that there is no method of that name."""
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
DECAY = keyword("decay", Definition.hints["decay"])


def in_parts(variable):
    return hasattr(variable, "_get_partitions") or isinstance(variable, (list, tuple))


class Construction(Hypers):
    """Members that make the native class and its instances."""

    definition_class = None  # type: Any
    native_base = None  # type: Any

    @classmethod
    def made_for(cls, definition_class, base):
        """The native class: this target over `base`, named like the definition."""
        body = {name: getattr(definition_class, name) for name in ("__doc__", "__module__")}
        body.update(definition_class=definition_class, native_base=base, __signature__=NativeSignature())
        return type(str(definition_class.__name__), (cls, base), body)

    @classmethod
    def from_definition(cls, definition, **native):
        return cls(definition=definition, **native)

    def __init__(self, *args, **kwargs):
        definition, gradients = kwargs.pop("definition", None), kwargs.pop("gradients", None)
        lowering = kwargs.pop("lowering", None)
        lowerings = Lowerings(self, lowering)
        if definition is None:
            own = self.definition_class.argument_names()
            definition = self.definition_class(*args, **{name: kwargs.pop(name) for name in own if name in kwargs})
        elif args or not isinstance(definition, self.definition_class):
            raise DefinitionError(
                "{} binds a {}; got {!r}".format(type(self).__name__, self.definition_class.__name__, definition)
            )
        self.check_native(definition, kwargs)
        self.check_gradients(gradients)
        native = dict(kwargs, gradients=gradients, lowering=lowering)
        # Before the base class, whose attributes may have hooks.
        self.__dict__.update(
            definition=definition,
            lowerings=lowerings,
            is_averaged=False,  # whether everstep.averaged has put averages into the variables
            _scales=False,  # whether a loss was scaled, where the definition divides by that
            takes_stages=False,  # whether who calls takes all the gradients of a batch, where the definition needs more
            _native={name: value for name, value in native.items() if value is not None},
            _carried=None,  # state that came with a pickle, for the variables of the first step
            _gradients=gradients,  # what takes the gradients of a loss, where that is not the API itself
            _by_hand=False,  # whether it ever did
            _checked=False,  # whether the variables of a first step were looked at
            _hyper_names=attribute_names(definition),
            _rules={},  # by key: the `Known` of a variable
            _seen={},  # by id: the same. It holds the variable, so that the id stays its own
            _made=(),  # the variables that slots were made for last
            _calls={},  # by graph and replica: the variables of the first call, for definitions that count calls
        )
        try:
            self.start(**kwargs)
        except EverstepError:
            raise
        except (TypeError, ValueError) as error:
            raise DefinitionError("{} on {}: {}".format(type(self).__name__, self.target, error))
        lowerings.check()

    def check_native(self, definition, native):
        for item in self.unsupported:
            if item.what in native and item.error is DefinitionError:
                raise self.refusal(item.what)
        for name in sorted(set(native).intersection(definition.hints)):
            raise DefinitionError("{} does not take {}: {}".format(type(self).__name__, name, definition.hints[name]))
        bounds = [name for name in _BOUNDS if native.get(name)]
        if bounds and defines(definition, "loss_scale"):
            raise UnsupportedError(
                "{} would bound gradients of the scaled loss; put everstep.clip inside of {}".format(
                    bounds[0], definition._short()
                )
            )

    def refusal(self, what, **details):
        """The error for something in `unsupported`; `details` fill its text."""
        item = next(item for item in self.unsupported if item.what == what)
        return item.error(item.text.format(optimizer=type(self).__name__, target=self.target, **details))

    def check_gradients(self, gradients):
        if gradients is not None and not self.takes_gradients:
            raise UnsupportedError(
                "gradients={!r}: on {} no optimizer takes gradients of a loss; give yours to apply_gradients".format(
                    gradients, self.target
                )
            )
        if gradients is not None and not callable(gradients):
            raise DefinitionError("gradients is a function of (loss, variables); got {!r}".format(gradients))

    def native_name(self, name):
        """The name that variables on disk begin with: what was given, else that of the innermost rule."""
        name = name or type(self.definition.base).__name__.lstrip("_")
        if not re.match(r"[A-Za-z0-9.][A-Za-z0-9_.\\/-]*$", str(name)):  # what TensorFlow takes for a scope
            raise DefinitionError(
                "{!r} cannot stand before the names of variables: it must begin with a letter, a digit or a dot and "
                "have but those, _, -, / after it; give another by bind(module, name=...)".format(name)
            )
        return name

    # Config.

    def definition_config(self):
        """What a native config holds of a definition: live hypers by name, and its structure under one key."""
        config = {CONFIG_KEY: self.definition.get_config(strict=False)}
        for name in self.hyper_declarations():
            value = self.write_hyper(name, self.read_hyper(name))
            config[attribute(name)] = value.get_config() if isinstance(value, Schedule) else value
        if self._gradients is not None:
            config["gradients"] = repr(self._gradients)
        return config

    def as_given(self, name, value):
        """The number as it was given or set, where only float32 stands between that and `value`."""
        given = self.given_hyper(name)
        if not isinstance(given, float):
            return value
        return given if np.float32(given) == value else float(str(np.float32(value)))

    def write_hyper(self, name, value):
        """A hyper's present value as a config holds it."""
        return value

    @classmethod
    def split_config(cls, config):
        """(definition, native keywords) of a native config. Hypers beside the definition's structure win over it."""
        config = dict(config)
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
                changed[name] = cls.parse_hyper(config.pop(attribute(name)))
        return with_hypers(definition, changed), config

    @classmethod
    def class_for(cls, definition):
        """The native class of a definition that a config held: of two definitions of one name Keras knows the last."""
        if type(definition) is cls.definition_class:
            return cls
        return native_class(target_class_of(cls), type(definition), cls.native_base)

    @classmethod
    def stock_for(cls, config):
        """The stock class of this name if everstep did not write the config, so that it hides no stock class."""
        return None if CONFIG_KEY in config else stock_class(cls)

    @classmethod
    def parse_hyper(cls, value):
        """A hyper's value from a config."""
        return Schedule.from_config(value) if isinstance(value, dict) and Schedule.kind in value else value
