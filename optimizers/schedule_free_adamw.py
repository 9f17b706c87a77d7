"""Schedule-Free AdamW: an average of the weights in place of a learning-rate schedule."""
from __future__ import absolute_import, division, print_function

import math

from everstep.optimizers.contract import VARIABLE, Definition, hyper, option, scalar, slot, surely_zero

_ADDENDS = 2**13  # a float32 sum of so many weights is right to about one part in ten thousand
_TURN = 2**24  # a float32 holds every integer up to there


class ScheduleFreeAdamW(Definition):
    """Schedule-Free AdamW (Defazio et al. 2024, https://arxiv.org/abs/2405.15682, algorithm 1).

    It keeps three sequences that start at the same weights. z takes the steps. x is the average of z, with which a
    model is evaluated and exported. y lies between them, and gradients are taken there. The variable is y:

    v := beta_2 * v + (1 - beta_2) * grad^2
    rate = learning_rate * min(1, t / warmup_steps)
    step = grad / (sqrt(v / (1 - beta_2^t)) + epsilon) + weight_decay * y
    z := z - rate * step
    weight = t^averaging_power * max(all rates up to now)^rate_power;  share = weight / sum(all weights up to now)
    x := (1 - share) * x + share * z;  y := (1 - beta_1) * z + beta_1 * x
    With correction_in_rate, as in the paper:
    rate = learning_rate * min(1, t / warmup_steps) * sqrt(1 - beta_2^t)
    step = grad / (sqrt(v) + epsilon) + weight_decay * y

    x is not stored: x = (variable - (1 - beta_1) * z) / beta_1, where z is a slot.

    Defaults are those of the authors' code.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | Keras 3                     | rate_power=0.0; its weight_decay= decays y only; stock ScheduleFreeAdamW    |
    |                             | takes its average from a slot that it has changed already, except on JAX    |
    | the authors' code           | the defaults (its r is averaging_power, its weight_lr_power rate_power);    |
    |                             | AdamWScheduleFreePaper: correction_in_rate=True                             |

    Advice:
        Evaluate and export with the averaged weights: `with everstep.averaged(optimizer, variables):`. Run some
        training batches inside it first if layers keep running means, such as batch normalization. Use no decaying
        schedule, but do warm up with warmup_steps. The authors start from rates 1 to 10 times those of AdamW with a
        schedule, and raise beta_1 to 0.95 or 0.98 for very long runs
        (https://github.com/facebookresearch/schedule_free).

    Args:
        learning_rate: A float, tensor, callable or schedule. Default 0.0025.
        beta_1: The share of x in y, more than 0 and up to 1. Default 0.9.
        beta_2: Decay of the second moment, 0 to 1. Default 0.999.
        epsilon: Added to the root. Default 1e-8.
        weight_decay: Each update subtracts rate * weight_decay * y from z. Default 0.
        warmup_steps: Number of updates over which the rate grows linearly to learning_rate. Default 0.
        averaging_power: Exponent of t in the weights of the average. Default 0.
        rate_power: Exponent of the greatest rate in the weights of the average. Default 2.
        correction_in_rate: True to apply the bias correction to the rate. Default False.

    >>> import numpy, everstep
    >>> weights = numpy.zeros(1)
    >>> optimizer = ScheduleFreeAdamW(0.1, beta_1=0.5).bind(numpy)
    >>> for _ in range(2):
    ...     optimizer.apply_gradients([(numpy.array([3.0]), weights)])
    >>> print(optimizer.get_slot(weights, "z").round(4))
    [-0.2]
    >>> with everstep.averaged(optimizer, [weights]):  # the mean of -0.1 and -0.2
    ...     print(weights.round(4))
    [-0.15]
    """

    family = "Adam"
    learning_rate = hyper(0.0025, minimum=0)
    beta_1 = hyper(0.9, minimum=1e-30, maximum=1)
    beta_2 = hyper(0.999, minimum=0, maximum=1)
    epsilon = hyper(1e-8, minimum=0)
    weight_decay = hyper(0.0, minimum=0)
    warmup_steps = option(0, minimum=0)
    averaging_power = hyper(0.0)
    rate_power = hyper(2.0)
    correction_in_rate = option(False)
    z = slot(init=VARIABLE)
    v = slot()
    greatest_rate = scalar()
    weights_sum = scalar()

    def rate(self, ops, hyper, t):
        rate = hyper.learning_rate * ops.minimum(1, t / self.warmup_steps) if self.warmup_steps else hyper.learning_rate
        return rate * ops.sqrt(1 - hyper.beta_2**t) if self.correction_in_rate else rate

    @staticmethod
    def weight(hyper, greatest, t):
        return t**hyper.averaging_power * greatest**hyper.rate_power

    def _share(self, ops, hyper, t):
        """Returns the weight of z in the average."""
        weight = self.weight(hyper, hyper.greatest_rate, t)
        return ops.where(weight > 0, weight / ops.where(weight > 0, hyper.weights_sum, 1), 0)

    def advance(self, ops, scalars, hyper, t):
        greatest, total = ops.maximum(scalars.greatest_rate, self.rate(ops, hyper, t)), scalars.weights_sum
        weight = self.weight(hyper, greatest, t)
        # A float32 sum of n weights rounds each of them to a multiple of n / 2^24 of it, and stands still from 2^24 on.
        # So every `due`-th update adds `due` weights, a power of 2.
        excess = ops.clip(total / ops.maximum(weight, 1e-30) / _ADDENDS, 1, _TURN)
        due = ops.floor(2 ** ops.floor(ops.log(excess) / math.log(2)) + 0.5)
        added = ops.where(ops.equal(t % _TURN % due, 0), due * weight, 0)
        return {"greatest_rate": greatest, "weights_sum": total + added}

    def update(self, ops, grad, var, slots, hyper, t):
        v = hyper.beta_2 * slots.v + (1 - hyper.beta_2) * grad * grad
        square = v if self.correction_in_rate else v / (1 - hyper.beta_2**t)
        step = self.rate(ops, hyper, t) * (grad / (ops.sqrt(square) + hyper.epsilon) + hyper.weight_decay * var)
        z, share = slots.z - step, self._share(ops, hyper, t)
        # The formulas above with x = (y - (1 - beta_1) * z) / beta_1 inserted, which cancels the division by beta_1.
        return share * (var - z) + (1 - share) * (1 - hyper.beta_1) * step, {"z": z, "v": v}

    @property
    def max_replay_steps(self):
        return 0 if surely_zero(self.weight_decay) else 200

    def fast_forward(self, ops, var, slots, hyper, steps):
        moved = steps.decay(self._share(ops, hyper, hyper.updates + 1))  # without decay only the average moves, to z
        return moved * (var - slots.z), {"v": slots.v * steps.product(hyper.beta_2)}

    def evaluation_value(self, ops, var, slots, hyper):
        return (var - (1 - hyper.beta_1) * slots.z) / hyper.beta_1
