"""Yogi: Adam whose second moment grows and shrinks by no more than the square of the gradient."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, assign, hyper, option, slot


class Yogi(Definition):
    """Yogi (Zaheer et al. 2018, "Adaptive Methods for Nonconvex Optimization", NeurIPS, algorithm 2).

    m := beta_1 * m + (1 - beta_1) * grad
    v := v + (1 - beta_2) * sign(grad^2 - v) * grad^2, or with activation "tanh" tanh(10 * (grad^2 - v)) for the sign
    rate = learning_rate * sqrt(1 - beta_2^t) / (1 - beta_1^t) / (sqrt(v) + epsilon)
    moved = var - rate * m
    var := (moved - clip(moved, -rate * l1, rate * l1)) / (1 + rate * l2)

    The paper has neither corrections of bias nor l1 nor l2; they and the defaults are those of TensorFlow Addons.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | TensorFlow Addons           | the defaults (its beta1, beta2, l1_ and l2_regularization_strength)         |

    Args:
        learning_rate: float, tensor, callable or schedule; 0.01.
        beta_1: decay of the first moment, 0 to 1; 0.9.
        beta_2: how slowly the second moment follows, 0 to 1; 0.999.
        epsilon: added to the root; 1e-3.
        l1: strength of the 1-norm, by a proximal step; 0.
        l2: strength of the squared 2-norm, by a proximal step; 0.
        initial_accumulator_value: where v starts; 1e-6.
        activation: "sign" or "tanh"; "sign".

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

    def fast_forward(self, ops, var, slots, hyper, steps):
        return 0, {"m": slots.m * hyper.beta_1**steps}
