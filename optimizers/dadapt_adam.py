"""D-Adaptation Adam: Adam that estimates its own learning rate."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, hyper, option, scalar, slot, total


class DAdaptAdam(Definition):
    """D-Adaptation for Adam (Defazio & Mishchenko 2023, https://arxiv.org/abs/2301.07733, algorithm 5).

    d, the estimated distance to the solution, is d0 at first.
    rate = d * learning_rate
    With bias_correction: rate = d * learning_rate * sqrt(1 - beta_2^t) / (1 - beta_1^t)
    product = rate * sum(grad * s / (sqrt(v) + epsilon))
    numerator := sqrt(beta_2) * numerator + (1 - sqrt(beta_2)) * product
    m := beta_1 * m + (1 - beta_1) * rate * grad
    v := beta_2 * v + (1 - beta_2) * grad^2
    s := sqrt(beta_2) * s + (1 - sqrt(beta_2)) * rate * grad
    estimate = numerator / ((1 - sqrt(beta_2)) * sum(abs(s)))
    var := var - m / (sqrt(v) + epsilon) - rate * weight_decay * var
    d := max(d, estimate)
    With a growth_rate: d := max(d, min(estimate, growth_rate * d))

    Both sums are over all variables. All lines have the old d, product has the old v. No stock API has it. Defaults are
    those of the authors' code. Here s is kept as a multiple of d0, numerator as one of d0^2, and the scalar `growth` is
    d / d0.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | dadaptation                 | the defaults with its decouple=True; its use_bias_correction is             |
    |                             | bias_correction. decouple=False is an L2 penalty in the loss                |

    For a sparse gradient, "exact" and "rows" measure the rows present; the sum of abs(s) over the others is kept.
    "catch_up" is refused, because all rows together make d.

    Advice:
        Leave learning_rate at 1, or give it a schedule that starts from 1. If training diverges at the start, set
        growth_rate=1.02, which warms the rate up, as the authors advise
        (https://github.com/facebookresearch/dadaptation). Prodigy is their newer rule, whose rate grows sooner.

    Args:
        learning_rate: The factor of the estimated rate. Default 1.
        beta_1: Decay of the first moment, 0 to 1. Default 0.9.
        beta_2: Decay of the second moment, 0 to less than 1. Default 0.999.
        epsilon: Added to the root. Default 1e-8.
        weight_decay: Each update subtracts rate * weight_decay * var. Default 0.
        d0: The first d, more than 0. Default 1e-6.
        growth_rate: What d grows by in one update at most, 1 or more. Default None: no bound.
        bias_correction: True to correct the rate as Adam does. Default False.

    >>> import numpy
    >>> weights = numpy.ones(1)
    >>> optimizer = DAdaptAdam(d0=0.0625).bind(numpy)
    >>> for _ in range(40):  # of weights ** 2 / 2
    ...     optimizer.apply_gradients([(weights.copy(), weights)])
    >>> bool(abs(weights[0]) < 0.5)
    True
    """

    family = "Adam"
    learning_rate = hyper(1.0, minimum=0)
    beta_1 = hyper(0.9, minimum=0, maximum=1)
    beta_2 = hyper(0.999, minimum=0, maximum=1 - 1e-7)
    epsilon = hyper(1e-8, minimum=0)
    weight_decay = hyper(0.0, minimum=0)
    d0 = option(1e-6, minimum=1e-30)
    growth_rate = option(None, minimum=1)
    bias_correction = option(False)
    m = slot()
    v = slot()
    s = slot()
    # The estimates are kept as multiples of d0, with which a scalar could not start.
    growth = scalar(1.0)
    growth_before = scalar(1.0)  # `advance` runs before `update`
    numerator = scalar()
    denominator = scalar()

    def _rate(self, ops, hyper, growth, t):
        """Returns the rate, as a multiple of d0."""
        rate = growth * hyper.learning_rate
        return rate * ops.sqrt(1 - hyper.beta_2**t) / (1 - hyper.beta_1**t) if self.bias_correction else rate

    def _shares(self, ops, hyper):
        """Returns sqrt(beta_2) and 1 - sqrt(beta_2), whose difference would have few digits in float32."""
        kept = ops.sqrt(hyper.beta_2)
        return kept, (1 - hyper.beta_2) / (1 + kept)

    def _sum(self, ops, grad, slots, hyper, rate):
        """Returns the s of before, decayed, and its new value."""
        kept, added = self._shares(ops, hyper)
        old = kept * slots.s
        return old, old + added * rate * grad

    def measure(self, ops, grad, var, slots, hyper):
        rate = self._rate(ops, hyper, hyper.growth, hyper.updates + 1)
        old, new = self._sum(ops, grad, slots, hyper, rate)
        product = rate * ops.sum(grad * slots.s / (ops.sqrt(slots.v) + hyper.epsilon))
        return {"product": total(product), "added": total(ops.sum(ops.abs(new) - ops.abs(old)))}

    def advance(self, ops, scalars, hyper, t):
        (kept, added), growth = self._shares(ops, hyper), scalars.growth
        numerator = kept * scalars.numerator + added * hyper.product
        denominator = kept * scalars.denominator + hyper.added
        moves = ops.logical_and(denominator > 0, hyper.learning_rate > 0)
        estimate = ops.where(moves, numerator / added / ops.where(moves, denominator, 1), growth)
        if self.growth_rate is not None:
            estimate = ops.minimum(estimate, growth * self.growth_rate)
        sums = {"numerator": numerator, "denominator": denominator}
        return dict(sums, growth=ops.maximum(growth, estimate), growth_before=growth)

    def update(self, ops, grad, var, slots, hyper, t):
        rate = self._rate(ops, hyper, hyper.growth_before, t)
        m = hyper.beta_1 * slots.m + (1 - hyper.beta_1) * self.d0 * rate * grad
        v = hyper.beta_2 * slots.v + (1 - hyper.beta_2) * grad * grad
        s = self._sum(ops, grad, slots, hyper, rate)[1]
        change = m / (ops.sqrt(v) + hyper.epsilon) + self.d0 * rate * hyper.weight_decay * var
        return change, {"m": m, "v": v, "s": s}
