"""Finds the slots in state_dicts of torch's optimizers, which number their parameters or name them."""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict

import numpy as np

from everstep.compat.checkpoints.claims import Claim
from everstep.compat.checkpoints.conversions import factored_shape, first_few, scaled
from everstep.compat.checkpoints.naming import names_of, weights_of
from everstep.compat.files.contents import handle_of
from everstep.compat.files.torch_file import BUFFERS
from everstep.compat.stock.of_torch import FLAG, TORCH, entry_named, keys_of, spelled
from everstep.errors import FileError, StateError
from everstep.optimizers.contract import flat
from everstep.optimizers.contract.checks import TEXT, is_sequence
from everstep.optimizers.rmsprop import RMSprop

# {slot in torch: slot here}. A name that is not in it is the same on both sides.
_SLOTS = {native: name for entry in TORCH for native, name in entry.slot_names.items()}
# {number in torch, of each parameter: what it is here, one for all}
_SHARED = dict({counter.native: counter.name for entry in TORCH for counter in entry.head}, step="updates")
_KEYS = {key for entry in TORCH for key in keys_of(entry)}
# {key that only the groups of one class have, which no entry describes: the class}
_WITHOUT_ENTRY = {"ns_steps": "Muon", "history_size": "LBFGS"}
_PLAIN = {"lr", "betas", "eps", "weight_decay", FLAG}  # keys of many optimizers, also outside of torch.optim


def found(contents):
    """Returns [Claim], one for each optimizer in the file, without a definition."""
    return [_claim(contents, each) for each in contents.objects] or [Claim(contents, missing=contents.missing)]


def _claim(contents, each):
    """Returns the Claim of an OptimizerDict: parameters are called as in the file."""
    group = each.groups[0] if each.groups else {}
    slots = OrderedDict((str(key), OrderedDict(each.slots[key])) for key in _keys(each) if each.slots.get(key))
    missing = [] if slots else ["a state_dict of an optimizer that never trained, or that keeps nothing"]
    groups = [{key: _plain(value) for key, value in group.items()} for group in each.groups]
    return Claim(contents, "torch_optim", _class_of(group, slots), {"param_groups": groups}, slots=slots,
                 scope=each.place, missing=missing)


def _plain(value):
    """Returns a hyper that torch saved as a tensor as a number."""
    return float(np.asarray(value)) if getattr(value, "shape", None) == () else value


def _keys(each):
    """Returns the keys of the parameters of all groups in order, as the state_dict has them."""
    return [key for group in each.groups for key in group["params"]]


def _class_of(group, slots):
    """Returns the name of the class in torch.optim that has such groups and slots; None if there is none."""
    own = [name for key, name in sorted(_WITHOUT_ENTRY.items()) if key in group]
    stored = {slot for each in slots.values() for slot in each}.difference(_SHARED)
    fitting = [] if own else [entry for entry in TORCH if _KEYS.intersection(group) <= keys_of(entry)
                              and (_always(entry) <= stored <= set(entry.slot_names) or not stored)]
    if not fitting:
        return own[0] if own else None
    fewest = min(len(keys_of(entry).difference(group, [FLAG])) for entry in fitting)
    names = [entry.native for entry in fitting if len(keys_of(entry).difference(group, [FLAG])) == fewest]
    if keys_of(entry_named(names[0])) <= _PLAIN and not {"maximize", "foreach"}.intersection(group):
        return None  # stock has these since torch 1.12
    return "AdamW" if "AdamW" in names and group.get(FLAG) else names[0]


def _always(entry):
    """Returns the slots in torch that an optimizer has with all options."""
    declared = entry.definition.declarations
    return {native for native, name in entry.slot_names.items() if declared[name].when is None}


def by_torch(claim, definition, request):
    """Returns the claim as one of a definition.

    Raises:
        FileError: parameters have made different numbers of steps.
        StateError: the options or the names do not fit.
    """
    each = next(each for each in claim.contents.objects if each.place == claim.scope)
    _check_options(claim, definition, each)
    values = _shared(claim)
    hypers, notes = _hypers(claim, definition, each.groups)
    values.update((name, handle) for name, handle in hypers.items() if name not in values)
    untrained = [key for key in _keys(each) if str(key) not in claim.slots]
    if untrained:
        notes.append("no state of {} parameters that never had a gradient: {}".format(
            len(untrained), first_few(map(str, untrained))))
    rates = {str(key): group.get("lr") for group in each.groups for key in group["params"]}
    slots = OrderedDict()
    for name, stored in claim.slots.items():
        factor = _factor(claim, definition, rates[name] if request.learning_rate is None else request.learning_rate)
        own = OrderedDict((_SLOTS.get(slot, slot), handle) for slot, handle in stored.items() if slot not in _SHARED)
        slots[name] = OrderedDict((slot, scaled(handle, factor) if slot == "velocity" and factor != 1 else handle)
                                  for slot, handle in own.items())
    names = _names(claim, each, slots, request.variables)
    slots = OrderedDict((names[name], own) for name, own in slots.items())
    variables = OrderedDict((weight.name, weight.handle) for weight in weights_of(claim) if weight.name in slots)
    claim = claim._replace(definition=definition, slots=slots, values=values, variables=variables, config=None,
                           shapes={name: _shape(own) for name, own in slots.items()})
    return claim._replace(notes=tuple(notes))


def _shared(claim):
    """Returns {name: handle} of the numbers that torch keeps for each parameter, and a definition once."""
    values, of = OrderedDict(), {}
    for name, stored in claim.slots.items():
        for slot in sorted(set(_SHARED).intersection(stored)):
            ours, number = _SHARED[slot], np.asarray(stored[slot])
            if number.shape not in ((), (1,)) or not number > 0 or slot == "step" and number != np.floor(number):
                raise FileError("{}: {} of the parameter {} is {}, not one {} greater than zero".format(
                    claim.path, slot, name, first_few([str(number)]), "integer" if slot == "step" else "number"))
            number = number.reshape(()).astype(np.int64 if slot == "step" else np.float64)
            before = values.setdefault(ours, handle_of(ours, number))
            if np.asarray(before) != number:
                raise FileError("{}: the parameter {} has made {} {}, and {} {}. A state has one count: read the "
                                "parameters of each with variables of its own, or train them once together".format(
                                    claim.path, of[ours], slot, np.asarray(before), name, number))
            of.setdefault(ours, name)
    return values


def _hypers(claim, definition, groups):
    """Returns ({hyper: handle} of those that all groups have alike, [note on the others])."""
    values, differing, entry = OrderedDict(), [], entry_named(claim.class_name)
    flat_names = {}  # {bare name: the hyper's own}. A wrapper's weight_decay is the one that stock of torch calls so.
    for name in sorted(flat(definition, "hyper"), key=lambda name: ("/" in name) == name.endswith("weight_decay")):
        flat_names[name.rpartition("/")[2]] = name
    known = set(flat_names).union(["weight_decay"])
    for key in groups[0] if groups else ():
        ours = spelled(entry, key)
        given = [group[key] for group in groups if key in group]
        numbers = [np.asarray(each, np.float64).reshape(-1) for each in given if _is_number(each)]
        if not known.issuperset(ours) or len(numbers) < len(given) or len(numbers[0]) != len(ours):
            continue
        if any(not np.array_equal(each, numbers[0]) for each in numbers):
            differing.append(key)
            continue
        values.update((flat_names.get(name, name), handle_of(name, number)) for name, number in zip(ours, numbers[0]))
    return values, ["{} differs between the groups of parameters: the definition's is kept".format(
        " and ".join(sorted(differing)))] * bool(differing)


def _is_number(value):
    values = value if is_sequence(value) else [value]
    return all(isinstance(each, (int, float)) or getattr(each, "shape", None) == () for each in values)


def _check_options(claim, definition, each):
    for option in sorted(definition.base.declarations):
        value = getattr(definition.base, option) if definition.base.declarations[option].is_argument else None
        for group in each.groups:
            if isinstance(value, bool) and bool(group.get(option, value)) != value:
                raise StateError("{} was trained with {}={!r}, {} has {!r}".format(
                    claim.path, option, group[option], definition._short(), value))


def _factor(claim, definition, rate):
    """Returns what torch's momentum_buffer is multiplied by: it has no learning rate in it."""
    rule = definition.base
    has_velocity = "velocity" in rule.declarations and rule.has_slot("velocity")
    if not has_velocity or not getattr(rule, "rate_in_velocity", True):
        return 1
    rate = float(np.asarray(rate)) if _is_number(rate) else 0.0
    if not rate > 0:
        raise StateError("{} keeps its momentum without the learning rate, which {} has in it: give learning_rate= "
                         "(--learning-rate), the rate that was in force".format(claim.path, definition._short()))
    return rate if isinstance(rule, RMSprop) else -rate


def _names(claim, each, slots, given):
    """Returns {parameter in the file: name of the variable}."""
    keys = [str(key) for key in _keys(each)]
    if given is not None:
        given = [name for name in given if name.rpartition(".")[2] not in BUFFERS]
        full = len(given) == len(keys)  # the names of all parameters, also of those without state
        shapes = [_shape(own) for own in slots.values()]
        names = given if full else names_of(claim, weights_of(claim), shapes, [], given)
        return _checked_names(claim, OrderedDict(zip(keys if full else slots, names)))
    if all(isinstance(key, TEXT) for key in _keys(each)):
        return dict(zip(keys, keys))
    listed = [name for group in each.groups for name in group.get("param_names", ())]
    if len(listed) == len(keys) and all(isinstance(name, TEXT) for name in listed):
        return _checked_names(claim, OrderedDict(zip(keys, listed)))
    weights = weights_of(claim)
    of_keys = dict(zip(keys, weights))
    if len(weights) == len(keys) and all(of_keys[name].handle.shape == _shape(own) for name, own in slots.items()):
        return {key: weight.name for key, weight in of_keys.items()}
    shapes, hints = [_shape(own) for own in slots.values()], [[""]] * len(slots)
    return OrderedDict(zip(slots, names_of(claim, weights, shapes, hints)))


def _checked_names(claim, names):
    if len(set(names.values())) < len(names):
        raise StateError("{} would have variables of equal names: {}".format(claim.path, first_few(names.values())))
    return names


def _shape(slots):
    """Returns the shape of a variable: the common one of its slots, or that of rows and columns together."""
    shape = factored_shape(slots)
    return shape or max([handle.shape for handle in slots.values()] or [()], key=len)
