"""Closed forms of many updates with a zero gradient, for `fast_forward`."""
from __future__ import absolute_import, division, print_function


def geometric(ops, ratio, steps):
    """Returns 1 + ratio + ... + ratio^(steps - 1), for 0 <= ratio <= 1. It is `steps` if ratio is 1."""
    below = ops.where(ratio < 1, 1 - ratio, 1)
    return ops.where(ratio < 1, (1 - ratio**steps) / below, steps)


def decayed(ops, share, steps):
    """Returns 1 - (1 - share)^steps, the part of a value that `steps` decays by `share` take off.

    Below a share of 0.01 a Taylor series replaces -log(1 - share), which would lose small shares to rounding.
    """
    small = share * (1 + share * (1 / 2 + share * (1 / 3 + share / 4)))
    return 1 - ops.exp(-steps * ops.where(share < 0.01, small, -ops.log(ops.maximum(1 - share, 1e-30))))


def surely_zero(*numbers):
    """Returns whether hypers are given as 0, and not as tensors, callables or schedules."""
    return all(isinstance(number, float) and number == 0 for number in numbers)
