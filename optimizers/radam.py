"""RAdam: Adam whose step is rectified while the second moment rests on few gradients."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, hyper, option, scalar, slot


class RAdam(Definition):
    """Rectified Adam (Liu et al. 2020, https://arxiv.org/abs/1908.03265, algorithm 2).

    m := beta_1 * m + (1 - beta_1) * grad;  m_hat = m / (1 - beta_1^t)
    v := beta_2 * v + (1 - beta_2) * grad^2;  root = sqrt(v / (1 - beta_2^t)) + epsilon
    longest = 2 / (1 - beta_2) - 1;  length = longest - 2 * t * beta_2^t / (1 - beta_2^t)
    r = sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length))
    direction = r * m_hat / root if length >= sma_threshold else m_hat
    var := var - learning_rate * (direction + weight_decay * var)

    In float32 this form of length loses all its digits (1999 - 1998 at first, with the defaults). It is therefore
    computed as 2 * ages_sum / weights_sum - 1, which is equal. All variables share these two scalars:
    weights_sum := 1 + beta_2 * weights_sum;  ages_sum := weights_sum + beta_2 * ages_sum.
    TensorFlow Addons computes the first form in the variable's dtype, so its result is off by 1e-5. For its built-in
    warm-up, give learning_rate a schedule.

    With amsgrad, v_hat := max(v_hat, v) replaces v in the root. The threshold is 4 in the paper and 5 in the authors'
    code. Defaults are those of TensorFlow Addons.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | torch.optim                 | corrected_root=False; stock default: epsilon=1e-08; its weight_decay is     |
    |                             | everstep.l2_penalty                                                         |
    | TensorFlow Addons           | the defaults                                                                |
    | torch, the authors' code    | corrected_root=False, epsilon=1e-8                                          |

    Advice:
        Needs no warm-up of the learning rate: the rectification takes its place (the point of the paper). Otherwise use
        the settings of Adam.

    Args:
        learning_rate: A float, tensor, callable or schedule. Default 0.001.
        beta_1: Decay of the first moment, 0 to 1. Default 0.9.
        beta_2: Decay of the second moment, 0 to 1. Default 0.999.
        epsilon: Added to the root. Default 1e-7.
        weight_decay: Each update subtracts learning_rate * weight_decay * var. Default 0.
        amsgrad: True to divide by the largest second moment so far. Default False.
        sma_threshold: The least length at which the second moment is used, at least 4. Default 5.
        corrected_root: True to add epsilon to the bias-corrected root, False to add it to sqrt(v). Default True.

    >>> import numpy
    >>> weights = numpy.zeros(1)
    >>> RAdam(0.1).bind(numpy).apply_gradients([(numpy.array([3.0]), weights)])
    >>> weights.round(4)  # the first update does not divide by the second moment
    array([-0.3])
    """

    family = "Adam"
    learning_rate = hyper(1e-3, minimum=0)
    beta_1 = hyper(0.9, minimum=0, maximum=1)
    beta_2 = hyper(0.999, minimum=0, maximum=1)
    epsilon = hyper(1e-7, minimum=0)
    weight_decay = hyper(0.0, minimum=0)
    amsgrad = option(False)
    sma_threshold = hyper(5.0, minimum=4)
    corrected_root = option(True)
    m = slot()
    v = slot()
    v_hat = slot(when="amsgrad")
    weights_sum = scalar()
    ages_sum = scalar()

    def advance(self, ops, scalars, hyper, t):
        weights = 1 + hyper.beta_2 * scalars.weights_sum
        return {"weights_sum": weights, "ages_sum": weights + hyper.beta_2 * scalars.ages_sum}

    def second_moment(self, grad, m, v, hyper):
        return hyper.beta_2 * v + (1 - hyper.beta_2) * grad * grad

    def direction(self, ops, m_hat, root, hyper):
        longest, length = 2 / (1 - hyper.beta_2) - 1, 2 * hyper.ages_sum / hyper.weights_sum - 1
        square = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
        return ops.where(length >= hyper.sma_threshold, ops.sqrt(ops.maximum(square, 0)) * m_hat / root, m_hat)

    def update(self, ops, grad, var, slots, hyper, t):
        m = hyper.beta_1 * slots.m + (1 - hyper.beta_1) * grad
        v = self.second_moment(grad, m, slots.v, hyper)
        new = {"m": m, "v": v}
        if self.amsgrad:
            v = new["v_hat"] = ops.maximum(slots.v_hat, v)
        correction = ops.sqrt(1 - hyper.beta_2**t)
        corrected = self.corrected_root
        root = ops.sqrt(v) / correction + hyper.epsilon if corrected else (ops.sqrt(v) + hyper.epsilon) / correction
        direction = self.direction(ops, m / (1 - hyper.beta_1**t), root, hyper)
        return hyper.learning_rate * (direction + hyper.weight_decay * var), new

    max_replay_steps = 0

    def fast_forward(self, ops, var, slots, hyper, steps):
        left_1, left_2 = steps.product(hyper.beta_1), steps.product(hyper.beta_2)
        new = {"m": slots.m * left_1, "v": slots.v * left_2}
        share = hyper.learning_rate * hyper.weight_decay
        decay, steps = steps.decay(share), steps.decayed(share)
        t = hyper.updates + 1
        rate = left_1 * hyper.learning_rate / (1 - hyper.beta_1**t)
        # direction = rectified * m_hat / root + plain * m_hat, of which one is 0
        factor = self.direction(ops, 1.0, 1.0, hyper)
        is_plain = 2 * hyper.ages_sum / hyper.weights_sum - 1 < hyper.sma_threshold
        correction, square, shrink = ops.sqrt(1 - hyper.beta_2**t), slots.v, ops.sqrt(hyper.beta_2)
        rectified, left = ops.where(is_plain, 0, factor) * rate, ops.sqrt(left_2)
        if self.amsgrad:
            square, left, shrink, new["v_hat"] = slots.v_hat, 1.0, 1.0, slots.v_hat
        weight, scale = rectified * correction, correction if self.corrected_root else 1.0
        change = steps.quotient(weight, left, ops.sqrt(square), hyper.epsilon, hyper.beta_1, shrink, scale)
        change = change + steps.sum(ops.where(is_plain, rate, 0), hyper.beta_1)
        return slots.m * change + decay * var, new
