"""Yogi: Adam whose second moment changes by no more than a share of the squared gradient."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, assign, hyper, option, slot, surely_zero


class Yogi(Definition):
    """Yogi (Zaheer et al. 2018, "Adaptive Methods for Nonconvex Optimization", algorithm 2).

    https://papers.nips.cc/paper/8186-adaptive-methods-for-nonconvex-optimization

    m := beta_1 * m + (1 - beta_1) * grad
    v := v + (1 - beta_2) * sign(grad^2 - v) * grad^2
    With activation "tanh": v := v + (1 - beta_2) * tanh(10 * (grad^2 - v)) * grad^2
    rate = learning_rate * sqrt(1 - beta_2^t) / ((1 - beta_1^t) * (sqrt(v) + epsilon))
    moved = var - rate * m
    var := (moved - clip(moved, -rate * l1, rate * l1)) / (1 + rate * l2)

    The bias corrections, l1 and l2 are not in the paper. They and the defaults are those of TensorFlow Addons.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | TensorFlow Addons           | the defaults; it has beta1, beta2, l1_ and l2_regularization_strength       |

    Advice:
        Keep epsilon at 1e-3, the paper's value, instead of the 1e-8 of Adam. Use about 10 times the learning rate of
        Adam (https://www.tensorflow.org/federated/api_docs/python/tff/learning/optimizers/build_yogi).

    Args:
        learning_rate: A float, tensor, callable or schedule. Default 0.01.
        beta_1: Decay of the first moment, 0 to 1. Default 0.9.
        beta_2: How slowly the second moment follows, 0 to 1. Default 0.999.
        epsilon: Added to the root. Default 1e-3.
        l1: Strength of the L1 penalty, applied as a proximal step. Default 0.
        l2: Strength of the squared L2 penalty, applied as a proximal step. Default 0.
        initial_accumulator_value: The first value of v. Default 1e-6.
        activation: "sign" or "tanh". Default "sign".

    >>> import numpy
    >>> weights = numpy.zeros(1)
    >>> Yogi(0.1, epsilon=0.0, initial_accumulator_value=0.0).bind(numpy).apply_gradients(
    ...     [(numpy.array([3.0]), weights)]
    ... )
    >>> weights.round(4)
    array([-0.1])
    """

    family = "Adam"
    learning_rate = hyper(0.01, minimum=0)
    beta_1 = hyper(0.9, minimum=0, maximum=1)
    beta_2 = hyper(0.999, minimum=0, maximum=1)
    epsilon = hyper(1e-3, minimum=0)
    l1 = hyper(0.0, minimum=0)
    l2 = hyper(0.0, minimum=0)
    initial_accumulator_value = option(1e-6, minimum=0)
    activation = option("sign", choices=("sign", "tanh"))
    m = slot()
    v = slot(init="initial_accumulator_value")

    def update(self, ops, grad, var, slots, hyper, t):
        m = hyper.beta_1 * slots.m + (1 - hyper.beta_1) * grad
        square = grad * grad
        sign = ops.sign(square - slots.v) if self.activation == "sign" else ops.tanh(10 * (square - slots.v))
        v = slots.v + (1 - hyper.beta_2) * sign * square
        rate = hyper.learning_rate * ops.sqrt(1 - hyper.beta_2**t) / (1 - hyper.beta_1**t)
        rate = rate / (ops.sqrt(v) + hyper.epsilon)
        moved = var - rate * m
        shrunk = moved - ops.clip(moved, -rate * hyper.l1, rate * hyper.l1)
        return assign(shrunk / (1 + rate * hyper.l2)), {"m": m, "v": v}

    @property
    def max_replay_steps(self):
        return 0 if surely_zero(self.l1, self.l2) else 200

    def fast_forward(self, ops, var, slots, hyper, steps):
        t, left = hyper.updates + 1, steps.product(hyper.beta_1)
        rate = left * hyper.learning_rate * ops.sqrt(1 - hyper.beta_2**t) / (1 - hyper.beta_1**t)
        root = ops.maximum(ops.sqrt(slots.v) + hyper.epsilon, 1e-30)
        return slots.m * steps.sum(rate, hyper.beta_1) / root, {"m": slots.m * left}
