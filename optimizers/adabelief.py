"""AdaBelief: Adam that divides by the distance between gradients and their moving average."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import geometric, hyper, option
from everstep.optimizers.radam import RAdam


class AdaBelief(RAdam):
    """AdaBelief (Zhuang et al. 2020, https://arxiv.org/abs/2010.07468, algorithm 2).

    m := beta_1 * m + (1 - beta_1) * grad;  m_hat = m / (1 - beta_1^t)
    v := beta_2 * v + (1 - beta_2) * (grad - m)^2 + epsilon;  root = sqrt(v / (1 - beta_2^t)) + epsilon
    With rectify: direction = r * m_hat / root if length >= sma_threshold else m_hat
    Without rectify: direction = m_hat / root
    var := var - learning_rate * (direction + weight_decay * var)

    r and length are those of RAdam. With amsgrad, v_hat := max(v_hat, v) replaces v in the root. Defaults are those of
    TensorFlow Addons. For its built-in warm-up, give learning_rate a schedule.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | TensorFlow Addons           | the defaults                                                                |
    | the paper                   | rectify=False, epsilon=1e-8                                                 |
    | the authors' code           | epsilon=1e-16, corrected_root=False (it ignores amsgrad there);             |
    |                             | with its rectify=False: epsilon=1e-16, rectify=False, corrected_root=True   |

    Advice:
        An epsilon of x^2 acts here about as x does in Adam. The authors advise a large epsilon (1e-8 to 1e-10) for
        tasks on which SGD beats Adam, such as image recognition, and a small one (1e-12 to 1e-16) for tasks on which
        Adam beats SGD, such as GANs (https://github.com/juntang-zhuang/Adabelief-Optimizer).

    Args:
        learning_rate: A float, tensor, callable or schedule. Default 0.001.
        beta_1: Decay of the first moment, 0 to 1. Default 0.9.
        beta_2: Decay of the second moment, 0 to 1. Default 0.999.
        epsilon: Added to the second moment and to its root. Default 1e-14.
        weight_decay: Each update subtracts learning_rate * weight_decay * var. Default 0.
        amsgrad: True to divide by the largest second moment so far. Default False.
        sma_threshold: As in RAdam. Default 5.
        corrected_root: True to add epsilon to the bias-corrected root, False to add it to sqrt(v). Default True.
        rectify: True to rectify the step as RAdam does. Default True.

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

    max_replay_steps = 200  # type: ignore[assignment]  # v takes the square of the moving m

    def fast_forward(self, ops, var, slots, hyper, steps):
        share = hyper.learning_rate * hyper.weight_decay
        left = steps.product(hyper.beta_2)
        new = {"m": slots.m * steps.product(hyper.beta_1), "v": slots.v * left}
        new["v"] = new["v"] + hyper.epsilon * geometric(ops, hyper.beta_2, steps)
        if self.amsgrad:
            new["v_hat"] = ops.maximum(slots.v_hat, new["v"])
        return steps.decay(share) * var, new
