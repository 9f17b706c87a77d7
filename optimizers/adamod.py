"""AdaMod: Adam whose rates are bounded by their own average."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, hyper, slot


class AdaMod(Definition):
    """AdaMod (Ding et al. 2019, https://arxiv.org/abs/1910.12249, algorithm 2, as in the authors' code).

    m := beta_1 * m + (1 - beta_1) * grad
    v := beta_2 * v + (1 - beta_2) * grad^2
    rate = learning_rate * sqrt(1 - beta_2^t) / (1 - beta_1^t) / (sqrt(v) + epsilon)
    average_rate := beta_3 * average_rate + (1 - beta_3) * rate
    var := var - min(rate, average_rate) * m - learning_rate * weight_decay * var

    No stock API has it.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | the authors' code           | the defaults                                                                |
    | pytorch-optimizer           | beta_3=0.9999                                                               |

    Advice:
        The average starts from 0, so training warms up without a schedule. The nearer beta_3 is to 1, the longer the
        warm-up takes. For Transformers the authors use a beta_3 of 0.999 to 0.9999
        (https://github.com/lancopku/AdaMod).

    Args:
        learning_rate: A float, tensor, callable or schedule. Default 0.001.
        beta_1: Decay of the first moment, 0 to less than 1. Default 0.9.
        beta_2: Decay of the second moment, 0 to 1. Default 0.999.
        beta_3: Decay of the average rate, 0 to 1. Default 0.999.
        epsilon: Added to the root. Default 1e-8.
        weight_decay: Each update subtracts learning_rate * weight_decay * var. Default 0.

    >>> import numpy
    >>> weights = numpy.zeros(2)
    >>> AdaMod(0.5, beta_3=0.5).bind(numpy).apply_gradients([(numpy.array([1.0, -4.0]), weights)])
    >>> weights.round(6)
    array([-0.25,  0.25])
    """

    family = "Adam"
    learning_rate = hyper(1e-3, minimum=0)
    beta_1 = hyper(0.9, minimum=0, maximum=1 - 1e-7)
    beta_2 = hyper(0.999, minimum=0, maximum=1)
    beta_3 = hyper(0.999, minimum=0, maximum=1)
    epsilon = hyper(1e-8, minimum=0)
    weight_decay = hyper(0.0, minimum=0)
    m = slot()
    v = slot()
    average_rate = slot()

    def update(self, ops, grad, var, slots, hyper, t):
        m = hyper.beta_1 * slots.m + (1 - hyper.beta_1) * grad
        v = hyper.beta_2 * slots.v + (1 - hyper.beta_2) * grad * grad
        size = hyper.learning_rate * ops.sqrt(1 - hyper.beta_2**t) / (1 - hyper.beta_1**t)
        rate = size / (ops.sqrt(v) + hyper.epsilon)
        average = hyper.beta_3 * slots.average_rate + (1 - hyper.beta_3) * rate
        change = ops.minimum(rate, average) * m + hyper.learning_rate * hyper.weight_decay * var
        return change, {"m": m, "v": v, "average_rate": average}

    def fast_forward(self, ops, var, slots, hyper, steps):
        # No form for the average: the rates that it takes grow until epsilon stops them.
        new = {"m": slots.m * steps.product(hyper.beta_1), "v": slots.v * steps.product(hyper.beta_2)}
        return steps.decay(hyper.learning_rate * hyper.weight_decay) * var, new
