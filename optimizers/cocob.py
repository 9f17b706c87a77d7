"""COCOB: coin betting, which needs no learning rate."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, hyper, option, slot


class COCOB(Definition):
    """COCOB-Backprop (Orabona & Tommasi 2017, https://arxiv.org/abs/1705.07795, algorithm 2).

    largest := max(largest, abs(grad));  absolute_sum := absolute_sum + abs(grad)
    gradient_sum := gradient_sum + grad
    reward := max(reward - grad * offset, 0)
    new = -gradient_sum / (largest * max(absolute_sum + largest, alpha * largest)) * (reward + largest)
    var := var + learning_rate * (new - offset);  offset := new

    The offset is how far the variable is from its start, so a zero gradient changes nothing. The paper has no learning
    rate; here it is a factor that other tools can set. Defaults are those of TensorFlow Addons, which takes no sparse
    gradients.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | TensorFlow Addons           | the defaults                                                                |
    | the paper                   | the defaults                                                                |

    Advice:
        Leave the learning rate at 1. The paper uses alpha = 100 in all its experiments, which keeps the first steps
        small (section 6).

    Args:
        learning_rate: A float, tensor, callable or schedule. Default 1.
        alpha: Keeps the first steps small; at least 1. Default 100.
        initial_largest: The first value of `largest`, more than 0. Default 1e-8.

    >>> import numpy
    >>> weights = numpy.ones(2)
    >>> COCOB(alpha=2.0).bind(numpy).apply_gradients([(numpy.array([3.0, -0.5]), weights)])
    >>> weights.round(4)  # a bet of half the money
    array([0.5, 1.5])
    """

    family = "gradient descent"
    zero_grad_is_noop = True
    learning_rate = hyper(1.0, minimum=0)
    alpha = hyper(100.0, minimum=1)
    initial_largest = option(1e-8, minimum=1e-30)
    largest = slot(init="initial_largest")
    absolute_sum = slot()
    gradient_sum = slot()
    offset = slot()
    reward = slot()

    def update(self, ops, grad, var, slots, hyper, t):
        size = ops.abs(grad)
        largest, absolute_sum = ops.maximum(slots.largest, size), slots.absolute_sum + size
        gradient_sum, reward = slots.gradient_sum + grad, ops.maximum(slots.reward - grad * slots.offset, 0)
        divisor = largest * ops.maximum(absolute_sum + largest, hyper.alpha * largest)
        offset = -gradient_sum * (reward + largest) / divisor
        new = dict(
            largest=largest, absolute_sum=absolute_sum, gradient_sum=gradient_sum, offset=offset, reward=reward
        )
        return hyper.learning_rate * (slots.offset - offset), new
