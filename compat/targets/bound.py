"""`Bound`: everything that belongs to one bound optimizer, in one object. The native object holds it in one attribute.

The engine's host is a `Bound`. It asks `bound.adapter` what is different from API to API.
"""
from __future__ import absolute_import, division, print_function

import operator
from collections import namedtuple

import numpy as np

from everstep.compat.engine.by_hooks import HookedStep
from everstep.compat.engine.eager_steps import EagerSteps
from everstep.compat.engine.fast_forward import catches_up
from everstep.compat.engine.fitting import is_known, shape_needed
from everstep.compat.engine.lowering import Lowerings
from everstep.compat.engine.overwritten import is_overwritten, overwritten
from everstep.compat.engine.pairs import check_pairs, check_rows
from everstep.compat.engine.step import Step, engine_slots, remembers_rows, skips
from everstep.compat.targets import construction, hypers
from everstep.compat.targets.checking import check_not_grown
from everstep.compat.targets.hooks import slots_missing
from everstep.compat.targets.loading import tell_what_is_lost
from everstep.compat.targets.random_starts import initial_value
from everstep.errors import DefinitionError, RuleError, SlotError, VariableError
from everstep.optimizers.contract import Definition, Variable, changed_hypers, flat
from everstep.optimizers.contract.checks import TEXT_OR_BYTES
from everstep.optimizers.contract.undecayed import undecayed

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments

# The position of a part in its partitioned variable: one slice for each axis, the shape of the whole variable, and a
# key that all parts of it share.
Place = namedtuple("Place", "slices whole key")
# The facts about one variable, cached by its key. slots: `{name: native variable}`; rehearsed: kinds of gradients.
Known = namedtuple("Known", "rule record variable key slot_names rehearsed slots")


class Bound(object):
    """One bound optimizer: its definition, backend, variables, hypers and plans.

    Args:
        native: the user's optimizer, which has no attribute yet.
        base: the methods of the native base class, bound to it: `super`.
        args, kwargs: the arguments of its class: those of the definition, `definition` or those of a native config; and
            those of `bind`.

    Raises:
        DefinitionError, UnsupportedError, ...: see `Definition.bind`.

    Attributes:
        native: the user's optimizer, an instance of the API's own class.
        base: the methods of the native base class, bound to `native`, without ours.
        adapter: the `Adapter` of its API.
        backend: the backend that computes. `adapter.start` sets it.
        definition: the definition, with the hypers as they were given.
        arguments: {name: value} of the arguments of `bind`, but those that are None.
        gradients: the user's function that takes the gradients of a loss, or None.
        lowerings: the engine's plans.
        eager_steps: the functions of eager steps.
        hyper_names: {attribute: flat hyper name}. `aliases` are those among them that a wrapper's argument has.
        options: {attribute: value}.
        base_attributes: the names of attributes that the constructor set, without those of a user's subclass.
        started: whether the native base class's constructor has run.
        rules: {key: `Known`}, for each variable.
        seen: {id: `Known`}. It holds the variable, so that Python does not reuse the id.
        made: the variables of the last call that made slots.
        calls: {(graph, replica): variables of the first call}, for definitions that count calls.
        carried: the state of a copy or file, for the variables of the first step; None if there is none.
        lost: what to warn of at the first step, of a loader that brings no state; None if nothing is lost.
        warned: the texts of the warnings of loaders.
        is_averaged: True inside everstep.averaged, while the variables hold averages.
        takes_stages: True if the caller takes all gradients of a batch, for definitions that need several.
        has_scaled: True once a loss was scaled.
        has_called_gradients: True once `gradients` was called.
        hooked_step: the running `HookedStep`, or None.
        may_grow: True once a variable was seen whose shape is not known.
        has_checked: True once the variables of the first step were checked.
        tensors_read: (graph, {name: tensor}), those that attributes of stock gave.
    """

    backend = None  # type: Any
    carried = None  # type: Any
    lost = None  # type: Any
    base_attributes = frozenset()  # type: Any
    started = is_averaged = takes_stages = has_scaled = has_called_gradients = has_checked = may_grow = False
    made = ()  # type: tuple[Any, ...]
    tensors_read = None, {}  # type: Any
    hooked_step = None  # type: Any

    def __init__(self, native, base, args, kwargs):
        construction.take_config(type(native), kwargs)
        if type(native).adapter_class.respelled:
            args = type(native).adapter_class.respelled(type(native), args, kwargs)
        definition, gradients = kwargs.pop("definition", None), kwargs.pop("gradients", None)
        lowering = kwargs.pop("lowering", None)
        self.native, self.base, self.gradients = native, base, gradients
        self.adapter = type(native).adapter_class(self)
        self.lowerings = Lowerings(self, lowering)
        self.definition = construction.definition_of(type(native), definition, args, kwargs)
        construction.check_native(self, kwargs)
        given = dict(kwargs, gradients=gradients, lowering=lowering)
        self.arguments = {name: value for name, value in given.items() if value is not None}
        self.eager_steps = EagerSteps(self)
        self.hyper_names, self.aliases = hypers.attribute_names(self)
        self.options = hypers.options(self.definition)
        self.rules, self.seen, self.calls = {}, {}, {}  # type: dict, dict, dict
        self.warned = set()  # type: set

    def for_twin(self, native):
        """Returns the `Bound` of a shallow copy of the native object, which shares variables, slots and counters."""
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        twin.native, twin.base = native, super(self.base.__thisclass__, native)
        twin.adapter = object.__new__(type(self.adapter))
        vars(twin.adapter).update(vars(self.adapter), bound=twin, native=native, base=twin.base)
        twin.renew_plans()
        return twin

    def renew_plans(self):
        """Forgets how updates are computed. Copies plan anew."""
        self.lowerings, self.eager_steps = Lowerings(self, self.arguments.get("lowering")), EagerSteps(self)

    @property
    def owner(self):
        """The name of the native class, for error messages."""
        return type(self.native).__name__

    # Hypers, counters and scalars.

    def hyper_declarations(self):
        """Returns `{name: (owner, declaration)}`."""
        return flat(self.definition, "hyper")

    def given(self, name):
        """Returns the value that the definition was given for a flat hyper name."""
        owner, declaration = self.hyper_declarations()[name]
        return owner._values[declaration.name]

    def read_counter(self, name):
        """Returns a counter's value before the step."""
        value, calls = self.backend.read(self.adapter.counter(name)), self.adapter.calls_per_update()
        return value if calls == 1 else value // calls

    @property
    def steps(self):
        """The counter of all steps, including those that do not update; their number where arrays are trained."""
        counter = self.adapter.counter("steps" if skips(self.definition) else "updates")
        return int(counter) if isinstance(counter, np.ndarray) else counter

    # Variables and slots.

    def variable_key(self, variable):
        """Returns a hashable key, equal for a variable's copies on all replicas."""
        known = self.seen.get(id(variable))
        return known.key if known is not None and known.variable is variable else self.adapter.find_key(variable)

    def whole_key(self, variable):
        """Returns a key that all parts of a partitioned variable share."""
        place = self.adapter.place(variable)
        return self.variable_key(variable) if place is None else place.key

    def record(self, variable):
        """Returns the `Variable` record that rules see."""
        return self.known(variable).record

    def rule(self, variable):
        """Returns the definition, specialized for the variable."""
        return self.known(variable).rule

    def slot_names(self, variable):
        """Returns a list, with the engine's own slots."""
        return self.known(variable).slot_names

    def known(self, variable):
        """Returns the `Known` of a variable. Raises RuleError or VariableError if the rule does not fit it."""
        known = self.seen.get(id(variable))
        if known is not None and known.variable is variable:
            return known
        key = self.adapter.find_key(variable)
        if key not in self.rules:
            self.learn(variable)
        if len(self.seen) > 64 * len(self.rules):  # `weights.T` is a new array view, with a new id, each time
            self.seen.clear()
        known = self.seen[id(variable)] = self.rules[key]._replace(variable=variable, slots={})
        return known

    def learn(self, variable, rule=None):
        """Records what is known of a variable; `rule`: the definition for it. Default: what `specialize` makes."""
        adapter, native = self.adapter, self.adapter.unwrap(variable)
        key, name = adapter.find_key(variable), adapter.variable_name(variable)
        shape, dtype = self.backend.shape(native), self.backend.dtype(native)
        record = Variable(name, shape, dtype, len(self.rules), adapter.collections(variable), variable)
        if is_overwritten(variable):
            rule = overwritten(self.definition)
        if rule is None:
            rule = self._specialized(record) if is_known(shape) else self._without_shape(record)
        names = list(flat(rule, "slot")) + list(engine_slots(self.backend, rule, record))
        self.rules[key] = Known(rule, record, variable, key, names, set(), {})
        self.may_grow = self.may_grow or not is_known(shape)

    def _without_shape(self, record):
        """Returns the rule of a variable whose shape is not known. Raises VariableError if the rule needs it."""
        try:
            rule = self._specialized(record)
            shapes = [slot.shape_for(record, owner) for owner, slot in flat(rule, "slot").values()]
            if all(is_known(shape) or shape == record.shape for shape in shapes):
                if not remembers_rows(rule) and not catches_up(self.backend.moves_rows, rule):
                    return rule
        except (DefinitionError, TypeError, IndexError, ValueError):  # `len(None)` and the like
            rule = self.definition
        raise VariableError(shape_needed(rule, record))

    def _specialized(self, record):
        rule = self.definition.specialize(record)
        if not isinstance(rule, Definition):
            raise RuleError(
                "{}.specialize must return a definition (self, or self.replace(...)); for {} it returned {!r}".format(
                    type(self.definition).__name__, record.name, rule
                )
            )
        for kind in ("hyper", "scalar"):  # the optimizer has one of each for all variables
            if list(flat(rule, kind)) != list(flat(self.definition, kind)):
                raise RuleError(
                    "{}.specialize must keep the {}s; for {} it returned {}".format(
                        type(self.definition).__name__, kind, record.name, rule._short()
                    )
                )
        changed = changed_hypers(self.definition, rule)
        if changed:
            raise RuleError(
                "{0}.specialize changed {1} for {2}, but an optimizer has one value of a hyper for all its variables. "
                "Change an option, such as a factor that `update` multiplies {1} by; or use decoupled_weight_decay("
                "exclude=...) or learning_rate_multipliers".format(
                    type(self.definition).__name__, " and ".join(changed), record.name
                )
            )
        return rule if self.adapter.decays(record) else undecayed(rule)

    def slot_declaration(self, variable, name, whole=None):
        """Returns (initial value or VARIABLE, shape, dtype) of a slot; `whole`: the record of all parts together."""
        rule, record = self.rule(variable), whole or self.record(variable)
        declared_by_engine = engine_slots(self.backend, rule, record)
        if name in declared_by_engine:
            return declared_by_engine[name]
        (owner, slot), place = flat(rule, "slot")[name], None if record is whole else self.adapter.place(variable)
        return initial_value(owner, slot, record, place), slot.shape_for(record, owner), slot.dtype_for(record)

    def slot(self, variable, name):
        """Returns the native variable of a slot. Raises SlotError if there is none."""
        slots = self.known(variable).slots
        if slots.get(name) is None:
            found = self.adapter.find_slot(variable, name)
            if found is None:
                raise SlotError(slots_missing(self.owner, "slot {!r} of {}".format(name, self.record(variable).name)))
            slots[name] = self.adapter.unwrap(found)
        return slots[name]

    def require_slot(self, variable, name, error=SlotError):
        """Returns the variable that holds a slot, or raises the error, a SlotError."""
        slot = self.adapter.find_slot(variable, name) if isinstance(name, TEXT_OR_BYTES) else None
        if slot is None:
            raise error(
                "{} has no slot {!r} of {}; it has {} {}".format(
                    self.owner,
                    name,
                    getattr(variable, "name", "this array"),
                    ", ".join(flat(self.definition, "slot")) or "none",
                    self.adapter.has_slots,
                )
            )
        return slot

    def slot_of(self, variable, name):
        """Returns what the optimizer's `get_slot` gives."""
        adapter = self.adapter
        # Programs ask for the slots of all variables there are, and take those that are not None.
        if adapter.knows_no_slot and name in self.native.get_slot_names():
            return adapter.find_slot(variable, name)
        return adapter.get_slot(variable, name)

    def stored_slots(self, variables, stock_orders=()):
        """Returns the (variable, slot name) pairs of a list of weights, in the order in which stock stores them.

        It is slot by slot; variable by variable if they have different slots.

        Args:
            stock_orders: {definition: blocks} of stock classes with another order: lists of slots that are stored
                together, variable by variable.
        """
        names = [self.slot_names(variable) for variable in variables]
        if not names or any(each != names[0] for each in names):
            return [(variable, name) for variable, each in zip(variables, names) for name in each]
        blocks = dict(stock_orders).get(type(self.definition.base).__name__, [])
        blocks = blocks + [[name] for name in names[0] if not any(name in block for block in blocks)]
        return [(variable, name) for block in blocks for variable in variables for name in block if name in names[0]]

    def has_slots_for(self, variables):
        """Returns True if slots were last created for exactly these variables."""
        return len(variables) == len(self.made) and all(map(operator.is_, variables, self.made))

    def first_seen(self):
        """Returns the variables that this optimizer knows, in the order in which they were first seen."""
        return [each.variable for each in sorted(self.rules.values(), key=lambda known: known.record.index)]

    def variables_with_slots(self):
        """Returns a list of the variables that have slots."""
        find = self.adapter.find_slot
        variables = [known.variable for known in self.rules.values()]
        return [v for v in variables if any(find(v, name) is not None for name in self.slot_names(v))]

    # The step.

    def take_step(self, pairs, before=(), checked=True, hooks=None):
        """Runs one step on (gradient, variable) pairs; returns operations.

        Args:
            before: tensors to compute before anything is written.
            checked: True if the pairs have yet to be checked.
            hooks: a `Hooks`, of the hooks that the user's class replaces, or None.
        """
        if self.lost:
            tell_what_is_lost(self)
        pairs = check_pairs(self.backend, pairs, self.adapter.casts_gradients) if checked else pairs
        if self.may_grow and self.backend.eager:
            check_not_grown(self, pairs)
        eager = not hooks and self.backend.keeps_functions() and not self.is_averaged
        return self.eager_steps.run(pairs) if eager else self.new_step(pairs, before, hooks).run()

    def host_of(self, variable):
        """Returns the engine's host for a variable, or for all if it is None: this, or a lane."""
        return self if self.adapter.lane_of is None else self.adapter.lane_of(variable)

    def new_step(self, pairs, before=(), hooks=None):
        """Returns a step on checked pairs, to be run. The arguments are those of `take_step`."""
        return HookedStep(self, pairs, hooks, before) if hooks else Step(self, pairs, before)

    def update_one(self, grad, variable, hypers=()):
        """Updates one variable, for a hook that was replaced or an optimizer that wraps this one; returns operations.

        Args:
            hypers: `{name: value}` of the hypers that the hook was given.
        """
        pairs = check_pairs(self.backend, [(grad, variable)], self.adapter.casts_gradients)
        [pair] = check_rows(self.backend, pairs)
        if self.hooked_step is not None:
            return self.hooked_step.update_one(pair, hypers)
        return Step(self, [pair], hypers=hypers).run(count=False)

    def check_first(self, variables):
        """Checks the definition against the variables of the first step, before any slot is created."""
        if not self.has_checked:
            self.definition.check_variables([self.record(each) for each in variables if not is_overwritten(each)])
            self.has_checked = True

    def graph_now(self):
        """Returns the graph that calls build in; None in eager code."""
        return None if self.backend.eager else self.backend.tf.get_default_graph()
