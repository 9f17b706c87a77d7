"""Optimizers of TensorFlow Addons, Transformers and BERT that a definition computes, for `from_native`."""
from __future__ import absolute_import, division, print_function

import re
import warnings

import numpy as np

from everstep.compat.stock.entry import Stock
from everstep.compat.stock.of_torch import from_torch
from everstep.compat.stock.table import STOCK
from everstep.errors import UnsupportedError
from everstep.optimizers.adabelief import AdaBelief
from everstep.optimizers.adam import Adam
from everstep.optimizers.adamw import AdamW
from everstep.optimizers.cocob import COCOB
from everstep.optimizers.conditional_gradient import ConditionalGradient
from everstep.optimizers.contract import schedule as schedules
from everstep.optimizers.contract.declarations import REQUIRED
from everstep.optimizers.lamb import LAMB
from everstep.optimizers.novograd import NovoGrad
from everstep.optimizers.proximal_adagrad import ProximalAdagrad
from everstep.optimizers.radam import RAdam
from everstep.optimizers.sgd import SGD
from everstep.optimizers.sgdw import SGDW
from everstep.optimizers.wrappers.decoupled_weight_decay import decoupled_weight_decay
from everstep.optimizers.wrappers.lookahead import lookahead
from everstep.optimizers.wrappers.moving_average import moving_average
from everstep.optimizers.wrappers.partition import partition
from everstep.optimizers.wrappers.stochastic_weight_averaging import stochastic_weight_averaging
from everstep.optimizers.yogi import Yogi

ADDONS, TRANSFORMERS = "tensorflow_addons", "transformers"
_ADAM = dict(learning_rate=0.001, beta_1=0.9, beta_2=0.999, epsilon=1e-7)
_RECTIFIED = dict(_ADAM, weight_decay=0.0, amsgrad=False, sma_threshold=5.0)


def _addons():
    def entry(definition, native, slots, arguments, **fields):
        fields.setdefault("counters", "updates=iter")
        return Stock("optimizer_v2", native, definition, arguments, slots=slots, home="TensorFlow Addons", **fields)

    excluded = dict(exclude_from_weight_decay="", exclude_from_layer_adaptation="")
    proximal = dict(initial_accumulator_value=0.1, l1_regularization_strength=0.0, l2_regularization_strength=0.0)
    yogi = dict(proximal, learning_rate=0.01, beta1=0.9, beta2=0.999, epsilon=1e-3, initial_accumulator_value=1e-6,
                activation="sign")
    yield entry(LAMB, "LAMB", "m | v", dict(_ADAM, epsilon=1e-6, weight_decay=0.0, **excluded))
    yield entry(Adam, "LazyAdam", "m | v", _ADAM, sparse="rows")
    yield entry(AdaBelief, "AdaBelief", "m | v | v_hat=vhat", dict(_RECTIFIED, epsilon=1e-14, rectify=True),
                sparse="variable_rows",
                differs="AdaBelief of TensorFlow Addons adds epsilon only to the rows present of a sparse gradient")
    yield entry(RAdam, "RectifiedAdam", "m | v | v_hat=vhat", _RECTIFIED, sparse="variable_rows")
    yield entry(NovoGrad, "NovoGrad", "m | v. | v_hat=vhat.",
                dict(_ADAM, weight_decay=0.0, grad_averaging=False, amsgrad=False),
                differs="NovoGrad of TensorFlow Addons moves only the rows present of a sparse gradient")
    yield entry(Yogi, "Yogi", "v m", yogi, sparse="variable_rows")
    yield entry(ProximalAdagrad, "ProximalAdagrad", "accumulator", dict(proximal, learning_rate=0.001), sparse="rows")
    yield entry(ConditionalGradient, "ConditionalGradient", "conditional_gradient*",
                dict(learning_rate=REQUIRED, lambda_=0.01, epsilon=1e-7), sparse="variable_rows")
    betting = "largest=lr absolute_sum=grad_norm_sum gradient_sum=gradients_sum offset=tilde_w reward"
    yield entry(COCOB, "COCOB", betting, dict(alpha=100.0, learning_rate=1.0))
    fixed = dict(decay_times_rate=False)
    yield entry(AdamW, "AdamW", "m | v | v_hat=vhat", dict(_ADAM, amsgrad=False, weight_decay=REQUIRED), fixed=fixed)
    yield entry(SGDW, "SGDW", "velocity=momentum",
                dict(learning_rate=0.01, momentum=0.0, nesterov=False, weight_decay=REQUIRED),
                fixed=dict(fixed, rate_in_velocity=True), sparse="rows")


# {(package, class): entry}
OTHERS = {(ADDONS, entry.native): entry for entry in _addons()}


def other_entry(optimizer_class):
    """Returns the entry of a class of another package; None if it has none."""
    return OTHERS.get((package_of(optimizer_class), optimizer_class.__name__))


def package_of(optimizer_class):
    return optimizer_class.__module__.split(".")[0]


def arranged(entry, config, optimizer):
    """Returns the config of an optimizer of another package in the arguments of its entry."""
    if entry not in OTHERS.values():
        return config
    config, defaults = dict(config), entry.definition.declarations
    if config.get("ord", "fro") != "fro":
        raise UnsupportedError("ord={!r} is a constraint that no definition has; 'fro' is".format(config["ord"]))
    if "amsgrad" in entry.names:  # the config of NovoGrad lacks it
        config.setdefault("amsgrad", getattr(optimizer, "amsgrad", False))
    for theirs, ours in entry.names.items():
        if isinstance(config.get(theirs), (list, tuple)):
            config[theirs] = "|".join(config[theirs])
        if isinstance(defaults[ours].default, bool) and theirs in config:
            config[theirs] = bool(config[theirs])
    total, share = config.get("total_steps"), config.get("warmup_proportion", 0.1)
    if total:
        config["learning_rate"] = _warmed_up(config, float(total), float(share))
    return config


def _warmed_up(config, total, share):
    """Returns the schedule of Addons' built-in warm-up: at update t, rate * t / warmup_steps, then a line to min_lr."""
    rate, warmup = config["learning_rate"], total * share
    if not np.isscalar(rate):
        raise UnsupportedError("total_steps with a learning rate that is no number: give the schedule as learning_rate")
    rate, steps = _number(rate), max(total - warmup, 1.0)
    end, late = float(config.get("min_lr") or 0.0), max(1 - warmup, 0.0)  # at the first update it is that late
    line = schedules.PolynomialDecay(rate + (end - rate) * late / steps, steps - late, end, 1.0)
    if warmup <= 1:
        return line
    return schedules.Warmup(line, warmup - 1, start=rate / warmup, shift=True)


def reader_of(optimizer):
    """Returns a function that reads an optimizer of another package by other means than its entry; None if none does.

    Its arguments are the optimizer and `read(optimizer, entry=None, without=())`, which returns the definition of a
    stock optimizer, or of an optimizer as that of an entry, without some arguments of its config.
    """
    if hasattr(optimizer, "param_groups"):
        return lambda optimizer, read: from_torch(optimizer)
    optimizer_class = type(optimizer)
    package, name = package_of(optimizer_class), optimizer_class.__name__
    bases = [each.__name__ for each in optimizer_class.__mro__]
    if package == ADDONS and name in _WRAPPERS:
        return _WRAPPERS[name]
    in_contrib = package == "tensorflow" and name == "OptimizerWithDecoupledWeightDecay"
    if "DecoupledWeightDecayExtension" in bases and (package == ADDONS or in_contrib):
        return _decoupled
    if _is_average_of_contrib(optimizer):
        return _contrib_average
    if (package, name) == (TRANSFORMERS, "AdamWeightDecay"):
        return _adam_weight_decay
    if name == "AdamWeightDecayOptimizer" and _BERT_METHODS == {each for each, value in vars(optimizer_class).items()
                                                                if callable(value)}:
        return _bert
    return None


def nested(optimizer):
    """Returns an optimizer and those inside of it, if it is a wrapper of Addons or contrib's MovingAverageOptimizer."""
    optimizers = [optimizer]
    while hasattr(optimizers[-1], "_optimizer") and (
            package_of(type(optimizers[-1])) == ADDONS or _is_average_of_contrib(optimizers[-1])):
        optimizers.append(optimizers[-1]._optimizer)
    return optimizers


def _is_average_of_contrib(optimizer):
    return type(optimizer).__name__ == "MovingAverageOptimizer" and "contrib.opt" in type(optimizer).__module__


def converted_schedule(schedule, convert):
    """Returns the everstep schedule for Transformers' WarmUp; any other schedule unchanged.

    Args:
        convert: a function of the config of a stock schedule that returns the everstep schedule, or None.
    """
    if (package_of(type(schedule)), type(schedule).__name__) != (TRANSFORMERS, "WarmUp") or schedule.power != 1:
        return schedule
    after = schedule.decay_schedule_fn
    if not hasattr(after, "get_config"):
        return schedule
    of = convert({"class_name": type(after).__name__, "config": after.get_config()})
    first = of(0) if of is not None else None
    if first is None or abs(first - schedule.initial_learning_rate) > 1e-6 * abs(first):
        return schedule  # it rises to another value than the one that it goes on from
    return schedules.Warmup(of, float(schedule.warmup_steps), shift=True)


# Addons.


def _inner(optimizer, read, does):
    """Returns the definition of the optimizer inside a wrapper. Addons' wrappers do not call its clipping."""
    if len(nested(optimizer)) > 2:
        warnings.warn("stock does not count the steps of an optimizer in two wrappers: its schedules and corrections "
                      "stay as at the first step; the definition counts", stacklevel=5)
    bounds = ("clipnorm", "clipvalue", "global_clipnorm")
    return _in_wrapper(read(optimizer._optimizer, without=bounds), does)


def _in_wrapper(rule, does):
    """Returns a rule to put into a wrapper. Stock's wrappers take all rows of a variable with a sparse gradient."""
    if rule.sparse == "rows" and not rule.zero_grad_is_noop:
        warnings.warn("stock {} all rows of a variable with a sparse gradient; the definition {} those present".format(
            does, does), stacklevel=6)
    if rule.sparse == "variable_rows":
        warnings.warn("stock moves only the rows present of a sparse gradient; the definition moves all", stacklevel=6)
        rule = rule.replace(sparse="exact")
    return rule


def _moving_average(optimizer, read):
    config = optimizer.get_config()
    if config["num_updates"] is not None:
        raise UnsupportedError("num_updates of MovingAverage: give dynamic_decay=True, which counts by itself")
    warm_up = "ramp" if config["dynamic_decay"] else "none"
    rule = _inner(optimizer, read, "averages")
    return moving_average(rule, _number(config["average_decay"]), warm_up, config["start_step"])


def _contrib_average(optimizer, read):
    average = optimizer._ema
    if average._num_updates is not None or not optimizer._sequential_update:
        raise UnsupportedError("MovingAverageOptimizer: no definition has num_updates and sequential_update=False")
    return moving_average(_in_wrapper(read(optimizer._optimizer), "averages"), average._decay)


def _swa(optimizer, read):
    config = optimizer.get_config()
    return stochastic_weight_averaging(
        _inner(optimizer, read, "averages"), int(config["start_averaging"]), int(config["average_period"])
    )


def _lookahead(optimizer, read):
    config = optimizer.get_config()
    rule = _inner(optimizer, read, "syncs")  # of RectifiedAdam: Ranger
    return lookahead(rule, int(config["sync_period"]), _number(config["slow_step_size"]))


def _multi(optimizer, read):
    rules = {}
    for place, spec in enumerate(optimizer.optimizer_specs):
        names = "|".join(re.escape(name.split(":")[0]) for name in spec["weights"])
        rules["group{}".format(place)] = "^({})$".format(names), read(spec["optimizer"])
    return partition(rules)


def _decoupled(optimizer, read):
    """Returns the definition of what an optimizer with weight decay of Addons or contrib computes."""
    base, of_addons = None, package_of(type(optimizer)) == ADDONS
    target = "optimizer_v2" if of_addons else "tf_train"
    for each in type(optimizer).__mro__:
        base = base or next((entry for entry in STOCK if entry.target == target and package_of(each) != ADDONS
                             and entry.native == each.__name__), None)
    if base is None:
        raise UnsupportedError("{!r} extends an optimizer that no definition follows".format(optimizer))
    rule, exclude = read(optimizer, base, ("weight_decay",)), None
    if of_addons:
        config, decay = optimizer.get_config(), optimizer._hyper["weight_decay"]
        decay, exclude = decay if callable(decay) else config["weight_decay"], config.get("exclude_from_weight_decay")
    else:
        decay = optimizer._weight_decay
    decay = _number(decay) if isinstance(decay, float) else decay
    if rule.zero_grad_is_noop:
        rule = rule.replace(sparse="rows")
    if isinstance(rule.base, SGD) and not rule.base.momentum:  # it overrides what decays rows
        warnings.warn("stock decays no row of a sparse gradient with SGD without momentum; the definition decays those "
                      "present", stacklevel=4)
    if rule.sparse == "exact":
        warnings.warn("stock moves all rows of a sparse gradient, and decays those present; the definition decays all",
                      stacklevel=4)
    decaying = {Adam: AdamW, SGD: SGDW}.get(type(rule))
    if decaying is not None and not exclude:
        arguments = {name: getattr(rule, name) for name in type(rule).argument_names()}
        return decaying(weight_decay=decay, decay_times_rate=False, **arguments)
    return decoupled_weight_decay(rule, decay, times_rate=False, exclude=exclude)


_WRAPPERS = dict(MovingAverage=_moving_average, SWA=_swa, Lookahead=_lookahead, MultiOptimizer=_multi)


def _number(value):
    """Returns a number without the digits that a conversion through float32 added."""
    return float("{:.7g}".format(float(value)))


# Transformers and BERT.


def _adam_weight_decay(optimizer, read):
    adam = next(entry for entry in STOCK if entry.target == "optimizer_v2" and entry.definition is Adam)
    include, exclude = optimizer._include_in_weight_decay, optimizer._exclude_from_weight_decay
    return with_decay(read(optimizer, adam), optimizer.weight_decay_rate, include, exclude)


def with_decay(rule, decay, include=None, exclude=None):
    """Returns a rule with the weight decay of Transformers' and BERT's optimizers."""
    include, exclude = include or [], exclude or []
    if not decay:
        return rule
    if include:  # they come before the exclusions, and what neither matches decays too
        rules = [(each, decay) for each in include] + [(each, 0.0) for each in exclude] + [(".", decay)]
        return decoupled_weight_decay(rule, rules)
    return decoupled_weight_decay(rule, decay, exclude=exclude)


_BERT_METHODS = {"__init__", "apply_gradients", "_do_use_weight_decay", "_get_variable_name"}


def _bert(optimizer, read):
    rate = optimizer.learning_rate
    if isinstance(rate, dict):
        raise UnsupportedError("learning_rate of {!r} has one rate for each layer".format(optimizer))
    rule = Adam(rate, optimizer.beta_1, optimizer.beta_2, optimizer.epsilon, bias_correction=False)
    return with_decay(rule, optimizer.weight_decay_rate, exclude=optimizer.exclude_from_weight_decay)
