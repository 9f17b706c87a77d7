"""Casts that lose nothing."""
from __future__ import absolute_import, division, print_function

import numpy as np

from everstep.errors import StateError


def cast_exactly(name, value, dtype):
    """Returns the value in `dtype`, the same array if it has it. Raises StateError if the cast loses anything.

    NumPy has no bfloat16: for that dtype the result is float32, with values that bfloat16 holds.
    """
    value = np.asarray(value)
    cast = value.astype("float32" if dtype == "bfloat16" else dtype, copy=False)
    is_exact = cast.dtype == value.dtype or (
        np.array_equal(cast[cast == cast], value[value == value]) and np.array_equal(cast == cast, value == value)
    )
    if is_exact and dtype == "bfloat16":
        is_exact = not np.any(np.ascontiguousarray(cast).view(np.uint32) & 0xFFFF)
    if not is_exact:
        raise StateError(
            "{}: the state has {} values that {} does not hold; cast it yourself if the loss is acceptable".format(
                name, value.dtype, dtype
            )
        )
    return cast


def bfloat16_to_float32(value):
    """Returns bfloat16 values as float32, since NumPy has no bfloat16; others unchanged."""
    return value.astype(np.float32) if value.dtype.name == "bfloat16" else value
