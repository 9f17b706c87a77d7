"""Adan: Adam with Nesterov momentum from differences of gradients."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, hyper, option, slot


class Adan(Definition):
    """Adan (Xie et al. 2022, https://arxiv.org/abs/2208.06677, algorithm 1).

    difference = grad - previous_grad, in the first update 0;  previous_grad := grad
    m := beta_1 * m + (1 - beta_1) * grad;  m_hat = m / (1 - beta_1^t)
    d := beta_2 * d + (1 - beta_2) * difference;  d_hat = d / (1 - beta_2^t)
    v := beta_3 * v + (1 - beta_3) * (grad + beta_2 * difference)^2;  v_hat = v / (1 - beta_3^t)
    step = learning_rate * (m_hat + beta_2 * d_hat) / (sqrt(v_hat) + epsilon)
    var := (var - step) / (1 + learning_rate * weight_decay)
    With proximal=False, the decay is that of AdamW:
    var := var - learning_rate * weight_decay * var - step

    No stock API has it. The paper's betas are 1 minus these and it has no bias correction. Defaults are those of the
    authors' code. A variable whose first gradient comes later than the first update has that gradient as its first
    difference.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | the authors' code           | the defaults; its no_prox=True is proximal=False                            |

    Advice:
        The authors use learning rates 5 to 10 times those of Adam, and a weight decay of 0.02
        (https://github.com/sail-sg/Adan). They advise to tune beta_3 first, then beta_1, and leave beta_2.

    Args:
        learning_rate: A float, tensor, callable or schedule. Default 0.001.
        beta_1: Decay of the average of gradients, 0 to 1. Default 0.98.
        beta_2: Decay of the average of differences, 0 to 1. Default 0.92.
        beta_3: Decay of the second moment, 0 to 1. Default 0.99.
        epsilon: Added to the root. Default 1e-8.
        weight_decay: The share of the variable that the learning rate multiplies. Default 0.
        proximal: True to divide by 1 + learning_rate * weight_decay, False to decay as AdamW does. Default True.

    >>> import numpy
    >>> weights = numpy.zeros(1)
    >>> optimizer = Adan(0.1, beta_1=0.5, beta_2=0.5, beta_3=0.5).bind(numpy)
    >>> for grad in (1.0, 2.0):
    ...     optimizer.apply_gradients([(numpy.array([grad]), weights)])
    >>> weights.round(4)  # -0.1, then -0.1 * (5/3 + 1/3) / sqrt(4.5)
    array([-0.1943])
    """

    family = "Adam"
    learning_rate = hyper(1e-3, minimum=0)
    beta_1 = hyper(0.98, minimum=0, maximum=1)
    beta_2 = hyper(0.92, minimum=0, maximum=1)
    beta_3 = hyper(0.99, minimum=0, maximum=1)
    epsilon = hyper(1e-8, minimum=0)
    weight_decay = hyper(0.0, minimum=0)
    proximal = option(True)
    m = slot()
    d = slot()
    v = slot()
    previous_grad = slot()

    def _share(self, hyper):
        """Returns the share of the variable that an update's decay takes off."""
        share = hyper.learning_rate * hyper.weight_decay
        return share / (1 + share) if self.proximal else share

    def update(self, ops, grad, var, slots, hyper, t):
        difference = ops.where(t > 1, grad - slots.previous_grad, 0)
        ahead = grad + hyper.beta_2 * difference
        m = hyper.beta_1 * slots.m + (1 - hyper.beta_1) * grad
        d = hyper.beta_2 * slots.d + (1 - hyper.beta_2) * difference
        v = hyper.beta_3 * slots.v + (1 - hyper.beta_3) * ahead * ahead
        direction = m / (1 - hyper.beta_1**t) + hyper.beta_2 * d / (1 - hyper.beta_2**t)
        step = hyper.learning_rate * direction / (ops.sqrt(v / (1 - hyper.beta_3**t)) + hyper.epsilon)
        share, new = self._share(hyper), {"m": m, "d": d, "v": v, "previous_grad": grad}
        return share * var + ((1 - share) * step if self.proximal else step), new

    max_replay_steps = 0

    def fast_forward(self, ops, var, slots, hyper, steps):
        t, left_1, left_2, left_3 = (hyper.updates + 1,) + tuple(
            steps.product(beta) for beta in (hyper.beta_1, hyper.beta_2, hyper.beta_3)
        )
        # The first missed difference is -previous_grad, the others are 0. d and v as if it had come before them:
        last = slots.previous_grad
        d = slots.d - (1 - hyper.beta_2) / ops.maximum(hyper.beta_2, 1e-30) * last
        v = slots.v + (1 - hyper.beta_3) / ops.maximum(hyper.beta_3, 1e-30) * (hyper.beta_2 * last) ** 2
        share, correction = self._share(hyper), ops.sqrt(1 - hyper.beta_3**t)
        sums = steps.decayed(share, self.proximal)

        def total(left, beta, factor):
            weight = left * factor * hyper.learning_rate * correction / (1 - beta**t)
            fades = beta, ops.sqrt(hyper.beta_3)
            return sums.quotient(weight, ops.sqrt(left_3), ops.sqrt(v), hyper.epsilon, *fades, scale=correction)

        change = slots.m * total(left_1, hyper.beta_1, 1) + d * total(left_2, hyper.beta_2, hyper.beta_2)
        missed = steps > 0
        new = {"d": ops.where(missed, d * left_2, slots.d), "v": ops.where(missed, v * left_3, slots.v)}
        new.update(m=slots.m * left_1, previous_grad=ops.where(missed, 0, last))
        return steps.decay(share) * var + change, new
