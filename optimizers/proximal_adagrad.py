"""ProximalAdagrad: Adagrad with proximal steps for L1 and L2 penalties."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, assign, hyper, kernel, option, slot, surely_zero


class ProximalAdagrad(Definition):
    """Adagrad with the proximal steps of forward-backward splitting.

    Duchi & Singer 2009, https://papers.nips.cc/paper/2009/hash/621bf66ddb7c962aa0d22ac97d69b793-Abstract.html

    accumulator := accumulator + grad^2;  rate = learning_rate / sqrt(accumulator)
    moved = var - rate * grad
    var := (moved - clip(moved, -rate * l1, rate * l1)) / (1 + rate * l2)

    Every update shrinks the whole variable, rows without a gradient included. All stock versions leave those rows
    unchanged, as sparse="rows" does. Defaults are those of TensorFlow Addons.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | tf.train ProximalAdagrad    | sparse="rows"                                                               |
    | TensorFlow Addons           | sparse="rows"                                                               |

    Advice:
        Use it if l1 is to make weights exactly 0, as the paper shows: an L1 penalty in the loss only makes them small.
        Without l1 and l2 it is Adagrad without an epsilon.

    Args:
        learning_rate: A float, tensor, callable or schedule. Default 0.001.
        initial_accumulator_value: The first value of accumulators. Default 0.1.
        l1: Strength of the L1 penalty. Default 0.
        l2: Strength of the squared L2 penalty. Default 0.

    >>> import numpy
    >>> weights = numpy.ones(1)
    >>> optimizer = ProximalAdagrad(1.0, initial_accumulator_value=0.0, l1=0.5, l2=1.0).bind(numpy)
    >>> optimizer.apply_gradients([(numpy.array([2.0]), weights)])
    >>> weights  # the rate is 1 / 2, and 1 - 1 is 0
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

    @property
    def max_replay_steps(self):
        return 0 if surely_zero(self.l1, self.l2) else 200  # without l1 and l2 a zero gradient changes nothing
