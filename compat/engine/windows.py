"""Finds what opens and closes: definitions that do something at some steps only, by a count of steps.

Workers that do not wait for one another see the same count twice, or miss one. Then a window of accumulation takes a
gradient twice, and lookahead leaves a synchronization out.
"""
from __future__ import absolute_import, division, print_function

from everstep.compat.engine.rehearsal import Rehearsal
from everstep.compat.engine.step import skips


def has_windows(host, variables):
    """Returns whether a definition does something at some steps only. `host`: see compat/engine/step.py."""
    return skips(host.definition) or any(_tests_period(*Rehearsal(host).run(each, False)) for each in variables)


def _tests_period(view, traced):
    """Returns whether an update depends on whether a count is a multiple of a period. A schedule's periods are none."""
    seen, waiting = set(view.scope.values.values()), [traced.change] + list(traced.slots.values())
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        if value.op == "equal" and value.step_wide and value.args[0].op == "remainder":
            return True
        waiting.extend(value.args)
    return False
