"""Adamax: Adam with the infinity norm."""
from __future__ import absolute_import, division, print_function

from everstep.errors import DefinitionError
from everstep.optimizers.contract import Definition, hyper, kernel, option, slot


class Adamax(Definition):
    """Adamax (Kingma & Ba 2015, https://arxiv.org/abs/1412.6980, section 7.1 and algorithm 2).

    m := beta_1 * m + (1 - beta_1) * grad
    u := max(beta_2 * u, abs(grad))
    var := var - learning_rate / (1 - beta_1^t) * m / (u + epsilon)

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | tf.contrib.opt AdaMax       | sparse="rows"; stock default: epsilon=1e-08                                 |
    | OptimizerV2                 | sparse="rows"                                                               |
    | Keras 2.0 to 2.3            | the defaults; stock default: learning_rate=0.002                            |
    | new-style Keras, Keras 3    | the defaults                                                                |
    | torch.optim                 | epsilon_in_norm=True; stock default: epsilon=1e-08, learning_rate=0.002;    |
    |                             | its weight_decay is everstep.l2_penalty                                     |

    Advice:
        The paper's learning rate is 0.002. Keras recommends Adamax for processes that change over time, such as speech
        with changing noise (https://keras.io/api/optimizers/adamax).

    Args:
        learning_rate: A float, tensor, callable or schedule, of any sign. Default 0.001.
        beta_1: Decay of the first moment, 0 to 1. Default 0.9.
        beta_2: Decay of the norm, 0 to 1. Default 0.999.
        epsilon: Added to the norm. Default 1e-7.
        epsilon_in_norm: True to add epsilon to |grad|, before the maximum, as torch does; without sparse="catch_up".
            Default False.

    >>> import numpy
    >>> weights = numpy.zeros(1)
    >>> Adamax(0.1, epsilon=0.0).bind(numpy).apply_gradients([(numpy.array([-3.0]), weights)])
    >>> weights.round(4)
    array([0.1])
    """

    family = "Adam"
    kernel = kernel("adamax")
    learning_rate = hyper(1e-3)
    beta_1 = hyper(0.9, minimum=0, maximum=1)
    beta_2 = hyper(0.999, minimum=0, maximum=1)
    epsilon = hyper(1e-7, minimum=0)
    epsilon_in_norm = option(False)
    m = slot()
    u = slot()

    def _check(self):
        if self.epsilon_in_norm and self.sparse == "catch_up":
            raise DefinitionError("Adamax(epsilon_in_norm=True) has no sparse='catch_up': epsilon decays in the norm")
        super(Adamax, self)._check()

    def update(self, ops, grad, var, slots, hyper, t):
        m = hyper.beta_1 * slots.m + (1 - hyper.beta_1) * grad
        rate = hyper.learning_rate / (1 - hyper.beta_1**t)
        if self.epsilon_in_norm:
            u = ops.maximum(hyper.beta_2 * slots.u, ops.abs(grad) + hyper.epsilon)
            return rate * m / u, {"m": m, "u": u}
        u = ops.maximum(hyper.beta_2 * slots.u, ops.abs(grad))
        return rate * m / (u + hyper.epsilon), {"m": m, "u": u}

    max_replay_steps = 0

    def fast_forward(self, ops, var, slots, hyper, steps):
        left_1, left_2 = steps.product(hyper.beta_1), steps.product(hyper.beta_2)
        rate = left_1 * hyper.learning_rate / (1 - hyper.beta_1 ** (hyper.updates + 1))
        change = slots.m * steps.quotient(rate, left_2, slots.u, hyper.epsilon, hyper.beta_1, hyper.beta_2)
        return change, {"m": slots.m * left_1, "u": slots.u * left_2}
