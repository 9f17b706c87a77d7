"""Allocates NumPy arrays that frameworks take over without a copy, and decides when a copy is needed."""
from __future__ import absolute_import, division, print_function

import numpy as np

ALIGNMENT = 64  # bytes. TensorFlow and JAX copy arrays that begin elsewhere


def aligned_empty(shape, dtype):
    """Returns a new array in C order whose values are not set yet."""
    dtype = np.dtype(dtype)
    size = dtype.itemsize
    for length in shape:
        size *= length
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def to_give(value, dtype, is_shared):
    """Returns a value as an array that a framework may keep: of this dtype, in C order, held by nobody else.

    Args:
        value: an array.
        dtype: the dtype of the result.
        is_shared: True if somebody else holds the array, and may change it later.
    """
    value = np.asarray(value)
    if not is_shared and value.dtype == dtype and value.flags.c_contiguous:
        return value
    copy = aligned_empty(value.shape, dtype)
    copy[...] = value
    return copy


def as_own(value):
    """Returns a value that a framework gave, as an array that it does not change later."""
    value = np.asarray(value)
    return value if value.flags.owndata and value.flags.writeable else np.array(value)
