"""Nadam: Adam with Nesterov momentum."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, hyper, kernel, option, scalar, slot


class Nadam(Definition):
    """Nadam (Dozat 2016, https://openreview.net/forum?id=OM0jvwB8jIp57ZJjtNEZ, algorithm 2).

    mu(t) = beta_1 * (1 - 0.5 * 0.96^(t * momentum_decay));  product := product * mu(t)
    m := beta_1 * m + (1 - beta_1) * grad
    v := beta_2 * v + (1 - beta_2) * grad^2
    m_bar = (1 - mu(t)) * grad / (1 - product) + mu(t + 1) * m / (1 - product * mu(t + 1))
    var := var - learning_rate * m_bar / (sqrt(v / (1 - beta_2^t)) + epsilon)
    With momentum_schedule=False, as Adam with m_bar in place of m:
    m_bar = (1 - beta_1) * grad + beta_1 * m
    var := var - learning_rate * sqrt(1 - beta_2^t) / (1 - beta_1^t) * m_bar / (sqrt(v) + epsilon)

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | tf.contrib.opt Nadam        | momentum_schedule=False, sparse="variable_rows"; stock default:             |
    |                             | epsilon=1e-08                                                               |
    | OptimizerV2                 | sparse="variable_rows"; its schedule_decay (in a config: decay) is          |
    |                             | momentum_decay                                                              |
    | Keras 2.0 to 2.3            | the defaults; stock default: learning_rate=0.002                            |
    | new-style Keras             | momentum_decay=1.0; stock new-style Nadam multiplies its momentum product   |
    |                             | once per variable in a compiled step                                        |
    | Keras 3                     | momentum_decay=1.0                                                          |
    | torch.optim                 | the defaults; stock default: epsilon=1e-08, learning_rate=0.002; its        |
    |                             | weight_decay is everstep.l2_penalty                                         |

    Advice:
        Keras 2 recommends the default settings, with a learning rate of 0.002. The momentum schedule starts near beta_1
        / 2, and its distance from beta_1 halves every 17 / momentum_decay updates: every 4,250 with the paper's 0.004,
        every 17 with the 1.0 of new-style Keras and Keras 3.

    Args:
        learning_rate: A float, tensor, callable or schedule, of any sign. Default 0.001.
        beta_1: Decay of the first moment, 0 to 1. Default 0.9.
        beta_2: Decay of the second moment, 0 to 1. Default 0.999.
        epsilon: Added to the root. Default 1e-7.
        momentum_decay: Multiplies t in the exponent of the momentum schedule. Default 0.004, as in the paper.
        momentum_schedule: True to warm the momentum up. Default True.

    >>> import numpy
    >>> weights = numpy.zeros(1)
    >>> optimizer = Nadam(0.1, beta_1=0.5, momentum_schedule=False, epsilon=0.0).bind(numpy)
    >>> optimizer.apply_gradients([(numpy.array([3.0]), weights)])
    >>> weights.round(4)  # -0.1 * (0.5 + 0.25) / (1 - 0.5)
    array([-0.15])
    """

    family = "Adam"
    kernel = kernel("nadam")
    learning_rate = hyper(1e-3)
    beta_1 = hyper(0.9, minimum=0, maximum=1)
    beta_2 = hyper(0.999, minimum=0, maximum=1)
    epsilon = hyper(1e-7, minimum=0)
    momentum_decay = hyper(0.004, minimum=0)
    momentum_schedule = option(True)
    m = slot()
    v = slot()
    momentum_product = scalar(1.0)

    @staticmethod
    def scheduled(hyper, t):
        return hyper.beta_1 * (1 - 0.5 * 0.96 ** (t * hyper.momentum_decay))

    def advance(self, ops, scalars, hyper, t):
        product = scalars.momentum_product
        return {"momentum_product": product * self.scheduled(hyper, t) if self.momentum_schedule else product}

    def update(self, ops, grad, var, slots, hyper, t):
        m = hyper.beta_1 * slots.m + (1 - hyper.beta_1) * grad
        v = hyper.beta_2 * slots.v + (1 - hyper.beta_2) * grad * grad
        if self.momentum_schedule:
            now, later, product = self.scheduled(hyper, t), self.scheduled(hyper, t + 1), hyper.momentum_product
            m_bar = (1 - now) * grad / (1 - product) + later * m / (1 - product * later)
            change = hyper.learning_rate * m_bar / (ops.sqrt(v / (1 - hyper.beta_2**t)) + hyper.epsilon)
        else:
            m_bar = (1 - hyper.beta_1) * grad + hyper.beta_1 * m
            rate = hyper.learning_rate * ops.sqrt(1 - hyper.beta_2**t) / (1 - hyper.beta_1**t)
            change = rate * m_bar / (ops.sqrt(v) + hyper.epsilon)
        return change, {"m": m, "v": v}

    max_replay_steps = 0

    def fast_forward(self, ops, var, slots, hyper, steps):
        t, left_1, left_2 = hyper.updates + 1, steps.product(hyper.beta_1), steps.product(hyper.beta_2)
        correction = ops.sqrt(1 - hyper.beta_2**t)
        if self.momentum_schedule:
            later = self.scheduled(hyper, t + 1)
            rate, scale = hyper.learning_rate * later / (1 - hyper.momentum_product * later), correction
        else:
            rate, scale = hyper.learning_rate * hyper.beta_1 / (1 - hyper.beta_1**t), 1.0
        weight, root = rate * correction * left_1, ops.sqrt(slots.v)
        fades = hyper.beta_1, ops.sqrt(hyper.beta_2)
        total = steps.quotient(weight, ops.sqrt(left_2), root, hyper.epsilon, *fades, scale=scale)
        return slots.m * total, {"m": slots.m * left_1, "v": slots.v * left_2}
