"""NovoGrad: momentum of gradients that are normalized per variable."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, hyper, option, slot


class NovoGrad(Definition):
    """NovoGrad (Ginsburg et al. 2019, https://arxiv.org/abs/1905.11286, algorithm 1).

    v := beta_2 * v + (1 - beta_2) * sum(grad^2), one number per variable
    In the first update: v := sum(grad^2)
    step = grad / (sqrt(v) + epsilon) + weight_decay * var
    With grad_averaging, from the second update on: step := (1 - beta_1) * step
    m := beta_1 * m - learning_rate * step
    var := var + m
    With rate_in_velocity=False, as in the paper; the two differ once the rate changes:
    m := beta_1 * m + step
    var := var - learning_rate * m

    With amsgrad, v_hat := max(v_hat, v) replaces v in the root. Defaults are those of TensorFlow Addons.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | TensorFlow Addons           | the defaults                                                                |
    | the paper                   | rate_in_velocity=False, epsilon=1e-8                                        |

    Advice:
        The paper reports that NovoGrad is robust to the choice of the learning rate, works well with large batches, and
        needs half the slot memory of Adam, since v is one number per variable.

    Args:
        learning_rate: A float, tensor, callable or schedule. Default 0.001.
        beta_1: Decay of the momentum, 0 to 1. Default 0.9.
        beta_2: Decay of the second moment, 0 to 1. Default 0.999.
        epsilon: Added to the root. Default 1e-7.
        weight_decay: The share of the variable that is added to a step. Default 0.
        grad_averaging: True to make the momentum an average, as in Adam. Default False.
        amsgrad: True to divide by the largest second moment so far. Default False.
        rate_in_velocity: True if m sums -learning_rate * step, False if it sums steps. Default True.

    >>> import numpy
    >>> weights = numpy.zeros(2)
    >>> NovoGrad(0.1).bind(numpy).apply_gradients([(numpy.array([3.0, -4.0]), weights)])
    >>> weights.round(4)
    array([-0.06,  0.08])
    """

    family = "Adam"
    locality = "variable"
    learning_rate = hyper(1e-3, minimum=0)
    beta_1 = hyper(0.9, minimum=0, maximum=1)
    beta_2 = hyper(0.999, minimum=0, maximum=1)
    epsilon = hyper(1e-7, minimum=0)
    weight_decay = hyper(0.0, minimum=0)
    grad_averaging = option(False)
    amsgrad = option(False)
    rate_in_velocity = option(True)
    m = slot()
    v = slot(shape=())
    v_hat = slot(shape=(), when="amsgrad")

    def update(self, ops, grad, var, slots, hyper, t):
        square = ops.sum(grad * grad)
        v = ops.where(t > 1, hyper.beta_2 * slots.v + (1 - hyper.beta_2) * square, square)
        new = {"v": v}
        if self.amsgrad:
            v = new["v_hat"] = ops.maximum(slots.v_hat, v)
        step = grad / (ops.sqrt(v) + hyper.epsilon) + hyper.weight_decay * var
        if self.grad_averaging:
            step = ops.where(t > 1, 1 - hyper.beta_1, 1) * step
        inside, outside = (-hyper.learning_rate, -1) if self.rate_in_velocity else (1, hyper.learning_rate)
        new["m"] = hyper.beta_1 * slots.m + inside * step
        return outside * new["m"], new
