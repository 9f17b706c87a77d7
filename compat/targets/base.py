"""What all adapters share: how a native class is made of a definition, its arguments, hypers and config.

An adapter is a class that stands before the native base class in the method order. Each brings the same members in
the same order; `docs` tables are generated from `target`, `works_on` and `cannot`.
"""
from __future__ import absolute_import, division, print_function

import re
from collections import OrderedDict, namedtuple

import numpy as np

from everstep.compat.engine.fast_forward import ROWS, Missed, catches_up
from everstep.compat.engine.lowering import Lowerings
from everstep.compat.engine.step import Flush, LossScale, Step, counters, engine_slots, holds, skips
from everstep.errors import (
    ConfigError,
    DefinitionError,
    EverstepError,
    GradientError,
    HyperValueError,
    RuleError,
    UnsupportedError,
)
from everstep.optimizers.contract.checks import is_tensor
from everstep.optimizers.contract.definition import Definition, Variable
from everstep.optimizers.contract.schedule import Schedule
from everstep.optimizers.contract.tree import flat, with_hypers
from everstep.optimizers.contract.verbs import defines

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments

# Where the part of a partitioned variable lies in the whole: a slice of each axis, and the shape of the whole.
Place = namedtuple("Place", "slices whole")

_BOUNDS = ("clipnorm", "clipvalue", "global_clipnorm")
_RATE = ("learning_rate", "lr")
CONFIG_KEY = "everstep"  # no stock class takes it, so that loading our config as a stock one fails


class Target(object):
    """Members that a target does not need to change."""

    target = ""  # the name in the table of targets
    works_on = ""  # what speaks it, for people
    unsupported = ()  # type: tuple[str, ...]  # what the native API or this adapter has not, for the support table
    definition_class = None  # type: Any
    native_base = None  # type: Any
    definition = None  # type: Any
    moved_natively = ()  # type: tuple[str, ...]  # counters that the base class moves by itself
    takes_gradients = False  # whether this API's optimizers take gradients of a loss
    sets_hypers = True  # whether hypers can be set after the optimizer is made
    is_fused = True  # whether this API's own optimizers run fused kernels

    @classmethod
    def made_for(cls, definition_class, base):
        """The native class: this adapter over `base`, named like the definition."""
        body = {
            "definition_class": definition_class,
            "native_base": base,
            "__doc__": definition_class.__doc__,
            "__module__": definition_class.__module__,
        }
        return type(str(definition_class.__name__), (cls, base), body)

    @classmethod
    def from_definition(cls, definition, **native):
        return cls(definition=definition, **native)

    def __init__(self, *args, **kwargs):
        definition, gradients = kwargs.pop("definition", None), kwargs.pop("gradients", None)
        lowerings = Lowerings(self, kwargs.pop("lowering", None))
        if definition is None:
            own = self.definition_class.argument_names()
            definition = self.definition_class(*args, **{name: kwargs.pop(name) for name in own if name in kwargs})
        elif args or not isinstance(definition, self.definition_class):
            raise DefinitionError(
                "{} binds a {}; got {!r}".format(type(self).__name__, self.definition_class.__name__, definition)
            )
        self.check_native(definition, kwargs)
        self.check_gradients(gradients)
        # Before the base class, whose attributes may have hooks.
        self.__dict__.update(
            definition=definition,
            lowerings=lowerings,
            is_averaged=False,  # whether everstep.averaged has put averages into the variables
            _scales=False,  # whether a loss was scaled, where the definition divides by that
            takes_stages=False,  # whether who calls takes all the gradients of a batch, where the definition needs more
            _gradients=gradients,  # what takes the gradients of a loss, where that is not the API itself
            _by_hand=False,  # whether it ever did
            _checked=False,  # whether the variables of a first step were looked at
            _rules={},  # by variable: its rule and record, and the variable itself, so that its id stays its own
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
        for name in sorted(set(native).intersection(definition.hints)):
            raise DefinitionError("{} does not take {}: {}".format(type(self).__name__, name, definition.hints[name]))
        bounds = [name for name in _BOUNDS if native.get(name)]
        if bounds and defines(definition, "loss_scale"):
            raise UnsupportedError(
                "{} would bound gradients of the scaled loss; put everstep.clip inside of {}".format(
                    bounds[0], definition._short()
                )
            )

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
            kind = "a tensor" if is_tensor(given) else "a callable"
            kind = "an everstep schedule" if isinstance(given, Schedule) else kind
            raise HyperValueError(
                "{}.{} was given as {}, which decides its value at every step; it cannot be set. Bind a definition "
                "with a number to set it".format(type(self).__name__, name, kind)
            )
        owner, declaration = self.hyper_declarations()[name]
        if isinstance(value, (np.ndarray, np.generic)) and np.ndim(value) == 0:
            value = value.item()
        checked = declaration.check(type(owner).__name__, value)
        if not isinstance(checked, float):
            raise HyperValueError("{}.{} can be set to a number; got {!r}".format(type(self).__name__, name, value))
        missing = set(flat(with_hypers(self.definition, {name: checked}), "slot")) - set(flat(self.definition, "slot"))
        if missing:
            raise HyperValueError(
                "{0}.{1} was given as {2!r}, without the slot {3}, so it cannot become {4!r}; bind a definition with "
                "another {1}".format(type(self).__name__, name, given, ", ".join(sorted(missing)), checked)
            )
        return checked

    # Counters.

    def read_counter(self, name):
        """A counter's value before the step."""
        return self.backend.read(self.counter(name))

    @property
    def steps(self):
        """What counts the steps, those that updated nothing too."""
        return self.counter("steps" if skips(self.definition) else "updates")

    # Variables.

    def variable_key(self, variable):
        # Of a replica's part, the whole; newer versions of TensorFlow keep it at the handle.
        for holder in (variable, getattr(variable, "_handle", None)):
            container = getattr(holder, "_distributed_container", None)
            if callable(container):
                return id(container())
        return id(variable)

    def whole_key(self, variable):
        """What parts of one variable have in common, and no two variables."""
        return self.variable_key(variable)

    def unwrap(self, variable):
        """What the backend works on."""
        return variable

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
                shape=tuple(self.backend.shape(self.unwrap(variable))),
                dtype=self.backend.dtype(self.unwrap(variable)),
                index=len(self._rules),
                collections=self.collections(variable),
                native=variable,
            )
            self._rules[key] = (self._specialized(record), record, variable)
        return self._rules[key][:2]

    def _specialized(self, record):
        rule = self.definition.specialize(record)
        if not isinstance(rule, Definition):
            raise RuleError(
                "{}.specialize must return a definition (self, or self.replace(...)); for {} it returned {!r}".format(
                    type(self.definition).__name__, record.name, rule
                )
            )
        for kind in ("hyper", "scalar"):  # those are of the whole optimizer
            if list(flat(rule, kind)) != list(flat(self.definition, kind)):
                raise RuleError(
                    "{}.specialize must keep the {}s; for {} it returned {}".format(
                        type(self.definition).__name__, kind, record.name, rule._short()
                    )
                )
        return rule

    def collections(self, variable):
        return ()

    def slot_declaration(self, variable, name, record=None):
        """(initial value or VARIABLE, shape, dtype) of a slot of a variable, or of what `record` makes of it."""
        rule, record = self.rule(variable), record or self.record(variable)
        own = engine_slots(self.backend, rule, record)
        if name in own:
            return own[name]
        owner, slot = flat(rule, "slot")[name]
        return slot.initial_value(owner), slot.shape_for(record), slot.dtype_for(record)

    def slot_names(self, variable):
        rule = self.rule(variable)
        return list(flat(rule, "slot")) + list(engine_slots(self.backend, rule, self.record(variable)))

    # State: what `everstep.capture` and `everstep.restore` ask for.

    def check_given(self, variable):
        """Raises VariableError for what the target cannot train."""

    def parts(self, variable):
        """The variables that a partitioned one stands for."""
        return [variable]

    def place(self, variable):
        """The `Place` of a part, or of its slot; None of what is whole."""

    def state_name(self, variable, place):
        """The name of one in a list of variables."""
        return self.variable_name(variable)

    def own_variables(self):
        """{name: variable} of the counters and scalars, as far as they are made."""
        made = OrderedDict((name, self.counter(name)) for name in counters(self.definition))
        made.update((name, self.scalar(name)) for name in flat(self.definition, "scalar"))
        return made

    def find_slot(self, variable, name):
        """What holds a slot, or None."""
        return self._slots.get(self.variable_key(variable), {}).get(name)

    def slotted(self):
        """The variables that have slots."""
        known = [variable for _, _, variable in self._rules.values()]
        return [v for v in known if any(self.find_slot(v, name) is not None for name in self.slot_names(v))]

    def make_state(self, variables):
        """Makes the counters, scalars and slots that there are not yet: what it made beside them, in a list."""
        return []

    def default_session(self, variables):
        """The session to use for variables of a graph where none is given and there is no default one."""

    def calls_per_update(self):
        """What the counter of updates moves by at one of them."""
        return 1

    def not_carried(self):
        """What keeps a State from holding all that this optimizer has learned, or None."""

    # The step.

    def scale_loss(self, loss):
        """The loss to take gradients of, a tensor, number or function: multiplied where `everstep.loss_scale` divides.

        `minimize`, `compute_gradients`, `get_updates` and `fit` do it themselves.
        """
        if not defines(self.definition, "loss_scale"):
            return loss
        self.__dict__["_scales"] = True
        if callable(loss):
            return lambda: self.scale_loss(loss())
        loss = loss.item() if isinstance(loss, np.generic) else loss
        return loss * LossScale(self).native(self.backend.dtype(loss) if is_tensor(loss) else "float32")

    def by_hand(self, loss, variables):
        """Pairs of what the user's own function gives for the gradients of a loss."""
        self.__dict__["_by_hand"] = True
        grads, variables = list(self._gradients(loss, variables)), list(variables)
        if len(grads) != len(variables):
            raise GradientError(
                "{!r} gave {} gradients for {} variables ({}); give one for each, or None".format(
                    self._gradients,
                    len(grads),
                    len(variables),
                    ", ".join(str(getattr(variable, "name", variable)) for variable in variables),
                )
            )
        return list(zip(self.backend.wait_for_loss(grads, loss), variables))

    def take_step(self, pairs, count=True, before=()):
        return Step(self, pairs, before).run(count)

    def flush(self, variables=None):
        """Does what steps so far have left undone, before evaluation or a checkpoint.

        Gradients of an open window make their update, as if it had been full: with `everstep.accumulate`, of the mean
        (or sum) of the steps that came. Then, where `sparse="catch_up"`, every row is brought up to date. Where nothing
        was left undone, nothing is changed or counted.

        Args:
            variables: those that it is done for; all that this optimizer has trained unless given. An open window has
                all of them.

        Returns:
            In a graph the operation that does it; in eager code None, and it is done.

        Raises:
            SlotError: the optimizer has not been made to train one of the variables yet.
            UnsupportedError: there are windows, which belong to other variables.
        """
        return self.backend.plain(self._flush)(variables)

    def _flush(self, variables):
        done = self._update_held(variables) if holds(self.definition) else []
        known = self.slotted() if variables is None else variables
        with self.backend.after(done):
            return self.backend.group(done + self._bring_up([(variable, None) for variable in known]))

    def _update_held(self, variables):
        """The update of an open window."""
        calls = self._calls.get((self._graph_now(), 0)) or [key for keys in self._calls.values() for key in keys]
        if variables is None:
            known = [v for key, (_, _, v) in self._rules.items() if key in calls] if calls else self.slotted()
        else:
            known = [part for variable in variables for part in self.parts(variable)]
            for variable in known:
                for name in self.slot_names(variable):
                    self.get_slot(variable, name)  # or an error that says what to do first
            if calls and set(calls) != set(map(self.variable_key, known)):
                raise UnsupportedError(
                    "{} counts the steps of all its variables together; flush them in one call".format(
                        self.definition._short()
                    )
                )
        return self.take_flush([self.unwrap(variable) for variable in known]) if known else []

    def take_flush(self, variables):
        return Flush(self, variables).run()

    def catch_up(self, variable, rows):
        """Brings the rows that a batch is about to read up to date, where `sparse="catch_up"`.

        Args:
            variable: the table.
            rows: whole numbers of any shape; a row may be there more than once.

        Returns:
            In a graph the operation that does it, which the look-up must wait for; in eager code None.

        Raises:
            SlotError: the optimizer has not been made to train the variable yet.
        """
        bring_up = self.backend.plain(self._bring_up)
        return self.backend.group(bring_up([(variable, rows)]))

    def _bring_up(self, wanted):
        operations = []
        for variable, rows in wanted:
            if not self.record(variable).shape or not catches_up(self.backend.moves_rows, self.rule(variable)):
                continue
            self.get_slot(variable, ROWS)  # or an error that says what to do first
            with self.backend.at(self.unwrap(variable)):
                found = None if rows is None else self.backend.unique(rows)
                missed = Missed(self, variable, None if rows is None else lambda found=found: found)
                operations.extend(missed.take())
        return operations

    def constrain(self, variable, write):
        """The operation that wrote a variable, with its constraint."""
        return self.backend.constrain(variable, write)

    def native_decay(self, variable):
        """The base class's own weight decay of a variable, which is times the rate; None where there is none."""

    def check_first(self, variables):
        """Raises where the variables of the first step show a mistake in the definition, before anything is made."""
        if not self._checked:
            self.definition.check_variables([self.record(variable) for variable in variables])
            self.__dict__["_checked"] = True

    def check_repeat(self, variables):
        """A definition that counts calls needs all its variables in one call; a second group would count twice."""
        if defines(self.definition, "loss_scale") and not self._scales:
            raise UnsupportedError(
                "{} divides gradients by the scale of a loss, and no loss was scaled: take gradients of "
                "optimizer.scale_loss(loss). What takes them in another way (fit of TF 2.0 to 2.3, a "
                "LossScaleOptimizer around it) needs a definition without loss_scale".format(self.definition._short())
            )
        if self._gradients is not None and not self._by_hand:
            raise UnsupportedError(
                "this {} was bound with gradients={!r}, and what trains here takes gradients by itself (fit of TF 2.0 "
                "to 2.3 does); call minimize, or give your gradients to apply_gradients of an optimizer bound without "
                "it".format(type(self).__name__, self._gradients)
            )
        self.check_stages()
        if not skips(self.definition):
            return
        graph = self._graph_now()
        keys = [self.variable_key(variable) for variable in variables]
        first = self._calls.setdefault((graph, self.backend.replica()), keys)
        if first != keys or graph is not None and first is not keys and self.definition.stages == 1:
            raise UnsupportedError(
                "{} counts its calls, so it takes all variables in one call, and one call in a graph; bind one "
                "definition for each group of variables".format(self.definition._short())
            )

    def check_stages(self):
        """Raises where a rule that takes several gradients of a batch would get one of each."""
        if self.definition.stages > 1 and not self.takes_stages:
            raise UnsupportedError(
                "{0} takes {1} gradients of each batch, one after the other, and this call has one: give minimize a "
                "function without arguments that computes the loss (where this API has it), or call "
                "everstep.enable_multistage(model) before fit. In a loop of your own, call "
                "everstep.enable_multistage(optimizer) once, then take {1} gradients of each batch, each followed by a "
                "step".format(self.definition._short(), self.definition.stages)
            )

    def refused_updates(self, params):
        """What stands in a train function that gives one gradient of a batch to a rule of several: it fails when run.

        Not before, since loading a model builds its train function.
        """
        try:
            self.check_stages()
            return []
        except UnsupportedError as error:
            self.make_state(params)
            return [self.backend.failure(str(error))]

    def each_stage(self, minimize, loss, *args, **kwargs):
        """Calls `minimize` of the base class once for each gradient that an update takes."""
        if self.definition.stages == 1 or self.takes_stages:
            return minimize(loss, *args, **kwargs)
        if not callable(loss):
            self.check_stages()
        self.__dict__["takes_stages"] = True
        try:
            done = []
            for _ in range(self.definition.stages):
                with self.backend.after(done):
                    done = [minimize(loss, *args, **kwargs)]
            return done[0]
        finally:
            self.__dict__["takes_stages"] = False

    def _graph_now(self):
        return None if self.backend.eager else self.backend.tf.get_default_graph()

    def everstep_plan(self):
        """How the variables that were trained so far are updated, and why not faster.

        Returns:
            A list of (name, shape, gradient, way, why): "dense" or "sparse", one of the ways in docs/speed.md, and what
            kept the faster ones from it.
        """
        return self.lowerings.plan()

    # Hypers as attributes. They are known by instance: a wrapper has those of the definition inside it.

    def __getattr__(self, name):
        definition = self.__dict__.get("definition")
        if definition is not None and not name.startswith("_"):
            for hyper in flat(definition, "hyper"):
                if name == attribute(hyper) or name == "lr" and hyper == "learning_rate":
                    return self.read_hyper(hyper)
        raise AttributeError(self._no_one_rate(name) or "{} has no attribute {!r}".format(type(self).__name__, name))

    def __setattr__(self, name, value):
        definition = self.__dict__.get("definition")
        if definition is not None and not name.startswith("_"):
            for hyper in flat(definition, "hyper"):
                if name == attribute(hyper) or name == "lr" and hyper == "learning_rate":
                    return self.set_hyper(hyper, value)
            if self._no_one_rate(name):
                raise HyperValueError(self._no_one_rate(name))
        super(Target, self).__setattr__(name, value)

    def _no_one_rate(self, name):
        """What to say of an attribute that there is not because each branch of the definition has a rate of its own."""
        hypers = flat(self.definition, "hyper") if "definition" in self.__dict__ and name in _RATE else ()
        rates = [attribute(hyper) for hyper in hypers if hyper.endswith("/learning_rate")]
        if rates and "learning_rate" not in hypers:
            return "{} has no one learning rate; it has {}".format(type(self).__name__, ", ".join(rates))
        return None

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
    def parse_hyper(cls, value):
        """A hyper's value from a config."""
        return Schedule.from_config(value) if isinstance(value, dict) and Schedule.kind in value else value


def attribute(name):
    """The attribute and config key of a flat hyper name."""
    return name.replace("/", "_")
