"""Finds the slots in files that name them: checkpoints of tf.train.Checkpoint and of tf.train.Saver."""
from __future__ import absolute_import, division, print_function

import re
from collections import OrderedDict

import numpy as np

from everstep.compat.engine.step import ENGINE_SLOTS
from everstep.compat.state.by_pattern import by_pattern
from everstep.compat.state.conversions import first_few
from everstep.compat.state.identify import likely_optimizers
from everstep.compat.state.layouts import all_slots
from everstep.compat.state.native_file import saver_slots, variable_of
from everstep.compat.stock.entry import AROUND, AROUND_SAVED
from everstep.compat.stock.lookup import entries_for, entry_for
from everstep.compat.stock.table import STOCK
from everstep.errors import FileError, UnsupportedError
from everstep.optimizers.contract.trees import flat

# Names under which everstep's optimizers store the count of updates.
_EVERSTEP_UPDATES = {"tf_train": "updates", "optimizer_v2": "iter", "get_updates": "iterations"}
# {name on disk: our name} for the counters of stock optimizers.
_COUNTERS = {counter.native: counter.name for entry in STOCK for counter in entry.head + entry.tail}


def by_slot_name(native, definition):
    """Returns (slots, optimizer-wide values, stock entry or None) of an object checkpoint."""
    optimizer_values = OrderedDict(
        (_COUNTERS.get(name, name), handle) for name, handle in native.optimizer_values.items()
    )
    names, entry = {name: name for name in all_slots(definition) + list(ENGINE_SLOTS)}, None
    stored_names = set(name for variable_slots in native.slots.values() for name in variable_slots)
    if not stored_names <= set(names) or native.target == "tf_train" and "updates" not in optimizer_values:
        entry = entry_for(native.target, definition)
        names = dict({native: name for name, native in AROUND.items() if name in names}, **entry.slot_names)
    if not stored_names <= set(names):
        raise FileError("{} has the slots {}, which are not those of {}{}".format(
            native.path, ", ".join(sorted(stored_names)), definition._short(), likely_optimizers(native)))
    slots = OrderedDict((variable, OrderedDict()) for variable in native.variables)
    for variable, variable_slots in native.slots.items():
        slots[variable].update((names[name], handle) for name, handle in variable_slots.items())
    return slots, optimizer_values, entry


def by_saver_name(native, definition):
    """Returns (slots, optimizer-wide values, stock entry or None) of a file of tf.train.Saver."""
    keys = dict(native.entries)
    for target in ("tf_train", "optimizer_v2", "get_updates"):
        result = _everstep_in_saver(native, definition, target, keys)
        if result:
            return result
    try:
        entry = entry_for("tf_train", definition)
    except UnsupportedError as error:
        if getattr(definition, "saved_as", None):  # everstep.port writes it down
            return by_pattern(native, definition, definition.saved_as)
        if not all_slots(definition):  # the optimizer saves nothing
            native.variables = OrderedDict(item for item in native.entries if np.dtype(item[1].dtype).kind == "f")
            return OrderedDict((name, OrderedDict()) for name in native.variables), {}, None
        raise UnsupportedError("{}. Give slots= (--slot), their names in the file".format(error))
    present = [each for each in entries_for("tf_train", definition) if saver_slots(native, each.op)]
    entry = present[0] if present else entry  # RegAdagrad's slots have another name than Adagrad's
    numbers, used = saver_slots(native, entry.op), set(flat(definition, "slot"))
    expected_slots = [slot for slot in entry.slots if slot.always or slot.name in used]
    if expected_slots and not numbers:
        raise FileError("{} has no slots of {}: none of its {} names ends with /{}{}. If the optimizer was written by "
                        "hand, give slots= (--slot)".format(
                            native.path, entry.native, len(keys), entry.op, likely_optimizers(native)))
    slots = OrderedDict()
    for variable, handles in numbers.items():
        if sorted(handles) != list(range(len(expected_slots))):
            raise FileError(
                "{}: {} has the slots {}; {} makes {}{}".format(
                    native.path, variable,
                    first_few(entry.op + ("_%d" % number if number else "") for number in handles),
                    entry.native, ", ".join("{} ({})".format(entry.op + ("_%d" % place if place else ""), slot.native)
                                            for place, slot in enumerate(expected_slots)) or "none",
                    ". Two optimizers of that name have trained it, and their slots cannot be told apart"
                    if len(handles) > len(expected_slots) else ""))
        slots[variable] = OrderedDict(
            (slot.name, handles[place]) for place, slot in enumerate(expected_slots) if slot.name in used
        )
    averages = {slot: _averages(native, saved) for slot, saved in AROUND_SAVED.items()}
    if any(averages.values()) and not used.intersection(averages):
        native.notes.append("it has averages of tf.train.ExponentialMovingAverage, which the definition does not keep; "
                            "everstep.moving_average(definition, decay) takes them")
    averages = {slot: handles for slot, handles in averages.items() if slot in used}
    if not expected_slots:
        names = [key for key, handle in native.entries if np.dtype(handle.dtype).kind == "f"]
        slots = OrderedDict((name, OrderedDict()) for name in next(iter(averages.values()), names))
    for slot, handles in averages.items():
        for variable in set(slots).intersection(handles):
            slots[variable][slot] = handles[variable]
    native.variables = OrderedDict((name, keys[name]) for name in slots if name in keys)
    optimizer_values = OrderedDict()
    for counter in ("beta1_power", "beta2_power", "global_step"):
        powers = [handle for key, handle in native.entries if re.match(r"(.*/)?{}(_\d+)?$".format(counter), key)]
        if len(set(float(np.asarray(power)) for power in powers)) > 1:
            raise FileError(
                "{} has different values of {}, so it is of more than one optimizer. Give updates= (--updates)".format(
                    native.path, counter
                )
            )
        if powers:
            optimizer_values[counter] = powers[0]
    return slots, optimizer_values, entry


def _averages(native, saved):
    """Returns {variable: handle} of the averages that stand beside variables under a name."""
    handles = saver_slots(native, saved)
    for variable, numbers in handles.items():
        if len(numbers) > 1:
            raise FileError("{}: {} has {} averages. Give slots= (--slot), with the name of one".format(
                native.path, variable, len(numbers)))
    return OrderedDict((variable, next(iter(numbers.values()))) for variable, numbers in handles.items())


def _everstep_in_saver(native, definition, target, keys):
    """Returns the same for a Saver file of a bound optimizer or a stock OptimizerV2; None if it is of neither.

    Both keep a counter of updates, whose name gives the scope of the optimizer.
    """
    counter = _EVERSTEP_UPDATES[target]
    counter_keys = [key for key, handle in native.entries
              if re.match(r"(.*/)?(?!catch_up/)[^/]+/{}(_\d+)?$".format(counter), key)
              and np.dtype(handle.dtype).kind in "iu"]
    if not counter_keys:
        return None
    if len(counter_keys) > 1:
        raise FileError("{} has the state of more than one optimizer: {}".format(native.path, ", ".join(counter_keys)))
    scope = counter_keys[0].rpartition("/")[0]
    name = scope.rpartition("/")[2]
    slot_names = all_slots(definition) + list(ENGINE_SLOTS)
    names, entry = {slot: slot for slot in slot_names}, None
    if target == "optimizer_v2":
        try:
            stock = entry_for(target, definition)
            if any(key.startswith(scope + "/") and key[len(scope) + 1 :].endswith("/" + slot)
                   for key in keys for slot in set(stock.slot_names) - set(names)):
                names, entry = stock.slot_names, stock
        except UnsupportedError:
            pass
    slots = OrderedDict()
    for key, handle in native.entries:
        for stored_name in sorted(names, key=len, reverse=True):
            if target == "tf_train":
                match = re.match(r"^(.+)/{}/{}(_\d+)?$".format(re.escape(name), re.escape(stored_name)), key)
                variable = match and (variable_of(match.group(1), keys) or match.group(1))
            else:
                match = re.match(r"^{}/(.+)/{}$".format(re.escape(scope), re.escape(stored_name)), key)
                variable = match and match.group(1)
            if match:
                slots.setdefault(variable, OrderedDict())[names[stored_name]] = handle
                break
    optimizer_values = OrderedDict()
    for key, handle in native.entries:
        if key.startswith(scope + "/") and handle.shape == ():
            name = key[len(scope) + 1 :]
            optimizer_values[_COUNTERS.get(name, name) if target == "optimizer_v2" else name] = handle
    optimizer_values["updates"] = keys[counter_keys[0]]
    native.target = target
    native.variables = OrderedDict((name, keys[name]) for name in slots if name in keys)
    return slots, optimizer_values, entry
