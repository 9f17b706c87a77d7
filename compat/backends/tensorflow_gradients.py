"""TensorFlow's verbs for gradients: what a step takes, and checks of values that only a running graph knows."""
from __future__ import absolute_import, division, print_function

import numpy as np

from everstep.compat.backends.base import Backend
from everstep.compat.backends.gradient_values import check_row_numbers, numbers_of

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments


# Operations in session graphs. The result of `_FLOW` and `_FORWARDING` may be an input, in the same memory.
_FLOW = frozenset("Enter Exit Merge NextIteration PlaceholderWithDefault Switch".split())
_FORWARDING = _FLOW | frozenset(
    "Bitcast BroadcastTo Cast CheckNumerics Concat ConcatV2 ExpandDims GuaranteeConst Identity IdentityN Max Mean Min "
    "Neg Pack PreventGradient Print Prod RefIdentity Reshape Select Slice Split SplitV Squeeze StopGradient "
    "StridedSlice Sum Tile Transpose Unpack".split()
)
# TensorFlow's graph optimizer merges these with operations of their kind; or it drops them, if they add 0.
_SUMS = frozenset("Add AddN AddV2".split())
_MERGED = _SUMS | frozenset("Div Mul RealDiv Sub".split())
_OF_SHAPES = frozenset("OnesLike Rank Shape ShapeN Size ZerosLike".split())  # constants, where shapes are known


class TensorFlowGradients(Backend):
    """The verbs of TensorFlowBackend for gradients."""

    tf = None  # type: Any  # TensorFlowBackend sets it
    _eager_class = None  # type: Any  # the class of eager tensors

    def gradient(self, value, dtype):
        if isinstance(value, self.tf.Tensor):
            return value
        if isinstance(value, self.tf.SparseTensor):
            return None
        if isinstance(getattr(value, "dtype", None), str):  # a variable of Keras 3
            return self.tf.convert_to_tensor(value)
        return super(TensorFlowGradients, self).gradient(value, dtype)

    def surely_fits(self, grad, variable):
        if type(grad) is not self._eager_class or getattr(variable, "_in_graph_mode", True) or not self.eager:
            return False
        dtype = grad.dtype
        return dtype is variable.dtype and dtype.is_floating and grad.shape == variable.shape

    def is_foreign(self, value):
        if isinstance(value, self.tf.Tensor):
            if self.eager:
                if self._eager_class is None:
                    self._eager_class = type(self.tf.constant(0))
                return not isinstance(value, self._eager_class)
            return self.in_session() and getattr(value, "graph", None) is not self.tf.get_default_graph()
        in_graph = getattr(value, "_in_graph_mode", None)  # only resource variables have it
        if self.eager:
            return in_graph is True
        graph = getattr(value, "graph", None)
        other = graph is not None and graph is not self.tf.get_default_graph()
        return self.in_session() and (in_graph is False or other)

    def fitting(self, grad, variable, name):
        if grad is None or self.local(grad) is not grad:  # None, or one value for each replica
            return grad
        slices = self.slices(grad)
        if self.eager:
            if slices:
                self.existing_rows(slices[1], variable, name)
            return grad
        with self.tf.name_scope("fitting"):
            if not slices:
                return self._of_shape(grad, variable, name)
            values, rows = slices[0], self.existing_rows(slices[1], variable, name)
            counts, shape = self.shape(rows), self.shape(values)
            if None in (counts or (None,)) + (shape or (None,))[:1]:
                values = self._if_equal(values, self.tf.shape(rows), self.tf.shape(values)[:1], name)
            return self.tf.IndexedSlices(values, rows, grad.dense_shape)

    def lasting(self, pairs):
        if not self.in_session():
            return pairs
        written = {variable.op for _, variable in pairs if getattr(variable.dtype, "_is_ref_dtype", False)}
        return [(self._lasting(grad, written), variable) for grad, variable in pairs]

    def _lasting(self, grad, written):
        slices = self.slices(grad)
        value = slices[0] if slices else grad
        if not isinstance(value, self.tf.Tensor) or not _may_change(value.op, written):
            return grad
        copy = self.tf.maximum(value, value)  # no graph optimizer merges this with anything
        copy.set_shape(value.get_shape())
        return self.tf.IndexedSlices(copy, slices[1], grad.dense_shape) if slices else copy

    def _of_shape(self, grad, variable, name):
        """Returns a dense gradient; it fails if its shape, unknown so far, is not the variable's."""
        shapes = self.shape(grad), self.shape(variable)
        if not any(shape is None or None in shape for shape in shapes):
            return grad
        shape = self.tf.shape(variable)
        # Without `slice`, which gets all, TensorFlow infers the shape from the kernel that uses it, and folds the check
        # away. TF 2.3 infers through a `reshape` too.
        whole = self.tf.slice(self._if_equal(grad, self.tf.shape(grad), shape, name), self.tf.zeros_like(shape), shape)
        whole.set_shape(self.shape(variable))
        return whole

    def _if_equal(self, value, actual, expected, name):
        """Returns a value that fails if two shapes differ."""
        ranks = self.tf.size(actual), self.tf.size(expected)
        both = self.tf.minimum(*ranks)  # TensorFlow cannot compare shapes of different lengths
        same = self.tf.reduce_all(self.tf.equal(actual[:both], expected[:both]))
        same = self.tf.logical_and(self.tf.equal(*ranks), same)
        message = "the gradient of {} does not fit it: its shape, and the needed one, are".format(name)
        with self.after([self._assert(same, [message, actual, expected])]):
            return self.tf.identity(value)

    def sparse(self, values, rows, like):
        rows = rows if isinstance(rows, self.tf.Tensor) else numbers_of(rows)
        if isinstance(rows, np.ndarray):
            if rows.size and rows.dtype.kind not in "iu":
                return None
            rows = self.constant(rows, "int64")
        shape = like.dense_shape
        return self.tf.IndexedSlices(values, rows, None if shape is None else self.tensor(shape))

    def existing_rows(self, rows, variable, name):
        count = self.rows_of(variable)
        if self.eager:
            check_row_numbers(rows.numpy(), int(count), name)
            return rows
        # GPUs have no smallest int64, and ~x falls as x rises. Of no rows the smallest is the largest number there is,
        # and the other way round: that passes.
        smallest, largest = -1 - self.tf.reduce_max(-1 - rows), self.tf.reduce_max(rows)
        smallest, largest = self.cast(smallest, "int64"), self.cast(largest, "int64")
        exist = self.tf.logical_and(smallest >= 0, largest < self.cast(self.tensor(count), "int64"))
        message = "{} has rows 0 to n - 1; n, and the smallest and largest row of its gradient, are".format(name)
        with self.after([self._assert(exist, [message, count, smallest, largest])]):
            return self.tf.identity(rows)

    def _assert(self, condition, data):
        """Returns an operation that fails with the data. `tf.Assert` would add a branch, to format it only then."""
        from tensorflow.python.ops import gen_logging_ops

        return gen_logging_ops._assert(condition, [self.tf.convert_to_tensor(value) for value in data], summarize=10)


def _may_change(op, written):
    """Returns whether a gradient's operation may give another value once some ref variables are written.

    There are two ways. The value of a ref variable is its memory, and many operations pass it on without a copy. And
    TensorFlow's graph optimizer, from 1.6 on, makes one constant of those in `c1 * (c2 * x)`, the operation of a rule
    on that of a gradient; it forgets that x must be read before the variables are written.

    Args:
        written: the operations of the ref variables.
    """
    waiting, seen = [(op, False)], set()
    while waiting:
        op, is_added = waiting.pop()
        if op in written:
            return True
        if not is_added and op.type in _MERGED and any(_is_constant(value.op) for value in op.inputs):
            return True
        if (op.type in _FORWARDING or op.type in _SUMS) and (op, is_added) not in seen:
            seen.add((op, is_added))
            waiting.extend((value.op, is_added or op.type in _SUMS) for value in op.inputs)
    return False


def _is_constant(op):
    """Returns whether a graph optimizer can compute an operation without a run."""
    waiting, seen = [op], set()
    while waiting:
        op = waiting.pop()
        if op.type == "Const" or op.type in _OF_SHAPES or op in seen:
            continue
        if not op.inputs or op.type in _FLOW or op.op_def.is_stateful:
            return False
        seen.add(op)
        waiting.extend(value.op for value in op.inputs)
    return True
