"""`everstep.restore`: gives a state to an optimizer."""
from __future__ import absolute_import, division, print_function

import numbers
from collections import OrderedDict

import numpy as np

from everstep.compat.engine import fast_forward
from everstep.compat.engine.step import counters
from everstep.compat.state.live import opened
from everstep.compat.state.matching import match
from everstep.compat.state.state import State
from everstep.compat.state.values import TEXT, Checked, numbers_of, shape_of
from everstep.errors import HyperTypeError, HyperValueError, StateError
from everstep.optimizers.contract import Schedule, flat, tree


def restore(
    optimizer,
    state,
    variables,
    session=None,
    rename=(),
    by_order=False,
    weights=False,
    hypers=False,
    other_definition=False,
):
    """Gives a state to a bound optimizer, built or not. What fails changes nothing.

    Args:
        optimizer: what `bind(module)` gave. One that has not trained yet makes its slots now, but for tf.train in a
            graph, where `minimize` or `apply_gradients` has to come first.
        state: a `State`.
        variables: all variables that the optimizer trains, as for `capture`.
        session: as for `capture`.
        rename: patterns for names of the state that are called otherwise here, "OLD=NEW", and
        by_order: whether names that none fits are matched by order: see everstep.compat.state.matching.
        weights: whether the variables get the values that the state has for them.
        hypers: whether the optimizer's hypers become those of the state. Otherwise they stay as they are.
        other_definition: whether a state of another definition is taken, or of one with other options.

    Returns:
        How each variable was matched. Printed, it is a table.

    Raises:
        StateError: the state is not of this definition, these variables or slots; the message names the first that
            does not fit, and what to do.
        UnsupportedError: it is no bound optimizer.
    """
    with opened(optimizer, variables, session) as access:
        if optimizer.is_averaged:
            raise StateError("inside of everstep.averaged there is nothing to restore: its end would undo that")
        _check_state(state)
        # Everything is read and checked before anything is made or written.
        if not other_definition:
            _check_definition(state.definition, optimizer.definition)
        own = _own_values(state, optimizer)
        rates = _hyper_values(state, optimizer) if hypers else {}
        matching, values = _slot_values(state, access, rename, by_order, weights)
        access.backend.start(optimizer.make_state(access.variables), access.session)
        writes = access.places(values)
        for name, variable in access.own().items():
            dtype = optimizer.backend.dtype(optimizer.unwrap(variable))
            writes.append((variable, Checked(name, own[name], (), dtype)))
        for variable, value in writes:
            access.write(variable, value())
        for name, value in rates.items():
            access.set_hyper(name, value)
        return matching


def _check_state(state):
    """Raises for what is no State, or was made none by hand."""
    if not isinstance(state, State):
        raise StateError("restore takes an everstep.State, such as everstep.capture gives; got {!r}".format(state))
    if not isinstance(state.definition, (dict, type(None))):
        raise StateError("the definition of a state is a config; got {!r}".format(state.definition))
    for name, slots in state.slots.items():
        if not isinstance(name, TEXT) or not isinstance(slots, dict):
            raise StateError("the slots of a state are {{name: {{name: array}}}}; got {!r}: {!r}".format(name, slots))


def _slot_values(state, access, rename, by_order, weights):
    """(the matching, [(whole, slot or None for the variable itself, value)])"""
    found, wanted = OrderedDict(), OrderedDict()
    for name, whole in access.wholes.items():
        wanted[name] = {slot: whole.slot_shape(slot) for slot in whole.slot_names if slot not in fast_forward.SLOTS}
    for name, slots in state.slots.items():
        found[name] = {slot: shape_of(slot, slots[slot]) for slot in slots if slot not in fast_forward.SLOTS}
    matching = match(found, wanted, rename, by_order)
    values = []
    for name, whole in access.wholes.items():
        old = matching.names[name]
        slots = _with_missed_steps(name, state.slots[old], whole)
        _check_names("slots of {}".format(name), slots, whole.slot_names, access.owner + " needs")
        for slot in whole.slot_names:
            handle, what = slots[slot], "{}/{}".format(name, slot)
            values.append((whole, slot, Checked(what, handle, whole.slot_shape(slot), whole.slot_dtype(slot))))
        if weights:
            if old not in state.variables:
                raise StateError(
                    "the state has no value of {}; everstep.capture(..., weights=True) takes them".format(old)
                )
            values.append((whole, None, Checked(name, state.variables[old], whole.shape, whole.dtype)))
    return matching, values


def _with_missed_steps(name, slots, whole):
    """A variable's slots, those of `sparse="catch_up"` only where they are needed; without them no row missed any."""
    needed, there = (set(names).intersection(fast_forward.SLOTS) for names in (whole.slot_names, slots))
    if needed and not there:
        return dict(slots, **{slot: whole.first_slot(slot) for slot in needed})
    if not there or needed:
        return slots
    taken, made = [numbers_of(slot, slots[slot], np.shape(slots[slot])) if slot in there else None
                   for slot in (fast_forward.ROWS, fast_forward.UPDATES)]
    if taken is None or made is None or np.any(taken != made):
        raise StateError(
            "{}: the state has rows with steps that they have yet to take, for which there is no place here: "
            "optimizer.flush() before it is captured".format(name)
        )
    return {slot: handle for slot, handle in slots.items() if slot not in there}


def _check_names(what, found, wanted, needer):
    if set(found) != set(wanted):
        raise StateError(
            "the state has the {} {}; {} {}".format(
                what, ", ".join(sorted(found)) or "none", needer, ", ".join(sorted(wanted)) or "none"
            )
        )


def _own_values(state, optimizer):
    """{name: value} of counters and scalars."""
    owner = type(optimizer).__name__
    scalars = flat(optimizer.definition, "scalar")
    _check_names("scalars", state.scalars, scalars, owner + " needs")
    values = {}
    for name in counters(optimizer.definition):
        values[name] = getattr(state, name)
        if not isinstance(values[name], numbers.Integral) or values[name] < 0:
            raise StateError("the state has {} = {!r}; {} needs a count".format(name, values[name], owner))
    values["updates"] *= optimizer.calls_per_update()
    for name in scalars:
        values[name] = np.asarray(numbers_of(name, state.scalars[name], ()), np.float32)
    return values


# The definition.


def _check_definition(found, definition):
    """Raises where slots of the same names might mean something else."""
    if found is None:
        return
    wanted = definition.get_config(strict=False)
    difference = _difference(found, wanted, definition)
    if difference:
        raise StateError(
            "the state is of {}, this optimizer is {}. Where their slots mean the same, give "
            "other_definition=True".format(*difference)
        )


def _difference(found, wanted, definition):
    """(what the state says, what the optimizer does) of the first difference that gives slots another meaning."""
    name = wanted["definition"]
    if found.get("definition") != name:
        return found.get("definition"), name
    for key, child in definition.children().items():
        inside = found.get(key)
        difference = _difference(inside if isinstance(inside, dict) else {}, wanted[key], child)
        if difference:
            return difference
    for option, declaration in definition.declarations.items():
        if declaration.kind == "option" and option not in definition.keyword_only:
            values = [_plain(config.get(option, declaration.default)) for config in (found, wanted)]
            if values[0] != values[1]:
                return tuple("{} with {}={!r}".format(name, option, value) for value in values)
    return None


def _plain(value):
    if isinstance(value, dict):
        return {name: _plain(inside) for name, inside in value.items()}
    return tuple(map(_plain, value)) if isinstance(value, (list, tuple)) else value


def _hyper_values(state, optimizer):
    """{name: number} of the hypers to set."""
    owner = type(optimizer).__name__
    if state.definition is None:
        raise StateError("the state has no hypers to set: it does not know of which definition it is")
    if not optimizer.sets_hypers:
        raise StateError(
            "hypers of {} cannot be set: on {} they are constants. Bind "
            "everstep.Definition.from_config(state.definition)".format(owner, optimizer.target)
        )
    values = {}
    for name, value in _config_hypers(tree(optimizer.definition), state.definition):
        given = optimizer.given_hyper(name)
        if isinstance(given, Schedule) and given.get_config() == value:
            continue
        try:
            values[name] = optimizer.check_hyper(name, value)
        except (HyperTypeError, HyperValueError) as error:
            raise StateError("{} of the state cannot be set: {}".format(name, error))
    return values


def _config_hypers(node, config):
    for name, declaration in node.definition.declarations.items():
        if declaration.kind == "hyper":
            yield node.prefix + name, config.get(name)
    for key, child in node.children.items():
        inside = config.get(key)
        for found in _config_hypers(child, inside if isinstance(inside, dict) else {}):
            yield found
