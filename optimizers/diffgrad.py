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

    max_replay_steps = 0

    def fast_forward(self, ops, var, slots, hyper, steps):
        t, left_1, left_2 = hyper.updates + 1, steps.product(hyper.beta_1), steps.product(hyper.beta_2)
        rate = left_1 * hyper.learning_rate * ops.sqrt(1 - hyper.beta_2**t) / (1 - hyper.beta_1**t)
        left, rest = ops.sqrt(left_2), (ops.sqrt(slots.v), hyper.epsilon, hyper.beta_1, ops.sqrt(hyper.beta_2))
        # The friction is sigmoid(abs(previous_grad)) in the first missed step, and sigmoid(0) in the others.
        first = steps.quotient(ops.where(steps < 1.5, rate, 0), left, *rest)
        every = steps.quotient(rate, left, *rest)
        change = slots.m * (0.5 * every + (ops.sigmoid(ops.abs(slots.previous_grad)) - 0.5) * first)
        grad = ops.where(steps > 0, 0, slots.previous_grad)
        return change, {"m": slots.m * left_1, "v": slots.v * left_2, "previous_grad": grad}
