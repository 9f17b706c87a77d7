"""AdaBound: Adam whose learning rates close in on the rate of SGD."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, hyper, option, slot


class AdaBound(Definition):
    """AdaBound, and with amsgrad AMSBound (Luo et al. 2019, https://arxiv.org/abs/1902.09843, algorithms 2 and 3).

    m := beta_1 * m + (1 - beta_1) * grad
    v := beta_2 * v + (1 - beta_2) * grad^2
    rate = learning_rate * sqrt(1 - beta_2^t) / (1 - beta_1^t) / (sqrt(v) + epsilon)
    low, high = final_rate * (1 - 1 / (gamma * t + 1)), final_rate * (1 + 1 / (gamma * t))
    var := var - clip(rate, low, high) * m

    With amsgrad, v_hat := max(v_hat, v) replaces v in the rate. The bounds, the defaults and the bias corrections are
    those of the authors' code; the paper divides the clipped rate by sqrt(t). That code scales the final rate by the
    schedule of the learning rate; here, give final_rate its own schedule.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | the authors' code           | the defaults; its final_lr is final_rate, its amsbound is amsgrad           |

    Advice:
        Training starts like Adam and ends like SGD with a rate of final_rate. The authors find final_rate=0.1 good in
        common cases, and the results not very sensitive to final_rate and gamma (https://github.com/Luolc/AdaBound).

    Args:
        learning_rate: A float, tensor, callable or schedule. Default 0.001.
        beta_1: Decay of the first moment, 0 to 1. Default 0.9.
        beta_2: Decay of the second moment, 0 to 1. Default 0.999.
        epsilon: Added to the root. Default 1e-8.
        final_rate: The learning rate to which both bounds converge. Default 0.1.
        gamma: How fast they converge, more than 0. Default 0.001.
        amsgrad: True for AMSBound. Default False.

    >>> import numpy
    >>> weights = numpy.zeros(1)
    >>> AdaBound(0.1, gamma=1.0).bind(numpy).apply_gradients([(numpy.array([0.1]), weights)])
    >>> weights.round(4)  # Adam's rate of 10 is cut to 0.1 * 2
    array([-0.002])
    """

    family = "Adam"
    learning_rate = hyper(1e-3, minimum=0)
    beta_1 = hyper(0.9, minimum=0, maximum=1)
    beta_2 = hyper(0.999, minimum=0, maximum=1)
    epsilon = hyper(1e-8, minimum=0)
    final_rate = hyper(0.1, minimum=0)
    gamma = hyper(1e-3, minimum=1e-30)
    amsgrad = option(False)
    m = slot()
    v = slot()
    v_hat = slot(when="amsgrad")

    def update(self, ops, grad, var, slots, hyper, t):
        m = hyper.beta_1 * slots.m + (1 - hyper.beta_1) * grad
        v = hyper.beta_2 * slots.v + (1 - hyper.beta_2) * grad * grad
        new = {"m": m, "v": v}
        if self.amsgrad:
            v = new["v_hat"] = ops.maximum(slots.v_hat, v)
        rate = hyper.learning_rate * ops.sqrt(1 - hyper.beta_2**t) / (1 - hyper.beta_1**t)
        low = hyper.final_rate * (1 - 1 / (hyper.gamma * t + 1))
        high = hyper.final_rate * (1 + 1 / (hyper.gamma * t))
        return ops.clip(rate / (ops.sqrt(v) + hyper.epsilon), low, high) * m, new

    def fast_forward(self, ops, var, slots, hyper, steps):
        return 0, {"m": slots.m * steps.product(hyper.beta_1), "v": slots.v * steps.product(hyper.beta_2)}
