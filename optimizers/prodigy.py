"""Prodigy: Adam that estimates its own learning rate."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import VARIABLE, Definition, hyper, option, scalar, slot, total


class Prodigy(Definition):
    """Prodigy (Mishchenko & Defazio 2023, https://arxiv.org/abs/2306.06101, algorithm 4, as in the authors' code).

    start is the first value of the variable; d, the estimated distance to the solution, is d0 at first.
    rate = d * learning_rate
    With bias_correction: rate = d * learning_rate * sqrt(1 - beta_2^t) / (1 - beta_1^t)
    numerator := beta_3 * numerator + d / d0 * rate * sum(grad * (start - var))
    s := beta_3 * s + d / d0 * rate * grad
    With safeguard_warmup: s := beta_3 * s + d / d0 * d * grad
    m := beta_1 * m + (1 - beta_1) * d * grad
    v := beta_2 * v + (1 - beta_2) * d^2 * grad^2
    estimate = d_coef * numerator / sum(abs(s))
    d' = max(d, estimate) if d == d0 else d;  d_max := max(d_max, estimate)
    d := d_max
    With a growth_rate: d := min(d_max, growth_rate * d')
    var := var - rate * (m / (sqrt(v) + d * epsilon) + weight_decay * var)

    Both sums are over all variables. The last line has the new d beside epsilon, all others the old one. No stock API
    has it. Defaults are those of the authors' code. The scalar `growth` is d / d0.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | prodigyopt                  | the defaults; its use_bias_correction is bias_correction. Its               |
    |                             | decouple=False is an L2 penalty in the loss                                 |

    For a sparse gradient, "exact" and "rows" measure the rows present; the sum of abs(s) over the others is kept.
    "catch_up" is refused, because all rows together make d.

    Advice:
        Leave learning_rate at 1, or give it a schedule that starts from 1; the authors advise cosine decay
        (https://github.com/konstmish/prodigy). Set safeguard_warmup if the schedule warms up. If d stays too small,
        raise d_coef to 2 or 10. For diffusion models they advise safeguard_warmup, bias_correction and a weight decay
        of 0.01.

    Args:
        learning_rate: The factor of the estimated rate. Default 1.
        beta_1: Decay of the first moment, 0 to 1. Default 0.9.
        beta_2: Decay of the second moment, 0 to 1. Default 0.999.
        beta_3: Decay of the sums of the estimate, 0 to 1. Default None: the root of beta_2.
        epsilon: Added to the root, times d. Default 1e-8.
        weight_decay: Each update subtracts rate * weight_decay * var. Default 0.
        d0: The first d, more than 0. Default 1e-6.
        d_coef: The factor of the estimate. Default 1.
        growth_rate: What d grows by in one update at most, 1 or more. Default None: no bound.
        bias_correction: True to correct the rate as Adam does. Default False.
        safeguard_warmup: True to leave the rate out of s. Default False.

    >>> import numpy
    >>> weights = numpy.ones(1)
    >>> optimizer = Prodigy(d0=0.0625).bind(numpy)
    >>> for _ in range(20):  # of weights ** 2 / 2
    ...     optimizer.apply_gradients([(weights.copy(), weights)])
    >>> bool(abs(weights[0]) < 0.5)
    True
    """

    family = "Adam"
    learning_rate = hyper(1.0, minimum=0)
    beta_1 = hyper(0.9, minimum=0, maximum=1)
    beta_2 = hyper(0.999, minimum=0, maximum=1)
    beta_3 = option(None, minimum=0, maximum=1)
    epsilon = hyper(1e-8, minimum=0)
    weight_decay = hyper(0.0, minimum=0)
    d0 = option(1e-6, minimum=1e-30)
    d_coef = hyper(1.0, minimum=0)
    growth_rate = option(None, minimum=1)
    bias_correction = option(False)
    safeguard_warmup = option(False)
    m = slot()
    v = slot()
    s = slot()
    start = slot(init=VARIABLE)
    # The estimates are kept as multiples of d0, with which a scalar could not start.
    growth = scalar(1.0)
    growth_before = scalar(1.0)  # what `update` multiplies gradients by: `advance` runs before it
    greatest = scalar(1.0)
    numerator = scalar()
    denominator = scalar()

    def _kept(self, ops, hyper):
        """Returns beta_3."""
        return ops.sqrt(hyper.beta_2) if self.beta_3 is None else self.beta_3

    def _rate(self, ops, hyper, growth, t):
        rate = self.d0 * growth * hyper.learning_rate
        return rate * ops.sqrt(1 - hyper.beta_2**t) / (1 - hyper.beta_1**t) if self.bias_correction else rate

    def _weight(self, ops, hyper, growth, t):
        """Returns the weight of a gradient in s."""
        return growth * (self.d0 * growth if self.safeguard_warmup else self._rate(ops, hyper, growth, t))

    def measure(self, ops, grad, var, slots, hyper):
        t, growth = hyper.updates + 1, hyper.growth
        old = self._kept(ops, hyper) * slots.s
        added = ops.abs(old + self._weight(ops, hyper, growth, t) * grad) - ops.abs(old)
        progress = growth * self._rate(ops, hyper, growth, t) * ops.sum(grad * (slots.start - var))
        return {"progress": total(progress), "added": total(ops.sum(added))}

    def advance(self, ops, scalars, hyper, t):
        kept, growth = self._kept(ops, hyper), scalars.growth
        numerator = kept * scalars.numerator + hyper.progress
        denominator = kept * scalars.denominator + hyper.added
        moves = denominator > 0
        estimate = ops.where(moves, hyper.d_coef * numerator / self.d0 / ops.where(moves, denominator, 1), growth)
        new = ops.where(ops.equal(growth, 1), ops.maximum(growth, estimate), growth)
        greatest = ops.maximum(scalars.greatest, estimate)
        new = greatest if self.growth_rate is None else ops.minimum(greatest, new * self.growth_rate)
        sums = {"numerator": numerator, "denominator": denominator}
        return dict(sums, greatest=greatest, growth=new, growth_before=growth)

    def update(self, ops, grad, var, slots, hyper, t):
        growth = hyper.growth_before
        scaled, rate = self.d0 * growth * grad, self._rate(ops, hyper, growth, t)
        m = hyper.beta_1 * slots.m + (1 - hyper.beta_1) * scaled
        v = hyper.beta_2 * slots.v + (1 - hyper.beta_2) * scaled * scaled
        s = self._kept(ops, hyper) * slots.s + self._weight(ops, hyper, growth, t) * grad
        step = m / (ops.sqrt(v) + self.d0 * hyper.growth * hyper.epsilon)
        return rate * (step + hyper.weight_decay * var), {"m": m, "v": v, "s": s, "start": slots.start}
