"""Checks of gradients that are arrays, for every backend."""
from __future__ import absolute_import, division, print_function

import numpy as np

from everstep.errors import GradientError


def numbers_of(value):
    """Returns a number, list or array as an array of real numbers; None for anything else."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, NotImplementedError, RuntimeError):  # a ragged list; a tensor of a graph
        return None
    return array if array.dtype.kind in "fiu" or array.dtype.name == "bfloat16" else None


def check_row_numbers(rows, count, name):
    """Raises GradientError if a variable of `count` rows lacks one of some rows, an array. `name` is the variable's."""
    if rows.size and (rows.min() < 0 or rows.max() >= count):
        missing = rows[(rows < 0) | (rows >= count)].reshape(-1)[0]
        raise GradientError("{} of {} rows has no row {}".format(name, count, missing))
