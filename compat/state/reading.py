"""Reads a framework's file as a State: its definition, counts, scalars and slots."""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict

import numpy as np

from everstep.compat.engine.step import ENGINE_SLOTS, counters
from everstep.compat.state.by_name import by_saver_name, by_slot_name
from everstep.compat.state.by_place import by_place, slots_of_rank
from everstep.compat.state.conversions import count_of_powers, in_form
from everstep.compat.state.identify import definition_for, number
from everstep.compat.state.native_file import check_present
from everstep.compat.state.state import State
from everstep.compat.stock.table import STOCK
from everstep.compat.targets.hypers import attribute
from everstep.errors import FileError, StateError
from everstep.optimizers.contract import Schedule, flat, with_hypers
from everstep.optimizers.nadam import Nadam
from everstep.optimizers.schedule_free_adamw import ScheduleFreeAdamW

# The rules that use t, by which tf.train keeps powers of beta.
_COUNTED = {entry.definition for entry in STOCK if any(each.name.endswith("_power") for each in entry.head)}


def to_state(native, definition=None, optimizer=None, updates=None, learning_rate=None, variables=None):
    """The State that a file has.

    Args:
        native: a NativeFile.
        definition, optimizer: one of them where the file does not say.
        updates: the count, where the file has none.
        learning_rate: the rate in force, where velocities are rescaled.
        variables: names in the order of the slots, where the file leaves that open.
    """
    check_present(native)
    definition, ours = definition_for(native, definition, optimizer, learning_rate)
    if native.format == "tf-saver":
        slots, own, entry = by_saver_name(native, definition)
    elif native.slots or not native.entries:
        slots, own, entry = by_slot_name(native, definition)
    else:
        slots, own, entry = by_place(native, definition, ours, variables)
    needed = list(flat(definition, "slot"))
    if needed and not slots:
        raise FileError("{} has no slots of {}, which needs {}".format(
            native.path, definition._short(), ", ".join(needed)))
    always = {slot.name for slot in entry.slots if slot.always} if entry else set()
    for name, found in slots.items():
        wanted = slots_of_rank(definition, len(native.variables[name].shape)) if name in native.variables else needed
        lacks = [slot for slot in wanted if slot not in found]
        if lacks:
            raise FileError("{}: {} has no {}; {} needs {}. It has {}".format(
                native.path, name, " and no ".join(lacks), definition._short(), ", ".join(wanted),
                ", ".join(found) or "no slots"))
        extra = sorted(set(found) - set(wanted).union(ENGINE_SLOTS) - always)
        if extra:
            raise FileError("{}: {} has the slot {}, which {} has not".format(
                native.path, name, ", ".join(extra), definition._short()))
        slots[name] = OrderedDict((slot, found[slot]) for slot in wanted + list(ENGINE_SLOTS) if slot in found)
    definition = _with_live_hypers(definition, own, entry)
    counts = _counts(native, definition, own, entry, updates)
    scalars = _scalars(native, definition, own, counts["updates"])
    variables = OrderedDict((name, native.variables[name]) for name in slots if name in native.variables)
    config, pending = definition.get_config(strict=False), counts.get("pending", 0)
    state = State(config, counts["updates"], counts.get("steps"), pending, scalars, slots, variables)
    return _as_definition(state, definition, entry, learning_rate)


def _with_live_hypers(definition, own, entry):
    names = {hyper: hyper for hyper in flat(definition, "hyper")}
    names.update({attribute(hyper): hyper for hyper in names})
    if entry is not None:
        names.update(entry.names)
    live = {}
    for theirs, handle in own.items():
        ours = names.get(theirs.lstrip("_"))
        if theirs == "decay" and entry is not None and ours is None and np.asarray(handle) != 0:
            raise StateError(
                "the file's learning rate decays, by {} a step: give the definition with learning_rate="
                "everstep.InverseTimeDecay({}, rate={})".format(
                    number(handle), number(own["learning_rate"]) if "learning_rate" in own else "...", number(handle)
                )
            )
        if ours in flat(definition, "hyper") and handle.shape == () and np.dtype(handle.dtype).kind == "f":
            owner, declaration = flat(definition, "hyper")[ours]
            given = owner._values[declaration.name]
            value = number(handle)
            if isinstance(given, float) and np.float32(given) != np.float32(value):
                live[ours] = value
    return with_hypers(definition, live) if live else definition


def _counts(native, definition, own, entry, updates):
    counts = {name: int(np.asarray(own[name])) for name in counters(definition) if name in own}
    if updates is not None:
        counts["updates"] = updates
    steps = (native.config or {}).get("gradient_accumulation_steps")
    if steps and entry is not None and "updates" in counts:  # what Keras 3 counts is calls
        counts = {"updates": counts["updates"] // steps, "steps": counts["updates"],
                  "pending": counts["updates"] % steps}
    if "updates" not in counts and entry is not None and entry.target == "tf_train":
        counts["updates"] = count_of_powers(native, definition, own)
    if counts.get("updates") is None and "global_step" in own:
        counts["updates"] = int(np.asarray(own["global_step"]))
    if counts.get("updates") is None:
        if type(definition.base) in _COUNTED or entry is None or _has_schedule(definition):
            raise FileError(
                "{} has no count of updates, which {} needs: no beta powers, no iterations, no global_step. Give "
                "updates= (--updates)".format(native.path, definition._short())
            )
        native.notes.append("no count of updates, which its rule does not need; read as 0")
        native.counted = False
        counts["updates"] = 0
    lacks = [name for name in counters(definition) if name not in counts]
    if lacks:
        raise FileError("{} has no {}; it is not of {}".format(native.path, ", ".join(lacks), definition._short()))
    if any(count < 0 for count in counts.values()):
        raise FileError("{} has a negative count: {}".format(native.path, counts))
    return counts


def _has_schedule(definition):
    hypers = flat(definition, "hyper").values()
    return any(isinstance(owner._values[each.name], Schedule) for owner, each in hypers)


def _scalars(native, definition, own, updates):
    wanted = list(flat(definition, "scalar"))
    scalars = {} if set(wanted) <= set(own) else _derived(definition.base, updates)
    scalars.update((name, float(np.asarray(own[name]))) for name in wanted if name in own)
    for name in wanted:
        if name not in scalars:
            raise FileError("{} has no {}, which {} needs".format(native.path, name, definition._short()))
    return OrderedDict((name, scalars[name]) for name in wanted)


def _derived(rule, updates):
    """The scalars that follow from the count, while hypers are the same; stock files leave some of them out."""
    if isinstance(rule, Nadam):
        steps = np.arange(1, min(updates, 10**6) + 1, dtype=np.float64)  # nothing is left of it long before
        return {"momentum_product": float(np.prod(rule.scheduled(rule, steps))) if rule.momentum_schedule else 1.0}
    if isinstance(rule, ScheduleFreeAdamW) and rule.averaging_power == rule.rate_power == 0:  # all updates count alike
        rate = rule.learning_rate if isinstance(rule.learning_rate, float) else 0.0
        return {"greatest_rate": rate * min(1, updates / max(1, rule.warmup_steps)), "weights_sum": float(updates)}
    return {}


def _as_definition(state, definition, entry, learning_rate):
    """A state read in the form of a stock optimizer, in that of the definition that was given."""
    stock = entry.fixed.get("rate_in_velocity") if entry is not None else None
    wanted = getattr(definition.base, "rate_in_velocity", None)
    if stock is None or wanted is None or stock == wanted or not definition.base.has_slot("velocity"):
        return state
    if learning_rate is None:
        raise StateError(
            "{} keeps its momentum as the sum of gradients{}, {} otherwise: give learning_rate= (--learning-rate), the "
            "rate that was in force, or rate_in_velocity={} to the definition".format(
                entry.native, " times -rate" if stock else "", definition._short(), stock))
    found = definition.base.replace(rate_in_velocity=stock).get_config(strict=False)
    held = State(found, state.updates, state.steps, state.pending, state.scalars, state.slots, state.variables)
    state.slots = in_form(held, wanted, learning_rate).slots
    return state
