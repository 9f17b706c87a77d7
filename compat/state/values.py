"""Checks the values of a state: their shapes, and that their dtypes lose nothing."""
from __future__ import absolute_import, division, print_function

import numpy as np

from everstep.errors import StateError

TEXT = (str, type(u""))


class Checked(object):
    """A value of a state, checked when this is made and read again when it is called."""

    def __init__(self, name, handle, shape, dtype):
        self.name, self.handle, self.shape, self.dtype = name, handle, tuple(shape), dtype
        self()

    def __call__(self):
        return exactly(self.name, numbers_of(self.name, self.handle, self.shape), self.dtype)

    def part(self, place):
        """What belongs to a part of a partitioned variable."""
        value = np.asarray(self.handle[place.slices[0]])[(slice(None),) + place.slices[1:]]
        return exactly(self.name, without_bfloat16(value), self.dtype)


def numbers_of(name, value, shape):
    found = shape_of(name, value)
    if found != shape:
        raise StateError("{}: the state has shape {}; needed is {}".format(name, found, shape))
    try:
        value = np.asarray(value)
    except StateError:
        raise
    except Exception as error:  # whatever a handle of another file reads with
        raise StateError("{}: the state cannot be read: {}".format(name, error))
    value = without_bfloat16(value)
    if value.dtype.kind not in "fiu" or value.shape != shape:
        raise StateError("{}: the state has values of {}; needed are numbers".format(name, value.dtype))
    return value


def shape_of(name, value):
    try:
        return tuple(np.shape(value))
    except ValueError as error:  # a ragged list
        raise StateError("{}: the state has no array: {}".format(name, error))


def exactly(name, value, dtype):
    """The value in a dtype that holds it; bfloat16, which NumPy has not, as float32."""
    value = np.asarray(value)
    made = value.astype("float32" if dtype == "bfloat16" else dtype)
    same = made.dtype == value.dtype or (
        np.array_equal(made[made == made], value[value == value]) and np.array_equal(made == made, value == value)
    )
    if same and dtype == "bfloat16":
        same = not np.any(np.ascontiguousarray(made).view(np.uint32) & 0xFFFF)
    if not same:
        raise StateError(
            "{}: the state has {} values that {} does not hold; cast them yourself if what is lost may be".format(
                name, value.dtype, dtype
            )
        )
    return made


def without_bfloat16(value):
    """bfloat16, which NumPy has not, as float32."""
    return value.astype(np.float32) if value.dtype.name == "bfloat16" else value
