"""FTRL-Proximal."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, assign, hyper, kernel, option, slot


class Ftrl(Definition):
    """FTRL-Proximal (McMahan et al. 2013, "Ad Click Prediction: a View from the Trenches", algorithm 1).

    With p = -learning_rate_power (the paper's is 0.5) and s = l2_shrinkage:
    accumulator' = accumulator + grad^2
    linear := linear + grad + 2 * s * var - (accumulator'^p - accumulator^p) / learning_rate * var
    var := (clip(linear, -l1, l1) - linear) / ((accumulator'^p + beta) / learning_rate + 2 * l2)

    A variable that never had a gradient becomes 0 at its first zero one (linear is 0 there), so with the default
    sparse="exact" rows without a gradient do; tf.train and OptimizerV2 leave those rows alone: sparse="rows".

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | tf.train Ftrl, OptimizerV2  | sparse="rows"                                                               |
    | new-style Keras, Keras 3    | the defaults                                                                |

    Args:
        learning_rate: float, tensor, callable or schedule; more than 0; 0.001.
        learning_rate_power: 0 or less; -0.5.
        initial_accumulator_value: where accumulators start; 0.1.
        l1: strength of the 1-norm; 0.
        l2: strength of the squared 2-norm; 0.
        l2_shrinkage: the same as an addition to the gradient, which accumulators do not see; 0.
        beta: the paper's, added to the root of the accumulator; 0.

    >>> import numpy
    >>> weights = numpy.zeros(1)
    >>> Ftrl(0.5, initial_accumulator_value=0.0, l1=1.0).bind(numpy).apply_gradients([(numpy.array([3.0]), weights)])
    >>> weights.round(4)  # (1 - 3) / (3 / 0.5)
    array([-0.3333])
    """

    family = "Adagrad"
    kernel = kernel("ftrl")
    learning_rate = hyper(1e-3, minimum=0)
    learning_rate_power = hyper(-0.5, maximum=0)
    initial_accumulator_value = option(0.1, minimum=0)
    l1 = hyper(0.0, minimum=0)
    l2 = hyper(0.0, minimum=0)
    l2_shrinkage = hyper(0.0, minimum=0)
    beta = hyper(0.0, minimum=0)
    accumulator = slot(init="initial_accumulator_value")
    linear = slot()

    def update(self, ops, grad, var, slots, hyper, t):
        accumulator = slots.accumulator + grad * grad
        power, old = accumulator ** (-hyper.learning_rate_power), slots.accumulator ** (-hyper.learning_rate_power)
        linear = slots.linear + grad + 2 * hyper.l2_shrinkage * var - (power - old) / hyper.learning_rate * var
        quadratic = (power + hyper.beta) / hyper.learning_rate + 2 * hyper.l2
        new = (ops.clip(linear, -hyper.l1, hyper.l1) - linear) / quadratic
        return assign(new), {"accumulator": accumulator, "linear": linear}
