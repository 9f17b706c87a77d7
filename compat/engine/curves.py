"""Polynomials for the sums of quotients that `steps.quotient` of `fast_forward` reads from a table.

A quotient is weight / (left * root + epsilon), where weight and left are numbers of one missed update, and root is an
array. With y = epsilon / (root + epsilon), between 0 and 1, it is weight / (left * (1 - y) + y) / (root + epsilon), so
a sum of quotients is a function of y. A polynomial that equals it at Lobatto's places, and has its slope at 0, is
nearly exact for every root and epsilon, and more so for y near 0. An expansion in epsilon / root diverges for roots
near epsilon.

Worked example: Adam's beta_1 is 0.9, its beta_2 0.999, and epsilon 1e-7. A row with root 2e-7 missed many updates. Its
sum is 0.9 / (0.9995 * 2e-7 + 1e-7) + 0.81 / (0.999 * 2e-7 + 1e-7) + ... = 30100207.767. Here y is 1/3. The sum at y =
0, 0.5 and 1 is 9.0452, 9.0225 and 9, its slope at 0 is -0.0457, so the polynomial is
9.0452 - 0.0457 y + 0.00044 y^2 - 0.0000062 y^3. At 1/3, divided by root + epsilon = 3e-7, it gives 30100207.762.
"""
from __future__ import absolute_import, division, print_function

import math
from collections import namedtuple

import numpy as np

FADED, LONGEST = 1e-10, 4095  # terms of a sum end when one is FADED of the first, or after LONGEST updates
MOST_PLACES, ERROR = 8, 3e-8  # of the longest polynomial, and its largest error relative to the sum
# places: where the polynomial equals the sum; inverse: the matrix from the values there, and the slope at 0, to its
# coefficients.
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
    exact, slope = total(points), np.sum(weights * (lefts - 1) / lefts**2)
    for count in range(2, MOST_PLACES + 1):
        places = (1 - np.cos(np.pi * np.arange(count) / (count - 1))) / 2
        powers = [places**power for power in range(count + 1)]
        inverse = np.linalg.inv(np.vstack([np.stack(powers, axis=1), np.eye(1, count + 1, 1)]))
        polynomial = np.polyval(np.dot(inverse, np.append(total(places), slope))[::-1], points)
        if np.max(np.abs(polynomial - exact) / exact) <= ERROR:
            return Curve(places, inverse)
    return None


def curve_terms(backend, values, curve):
    """Returns the coefficients of weight / (left * (1 - y) + scale * y), a polynomial of y: (window, coefficients)."""
    ops, (weight, left, scale) = backend.ops, values
    places, inverse = backend.constant(curve.places, "float64"), backend.constant(curve.inverse, "float64")
    left = ops["maximum"](left, 1e-30)
    slope = weight * (left - scale) / (left * left)
    known = backend.concat([weight / (left * (1 - places) + scale * places), slope], 1)
    return ops["sum"](ops["reshape"](known, (-1, 1, len(curve.inverse))) * inverse, axis=2)
