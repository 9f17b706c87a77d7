"""ADOPT: Adam that converges with any beta_2."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, hyper, option, slot


class ADOPT(Definition):
    """ADOPT (Taniguchi et al. 2024, https://arxiv.org/abs/2411.02853, algorithm 2).

    The first update changes no variable:  v := grad^2
    All others, with the v of the update before:
    direction = grad / max(sqrt(v), epsilon)
    bound = (t - 1)^0.25;  direction := min(max(direction, -bound), bound)
    m := beta_1 * m + (1 - beta_1) * direction
    v := beta_2 * v + (1 - beta_2) * grad^2
    var := var - learning_rate * (m + weight_decay * var)

    With clip=False there is no bound, as in algorithm 1. No stock API has it.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | the authors' code           | the defaults; its decouple=False is an L2 penalty in the loss               |
    | optax's contrib             | the defaults                                                                |
    | pytorch-optimizer           | its bound is t^0.25, and its first update decays weights too                |

    Advice:
        Take over Adam's learning rate and leave beta_2 at 0.9999: the authors find that the result hardly depends on it
        (https://github.com/iShohei220/adopt). Keep clip: without it, small gradients at the start make large steps.

    Args:
        learning_rate: A float, tensor, callable or schedule. Default 0.001.
        beta_1: Decay of the first moment, 0 to 1. Default 0.9.
        beta_2: Decay of the second moment, 0 to 1. Default 0.9999.
        epsilon: The least root that a gradient is divided by. Default 1e-6.
        weight_decay: Each update but the first subtracts learning_rate * weight_decay * var. Default 0.
        clip: True to bound directions. Default True.

    >>> import numpy
    >>> weights = numpy.zeros(2)
    >>> optimizer = ADOPT(0.5, beta_1=0.5).bind(numpy)
    >>> for grad in ([1.0, 4.0], [0.5, 8.0]):
    ...     optimizer.apply_gradients([(numpy.array(grad), weights)])
    ...     print(weights)
    [0. 0.]
    [-0.125 -0.25 ]
    """

    family = "Adam"
    learning_rate = hyper(1e-3, minimum=0)
    beta_1 = hyper(0.9, minimum=0, maximum=1)
    beta_2 = hyper(0.9999, minimum=0, maximum=1)
    epsilon = hyper(1e-6, minimum=0)
    weight_decay = hyper(0.0, minimum=0)
    clip = option(True)
    m = slot()
    v = slot()

    def update(self, ops, grad, var, slots, hyper, t):
        first, square = ops.equal(t, 1), grad * grad
        direction = grad / ops.maximum(ops.sqrt(slots.v), hyper.epsilon)
        if self.clip:
            bound = ops.sqrt(ops.sqrt(ops.maximum(t - 1, 1)))
            direction = ops.clip(direction, -bound, bound)
        m = ops.where(first, slots.m, hyper.beta_1 * slots.m + (1 - hyper.beta_1) * direction)
        v = ops.where(first, square, hyper.beta_2 * slots.v + (1 - hyper.beta_2) * square)
        change = hyper.learning_rate * (m + hyper.weight_decay * var)
        return ops.where(first, 0, change), {"m": m, "v": v}

    max_replay_steps = 0

    def fast_forward(self, ops, var, slots, hyper, steps):
        share = ops.where(hyper.updates > 0, hyper.learning_rate * hyper.weight_decay, 0)
        left = steps.product(hyper.beta_1)
        change = slots.m * steps.decayed(share).sum(hyper.learning_rate * left, hyper.beta_1)
        return change + steps.decay(share) * var, {"m": slots.m * left, "v": slots.v * steps.product(hyper.beta_2)}
