"""AddSign: larger steps for gradients that agree with their average."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, hyper, kernel, slot


class AddSign(Definition):
    """AddSign, found by a search over update rules (Bello et al. 2017, https://arxiv.org/abs/1709.07417).

    m := beta * m + (1 - beta) * grad
    var := var - learning_rate * (alpha + sign_decay * sign(grad) * sign(m)) * grad

    Defaults are those of `tf.contrib.opt`.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | tf.contrib.opt AddSign      | sparse="variable_rows"; its sign_decay_fn is a schedule for sign_decay      |

    Advice:
        To fade the sign term out over training, as the paper and `tf.contrib.opt.sign_decays` do, give sign_decay a
        schedule that goes to 0, such as everstep.CosineDecay. What remains at 0 is SGD with a rate of learning_rate *
        alpha.

    Args:
        learning_rate: A float, tensor, callable or schedule, of any sign. Default 0.1.
        alpha: Steps are scaled by alpha + 1 where the signs agree, and by alpha - 1 where they differ. Default 1.
        beta: Decay of the average, 0 to 1. Default 0.9.
        sign_decay: Factor of the sign term. Default 1.

    >>> import numpy
    >>> weights = numpy.zeros(2)
    >>> AddSign(0.1).bind(numpy).apply_gradients([(numpy.array([3.0, -0.5]), weights)])
    >>> weights.round(4)
    array([-0.6,  0.1])
    """

    family = "signs"
    kernel = kernel("addsign")
    learning_rate = hyper(0.1)
    alpha = hyper(1.0)
    beta = hyper(0.9, minimum=0, maximum=1)
    sign_decay = hyper(1.0)
    m = slot()

    def update(self, ops, grad, var, slots, hyper, t):
        m = hyper.beta * slots.m + (1 - hyper.beta) * grad
        agreement = ops.sign(grad) * ops.sign(m)
        return hyper.learning_rate * (hyper.alpha + hyper.sign_decay * agreement) * grad, {"m": m}

    max_replay_steps = 0

    def fast_forward(self, ops, var, slots, hyper, steps):
        return 0, {"m": slots.m * steps.product(hyper.beta)}
