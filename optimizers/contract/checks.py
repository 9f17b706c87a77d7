"""Checks single values and dtypes. Looks at tensors without importing their framework."""
from __future__ import absolute_import, division, print_function

import math
import re

import numpy as np

from everstep.errors import HyperTypeError, HyperValueError

try:
    from collections.abc import Sequence
except ImportError:  # Python 2
    from collections import Sequence  # type: ignore[attr-defined, no-redef]

TEXT = (str, type(u""))
TEXT_OR_BYTES = TEXT + (bytes,)
_NO_NUMBERS = "cSUmM"  # kinds of NumPy dtypes: complex, text, times
SIXTEEN_BITS = frozenset(["float16", "bfloat16"])


def is_sequence(value):
    """Returns whether a value can stand for a tuple: also a list, and what OmegaConf makes of one in settings."""
    return isinstance(value, Sequence) and not isinstance(value, TEXT_OR_BYTES)


def compute_dtype(dtype):
    """Returns the dtype in which rules compute for variables of a dtype: float32 for 16-bit ones, else the same."""
    return "float32" if dtype in SIXTEEN_BITS else dtype


def check_number(what, value, minimum=None, maximum=None):
    """Returns a value as a float, or raises an error if it is no finite number within the bounds.

    `what` names the value in the error message.
    """
    if np.ndim(value):
        raise HyperTypeError("{} takes a scalar; got an array of shape {}".format(what, np.shape(value)))
    if isinstance(value, TEXT_OR_BYTES) or getattr(getattr(value, "dtype", None), "kind", "f") in _NO_NUMBERS:
        raise HyperTypeError("{} takes a number; got {!r}".format(what, value))  # float would read some of them
    try:
        number = float(value)
    except OverflowError:
        raise HyperValueError("{} must be finite as a float; got a number above 1e308".format(what))
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
    """Raises HyperValueError if a value is no regular expression. `what` names it in the message."""
    try:
        re.search(value, "")
    except (re.error, TypeError) as error:  # TypeError: bytes, while names are text
        raise HyperValueError("{} takes a regular expression; got {!r}: {}".format(what, value, error))


def is_tensor(value):
    """Returns whether a value looks like a tensor or variable of any framework."""
    return hasattr(value, "dtype") and (hasattr(value, "get_shape") or hasattr(value, "shape"))


def is_native_schedule(value):
    """Returns whether a value looks like a framework's schedule object, such as Keras's LearningRateSchedule."""
    is_ours = hasattr(type(value), "declared_order")
    return callable(value) and not isinstance(value, type) and not is_ours and hasattr(value, "get_config")


def static_shape(tensor):
    """Returns a tensor's static shape as a tuple, None for each unknown dimension; None if its rank is unknown."""
    shape = tensor.get_shape() if hasattr(tensor, "get_shape") else tensor.shape
    dimensions = getattr(shape, "dims", shape)
    if dimensions is None:
        return None
    return tuple(None if getattr(d, "value", d) is None else int(getattr(d, "value", d)) for d in dimensions)
