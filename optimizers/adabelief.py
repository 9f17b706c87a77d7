"""AdaBelief: Adam that divides by how far gradients are from what the momentum foretold."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import geometric, hyper, option
from everstep.optimizers.radam import RAdam


class AdaBelief(RAdam):
    """AdaBelief (Zhuang et al. 2020, arXiv:2010.07468, algorithm 2).

    m := beta_1 * m + (1 - beta_1) * grad;  m_hat = m / (1 - beta_1^t)
    v := beta_2 * v + (1 - beta_2) * (grad - m)^2 + epsilon;  root = sqrt(v / (1 - beta_2^t)) + epsilon
    direction = m_hat / root, or with rectify as in RAdam r * m_hat / root or m_hat
    var := var - learning_rate * (direction + weight_decay * var)

    With amsgrad v is replaced in the root by v_hat := max(v_hat, v). Defaults are those of TensorFlow Addons; its
    warm-up is a schedule here.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | TensorFlow Addons           | the defaults                                                                |
    | the paper                   | rectify=False, epsilon=1e-8                                                 |
    | the authors' code           | epsilon=1e-16, corrected_root=False (which there goes without amsgrad), or  |
    |                             | with its rectify=False corrected_root=True                                  |

    Args:
        learning_rate: float, tensor, callable or schedule; 0.001.
        beta_1: decay of the first moment, 0 to 1; 0.9.
        beta_2: decay of the second moment, 0 to 1; 0.999.
        epsilon: added to the second moment and to its root; 1e-14.
        weight_decay: the share of the variable, times the rate, that is taken off; 0.
        amsgrad: False.
        sma_threshold: as in RAdam; 5.
        corrected_root: whether epsilon is added to the bias-corrected root, or to sqrt(v); True.
        rectify: as RAdam does; True.

    >>> import numpy
    >>> weights = numpy.zeros(1)
    >>> AdaBelief(0.1, rectify=False).bind(numpy).apply_gradients([(numpy.array([3.0]), weights)])
    >>> weights.round(4)  # -0.1 * 3 / (3 - 0.3)
    array([-0.1111])
    """

    epsilon = hyper(1e-14, minimum=0)
    rectify = option(True)

    def second_moment(self, grad, m, v, hyper):
        return super(AdaBelief, self).second_moment(grad - m, m, v, hyper) + hyper.epsilon

    def direction(self, ops, m_hat, root, hyper):
        return super(AdaBelief, self).direction(ops, m_hat, root, hyper) if self.rectify else m_hat / root

    def fast_forward(self, ops, var, slots, hyper, steps):
        change, new = super(AdaBelief, self).fast_forward(ops, var, slots, hyper, steps)
        new["v"] = new["v"] + hyper.epsilon * geometric(ops, hyper.beta_2, steps)
        if self.amsgrad:
            new["v_hat"] = ops.maximum(slots.v_hat, new["v"])
        return change, new
