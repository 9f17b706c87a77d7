"""Tells the slots in files that name them: TensorFlow's checkpoints of objects, and of tf.train.Saver."""
from __future__ import absolute_import, division, print_function

import re
from collections import OrderedDict

import numpy as np

from everstep.compat.engine.step import ENGINE_SLOTS
from everstep.compat.state.conversions import some
from everstep.compat.state.identify import likely
from everstep.compat.state.native_file import saver_slots, variable_of
from everstep.compat.stock.lookup import entry_for
from everstep.compat.stock.table import STOCK
from everstep.errors import FileError, UnsupportedError
from everstep.optimizers.contract.trees import flat

_OWN_UPDATES = {"tf_train": "updates", "optimizer_v2": "iter", "get_updates": "iterations"}  # of what everstep binds
# {name on disk: ours} of the counters that stock optimizers keep.
_COUNTERS = {counter.native: counter.name for entry in STOCK for counter in entry.head + entry.tail}


def by_slot_name(native, definition):
    """Object checkpoints of OptimizerV2 and tf.train."""
    own = OrderedDict((_COUNTERS.get(name, name), handle) for name, handle in native.own.items())
    names, entry = {name: name for name in list(flat(definition, "slot")) + list(ENGINE_SLOTS)}, None
    has = set(name for found in native.slots.values() for name in found)
    if not has <= set(names) or native.target == "tf_train" and "updates" not in own:
        entry = entry_for(native.target, definition)
        names = entry.slot_names
    if not has <= set(names):
        raise FileError("{} has the slots {}, which are not those of {}{}".format(
            native.path, ", ".join(sorted(has)), definition._short(), likely(native)))
    slots = OrderedDict((variable, OrderedDict()) for variable in native.variables)
    for variable, found in native.slots.items():
        slots[variable].update((names[name], handle) for name, handle in found.items())
    return slots, own, entry


def by_saver_name(native, definition):
    keys = dict(native.entries)
    for target in ("tf_train", "optimizer_v2", "get_updates"):
        found = _ours_in_saver(native, definition, target, keys)
        if found:
            return found
    entry = entry_for("tf_train", definition)
    numbers, line = saver_slots(native, entry.op), entry.slots
    used = set(flat(definition, "slot"))
    line = [slot for slot in line if slot.always or slot.name in used]
    if line and not numbers:
        raise FileError("{} has no slots of {}: none of its {} names ends with /{}{}".format(
            native.path, entry.native, len(keys), entry.op, likely(native)))
    slots = OrderedDict()
    for variable, found in numbers.items():
        if sorted(found) != list(range(len(line))):
            raise FileError(
                "{}: {} has the slots {}; {} makes {}{}".format(
                    native.path, variable, some(entry.op + ("_%d" % number if number else "") for number in found),
                    entry.native, ", ".join("{} ({})".format(entry.op + ("_%d" % place if place else ""), slot.native)
                                            for place, slot in enumerate(line)) or "none",
                    ". Two optimizers of that name have trained it; their slots cannot be told apart"
                    if len(found) > len(line) else ""))
        slots[variable] = OrderedDict((slot.name, found[place]) for place, slot in enumerate(line) if slot.name in used)
    if not line:
        slots = OrderedDict((key, OrderedDict()) for key, handle in native.entries
                            if np.dtype(handle.dtype).kind == "f")
    native.variables = OrderedDict((name, keys[name]) for name in slots if name in keys)
    own = OrderedDict()
    for wanted in ("beta1_power", "beta2_power", "global_step"):
        powers = [handle for key, handle in native.entries if re.match(r"(.*/)?{}(_\d+)?$".format(wanted), key)]
        if len(set(float(np.asarray(power)) for power in powers)) > 1:
            raise FileError(
                "{} has different values of {}, so it is of more than one optimizer. Give updates= (--updates)".format(
                    native.path, wanted
                )
            )
        if powers:
            own[wanted] = powers[0]
    return slots, own, entry


def _ours_in_saver(native, definition, target, keys):
    """What a bound optimizer, or a stock OptimizerV2, left in a file of Saver; None where none did."""
    count = _OWN_UPDATES[target]
    counts = [key for key, handle in native.entries
              if re.match(r"(.*/)?(?!catch_up/)[^/]+/{}(_\d+)?$".format(count), key)
              and np.dtype(handle.dtype).kind in "iu"]
    if not counts:
        return None
    if len(counts) > 1:
        raise FileError("{} has the state of more than one optimizer: {}".format(native.path, ", ".join(counts)))
    scope = counts[0].rpartition("/")[0]
    name = scope.rpartition("/")[2]
    wanted = list(flat(definition, "slot")) + list(ENGINE_SLOTS)
    names, entry = {slot: slot for slot in wanted}, None
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
        for theirs in sorted(names, key=len, reverse=True):
            if target == "tf_train":
                match = re.match(r"^(.+)/{}/{}(_\d+)?$".format(re.escape(name), re.escape(theirs)), key)
                variable = match and (variable_of(match.group(1), keys) or match.group(1))
            else:
                match = re.match(r"^{}/(.+)/{}$".format(re.escape(scope), re.escape(theirs)), key)
                variable = match and match.group(1)
            if match:
                slots.setdefault(variable, OrderedDict())[names[theirs]] = handle
                break
    own = OrderedDict()
    for key, handle in native.entries:
        if key.startswith(scope + "/") and handle.shape == ():
            name = key[len(scope) + 1 :]
            own[_COUNTERS.get(name, name) if target == "optimizer_v2" else name] = handle
    own["updates"] = keys[counts[0]]
    native.target = target
    native.variables = OrderedDict((name, keys[name]) for name in slots if name in keys)
    return slots, own, entry
