"""Converts stock optimizers to definitions (`everstep.from_native`), and definitions to stock configs."""
from __future__ import absolute_import, division, print_function

import re
import sys
import warnings
from collections import namedtuple

from everstep.compat.stock.converted_schedules import converted
from everstep.compat.stock.instances import native_schedule, of_instance
from everstep.compat.stock.lookup import check_needed, entries_of, entry_named, installed_defaults, short
from everstep.compat.stock.of_torch import PARTS, joined, of_groups
from everstep.compat.stock.third_party import arranged, converted_schedule, reader_of
from everstep.compat.targets.construction import written
from everstep.compat.targets.copying import present_native
from everstep.compat.targets.detect import find
from everstep.compat.targets.native import NativeOptimizer
from everstep.compat.targets.stock_members import searched
from everstep.errors import ConfigError, UnsupportedError
from everstep.optimizers.contract import Decoupled, Definition, tree, walk, with_hypers
from everstep.optimizers.contract.undecayed import undecayed
from everstep.optimizers.wrappers.accumulate import Accumulate, accumulate
from everstep.optimizers.wrappers.clip import Clip, clip
from everstep.optimizers.wrappers.decoupled_weight_decay import DecoupledWeightDecay, decoupled_weight_decay
from everstep.optimizers.wrappers.moving_average import MovingAverage, moving_average
from everstep.optimizers.wrappers.rate_decay import RateDecay, rate_decay

_NEW_STYLE = ("update_step", "keras3")
_WITH_DECAY = ("get_updates", "optimizer_v2")
_EMA_START = {"update_step": 0, "keras3": 1}  # Keras 3 starts an average with the variable after its first update
_BOUND_BESIDE = ("use_ema", "ema_momentum", "ema_overwrite_frequency", "gradient_accumulation_steps")
# Arguments of every Keras that become wrappers and schedules.
BESIDE = ("clipnorm", "clipvalue", "decay", "global_clipnorm", "gradient_accumulation_steps", "weight_decay")


def from_native(optimizer=None, api=None):
    """Returns the definition that computes what a stock optimizer does, with wrappers if it needs them.

    Args:
        optimizer: always needed: a stock optimizer of any API; or its config, as `keras.optimizers.serialize` returns
            it: `{"class_name": ..., "config": {...}}`; or an optimizer that everstep bound, whose keywords of `bind`
            and exclusions from weight decay become wrappers too.
        api: for a config, the module that it belongs to (`tf.keras`, ...); arguments that the config leaves out get
            that module's defaults. Or the name of a target (`"optimizer_v2"`).

    Returns:
        A definition. Its learning rate is a number or an `everstep.Schedule`. A tensor, a callable or a user's own
        schedule is taken over as it is.

    Raises:
        UnsupportedError: no definition computes what this optimizer does; the message says why.
        ConfigError: the config or `api` is incomplete.

    >>> import everstep
    >>> config = {"class_name": "Adam", "config": {"learning_rate": 0.01, "epsilon": 1e-3}}
    >>> everstep.from_native(config, "update_step")
    <everstep definition Adam(learning_rate=0.01, beta_1=0.9, beta_2=0.999, epsilon=0.001, amsgrad=False, ...): ...>
    """
    if isinstance(optimizer, NativeOptimizer):
        return _of_bound(optimizer)
    if isinstance(optimizer, dict):
        if api == "torch_optim" and "class_name" in optimizer:
            return of_groups(optimizer["class_name"], [optimizer.get("config") or {}])
        return _Migration(*_of_config(optimizer, api)).definition()
    return _read(optimizer)


def _read(optimizer, entry=None, without=()):
    """Returns the definition of an instance, read as an entry if one is given, without some arguments of its config."""
    reader = reader_of(optimizer) if entry is None else None
    if reader is None:
        entry, config, optimizer = of_instance(optimizer, entry)
        return _Migration(entry, {name: config[name] for name in config if name not in without}, optimizer).definition()
    rule = reader(optimizer, _read)
    if not hasattr(optimizer, "_optimizer") or not hasattr(optimizer, "get_config"):
        return rule
    wrapper = _Migration(_Bound("optimizer_v2", ()), optimizer.get_config(), optimizer)
    return wrapper._clipped(rule)  # an Addons wrapper clips for the optimizer inside


def to_native_config(definition, module):
    """Returns the config of the stock optimizer of `module` that computes what a definition does.

    Args:
        definition: the definition.
        module: the module to train with (`tf.keras`, ...).

    Returns:
        `{"class_name": ..., "config": {...}}`. The config has the constructor's arguments.

    Raises:
        UnsupportedError: the API has no such optimizer; the message says why each candidate was rejected.
    """
    target, reasons = find(module).target.name, []
    rule, beside = _unwrapped(definition, target)
    if not isinstance(getattr(rule, "learning_rate", None), (float, type(None))):
        raise UnsupportedError("{} has a learning rate that is no number".format(definition._short()))
    for entry in entries_of(target):
        if entry.definition is not type(rule):
            continue
        stock = entry.class_in(module)
        reason = _why_not(entry, rule, _unknown_to(stock, entry))
        if reason is None and "weight_decay" in beside and "weight_decay" in entry.names:
            reason = "has one weight_decay"
        if reason is None:
            config = dict({theirs: _or_none(entry, theirs, rule) for theirs in entry.names}, **beside)
            for theirs in _unknown_to(stock, entry):
                value = config.pop(theirs)
                if theirs == "learning_rate":
                    config["lr"] = value  # before Keras 2.3
            return {"class_name": entry.native, "config": joined(config) if target == "torch_optim" else config}
        reasons.append("{} {}".format(entry.native, reason))
    raise UnsupportedError("no stock optimizer of {} does what {} does{}".format(
        module.__name__, definition._short(), ": " + "; ".join(reasons) if reasons else ""))


def _or_none(entry, theirs, rule):
    """Returns the value of a stock argument for a rule."""
    value = getattr(rule, entry.names[theirs])
    return None if theirs in entry.none and value == entry.none[theirs] else value


def wrapped_as(rule, config, optimizer, target):
    """Returns a rule in the wrappers that compute what arguments of every Keras do for an optimizer of an API.

    Args:
        config: {argument: value}, of clipnorm, clipvalue, global_clipnorm, use_ema, gradient_accumulation_steps, ...
        optimizer: an instance with these arguments: versions of Keras differ.
    """
    return _Migration(_Bound(target, ()), config, optimizer).wrapped(rule)


def _unwrapped(definition, target):
    """Splits off the wrappers that stock has arguments for. Returns (inner definition, those arguments)."""
    beside = {}  # type: dict
    if target in _WITH_DECAY and isinstance(definition, RateDecay) and isinstance(definition.rate, float):
        beside["decay"], definition = definition.rate, definition.inner
    of_stock = isinstance(definition, Accumulate) and definition.reduction == "mean" and type(definition.steps) is int
    if target == "keras3" and of_stock:
        beside["gradient_accumulation_steps"] = definition.steps
        definition = definition.inner
    if target in _NEW_STYLE and isinstance(definition, Clip):
        bounds = {"clipnorm": definition.norm, "global_clipnorm": definition.global_norm, "clipvalue": definition.value}
        set_bounds = {name: bound for name, bound in bounds.items() if bound}
        if len(set_bounds) == 1:
            beside.update(set_bounds)
            definition = definition.inner
    if target in _NEW_STYLE and isinstance(definition, MovingAverage) and not beside.get("gradient_accumulation_steps"):
        start, overwrite_every = _EMA_START[target], definition.overwrite_every
        if definition == moving_average(definition.inner, definition.average_decay, "none", start, overwrite_every):
            beside.update(use_ema=True, ema_momentum=definition.average_decay)
            beside.update(ema_overwrite_frequency=overwrite_every or None)
            definition = definition.inner
    if target in _NEW_STYLE and isinstance(definition, DecoupledWeightDecay):
        if definition == decoupled_weight_decay(definition.inner, definition.weight_decay):
            beside["weight_decay"] = definition.weight_decay
            definition = definition.inner
    return definition, beside


def _unknown_to(stock, entry):
    """Returns the arguments of an entry that the installed version of its stock class does not take."""
    code = stock.__init__.__code__ if stock is not None else None
    # co_consts: Keras 2.3 pops some off **kwargs. torch has both betas in one.
    known = code.co_varnames + code.co_consts + tuple(PARTS) if code else entry.names
    rate = {"learning_rate", "lr"}.intersection(known)  # neither: a wrapped constructor hides them
    return [theirs for theirs in entry.names if theirs not in known] if rate else []


def _why_not(entry, definition, unknown):
    """Returns why an entry's stock class does not compute what a definition does; None if it does."""
    arguments = {ours: getattr(definition, ours) for ours in entry.names.values()}
    required = dict(entry.fixed, sparse=entry.sparse(arguments))
    if definition.zero_grad_is_noop:
        del required["sparse"]
    for theirs in unknown:
        if theirs != "learning_rate" and arguments[entry.names[theirs]] != entry.defaults[theirs]:
            return "has no {} here".format(theirs)
    for name in definition.argument_names():
        value = getattr(definition, name)
        if name in required and value != required[name]:
            return "has {}={!r}".format(name, required[name])
        known = name in required or name in arguments or name in ("sparse", "dense_ok")
        if not known and value != definition.declarations[name].default:
            return "has no {}".format(name)
    return None


def _of_bound(optimizer):
    """Returns the definition of a bound optimizer, with its present numbers and what its native base class adds."""
    bound = optimizer._bound
    numbers = [name for name in bound.hyper_declarations() if isinstance(bound.given(name), float)]
    live = {name: written(bound, name) for name in numbers}
    rule, config = with_hypers(bound.definition, live), present_native(bound)
    config.update((name, getattr(optimizer, name, None)) for name in _BOUND_BESIDE if name not in bound.aliases)
    migration = _Migration(_Bound(bound.adapter.target, ()), config, optimizer)
    exclude = [(each, 0.0) for each in migration._not_decayed()]
    if exclude and undecayed(rule) is not rule:
        if Decoupled in type(rule).__bases__:  # a subclass of AdamW may compute something else
            migration.config["weight_decay"] = rule.weight_decay  # type: ignore[attr-defined]
        elif isinstance(rule, DecoupledWeightDecay) and undecayed(rule.inner) is rule.inner:
            rule = rule.replace(factors=tuple(exclude) + rule.factors)
        else:
            raise UnsupportedError(
                "exclude_from_weight_decay: the weight decay of {} is its own; bind everstep.partition, with the "
                "variables that do not decay in a branch of weight_decay=0".format(rule._short())
            )
    return migration.wrapped(rule)


def _of_config(serialized, api):
    """Returns (entry, config, None) of a serialized stock optimizer."""
    if set(serialized) < {"class_name", "config"} or "class_name" not in serialized:
        raise ConfigError(
            "a config needs its class too: {{'class_name': 'Adam', 'config': optimizer.get_config()}}; got the keys "
            "{}".format(", ".join(sorted(serialized)))
        )
    if api is None:
        raise ConfigError("a config belongs to an API; give its module, such as tf.keras, as api")
    entry = entry_named(api, serialized["class_name"].split(">")[-1])
    defaults = installed_defaults(entry, api)  # Keras up to 2.2 saves None for a default
    given = {name: value for name, value in serialized["config"].items()
             if value is not None or name in entry.none or name not in defaults}
    return entry, dict(defaults, **given), None


_Bound = namedtuple("_Bound", "target names")  # what `_Migration.wrapped` needs of an entry


class _Migration(object):
    """The conversion of one stock optimizer to a definition."""

    def __init__(self, entry, config, optimizer):
        self.entry, self.config, self.optimizer = entry, dict(config), optimizer

    def definition(self):
        entry, config = self.entry, arranged(self.entry, self.config, self.optimizer)
        self.config = config
        if "lr" in config:  # Keras before 2.3
            config["learning_rate"] = config.pop("lr")
        check_needed(entry, config)
        for theirs, why in sorted(entry.refused.items()):
            if config.get(theirs):
                raise UnsupportedError("{}: {}".format(theirs, why))
        self._warn()
        more = {}
        if config.get("skip_list"):  # LARS
            more["exclude_from_layer_adaptation"] = "|".join(map(re.escape, config["skip_list"]))
        arguments = {theirs: short(config[theirs]) for theirs in entry.names if config.get(theirs) is not None}
        arguments.update((theirs, entry.none[theirs]) for theirs in entry.none if config.get(theirs, 0) in (None, []))
        arguments["learning_rate"] = self._rate()
        rule = self.wrapped(entry.make(arguments, **more))
        decay = 0.0 if "decay" in entry.names else config.get("decay") or 0.0
        return rate_decay(rule, short(decay)) if decay else rule

    def wrapped(self, rule):
        """Returns a rule in the wrappers that compute what the arguments of every Keras do."""
        config = self.config
        decay, exclude = config.get("weight_decay"), self._not_decayed()
        times_rate = getattr(rule, "decay_times_rate", True)
        is_own = isinstance(rule, Decoupled) or "weight_decay" in self.entry.names
        if exclude and is_own and not isinstance(rule, Decoupled):  # Muon
            rule, decay = _one_decay(rule), rule.weight_decay
            is_own = False
        if decay and exclude and isinstance(rule, Decoupled):
            rule, is_own = _without_decay(rule), False
        if decay and not is_own:
            rule = decoupled_weight_decay(rule, decay, times_rate, exclude=exclude)
        if config.get("use_ema"):
            rule = self._averaged(rule)
        steps = config.get("gradient_accumulation_steps")
        if not steps:
            return self._clipped(rule)
        rules = [node.definition for node in walk(tree(rule))]  # the rates of a partition are those of its branches
        if not all(isinstance(getattr(each, "learning_rate", 0.0), float) for each in rules):
            raise UnsupportedError(
                "gradient_accumulation_steps with a schedule: stock counts each call for the schedule, everstep updates"
            )
        stock = type(self.optimizer)
        counts_calls = self.optimizer is not None and not isinstance(getattr(stock, "iterations", None), property)
        if counts_calls and "iterations" in stock.update_step.__code__.co_names:
            warnings.warn("stock {} with gradient_accumulation_steps counts calls before Keras 3.5; the definition "
                          "counts updates".format(stock.__name__), stacklevel=5)
        early = self.optimizer is not None and "_clip_gradients" in stock.apply.__code__.co_names
        # Keras 3.0 clips the gradients of each call. Later versions clip the accumulated gradient.
        return self._clipped(accumulate(rule, steps)) if early else accumulate(self._clipped(rule), steps)

    def _not_decayed(self):
        """Returns the rules of the variables that the optimizer excludes from its weight decay."""
        optimizer = self.optimizer
        pattern = getattr(optimizer, "_exclude_from_weight_decay_pattern", None)  # Keras 3
        names = getattr(optimizer, "_exclude_from_weight_decay_names", None) or ()
        names = [pattern.pattern] if pattern is not None else list(names)
        listed = getattr(optimizer, "_exclude_from_weight_decay", None) or getattr(optimizer, "_undecayed", None)
        if not names and not listed:
            return []
        if listed or not all(map(_PLAIN_NAMES.match, names)):
            return [_Excluded(optimizer)]
        # Keras 3 searches the last part of a variable's path; on TensorFlow all of the tf.Variable's name.
        by_last_part = self.entry.target == "keras3" and not hasattr(optimizer, "_distribution_strategy")
        return ["({})[^/]*$".format(name) for name in names] if by_last_part else names

    def _averaged(self, rule):
        config = self.config
        if config.get("gradient_accumulation_steps"):
            raise UnsupportedError(
                "use_ema with gradient_accumulation_steps: stock averages at each call, everstep at each update"
            )
        overwrite_every = config.get("ema_overwrite_frequency") or 0
        momentum = config["ema_momentum"] if "ema_momentum" in config else self.optimizer.ema_momentum
        return moving_average(
            rule, short(momentum), start=_EMA_START[self.entry.target], overwrite_every=overwrite_every)

    def _rate(self):
        """Returns the learning rate of the definition: a number, a schedule, or the optimizer's own object."""
        rate = self.config.get("learning_rate", self.entry.defaults["learning_rate"])
        if isinstance(rate, dict):
            rate = converted(rate) or converted_schedule(native_schedule(self.optimizer, rate), converted)
        return float(rate) if isinstance(rate, int) else short(rate)

    def _clipped(self, rule):
        """Wraps a definition to clip gradients as stock does."""
        norm, value = self.config.get("clipnorm"), self.config.get("clipvalue")
        total = self.config.get("global_clipnorm")
        norm, value, total = [bound if bound and bound > 0 else None for bound in (norm, value, total)]
        if self.entry.target == "get_updates" and self._one_norm():
            norm, total = None, norm
        if self.entry.target in _NEW_STYLE:  # it applies only the first one set
            value = None if norm or total else value
            total = None if norm else total
        if norm is None and total is None and value is None:
            return rule
        late = self.optimizer is None or hasattr(self.optimizer, "_transform_gradients")  # from TF 2.4 on
        value_first = self.entry.target == "optimizer_v2" and late and value and (norm or total)
        return clip(rule, norm, total, value, value_first=bool(value_first))

    def _one_norm(self):
        """Returns whether `clipnorm` of a `get_updates` class bounds one norm of all gradients.

        In the last tf.keras before OptimizerV2, which lacks the helper `clip_norm`, it bounds each gradient's norm.
        """
        if self.optimizer is None or isinstance(self.optimizer, NativeOptimizer):
            return self.optimizer is None or self.optimizer._bound.adapter.one_norm
        module = next(base.__module__ for base in type(self.optimizer).__mro__ if "get_gradients" in vars(base))
        return hasattr(sys.modules[module], "clip_norm")

    def _warn(self):
        """Warns, once for each entry, that stock computes something that no definition should."""
        if self.entry.differs and self.entry not in _warned:
            _warned.add(self.entry)
            message = "{}; the definition does not. See docs/from_native.md".format(self.entry.differs)
            warnings.warn(message, stacklevel=4)


_warned = set()  # type: set
_PLAIN_NAMES = re.compile(r"[A-Za-z_|]+$")


class _Excluded(object):
    """Finds the variables that a stock optimizer excludes from its weight decay. `exclude` takes it as a rule."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    def __call__(self, record):
        try:
            if isinstance(self.optimizer, NativeOptimizer):
                return not self.optimizer._bound.adapter.decays(record)
            return not self.optimizer._use_weight_decay(searched(record.native))
        except AttributeError:  # a variable of another API
            return False


def _without_decay(rule):
    """Returns the rule that a `Decoupled` one, such as AdamW, adds its decay to."""
    inner = next(base for base in type(rule).__mro__[1:] if issubclass(base, Definition))
    return inner(**{name: getattr(rule, name) for name in inner.argument_names()})


def _one_decay(rule):
    """Returns a rule that has two numbers for weight decay without them, so that one wrapper does what they do."""
    if rule.weight_decay != rule.adam_weight_decay:
        raise UnsupportedError(
            "exclude_from_weight_decay with two weight decays: give weight_decay and adam_weight_decay the same value, "
            "or bind everstep.partition, with the variables that do not decay in a branch of weight_decay=0"
        )
    return rule.replace(weight_decay=0.0, adam_weight_decay=0.0)
