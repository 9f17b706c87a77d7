"""`everstep.State`, and taking it from an optimizer and giving it to one."""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict

import numpy as np

from everstep.errors import StateError, UnsupportedError


class State(object):
    """What an optimizer has learned, in no framework's form.

    Attributes:
        definition: the definition's config.
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


def named(variables):
    """`{name: variable}` of a list or a dictionary."""
    if isinstance(variables, dict):
        return OrderedDict(variables)
    return OrderedDict((str(place), variable) for place, variable in enumerate(variables))


def capture(optimizer, variables):
    """The state of a bound optimizer, copied.

    Args:
        optimizer: what `bind(numpy)` gave.
        variables: the arrays it trains: a list, or {name: array}.
    """
    _check_arrays(optimizer)
    counters = {name: int(value) for name, value in optimizer._counters.items()}
    slots = OrderedDict()
    for name, variable in named(variables).items():
        slots[name] = {slot: np.array(optimizer.slot(variable, slot)) for slot in optimizer.slot_names(variable)}
    return State(
        optimizer.definition.get_config(),
        counters["updates"],
        counters.get("steps"),
        counters.get("pending", 0),
        {name: float(value) for name, value in optimizer._scalars.items()},
        slots,
    )


def restore(optimizer, state, variables):
    """Gives a state to a bound optimizer. Everything is checked first; what fails changes nothing.

    Raises:
        StateError: the state is not of these variables or slots; the message names the first that does not fit.
    """
    _check_arrays(optimizer)
    arrays = named(variables)
    if set(arrays) != set(state.slots):
        raise StateError(
            "the state is of the variables {}; given were {}".format(", ".join(sorted(state.slots)), ", ".join(sorted(arrays)))
        )
    writes = []
    for name, variable in arrays.items():
        wanted, found = set(optimizer.slot_names(variable)), set(state.slots[name])
        if wanted != found:
            raise StateError(
                "{}: the state holds the slots {}; {} needs {}".format(
                    name, ", ".join(sorted(found)) or "none", type(optimizer).__name__, ", ".join(sorted(wanted)) or "none"
                )
            )
        for slot in sorted(wanted):
            _, shape, _ = optimizer.slot_declaration(variable, slot)
            value = np.asarray(state.slots[name][slot])
            if value.shape != tuple(shape):
                raise StateError("{}/{}: the state has shape {}; needed is {}".format(name, slot, value.shape, tuple(shape)))
            writes.append((variable, slot, value))
    if set(optimizer._scalars) != set(state.scalars):
        raise StateError("the state has the scalars {}; needed are {}".format(sorted(state.scalars), sorted(optimizer._scalars)))
    counts = {"updates": state.updates, "steps": state.steps, "pending": state.pending}
    for name, counter in optimizer._counters.items():
        if counts[name] is None:
            raise StateError("the state has no {}, which {} counts".format(name, type(optimizer).__name__))
    for variable, slot, value in writes:
        optimizer.slot(variable, slot)[Ellipsis] = value
    for name, counter in optimizer._counters.items():
        counter[Ellipsis] = counts[name]
    for name, scalar in optimizer._scalars.items():
        scalar[Ellipsis] = state.scalars[name]


def _check_arrays(optimizer):
    if getattr(optimizer, "target", None) != "arrays":
        raise UnsupportedError(
            "capture and restore work on what bind(numpy) gives; on {!r} use the API's own checkpoints".format(optimizer)
        )
