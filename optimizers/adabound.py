"""AdaBound: Adam whose rates close in on that of SGD."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, hyper, option, slot


class AdaBound(Definition):
    """AdaBound, and with amsgrad AMSBound (Luo et al. 2019, arXiv:1902.09843, algorithms 2 and 3).

    m := beta_1 * m + (1 - beta_1) * grad
    v := beta_2 * v + (1 - beta_2) * grad^2
    rate = learning_rate * sqrt(1 - beta_2^t) / (1 - beta_1^t) / (sqrt(v) + epsilon)
    low, high = final_rate * (1 - 1 / (gamma * t + 1)), final_rate * (1 + 1 / (gamma * t))
    var := var - clip(rate, low, high) * m

    With amsgrad v is replaced in the rate by v_hat := max(v_hat, v). The bounds are those of the authors' code, and so
    are the defaults and the corrections of bias; the paper divides the clipped rate by sqrt(t). Where that code lets
    the final rate follow a schedule of the rate, here the final rate takes a schedule of its own.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | the authors' code           | the defaults (its final_lr is final_rate, its amsbound amsgrad)             |

    Args:
        learning_rate: float, tensor, callable or schedule; 0.001.
        beta_1: decay of the first moment, 0 to 1; 0.9.
        beta_2: decay of the second moment, 0 to 1; 0.999.
        epsilon: added to the root; 1e-8.
        final_rate: the rate that the bounds close in on; 0.1.
        gamma: how fast they do, more than 0; 0.001.
        amsgrad: False.

    >>> import numpy
    >>> weights = numpy.zeros(1)
    >>> AdaBound(0.1, gamma=1.0).bind(numpy).apply_gradients([(numpy.array([0.1]), weights)])
    >>> weights.round(4)  # the rate of 0.1 / 0.01, which is Adam's, is cut to 0.1 * 2
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
        return 0, {"m": slots.m * hyper.beta_1**steps, "v": slots.v * hyper.beta_2**steps}
