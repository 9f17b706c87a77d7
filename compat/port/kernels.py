"""The fused kernels of TensorFlow, as formulas. https://www.tensorflow.org/api_docs/python/tf/raw_ops"""
from __future__ import absolute_import, division, print_function

from everstep.compat.port.algebra import ops


def _fade(decay, old, new):
    return decay * old + (1 - decay) * new


def _prefers_small(value, rate, l1, l2):
    """Returns the value after a proximal step of l1 and l2."""
    size = ops.maximum(abs(value) - rate * l1, 0)
    return ops.sign(value) * size / (1 + l2 * rate)


def gradient_descent(old, v, settings):
    return {0: old(0) - v(1) * v(2)}


def adam(old, v, settings):
    return _adam(old, [v(i) for i in range(3, 10)], None, settings("use_nesterov"))


def adam_with_amsgrad(old, v, settings):
    return _adam(old, [v(i) for i in range(4, 11)], 3, False)


def _adam(old, inputs, largest, nesterov):
    power_1, power_2, rate, beta_1, beta_2, epsilon, grad = inputs
    m, second = _fade(beta_1, old(1), grad), _fade(beta_2, old(2), grad * grad)
    new, root = {1: m, 2: second}, second
    if largest is not None:
        root = new[largest] = ops.maximum(old(largest), second)
    rate = rate * ops.sqrt(1 - power_2) / (1 - power_1)
    new[0] = old(0) - rate * (_fade(beta_1, m, grad) if nesterov else m) / (ops.sqrt(root) + epsilon)
    return new


def momentum(old, v, settings):
    rate, grad, factor = v(2), v(3), v(4)
    velocity = factor * old(1) + grad
    return {1: velocity, 0: old(0) - rate * (grad + factor * velocity if settings("use_nesterov") else velocity)}


def keras_momentum(old, v, settings):
    rate, grad, factor = v(2), v(3), v(4)
    velocity = factor * old(1) - rate * grad
    return {1: velocity, 0: old(0) + (factor * velocity - rate * grad if settings("use_nesterov") else velocity)}


def rms_prop(old, v, settings):
    return _rms_prop(old, [v(i) for i in range(3, 8)], 1, 2, None)


def centered_rms_prop(old, v, settings):
    return _rms_prop(old, [v(i) for i in range(4, 9)], 2, 3, 1)


def _rms_prop(old, inputs, squares, velocity, mean):
    rate, rho, factor, epsilon, grad = inputs
    second = _fade(rho, old(squares), grad * grad)
    new, below = {squares: second}, second
    if mean is not None:
        new[mean] = _fade(rho, old(mean), grad)
        below = second - new[mean] * new[mean]
    new[velocity] = factor * old(velocity) + rate * grad / ops.sqrt(below + epsilon)
    new[0] = old(0) - new[velocity]
    return new


def ftrl(old, v, settings):
    return _ftrl(old, v(3), [v(i) for i in range(3, 8)])


def ftrl_v2(old, v, settings):
    return _ftrl(old, v(3) + 2 * v(7) * old(0), [v(i) for i in (3, 4, 5, 6, 8)])


def _ftrl(old, pulled, inputs):
    grad, rate, l1, l2, power = inputs
    squares = old(1) + grad * grad
    after, before = squares ** -power, old(1) ** -power
    linear = old(2) + pulled - (after - before) / rate * old(0)
    new = (l1 * ops.sign(linear) - linear) / (after / rate + 2 * l2)
    return {1: squares, 2: linear, 0: ops.where(abs(linear) > l1, new, 0)}


def add_sign(old, v, settings):
    rate, alpha, decay, beta, grad = [v(i) for i in range(2, 7)]
    m = _fade(beta, old(1), grad)
    return {1: m, 0: old(0) - rate * (alpha + decay * (ops.sign(grad) * ops.sign(m))) * grad}


def power_sign(old, v, settings):
    rate, logarithm, decay, beta, grad = [v(i) for i in range(2, 7)]
    m = _fade(beta, old(1), grad)
    return {1: m, 0: old(0) - rate * ops.exp(logarithm * decay * (ops.sign(grad) * ops.sign(m))) * grad}


def ada_max(old, v, settings):
    power, rate, beta_1, beta_2, epsilon, grad = [v(i) for i in range(3, 9)]
    m, largest = _fade(beta_1, old(1), grad), ops.maximum(beta_2 * old(2), abs(grad))
    return {1: m, 2: largest, 0: old(0) - rate / (1 - power) * (m / (largest + epsilon))}


def adadelta(old, v, settings):
    rate, rho, epsilon, grad = [v(i) for i in range(3, 7)]
    squares = _fade(rho, old(1), grad * grad)
    change = ops.sqrt(old(2) + epsilon) / ops.sqrt(squares + epsilon) * grad
    return {1: squares, 2: _fade(rho, old(2), change * change), 0: old(0) - rate * change}


def adagrad(old, v, settings):
    return _adagrad(old, v(2), v(3), 0, settings)


def adagrad_v2(old, v, settings):
    return _adagrad(old, v(2), v(4), v(3), settings)


def _adagrad(old, rate, grad, epsilon, settings):
    squares = old(1) if settings("update_slots") is False else old(1) + grad * grad
    return {1: squares, 0: old(0) - rate * grad / (ops.sqrt(squares) + epsilon)}


def adagrad_da(old, v, settings):
    grad, rate, l1, l2, step = [v(i) for i in range(3, 8)]
    total, squares = old(1) + grad, old(2) + grad * grad
    shrunk = ops.sign(total) * ops.maximum(abs(total) - l1 * step, 0)
    return {1: total, 2: squares, 0: -rate * shrunk / (l2 * step * rate + ops.sqrt(squares))}


def proximal_gradient_descent(old, v, settings):
    rate, l1, l2, change = [v(i) for i in range(1, 5)]
    return {0: _prefers_small(old(0) - rate * change, rate, l1, l2)}


def proximal_adagrad(old, v, settings):
    rate, l1, l2, grad = [v(i) for i in range(2, 6)]
    squares = old(1) + grad * grad
    rate = rate / ops.sqrt(squares)
    return {1: squares, 0: _prefers_small(old(0) - rate * grad, rate, l1, l2)}


# {op without "Resource" and "Apply": (formula, number of variables that it takes first)}. A formula gets old(i), the
# value of variable i; v(i), the value of input i; settings(name), an attribute of the op; it returns {i: new value}.
KERNELS = {
    "GradientDescent": (gradient_descent, 1), "Adam": (adam, 3), "AdamWithAmsgrad": (adam_with_amsgrad, 4),
    "Momentum": (momentum, 2), "KerasMomentum": (keras_momentum, 2), "RMSProp": (rms_prop, 3),
    "CenteredRMSProp": (centered_rms_prop, 4), "Ftrl": (ftrl, 3), "FtrlV2": (ftrl_v2, 3), "AddSign": (add_sign, 2),
    "PowerSign": (power_sign, 2), "AdaMax": (ada_max, 3), "Adadelta": (adadelta, 3), "Adagrad": (adagrad, 2),
    "AdagradV2": (adagrad_v2, 2), "AdagradDA": (adagrad_da, 3),
    "ProximalGradientDescent": (proximal_gradient_descent, 1), "ProximalAdagrad": (proximal_adagrad, 2),
}
