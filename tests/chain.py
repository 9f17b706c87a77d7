"""A chain of matrices, a network whose gradients NumPy computes: it shows steps that read and write out of order."""
from __future__ import absolute_import, division, print_function

import numpy as np


def orthogonal(size, seed):
    return np.linalg.qr(np.random.RandomState(seed).randn(size, size))[0].astype("float32")


def chain_gradients(weights, x, y):
    """Returns the gradient of mean((x W1 W2 ... - y)^2) for each W."""
    ahead = [x]
    for weight in weights:
        ahead.append(ahead[-1].dot(weight))
    back, grads = 2.0 * (ahead[-1] - y) / y.size, []
    for weight, value in zip(reversed(weights), reversed(ahead[:-1])):
        grads.insert(0, value.T.dot(back))
        back = back.dot(weight.T)
    return grads


def wrong_steps(step, read, definition, steps, rows=32):
    """Returns (number of wrong steps, largest error). Each step is compared with one of NumPy from the same weights.

    The tolerance is a fifth of the effect of a `t` that is off by one at step 300.
    """
    before, oracle, random = read(), definition.bind(np), np.random.RandomState(1)
    arrays, wrong, worst = [weight.astype("float64") for weight in before], 0, 0.0
    for _ in range(steps):
        x, y = random.randn(2, rows, len(arrays[0])).astype("float32")
        oracle.apply_gradients(zip(chain_gradients(arrays, x, y), arrays))
        step([x, y])
        after = read()
        moved = max(abs(array - was).max() for array, was in zip(arrays, before))
        error = max(abs(array - actual).max() for array, actual in zip(arrays, after)) / max(moved, 1e-4)
        wrong, worst = wrong + (error > 3e-4), max(worst, error)
        for array, actual in zip(arrays, after):
            array[...] = actual
        before = after
    return wrong, worst
