"""Adagrad with proximal steps for the 1-norm and the 2-norm."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, assign, hyper, kernel, option, slot


class ProximalAdagrad(Definition):
    """Adagrad with the proximal steps of Duchi & Singer 2009, "Efficient Learning using Forward-Backward Splitting".

    accumulator := accumulator + grad^2;  rate = learning_rate / sqrt(accumulator)
    moved = var - rate * grad
    var := (moved - clip(moved, -rate * l1, rate * l1)) / (1 + rate * l2)

    Every update draws the whole variable to 0, rows without a gradient too; all stock versions leave those alone:
    sparse="rows". Defaults are those of TensorFlow Addons.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | tf.train ProximalAdagrad    | sparse="rows"                                                               |
    | TensorFlow Addons           | sparse="rows"                                                               |

    Args:
        learning_rate: float, tensor, callable or schedule; 0.001.
        initial_accumulator_value: where accumulators start; 0.1.
        l1: strength of the 1-norm; 0.
        l2: strength of the squared 2-norm; 0.

    >>> import numpy
    >>> weights = numpy.ones(1)
    >>> optimizer = ProximalAdagrad(1.0, initial_accumulator_value=0.0, l1=0.5, l2=1.0).bind(numpy)
    >>> optimizer.apply_gradients([(numpy.array([2.0]), weights)])
    >>> weights  # the rate is 1 / 2: nothing is left of 1 - 1
    array([0.])
    """

    family = "Adagrad"
    kernel = kernel("proximal_adagrad")
    learning_rate = hyper(1e-3, minimum=0)
    initial_accumulator_value = option(0.1, minimum=0)
    l1 = hyper(0.0, minimum=0)
    l2 = hyper(0.0, minimum=0)
    accumulator = slot(init="initial_accumulator_value")

    def update(self, ops, grad, var, slots, hyper, t):
        accumulator = slots.accumulator + grad * grad
        rate = hyper.learning_rate / ops.sqrt(accumulator)
        moved = var - rate * grad
        shrunk = moved - ops.clip(moved, -rate * hyper.l1, rate * hyper.l1)
        return assign(shrunk / (1 + rate * hyper.l2)), {"accumulator": accumulator}
