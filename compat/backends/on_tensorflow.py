"""The backend for TensorFlow 1.4 and newer, in graphs and in eager code."""
from __future__ import absolute_import, division, print_function

import contextlib

from packaging.version import Version

from everstep.compat.backends.ops_table import add_linalg, ops_table
from everstep.compat.backends.tensorflow_gradients import TensorFlowGradients
from everstep.compat.backends.tensorflow_lowering import TensorFlowLowering
from everstep.compat.backends.tensorflow_placing import TensorFlowPlacing
from everstep.compat.backends.tensorflow_values import TensorFlowValues
from everstep.errors import VariableError


def with_names_of_tf1(tf):
    """Returns the module with the names of TF 1. From 1.13 on that is compat.v1, where they do not warn."""
    return getattr(getattr(tf, "compat", None), "v1", None) or tf


class TensorFlowBackend(TensorFlowGradients, TensorFlowLowering, TensorFlowPlacing, TensorFlowValues):
    """TensorFlow 1.4 and newer: graphs and eager code, ref and resource variables.

    Args:
        tf: the module `tensorflow`.
        use_locking: passed to operations that write variables. With None, as in Keras, each operation uses its default
            and kernels lock.
    """

    name = "TensorFlow"
    unsupported = ("all_or_nothing",)
    adds_in_place = True

    def __init__(self, tf, use_locking=None):
        self.tf = with_names_of_tf1(tf)
        self.use_locking = use_locking
        self._v2 = getattr(getattr(tf, "compat", None), "v2", None)
        self._xla = getattr(getattr(tf, "xla", None), "experimental", None)  # from 1.14 on
        self._version = Version(self.tf.__version__)
        # Whether a compiled function can be called in another function and take variables as arguments.
        self._shares_compiled = self.is_since("2.5")
        # The TF 1 op warns at every use that it is deprecated.
        self._where = getattr(self._v2, "where", None) or self.tf.where
        self.ops = _tensorflow_table(self.tf, self._where)

    @property
    def eager(self):
        executing = getattr(self.tf, "executing_eagerly", None)  # from 1.7 on; older versions have only graphs
        return bool(executing and executing())

    def constant(self, number, dtype):
        return self.tf.constant(number, dtype)

    def tensor(self, value):
        return self.tf.convert_to_tensor(value)

    def cast(self, value, dtype):
        if value.dtype.base_dtype.name == dtype:
            return value
        if self._is_read_of_ref(value):
            # TensorFlow's arithmetic optimizer swaps read and cast. The cast then has no control dependencies, and may
            # run before writes that the read has to come after. The optimizer does not swap a copy.
            value = self.tf.maximum(value, value)
        return self.tf.cast(value, dtype)

    def _is_read_of_ref(self, value):
        return not self.eager and value.op.type == "Identity" and value.op.inputs[0].dtype._is_ref_dtype

    def dtype(self, variable):
        return variable.dtype.base_dtype.name

    def shape(self, value):
        shape = self.tf.TensorShape(value.shape if hasattr(value, "shape") else value.get_shape())
        return None if shape.ndims is None else tuple(shape.as_list())

    def is_ref(self, variable):
        return getattr(variable.dtype, "_is_ref_dtype", False)

    def read(self, variable):
        # In a function, operations run in the order of the code anyway: `read_value` would only add a copy. The
        # variables of some strategies have no other read.
        by_read_value = self.eager or self.in_session() or not self.without_strategy()
        return variable.read_value() if by_read_value else variable.value()

    def start_value(self, variable, dtype):
        if self.eager:
            value = variable.read_value()
        elif self.can_branch(variable):  # does what initialized_value() did; resource variables of TF 2.21 lack that
            is_initialized = self.tf.is_variable_initialized(variable)
            value = self.tf.cond(is_initialized, variable.read_value, lambda: variable.initial_value)
        else:  # a branch that is a function would read the ref variable too early
            value = variable.initial_value
        return self.cast(value, dtype)

    def write(self, variable, value, rows=None):
        value = self.cast(value, self.dtype(variable))
        if rows is None:
            return self.tf.assign(variable, value, use_locking=self.use_locking)
        return self._scatter("update", variable, rows, value)

    def _scatter(self, mode, variable, rows, value):
        """Writes ("update") or subtracts ("sub") rows of a variable."""
        if self.is_ref(variable):
            return getattr(self.tf, "scatter_" + mode)(variable, rows, value, use_locking=self.use_locking)
        from tensorflow.python.ops import resource_variable_ops as resource

        generated = getattr(resource, "gen_resource_variable_ops", None)
        scatter = getattr(resource, "resource_scatter_" + mode, None) or getattr(
            generated, "resource_scatter_" + mode, None
        )
        if scatter is not None:
            return scatter(variable.handle, rows, value)
        # TF 1.4 to 1.6 can only add to rows; when the minimum is newer, this branch can go.
        waits = self.tf.no_op()  # stands for everything that the write must wait for
        with self.tf.control_dependencies([value]):
            difference = -value if mode == "sub" else value - self.gather(variable, rows)
        # The difference must not carry these dependencies: TF 1.6 turns -(-x) into x, and drops those of the outer
        # minus.
        with self.tf.control_dependencies([waits]):
            return resource.resource_scatter_add(variable.handle, rows, difference)

    def add(self, variable, value):
        return self.tf.assign_add(variable, self.tf.cast(value, self.dtype(variable)), use_locking=self.use_locking)

    def subtract(self, variable, value, rows=None, share=None):
        # Nobody else writes during eager code or a function in one process. There a read and a write take 33 us for
        # 600 rows of 64, and scatter_sub takes 75 us (TF 2.21). A value of higher precision is rounded last.
        unshared = rows is not None and self.without_strategy() and not self.in_session()
        if unshared or self.dtype(value) != self.dtype(variable):
            old = self.read(variable) if rows is None else self.gather(variable, rows)
            return self.write(variable, self.cast(old, self.dtype(value)) - value, rows)
        if rows is not None:
            return self._scatter("sub", variable, rows, value)
        if share is None:
            return self.tf.assign_sub(variable, value, use_locking=self.use_locking)
        function = self.operation("apply_gradient_descent", self.is_ref(variable), False)
        return self._fused(function)(variable, dict(alpha=share, delta=value))

    def copy(self, value, variable):
        # The value of a ref variable may be its own buffer. max(x, x) is a copy that no graph optimizer removes.
        return self.tf.maximum(value, value) if self.is_ref(variable) else value

    def constrain(self, variable, write):
        constraint = getattr(variable, "constraint", None)
        if constraint is None:
            return write
        with self.after([write]):
            return self.write(variable, constraint(self.read(variable)))

    def slices(self, grad):
        return (grad.values, grad.indices) if isinstance(grad, self.tf.IndexedSlices) else None

    def no_rows(self, variable):
        shape = self.shape(variable)
        values = self.tf.zeros((0,) + shape[1:], self.dtype(variable))
        return self.tf.IndexedSlices(values, self.tf.zeros((0,), self.tf.int64), self.tf.constant(shape))

    def gather(self, variable, rows):
        return self.tf.gather(variable, rows)

    def rows_of(self, variable):
        count = (self.shape(variable) or (None,))[0]
        return self.tf.shape(variable)[0] if count is None else count

    def filled(self, shape, number, dtype, variable):
        """Returns a value full of a number. A shape that is not known is the variable's."""
        if shape is None or None in shape:
            shape = self.tf.shape(self.start_value(variable, self.dtype(variable)))
        elif not isinstance(number, (int, float)):
            return super(TensorFlowBackend, self).filled(shape, number, dtype, variable)
        return self.tf.fill(shape, self.tf.cast(number, dtype))

    def iota(self, count):
        return self.tf.range(count)

    def stack(self, numbers):
        return self.tf.stack(numbers)

    def concat(self, values, axis):
        return self.tf.concat(values, axis)

    def unique(self, rows):
        return self.tf.unique(self.tf.reshape(self.tf.convert_to_tensor(rows), [-1]))[0]

    def sum_duplicates(self, values, indices):
        rows, segments = self.tf.unique(indices)
        return self.tf.unsorted_segment_sum(values, segments, self.tf.shape(rows)[0]), rows

    def scatter_to_dense(self, values, rows, count):
        return self.tf.unsorted_segment_sum(values, rows, count)

    def rows_equal(self, marks, mark):
        flat = self.tf.reshape(marks, [-1])
        return self.tf.reshape(self._where(self.tf.equal(flat, self.tf.cast(mark, flat.dtype))), [-1])

    def largest(self, counts):
        largest = self.tf.reduce_max(self.tf.concat([self.tf.reshape(counts, [-1]), self.tf.constant([0], "int64")], 0))
        return int(largest) if self.eager else largest

    def repeat(self, count, body, values):
        if self.eager:
            for step in range(count):
                values = body(self.tf.constant(step, "int64"), values)
            return values

        def iteration(step, *old_values):
            new_values = body(step, list(old_values))
            for old, new in zip(old_values, new_values):
                new.set_shape(old.get_shape())
            return [step + 1] + new_values

        step = self.tf.zeros_like(count)
        values = self.tf.while_loop(
            lambda step, *_: step < count, iteration, [step] + values, parallel_iterations=1, back_prop=False
        )
        return list(values[1:])

    def can_branch(self, variable):
        if not self.is_ref(variable):
            return True
        try:
            from tensorflow.python.ops import control_flow_util
        except ImportError:  # in TF 1.4 branches are not functions
            return True
        are_functions = getattr(control_flow_util, "EnableControlFlowV2", None)  # from 1.13 on
        return not (are_functions and are_functions(self.tf.get_default_graph()))

    def branch(self, predicate, yes, no, variables):
        if self.eager:
            return super(TensorFlowBackend, self).branch(predicate, yes, no, variables)

        def done(operations):
            with self.after(operations):
                return self.tf.constant(True)

        return [self.tf.cond(predicate, lambda: done(yes()), lambda: done(no()))]

    def values_if(self, predicate, yes, no):
        if self.eager:
            return super(TensorFlowBackend, self).values_if(predicate, yes, no)
        chosen = self.tf.cond(predicate, yes, no)
        return list(chosen) if isinstance(chosen, (list, tuple)) else [chosen]

    def choose(self, predicate, yes, no):
        return self._where(predicate, yes, no)

    def after(self, operations):
        if self.eager:
            return self.tf.control_dependencies([])
        # Operations, not tensors: a branch's graph keeps its control dependencies in a set, and tensors have no hash.
        ops = [getattr(operation, "op", operation) for operation in self._in_all_replicas(operations)]
        return self.tf.control_dependencies([op for op in ops if isinstance(op, self.tf.Operation)])

    def sum_of(self, values):
        if len(values) == 1 or self.is_since("2.6") or self.eager:
            return super(TensorFlowBackend, self).sum_of(values)
        # From a sum of products older versions take a common factor out, and then no longer wait for the sum where we
        # say so: HoistCommonFactorOutOfAggregation of tensorflow/core/grappler/optimizers/arithmetic_optimizer.cc.
        return self.tf.reduce_sum(self.tf.stack(values), 0)

    def wait(self, value, operations):
        with self.after(operations):
            return self.tf.identity(value)

    def wait_for_loss(self, grads, loss):
        if self.eager or not isinstance(loss, self.tf.Tensor):
            return grads
        waiting = []
        for grad in grads:
            if isinstance(grad, self.tf.IndexedSlices):
                grad = self.tf.IndexedSlices(self.wait(grad.values, [loss]), grad.indices, grad.dense_shape)
            elif isinstance(grad, self.tf.Tensor):
                grad = self.wait(grad, [loss])
            waiting.append(grad)
        return waiting

    def barrier(self, values):
        if self.eager:
            return None
        tensors = [tensor for part in self._in_all_replicas(values) for tensor in (self.slices(part) or [part])]
        with self.after(tensors):
            return self.tf.no_op()

    def group(self, operations):
        if self.eager:
            return None
        tensors = self.tf.Tensor  # in a branch, TF 2.0 to 2.4 hash what it waits for, which tensors forbid
        return self.tf.group(*[each.op if isinstance(each, tensors) else each for each in operations])

    def failure(self, message):
        return self.tf.Assert(False, [message])

    def plain(self, function):
        autograph = getattr(self.tf, "autograph", None)
        do_not_convert = getattr(getattr(autograph, "experimental", None), "do_not_convert", None)
        return do_not_convert(function) if do_not_convert else function

    @contextlib.contextmanager
    def inside(self, variables):
        graphs = [variable.graph for variable in variables if self._in_graph(variable)]
        if len(set(map(id, graphs))) > 1:
            raise VariableError("the variables belong to several graphs: {!r}".format(variables))
        with graphs[0].as_default() if graphs else self.after(()):
            with self.scope_of(variables[0]) if variables else self.after(()):
                yield


def _tensorflow_table(tf, select):
    """Returns `{op: function}`. `select` is TensorFlow's `where` for three equal shapes."""
    # keep_dims became keepdims in 1.5; when that is the minimum, this can go.
    keepdims_name = "keepdims" if Version(tf.__version__) >= Version("1.5") else "keep_dims"

    def reduce(function):
        def reduced(x, axis=None, keepdims=False):
            # TF before 1.13 reduces a million float32 at once with an error of 2e-5; reducing rows first avoids it.
            if axis is None and (x.get_shape().ndims or 0) > 1:
                x = function(x, axis=-1, **{keepdims_name: True})
            return function(x, axis=axis, **{keepdims_name: keepdims})

        return reduced

    def where(condition, yes, no):
        # The TF 1 op needs three equal shapes; adding zeros broadcasts in every version.
        zeros = tf.zeros_like(yes) + tf.zeros_like(no) + tf.cast(tf.zeros_like(condition), yes.dtype)
        full_condition = tf.logical_or(condition, tf.cast(zeros, tf.bool))
        return select(full_condition, yes + zeros, no + zeros)

    special = {op: reduce(getattr(tf, "reduce_" + op)) for op in ("sum", "mean", "max", "min", "any", "all")}
    special["where"] = where
    renamed = {"isfinite": "is_finite", "floor_divide": "floordiv", "remainder": "floormod", "arange": "range"}
    table = ops_table(tf, renamed, special)

    def svd(x):
        numbers, left, right = tf.linalg.svd(x)  # the second matrix is not transposed
        return left, numbers, tf.transpose(right)

    add_linalg(table, tf.linalg.qr, tf.linalg.eigh, svd, tf.linalg.cholesky, tf.linalg.solve, tf.linalg.diag_part)
    return table
