"""The start values of slots that begin with random numbers, computed by NumPy on every target."""
from __future__ import absolute_import, division, print_function

import numpy as np

from everstep.compat.backends.on_numpy import numpy_ops
from everstep.compat.engine.fitting import is_known, shape_needed
from everstep.errors import VariableError
from everstep.optimizers.contract.counted_random import RandomStart


class Drawn(object):
    """The numbers that a slot starts with. They are computed when NumPy makes an array of it.

    Args:
        start: the `RandomStart`.
        seed: a text.
        shape, offset, whole: of `RandomStart.numbers`.
    """

    def __init__(self, start, seed, shape, offset, whole):
        self._start, self._seed, self._shape, self._offset, self._whole = start, seed, shape, offset, whole

    def __array__(self, dtype=None, copy=None):
        values = self._start.numbers(numpy_ops, self._seed, self._shape, self._offset, self._whole)
        return np.asarray(values, dtype)


def initial_value(owner, slot, record, place):
    """Returns a slot's initial value: a number, VARIABLE, or `Drawn`.

    Args:
        owner: the definition that declares the slot.
        slot: the declaration.
        record: the variable or the part of one.
        place: the `Place` of the part that `record` is; None for a whole variable.

    Raises:
        VariableError: random numbers need the shape of the variable, which is not known.
    """
    initial = slot.initial_value(owner)
    if not isinstance(initial, RandomStart):
        return initial
    shape = slot.shape_for(record)
    if not is_known(shape):
        raise VariableError(shape_needed(owner, record))
    seed = initial.seed if isinstance(initial.seed, int) else getattr(owner, str(initial.seed))
    offset, whole = (0,) * len(shape), shape
    if place is not None:
        of_whole = slot.shape_for(record._replace(shape=place.whole))
        if len(shape) == len(place.whole) and of_whole != shape:
            whole = of_whole
            offset = tuple(
                part.start if size != all_of_it else 0 for part, size, all_of_it in zip(place.slices, shape, of_whole)
            )
    return Drawn(initial, "{}/{}/{}".format(record.name, slot.name, seed), shape, offset, whole)
