"""PowerSign: larger steps for gradients that agree with their average, smaller ones for others."""
from __future__ import absolute_import, division, print_function

import math

from everstep.optimizers.contract import Definition, hyper, kernel, slot


class PowerSign(Definition):
    """PowerSign, found by a search over update rules (Bello et al. 2017, https://arxiv.org/abs/1709.07417).

    m := beta * m + (1 - beta) * grad
    var := var - learning_rate * power_base^(sign_decay * sign(grad) * sign(m)) * grad

    Defaults are those of `tf.contrib.opt`.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | tf.contrib.opt PowerSign    | sparse="variable_rows"; its sign_decay_fn is a schedule for sign_decay      |

    Advice:
        To fade the sign term out over training, as the paper and `tf.contrib.opt.sign_decays` do, give sign_decay a
        schedule that goes to 0, such as everstep.CosineDecay. What remains at 0 is SGD.

    Args:
        learning_rate: A float, tensor, callable or schedule, of any sign. Default 0.1.
        power_base: Steps are multiplied by it where the signs agree and divided by it where they differ. More than 0.
            Default e.
        beta: Decay of the average, 0 to 1. Default 0.9.
        sign_decay: Factor of the exponent. Default 1.

    >>> import numpy
    >>> weights = numpy.zeros(2)
    >>> PowerSign(0.1, power_base=2.0).bind(numpy).apply_gradients([(numpy.array([3.0, -0.5]), weights)])
    >>> weights.round(4)
    array([-0.6,  0.1])
    """

    family = "signs"
    kernel = kernel("powersign")
    learning_rate = hyper(0.1)
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
        return 0, {"m": slots.m * steps.product(hyper.beta)}
