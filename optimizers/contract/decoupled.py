"""Decoupled weight decay (Loshchilov & Hutter 2019, arXiv:1711.05101), which AdamW, NadamW and SGDW add to a rule."""
from __future__ import absolute_import, division, print_function


class Decoupled(object):
    """Mixin that subtracts weight_decay * var in each update, times the learning rate if `decay_times_rate`.

    List it before the rule's class. The subclass declares the hyper `weight_decay` and the option `decay_times_rate`.
    """

    def update(self, ops, grad, var, slots, hyper, t):
        change, new = super(Decoupled, self).update(ops, grad, var, slots, hyper, t)  # type: ignore[misc]
        return change + self.share(hyper) * var, new

    def fast_forward(self, ops, var, slots, hyper, steps):
        share = self.share(hyper)
        decay = steps.decay(share) * var
        decayed = ops, var - decay, slots, hyper, steps.decayed(share)
        change, new = super(Decoupled, self).fast_forward(*decayed)  # type: ignore[misc]
        return change + decay, new

    def share(self, hyper):
        """Returns the share of the variable that one update takes off."""
        return hyper.learning_rate * hyper.weight_decay if self.decay_times_rate else hyper.weight_decay  # type: ignore[attr-defined]
