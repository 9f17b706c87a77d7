"""The shared part of wrappers that average the values of a variable."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract.definition import assign


class Averages(object):
    """Mixin for a Wrapper that moves its slot `average` towards each new value of the variable.

    average := average + share * (var - average)

    List it before Wrapper. The subclass declares the slot `average` and defines `share`.
    """

    zero_grad_is_noop = False  # the average keeps moving while the variable stands still

    def share(self, ops, hyper, t):
        """Returns the weight of the new value in the average, 0 to 1: a single number."""
        raise NotImplementedError

    def update(self, ops, grad, var, slots, hyper, t):
        change, new = super(Averages, self).update(ops, grad, var, slots, hyper, t)  # type: ignore[misc]
        value = change.value if isinstance(change, assign) else var - change
        new["average"] = slots.average + self.share(ops, hyper, t) * (value - slots.average)
        return change, new

    def evaluation_value(self, ops, var, slots, hyper):
        return slots.average
