"""Other names for the variables of a State, and other orders of their axes: those of a model in another framework."""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict

import numpy as np

from everstep.compat.checkpoints.conversions import FACTORED, factored_shape, first_few
from everstep.compat.checkpoints.matching import Match, expand_name, parse_rename
from everstep.compat.engine.step import ENGINE_SLOTS
from everstep.compat.files.contents import Handle
from everstep.errors import StateError


def renamed(state, patterns):
    """Returns (the State with other names, [Match]). See `State.renamed`."""
    names = _names(state)
    new_names, how = OrderedDict(), {}
    for old, new, pattern in _parsed(patterns):
        hits = [name for name in names if pattern.match(name) and name not in new_names]
        if not hits:
            raise StateError(_nothing_called(old, names, new_names))
        for name in hits:
            new_names[name], how[name] = expand_name(pattern, old, new, name), "{}={}".format(old, new)
    new_names = OrderedDict((name, new_names.get(name, name)) for name in names)
    refuse_equal(new_names)

    def move(arrays):
        return OrderedDict((new_names[name], each) for name, each in arrays.items())

    matches = [Match(new_names[name], name, how.get(name, "name")) for name in names]
    return state.replace(slots=move(state.slots), variables=move(state.variables)), matches


def transposed(state, patterns):
    """Returns the State with the axes of some variables in another order. See `State.transposed`."""
    names, axes_of = _names(state), OrderedDict()
    for old, axes, pattern in _parsed(patterns):
        hits = [name for name in names if pattern.match(name) and name not in axes_of]
        if not hits:
            raise StateError(_nothing_called(old, names, axes_of))
        axes_of.update((name, axes) for name in hits)
    slots, variables = OrderedDict(state.slots), OrderedDict(state.variables)
    for name, axes in axes_of.items():
        value, own_slots = moved(name, state.variables.get(name), state.slots.get(name), axes)
        if value is not None:
            variables[name] = value
        if own_slots is not None:
            slots[name] = own_slots
    return state.replace(slots=slots, variables=variables)


def moved(name, value, slots, axes):
    """Returns (value, slots) of a variable with its axes in another order; None for what there is not.

    Args:
        value: the variable's value, or None if the State has it not.
        slots: {slot: array}, or None.
        axes: as for `numpy.transpose`.

    Raises:
        StateError: the axes do not fit the variable, or a slot has no such axes.
    """
    shape = shape_of(name, value, slots or {})
    axes = _checked(name, axes, shape)
    new = OrderedDict()  # type: OrderedDict
    for slot, array in (slots or {}).items():
        new[_new_slot(name, slot, shape, axes, array)] = array if _stays(slot, array, shape) else _turned(array, axes)
    return None if value is None else _turned(value, axes), None if slots is None else new


def _turned(array, axes):
    return lazily([array], lambda values: np.transpose(values, axes))


def lazily(arrays, function):
    """Returns a handle for what a function makes of arrays, called when the values are asked for.

    Args:
        function: function(*arrays) returns an array; its shape follows from those of its arguments.
    """
    shape = function(*[np.broadcast_to(np.int8(0), array.shape) for array in arrays]).shape
    return Handle(
        getattr(arrays[0], "name", "array"), shape, arrays[0].dtype,
        lambda selection: np.ascontiguousarray(function(*map(np.asarray, arrays))).reshape(shape)[selection])


def shape_of(name, value, slots):
    """Returns the shape of a variable: that of its value, or else of its slots.

    Raises:
        StateError: its slots have different shapes, none of which must be its own.
    """
    if value is not None:
        return tuple(value.shape)
    own = {slot: array for slot, array in slots.items() if slot not in ENGINE_SLOTS}
    if factored_shape(own):
        return factored_shape(own)
    shapes = {tuple(array.shape) for array in own.values() if array.shape} or {()}
    if len(shapes) > 1:
        raise StateError("the state does not say which shape {} has: its slots are {}. Capture it with "
                         "weights=True".format(name, _described(own)))
    return shapes.pop()


def refuse_equal(new_names):
    """Raises StateError if two variables get one name. `new_names`: {old name: new name}."""
    first = {}  # type: dict
    for old, new in new_names.items():
        if first.setdefault(new, old) != old:
            raise StateError("the patterns make equal names: {} and {} would both be {}".format(first[new], old, new))


def _names(state):
    return list(state.slots) + [name for name in state.variables if name not in state.slots]


def _parsed(patterns):
    """Yields (old, new, compiled pattern) of a dictionary, or of a list of pairs."""
    items = patterns.items() if isinstance(patterns, dict) else patterns
    return [parse_rename(tuple(item) if isinstance(item, list) else item) for item in items]


def _nothing_called(old, names, taken):
    left = [name for name in names if name not in taken]
    return "no variable{} is called {!r}; there are {}".format(
        " that no pattern before it took" if taken else "", old, first_few(left))


def _checked(name, axes, shape):
    """Returns axes as a tuple of integers that are not negative."""
    needed = list(range(len(shape)))
    try:
        result = tuple(axis + len(shape) if axis < 0 else axis for axis in axes)
        fits = sorted(result) == needed
    except TypeError:
        fits = False
    if not fits:
        raise StateError("the axes {!r} do not fit {}, which has the shape {}: give each of {} once".format(
            axes, name, shape, needed))
    return result


def _stays(slot, array, shape):
    """Returns whether an array means the same after the axes change: one of rows, or a single number."""
    return slot in ENGINE_SLOTS or tuple(array.shape) != shape and array.shape in ((), (1,))


def _new_slot(name, slot, shape, axes, array):
    """Returns the name that a slot has after the axes change.

    Raises:
        StateError: the slot has no such axes.
    """
    prefix, _, part = slot.rpartition("/")
    if slot in ENGINE_SLOTS:
        if axes and axes[0] != 0:
            raise StateError("{} of {} counts for each row, and the axes {} would make rows of something else. Restore "
                             "it under sparse=\"exact\", which has no such slot".format(slot, name, axes))
        return slot
    if tuple(array.shape) == shape or _stays(slot, array, shape):
        return slot
    rank, last = len(shape), axes[-2:]
    is_factor = part in FACTORED and len(array.shape) == rank and set(last) == {rank - 2, rank - 1}
    if not is_factor:
        raise StateError("{} of {} has the shape {}, and the variable {}: everstep does not know what its axes are "
                         "after the order {}".format(slot, name, tuple(array.shape), shape, axes))
    return slot if last == (rank - 2, rank - 1) else prefix + "/" * bool(prefix) + FACTORED[part]


def _described(slots):
    return ", ".join("{} {}".format(slot, tuple(array.shape)) for slot, array in slots.items()) or "none"
