"""The fused kernels of TensorFlow, as formulas. https://www.tensorflow.org/api_docs/python/tf/raw_ops"""
from __future__ import absolute_import, division, print_function

from everstep.compat.port.expressions import ONE, TWO, ZERO, build


def add(a, b):
    return build("add", a, b)


def sub(a, b):
    return build("subtract", a, b)


def mul(a, b):
    return build("multiply", a, b)


def div(a, b):
    return build("divide", a, b)


def sqrt(a):
    return build("sqrt", a)


def _fade(decay, old, new):
    return add(mul(decay, old), mul(sub(ONE, decay), new))


def _prefers_small(value, rate, l1, l2):
    """Returns the value after a proximal step of l1 and l2."""
    size = build("maximum", sub(build("abs", value), mul(rate, l1)), ZERO)
    return div(mul(build("sign", value), size), add(ONE, mul(l2, rate)))


def gradient_descent(old, v, settings):
    return {0: sub(old(0), mul(v(1), v(2)))}


def adam(old, v, settings):
    return _adam(old, [v(i) for i in range(3, 10)], None, settings("use_nesterov"))


def adam_with_amsgrad(old, v, settings):
    return _adam(old, [v(i) for i in range(4, 11)], 3, False)


def _adam(old, inputs, largest, nesterov):
    power_1, power_2, rate, beta_1, beta_2, epsilon, grad = inputs
    m, second = _fade(beta_1, old(1), grad), _fade(beta_2, old(2), mul(grad, grad))
    new, root = {1: m, 2: second}, second
    if largest is not None:
        root = new[largest] = build("maximum", old(largest), second)
    rate = div(mul(rate, sqrt(sub(ONE, power_2))), sub(ONE, power_1))
    new[0] = sub(old(0), div(mul(rate, _fade(beta_1, m, grad) if nesterov else m), add(sqrt(root), epsilon)))
    return new


def momentum(old, v, settings):
    rate, grad, factor = v(2), v(3), v(4)
    velocity = add(mul(factor, old(1)), grad)
    step = add(grad, mul(factor, velocity)) if settings("use_nesterov") else velocity
    return {1: velocity, 0: sub(old(0), mul(rate, step))}


def keras_momentum(old, v, settings):
    rate, grad, factor = v(2), v(3), v(4)
    velocity = sub(mul(factor, old(1)), mul(rate, grad))
    step = sub(mul(factor, velocity), mul(rate, grad)) if settings("use_nesterov") else velocity
    return {1: velocity, 0: add(old(0), step)}


def rms_prop(old, v, settings):
    return _rms_prop(old, [v(i) for i in range(3, 8)], 1, 2, None)


def centered_rms_prop(old, v, settings):
    return _rms_prop(old, [v(i) for i in range(4, 9)], 2, 3, 1)


def _rms_prop(old, inputs, squares, velocity, mean):
    rate, rho, factor, epsilon, grad = inputs
    second = _fade(rho, old(squares), mul(grad, grad))
    new, below = {squares: second}, second
    if mean is not None:
        new[mean] = _fade(rho, old(mean), grad)
        below = sub(second, mul(new[mean], new[mean]))
    new[velocity] = add(mul(factor, old(velocity)), div(mul(rate, grad), sqrt(add(below, epsilon))))
    new[0] = sub(old(0), new[velocity])
    return new


def ftrl(old, v, settings):
    return _ftrl(old, [v(i) for i in range(3, 8)], None)


def ftrl_v2(old, v, settings):
    return _ftrl(old, [v(i) for i in (3, 4, 5, 6, 8)], v(7))


def _ftrl(old, inputs, shrinkage):
    grad, rate, l1, l2, power = inputs
    if shrinkage is None:
        pulled = grad
    else:
        pulled = add(grad, mul(mul(TWO, shrinkage), old(0)))
    squares = add(old(1), mul(grad, grad))
    power = build("negative", power)
    after, before = build("pow", squares, power), build("pow", old(1), power)
    linear = sub(add(old(2), pulled), mul(div(sub(after, before), rate), old(0)))
    curvature = add(div(after, rate), mul(TWO, l2))
    beyond = build("greater", build("abs", linear), l1)
    new = build("where", beyond, div(sub(mul(l1, build("sign", linear)), linear), curvature), ZERO)
    return {1: squares, 2: linear, 0: new}


def add_sign(old, v, settings):
    rate, alpha, decay, beta, grad = [v(i) for i in range(2, 7)]
    m = _fade(beta, old(1), grad)
    factor = add(alpha, mul(decay, mul(build("sign", grad), build("sign", m))))
    return {1: m, 0: sub(old(0), mul(mul(rate, factor), grad))}


def power_sign(old, v, settings):
    rate, logarithm, decay, beta, grad = [v(i) for i in range(2, 7)]
    m = _fade(beta, old(1), grad)
    factor = build("exp", mul(mul(logarithm, decay), mul(build("sign", grad), build("sign", m))))
    return {1: m, 0: sub(old(0), mul(mul(rate, factor), grad))}


def ada_max(old, v, settings):
    power, rate, beta_1, beta_2, epsilon, grad = [v(i) for i in range(3, 9)]
    m, largest = _fade(beta_1, old(1), grad), build("maximum", mul(beta_2, old(2)), build("abs", grad))
    change = mul(div(rate, sub(ONE, power)), div(m, add(largest, epsilon)))
    return {1: m, 2: largest, 0: sub(old(0), change)}


def adadelta(old, v, settings):
    rate, rho, epsilon, grad = [v(i) for i in range(3, 7)]
    squares = _fade(rho, old(1), mul(grad, grad))
    change = mul(div(sqrt(add(old(2), epsilon)), sqrt(add(squares, epsilon))), grad)
    return {1: squares, 2: _fade(rho, old(2), mul(change, change)), 0: sub(old(0), mul(rate, change))}


def adagrad(old, v, settings):
    return _adagrad(old, v(2), v(3), None, settings)


def adagrad_v2(old, v, settings):
    return _adagrad(old, v(2), v(4), v(3), settings)


def _adagrad(old, rate, grad, epsilon, settings):
    squares = add(old(1), mul(grad, grad)) if settings("update_slots") is not False else old(1)
    root = sqrt(squares) if epsilon is None else add(sqrt(squares), epsilon)
    return {1: squares, 0: sub(old(0), div(mul(rate, grad), root))}


def adagrad_da(old, v, settings):
    grad, rate, l1, l2, step = [v(i) for i in range(3, 8)]
    total, squares = add(old(1), grad), add(old(2), mul(grad, grad))
    limit = mul(l1, step)
    shrunk = mul(build("sign", total), build("maximum", sub(build("abs", total), limit), ZERO))
    below = add(mul(mul(l2, step), rate), sqrt(squares))
    return {1: total, 2: squares, 0: div(mul(build("negative", rate), shrunk), below)}


def proximal_gradient_descent(old, v, settings):
    rate, l1, l2, change = [v(i) for i in range(1, 5)]
    return {0: _prefers_small(sub(old(0), mul(rate, change)), rate, l1, l2)}


def proximal_adagrad(old, v, settings):
    rate, l1, l2, grad = [v(i) for i in range(2, 6)]
    squares = add(old(1), mul(grad, grad))
    rate = div(rate, sqrt(squares))
    return {1: squares, 0: _prefers_small(sub(old(0), mul(rate, grad)), rate, l1, l2)}


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
