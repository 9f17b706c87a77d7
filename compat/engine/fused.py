"""Maps rules to TensorFlow's fused kernels: the names that `everstep.kernel(name)` takes.

A fused kernel reads and writes a variable and its slots in one pass. Each function here returns the `Kernel` of a rule:
the operation and its arguments. A kernel that corrects bias by powers (Adam) gets powers of 0 and a learning rate that
is corrected already, one number for the whole step.
"""
from __future__ import absolute_import, division, print_function

from collections import namedtuple

# operation: its name, without the prefixes `resource_` and `sparse_`.
# slots: {argument: slot of the rule}.
# scalars: a function of (ops, hyper, t) that returns {argument: step-wide value}.
# settings: {attribute: value}.
# by_rows: whether the operation also exists for rows, with the prefix `sparse_`.
# grad: the gradient's argument.
# decay: a function of hyper that returns the share of the variable to subtract before the kernel runs, or None.
# since: the first TensorFlow version in which the operation computes what the rule does.
# grad_factor: a function of hyper that returns what the gradient is multiplied by, or None.
# instead: a `Kernel` for where the operation does not exist, or None.
# in_xla: whether XLA can compile the operation, in a function with jit_compile=True.
Kernel = namedtuple("Kernel", "operation slots scalars settings by_rows grad decay since grad_factor instead in_xla")


def _kernel(operation, slots, scalars, settings=(), by_rows=False, grad="grad", since="1.4", in_xla=True):
    return Kernel(operation, slots, scalars, dict(settings), by_rows, grad, None, since, None, None, in_xla)


def _hypers(**names):
    """Returns `scalars` for arguments that are hypers: {argument: hyper}."""
    return lambda ops, hyper, t: {argument: getattr(hyper, name) for argument, name in names.items()}


def _adam(rule, fixed_value):
    def scalars(ops, hyper, t):
        rate = hyper.learning_rate
        epsilon = hyper.epsilon
        if getattr(rule, "bias_correction", True):
            correction = ops.sqrt(1 - hyper.beta_2**t)
            rate = rate * correction / (1 - hyper.beta_1**t)
            epsilon = epsilon * correction if getattr(rule, "corrected_root", False) else epsilon
        return dict(moments(ops, hyper, t), lr=rate, epsilon=epsilon, beta1_power=0.0, beta2_power=0.0)

    moments = _hypers(beta1="beta_1", beta2="beta_2")
    if getattr(rule, "amsgrad", False):
        return _kernel("apply_adam_with_amsgrad", dict(m="m", v="v", vhat="v_hat"), scalars, in_xla=False)
    return _kernel("apply_adam", dict(m="m", v="v"), scalars)


def _nadam(rule, fixed_value):
    if rule.momentum_schedule:
        return None  # the kernel has the same momentum at every step
    return _adam(rule, fixed_value)._replace(settings={"use_nesterov": True})


def _adamax(rule, fixed_value):
    if rule.epsilon_in_norm:
        return None

    def scalars(ops, hyper, t):
        return dict(moments(ops, hyper, t), lr=hyper.learning_rate / (1 - hyper.beta_1**t), beta1_power=0.0)

    moments = _hypers(beta1="beta_1", beta2="beta_2", epsilon="epsilon")
    return _kernel("apply_ada_max", dict(m="m", v="u"), scalars)


def _sgd(rule, fixed_value):
    if rule.dampening:
        return None
    if not rule.has_slot("velocity"):
        return _kernel("apply_gradient_descent", {}, _hypers(alpha="learning_rate"), grad="delta")
    slots, settings = dict(accum="velocity"), {"use_nesterov": rule.nesterov}
    scalars = _hypers(lr="learning_rate", momentum="momentum")
    kernel = _kernel("apply_momentum", slots, scalars, settings, by_rows=True)
    if not rule.rate_in_velocity:
        return kernel
    # Ref variables have no KerasMomentum. It is Momentum with the rate -1 and the gradient -learning_rate * grad.
    rates = lambda ops, hyper, t: dict(scalars(ops, hyper, t), lr=-1.0)  # noqa: E731
    kernel = kernel._replace(scalars=rates, grad_factor=lambda hyper: -hyper.learning_rate)
    return _kernel("apply_keras_momentum", slots, scalars, settings, by_rows=True)._replace(instead=kernel)


def _adagrad(rule, fixed_value):
    slots = dict(accum="accumulator")
    if fixed_value("epsilon") == 0:
        return _kernel("apply_adagrad", slots, _hypers(lr="learning_rate"), by_rows=True)
    if rule.epsilon_in_root:
        return None
    return _kernel("apply_adagrad_v2", slots, _hypers(lr="learning_rate", epsilon="epsilon"), by_rows=True)


def _adadelta(rule, fixed_value):
    slots = dict(accum="mean_square", accum_update="mean_square_step")
    scalars = _hypers(lr="learning_rate", rho="rho", epsilon="epsilon")
    # TF 1.4 computes the step from the new mean of squared steps, not the old one. Measured in 1.4 and in 1.8, which is
    # right.
    return _kernel("apply_adadelta", slots, scalars, by_rows=True, since="1.8")


def _rmsprop(rule, fixed_value):
    if not rule.has_slot("velocity") or rule.epsilon_in_root is False or not rule.rate_in_velocity:
        return None  # the kernels keep a velocity with the rate, and add epsilon inside the root
    slots, scalars = dict(ms="mean_square", mom="velocity"), _hypers(
        lr="learning_rate", rho="rho", momentum="momentum", epsilon="epsilon"
    )
    if rule.centered:
        return _kernel("apply_centered_rms_prop", dict(slots, mg="mean_grad"), scalars, by_rows=True)
    return _kernel("apply_rms_prop", slots, scalars, by_rows=True)


def _ftrl(rule, fixed_value):
    def scalars(ops, hyper, t):
        l2 = hyper.l2 + hyper.beta / (2 * hyper.learning_rate)
        return dict(strengths(ops, hyper, t), l2=l2)

    hypers = dict(lr="learning_rate", l1="l1", lr_power="learning_rate_power")
    name, since = "apply_ftrl", "1.4"
    if fixed_value("l2_shrinkage") != 0:
        # TF 1.4 and 1.8 accumulate the square of the shrunk gradient. TF 2.4 stores `linear` multiplied by the learning
        # rate. TF 2.8 is right.
        name, since, hypers = "apply_ftrl_v2", "2.8", dict(hypers, l2_shrinkage="l2_shrinkage")
    strengths = _hypers(**hypers)
    return _kernel(name, dict(accum="accumulator", linear="linear"), scalars, by_rows=True, since=since)


def _proximal_adagrad(rule, fixed_value):
    scalars = _hypers(lr="learning_rate", l1="l1", l2="l2")
    return _kernel("apply_proximal_adagrad", dict(accum="accumulator"), scalars, by_rows=True)


def _proximal_gradient_descent(rule, fixed_value):
    return _kernel(
        "apply_proximal_gradient_descent", {}, _hypers(alpha="learning_rate", l1="l1", l2="l2"), grad="delta"
    )


def _addsign(rule, fixed_value):
    scalars = _hypers(lr="learning_rate", alpha="alpha", sign_decay="sign_decay", beta="beta")
    return _kernel("apply_add_sign", dict(m="m"), scalars)


def _powersign(rule, fixed_value):
    def scalars(ops, hyper, t):
        return dict(others(ops, hyper, t), logbase=ops.log(hyper.power_base))

    others = _hypers(lr="learning_rate", sign_decay="sign_decay", beta="beta")
    return _kernel("apply_power_sign", dict(m="m"), scalars)


def _decoupled(function):
    """Adds decoupled weight decay to a rule's kernel: the decay is subtracted before the kernel runs."""

    def decayed(rule, fixed_value):
        kernel = function(rule, fixed_value)
        if kernel is None:
            return None
        instead = kernel.instead and kernel.instead._replace(by_rows=False, decay=rule.share)
        return kernel._replace(by_rows=False, decay=rule.share, instead=instead)

    return decayed


# {name: function of (rule, fixed_value) that returns a Kernel, or None if none computes the rule with its options}.
# `fixed_value(name)` returns a hyper's number, or None if the hyper can change.
KERNELS = dict(
    adadelta=_adadelta, adagrad=_adagrad, adam=_adam, adamax=_adamax, adamw=_decoupled(_adam), addsign=_addsign,
    ftrl=_ftrl, nadam=_nadam, nadamw=_decoupled(_nadam), powersign=_powersign, proximal_adagrad=_proximal_adagrad,
    proximal_gradient_descent=_proximal_gradient_descent,
    rmsprop=_rmsprop, sgd=_sgd, sgdw=_decoupled(_sgd),
)
