"""Finds the slot of a rule that is an average of the variable."""
from __future__ import absolute_import, division, print_function

import numpy as np

from everstep.compat.port.algebra import evaluate, leaf_names, ops, substitute, walk
from everstep.compat.rules.operations import REDUCTIONS

VALUE, STEPS = 1.7, (1, 2, 10, 1000)


def average_of(rule):
    """Returns the name of the slot that is an average of the variable; None if none is, or several."""
    names = [name for name, slot in rule.slots.items() if slot.start == "VARIABLE" and _is_average(rule, name)]
    return names[0] if len(names) == 1 else None


def _is_average(rule, name):
    """Returns whether a slot that the rest of the rule never reads stays at the variable's value if that stays."""
    own = "slots." + name
    forms = [(rule.var, rule.news)] + list(rule.ranks.values())
    for var, news in forms:
        others = [var] + [new for slot, new in news.items() if slot != name]
        if own in leaf_names(*others):
            return False
        averaged = substitute(news[name], {var: ops.leaf("var")})
        leaves = leaf_names(averaged)
        if "grad" in leaves or not leaves.issuperset(["var", own]):
            return False
        if any(each.op in REDUCTIONS for each in walk([averaged])):
            return False
        for t in STEPS:
            values = {each: rule.hypers.get(each[len("hyper."):]) for each in leaves}
            values.update({own: VALUE, "var": VALUE, "t": t})
            if None in values.values():
                return False
            with np.errstate(all="ignore"):
                if abs(evaluate(averaged, values) - VALUE) > 1e-6:
                    return False
    return True
