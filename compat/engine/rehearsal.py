"""Runs the rules of a step on symbols alone, before a slot is created or a variable written.

A rule runs once for each variable, in turn. Without a rehearsal, one that raises at the second variable would leave the
first one changed in eager code, and slots of both behind. A rehearsal needs no values and creates no operations. Each
rule is rehearsed once for each variable and kind of gradient, so later steps cost nothing.
"""
from __future__ import absolute_import, division, print_function

from everstep.compat.engine.fast_forward import Missed, catches_up
from everstep.compat.engine.fitting import is_known, shape_needed
from everstep.compat.engine.scope import Scope
from everstep.compat.engine.tracing import collected, measured, updated
from everstep.compat.engine.variable_view import VariableView
from everstep.compat.rules.shapes import result_shape
from everstep.errors import RuleError, VariableError
from everstep.optimizers.contract.schedule_base import Schedule
from everstep.optimizers.contract.trees import flat
from everstep.optimizers.contract.verbs import defines


def rehearse(host, pairs, check):
    """Raises the errors of the rules of (gradient, variable) pairs.

    Args:
        host: see compat/engine/step.py.
        check: a function of (host, variable) that may raise, called before a rule runs.
    """
    alike = set()  # a rule does the same for variables that are alike
    for grad, variable in pairs:
        is_sparse = host.backend.slices(host.backend.local(grad)) is not None
        if is_sparse not in host.known(variable).rehearsed:
            check(host, variable)
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
        """Runs the verbs of the variable's rule, as a step does. Returns its view and its `Traced` update.

        Raises RuleError, UnknownOpError, ...
        """
        view = self._view(variable, is_sparse)
        if defines(self.definition, "measure"):
            self._measure(view)
        if defines(view.rule, "collect"):
            collected(view)
        # from here on, hyper has the scalars as after `advance`
        view.scope.learn(dict.fromkeys(flat(self.definition, "scalar")))
        if is_sparse and not view.row_rule:
            view = self._view(variable, False)
        traced = updated(view)
        if view.record.shape and catches_up(self.backend.moves_rows, view.rule):
            Missed(self.host, variable).trace()
        return view, traced

    def _view(self, variable, by_rows):
        return VariableView(self, variable, None, (lambda: None) if by_rows else None)

    def totals(self, variable, is_sparse):
        """Returns the names of the sums over all variables that the variable's rule measures."""
        return self._measure(self._view(variable, is_sparse))

    def has_sums(self, variable):
        """Returns whether the variable's rule measures sums over the whole variable."""
        self.totals(variable, False)
        return bool(self.sums[self.host.whole_key(variable)])

    def _measure(self, view):
        totals, sums = {}, {}
        for name, (is_total, value) in measured(view).items():
            (totals if is_total else sums)[name] = None
            result_shape(value)
        self.sums[self.host.whole_key(view.variable)] = sums
        view.scope.learn(totals)
        return sorted(totals)


class _Symbols(Scope):
    """Step-wide values without numbers: reading a hyper could call the user's function, or create a variable."""

    def _present(self, name):
        value, is_set = self.step.host.given(name), self.step.host.adapter.sets_hypers
        if isinstance(value, Schedule) and value._natives():
            return None
        return None if isinstance(value, float) and is_set else value  # a number that can be set is no constant
