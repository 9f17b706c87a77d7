"""AdEMAMix: Adam with a second, much slower average of gradients."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, hyper, option, slot


class AdEMAMix(Definition):
    """AdEMAMix (Pagliardini et al. 2024, https://arxiv.org/abs/2409.03137, algorithm 1).

    m := beta_1 * m + (1 - beta_1) * grad;  m_hat = m / (1 - beta_1^t)
    v := beta_2 * v + (1 - beta_2) * grad^2;  v_hat = v / (1 - beta_2^t)
    slow := beta_3(t) * slow + (1 - beta_3(t)) * grad
    step = (m_hat + alpha(t) * slow) / (sqrt(v_hat) + epsilon)
    var := var - learning_rate * (step + weight_decay * var)

    The slow average has no bias correction. Its weight alpha(t) and its decay beta_3(t) grow during the warm-ups:
    alpha(t) = alpha * min(1, t / alpha_warmup);  share = min(1, t / beta_3_warmup)
    log(beta_3(t)) = 1 / ((1 - share) / log(beta_1) + share / log(beta_3))

    No stock API has it. Defaults are those of the authors' code, which adds 1e-8 to the betas in the logarithms.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | the authors' code           | the defaults; its beta3_warmup is beta_3_warmup                             |

    Advice:
        The authors' example has alpha=8, a weight decay of 0.1, and both warm-ups as long as the whole training
        (https://github.com/apple/ml-ademamix). The default beta_3 averages over 10,000 updates. For shorter training
        lower it, for example to 0.999.

    Args:
        learning_rate: A float, tensor, callable or schedule. Default 0.001.
        beta_1: Decay of the fast average, 0 to 1. Default 0.9.
        beta_2: Decay of the second moment, 0 to 1. Default 0.999.
        beta_3: Decay of the slow average, 0 to 1. Default 0.9999.
        alpha: Weight of the slow average. Default 2.
        epsilon: Added to the root. Default 1e-8.
        weight_decay: Each update subtracts learning_rate * weight_decay * var. Default 0.
        alpha_warmup: Number of updates over which the weight grows linearly to alpha. Default 0.
        beta_3_warmup: Number of updates over which the slow decay grows from beta_1 to beta_3. Default 0.

    >>> import numpy
    >>> weights = numpy.zeros(1)
    >>> optimizer = AdEMAMix(0.1, beta_3=0.75, alpha=4.0).bind(numpy)
    >>> optimizer.apply_gradients([(numpy.array([3.0]), weights)])
    >>> weights.round(4)  # -0.1 * (3 + 4 * 0.75) / 3
    array([-0.2])
    """

    family = "Adam"
    learning_rate = hyper(1e-3, minimum=0)
    beta_1 = hyper(0.9, minimum=0, maximum=1)
    beta_2 = hyper(0.999, minimum=0, maximum=1)
    beta_3 = hyper(0.9999, minimum=0, maximum=1)
    alpha = hyper(2.0, minimum=0)
    epsilon = hyper(1e-8, minimum=0)
    weight_decay = hyper(0.0, minimum=0)
    alpha_warmup = option(0, minimum=0)
    beta_3_warmup = option(0, minimum=0)
    m = slot()
    v = slot()
    slow = slot()

    def _weight(self, ops, hyper, t):
        """Returns alpha(t)."""
        return hyper.alpha * ops.minimum(1, t / self.alpha_warmup) if self.alpha_warmup else hyper.alpha

    def _pace(self, ops, hyper, t):
        """Returns 1 - beta_3(t), without the loss of digits that the subtraction has near 1."""
        if not self.beta_3_warmup:
            return 1 - hyper.beta_3
        share = ops.minimum(1, t / self.beta_3_warmup)
        time_1, time_3 = (-1 / ops.log(ops.clip(beta, 1e-30, 1 - 1e-7)) for beta in (hyper.beta_1, hyper.beta_3))
        half = ops.tanh(0.5 / ((1 - share) * time_1 + share * time_3))
        return ops.where(share < 1, 2 * half / (1 + half), 1 - hyper.beta_3)

    def update(self, ops, grad, var, slots, hyper, t):
        m = hyper.beta_1 * slots.m + (1 - hyper.beta_1) * grad
        v = hyper.beta_2 * slots.v + (1 - hyper.beta_2) * grad * grad
        slow = slots.slow + self._pace(ops, hyper, t) * (grad - slots.slow)
        direction = m / (1 - hyper.beta_1**t) + self._weight(ops, hyper, t) * slow
        step = direction / (ops.sqrt(v / (1 - hyper.beta_2**t)) + hyper.epsilon)
        return hyper.learning_rate * (step + hyper.weight_decay * var), {"m": m, "v": v, "slow": slow}

    def fast_forward(self, ops, var, slots, hyper, steps):
        # No form for the step: slow fades more slowly than the root, so their quotient grows until epsilon stops it.
        left_slow = 1 - steps.decay(self._pace(ops, hyper, hyper.updates + 1))
        new = {"m": slots.m * steps.product(hyper.beta_1), "v": slots.v * steps.product(hyper.beta_2)}
        new["slow"] = slots.slow * left_slow
        return steps.decay(hyper.learning_rate * hyper.weight_decay) * var, new
