"""Adam and AMSGrad."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, hyper, kernel, option, slot


class Adam(Definition):
    """Adam (Kingma & Ba 2015, https://arxiv.org/abs/1412.6980, the efficient form at the end of section 2).

    m := beta_1 * m + (1 - beta_1) * grad
    v := beta_2 * v + (1 - beta_2) * grad^2
    rate = learning_rate * sqrt(1 - beta_2^t) / (1 - beta_1^t)
    var := var - rate * m / (sqrt(v) + epsilon)

    With amsgrad (Reddi et al. 2018, https://arxiv.org/abs/1904.09237), v_hat := max(v_hat, v) replaces v in the last
    line. As in stock optimizers, it is the maximum of the uncorrected v. Epsilon is the paper's "epsilon hat", as in
    all stock versions. Without bias_correction, as in BERT, rate = learning_rate.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | tf.train Adam               | the defaults; stock default: epsilon=1e-08                                  |
    | tf.contrib.opt LazyAdam,    | sparse="rows"; stock default: epsilon=1e-08                                 |
    |   torch.optim SparseAdam    |                                                                             |
    | tf.contrib.opt AdamGS       | the defaults; stock default: epsilon=1e-08; its global_step is the count of |
    |                             | updates                                                                     |
    | tf.contrib.opt LazyAdamGS   | sparse="rows"; stock default: epsilon=1e-08; its global_step is the count   |
    |                             | of updates                                                                  |
    | OptimizerV2, Keras 2.0 to   | the defaults                                                                |
    |   2.3, new-style Keras,     |                                                                             |
    |   Keras 3                   |                                                                             |
    | torch.optim                 | corrected_root=True; stock default: epsilon=1e-08; its weight_decay is      |
    |                             | everstep.l2_penalty                                                         |
    | AdamWeightDecayOptimizer of | bias_correction=False, in everstep.decoupled_weight_decay; stock default:   |
    |   BERT                      | epsilon=1e-06                                                               |

    Advice:
        The default epsilon does not suit every model: for Inception on ImageNet, TensorFlow's documentation advises 1.0
        or 0.1 (https://www.tensorflow.org/api_docs/python/tf/keras/optimizers/Adam). The default is 1e-8 in tf.train
        and 1e-7 in Keras. For weight decay use AdamW: an L2 penalty in the loss is not the same in Adam
        (https://arxiv.org/abs/1711.05101).

    Args:
        learning_rate: A float, tensor, callable or schedule, of any sign. Default 0.001.
        beta_1: Decay of the first moment, 0 to 1. Default 0.9.
        beta_2: Decay of the second moment, 0 to 1. Default 0.999.
        epsilon: Added to the root. Default 1e-7.
        amsgrad: True to divide by the largest second moment so far. Default False.
        bias_correction: False to leave out the correction of the moments, which start at 0. Default True.
        corrected_root: True to add epsilon to the bias-corrected root sqrt(v / (1 - beta_2^t)), as algorithm 1 of the
            paper and torch do. Default False.

    >>> import numpy
    >>> weights = numpy.zeros(2)
    >>> Adam(0.1).bind(numpy).apply_gradients([(numpy.array([3.0, -0.5]), weights)])
    >>> weights.round(4)
    array([-0.1,  0.1])
    """

    family = "Adam"
    kernel = kernel("adam")
    learning_rate = hyper(1e-3)
    beta_1 = hyper(0.9, minimum=0, maximum=1)
    beta_2 = hyper(0.999, minimum=0, maximum=1)
    epsilon = hyper(1e-7, minimum=0)
    amsgrad = option(False)
    bias_correction = option(True)
    corrected_root = option(False)
    without_position = ("corrected_root",)
    m = slot()
    v = slot()
    v_hat = slot(when="amsgrad")

    def update(self, ops, grad, var, slots, hyper, t):
        m = hyper.beta_1 * slots.m + (1 - hyper.beta_1) * grad
        v = hyper.beta_2 * slots.v + (1 - hyper.beta_2) * grad * grad
        rate = self._rate(ops, hyper, t)
        new = {"m": m, "v": v}
        if self.amsgrad:
            v = new["v_hat"] = ops.maximum(slots.v_hat, v)
        epsilon = hyper.epsilon
        if self.corrected_root and self.bias_correction:
            epsilon = epsilon * ops.sqrt(1 - hyper.beta_2**t)
        return rate * m / (ops.sqrt(v) + epsilon), new

    def _rate(self, ops, hyper, t):
        if not self.bias_correction:
            return hyper.learning_rate
        return hyper.learning_rate * ops.sqrt(1 - hyper.beta_2**t) / (1 - hyper.beta_1**t)

    max_replay_steps = 0

    def fast_forward(self, ops, var, slots, hyper, steps):
        t, left_1, left_2 = hyper.updates + 1, steps.product(hyper.beta_1), steps.product(hyper.beta_2)
        rate = left_1 * self._rate(ops, hyper, t)
        new = {"m": slots.m * left_1, "v": slots.v * left_2}
        fades = hyper.beta_1, ops.sqrt(hyper.beta_2)
        if self.corrected_root and self.bias_correction:
            root, left, scale = slots.v, ops.sqrt(left_2), ops.sqrt(1 - hyper.beta_2**t)
            if self.amsgrad:
                root, left, fades, new["v_hat"] = slots.v_hat, 1.0, (hyper.beta_1, 1.0), slots.v_hat
            return slots.m * steps.quotient(rate, left, ops.sqrt(root), hyper.epsilon, *fades, scale=scale), new
        if self.amsgrad:
            new["v_hat"] = slots.v_hat
            root = ops.maximum(ops.sqrt(slots.v_hat) + hyper.epsilon, 1e-30)
            return slots.m * steps.sum(rate, hyper.beta_1) / root, new
        return slots.m * steps.quotient(rate, ops.sqrt(left_2), ops.sqrt(slots.v), hyper.epsilon, *fades), new
