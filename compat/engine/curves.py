"""Polynomials for the sums of quotients that `steps.quotient` of `fast_forward` reads from a table.

A quotient is weight / (left * root + epsilon), where weight and left are numbers of one missed update, and root is an
array. With y = epsilon / (root + epsilon), between 0 and 1, it is weight / (left * (1 - y) + y) / (root + epsilon), so
a sum of quotients is a function of y. A polynomial that equals it at Lobatto's places is nearly exact for every root
and epsilon, and exact for y = 0. An expansion in epsilon / root diverges for roots near epsilon.
"""
from __future__ import absolute_import, division, print_function

import math
from collections import namedtuple

import numpy as np

FADED, LONGEST = 1e-10, 4095  # terms of a sum end when one is FADED of the first, or after LONGEST updates
MOST_PLACES, ERROR = 9, 3e-8  # the longest polynomial, and its largest error relative to the sum
# places: where the polynomial equals the sum; inverse: the matrix from the values there to its coefficients.
Curve = namedtuple("Curve", "places inverse")
_curves = {}  # type: dict


def faded_after(fade):
    """Returns for how many updates terms count, if each is `fade` of the one before; the most if that is None."""
    if fade is None or fade >= 1:
        return LONGEST
    return min(LONGEST, max(1, int(math.ceil(math.log(FADED) / math.log(max(fade, FADED))))))


def quotient_curve(fade, shrink):
    """Returns the `Curve` for sums of weight / (left * root + epsilon).

    Args:
        fade: what the weight is of the one an update before, such as Adam's beta_1; None if not known.
        shrink: the same for left, such as the square root of beta_2.

    Returns:
        None if no polynomial is exact enough, as for a beta_2 far below beta_1, or if a number is not known.
    """
    if fade is None or shrink is None:
        return None
    if (fade, shrink) not in _curves:
        _curves[fade, shrink] = _curve(fade, shrink)
    return _curves[fade, shrink]


def _curve(fade, shrink):
    updates = np.arange(1.0, faded_after(fade) + 1)
    weights, lefts = max(fade, FADED) ** updates, shrink**updates

    def total(places):
        places = np.reshape(places, (-1, 1))
        return np.sum(weights / (lefts * (1 - places) + places), axis=1)

    if lefts[-1] < 1e-30:
        return None
    points = np.append(0, np.logspace(-8, 0, 81))
    exact = total(points)
    for count in range(2, MOST_PLACES + 1):
        places = (1 - np.cos(np.pi * np.arange(count) / (count - 1))) / 2
        inverse = np.linalg.inv(np.stack([places**power for power in range(count)], axis=1))
        polynomial = np.polyval(np.dot(inverse, total(places))[::-1], points)
        if np.max(np.abs(polynomial - exact) / exact) <= ERROR:
            return Curve(places, inverse)
    return None


def curve_terms(backend, values, curve):
    """Returns the coefficients of weight / (left * (1 - y) + y) as a polynomial of y, shape (window, places)."""
    ops, (weight, left) = backend.ops, values
    places, inverse = backend.constant(curve.places, "float64"), backend.constant(curve.inverse, "float64")
    at_places = weight / ops["maximum"](left * (1 - places) + places, 1e-30)
    return ops["sum"](ops["reshape"](at_places, (-1, 1, len(curve.places))) * inverse, axis=2)
