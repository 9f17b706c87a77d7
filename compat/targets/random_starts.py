"""The start values of slots that begin with random numbers or by a function, computed by NumPy on every target."""
from __future__ import absolute_import, division, print_function

import numpy as np

from everstep.compat.backends.on_numpy import numpy_ops
from everstep.compat.engine.fitting import is_known, shape_needed
from everstep.errors import DefinitionError, VariableError
from everstep.optimizers.contract.counted_random import RandomStart


class Computed(object):
    """The numbers that a slot starts with. They are computed when NumPy makes an array of it.

    Args:
        compute: returns the array.
    """

    def __init__(self, compute):
        self._compute = compute

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self._compute(), dtype)


def initial_value(owner, slot, record, place):
    """Returns a slot's initial value: a number, VARIABLE, or `Computed`.

    Args:
        owner: the definition that declares the slot.
        slot: the declaration.
        record: the variable or the part of one.
        place: the `Place` of the part that `record` is; None for a whole variable.

    Raises:
        VariableError: its numbers need the shape of the variable, which is not known.
        DefinitionError: a function returned something else than an array of the slot's shape or a number.
    """
    initial = slot.initial_value(owner)
    if not isinstance(initial, RandomStart) and not callable(initial):
        return initial
    shape = slot.shape_for(record, owner)
    if not is_known(shape):
        raise VariableError(shape_needed(owner, record))
    offset, whole = (0,) * len(shape), shape
    if place is not None:
        of_whole = slot.shape_for(record._replace(shape=place.whole), owner)
        if len(shape) == len(place.whole) and of_whole != shape:
            whole = of_whole
            offset = tuple(
                part.start if size != all_of_it else 0 for part, size, all_of_it in zip(place.slices, shape, of_whole)
            )
    if callable(initial):
        whole_record = record if place is None else record._replace(shape=place.whole)
        part = tuple([slice(first, first + size) for first, size in zip(offset, shape)])
        return Computed(lambda: _of_function(initial, slot, whole_record, whole)[part])
    seed = initial.seed if isinstance(initial.seed, int) else getattr(owner, str(initial.seed))
    seed = "{}/{}/{}".format(record.name, slot.name, seed)
    return Computed(lambda: initial.numbers(numpy_ops, seed, shape, offset, whole))


def _of_function(function, slot, record, shape):
    """Returns the array that a slot of a whole variable starts with, by the function that its declaration has."""
    try:
        value = np.asarray(function(record), np.float64)
        if value.shape not in ((), shape):
            raise ValueError("it returned an array of shape {}".format(value.shape))
    except Exception as error:  # of the user's function
        raise DefinitionError(
            "the function that gives the initial value of slot {} fails for {} of shape {}: {}: {}. It takes an "
            "everstep.Variable, or that and the definition, and returns an array of shape {} or a number".format(
                slot.name, record.name, record.shape, type(error).__name__, error, shape))
    return np.full(shape, value)
