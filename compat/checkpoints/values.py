"""Checks the values of a state: their shapes, and that a cast to another dtype loses nothing."""
from __future__ import absolute_import, division, print_function

import numpy as np

from everstep.compat.engine.fitting import agree
from everstep.compat.files.contents import size_of
from everstep.compat.files.exact import bfloat16_to_float32, cast_exactly
from everstep.errors import StateError


class Room(object):
    """Memory for values that are kept from their check until they are used, so that they are read once.

    Args:
        size: bytes.
    """

    def __init__(self, size):
        self.size = size

    def takes(self, handle):
        """Returns True if there is room for the values of a handle, which is then used. Other arrays need none."""
        if isinstance(handle, np.ndarray) or not isinstance(getattr(handle, "dtype", None), np.dtype):
            return False
        fits = size_of(handle) <= self.size
        self.size -= size_of(handle) if fits else 0
        return fits


class Checked(object):
    """A value of a state: checked when this is constructed, and read again when it is called, unless it is kept.

    Attributes:
        is_shared: False if a call returns an array that nobody else holds.
    """

    def __init__(self, name, handle, shape, dtype, room=None):
        self.name, self.handle, self.shape, self.dtype = name, handle, shape, dtype
        self.is_shared, self._kept = not getattr(handle, "reads_new_arrays", False), None
        check_shape(name, handle, shape)
        if room is not None and room.takes(handle):
            self._kept = self._read()
        elif self.is_shared or np.dtype(handle.dtype).name != dtype:
            self._read()
        else:
            handle.verify()  # only the checksum can still be wrong

    def __call__(self):
        value, self._kept = self._kept, None
        return self._read() if value is None else value

    def _read(self):
        return cast_exactly(self.name, numeric_array(self.name, self.handle, self.shape), self.dtype)

    def part(self, place):
        """Returns the slice of the value that belongs to one part of a partitioned variable."""
        source = self.handle if self._kept is None else self._kept
        value = np.asarray(source[place.slices[0]])[(slice(None),) + place.slices[1:]]
        return cast_exactly(self.name, bfloat16_to_float32(value), self.dtype)


def numeric_array(name, value, shape):
    """Returns the value as a NumPy array of numbers of the given shape, or raises StateError."""
    check_shape(name, value, shape)
    try:
        value = np.asarray(value)
    except StateError:
        raise
    except Exception as error:  # a handle raises what its file library raises
        raise StateError("{}: the state cannot be read: {}".format(name, error))
    value = bfloat16_to_float32(value)
    if value.dtype.kind not in "fiu" or not agree(value.shape, shape):
        raise StateError("{}: the state has values of {}; needed are numbers".format(name, value.dtype))
    return value


def check_shape(name, value, shape):
    """Raises StateError unless an array or handle has the given shape, as far as that is known."""
    actual_shape = shape_of(name, value)
    if not agree(actual_shape, shape):
        raise StateError("{}: the state has shape {}; needed is {}".format(name, actual_shape, shape))


def shape_of(name, value):
    """Returns the shape of an array, a handle or a nested list."""
    try:
        return tuple(np.shape(value))
    except ValueError as error:  # a ragged list
        raise StateError("{}: the state has no array: {}".format(name, error))
