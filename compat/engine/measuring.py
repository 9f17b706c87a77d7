"""Totals over all variables, such as a global norm, measured on all gradients at once: on backends with `lists`."""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict

from everstep.compat.engine.on_lists import OnLists
from everstep.compat.engine.tracing import measured
from everstep.compat.engine.variable_view import GRAD, VariableView
from everstep.compat.rules.interpreter import squared


class Totals(object):
    """The totals of steps on some variables.

    Args:
        step: a step on them.

    Attributes:
        are_all: whether all that is measured is a sum over the elements of dense gradients, each computed by itself.
    """

    def __init__(self, step):
        self.variables, self.lists = [variable for _, variable in step.pairs], step.backend.lists
        self._sums, alike = [], OrderedDict()  # (name, places of gradients, what computes, whether it is squared)
        for place, variable in enumerate(self.variables):
            key = step.host.rule(variable), step.host.record(variable).dtype, step.backend.device(variable)
            alike.setdefault(key, OrderedDict()).setdefault(step.host.record(variable).shape, []).append(place)
        self.are_all = self._fit([grad for grad, _ in step.pairs]) and all(
            self._add(step, by_shape) for by_shape in alike.values())

    def _add(self, step, by_shape):
        """Adds the totals of variables with equal rules. Returns whether all that they measure is one."""
        each = []
        for places in by_shape.values():
            grad, variable = step.pairs[places[0]]
            view = VariableView.of_gradient(step, variable, grad).for_measure()
            each.append([(name, view) + _summed(is_total, value) for name, (is_total, value) in measured(view).items()])
        places = sorted(place for some in by_shape.values() for place in some)
        for alike in zip(*each):
            if any(value is None for _, _, value, _ in alike):
                return False
            name, _, _, squares = alike[0]
            programs = [view.program_of((value,)) for _, view, value, _ in alike]
            first = programs[0]
            if first.inputs != {GRAD} or first.outside or not first.is_elementwise():
                return False
            if any(program.key() != first.key() for program in programs):
                return False
            self._sums.append((name, places, OnLists(self.lists, first, [GRAD]), squares))
        return True

    def stand(self, pairs):
        """Returns whether the totals are those of a step with these (gradient, variable) pairs."""
        same = len(pairs) == len(self.variables) and all(
            variable is known for (_, variable), known in zip(pairs, self.variables))
        return same and self._fit([grad for grad, _ in pairs])

    def _fit(self, grads):
        return all(map(self.lists.surely_fits, grads, self.variables))

    def of(self, grads):
        """Returns `{name: native total}`, in float32."""
        totals = OrderedDict()
        for name, places, program, squares in self._sums:
            values = program.compute([], {}, [grads[place] for place in places])[program.results[0]]
            total = self.lists.total(values, squares)
            totals[name] = totals[name] + total if name in totals else total
        return totals


def _summed(is_total, value):
    """Returns (what is summed over all elements, or what it is the square of; whether it is). (None, False) if not."""
    if not is_total or value.op != "sum" or value.options:
        return None, False
    base = squared(value.args[0])
    return (value.args[0], False) if base is None else (base, True)
