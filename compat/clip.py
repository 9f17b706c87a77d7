"""Gradient clipping for base classes that leave it undone, sparse gradients kept sparse."""
from __future__ import absolute_import, division, print_function


def clip(backend, grads, clipnorm=None, clipvalue=None, one_norm=False):
    """Clipped gradients: the norm first, then each element, as Keras before TF 2.4 does.

    Args:
        clipnorm, clipvalue: bounds; None and (as in stock Keras) nothing above 0 means none.
        one_norm: whether all gradients share one norm (standalone Keras) or each has its own (tf.keras).
    """
    if not (clipnorm or clipvalue):
        return list(grads)
    tf = backend.tf
    parts = [_Part(backend, grad) for grad in grads]
    if clipnorm and clipnorm > 0:
        squares = [part.square_sum() for part in parts]
        if one_norm:
            squares = [tf.add_n([tf.cast(square, "float32") for square in squares])] * len(parts)
        for part, square in zip(parts, squares):
            norm = tf.cast(tf.sqrt(square), part.values.dtype)
            part.values = part.values * tf.minimum(1.0, clipnorm / tf.maximum(norm, 1e-30))
    if clipvalue and clipvalue > 0:
        for part in parts:
            part.values = tf.clip_by_value(part.values, -clipvalue, clipvalue)
    return [part.grad() for part in parts]


class _Part(object):
    """A gradient's values, without duplicate rows, and what makes a gradient of them again."""

    def __init__(self, backend, grad):
        self.tf, self.original, self.rows = backend.tf, grad, None
        slices = backend.slices(grad)
        if slices:
            self.values, self.rows = backend.sum_duplicates(*slices)
        else:
            self.values = backend.tensor(grad)

    def square_sum(self):
        return self.tf.reduce_sum(self.tf.square(self.values))

    def grad(self):
        if self.rows is None:
            return self.values
        return self.tf.IndexedSlices(self.values, self.rows, self.original.dense_shape)
