"""The stock optimizers of torch.optim: their rows of the stock table, what is in their groups, and `from_native`.

`lr` and `eps` are torch's names; a tuple, such as `betas`, counts as several arguments: beta_1 and beta_2.
"""
from __future__ import absolute_import, division, print_function

import sys
import warnings
from collections import OrderedDict

from everstep.compat.stock.entry import Stock, own_count
from everstep.errors import StateError, StateWarning, UnsupportedError
from everstep.optimizers.adadelta import Adadelta
from everstep.optimizers.adafactor import Adafactor
from everstep.optimizers.adagrad import Adagrad
from everstep.optimizers.adam import Adam
from everstep.optimizers.adamax import Adamax
from everstep.optimizers.adamw import AdamW
from everstep.optimizers.asgd import ASGD
from everstep.optimizers.contract import Decoupled, walk
from everstep.optimizers.contract.checks import is_sequence
from everstep.optimizers.contract.trees import tree
from everstep.optimizers.nadam import Nadam
from everstep.optimizers.radam import RAdam
from everstep.optimizers.rmsprop import RMSprop
from everstep.optimizers.rprop import Rprop
from everstep.optimizers.sgd import SGD
from everstep.optimizers.wrappers.decoupled_weight_decay import DecoupledWeightDecay, decoupled_weight_decay
from everstep.optimizers.wrappers.l2_penalty import l2_penalty
from everstep.optimizers.wrappers.rate_decay import rate_decay

_RENAMED = {"lr": "learning_rate", "eps": "epsilon"}
# {tuple in a group: the arguments that count as its parts}
_TUPLES = OrderedDict([
    ("betas", ("beta_1", "beta_2")), ("etas", ("eta_minus", "eta_plus")),
    ("step_sizes", ("step_size_min", "step_size_max")),
    ("eps", ("eps_1", "eps_2")),  # of Adafactor; a number in the others
])
# {part: (the tuple, its position)}
PARTS = {part: (key, place) for key, parts in _TUPLES.items() for place, part in enumerate(parts)}
_BETAS = OrderedDict([("lr", 0.001), ("beta_1", 0.9), ("beta_2", 0.999), ("eps", 1e-8)])
_MOMENTS = "m=exp_avg v=exp_avg_sq"
FLAG = "decoupled_weight_decay"  # in the groups of Adam, NAdam and RAdam

REFUSED = {
    "LBFGS": "it searches along a line with several losses a step, and keeps a history of all parameters together",
    "Muon": "it computes its Newton-Schulz steps in bfloat16, which changes weights by 3e-3 in 100 steps; "
            "everstep.optimizers.Muon(rms_rate=0.2), in float32, is its adjust_lr_fn='match_rms_adamw' but for that",
}


def _decayed(rule, decay, decoupled):
    return decoupled_weight_decay(rule, decay) if decoupled else l2_penalty(rule, decay)


def _decayed_by_own(rule, decay, decoupled):
    return rule.replace(weight_decay=decay) if decoupled else l2_penalty(rule, decay)


def _decayed_beside(rule, decay, _):
    return decoupled_weight_decay(rule, decay, beside=True)


class TorchStock(Stock):
    """A stock optimizer of torch.optim.

    Attributes:
        off: `{key: value}` of what its groups have beside hypers of the definition, when that is off.
        decayed: a function (definition, weight_decay of a group, whether that is decoupled) that returns the
            definition with that decay, if the decay is no argument of the definition itself.
        counts: whether it counts its steps.
    """

    def __init__(self, definition, native, slots, arguments, off=(("weight_decay", 0),), decayed=_decayed, counts=True,
                 renamed=(), **fields):
        Stock.__init__(self, "torch_optim", native, definition, arguments, slots=slots, home="torch.optim",
                       renamed=dict(_RENAMED, **dict(renamed)), **fields)
        self.off, self.decayed, self.counts = dict(off), decayed, counts


def _entries():
    corrected, switched = {"corrected_root": True}, {"weight_decay": 0, FLAG: False}
    yield TorchStock(
        SGD, "SGD", "velocity=momentum_buffer",
        OrderedDict([("lr", 0.001), ("momentum", 0.0), ("dampening", 0.0), ("nesterov", False)]),
        fixed={"rate_in_velocity": False}, counts=False,
        note="its weight_decay is everstep.l2_penalty; it keeps no count of steps",
    )
    yield TorchStock(Adam, "Adam", _MOMENTS + " v_hat=max_exp_avg_sq", dict(_BETAS, amsgrad=False), fixed=corrected,
                     off=switched, note="its weight_decay is everstep.l2_penalty")
    yield TorchStock(AdamW, "AdamW", _MOMENTS + " v_hat=max_exp_avg_sq", dict(_BETAS, amsgrad=False, weight_decay=0.01),
                     fixed=dict(corrected, decay_times_rate=True), off={FLAG: True})
    yield TorchStock(Adam, "SparseAdam", _MOMENTS, _BETAS, fixed={"amsgrad": False}, sparse="rows", off={})
    yield TorchStock(
        RMSprop, "RMSprop", "mean_square=square_avg velocity=momentum_buffer mean_grad=grad_avg",
        dict(lr=0.01, alpha=0.99, eps=1e-8, momentum=0.0, centered=False), renamed={"alpha": "rho"},
        fixed={"epsilon_in_root": False, "initial_mean_square": 0.0, "rate_in_velocity": False},
        note="its weight_decay is everstep.l2_penalty",
    )
    yield TorchStock(
        Adagrad, "Adagrad", "accumulator=sum", dict(lr=0.01, initial_accumulator_value=0.0, eps=1e-10),
        fixed={"epsilon_in_root": False}, off={"weight_decay": 0, "lr_decay": 0},
        note="its lr_decay is everstep.rate_decay",
    )
    yield TorchStock(Adadelta, "Adadelta", "mean_square=square_avg mean_square_step=acc_delta",
                     dict(lr=1.0, rho=0.9, eps=1e-6), note="its weight_decay is everstep.l2_penalty")
    yield TorchStock(Adamax, "Adamax", "m=exp_avg u=exp_inf", dict(_BETAS, lr=0.002), fixed={"epsilon_in_norm": True},
                     note="its weight_decay is everstep.l2_penalty")
    yield TorchStock(
        Nadam, "NAdam", _MOMENTS, dict(_BETAS, lr=0.002, momentum_decay=0.004), counters="momentum_product=mu_product",
        fixed={"momentum_schedule": True}, off=switched, note="its weight_decay is everstep.l2_penalty",
    )
    yield TorchStock(
        RAdam, "RAdam", _MOMENTS, _BETAS, off=switched, decayed=_decayed_by_own,
        fixed={"amsgrad": False, "corrected_root": False, "sma_threshold": 5.0, "weight_decay": 0.0},
        note="its weight_decay is everstep.l2_penalty",
    )
    yield TorchStock(ASGD, "ASGD", "average=ax eta mu", dict(lr=0.01, lambd=1e-4, alpha=0.75, t0=1e6),
                     note="its weight_decay is everstep.l2_penalty")
    yield TorchStock(Rprop, "Rprop", "previous_grad=prev step_size", OrderedDict(
        [("lr", 0.01), ("eta_minus", 0.5), ("eta_plus", 1.2), ("step_size_min", 1e-6), ("step_size_max", 50)]), off={})
    yield TorchStock(
        Adafactor, "Adafactor", "rows=row_var^ columns=col_var^ v=variance-",
        OrderedDict([("lr", 0.01), ("beta2_decay", -0.8), ("eps_1", 0.0), ("eps_2", 1e-3), ("d", 1.0)]),
        renamed={"beta2_decay": "beta_2_decay", "eps_1": "epsilon_1", "eps_2": "epsilon_2", "d": "clip_threshold"},
        none={"eps_1": 0.0}, fixed={"epsilon_floor": True, "relative_step": True, "scale_parameter": True},
        decayed=_decayed_beside, note="its weight_decay is everstep.decoupled_weight_decay(beside=True)",
    )


TORCH = tuple(_entries())


def parts_of(key, value):
    """Returns the names of the arguments that count as parts of one with a value."""
    return _TUPLES[key] if key in _TUPLES and is_sequence(value) else (key,)


def split(values):
    """Returns the arguments of a constructor, {name: value}, with torch's tuples in parts."""
    parts = {}  # type: dict
    for key, value in values.items():
        names = parts_of(key, value)
        parts.update(zip(names, value) if names != (key,) else [(key, value)])
    return parts


def joined(config):
    """Returns the arguments of a stock optimizer of torch, as it takes them."""
    config = dict(config)
    for key, parts in _TUPLES.items():
        if parts[0] in config:
            config[key] = tuple([config.pop(part) for part in parts])
    return config


def spelled(entry, key):
    """Returns the arguments of a definition that a key of a group holds: several of a tuple.

    Args:
        entry: of the stock table; None for a class without an entry, which spells them as most do.
        key: of a group.
    """
    names, parts = entry.names if entry is not None else dict(_RENAMED, **_BETAS), _TUPLES.get(key, (key,))
    return tuple([names.get(part, part) for part in (parts if parts[0] in names else (key,))])


def keys_of(entry):
    """Returns the keys of a group that hold what a stock optimizer of torch computes with."""
    return set(joined(entry.names)).union(entry.off)


def bound_as(optimizer, updates=None):
    """Returns a bound optimizer with the parameters and the state of a stock one of torch.

    Args:
        updates: how often it has stepped, of one that does not count it.

    Raises:
        UnsupportedError: no definition computes what it does, or its groups differ.
        StateError: it counts its steps, and `updates` is given.
    """
    entry = entry_named(type(optimizer).__name__)
    counts = entry is None or entry.counts
    if counts and updates is not None:
        raise StateError(own_count(type(optimizer).__name__))
    groups = []
    for group in optimizer.param_groups:
        names, params = group.get("param_names"), group["params"]
        groups.append({"params": list(zip(names, params)) if names else params})
    flags = {"maximize": True} if optimizer.param_groups[0].get("maximize") else {}
    twin = from_torch(optimizer).bind(sys.modules["torch.optim"], params=groups, **flags)
    if not counts and updates is None:
        warnings.warn(StateWarning(
            "torch.optim.{} keeps no count of its steps, and the state counts from {}; give capture the number of its "
            "steps as updates=".format(entry.native, 1 if any(optimizer.state.values()) else 0)), stacklevel=3)
    adapter = twin._bound.adapter
    adapter.load_state_dict(optimizer.state_dict(), updates or 1)
    if updates is not None:
        adapter.make_state(adapter.params())  # without momentum, stock has no state at all
        adapter.counter("updates").put(updates)
    return twin


def entry_named(name):
    """Returns the entry of a class of torch.optim; None if there is none."""
    return next((entry for entry in TORCH if entry.native == name), None)


def entry_of(definition_class):
    """Returns the first entry of a definition class; None if torch has no such optimizer."""
    return next((entry for entry in TORCH if entry.definition is definition_class), None)


def groups_of_stock(definition_class, definition):
    """Returns what stock of torch has in its groups and states beside what all have.

    Returns:
        ({hyper: (key, position in its tuple or None)}, {other key: value}, {scalar: key of a state}, {hyper: the value
        that stock writes as None}, if the definition computes as stock does).
    """
    entry = entry_of(definition_class)
    if entry is None:
        return {}, {}, {}, {}
    names = {ours: PARTS.get(theirs, (theirs, None)) for theirs, ours in entry.names.items()}
    if "lr_decay" in entry.off:
        names["rate_decay/rate"] = "lr_decay", None
    settings, none = {}, {}  # type: dict, dict
    if definition is not None:
        rule = definition.base
        settings.update(entry.off)
        settings.update((theirs, getattr(rule, ours)) for theirs, ours in entry.names.items()
                        if rule.declarations[ours].kind == "option")
        decoupled = [node.definition for node in walk(tree(definition))
                     if isinstance(node.definition, (DecoupledWeightDecay, Decoupled))]
        if FLAG in settings:
            settings[FLAG] = bool(decoupled) or "weight_decay" in entry.fixed and rule.weight_decay != 0
        if all(getattr(rule, option) == value for option, value in entry.fixed.items()):
            none = {entry.names[theirs]: value for theirs, value in entry.none.items()}
    return names, settings, {counter.name: counter.native for counter in entry.head}, none


def from_torch(optimizer):
    """Returns the definition that computes what a stock optimizer of torch does.

    Raises:
        UnsupportedError: no definition does, or its groups differ.
    """
    is_stock = type(optimizer).__module__.split(".")[:2] == ["torch", "optim"]
    return of_groups(type(optimizer).__name__, optimizer.param_groups, is_stock)


def of_groups(name, groups, is_stock=True):
    """Returns the definition that computes what a stock optimizer of torch does.

    Args:
        name: the name of its class in torch.optim.
        groups: its param_groups. Default of a missing argument: that of the class.
        is_stock: False if the class is another one of that name.

    Raises:
        UnsupportedError: no definition does, or the groups differ.
    """
    entry = entry_named(name)
    if entry is None or not is_stock:
        raise UnsupportedError("everstep has no definition for torch.optim.{}: {}".format(
            name, REFUSED.get(name, "everstep knows " + ", ".join(each.native for each in TORCH))))
    first = groups[0]
    for group in groups[1:]:
        for key in set(first).difference(["params", "param_names"]):
            if group.get(key) is not first[key] and group.get(key) != first[key]:
                raise UnsupportedError(
                    "its parameter groups differ in {}, and a definition has one; take from_native of an optimizer "
                    "with one group, and give the groups to bind(torch.optim, params=groups)".format(key))
    if first.get("differentiable"):
        raise UnsupportedError("differentiable: no step is recorded for backpropagation")
    given = dict(entry.defaults, **split(first))
    rule = entry.make({theirs: entry.none[theirs] if given[theirs] is None and theirs in entry.none else given[theirs]
                       for theirs in entry.names})
    decay = first.get("weight_decay", 0)
    if "weight_decay" not in entry.names and _is_on(decay):
        rule = entry.decayed(rule, decay, first.get(FLAG))
    return rate_decay(rule, first["lr_decay"]) if first.get("lr_decay") else rule


def _is_on(decay):
    return hasattr(decay, "shape") or bool(decay)
