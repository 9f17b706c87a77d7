"""QHAdam: Adam that mixes its moments with the current gradient."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, hyper, slot


class QHAdam(Definition):
    """QHAdam (Ma & Yarats 2019, https://arxiv.org/abs/1810.06801).

    m := beta_1 * m + (1 - beta_1) * grad;  m_hat = m / (1 - beta_1^t)
    v := beta_2 * v + (1 - beta_2) * grad^2;  v_hat = v / (1 - beta_2^t)
    direction = nu_1 * m_hat + (1 - nu_1) * grad
    root = sqrt(nu_2 * v_hat + (1 - nu_2) * grad^2)
    var := var - learning_rate * direction / (root + epsilon)

    Defaults are those of the authors' code. With them it is Adam. That code stores m_hat and v_hat in its slots.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | the authors' code           | the defaults                                                                |

    Advice:
        In place of Adam with beta_1=0.9, the authors recommend nu_1=0.7 and beta_1=0.995, with nu_2=1
        (https://facebookresearch.github.io/qhoptim).

    Args:
        learning_rate: A float, tensor, callable or schedule. Default 0.001.
        beta_1: Decay of the first moment, 0 to 1. Default 0.9.
        beta_2: Decay of the second moment, 0 to 1. Default 0.999.
        nu_1: Weight of the first moment in the direction. Default 1.
        nu_2: Weight of the second moment under the root, 0 to 1. Default 1.
        epsilon: Added to the root. Default 1e-8.

    >>> import numpy
    >>> weights = numpy.zeros(1)
    >>> QHAdam(0.1, nu_1=0.7).bind(numpy).apply_gradients([(numpy.array([3.0]), weights)])
    >>> weights.round(4)
    array([-0.1])
    """

    family = "Adam"
    learning_rate = hyper(1e-3, minimum=0)
    beta_1 = hyper(0.9, minimum=0, maximum=1)
    beta_2 = hyper(0.999, minimum=0, maximum=1)
    nu_1 = hyper(1.0)
    nu_2 = hyper(1.0, minimum=0, maximum=1)
    epsilon = hyper(1e-8, minimum=0)
    m = slot()
    v = slot()

    def update(self, ops, grad, var, slots, hyper, t):
        m = hyper.beta_1 * slots.m + (1 - hyper.beta_1) * grad
        v = hyper.beta_2 * slots.v + (1 - hyper.beta_2) * grad * grad
        direction = hyper.nu_1 / (1 - hyper.beta_1**t) * m + (1 - hyper.nu_1) * grad
        square = hyper.nu_2 / (1 - hyper.beta_2**t) * v + (1 - hyper.nu_2) * grad * grad
        return hyper.learning_rate * direction / (ops.sqrt(square) + hyper.epsilon), {"m": m, "v": v}

    max_replay_steps = 0

    def fast_forward(self, ops, var, slots, hyper, steps):
        t, left_1, left_2 = hyper.updates + 1, steps.product(hyper.beta_1), steps.product(hyper.beta_2)
        correction, root = ops.sqrt(1 - hyper.beta_2**t), ops.sqrt(slots.v * hyper.nu_2)
        weight = left_1 * hyper.learning_rate * hyper.nu_1 * correction / (1 - hyper.beta_1**t)
        fades = hyper.beta_1, ops.sqrt(hyper.beta_2)
        total = steps.quotient(weight, ops.sqrt(left_2), root, hyper.epsilon, *fades, scale=correction)
        return slots.m * total, {"m": slots.m * left_1, "v": slots.v * left_2}
