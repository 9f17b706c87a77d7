"""Proximal gradient descent: SGD with proximal steps for L1 and L2 penalties."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, assign, hyper, kernel


class ProximalGradientDescent(Definition):
    """Gradient descent with the proximal steps of forward-backward splitting.

    Duchi & Singer 2009, https://papers.nips.cc/paper/2009/hash/621bf66ddb7c962aa0d22ac97d69b793-Abstract.html

    moved = var - learning_rate * grad
    var := (moved - clip(moved, -learning_rate * l1, learning_rate * l1)) / (1 + learning_rate * l2)

    Every update shrinks the whole variable, rows without a gradient included. Stock leaves those rows unchanged, as
    sparse="rows" does.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | tf.train                    | sparse="rows"                                                               |
    |   ProximalGradientDescent   |                                                                             |

    Advice:
        Use it if l1 is to make weights exactly 0: an L1 penalty in the loss only makes them small. The paper's rate
        falls as 1 / sqrt(t) (section 3): give a schedule. Without l1 and l2 it is SGD.

    Args:
        learning_rate: A float, tensor, callable or schedule. Default 0.01.
        l1: Strength of the L1 penalty. Default 0.
        l2: Strength of the squared L2 penalty. Default 0.

    >>> import numpy
    >>> weights = numpy.array([1.0, 3.0])
    >>> optimizer = ProximalGradientDescent(0.5, l1=1.0, l2=2.0).bind(numpy)
    >>> optimizer.apply_gradients([(numpy.array([2.0, 0.0]), weights)])
    >>> weights  # 1 - 1 is 0; (3 - 0.5) / 2
    array([0.  , 1.25])
    """

    family = "gradient descent"
    kernel = kernel("proximal_gradient_descent")
    learning_rate = hyper(1e-2, minimum=0)
    l1 = hyper(0.0, minimum=0)
    l2 = hyper(0.0, minimum=0)

    def update(self, ops, grad, var, slots, hyper, t):
        moved = var - hyper.learning_rate * grad
        bound = hyper.learning_rate * hyper.l1
        return assign((moved - ops.clip(moved, -bound, bound)) / (1 + hyper.learning_rate * hyper.l2)), {}

    max_replay_steps = 0

    def fast_forward(self, ops, var, slots, hyper, steps):
        share = 1 - 1 / (1 + hyper.learning_rate * hyper.l2)
        left = var - steps.decay(share) * var
        bound = steps.decayed(share, after=True).sum(hyper.learning_rate * hyper.l1)
        return var - left + ops.clip(left, -bound, bound), {}
