"""`everstep.from_native`: the definition that does what a stock optimizer does; and the way back."""
from __future__ import absolute_import, division, print_function

import math
import re
import sys
import warnings

import numpy as np

from everstep.compat.stock.table import FORMS
from everstep.compat.targets.base import Target
from everstep.compat.targets.detect import TARGETS, find
from everstep.errors import ConfigError, UnsupportedError
from everstep.optimizers.contract import schedule as schedules
from everstep.optimizers.contract.tree import with_hypers
from everstep.optimizers.wrappers.accumulate import Accumulate, accumulate
from everstep.optimizers.wrappers.clip import Clip, clip
from everstep.optimizers.wrappers.decoupled_weight_decay import DecoupledWeightDecay, decoupled_weight_decay

_NEW_STYLE = ("update_step", "keras3")


def from_native(optimizer, api=None):
    """The definition that reproduces a stock optimizer, with wrappers where it needs them.

    Args:
        optimizer: a stock optimizer of any API; or its config, `{"class_name": ..., "config": get_config()}`, which is
            what `keras.optimizers.serialize` gives.
        api: for a config, the module that it belongs to (`tf.keras`, ...) or the name of a target (`"optimizer_v2"`).

    Returns:
        A definition. Its learning rate is a number, an `everstep.Schedule`, or what the optimizer was given where that
        is a tensor, a callable or a schedule of the user's own.

    Raises:
        UnsupportedError: no definition computes what this optimizer does; the message says why.

    >>> import everstep
    >>> config = {"class_name": "Adam", "config": {"learning_rate": 0.01, "epsilon": 1e-3}}
    >>> everstep.from_native(config, "update_step")
    <everstep definition Adam(learning_rate=0.01, beta_1=0.9, beta_2=0.999, epsilon=0.001, amsgrad=False): ...>
    """
    if isinstance(optimizer, Target):
        numbers = [name for name in optimizer.hyper_declarations() if isinstance(optimizer.given_hyper(name), float)]
        live = {name: optimizer.write_hyper(name, optimizer.read_hyper(name)) for name in numbers}
        return with_hypers(optimizer.definition, live)
    if isinstance(optimizer, dict):
        read = _of_config(optimizer, api)
    else:
        read = _of_instance(optimizer)
    return _Migration(*read).definition()


def to_native_config(definition, module):
    """`{"class_name": ..., "config": {...}}` of the stock optimizer of `module` that does what a definition does.

    The config holds the constructor's arguments.

    Raises:
        UnsupportedError: that API has none; the message lists what stands in the way.
    """
    target, reasons = find(module).target.name, []
    rule, beside = _unwrapped(definition, target)
    if not isinstance(getattr(rule, "learning_rate", None), (float, type(None))):
        raise UnsupportedError("{} has a learning rate that is no number".format(definition._short()))
    for form in FORMS:
        if form.target != target or form.definition is not type(rule):
            continue
        stock = getattr(getattr(module, "optimizers", module), form.native, None)
        reason = _why_not(form, rule, _unknown_to(stock, form))
        if reason is None and "weight_decay" in beside and "weight_decay" in form.names:
            reason = "has one weight_decay"
        if reason is None:
            config = dict({theirs: getattr(rule, ours) for theirs, ours in form.names.items()}, **beside)
            for theirs in _unknown_to(stock, form):
                value = config.pop(theirs)
                if theirs == "learning_rate":
                    config["lr"] = value  # before Keras 2.3
            return {"class_name": form.native, "config": config}
        reasons.append("{} {}".format(form.native, reason))
    raise UnsupportedError(
        "no stock optimizer of {} does what {} does{}".format(
            module.__name__, definition._short(), ": " + "; ".join(reasons) if reasons else ""
        )
    )


def _unwrapped(definition, target):
    """(the definition inside of the wrappers that stock has arguments for, those arguments)."""
    beside = {}
    of_stock = isinstance(definition, Accumulate) and definition.reduction == "mean" and type(definition.steps) is int
    if target == "keras3" and of_stock:
        beside["gradient_accumulation_steps"] = definition.steps
        definition = definition.inner
    if target in _NEW_STYLE and isinstance(definition, Clip):
        bounds = {"clipnorm": definition.norm, "global_clipnorm": definition.global_norm, "clipvalue": definition.value}
        given = {name: bound for name, bound in bounds.items() if bound}
        if len(given) == 1:
            beside.update(given)
            definition = definition.inner
    if target in _NEW_STYLE and isinstance(definition, DecoupledWeightDecay):
        if definition == decoupled_weight_decay(definition.inner, definition.weight_decay):
            beside["weight_decay"] = definition.weight_decay
            definition = definition.inner
    return definition, beside


def _unknown_to(stock, form):
    """The arguments of a form that this version of its stock class has not."""
    code = stock.__init__.__code__ if stock is not None else None
    taken = code.co_varnames + code.co_consts if code else form.names  # Keras 2.3 takes some out of its **kwargs
    rate = {"learning_rate", "lr"}.intersection(taken)  # else the constructor is wrapped, and tells nothing
    return [theirs for theirs in form.names if theirs not in taken] if rate else []


def _why_not(form, definition, unknown):
    arguments = {ours: getattr(definition, ours) for ours in form.names.values()}
    wanted = dict(form.fixed, sparse=form.sparse(arguments) if callable(form.sparse) else form.sparse)
    if definition.still:
        del wanted["sparse"]
    for theirs in unknown:
        ours = form.names[theirs]
        if ours != "learning_rate" and arguments[ours] != definition.declarations[ours].default:
            return "has no {} here".format(theirs)
    for name in definition.argument_names():
        value = getattr(definition, name)
        if name in wanted and value != wanted[name]:
            return "has {}={!r}".format(name, wanted[name])
        known = name in wanted or name in arguments or name in ("sparse", "dense_ok")
        if not known and value != definition.declarations[name].default:
            return "has no {}".format(name)
    return None


def _of_instance(optimizer):
    """(target, class name, config, the optimizer) of a stock optimizer."""
    stock = type(optimizer)
    for target in TARGETS:
        if not target.speaks(stock):
            continue
        names = [form.native for form in FORMS if form.target == target.name]
        base = next((base for base in stock.__mro__ if base.__name__ in names and _is_stock(base)), None)
        if base is None or not _is_stock(stock):
            raise UnsupportedError(
                "{}.{} is not one of the stock optimizers that everstep knows for {}: {}".format(
                    stock.__module__, stock.__name__, target.name, ", ".join(sorted(names))
                )
            )
        if target.name == "tf_train":
            return target.name, stock.__name__, _attributes(optimizer, stock.__name__), optimizer
        try:
            return target.name, base.__name__, optimizer.get_config(), optimizer
        except AttributeError:  # Ftrl of TF 1.14 cannot; when 1.15 is the minimum, this can go
            held = dict({name[1:]: value for name, value in vars(optimizer).items()}, **optimizer._hyper)
            return target.name, base.__name__, held, optimizer
    raise UnsupportedError("{!r} is an optimizer of no API that everstep knows".format(optimizer))


def _is_stock(made):
    return made.__module__.split(".")[0] in ("tensorflow", "tensorflow_core", "keras", "tf_keras")


def _attributes(optimizer, name):
    """What a tf.train optimizer was given; it has no config."""
    form = _form("tf_train", name)
    found = {}
    if hasattr(optimizer, "_logbase"):  # PowerSign keeps its base so
        found["base"] = math.exp(optimizer._logbase)
    for theirs in list(form.names) + ["skip_list", "sign_decay_fn"]:
        for attribute in ("_" + theirs, "_lr") if theirs == "learning_rate" else ("_" + theirs,):
            if hasattr(optimizer, attribute):
                found[theirs] = getattr(optimizer, attribute)
    return found


def _of_config(serialized, api):
    if set(serialized) < {"class_name", "config"} or "class_name" not in serialized:
        raise ConfigError(
            "a config says its class as well: {{'class_name': 'Adam', 'config': optimizer.get_config()}}; got the keys "
            "{}".format(", ".join(sorted(serialized)))
        )
    target = api if isinstance(api, str) else api and find(api).target.name
    if target not in [each.name for each in TARGETS] or target == "tf_train":
        raise ConfigError("a config belongs to an API; give its module, such as tf.keras, as api; got {!r}".format(api))
    return target, serialized["class_name"].split(">")[-1], dict(serialized["config"]), None


def _form(target, name):
    found = [form for form in FORMS if form.target == target and form.native.lower() == name.lower()]
    if not found:
        raise UnsupportedError("everstep knows no stock optimizer {} of {}".format(name, target))
    return found[0]


class _Migration(object):
    """One stock optimizer on its way."""

    def __init__(self, target, name, config, optimizer):
        self.target, self.form, self.config, self.optimizer = target, _form(target, name), dict(config), optimizer

    def definition(self):
        if "lr" in self.config:  # Keras before 2.3
            self.config["learning_rate"] = self.config.pop("lr")
        if self.config.get("use_ema"):
            raise UnsupportedError("use_ema: everstep has no moving average of weights")
        if self.config.get("sign_decay_fn"):
            raise UnsupportedError(
                "sign_decay_fn is a function of tf.train's global_step; give sign_decay an everstep.Schedule that does "
                "the same"
            )
        self._warn()
        names = [name for name in self.form.names if name in self.config]
        arguments = {self.form.names[name]: short(self.config[name]) for name in names}
        arguments["learning_rate"] = self._rate()
        arguments.update(self.form.fixed)
        if self.config.get("skip_list"):  # LARS
            arguments["exclude_from_layer_adaptation"] = "|".join(map(re.escape, self.config["skip_list"]))
        sparse = self.form.sparse(arguments) if callable(self.form.sparse) else self.form.sparse
        made = self.form.definition(sparse=sparse, **arguments)
        decay = self.config.get("weight_decay")
        if decay and "weight_decay" not in self.form.names:
            made = decoupled_weight_decay(made, decay)
        steps = self.config.get("gradient_accumulation_steps")
        if not steps:
            return self._clipped(made)
        if not isinstance(arguments["learning_rate"], float):
            raise UnsupportedError(
                "gradient_accumulation_steps with a schedule: stock counts each call for the schedule, everstep updates"
            )
        early = self.optimizer is not None and "_clip_gradients" in type(self.optimizer).apply.__code__.co_names
        # Keras 3.0 clips the gradients of each call, later ones what they come to.
        return self._clipped(accumulate(made, steps)) if early else accumulate(self._clipped(made), steps)

    def _rate(self):
        if "learning_rate" not in self.config:
            raise ConfigError("this config of {} has no learning_rate".format(self.form.native))
        given = self.config["learning_rate"]
        decay = 0.0 if "decay" in self.form.names else self.config.get("decay") or 0.0
        if isinstance(given, dict):
            given = _converted(given) or self._native_schedule()
        given = float(given) if isinstance(given, int) else short(given)
        if not decay:
            return given
        if not isinstance(given, float):
            raise UnsupportedError("decay={} of a learning rate that is no number".format(decay))
        return schedules.InverseTimeDecay(given, rate=short(decay))

    def _native_schedule(self):
        if self.optimizer is None:
            raise UnsupportedError(
                "everstep knows no schedule {}; give the optimizer itself, whose schedule can be kept on its own "
                "API".format(self.config["learning_rate"].get("class_name"))
            )
        held = getattr(self.optimizer, "_hyper", None)  # OptimizerV2
        return held["learning_rate"] if held else self.optimizer._learning_rate

    def _clipped(self, made):
        norm, value = self.config.get("clipnorm"), self.config.get("clipvalue")
        total = self.config.get("global_clipnorm")
        norm, value, total = [bound if bound and bound > 0 else None for bound in (norm, value, total)]
        if self.target == "get_updates" and self._one_norm():
            norm, total = None, norm
        if self.target in _NEW_STYLE:  # the first of them alone
            value = None if norm or total else value
            total = None if norm else total
        if norm is None and total is None and value is None:
            return made
        late = self.optimizer is None or hasattr(self.optimizer, "_transform_gradients")  # from TF 2.4 on
        value_first = self.target == "optimizer_v2" and late and value and (norm or total)
        return clip(made, norm, total, value, value_first=bool(value_first))

    def _one_norm(self):
        """All but the last tf.keras before OptimizerV2, which has not this helper, clip by one norm of all."""
        if self.optimizer is None:
            return True
        module = next(base.__module__ for base in type(self.optimizer).__mro__ if "get_gradients" in vars(base))
        return hasattr(sys.modules[module], "clip_norm")

    def _warn(self):
        """Says once where stock does something that no definition should."""
        message = _WRONG.get((self.target, self.form.native)) or _WRONG.get(self.target)
        if message and (self.target, self.form.native) not in _warned:
            _warned.add((self.target, self.form.native))
            warnings.warn("{}; the definition does not. See docs/from_native.md".format(message), stacklevel=4)


_WRONG = {
    "get_updates": "stock get_updates reads its counter before or after moving it, at random",
    "keras3": "stock Keras 3 on TensorFlow takes equal rows of a sparse gradient apart",
    ("keras3", "ScheduleFreeAdamW"): (
        "stock ScheduleFreeAdamW takes its average from a slot that it has changed already, except on JAX"
    ),
    ("update_step", "Nadam"): (
        "stock new-style Nadam multiplies its momentum product once per variable in a compiled step"
    ),
    ("tf_train", "AdamWOptimizer"): "stock AdamWOptimizer moves all rows of a sparse gradient, and decays some",
    ("tf_train", "LARSOptimizer"): "stock LARSOptimizer does plain momentum where a gradient is sparse",
}
_warned = set()  # type: set


def short(value):
    """A number as it was given, where only float32 stands between."""
    if isinstance(value, (np.ndarray, np.generic)) and np.ndim(value) == 0:
        value = value.item()
    if isinstance(value, float) and not isinstance(value, bool) and float(np.float32(value)) == value:
        return float(str(np.float32(value)))
    return value


def _converted(serialized):
    """The everstep schedule of a stock one's config, or None."""
    config = serialized["config"]
    initial = config.get("initial_learning_rate")
    steps = config.get("decay_steps")
    kind = serialized["class_name"].split(">")[-1]
    if kind == "ExponentialDecay":
        return schedules.ExponentialDecay(initial, float(steps), config["decay_rate"], config["staircase"])
    if kind == "InverseTimeDecay" and not config["staircase"]:
        return schedules.InverseTimeDecay(initial, config["decay_rate"] / steps)
    if kind == "PolynomialDecay":
        end, power = config["end_learning_rate"], config["power"]
        return schedules.PolynomialDecay(initial, float(steps), end, power, config["cycle"])
    if kind == "PiecewiseConstantDecay":
        return schedules.PiecewiseConstantDecay(tuple(config["boundaries"]), tuple(config["values"]))
    if kind == "CosineDecay":
        return schedules.CosineDecay(
            initial, float(steps), config["alpha"], config.get("warmup_target"), float(config.get("warmup_steps") or 0)
        )
    if kind == "CosineDecayRestarts":
        first = float(config["first_decay_steps"])
        return schedules.CosineDecayRestarts(initial, first, config["t_mul"], config["m_mul"], config["alpha"])
    return None
