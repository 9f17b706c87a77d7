"""AdagradDA: Adagrad by dual averaging, for sparse linear models."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, assign, hyper, option, slot


class AdagradDA(Definition):
    """Adagrad by regularized dual averaging (Duchi et al. 2011, https://jmlr.org/papers/v12/duchi11a.html, eq. 3).

    gradient_sum := gradient_sum + grad
    accumulator := accumulator + grad^2
    shrunk = gradient_sum - clip(gradient_sum, -l1 * t, l1 * t)
    var := -learning_rate * shrunk / (sqrt(accumulator) + learning_rate * l2 * t)

    The variable does not depend on its old value: the first update replaces the start value, as in stock. So it also
    makes weights without any gradient 0. Stock leaves the rows of a sparse gradient that are not present unchanged, as
    sparse="rows" does.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | tf.train AdagradDA          | sparse="rows"; its global_step is the count of updates                      |

    Advice:
        Use it for linear models that l1 is to make sparse. TensorFlow's documentation warns of it for deep networks:
        they would need accumulators that start with care
        (https://www.tensorflow.org/api_docs/python/tf/compat/v1/train/AdagradDAOptimizer).

    Args:
        learning_rate: A float, tensor, callable or schedule. Default 0.001.
        initial_accumulator_value: The first value of accumulators. Default 0.1.
        l1: Strength of the L1 penalty. Default 0.
        l2: Strength of the squared L2 penalty. Default 0.

    >>> import numpy
    >>> weights = numpy.array([5.0, 5.0])
    >>> optimizer = AdagradDA(1.0, initial_accumulator_value=0.0, l1=1.0, l2=1.0).bind(numpy)
    >>> optimizer.apply_gradients([(numpy.array([1.0, -3.0]), weights)])
    >>> weights  # the first gradient is within l1; (3 - 1) / (3 + 1)
    array([0. , 0.5])
    """

    family = "Adagrad"
    learning_rate = hyper(1e-3, minimum=0)
    initial_accumulator_value = option(0.1, minimum=0)
    l1 = hyper(0.0, minimum=0)
    l2 = hyper(0.0, minimum=0)
    gradient_sum = slot()
    accumulator = slot(init="initial_accumulator_value")

    def update(self, ops, grad, var, slots, hyper, t):
        gradient_sum, accumulator = slots.gradient_sum + grad, slots.accumulator + grad * grad
        value = self._value(ops, gradient_sum, accumulator, hyper, t)
        return assign(value), {"gradient_sum": gradient_sum, "accumulator": accumulator}

    @staticmethod
    def _value(ops, gradient_sum, accumulator, hyper, t):
        """Returns the variable that the slots stand for."""
        bound = hyper.l1 * t
        divisor = ops.sqrt(accumulator) + hyper.learning_rate * hyper.l2 * t
        return hyper.learning_rate * (ops.clip(gradient_sum, -bound, bound) - gradient_sum) / divisor

    max_replay_steps = 0

    def fast_forward(self, ops, var, slots, hyper, steps):
        # The value depends on the slots, which stand still, and on the last rate and count.
        value = self._value(ops, slots.gradient_sum, slots.accumulator, hyper, hyper.updates + 1)
        return assign(ops.where(steps > 0, value, var)), {}
