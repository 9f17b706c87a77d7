"""Clips gradients for base classes that do not. Sparse gradients stay sparse."""
from __future__ import absolute_import, division, print_function

import math
import numbers

import numpy as np

from everstep.errors import HyperTypeError, HyperValueError
from everstep.optimizers.contract.checks import compute_dtype


def check_bounds(native, bounds=("clipnorm", "clipvalue")):
    """Returns the native keywords without the bounds that are None. Raises HyperTypeError or HyperValueError."""
    keywords = {name: value for name, value in native.items() if value is not None or name not in bounds}
    for name in sorted(set(bounds) & set(keywords)):
        value = keywords[name]
        if isinstance(value, np.ndarray) and value.shape == ():
            value = keywords[name] = value.item()
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise HyperTypeError("{} takes a number; got {!r}".format(name, value))
        if math.isnan(value) or value < 0:
            raise HyperValueError("{} must be at least 0 (none); got {!r}".format(name, value))
    return keywords


def clip(backend, grads, clipnorm=None, clipvalue=None, one_norm=False):
    """Returns clipped gradients: first by norm, then by value, as Keras before TF 2.4 does.

    Args:
        clipnorm, clipvalue: bounds. None, 0 and (as in stock Keras) negative numbers mean no bound.
        one_norm: True for one norm of all gradients (standalone Keras), False for one norm each (tf.keras).
    """
    if not (clipnorm or clipvalue):
        return list(grads)
    tf = backend.tf
    parts = [_Part(backend, grad) for grad in grads]
    if clipnorm and clipnorm > 0:
        squares = [part.square_sum() for part in parts]
        if one_norm:
            squares = [tf.add_n([tf.cast(square, "float64") for square in squares])] * len(parts)
        for part, square in zip(parts, squares):
            scale = tf.minimum(clipnorm / tf.maximum(tf.sqrt(square), 1e-30), 1.0)
            part.values = part.values * tf.cast(scale, part.values.dtype)
    if clipvalue and clipvalue > 0:
        for part in parts:
            part.values = tf.clip_by_value(part.values, -clipvalue, clipvalue)
    return [part.grad() for part in parts]


def without_duplicates(backend, grad):
    """Returns the gradient; equal rows of a sparse gradient are summed."""
    return _Part(backend, grad).grad()


class _Part(object):
    """A gradient's values, in the compute dtype and without duplicate rows. `grad` rebuilds the gradient."""

    def __init__(self, backend, grad):
        self.tf, self.original, self.rows = backend.tf, grad, None
        values, indices = backend.slices(grad) or (backend.tensor(grad), None)
        self.values = backend.cast(values, compute_dtype(backend.dtype(values)))
        if indices is not None:
            self.values, self.rows = backend.sum_duplicates(self.values, indices)

    def square_sum(self):
        return self.tf.reduce_sum(self.tf.square(self.values))

    def grad(self):
        if self.rows is None:
            return self.values
        return self.tf.IndexedSlices(self.values, self.rows, self.original.dense_shape)
