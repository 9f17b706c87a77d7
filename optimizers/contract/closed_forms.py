"""Closed forms of many zero gradients, for `fast_forward`."""
from __future__ import absolute_import, division, print_function


def geometric(ops, ratio, steps):
    """1 + ratio + ... + ratio^(steps - 1), also where ratio is 1."""
    below = ops.where(ratio < 1, 1 - ratio, 1)
    return ops.where(ratio < 1, (1 - ratio**steps) / below, steps)


def decayed(ops, share, steps):
    """What is gone after `steps` times a share of what is left: 1 - (1 - share)^steps, exact for small shares too."""
    small = share * (1 + share * (1 / 2 + share * (1 / 3 + share / 4)))
    return 1 - ops.exp(-steps * ops.where(share < 0.01, small, -ops.log(ops.maximum(1 - share, 1e-30))))
