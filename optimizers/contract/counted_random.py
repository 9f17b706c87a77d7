"""Random numbers that are functions of integers: the same on every API, and in a run that is resumed."""
from __future__ import absolute_import, division, print_function

import math
import numbers
import zlib

import numpy as np

from everstep.errors import HyperTypeError
from everstep.optimizers.contract.checks import TEXT_OR_BYTES, check_number

# The largest prime for which (2 * PRIME)^2 fits into int32, which every API has, and x -> x^3 is one-to-one.
PRIME = 23159
ROUNDS = 6


def normal(ops, seed, count, hyper):
    """Returns standard normal numbers, one for each element of a variable or of the rows that a rule gets.

    The Box-Muller method makes them of whole numbers. They are within 4.7 standard deviations.

    Args:
        ops: the operations of a verb.
        seed: a text or whole number. Put the variable's name into it, or equal shapes get equal numbers.
        count: t or another count, such as hyper.updates: each has other numbers.
        hyper: the `hyper` of `measure` or `update`, which knows the place of each element; or a shape, a tuple of whole
            numbers, for an array of that shape.
    """
    return _normal(ops, _draw(ops, seed, count, *_places(ops, hyper)), count.dtype)


def uniform(ops, seed, count, hyper):
    """Returns uniform numbers from 0 to 1. The rest: see `normal`."""
    return _uniform(ops, _draw(ops, seed, count, *_places(ops, hyper)), count.dtype)


def _places(ops, where):
    """Returns the row and the place in it of each element: those that `hyper` knows, or those of a shape."""
    if not isinstance(where, (tuple, list)):
        return where.row_number, where.place_in_row
    rest, size = tuple(where[1:]), 1
    for length in rest:
        size *= length
    row = ops.reshape(ops.arange(where[0]), (-1,) + (1,) * len(rest)) if where else 0
    return row, ops.reshape(ops.arange(size), (1,) + rest) if rest else 0


def _normal(ops, draw, dtype):
    left, right = draw
    uniform = (ops.cast(left, dtype) + 0.5) / PRIME
    angle = (ops.cast(right, dtype) + 0.5) * (2 * math.pi / PRIME)
    return ops.sqrt(-2 * ops.log(uniform)) * ops.cos(angle)


def _uniform(ops, draw, dtype):
    left, right = draw
    return (ops.cast(left, dtype) + (ops.cast(right, dtype) + 0.5) / PRIME) / PRIME


def _draw(ops, seed, count, row, place):
    """Returns two whole numbers below PRIME for each element.

    They are the result of a Feistel network of six rounds on row and place modulo PRIME, with the cube as round
    function. Its keys are functions of the seed and of the count.
    """
    keys = [_key(seed, number) for number in range(ROUNDS)]
    left, right, high = (ops.cast(count // PRIME**power % PRIME, "int32") for power in range(3))
    left, right = _mixed(left, right, [(keys[0] + high) % PRIME] + keys[1:])
    keys = [(left * _key(seed, ROUNDS + number) + right * key) % PRIME for number, key in enumerate(keys)]
    left, right = _mixed(row % PRIME, place % PRIME, keys[: ROUNDS // 2])
    left, right = (left + row // PRIME) % PRIME, (right + place // PRIME) % PRIME
    return _mixed(left, right, keys[ROUNDS // 2 :])


def _key(seed, number):
    text = u"{}/{}".format(seed, number)
    return (zlib.crc32(text.encode("utf-8")) & 0xFFFFFFFF) % PRIME


def _mixed(left, right, keys):
    for key in keys:
        base = right + key  # at most 2 * PRIME, so that no product reaches 2^31
        left, right = right, (left + base * base % PRIME * base) % PRIME
    return left, right


class RandomStart(object):
    """The `init` of a slot that starts with random numbers: `random_normal(...)` or `random_uniform(...)`."""

    def __init__(self, name, distribution, settings, factor, shift, seed):
        self.name, self.settings, self.seed = name, settings, seed
        self._distribution, self._factor, self._shift = distribution, factor, shift

    def __repr__(self):
        settings = ", ".join("{}={!r}".format(*setting) for setting in self.settings)
        return "everstep.{}({}, seed={!r})".format(self.name, settings, self.seed)

    def numbers(self, ops, seed, shape, offset=None, whole=None):
        """Returns the numbers of a slot, a float64 array. They depend on the seed and on each element's place.

        Args:
            ops: the operations on NumPy arrays.
            seed: a text.
            shape: the slot's shape.
            offset, whole: for a part of a slot, where it starts in the whole slot, and the shape of that.
        """
        offset, whole = offset or (0,) * len(shape), whole or shape
        row, place, stride = np.int32(0), np.int32(0), 1
        for axis in range(len(shape) - 1, -1, -1):
            number = np.arange(offset[axis], offset[axis] + shape[axis], dtype=np.int32)
            number = number.reshape([-1 if other == axis else 1 for other in range(len(shape))])
            if axis:
                place, stride = place + number * np.int32(stride), stride * whole[axis]
            else:
                row = number
        draw = _draw(ops, seed, np.float64(0), row, place)
        return self._distribution(ops, draw, "float64") * self._factor + self._shift


def random_normal(mean=0.0, stddev=1.0, seed=0):
    """Returns the `init` of a slot that starts with normal numbers: `everstep.slot(init=everstep.random_normal())`.

    A number is a function of integers: the seed, the names of variable and slot, and the element's row and place in it.
    NumPy computes it in float64, so it is equal on every API, and the parts of a partitioned variable have the numbers
    of the whole. A state keeps them like all slots. In a TF 1 graph they are a constant of the graph. The shape of the
    variable has to be known.

    Args:
        mean: their mean. Default 0.
        stddev: their standard deviation, at least 0. They are within 4.7 of it. Default 1.
        seed: a whole number of at least 0, or the name of an option that holds it. Default 0.

    Raises:
        HyperTypeError, HyperValueError: an argument is of the wrong type or outside of its range.

    >>> import everstep
    >>> everstep.slot(init=everstep.random_normal(stddev=0.5, seed=1)).init
    everstep.random_normal(mean=0.0, stddev=0.5, seed=1)
    """
    mean, stddev = check_number("random_normal.mean", mean), check_number("random_normal.stddev", stddev, 0)
    return RandomStart("random_normal", _normal, [("mean", mean), ("stddev", stddev)], stddev, mean, _checked(seed))


def random_uniform(low=0.0, high=1.0, seed=0):
    """Returns the `init` of a slot that starts with uniform numbers. The rest: see `everstep.random_normal`.

    Args:
        low, high: the bounds. Default 0 and 1.
        seed: a whole number of at least 0, or the name of an option that holds it. Default 0.

    Raises:
        HyperTypeError, HyperValueError: an argument is of the wrong type or outside of its range.

    >>> import everstep
    >>> everstep.random_uniform(-1.0, 1.0)
    everstep.random_uniform(low=-1.0, high=1.0, seed=0)
    """
    low = check_number("random_uniform.low", low)
    high = check_number("random_uniform.high", high, low)
    return RandomStart("random_uniform", _uniform, [("low", low), ("high", high)], high - low, low, _checked(seed))


def _checked(seed):
    if isinstance(seed, TEXT_OR_BYTES):
        return seed
    if isinstance(seed, bool) or not isinstance(seed, numbers.Integral):
        raise HyperTypeError("seed takes a whole number or the name of an option; got {!r}".format(seed))
    check_number("seed", seed, 0)
    return int(seed)
