"""Checks of single values, and what dtypes mean. No framework is imported to look at its tensors."""
from __future__ import absolute_import, division, print_function

import math
import re

import numpy as np

from everstep.errors import HyperTypeError, HyperValueError

TEXT = (str, bytes, type(u""))
SIXTEEN_BITS = frozenset(["float16", "bfloat16"])


def compute_dtype(dtype):
    """The dtype in which a rule computes for variables of a dtype."""
    return "float32" if dtype in SIXTEEN_BITS else dtype


def check_number(what, value, minimum=None, maximum=None):
    """A finite number within bounds, as a float."""
    if np.ndim(value):
        raise HyperTypeError("{} takes a scalar; got an array of shape {}".format(what, np.shape(value)))
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise HyperTypeError("{} takes a number; got {!r}".format(what, value))
    if math.isnan(number) or math.isinf(number):
        raise HyperValueError("{} must be finite; got {!r}".format(what, number))
    if minimum is not None and number < minimum:
        raise HyperValueError("{} must be at least {}; got {!r}".format(what, minimum, number))
    if maximum is not None and number > maximum:
        raise HyperValueError("{} must be at most {}; got {!r}".format(what, maximum, number))
    return number


def check_pattern(what, value):
    """A regular expression for names."""
    try:
        re.search(value, "")
    except (re.error, TypeError) as error:  # bytes, where names are text
        raise HyperValueError("{} takes a regular expression; got {!r}: {}".format(what, value, error))


def is_tensor(value):
    """Whether a value looks like a framework's tensor or variable, without importing any."""
    return hasattr(value, "dtype") and (hasattr(value, "get_shape") or hasattr(value, "shape"))


def static_shape(tensor):
    """A tensor's shape as a tuple, or None where it is not known before it runs."""
    shape = tensor.get_shape() if hasattr(tensor, "get_shape") else tensor.shape
    dimensions = getattr(shape, "dims", shape)
    if dimensions is None:
        return None
    return tuple(None if getattr(d, "value", d) is None else int(getattr(d, "value", d)) for d in dimensions)
