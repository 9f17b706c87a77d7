"""Lays a state out as a framework stores it: under the names of tf.train.Saver, or in the arrays of a template."""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict

import numpy as np

from everstep.compat.checkpoints.by_position import by_position, found
from everstep.compat.checkpoints.claims import Request, check_has_state
from everstep.compat.checkpoints.conversions import (
    MEANINGS,
    beta_power,
    calls_per_update,
    check_meaning,
    convert_momentum,
    first_few,
)
from everstep.compat.checkpoints.fitting import reshaped
from everstep.compat.checkpoints.identify import definition_for
from everstep.compat.checkpoints.matching import describe_shapes, match
from everstep.compat.checkpoints.saver_names import POWERS
from everstep.compat.checkpoints.unwrapping import loss_scale_of
from everstep.compat.engine.step import counters
from everstep.compat.stock.entry import AROUND_SAVED
from everstep.compat.stock.lookup import entry_for
from everstep.errors import StateError
from everstep.optimizers.contract import Definition, flat
from everstep.optimizers.wrappers.loss_scale import LossScale


def state_definition(state):
    """Returns the definition of a state, or raises StateError if the state does not say."""
    if state.definition is None:
        raise StateError("the state does not say which definition it is of, which the names of slots depend on")
    return Definition.from_config(state.definition)


def saver_tensors(state, ours=False, learning_rate=None):
    """Returns {name: array or handle}, a state as tf.train.Saver stores it.

    Args:
        ours: True names the slots as everstep's optimizers do; False, as the stock optimizer with such slots does.
        learning_rate: the rate in force, if velocities have to be rescaled.
    """
    definition = state_definition(state)
    missing = [name for name in state.slots if name not in state.variables]
    if missing:
        raise StateError(
            "the state has no values of {}, which a checkpoint needs: everstep.capture(..., weights=True)".format(
                first_few(missing)
            )
        )
    tensors = OrderedDict(state.variables)
    tensors.setdefault("global_step", np.array(state.steps or state.updates, np.int64))
    is_ours = ours and isinstance(definition, LossScale)  # then it is among the scalars
    scale = _scale_of(definition, state) if not is_ours else None
    if scale is not None:
        tensors["current_loss_scale"] = np.array(scale["scale"], np.float32)
        tensors["good_steps"] = np.array(scale["good_steps"], np.int64)
    if ours:
        name = type(definition.base).__name__.lstrip("_")
        for count in counters(definition):
            tensors["{}/{}".format(name, count)] = np.array(getattr(state, count), np.int64)
        tensors.update(("{}/{}".format(name, scalar), np.array(value, np.float32))
                       for scalar, value in state.scalars.items())
        for variable, variable_slots in state.slots.items():
            tensors.update(("{}/{}/{}".format(variable, name, slot), handle) for slot, handle in variable_slots.items())
        return tensors
    entry = entry_for("tf_train", definition)
    check_meaning(definition, entry.native, entry.fixed)
    if "rate_in_velocity" in entry.fixed:
        state = convert_momentum(state, entry.fixed["rate_in_velocity"], learning_rate)
    used = set(flat(definition, "slot"))
    for variable, variable_slots in state.slots.items():
        for slot in variable_slots:
            if slot in AROUND_SAVED:
                tensors["{}/{}".format(variable, AROUND_SAVED[slot])] = variable_slots[slot]
            elif slot not in [each.name for each in entry.slots]:
                raise StateError("{} has no place for the slot {} of {}".format(entry.native, slot, variable))
        for place, slot in enumerate([each for each in entry.slots if each.always or each.name in used]):
            key = "{}/{}{}".format(variable, entry.op, "_%d" % place if place else "")
            unused = slot.name not in variable_slots  # stock RMSProp has a momentum slot even if momentum is 0
            tensors[key] = np.zeros_like(np.asarray(state.variables[variable])) if unused else variable_slots[slot.name]
    for counter in entry.head:
        tensors[counter.native] = beta_power(getattr(definition.base, POWERS[counter.name]), state.updates)
    return tensors


def fit_to_template(template, state, ours=False, learning_rate=None, rename=(), by_order=False, variables=None):
    """Fits a state to a template whose arrays go by position.

    Returns:
        ({name of an array in the file: handle or array}, matches, notes for people).
    """
    source, claim = state_definition(state), found(template)[0]
    definition, ours = (source, ours) if claim.config is None else definition_for(claim, Request())
    check_has_state(claim)
    if type(definition.base) is not type(source.base):
        raise StateError("{} is of {}, the state of {}".format(claim.path, definition._short(), source._short()))
    claim = by_position(claim, definition, ours, variables)
    slots, entry = claim.slots, claim.entry
    # A file without a config takes the state's definition, with the options that its API fixes.
    options = dict({name: getattr(definition.base, name, None) for name in MEANINGS}, **(entry.fixed if entry else {}))
    check_meaning(source, claim.path, options)
    if options["rate_in_velocity"] is not None:
        state = convert_momentum(state, options["rate_in_velocity"], learning_rate)
    template_shapes = OrderedDict((name, _shapes_of(each)) for name, each in slots.items())
    state_shapes = OrderedDict((name, _shapes_of(each)) for name, each in state.slots.items())
    stored_shapes = {handle.name: handle.shape for _, handle in claim.entries}
    values, notes = OrderedDict(), []
    matching = match(state_shapes, template_shapes, rename, by_order, state.ordered)
    for name, state_name in matching.names.items():
        if state_shapes[state_name] != template_shapes[name]:
            raise StateError("{} has the slots {} in the state; {} has {}".format(
                state_name, describe_shapes(state_shapes[state_name]), claim.path,
                describe_shapes(template_shapes[name])))
        for slot, handle in state.slots[state_name].items():
            place = slots[name][slot].name
            values[place] = reshaped(handle, stored_shapes.get(place, handle.shape))
        if state_name in state.variables and name in claim.variables:
            if tuple(state.variables[state_name].shape) != claim.variables[name].shape:
                raise StateError("{} has shape {} in the state; {} has {}".format(
                    state_name, tuple(state.variables[state_name].shape), claim.path, claim.variables[name].shape))
            values[claim.variables[name].name] = state.variables[state_name]
    if not state.variables:
        notes.append("the state has no values of the variables: the template's are kept")
    steps = calls_per_update(claim, definition) if entry is not None else None
    counts = {"updates": state.updates, "pending": state.pending, "steps": state.steps}
    if steps:
        counts["updates"] = state.updates * steps + state.pending
    counts.update(state.scalars)
    for name in ["updates"] + list(state.scalars):
        if name not in claim.values:
            notes.append("there is no place for {}: this format leaves it out".format(name))
    for name, handle in claim.values.items():
        if counts.get(name) is not None:
            values[handle.name] = np.array(counts[name], handle.dtype)
    scale = _scale_of(source, state)
    if isinstance(source, LossScale):
        notes = [note for note in notes if "loss_scale/" not in note]
    if scale is not None:
        values.update((handle.name, np.array(scale[name], handle.dtype)) for name, handle in claim.loss_scale.items())
        if not claim.loss_scale:
            notes.append("there is no place for the loss scale, {:g}".format(scale["scale"]))
    values.update((copy, values[name]) for name, copy in claim.copies.items() if name in values)
    return values, matching.matches, notes


def _scale_of(definition, state):
    """Returns the loss scale of a state, as `State.loss_scale`; None if it has none."""
    return loss_scale_of(definition, state.scalars) if isinstance(definition, LossScale) else state.loss_scale


def _shapes_of(slots):
    return {slot: tuple(handle.shape) for slot, handle in slots.items()}
