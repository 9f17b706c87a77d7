"""A state as what a framework keeps: under the names of tf.train.Saver, or in the places of a file that there is."""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict

import numpy as np

from everstep.compat.engine.step import counters
from everstep.compat.state.by_place import by_place, reshaped
from everstep.compat.state.conversions import MEANINGS, POWERS, beta_power, check_meaning, in_form, some
from everstep.compat.state.identify import definition_for
from everstep.compat.state.matching import match
from everstep.compat.state.native_file import check_present
from everstep.compat.stock.lookup import entry_for
from everstep.errors import StateError
from everstep.optimizers.contract import Definition, flat


def definition_of(state):
    if state.definition is None:
        raise StateError("the state does not say which definition it is of, so what its slots are called is open")
    return Definition.from_config(state.definition)


def saver_names(state, ours=False, learning_rate=None):
    """{name: array or handle} of a tf.train.Saver file of a state.

    Args:
        ours: whether slots are named as everstep's optimizers name them; otherwise as the stock optimizer that has
            such slots.
        learning_rate: the rate in force, where velocities are rescaled.
    """
    definition = definition_of(state)
    lacks = [name for name in state.slots if name not in state.variables]
    if lacks:
        raise StateError(
            "the state has no values of {}, which a checkpoint needs: everstep.capture(..., weights=True)".format(
                some(lacks)
            )
        )
    tensors = OrderedDict(state.variables)
    tensors.setdefault("global_step", np.array(state.steps or state.updates, np.int64))
    if ours:
        name = type(definition.base).__name__.lstrip("_")
        counts = {"updates": state.updates, "pending": state.pending, "steps": state.steps}
        for count in counters(definition):
            tensors["{}/{}".format(name, count)] = np.array(counts[count], np.int64)
        tensors.update(("{}/{}".format(name, scalar), np.array(value, np.float32))
                       for scalar, value in state.scalars.items())
        for variable, found in state.slots.items():
            tensors.update(("{}/{}/{}".format(variable, name, slot), handle) for slot, handle in found.items())
        return tensors
    entry = entry_for("tf_train", definition)
    check_meaning(definition, entry.native, entry.fixed)
    if "rate_in_velocity" in entry.fixed:
        state = in_form(state, entry.fixed["rate_in_velocity"], learning_rate)
    used = set(flat(definition, "slot"))
    for variable, found in state.slots.items():
        extra = [slot for slot in found if slot not in [each.name for each in entry.slots]]
        if extra:
            raise StateError("{} has no place for the slot {} of {}".format(entry.native, ", ".join(extra), variable))
        for place, slot in enumerate([each for each in entry.slots if each.always or each.name in used]):
            key = "{}/{}{}".format(variable, entry.op, "_%d" % place if place else "")
            unused = slot.name not in found  # RMSProp's momentum of 0
            tensors[key] = np.zeros_like(np.asarray(state.variables[variable])) if unused else found[slot.name]
    for counter in entry.head:
        tensors[counter.native] = beta_power(getattr(definition.base, POWERS[counter.name]), state.updates)
    return tensors


def fitted_to(native, state, ours=False, learning_rate=None, rename=(), by_order=False, variables=None):
    """({array in a file that goes by position: handle or array of a state}, matches, notes in words)"""
    found = definition_of(state)
    definition, ours = (found, ours) if native.config is None else definition_for(native)
    check_present(native)
    if type(definition.base) is not type(found.base):
        raise StateError("{} is of {}, the state of {}".format(native.path, definition._short(), found._short()))
    slots, own, entry = by_place(native, definition, ours, variables)
    # Where there is no config the definition is the state's, and the file's form is that of its API.
    meant = dict({name: getattr(definition.base, name, None) for name in MEANINGS}, **(entry.fixed if entry else {}))
    check_meaning(found, native.path, meant)
    if meant["rate_in_velocity"] is not None:
        state = in_form(state, meant["rate_in_velocity"], learning_rate)
    wanted = OrderedDict((name, _shapes_of(each)) for name, each in slots.items())
    held = OrderedDict((name, _shapes_of(each)) for name, each in state.slots.items())
    stored = {handle.name: handle.shape for _, handle in native.entries}
    values, notes = OrderedDict(), []
    matching = match(held, wanted, rename, by_order)
    for name, theirs in matching.names.items():
        if held[theirs] != wanted[name]:
            raise StateError("{} has the slots {} in the state; {} has {}".format(
                theirs, _told(held[theirs]), native.path, _told(wanted[name])))
        for slot, handle in state.slots[theirs].items():
            place = slots[name][slot].name
            values[place] = reshaped(handle, stored.get(place, handle.shape))
        if theirs in state.variables and name in native.variables:
            if tuple(state.variables[theirs].shape) != native.variables[name].shape:
                raise StateError("{} has shape {} in the state; {} has {}".format(
                    theirs, tuple(state.variables[theirs].shape), native.path, native.variables[name].shape))
            values[native.variables[name].name] = state.variables[theirs]
    if not state.variables:
        notes.append("the state has no values of the variables: the template's are kept")
    steps = (native.config or {}).get("gradient_accumulation_steps") if entry is not None else None
    counts = {"updates": state.updates, "pending": state.pending, "steps": state.steps}
    if steps:
        counts["updates"] = state.updates * steps + state.pending
    counts.update(state.scalars)
    for name in ["updates"] + list(state.scalars):
        if name not in own:
            notes.append("there is no place for {}: this format leaves it out".format(name))
    for name, handle in own.items():
        if counts.get(name) is not None:
            values[handle.name] = np.array(counts[name], handle.dtype)
    return values, matching.matches, notes


def _shapes_of(slots):
    return {slot: tuple(handle.shape) for slot, handle in slots.items()}


def _told(shapes):
    return ", ".join("{} {}".format(*item) for item in sorted(shapes.items())) or "none"
