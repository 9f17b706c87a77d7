"""FTRL-Proximal: online learning of sparse linear models."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, assign, hyper, kernel, option, slot, surely_zero


class Ftrl(Definition):
    """FTRL-Proximal (McMahan et al. 2013, https://doi.org/10.1145/2487575.2488200, algorithm 1).

    With p = -learning_rate_power (the paper's is 0.5) and s = l2_shrinkage:
    accumulator' = accumulator + grad^2
    linear := linear + grad + 2 * s * var - (accumulator'^p - accumulator^p) / learning_rate * var
    var := (clip(linear, -l1, l1) - linear) / ((accumulator'^p + beta) / learning_rate + 2 * l2)

    A variable whose gradients were all zero so far becomes 0 in its first step, because linear is 0. With the default
    sparse="exact" this includes rows without a gradient. tf.train and OptimizerV2 leave those rows unchanged, as
    sparse="rows" does.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | tf.train Ftrl, OptimizerV2  | sparse="rows"                                                               |
    | new-style Keras, Keras 3    | the defaults                                                                |

    Advice:
        Use it for linear and other shallow models with large, sparse feature spaces
        (https://keras.io/api/optimizers/ftrl). An l1 above 0 makes weights exactly 0, and the model small. The paper
        finds beta=1 good enough in practice.

    Args:
        learning_rate: A float, tensor, callable or schedule, more than 0. Default 0.001.
        learning_rate_power: 0 or less. Default -0.5.
        initial_accumulator_value: The first value of accumulators. Default 0.1.
        l1: Strength of the L1 penalty. Default 0.
        l2: Strength of the squared L2 penalty. Default 0.
        l2_shrinkage: Strength of a squared L2 penalty that is added to the gradient, but not to accumulators. Default
            0.
        beta: The paper's beta, added to the root of the accumulator. Default 0.

    >>> import numpy
    >>> weights = numpy.zeros(1)
    >>> Ftrl(0.5, initial_accumulator_value=0.0, l1=1.0).bind(numpy).apply_gradients([(numpy.array([3.0]), weights)])
    >>> weights.round(4)  # (1 - 3) / (3 / 0.5)
    array([-0.3333])
    """

    family = "Adagrad"
    kernel = kernel("ftrl")
    learning_rate = hyper(1e-3, minimum=1e-30)  # it divides
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
        new = self._value(ops, accumulator, linear, hyper)
        return assign(new), {"accumulator": accumulator, "linear": linear}

    @staticmethod
    def _value(ops, accumulator, linear, hyper):
        """Returns the variable that the slots stand for."""
        quadratic = (accumulator ** (-hyper.learning_rate_power) + hyper.beta) / hyper.learning_rate + 2 * hyper.l2
        return (ops.clip(linear, -hyper.l1, hyper.l1) - linear) / quadratic

    @property
    def max_replay_steps(self):
        return 0 if surely_zero(self.l2_shrinkage) else 200

    def fast_forward(self, ops, var, slots, hyper, steps):
        # Without shrinkage the value depends on the slots, which stand still, and on the last rate.
        return assign(ops.where(steps > 0, self._value(ops, slots.accumulator, slots.linear, hyper), var)), {}
