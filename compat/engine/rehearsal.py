"""Runs the rules of a step on symbols alone, before a slot is created or a variable written.

A rule runs once for each variable, in turn. Without a rehearsal, one that raises at the second variable would leave the
first one changed in eager code, and slots of both behind. A rehearsal needs no values and creates no operations. Each
rule is rehearsed once for each variable and kind of gradient, so later steps cost nothing.
"""
from __future__ import absolute_import, division, print_function

from everstep.compat.engine.fast_forward import Missed, catches_up
from everstep.compat.engine.shapes import result_shape
from everstep.compat.engine.variable_view import Scope, VariableView, check_fits, is_known, shape_needed
from everstep.errors import RuleError, VariableError
from everstep.optimizers.contract.declarations import running_rule
from everstep.optimizers.contract.definition import assign, total
from everstep.optimizers.contract.schedule import Schedule
from everstep.optimizers.contract.trees import flatten
from everstep.optimizers.contract.verbs import defines


def rehearse(host, pairs):
    """Raises the errors of the rules of (gradient, variable) pairs. `host`: see compat/engine/step.py."""
    alike = set()  # a rule does the same for variables that are alike
    for grad, variable in pairs:
        is_sparse = host.backend.slices(host.backend.local(grad)) is not None
        if is_sparse not in host.known(variable).rehearsed:
            record = host.record(variable)
            key = id(host.rule(variable)), record.shape, record.dtype, is_sparse
            if key not in alike or host.adapter.place(variable) is not None:
                _rehearse_one(host, variable, is_sparse)
            alike.add(key)
            host.known(variable).rehearsed.add(is_sparse)


def _rehearse_one(host, variable, is_sparse):
    record = host.record(variable)
    try:
        Rehearsal(host).run(variable, is_sparse)
    except (RuleError, TypeError, IndexError) as error:
        if is_known(record.shape):
            raise
        raise VariableError("{} ({})".format(shape_needed(host.rule(variable), record), error))


def checked_update(view, returned):
    """Returns (change, slots) as `update` returned them. Raises RuleError for anything else."""
    if not isinstance(returned, tuple) or len(returned) != 2 or isinstance(returned, assign):
        raise RuleError("{}.update must return (change, slots); it returned {!r}".format(view.owner, returned))
    return returned


class Rehearsal(object):
    """A step whose values are never read."""

    def __init__(self, host):
        self.host, self.backend, self.definition = host, host.backend, host.definition
        self.known, self.sums, self.scopes = {}, {}, {}

    def scope(self, dtype):
        if dtype not in self.scopes:
            self.scopes[dtype] = _Symbols(self, dtype)
        return self.scopes[dtype]

    def run(self, variable, is_sparse):
        """Runs the verbs of the variable's rule, as a step does. Raises RuleError, UnknownOpError, ..."""
        view = self._view(variable, is_sparse)
        if defines(self.definition, "measure"):
            self._measure(view)
        with running_rule():
            if defines(view.rule, "collect"):
                self._check(view, flatten(view.rule, "slot", self._collect(view), "collect"))
            if is_sparse and not view.row_rule:
                view = self._view(variable, False)
            returned = view.rule.update(view.ops, view.grad, view.var, view.slots, view.hypers, view.scope.t)
        change, slots = checked_update(view, returned)
        self._check(view, flatten(view.rule, "slot", slots, "update"))
        self._check(view, {None: change.value if isinstance(change, assign) else change})
        if view.record.shape and catches_up(self.backend.moves_rows, view.rule):
            Missed(self.host, variable).trace()

    def _view(self, variable, by_rows):
        return VariableView(self, variable, None, (lambda: None) if by_rows else None)

    @staticmethod
    def _collect(view):
        return view.rule.collect(view.ops, view.grad, view.slots, view.hypers_before)

    def totals(self, variable, is_sparse):
        """Returns the names of the sums over all variables that the variable's rule measures."""
        return self._measure(self._view(variable, is_sparse))

    def _measure(self, view):
        with running_rule():
            measured = view.rule.measure(view.ops, view.grad, view.var, view.slots, view.hypers)
        totals, sums = {}, {}
        for name, value in flatten(view.rule, "sum", measured, "measure").items():
            (totals if isinstance(value, total) else sums)[name] = None
            result_shape(view.as_value(value.value if isinstance(value, total) else value))
        self.sums[self.host.whole_key(view.variable)] = sums
        view.scope.learn(totals)
        return sorted(totals)

    @staticmethod
    def _check(view, values):
        """Checks the shapes of new slots or, by the name None, of the change."""
        for name, value in values.items():
            expected = (view.var if name is None else view.slot_values[name]).leaf_shape
            check_fits(result_shape(view.as_value(value)), expected, name, view.about)


class _Symbols(Scope):
    """Step-wide values without numbers: reading a hyper could call the user's function, or create a variable."""

    def _hyper(self, name):
        value = self.step.host.given(name)
        if isinstance(value, Schedule):
            return self.as_value(value.value(self.tracer, self.values["updates"]))
        return self._leaf(None)
