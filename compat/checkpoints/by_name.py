"""Finds the slots in files that name them: checkpoints of tf.train.Checkpoint and of tf.train.Saver."""
from __future__ import absolute_import, division, print_function

import re
from collections import OrderedDict

import numpy as np

from everstep.compat.checkpoints.by_pattern import by_pattern
from everstep.compat.checkpoints.conversions import count_of_powers, first_few
from everstep.compat.checkpoints.identify import likely_optimizers
from everstep.compat.checkpoints.layouts import all_slots, record_of
from everstep.compat.engine.step import ENGINE_SLOTS
from everstep.compat.files.native_file import saver_slots, variable_of
from everstep.compat.stock.entry import AROUND, AROUND_SAVED
from everstep.compat.stock.lookup import entries_for, entry_for
from everstep.compat.stock.table import STOCK
from everstep.errors import FileError, StateError, UnsupportedError
from everstep.optimizers.contract import flat
from everstep.optimizers.wrappers.partition import Partition

# Names under which everstep's optimizers store the count of updates.
_EVERSTEP_UPDATES = {"tf_train": "updates", "optimizer_v2": "iter", "get_updates": "iterations"}
# {counter of tf.train: a pattern of its name in a file}
_COUNTERS_SAVED = OrderedDict((name, r"(.*/)?{}(_\d+)?$".format(name))
                              for name in ("beta1_power", "beta2_power", "global_step"))
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


def by_saver_name(native, definition, counted=False):
    """Returns (slots, optimizer-wide values, stock entry or None) of a file of tf.train.Saver.

    Args:
        counted: True if the count of updates is known, so that the file's may be that of another optimizer.
    """
    keys, entry = dict(native.entries), None
    for target in ("tf_train", "optimizer_v2", "get_updates"):
        result = _everstep_in_saver(native, definition, target, keys)
        if result:
            return result
    if isinstance(definition.base, Partition):
        slots = _of_branches(native, definition, keys)
    else:
        try:
            entry = _entry(native, definition)
        except UnsupportedError:
            if getattr(definition, "saved_as", None):  # everstep.port writes it down
                return by_pattern(native, definition, definition.saved_as)
            if all_slots(definition):
                raise
            native.variables = OrderedDict(item for item in native.entries if np.dtype(item[1].dtype).kind == "f")
            return OrderedDict((name, OrderedDict()) for name in native.variables), {}, None
        slots = _of_stock(native, definition, entry, keys)
    slots = _with_averages(native, definition, slots)
    native.variables = OrderedDict((name, keys[name]) for name in slots if name in keys)
    return slots, {} if counted else _counts(native, definition), entry


def _entry(native, definition):
    """Returns the stock entry of an optimizer of tf.train that a file may be of."""
    try:
        entry = entry_for("tf_train", definition)
    except UnsupportedError as error:
        raise UnsupportedError("{}. Give slots= (--slot), their names in the file".format(error))
    # RegAdagrad's slots have another name than Adagrad's.
    return next((each for each in entries_for("tf_train", definition) if saver_slots(native, each.op)), entry)


def _of_stock(native, definition, entry, keys):
    """Returns {variable: {slot: handle}} of a stock optimizer; None if it has no slots."""
    numbers, used = saver_slots(native, entry.op), set(flat(definition, "slot"))
    expected_slots = [slot for slot in entry.slots if slot.always or slot.name in used]
    if not expected_slots:
        return None
    if not numbers:
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
                                            for place, slot in enumerate(expected_slots)),
                    ". Two optimizers of that name have trained it, and their slots cannot be told apart"
                    if len(handles) > len(expected_slots) else ""))
        slots[variable] = OrderedDict(
            (slot.name, handles[place]) for place, slot in enumerate(expected_slots) if slot.name in used
        )
    return slots


def _of_branches(native, definition, keys):
    """Returns {variable: {slot: handle}} of several stock optimizers, each of which trained a branch of a partition."""
    partition, slots = definition.base, OrderedDict()
    for branch, rule in partition.children().items():
        entry = _entry(native, rule)
        _check_momentum(branch, rule, entry)
        found = _of_stock(native, rule, entry, keys)
        found = OrderedDict((name, {}) for name in _not_slots(native, keys)) if found is None else found
        names = [name for name in found if branch == partition.branch_of(
            record_of(name, tuple(keys[name].shape) if name in keys else (2,)))]
        if not names:
            raise FileError("{}: the branch {} of {} takes no variable with slots of {}; those are {}".format(
                native.path, branch, definition._short(), entry.native, first_few(found)))
        for name in names:
            slots[name] = OrderedDict(("{}/{}".format(branch, slot), each) for slot, each in found[name].items())
    return OrderedDict(sorted(slots.items()))


def _check_momentum(branch, rule, entry):
    form, stock_form = getattr(rule.base, "rate_in_velocity", None), entry.fixed.get("rate_in_velocity")
    if None not in (form, stock_form) and form != stock_form and rule.base.has_slot("velocity"):
        raise StateError("the velocity of the branch {} is {}times the rate in {}: give that branch "
                         "rate_in_velocity={}".format(branch, "" if stock_form else "not ", entry.native, stock_form))


def _not_slots(native, keys):
    """Returns the names of what may be variables: not slots beside a variable, nor counters."""
    return [name for name, handle in native.entries
            if np.dtype(handle.dtype).kind == "f" and variable_of(name.rpartition("/")[0], keys) is None
            and not any(re.match(pattern, name) for pattern in _COUNTERS_SAVED.values())]


def _with_averages(native, definition, slots):
    """Returns slots with averages of tf.train.ExponentialMovingAverage, as far as the definition keeps them.

    Without slots, as of plain SGD, all variables are returned; if the definition keeps averages, those that have one.
    """
    used = set(flat(definition, "slot"))
    averages = {slot: _averages(native, saved) for slot, saved in AROUND_SAVED.items() if slot in used}
    if not averages and any(saver_slots(native, saved) for saved in AROUND_SAVED.values()):
        native.notes.append("it has averages of tf.train.ExponentialMovingAverage, which the definition does not keep; "
                            "everstep.moving_average(definition, decay) takes them")
    if slots is None:
        names = [key for key, handle in native.entries if np.dtype(handle.dtype).kind == "f"]
        slots = OrderedDict((name, OrderedDict()) for name in next(iter(averages.values()), names))
    for slot, handles in averages.items():
        for variable in set(slots).intersection(handles):
            slots[variable][slot] = handles[variable]
    return slots


def _counts(native, definition):
    """Returns {name: handle} of the counters of stock optimizers."""
    values = OrderedDict()
    for counter, pattern in _COUNTERS_SAVED.items():
        handles = [handle for key, handle in native.entries if re.match(pattern, key)]
        if len(set(float(np.asarray(handle)) for handle in handles)) > 1:
            raise FileError(
                "{} has different values of {}, so it is of more than one optimizer. Give updates= (--updates)".format(
                    native.path, counter
                )
            )
        if handles:
            values[counter] = handles[0]
    if isinstance(definition.base, Partition):
        found = {count_of_powers(native, rule, values) for rule in definition.base.children().values()} - {None}
        if len(found) > 1:
            raise FileError("{}: the branches of {} have made {} updates; a partition has one count. Give updates= "
                            "(--updates)".format(native.path, definition._short(), " and ".join(map(str, found))))
        values.update(("updates", np.array(count)) for count in found)
    return values


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
