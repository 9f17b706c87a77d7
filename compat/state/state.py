"""`everstep.State`, and taking it from an optimizer and giving it to one."""
from __future__ import absolute_import, division, print_function

import numbers
from collections import OrderedDict

import numpy as np

from everstep.compat.arrays import ArraysAdapter, check_array
from everstep.errors import StateError, UnsupportedError, VariableError
from everstep.optimizers.tree import with_hypers


class State(object):
    """What an optimizer has learned, in no framework's form.

    Attributes:
        definition: the definition's config, with hypers as they were.
        updates, steps, pending: counts; steps is None where every step updates.
        scalars: {name: float}.
        slots: {variable name: {slot name: array}}.
    """

    def __init__(self, definition, updates, steps, pending, scalars, slots):
        self.definition, self.updates, self.steps, self.pending = definition, updates, steps, pending
        self.scalars, self.slots = scalars, slots

    def to_dict(self):
        return dict(vars(self))

    def __repr__(self):
        return "<everstep state of {}: {} updates, {} variables>".format(
            self.definition["definition"], self.updates, len(self.slots)
        )


def capture(optimizer, variables):
    """The state of a bound optimizer, copied.

    Args:
        optimizer: what `bind(numpy)` gave.
        variables: the arrays it trains: a list, or {name: array}.
    """
    arrays = _named_arrays(optimizer, variables)
    counters = {name: int(value) for name, value in optimizer._counters.items()}
    hypers = {name: optimizer.write_hyper(name, optimizer.read_hyper(name)) for name in optimizer.hyper_declarations()}
    slots = OrderedDict()
    for name, variable in arrays.items():
        slots[name] = {slot: np.array(optimizer.slot(variable, slot)) for slot in optimizer.slot_names(variable)}
    return State(
        with_hypers(optimizer.definition, hypers).get_config(),
        counters["updates"],
        counters.get("steps"),
        counters.get("pending", 0),
        {name: float(value) for name, value in optimizer._scalars.items()},
        slots,
    )


def restore(optimizer, state, variables):
    """Gives a state to a bound optimizer, whose hypers stay as they are. What fails changes nothing.

    Raises:
        StateError: the state is not of these variables or slots; the message names the first that does not fit.
    """
    arrays = _named_arrays(optimizer, variables)
    if not isinstance(state, State):
        raise StateError("restore takes an everstep.State, such as everstep.capture gives; got {!r}".format(state))
    owner = type(optimizer).__name__
    _check_names("variables", state.slots, arrays, "given were")
    _check_names("scalars", state.scalars, optimizer._scalars, owner + " needs")
    counts = {"updates": state.updates, "steps": state.steps, "pending": state.pending}
    # Everything is read and checked before anything is written.
    writes = [(counter, _count(name, counts[name], owner)) for name, counter in optimizer._counters.items()]
    writes.extend((scalar, _numbers(name, state.scalars[name], ())) for name, scalar in optimizer._scalars.items())
    for name, variable in arrays.items():
        wanted = optimizer.slot_names(variable)
        _check_names("slots of {}".format(name), state.slots[name], wanted, owner + " needs")
        for slot in wanted:
            _, shape, _ = optimizer.slot_declaration(variable, slot)
            value = _numbers("{}/{}".format(name, slot), state.slots[name][slot], tuple(shape))
            writes.append((optimizer.slot(variable, slot), value))
    for array, value in writes:
        array[Ellipsis] = value


def _named_arrays(optimizer, variables):
    """`{name: array}` of a list or a dictionary."""
    if not isinstance(optimizer, ArraysAdapter):
        raise UnsupportedError(
            "capture and restore work on what bind(numpy) gives; on {!r} use the API's own checkpoints".format(
                optimizer
            )
        )
    if not isinstance(variables, (dict, list, tuple)):
        raise VariableError(
            "variables are a list of arrays or {{name: array}}; got {}".format(type(variables).__name__)
        )
    named = variables if isinstance(variables, dict) else ((str(place), array) for place, array in enumerate(variables))
    named = OrderedDict(named)
    for array in named.values():
        check_array(array)
    return named


def _check_names(what, found, wanted, needer):
    if set(found) != set(wanted):
        raise StateError(
            "the state has the {} {}; {} {}".format(
                what, ", ".join(sorted(found)) or "none", needer, ", ".join(sorted(wanted)) or "none"
            )
        )


def _count(name, value, owner):
    if not isinstance(value, numbers.Integral) or value < 0:
        raise StateError("the state has {} = {!r}; {} needs a count".format(name, value, owner))
    return value


def _numbers(name, value, shape):
    value = np.asarray(value)
    if value.dtype.kind not in "fiu":
        raise StateError("{}: the state has values of {}; needed are numbers".format(name, value.dtype))
    if value.shape != shape:
        raise StateError("{}: the state has shape {}; needed is {}".format(name, value.shape, shape))
    return value
