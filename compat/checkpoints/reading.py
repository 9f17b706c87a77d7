"""Turns the contents of a framework's file into a State: definition, counts, scalars and slots."""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict

import numpy as np

from everstep.compat.checkpoints.by_name import by_saver_name, by_slot_name
from everstep.compat.checkpoints.by_pattern import by_pattern, count_in
from everstep.compat.checkpoints.by_place import by_place
from everstep.compat.checkpoints.conversions import calls_per_update, convert_momentum, count_of_powers
from everstep.compat.checkpoints.identify import as_number, definition_for
from everstep.compat.checkpoints.layouts import all_slots, optional_slots, slots_of_rank
from everstep.compat.checkpoints.state import State
from everstep.compat.checkpoints.unwrapping import scalars_of
from everstep.compat.engine.step import ENGINE_SLOTS, counters
from everstep.compat.files.native_file import check_floats, check_has_state
from everstep.compat.stock.table import STOCK
from everstep.compat.targets.hypers import attribute
from everstep.errors import FileError, StateError
from everstep.optimizers.adagrad_da import AdagradDA
from everstep.optimizers.contract import Schedule, flat, with_hypers
from everstep.optimizers.contract.checks import TEXT
from everstep.optimizers.nadam import Nadam
from everstep.optimizers.radam import RAdam
from everstep.optimizers.schedule_free_adamw import ScheduleFreeAdamW
from everstep.optimizers.wrappers.loss_scale import LossScale

# Rules that use the count t: tf.train keeps powers of beta for them.
_COUNTED = {entry.definition for entry in STOCK if any(each.name.endswith("_power") for each in entry.head)}
_COUNTED.add(AdagradDA)  # global_step is its count


def to_state(
    native, definition=None, optimizer=None, updates=None, learning_rate=None, variables=None, slots=None
):
    """Returns the State that a file holds.

    Args:
        native: a NativeFile.
        definition, optimizer: give one of them if the file does not say which optimizer it is of.
        updates: the number of updates, if the file has none; or the name of the array that holds it.
        learning_rate: the rate in force, if velocities have to be rescaled.
        variables: the variables' names in the order of their slots, if the file leaves that open.
        slots: {slot: name in the file with `{var}`}, for an optimizer written by hand.
    """
    check_has_state(native)
    if isinstance(updates, TEXT):
        updates = count_in(native, updates)
    elif updates is not None and (isinstance(updates, (bool, float)) or not hasattr(updates, "__index__")):
        raise StateError("updates is a number, or the name of one in the file; got {!r}".format(updates))
    definition, by_everstep = definition_for(native, definition, optimizer, learning_rate, slots is not None)
    if slots is not None:
        slots, optimizer_values, entry = by_pattern(native, definition, slots)
    elif native.format == "tf-saver":
        slots, optimizer_values, entry = by_saver_name(native, definition, counted=updates is not None)
    elif native.slots or not native.entries:
        slots, optimizer_values, entry = by_slot_name(native, definition)
    else:
        slots, optimizer_values, entry = by_place(native, definition, by_everstep, variables)
    needed = list(flat(definition, "slot"))
    if needed and not slots:
        raise FileError("{} has no slots of {}, which needs {}".format(
            native.path, definition._short(), ", ".join(needed)))
    optional = optional_slots(definition)
    unused_slots = {slot.name for slot in entry.slots if slot.always} if entry else set()
    for name, variable_slots in slots.items():
        shape = native.variables[name].shape if name in native.variables else native.shapes.get(name)
        needed_slots = needed if shape is None else slots_of_rank(definition, len(shape), name)
        if optional and optional == set(variable_slots).difference(needed_slots, ENGINE_SLOTS):
            needed_slots = needed  # the file has another name for it than the one that the rule looks at
        missing = [slot for slot in needed_slots if slot not in variable_slots]
        if missing:
            raise FileError("{}: {} has no {}; {} needs {}. It has {}".format(
                native.path, name, " and no ".join(missing), definition._short(), ", ".join(needed_slots),
                ", ".join(variable_slots) or "no slots"))
        extra = sorted(set(variable_slots) - set(needed_slots).union(ENGINE_SLOTS) - unused_slots)
        if extra:
            raise FileError("{}: {} has the slot {}, which {} has not".format(
                native.path, name, ", ".join(extra), definition._short()))
        slots[name] = OrderedDict(
            (slot, variable_slots[slot]) for slot in needed_slots + list(ENGINE_SLOTS) if slot in variable_slots
        )
    check_floats(native, slots)
    definition = _with_live_hypers(definition, optimizer_values, entry)
    counts = _counts(native, definition, optimizer_values, entry, updates)
    loss_scale = _loss_scale(native, definition, optimizer_values)
    scalars = _scalars(native, definition, optimizer_values, counts["updates"])
    variables = OrderedDict((name, native.variables[name]) for name in slots if name in native.variables)
    config, pending = definition.get_config(strict=False), counts.get("pending", 0)
    ordered = native.format not in ("tf-saver", "tf-object") or bool(native.entries) and native.format == "tf-object"
    state = State(
        config, counts["updates"], counts.get("steps"), pending, scalars, slots, variables, ordered, loss_scale
    )
    return _as_definition(state, definition, entry, learning_rate)


def _with_live_hypers(definition, optimizer_values, entry):
    """Returns the definition with the hypers that the file stores as variables."""
    names = {name: name for name in flat(definition, "hyper")}
    names.update({attribute(name): name for name in names})
    if entry is not None:
        names.update(entry.names)
    changed = {}
    for stored_name, handle in optimizer_values.items():
        hyper = names.get(stored_name.lstrip("_"))
        if stored_name == "decay" and entry is not None and hyper is None and np.asarray(handle) != 0:
            rate = as_number(optimizer_values["learning_rate"]) if "learning_rate" in optimizer_values else "..."
            raise StateError(
                "the file's learning rate decays, by {decay} a step: give the definition with learning_rate="
                "everstep.InverseTimeDecay({rate}, rate={decay})".format(decay=as_number(handle), rate=rate)
            )
        if hyper in flat(definition, "hyper") and handle.shape == () and np.dtype(handle.dtype).kind == "f":
            owner, declaration = flat(definition, "hyper")[hyper]
            configured = owner._values[declaration.name]
            value = as_number(handle)
            if isinstance(configured, float) and np.float32(configured) != np.float32(value):
                changed[hyper] = value
    return with_hypers(definition, changed) if changed else definition


def _counts(native, definition, optimizer_values, entry, updates):
    """Returns {counter: count}, from the file's counters, its beta powers or its global_step."""
    counts = {
        name: int(np.asarray(optimizer_values[name])) for name in counters(definition) if name in optimizer_values
    }
    if updates is not None:
        counts["updates"] = updates
    steps = calls_per_update(native, definition) if entry is not None else None
    if steps and "updates" in counts:
        counts = {"updates": counts["updates"] // steps, "steps": counts["updates"],
                  "pending": counts["updates"] % steps}
    if "updates" not in counts and entry is not None and entry.target == "tf_train":
        counts["updates"] = count_of_powers(native, definition, optimizer_values)
    if counts.get("updates") is None and "global_step" in optimizer_values:
        counts["updates"] = int(np.asarray(optimizer_values["global_step"]))
    if counts.get("updates") is None:
        if type(definition.base) in _COUNTED or entry is None and all_slots(definition) or _has_schedule(definition):
            raise FileError(
                "{} has no count of updates, which {} needs: no beta powers, no iterations, no global_step. Give "
                "updates= (--updates)".format(native.path, definition._short())
            )
        native.notes.append("no count of updates, which its rule does not need; read as 0")
        native.counted = False
        counts["updates"] = 0
    if isinstance(definition, LossScale) and (native.scaling is not None or native.loss_scale):
        counts = dict({"steps": counts["updates"], "pending": 0}, **counts)
    missing = [name for name in counters(definition) if name not in counts]
    if missing:
        raise FileError("{} has no {}; it is not of {}".format(native.path, ", ".join(missing), definition._short()))
    if any(count < 0 for count in counts.values()):
        raise FileError("{} has a negative count: {}".format(native.path, counts))
    return counts


def _loss_scale(native, definition, optimizer_values):
    """Returns the loss scale of a file of a LossScaleOptimizer, as `State.loss_scale`, or None.

    If the definition is `everstep.loss_scale`, its scalars are added to the optimizer's values instead.
    """
    if native.scaling is None and not native.loss_scale:
        return None
    stored = {name: float(np.asarray(handle)) for name, handle in native.loss_scale.items()}
    if not stored:
        native.notes.append("it is of a LossScaleOptimizer, without its scale, which starts anew")
    if not isinstance(definition, LossScale):
        if stored:
            native.notes.append("it is of a LossScaleOptimizer, with a scale of {scale:g} after {good_steps:g} good "
                                "steps".format(**stored))
        return stored or None
    stored = stored or {"scale": definition.initial_scale, "good_steps": 0.0}
    for name, value in scalars_of(definition, stored).items():
        optimizer_values.setdefault(name, value)
    return None


def _has_schedule(definition):
    hypers = flat(definition, "hyper").values()
    return any(isinstance(owner._values[each.name], Schedule) for owner, each in hypers)


def _scalars(native, definition, optimizer_values, updates):
    """Returns {name: number} of the definition's scalars, stored or derived from the count."""
    names = list(flat(definition, "scalar"))
    scalars = {} if set(names) <= set(optimizer_values) else _derived(definition.base, updates)
    scalars.update((name, float(np.asarray(optimizer_values[name]))) for name in names if name in optimizer_values)
    for name in names:
        if name not in scalars:
            raise FileError("{} has no {}, which {} needs".format(native.path, name, definition._short()))
    return OrderedDict((name, scalars[name]) for name in names)


def _derived(rule, updates):
    """Returns the scalars that stock files leave out but that follow from the count, if the hypers never changed."""
    if isinstance(rule, Nadam):
        steps = np.arange(1, min(updates, 10**6) + 1, dtype=np.float64)  # the product is 0 long before that
        return {"momentum_product": float(np.prod(rule.scheduled(rule, steps))) if rule.momentum_schedule else 1.0}
    if isinstance(rule, RAdam) and isinstance(rule.beta_2, float):
        weights = rule.beta_2 ** np.arange(min(updates, 10**6), dtype=np.float64)
        return {"weights_sum": float(weights.sum()), "ages_sum": float(weights.dot(np.arange(1, len(weights) + 1)))}
    if isinstance(rule, ScheduleFreeAdamW) and rule.averaging_power == rule.rate_power == 0:  # equal weights
        rate = rule.learning_rate if isinstance(rule.learning_rate, float) else 0.0
        return {"greatest_rate": rate * min(1, updates / max(1, rule.warmup_steps)), "weights_sum": float(updates)}
    return {}


def _as_definition(state, definition, entry, learning_rate):
    """Returns a state, read with its stock optimizer's form of momentum, in the form of the given definition."""
    stock_form = entry.fixed.get("rate_in_velocity") if entry is not None else None
    form = getattr(definition.base, "rate_in_velocity", None)
    if stock_form is None or form is None or stock_form == form or not definition.base.has_slot("velocity"):
        return state
    if learning_rate is None:
        raise StateError(
            "{} keeps its momentum as the sum of gradients{}, {} otherwise: give learning_rate= (--learning-rate), the "
            "rate that was in force, or rate_in_velocity={} to the definition".format(
                entry.native, " times -rate" if stock_form else "", definition._short(), stock_form))
    config = definition.base.replace(rate_in_velocity=stock_form).get_config(strict=False)
    stock_state = state.replace(definition=config)
    state.slots = convert_momentum(stock_state, form, learning_rate).slots
    return state
