"""Steps that repeat the last one on torch: the same variables and settings, with other gradients and numbers.

What the base class's `apply` and the engine ask before each update cannot have another answer then. With a few small
variables, asking takes longer than the update.
"""
from __future__ import absolute_import, division, print_function

import operator

from everstep.compat.engine.step import Step, skips
from everstep.compat.engine.step_numbers import StepNumbers
from everstep.compat.engine.tracing import asked
from everstep.optimizers.contract import flat
from everstep.optimizers.contract.verbs import defines

# What makes the base class do more than one update: it does not when these are None or False.
_SETTINGS = ("gradient_accumulation_steps", "use_ema", "clipnorm", "global_clipnorm", "clipvalue", "loss_scale_factor")


class RepeatedSteps(object):
    """Those of one optimizer. `adapter`: the one of Keras 3, on torch."""

    def __init__(self, adapter):
        self.adapter, self.bound = adapter, adapter.bound
        definition = self.bound.definition
        self._is_possible = definition.stages == 1 and not (
            flat(definition, "scalar") or defines(definition, "should_accept"))
        self._measures = defines(definition, "measure")
        self._variables = None  # the variables of the last step, if the next step may repeat it
        self._hypers = {}  # {name: its variable, or what its number is asked of at each step}
        self._definition = None  # the bound definition, with the schedules and functions that hypers were given as
        self._methods = frozenset()  # of the class
        self._is_far = False  # whether the variables lie where to read a number is to wait
        self._rate = None  # what the base class has for the learning rate
        self._known = {}  # {name: what was measured in this step}
        self._should_update = None  # the `StepNumbers` of whether a step updates; None if all do

    def keep(self, variables):
        """Notes a step that was taken in full."""
        native = self.adapter.native
        self._variables, variables = None, native._trainable_variables if variables is None else variables
        if not self._is_possible or "native_base" not in vars(type(native)):  # the user's own class does as it likes
            return
        plans = self.bound.lowerings.plans
        if plans is None or not plans.can_repeat():
            return
        self._is_far, totals = plans.are_far(), self.bound.lowerings.totals
        if self._is_far and self._measures:  # a total is a number that only the device knows
            return
        if self._measures and not (totals and totals.are_all and _are_same(totals.variables, variables)):
            return
        if any(getattr(variable, "overwrite_with_gradient", False) for variable in variables):
            return
        if skips(self.bound.definition):
            scope = Step(self.bound, []).scope("float32")
            self._should_update = StepNumbers([asked(scope, self.bound.definition, "should_update")])
            if any(leaf.leaf[0] not in ("hyper", "count") for leaf in self._should_update.leaves):
                return
        self._variables, self._rate = list(variables), native._learning_rate
        self._definition = self.bound.definition
        self._hypers = {name: self.adapter.read(name) for name in self.bound.hyper_declarations()}
        self._methods = self._methods or frozenset(
            name for each in type(native).__mro__ for name, member in vars(each).items() if callable(member))

    def run(self, grads, variables):
        """Runs a step if it repeats the last one. Returns whether it did."""
        if self._variables is None or not self._repeats(grads, variables):
            return False
        adapter, lists, plans = self.adapter, self.adapter.backend.lists, self.bound.lowerings.plans
        if self._is_far and not all(lists.knows(adapter.present(name)) for name in plans.hypers()):
            return False
        adapter.framework.check_counters()
        with adapter.backend.computing():
            updates = self._should_update is None or bool(self._should_update.of(self._number)[0])
            if self._measures:
                totals = self.bound.lowerings.totals.of(grads)
                self._known = {name: lists.number(total) for name, total in totals.items()}
            plans.repeat(grads, self._number, updates)
            if self._should_update is not None:
                lists.move(adapter.counter("steps"), 1)
                lists.move(adapter.counter("pending"), -self._count("pending") if updates else 1)
            if updates:
                lists.move(adapter.counter("updates"), 1)
        return True

    def _repeats(self, grads, variables):
        adapter, bound, native, known = self.adapter, self.bound, self.adapter.native, self._variables
        variables = native._trainable_variables if variables is None else variables
        if type(grads) not in (list, tuple) or type(variables) not in (list, tuple) or not known:
            return False
        if len(grads) != len(known) or not _are_same(variables, known):
            return False
        if bound.lost or bound.is_averaged or bound.carried is not None:
            return False
        if any([getattr(native, name, None) for name in _SETTINGS]) or not self._methods.isdisjoint(vars(native)):
            return False
        if native._learning_rate is not self._rate or bound.definition is not self._definition:
            return False
        if any([variable.constraint is not None for variable in variables]):
            return False
        return bound.lowerings.plans.stands(variables) and all(map(adapter.backend.surely_fits, grads, variables))

    def _number(self, leaf):
        kind, name = leaf.leaf
        if kind == "hyper":
            value = self._hypers[name]
            if not isinstance(value, self.adapter.framework.variable_class):
                value = self.adapter.present(name)
            number = self.adapter.backend.lists.number(value)
            return float(value) if number is None else number
        if kind == "known":
            return self._known[name]
        if name != "pending":
            return self._count(name)
        # counts this step and the pending ones before it
        return 1 + (self._count(name) if self._should_update is not None else 0)

    def _count(self, name):
        return self.adapter.backend.lists.number(self.adapter.counter(name))


def _are_same(variables, others):
    return len(variables) == len(others) and all(map(operator.is_, variables, others))
