"""PowerSign: gradients count more where they agree with their average, and less where not."""
from __future__ import absolute_import, division, print_function

import math

from everstep.optimizers.contract import Definition, hyper, kernel, slot


class PowerSign(Definition):
    """PowerSign (Bello et al. 2017, "Neural Optimizer Search with Reinforcement Learning", arXiv:1709.07417).

    m := beta * m + (1 - beta) * grad
    var := var - learning_rate * power_base^(sign_decay * sign(grad) * sign(m)) * grad

    Defaults are those of `tf.contrib.opt`.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | tf.contrib.opt PowerSign    | sparse="variable_rows"; its sign_decay_fn is a schedule for sign_decay      |

    Args:
        learning_rate: float, tensor, callable or schedule; 0.1.
        power_base: what the rate is times where gradient and average agree, more than 0; e.
        beta: decay of the average, 0 to 1; 0.9.
        sign_decay: how much agreement counts; 1.

    >>> import numpy
    >>> weights = numpy.zeros(2)
    >>> PowerSign(0.1, power_base=2.0).bind(numpy).apply_gradients([(numpy.array([3.0, -0.5]), weights)])
    >>> weights.round(4)
    array([-0.6,  0.1])
    """

    family = "signs"
    kernel = kernel("powersign")
    learning_rate = hyper(0.1, minimum=0)
    power_base = hyper(math.e, minimum=1e-30)
    beta = hyper(0.9, minimum=0, maximum=1)
    sign_decay = hyper(1.0)
    m = slot()

    def update(self, ops, grad, var, slots, hyper, t):
        m = hyper.beta * slots.m + (1 - hyper.beta) * grad
        exponent = hyper.sign_decay * ops.sign(grad) * ops.sign(m)
        return hyper.learning_rate * ops.exp(ops.log(hyper.power_base) * exponent) * grad, {"m": m}

    max_replay_steps = 0

    def fast_forward(self, ops, var, slots, hyper, steps):
        return 0, {"m": slots.m * hyper.beta**steps}
