"""MARS: AdamW of gradients from which a part of their variance is removed."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, hyper, option, slot


class MARS(Definition):
    """MARS-AdamW (Yuan et al. 2024, https://arxiv.org/abs/2411.10438, algorithm 2 in its approximate form).

    corrected = grad + gamma * beta_1 / (1 - beta_1) * (grad - previous_grad);  previous_grad := grad
    corrected = corrected / max(1, norm(corrected)), over the whole variable
    m := beta_1 * m + (1 - beta_1) * corrected;  m_hat = m / (1 - beta_1^t)
    v := beta_2 * v + (1 - beta_2) * corrected^2;  v_hat = v / (1 - beta_2^t)
    var := var - learning_rate * (m_hat / (sqrt(v_hat) + epsilon) + weight_decay * var)

    previous_grad is 0 before the first update, as in the authors' code. With amsgrad, v_max := max(v_max, v) replaces
    v in the last line. The exact form of the paper takes the previous gradient again on the new batch; this one does
    not. No stock API has it.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | the authors' code           | the defaults with its optimize_1d=True. Without it, variables of one axis   |
    |                             | have AdamW(0.003, 0.9, 0.95, weight_decay=0.1): use `everstep.partition`    |

    Advice:
        For GPT-2, the authors take 10 times AdamW's learning rate for matrices, with a weight decay of 0.01. Vectors,
        such as biases and normalization, get AdamW with 5 times the rate (https://github.com/AGI-Arena/MARS).

    Args:
        learning_rate: A float, tensor, callable or schedule. Default 0.003.
        beta_1: Decay of the first moment, 0 to less than 1. Default 0.95.
        beta_2: Decay of the second moment, 0 to 1. Default 0.99.
        gamma: Strength of the correction. Default 0.025.
        epsilon: Added to the root. Default 1e-8.
        weight_decay: Each update subtracts learning_rate * weight_decay * var. Default 0.
        amsgrad: True to divide by the largest second moment so far. Default False.

    >>> import numpy
    >>> weights = numpy.zeros(2)
    >>> MARS(0.1).bind(numpy).apply_gradients([(numpy.array([3.0, -4.0]), weights)])
    >>> weights.round(4)
    array([-0.1,  0.1])
    """

    family = "Adam"
    locality = "variable"
    learning_rate = hyper(3e-3, minimum=0)
    beta_1 = hyper(0.95, minimum=0, maximum=1 - 1e-7)
    beta_2 = hyper(0.99, minimum=0, maximum=1)
    gamma = hyper(0.025, minimum=0)
    epsilon = hyper(1e-8, minimum=0)
    weight_decay = hyper(0.0, minimum=0)
    amsgrad = option(False)
    m = slot()
    v = slot()
    v_max = slot(when="amsgrad")
    previous_grad = slot()

    def update(self, ops, grad, var, slots, hyper, t):
        strength = hyper.gamma * hyper.beta_1 / (1 - hyper.beta_1)
        corrected = grad + strength * (grad - slots.previous_grad)
        corrected = corrected / ops.maximum(1, ops.sqrt(ops.sum(corrected * corrected)))
        m = hyper.beta_1 * slots.m + (1 - hyper.beta_1) * corrected
        v = hyper.beta_2 * slots.v + (1 - hyper.beta_2) * corrected * corrected
        new = {"m": m, "v": v, "previous_grad": grad}
        if self.amsgrad:
            v = new["v_max"] = ops.maximum(slots.v_max, v)
        step = m / (1 - hyper.beta_1**t) / (ops.sqrt(v / (1 - hyper.beta_2**t)) + hyper.epsilon)
        return hyper.learning_rate * (step + hyper.weight_decay * var), new
