"""What averages of a variable's values have in common."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract.definition import assign


class Averages(object):
    """Stands before Wrapper; the definition declares the slot `average` and says what share of it a new value gets."""

    zero_grad_is_noop = False  # an average goes on moving to a variable that does not

    def share(self, ops, hyper, t):
        raise NotImplementedError

    def update(self, ops, grad, var, slots, hyper, t):
        change, new = super(Averages, self).update(ops, grad, var, slots, hyper, t)  # type: ignore[misc]
        value = change.value if isinstance(change, assign) else var - change
        new["average"] = slots.average + self.share(ops, hyper, t) * (value - slots.average)
        return change, new

    def evaluation_value(self, ops, var, slots, hyper):
        return slots.average
