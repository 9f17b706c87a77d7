"""Construction and config: builds native classes, checks arguments, writes and reads native configs."""
from __future__ import absolute_import, division, print_function

import re
from collections import namedtuple

import numpy as np

from everstep.compat.engine.eager_steps import EagerSteps
from everstep.compat.engine.lowering import Lowerings
from everstep.compat.targets.hypers import Hypers, attribute, attribute_names, is_off, options
from everstep.compat.targets.native_classes import native_class, stock_class, target_class_of
from everstep.compat.targets.signature import NativeSignature
from everstep.errors import (
    ConfigError,
    DefinitionError,
    EverstepError,
    GradientError,
    HyperTypeError,
    HyperValueError,
    NativeArgumentError,
    UnsupportedError,
    UnsupportedMemberError,
    VariableError,
)
from everstep.optimizers.contract import Definition, Schedule, defines, flat, with_hypers
from everstep.optimizers.contract.checks import TEXT_OR_BYTES
from everstep.optimizers.contract.spelling import advice

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments

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


class Construction(Hypers):
    """Members that build the native class and its instances."""

    definition_class = None  # type: Any
    native_base = None  # type: Any

    @classmethod
    def made_for(cls, definition_class, base):
        """Returns a new native class: this target over `base`, with the definition's name."""
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
        # Before the base class runs: it may read these attributes.
        self.__dict__.update(
            definition=definition,
            lowerings=lowerings,
            eager_steps=EagerSteps(self),
            is_averaged=False,  # True inside everstep.averaged, while the variables hold averages
            _scales=False,  # True once a loss was scaled
            takes_stages=False,  # True if the caller takes all gradients of a batch, for definitions that need several
            _native={name: value for name, value in native.items() if value is not None},
            _carried=None,  # the state of a pickle, for the variables of the first step
            _gradients=gradients,  # the user's function that takes the gradients of a loss, or None
            _by_hand=False,  # True once that function was called
            _checked=False,  # True once the variables of the first step were checked
            _hyper_names=attribute_names(definition),
            _options=options(definition),
            _rules={},  # {key: `Known`}, for each variable
            _seen={},  # {id: `Known`}. It holds the variable, so that Python does not reuse the id
            _made=(),  # the variables of the last call that made slots
            _calls={},  # {(graph, replica): variables of the first call}, for definitions that count calls
        )
        try:
            self.start(**kwargs)
        except EverstepError:
            raise
        except (TypeError, ValueError) as error:
            kind = NativeArgumentError if isinstance(error, ValueError) else DefinitionError
            raise kind("{} on {}: {}{}".format(type(self).__name__, self.target, error, self._advice(error)))
        lowerings.check()

    def _advice(self, error):
        """Returns what to write instead of the arguments that the native base class does not know."""
        owner, known = type(self.definition.base).__name__, self.definition.argument_names()
        unknown = [name for name in sorted(self._native) if re.search(r"\b{}\b".format(re.escape(name)), str(error))]
        found = [advice(name, owner, known) for name in unknown]
        return "".join("; " + text for text in found if text)

    def check_native(self, definition, native):
        for item in self.unsupported:
            if item.what in native and item.error is DefinitionError:
                if not is_off(native.pop(item.what)):
                    raise self.refusal(item.what)
        for name in sorted(set(native).intersection(definition.hints)):
            raise DefinitionError("{} does not take {}: {}".format(type(self).__name__, name, definition.hints[name]))
        hypers = set(name.split("/")[-1] for name in flat(definition, "hyper"))
        for name in sorted(set(native).intersection(hypers | {"learning_rate"}) - {"weight_decay"}):
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

    def refusal(self, what, **details):
        """Returns the error for an item of `unsupported`; `details` fill in its text."""
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
        """Returns the prefix of variable names on disk: the given name, else the innermost rule's class name."""
        if not isinstance(name, TEXT_OR_BYTES + (type(None),)):
            raise HyperTypeError("name is a text; got {!r}".format(name))
        name = name or type(self.definition.base).__name__.lstrip("_")
        if not re.match(r"[A-Za-z0-9.][A-Za-z0-9_.\\/-]*$", str(name)):  # the names that TensorFlow accepts for a scope
            raise DefinitionError(
                "{!r} cannot stand before the names of variables: it must begin with a letter, a digit or a dot and "
                "have but those, _, -, / after it; give another by bind(module, name=...)".format(name)
            )
        return name

    def check_operation_name(self, name):
        """Raises HyperTypeError or HyperValueError for a name that no operation of a graph can have.

        TensorFlow 1.4 and 1.5 raise an error, too, but then stay in the graph: no `tf.reset_default_graph` works.
        """
        if not isinstance(name, TEXT_OR_BYTES + (type(None),)):
            raise HyperTypeError("name is a text; got {!r}".format(name))
        if not name or self.backend.eager:
            return
        is_first = not self.backend.tf.get_default_graph().get_name_scope()  # a scope's name can be any text of these
        if not re.match(r"[A-Za-z0-9_.\\/-]+$", str(name)) or is_first and str(name)[0] in "_\\/-":
            raise HyperValueError(
                "name begins with a letter, a digit or a dot, and has those, _, - and / after it; got {!r}".format(name)
            )

    # Config.

    def definition_config(self):
        """Returns the definition's part of a native config: hypers by name, and its structure under one key."""
        config = {CONFIG_KEY: self.definition.get_config(strict=False)}
        for name in self.hyper_declarations():
            value = self.write_hyper(name, self.read_hyper(name))
            config[attribute(name)] = value.get_config() if isinstance(value, Schedule) else value
        if self._gradients is not None:
            config["gradients"] = repr(self._gradients)
        return config

    def as_given(self, name, value):
        """Returns the hyper as given if `value` is that number in float32; else `value`, shortened to float32."""
        given = self.given_hyper(name)
        if not isinstance(given, float):
            return value
        return given if np.float32(given) == value else float(str(np.float32(value)))

    def write_hyper(self, name, value):
        """Returns a hyper's current value in the form that a config holds."""
        return value

    @classmethod
    def split_config(cls, config):
        """Returns (definition, native keywords) of a native config. Hypers at its top level override the structure."""
        config = cls.check_config(config)
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
    def of_config(cls, config):
        """Returns the optimizer of a config that everstep wrote, of another class if that has the definition.

        Keras finds classes by name, and two definitions may share one.
        """
        definition, native = cls.split_config(config)
        if type(definition) is not cls.definition_class:
            cls = native_class(target_class_of(cls), type(definition), cls.native_base)
        return cls.from_definition(definition, **native)

    @classmethod
    def stock_for(cls, config):
        """Returns the stock class of this name if everstep did not write the config; else None."""
        return None if CONFIG_KEY in cls.check_config(config) else stock_class(cls)

    @classmethod
    def check_config(cls, config):
        """Returns a copy of a config. Raises ConfigError if it is no dictionary."""
        if not hasattr(config, "keys"):
            raise ConfigError("the config of {} is a dictionary; got {!r}".format(cls.__name__, config))
        return dict(config)

    @classmethod
    def parse_hyper(cls, value):
        """Returns a hyper's value from a config."""
        return Schedule.from_config(value) if isinstance(value, dict) and Schedule.kind in value else value
