"""Lion: the sign of an interpolated momentum."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, hyper, slot


class Lion(Definition):
    """Lion (Chen et al. 2023, https://arxiv.org/abs/2302.06675, algorithm 2).

    direction = sign(beta_1 * m + (1 - beta_1) * grad)
    m := beta_2 * m + (1 - beta_2) * grad
    var := var - learning_rate * (direction + weight_decay * var)

    Defaults are those of Keras; the paper's rate is 1e-4.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | new-style Keras             | the defaults; stock default: learning_rate=0.0001; weight_decay= is the     |
    |                             | same                                                                        |
    | Keras 3                     | the defaults; weight_decay= is the same                                     |
    | the authors' code           | learning_rate=1e-4                                                          |

    Advice:
        Use a learning rate 3 to 10 times smaller than for AdamW, and a weight decay 3 to 10 times larger, so that their
        product stays the same (section 5 of the paper). The gain over AdamW grows with the batch size.

    Args:
        learning_rate: A float, tensor, callable or schedule. Default 0.001.
        beta_1: Weight of the momentum in the direction, 0 to 1. Default 0.9.
        beta_2: Decay of the momentum, 0 to 1. Default 0.99.
        weight_decay: Each update subtracts learning_rate * weight_decay * var. Default 0.

    >>> import numpy
    >>> weights = numpy.zeros(2)
    >>> Lion(0.1).bind(numpy).apply_gradients([(numpy.array([3.0, -0.5]), weights)])
    >>> weights
    array([-0.1,  0.1])
    """

    family = "signs"
    learning_rate = hyper(1e-3, minimum=0)
    beta_1 = hyper(0.9, minimum=0, maximum=1)
    beta_2 = hyper(0.99, minimum=0, maximum=1)
    weight_decay = hyper(0.0, minimum=0)
    m = slot()

    def update(self, ops, grad, var, slots, hyper, t):
        direction = ops.sign(hyper.beta_1 * slots.m + (1 - hyper.beta_1) * grad)
        m = hyper.beta_2 * slots.m + (1 - hyper.beta_2) * grad
        return hyper.learning_rate * (direction + hyper.weight_decay * var), {"m": m}

    max_replay_steps = 0

    def fast_forward(self, ops, var, slots, hyper, steps):
        share = hyper.learning_rate * hyper.weight_decay
        change = ops.sign(slots.m) * steps.decayed(share).sum(hyper.learning_rate * ops.sign(hyper.beta_1))
        return change + steps.decay(share) * var, {"m": slots.m * steps.product(hyper.beta_2)}
