"""diffGrad: Adam with a friction that makes steps smaller where the gradient changes little."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, hyper, slot


class DiffGrad(Definition):
    """diffGrad (Dubey et al. 2019, https://arxiv.org/abs/1909.11015, algorithm 1).

    m := beta_1 * m + (1 - beta_1) * grad
    v := beta_2 * v + (1 - beta_2) * grad^2
    friction = sigmoid(abs(previous_grad - grad));  previous_grad := grad
    rate = learning_rate * sqrt(1 - beta_2^t) / (1 - beta_1^t)
    var := var - rate * friction * m / (sqrt(v) + epsilon)

    No stock API has it. Epsilon is added to the uncorrected root, as in stock Adam.

    Advice:
        Start from the settings of Adam, which are the defaults of the authors' code too
        (https://github.com/shivram1987/diffGrad). The friction is between 0.5 and 1, so a step is at least half of
        Adam's.

    Args:
        learning_rate: A float, tensor, callable or schedule. Default 0.001.
        beta_1: Decay of the first moment, 0 to 1. Default 0.9.
        beta_2: Decay of the second moment, 0 to 1. Default 0.999.
        epsilon: Added to the root. Default 1e-7.

    >>> import numpy
    >>> weights = numpy.zeros(1)
    >>> DiffGrad(0.1).bind(numpy).apply_gradients([(numpy.array([2.0]), weights)])
    >>> weights.round(4)  # -0.1 * sigmoid(2)
    array([-0.0881])
    """

    family = "Adam"
    learning_rate = hyper(1e-3, minimum=0)
    beta_1 = hyper(0.9, minimum=0, maximum=1)
    beta_2 = hyper(0.999, minimum=0, maximum=1)
    epsilon = hyper(1e-7, minimum=0)
    m = slot()
    v = slot()
    previous_grad = slot()

    def update(self, ops, grad, var, slots, hyper, t):
        m = hyper.beta_1 * slots.m + (1 - hyper.beta_1) * grad
        v = hyper.beta_2 * slots.v + (1 - hyper.beta_2) * grad * grad
        friction = ops.sigmoid(ops.abs(slots.previous_grad - grad))
        rate = hyper.learning_rate * ops.sqrt(1 - hyper.beta_2**t) / (1 - hyper.beta_1**t)
        change = rate * friction * m / (ops.sqrt(v) + hyper.epsilon)
        return change, {"m": m, "v": v, "previous_grad": grad}

    def fast_forward(self, ops, var, slots, hyper, steps):
        return 0, {"m": slots.m * hyper.beta_1**steps, "v": slots.v * hyper.beta_2**steps}
