"""Finds optimizers in checkpoints of tf.train.Saver, which only name arrays."""
from __future__ import absolute_import, division, print_function

import re
from collections import OrderedDict

import numpy as np

from everstep.compat.checkpoints.by_branch import by_branch
from everstep.compat.checkpoints.by_object import COUNTERS
from everstep.compat.checkpoints.by_pattern import by_pattern
from everstep.compat.checkpoints.claims import Claim
from everstep.compat.checkpoints.conversions import first_few
from everstep.compat.checkpoints.identify import definition_for, likely_optimizers
from everstep.compat.checkpoints.layouts import all_slots
from everstep.compat.checkpoints.saver_names import (
    beside,
    has_weights_alone,
    is_power,
    ops_beside,
    plain_names,
    powers_in,
    slots_by_scope,
    slots_of,
    variable_of,
)
from everstep.compat.engine.step import ENGINE_SLOTS
from everstep.compat.stock.entry import AROUND_SAVED
from everstep.compat.stock.lookup import entries_for, entries_of, entry_for
from everstep.compat.targets.hypers import attribute
from everstep.errors import EverstepError, FileError, UnsupportedError
from everstep.optimizers.contract import flat
from everstep.optimizers.wrappers.partition import Partition

# Names under which bound optimizers and stock OptimizerV2 store the count of updates.
_COUNTS = OrderedDict([("tf_train", "updates"), ("optimizer_v2", "iter"), ("get_updates", "iterations")])
_KNOWN_OPS = frozenset(entry.op for entry in entries_of("tf_train")) | frozenset(AROUND_SAVED.values())


def found(contents):
    """Returns [Claim]: what a file says without a definition. Any of its arrays may be a variable."""
    arrays = plain_names(contents)
    return [Claim(contents, "tf_train", loss_scale=_loss_scale(arrays), values=_global_step(arrays),
                  powers=powers_in(arrays), variables=arrays, missing=contents.missing)]


def _loss_scale(arrays):
    """Returns {"scale": handle, "good_steps": handle} of a LossScaleOptimizer of tf.train or tf.contrib; {} if none."""
    pairs = []
    for name in arrays:
        scope, last_part = re.match(r"(.*/)?(.+)", name).groups("")
        if last_part in ("current_loss_scale", "loss_scale") and scope + "good_steps" in arrays:
            pairs.append((arrays[name], arrays[scope + "good_steps"]))
    pairs = [pair for pair in pairs if all(handle.shape == () for handle in pair)]
    return dict(zip(("scale", "good_steps"), pairs[0])) if len(pairs) == 1 else {}


def by_saver_name(claim, request):
    """Returns [Claim], each way in which the file has the state that a Request asks for.

    A name of an optimizer is one of each API, and may mean another definition there.

    Raises:
        EverstepError: there is none.
    """
    claims, errors = [], []
    for target in _COUNTS:
        scopes = _scopes(target, claim.variables)
        try:
            definition = definition_for(claim._replace(target=target), request)[0] if scopes else None
        except EverstepError:  # if nothing has this name, the search for tf.train's optimizers below raises the error
            continue
        for scope, count in scopes.items():
            claims += _bound(claim._replace(target=target, scope=scope), definition, count, errors)
    try:
        definition = definition_for(claim, request)[0]
        if isinstance(definition.base, Partition):
            stock = [by_branch(claim._replace(powers={}), definition, lambda rule: [
                _with_averages(each) for each in _of_stock(claim, rule)])]
        else:
            stock = _of_stock(claim, definition, request.scope)
        claims += map(_with_averages, stock)
    except EverstepError as error:
        errors.append(error)
    if not claims:
        raise errors[0]
    return claims


def rival(base, claim, variables=None):
    """Returns a claim of a stock optimizer that explains all that a claim does and more; None if there is none.

    Args:
        base: what `found` returned.
        variables: the names of the variables that the user asks for; None for all.
    """
    arrays, powers, own = base.variables, base.powers, claim.explained()
    stems = set(beside(arrays).values())
    for entry in _unlike([entry for entry in entries_of("tf_train") if entry.op in stems or entry.head and powers]):
        ops = [entry.op] if entry.op in stems else []
        if entry.head and powers:
            ops += ops_beside(arrays, len(entry.slots), _KNOWN_OPS)
        for op in ops:
            slots = OrderedDict((name, {str(number): handle for number, handle in handles.items()})
                                for name, handles in slots_of(arrays, op).items()
                                if name in (variables or arrays) and len(handles) <= len(entry.slots))
            other = base._replace(entry=entry, slots=slots, powers=powers if entry.head else {},
                                  scope="" if op == entry.op else op)
            if slots and other.explained() > own:
                return other
    return None


# Stock optimizers of tf.train


def _of_stock(claim, definition, asked=None):
    """Returns [Claim] of the stock optimizers that store what a definition does, one for each name of an optimizer."""
    claim, arrays = claim._replace(definition=definition), claim.variables
    entries = entries_for("tf_train", definition)
    if not entries:
        if getattr(definition, "saved_as", None):  # a ported definition has the names of its slots
            return [by_pattern(claim, definition, definition.saved_as)]
        if not all_slots(definition):
            return [claim._replace(powers={})]
        entries = [_entry(definition)]
    if claim.powers:  # AdamGS has Adam's slots, and no powers
        entries = [entry for entry in entries if entry.head] or entries
    claims, errors = OrderedDict(), []
    for entry in _unlike(entries):
        try:
            for each in _named(claim, entry, asked):
                if each.scope not in claims or claims[each.scope].explained() < each.explained():
                    claims[each.scope] = each
        except FileError as error:
            errors.append(str(error))
    if not claims:
        entry = entries[0]
        if has_weights_alone(arrays):
            raise FileError("{} has weights alone: none of its {} arrays is named like the slot of another one, so "
                            "there is no optimizer state to read".format(claim.path, len(arrays)))
        raise FileError(errors[0] if errors else (
            "{} has no slots of {}: none of its {} names ends with /{}{}. If it was your own optimizer class, give "
            "slots= (--slot)".format(claim.path, entry.native, len(arrays), entry.op, likely_optimizers(claim))))
    return list(claims.values())


def _unlike(entries):
    """Returns the first one of those entries that store the same."""
    unlike = OrderedDict()
    for entry in entries:
        unlike.setdefault((entry.op, len(entry.head), len(entry.slots)), entry)
    return list(unlike.values())


def _entry(definition):
    """Returns the stock entry of an optimizer of tf.train that a file may be of."""
    try:
        return entry_for("tf_train", definition)
    except UnsupportedError as error:
        raise UnsupportedError("{}. Give slots= (--slot), their names in the file".format(error))


def _named(claim, entry, asked=None):
    """Returns [Claim] of an entry, one for each optimizer of its kind, of its own name or one that people gave."""
    used, arrays = set(flat(claim.definition, "slot")), claim.variables
    expected = [slot for slot in entry.slots if slot.always or slot.name in used]
    claim = claim._replace(entry=entry, powers=claim.powers if entry.head else {})
    if not expected:
        return [claim]
    claims, taken = [], set()
    for op in [entry.op] + ops_beside(arrays, len(expected), _KNOWN_OPS):
        by_scope = slots_by_scope(arrays, op)
        if taken & {variable for _, variable in by_scope}:  # arrays of another kind beside variables with slots
            continue
        taken.update(variable for _, variable in by_scope)
        for scope, of_scope, own in _in_scopes(by_scope, claim.powers, op, asked):
            for name, handles in _optimizers(claim, op, of_scope, expected):
                slots = OrderedDict((variable, OrderedDict(
                    (slot.name, in_order[place]) for place, slot in enumerate(expected) if slot.name in used))
                    for variable, in_order in handles.items())
                unused = [in_order[place] for in_order in handles.values() for place, slot in enumerate(expected)
                          if slot.name not in used]
                claims.append(claim._replace(scope=(scope + "/" + name).lstrip("/"), slots=slots, powers=own,
                                             unused=unused))
    return claims


def _in_scopes(by_scope, powers, op, asked):
    """Yields (scope, {variable: {number: handle}}, powers) of each optimizer of a name.

    One optimizer may have worked in several scopes, and then it has one pair of powers. Several have one pair each.
    """
    scopes = list(OrderedDict.fromkeys(scope for scope, _ in by_scope))
    own = {scope: OrderedDict((name, each) for name, each in powers.items() if name.rpartition("/")[0] == scope)
           for scope in scopes}
    named = OrderedDict((name, each) for name, each in powers.items() if op in name.split("/")[:-1])
    if len(scopes) > 1 and (asked or all(own.values())):
        for scope in scopes:
            slots = OrderedDict((variable, each) for (its, variable), each in by_scope.items() if its == scope)
            yield scope, slots, named or own[scope] or powers
    elif by_scope:
        slots = OrderedDict((variable, each) for (_, variable), each in by_scope.items())
        scope = scopes[0] if len(scopes) == 1 else ""
        yield scope, slots, named or len(scopes) == 1 and own[scope] or powers


def _optimizers(claim, op, slots, expected):
    """Yields (name, {variable: [its slots in order]}) of each optimizer of a name.

    A second one on the same variables continues the numbers: Adam, Adam_1, then Adam_2, Adam_3.
    """
    count, sizes = len(expected), {len(handles) for handles in slots.values()}
    whole = all(sorted(handles) == list(range(len(handles))) for handles in slots.values())
    if slots and (not whole or len(sizes) > 1 or min(sizes) % count):
        variable, handles = max(slots.items(), key=lambda item: (sorted(item[1]) != list(range(count)), item[0]))
        raise FileError("{}: {} has the slots {}; {} makes {}{}".format(
            claim.path, variable,
            first_few(op + ("_%d" % number if number else "") for number in sorted(handles)),
            claim.entry.native, ", ".join("{} ({})".format(op + ("_%d" % place if place else ""), slot.native)
                                    for place, slot in enumerate(expected)),
            ". Two optimizers of that name have trained it, and their slots cannot be told apart"
            if len(handles) > count else ""))
    for first in range(0, min(sizes or {0}), count):
        yield op + ("_%d" % first if first else ""), OrderedDict(
            (name, [handles[first + place] for place in range(count)]) for name, handles in slots.items())


def _global_step(arrays):
    """Returns {"global_step": handle}, that of the whole graph if there are several."""
    names = [name for name, handle in arrays.items()
             if re.match(r"(.*/)?global_step(_\d+)?$", name) and handle.shape == ()]
    names = ["global_step"] if "global_step" in names else names
    return OrderedDict([("global_step", arrays[names[0]])] if len(names) == 1 else [])


def _without_slots(arrays, scope=""):
    """Returns {name: {}} of what an optimizer without slots may have trained.

    Those are neither slots beside a variable, nor numbers that are no weights, nor what is in the optimizer's scope.
    """
    return OrderedDict((name, OrderedDict()) for name, handle in arrays.items()
                       if np.dtype(handle.dtype).kind in "fV" and variable_of(name.rpartition("/")[0], arrays) is None
                       and not is_power(name) and not name.startswith(scope + "/"))


def _with_averages(claim):
    """Returns the claim with averages of tf.train.ExponentialMovingAverage, as far as the definition keeps them.

    Without slots, as of plain SGD, all variables are returned; if the definition keeps averages, those that have one.
    """
    used, arrays = set(flat(claim.definition, "slot")), claim.variables
    averages = {slot: _averages(claim, saved) for slot, saved in AROUND_SAVED.items() if slot in used}
    if not averages and any(slots_of(arrays, saved) for saved in AROUND_SAVED.values()):
        claim = claim.with_note("it has averages of tf.train.ExponentialMovingAverage, which the definition does not "
                                "keep; everstep.moving_average(definition, decay) takes them")
    slots = OrderedDict((name, OrderedDict(each)) for name, each in claim.slots.items())
    if not slots:
        averaged = next(iter(averages.values()), None)
        slots = _without_slots(arrays) if averaged is None else OrderedDict((name, {}) for name in averaged)
    for slot, handles in averages.items():
        for variable in set(slots).intersection(handles):
            slots[variable][slot] = handles[variable]
    return claim._replace(slots=slots)


def _averages(claim, saved):
    """Returns {variable: handle} of the averages that stand beside variables under a name."""
    handles = slots_of(claim.variables, saved)
    for variable, numbers in handles.items():
        if len(numbers) > 1:
            raise FileError("{}: {} has {} averages. Give slots= (--slot), with the name of one".format(
                claim.path, variable, len(numbers)))
    return OrderedDict((variable, next(iter(numbers.values()))) for variable, numbers in handles.items())


# Optimizers with a counter of their own: bound ones, and stock OptimizerV2


def _bound(claim, definition, count, errors):
    """Returns [the claim on a bound optimizer or a stock OptimizerV2], or [] and adds why there is none to `errors`.

    Both keep a counter of updates, whose name gives the scope of the optimizer. A number of that name alone is no
    optimizer: people count, too.

    Args:
        claim: a Claim with the optimizer's API and scope.
        count: the handle of the counter, or None if it is the graph's global_step.
    """
    target, scope, arrays = claim.target, claim.scope, claim.variables
    inside = OrderedDict((key[len(scope) + 1 :], each) for key, each in arrays.items() if key.startswith(scope + "/"))
    names, entry = _slot_names(definition, target, inside)
    slots, others = _slots_in_scope(claim, names, inside)
    values = OrderedDict((COUNTERS.get(name, name) if target == "optimizer_v2" else name, each)
                         for name, each in inside.items() if each.shape == ())
    values.update(claim.values if count is None else {"updates": count})
    if others and slots:
        errors.append(FileError("{}: {} has the slots {}, which {} has not".format(
            claim.path, scope, first_few(others), definition._short())))
    name = re.sub(r"_\d+$", "", scope.rpartition("/")[2])
    hypers = {attribute(each) for each in flat(definition, "hyper")} | {"learning_rate", "lr", "decay"}
    is_known = name == type(definition.base).__name__.lstrip("_") if target == "tf_train" else hypers & set(values)
    if others or not slots and not is_known:
        return []
    return [claim._replace(definition=definition, entry=entry, slots=slots or _without_slots(arrays, scope),
                           values=values, powers={})]


def _scopes(target, arrays):
    """Returns {scope: the count of updates there} of what may be optimizers.

    An OptimizerV2 in an Estimator that model_to_estimator made counts by the graph's global_step: its count is None.
    """
    scopes = OrderedDict()
    counter = re.compile(r"((?:.*/)?(?!catch_up/)[^/]+)/{}(_\d+)?$".format(_COUNTS[target]))
    for key, handle in arrays.items():
        match = counter.match(key) if handle.shape == () else None
        if match and np.dtype(handle.dtype).kind in "iu":
            scopes[match.group(1)] = handle
        elif target == "optimizer_v2" and handle.shape == () and key.endswith("/learning_rate"):
            scopes.setdefault(key[: -len("/learning_rate")], None)
    return scopes


def _slot_names(definition, target, inside):
    """Returns ({name on disk: slot}, stock entry or None) of an optimizer with these names in its scope."""
    names = {slot: slot for slot in all_slots(definition) + list(ENGINE_SLOTS)}
    if target == "optimizer_v2":
        try:
            stock = entry_for(target, definition)
        except UnsupportedError:
            return names, None
        if any(key.endswith("/" + slot) for key in inside for slot in set(stock.slot_names) - set(names)):
            return stock.slot_names, stock
    return names, None


def _slots_in_scope(claim, names, inside):
    """Returns ({variable: {slot: handle}}, the names of other slots that the optimizer of a claim's scope has).

    tf.train puts a slot beside its variable, VARIABLE/OPTIMIZER/SLOT, the others into their scope, SCOPE/VARIABLE/SLOT.
    """
    slots, others, arrays = OrderedDict(), OrderedDict(), claim.variables
    is_beside, op = claim.target == "tf_train", re.escape(claim.scope.rpartition("/")[2])
    stored = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    pattern = re.compile((r"(.+?)/{1}/({0})(?:_\d+)?$" if is_beside else r"(.+?)/({0})$").format(stored, op))
    other = re.compile(r"(.+)/{}/(.+)$".format(op))
    for key, handle in (arrays if is_beside else inside).items():
        match = pattern.match(key) or is_beside and other.match(key)
        variable = variable_of(match.group(1), arrays) if match and is_beside else None
        if match and match.re is pattern:
            slots.setdefault(variable or match.group(1), OrderedDict())[names[match.group(2)]] = handle
        elif variable:
            others[match.group(2)] = True
        elif not is_beside and handle.shape != ():
            others[key.rpartition("/")[2]] = True
    return slots, list(others)
