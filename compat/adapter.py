"""What all adapters share: how a native class is made of a definition, its arguments, hypers and config.

An adapter is a class that stands before the native base class in the method order. Each brings the same members in
the same order; `docs` tables are generated from `target`, `works_on` and `cannot`.
"""
from __future__ import absolute_import, division, print_function

from everstep.compat.step import Step
from everstep.errors import ConfigError, DefinitionError, HyperValueError
from everstep.optimizers.declarations import is_tensor
from everstep.optimizers.definition import Variable
from everstep.optimizers.schedule import Schedule
from everstep.optimizers.tree import flat

CONFIG_KEY = "everstep"  # no stock class takes it, so that loading our config as a stock one fails


class Adapter(object):
    """Members that a target does not need to change."""

    target = ""  # the name in the table of targets
    works_on = ""  # what speaks it, for people
    cannot = ()  # type: tuple[str, ...]  # what the native API or this adapter has not, for the support table
    definition_class = None  # type: type | None

    @classmethod
    def made_for(cls, definition_class, base):
        """The native class: this adapter over `base`, named like the definition."""
        body = {"definition_class": definition_class, "__doc__": definition_class.__doc__, "__module__": definition_class.__module__}
        for name, declaration in definition_class.declarations.items():
            if declaration.kind == "hyper":
                attribute = (definition_class.prefix + "/" + name if definition_class.prefix else name).replace("/", "_")
                body[attribute] = _hyper_property(attribute)
        return type(str(definition_class.__name__), (cls, base), body)

    @classmethod
    def from_definition(cls, definition, **native):
        return cls(definition=definition, **native)

    def __init__(self, *args, **kwargs):
        definition = kwargs.pop("definition", None)
        if definition is None:
            own = self.definition_class.argument_names()
            definition = self.definition_class(*args, **{name: kwargs.pop(name) for name in own if name in kwargs})
        elif args or not isinstance(definition, self.definition_class):
            raise DefinitionError(
                "{} binds a {}; got {!r}".format(type(self).__name__, self.definition_class.__name__, definition)
            )
        self.check_native(definition, kwargs)
        self.definition = definition
        self._rules = {}  # by variable: the rule and the record it was made for
        try:
            self.start(**kwargs)
        except (TypeError, ValueError) as error:
            raise DefinitionError("{} on {}: {}".format(type(self).__name__, self.target, error))

    def check_native(self, definition, native):
        if "decay" in native:
            raise DefinitionError(
                "decay is not taken: it means another thing on each API. Give the learning rate as a schedule: "
                "{}(everstep.InverseTimeDecay(0.01, rate={!r}))".format(type(self).__name__, native["decay"])
            )
        if "lr" in native:
            raise DefinitionError("the argument is called learning_rate on every target; got lr={!r}".format(native["lr"]))

    # Hypers.

    def hyper_declarations(self):
        return flat(self.definition, "hyper")

    def given_hyper(self, name):
        """What the definition was given for a flat hyper name."""
        owner, declaration = self.hyper_declarations()[name]
        return owner._values[declaration.name]

    def check_hyper(self, name, value):
        """The number to set, or an error where this hyper cannot be set."""
        given = self.given_hyper(name)
        if not isinstance(given, float):
            kind = "an everstep schedule" if isinstance(given, Schedule) else "a tensor" if is_tensor(given) else "a callable"
            raise HyperValueError(
                "{}.{} was given as {}, which decides its value at every step; it cannot be set. Bind a definition "
                "with a number to set it".format(type(self).__name__, name, kind)
            )
        owner, declaration = self.hyper_declarations()[name]
        checked = declaration.check(type(owner).__name__, value)
        if not isinstance(checked, float):
            raise HyperValueError("{}.{} can be set to a number; got {!r}".format(type(self).__name__, name, value))
        return checked

    # Variables.

    def variable_key(self, variable):
        return id(variable)

    def variable_name(self, variable):
        return variable.name.split(":")[0]

    def record(self, variable):
        return self._rule_and_record(variable)[1]

    def rule(self, variable):
        return self._rule_and_record(variable)[0]

    def _rule_and_record(self, variable):
        key = self.variable_key(variable)
        if key not in self._rules:
            record = Variable(
                name=self.variable_name(variable),
                shape=tuple(self.backend.shape(variable)),
                dtype=self.backend.dtype(variable),
                index=len(self._rules),
                collections=self.collections(variable),
                native=variable,
            )
            self._rules[key] = (self.definition.specialize(record), record, variable)
        return self._rules[key][:2]

    def collections(self, variable):
        return ()

    def slot_declaration(self, variable, name):
        """(initial value or VARIABLE, shape, dtype) of a slot of a variable."""
        rule, record = self._rule_and_record(variable)
        if name == "touched":
            return 0.0, record.shape[:1] + (1,) * (len(record.shape) - 1), "int64"
        owner, slot = flat(rule, "slot")[name]
        return slot.initial_value(owner), slot.shape_for(record), slot.dtype_for(record)

    def slot_names(self, variable):
        from everstep.compat.step import TOUCHED, remembers_rows

        rule = self.rule(variable)
        names = list(flat(rule, "slot"))
        return names + [TOUCHED] if remembers_rows(rule) and self.record(variable).shape else names

    # The step.

    def take_step(self, pairs, count=True):
        return Step(self, pairs).run(count)

    # Config.

    def definition_config(self):
        """The definition's part of a native config: live hypers at the top level, the rest under one key."""
        config = self.definition.get_config()
        return {CONFIG_KEY: config}

    @classmethod
    def split_config(cls, config):
        """(definition, native keywords) of a native config."""
        from everstep.optimizers.definition import Definition

        config = dict(config)
        if CONFIG_KEY not in config:
            raise ConfigError(
                "this config has no {!r} key, so everstep did not write it. A stock optimizer's config is read with "
                "everstep.from_native".format(CONFIG_KEY)
            )
        return Definition.from_config(config.pop(CONFIG_KEY)), config


def _hyper_property(name):
    return property(
        lambda self: self.read_hyper(name), lambda self, value: self.set_hyper(name, value), doc="Hyper {}.".format(name)
    )
