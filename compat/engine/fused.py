"""The fused kernels of TensorFlow, and which rules they are: what `everstep.kernel(name)` may say.

One operation reads and writes a variable and its slots in one pass. A function here gives, for a rule of that name, the
operation's name without `resource_` and `sparse_`, and what its arguments are. What a kernel would work out from powers
(Adam's bias correction) is given to it worked out: the powers are 0 and the rate is one number for the whole step.
"""
from __future__ import absolute_import, division, print_function

from collections import namedtuple

# operation: without prefixes; slots: {argument: our slot}; scalars: a function of (ops, hyper, t) that gives
# {argument: step-wide value}; settings: attributes; by_rows: whether there is one for rows, `sparse_` before its name;
# grad: what the argument of the gradient is called; decay: a function of hyper for what is taken off the variable
# before, times itself; None where there is nothing; since: the first TensorFlow in which it does what its rule says.
Kernel = namedtuple("Kernel", "operation slots scalars settings by_rows grad decay since")


def _kernel(operation, slots, scalars, settings=(), by_rows=False, grad="grad", since="1.4"):
    return Kernel(operation, slots, scalars, dict(settings), by_rows, grad, None, since)


def _hypers(**names):
    """The `scalars` where each argument is a hyper."""
    return lambda ops, hyper, t: {argument: getattr(hyper, name) for argument, name in names.items()}


def _adam(rule, given):
    def scalars(ops, hyper, t):
        rate = hyper.learning_rate * ops.sqrt(1 - hyper.beta_2**t) / (1 - hyper.beta_1**t)
        return dict(moments(ops, hyper, t), lr=rate, beta1_power=0.0, beta2_power=0.0)

    moments = _hypers(beta1="beta_1", beta2="beta_2", epsilon="epsilon")
    if getattr(rule, "amsgrad", False):
        return _kernel("apply_adam_with_amsgrad", dict(m="m", v="v", vhat="v_hat"), scalars)
    return _kernel("apply_adam", dict(m="m", v="v"), scalars)


def _nadam(rule, given):
    if rule.momentum_schedule:
        return None  # the kernel has the momentum of every step alike
    return _adam(rule, given)._replace(settings={"use_nesterov": True})


def _adamax(rule, given):
    def scalars(ops, hyper, t):
        return dict(moments(ops, hyper, t), lr=hyper.learning_rate / (1 - hyper.beta_1**t), beta1_power=0.0)

    moments = _hypers(beta1="beta_1", beta2="beta_2", epsilon="epsilon")
    return _kernel("apply_ada_max", dict(m="m", v="u"), scalars)


def _sgd(rule, given):
    if not rule.has_slot("velocity"):
        return _kernel("apply_gradient_descent", {}, _hypers(alpha="learning_rate"), grad="delta")
    name = "apply_keras_momentum" if rule.rate_in_velocity else "apply_momentum"
    scalars = _hypers(lr="learning_rate", momentum="momentum")
    return _kernel(name, dict(accum="velocity"), scalars, {"use_nesterov": rule.nesterov}, by_rows=True)


def _adagrad(rule, given):
    slots = dict(accum="accumulator")
    if given("epsilon") == 0:
        return _kernel("apply_adagrad", slots, _hypers(lr="learning_rate"), by_rows=True)
    if rule.epsilon_in_root:
        return None
    return _kernel("apply_adagrad_v2", slots, _hypers(lr="learning_rate", epsilon="epsilon"), by_rows=True)


def _adadelta(rule, given):
    slots = dict(accum="mean_square", accum_update="mean_square_step")
    scalars = _hypers(lr="learning_rate", rho="rho", epsilon="epsilon")
    # TF 1.4 takes the new mean of squared steps for the step itself; measured there and in 1.8, where it is right.
    return _kernel("apply_adadelta", slots, scalars, by_rows=True, since="1.8")


def _rmsprop(rule, given):
    if not rule.has_slot("velocity") or rule.epsilon_in_root is False:
        return None  # the kernels keep a velocity, and have epsilon in the root
    slots, scalars = dict(ms="mean_square", mom="velocity"), _hypers(
        lr="learning_rate", rho="rho", momentum="momentum", epsilon="epsilon"
    )
    if rule.centered:
        return _kernel("apply_centered_rms_prop", dict(slots, mg="mean_grad"), scalars, by_rows=True)
    return _kernel("apply_rms_prop", slots, scalars, by_rows=True)


def _ftrl(rule, given):
    def scalars(ops, hyper, t):
        l2 = hyper.l2 + hyper.beta / (2 * hyper.learning_rate)
        return dict(strengths(ops, hyper, t), l2=l2)

    hypers = dict(lr="learning_rate", l1="l1", lr_power="learning_rate_power")
    name, since = "apply_ftrl", "1.4"
    if given("l2_shrinkage") != 0:
        # TF 1.4 and 1.8 add the square of the shrunk gradient up, and 2.4 keeps `linear` times the rate; 2.8 is right.
        name, since, hypers = "apply_ftrl_v2", "2.8", dict(hypers, l2_shrinkage="l2_shrinkage")
    strengths = _hypers(**hypers)
    return _kernel(name, dict(accum="accumulator", linear="linear"), scalars, by_rows=True, since=since)


def _proximal_adagrad(rule, given):
    scalars = _hypers(lr="learning_rate", l1="l1", l2="l2")
    return _kernel("apply_proximal_adagrad", dict(accum="accumulator"), scalars, by_rows=True)


def _addsign(rule, given):
    scalars = _hypers(lr="learning_rate", alpha="alpha", sign_decay="sign_decay", beta="beta")
    return _kernel("apply_add_sign", dict(m="m"), scalars)


def _powersign(rule, given):
    def scalars(ops, hyper, t):
        return dict(others(ops, hyper, t), logbase=ops.log(hyper.power_base))

    others = _hypers(lr="learning_rate", sign_decay="sign_decay", beta="beta")
    return _kernel("apply_power_sign", dict(m="m"), scalars)


def _decoupled(function):
    """The same with decoupled weight decay, which is taken off the variable before."""

    def decayed(rule, given):
        found = function(rule, given)
        return found and found._replace(by_rows=False, decay=rule.share)

    return decayed


# {name: function of (rule, given)}; `given(name)` is the number that a hyper has for good, None where it can change.
KERNELS = dict(
    adadelta=_adadelta, adagrad=_adagrad, adam=_adam, adamax=_adamax, adamw=_decoupled(_adam), addsign=_addsign,
    ftrl=_ftrl, nadam=_nadam, nadamw=_decoupled(_nadam), powersign=_powersign, proximal_adagrad=_proximal_adagrad,
    rmsprop=_rmsprop, sgd=_sgd, sgdw=_decoupled(_sgd),
)
