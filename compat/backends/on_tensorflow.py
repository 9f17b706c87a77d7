"""Graphs and eager tensors of any TensorFlow from 1.4 on."""
from __future__ import absolute_import, division, print_function

import contextlib
import sys

import numpy as np
from packaging.version import Version

from everstep.errors import StateError, VariableError


class TensorFlowBackend(object):
    """Graphs and eager tensors of any TensorFlow from 1.4 on, ref and resource variables.

    Args:
        tf: the module `tensorflow`.
        use_locking: passed to what writes variables; None is what Keras does: the default of each operation, and
            kernels lock.
    """

    moves_rows = True

    def __init__(self, tf, use_locking=None):
        # From 1.13 on the TF1 names live in compat.v1, where they also give no deprecation warnings.
        self.tf = getattr(getattr(tf, "compat", None), "v1", None) or tf
        self.use_locking = use_locking
        # The TF1 op says at every use that it is deprecated.
        self._v2 = getattr(getattr(tf, "compat", None), "v2", None)
        self._xla = getattr(getattr(tf, "xla", None), "experimental", None)  # from 1.14 on
        self._version = Version(self.tf.__version__)
        # Whether compiled functions stand inside of larger ones, and take variables as arguments.
        self._shares_compiled = self.is_since("2.5")
        self._where = getattr(self._v2, "where", None) or self.tf.where
        self.ops = _tensorflow_table(self.tf, self._where)

    @property
    def eager(self):
        executing = getattr(self.tf, "executing_eagerly", None)  # from 1.7 on; before that graphs are all there is
        return bool(executing and executing())

    def computing(self):
        return self.after(())

    def constant(self, number, dtype):
        return self.tf.constant(number, dtype)

    def cast(self, value, dtype):
        if value.dtype.base_dtype.name == dtype:
            return value
        if self._is_read_of_ref(value):
            # TensorFlow's arithmetic optimizer swaps the two, and the cast then waits for nothing: it may run before
            # writes that the read had to come after. What it cannot swap is a copy.
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
        # In a function the order of the code is that of what is done; `read_value` adds a copy that says so. Variables
        # of some strategies know nothing else.
        whole = self.eager or self.in_session() or not self.without_strategy()
        return variable.read_value() if whole else variable.value()

    def start_value(self, variable, dtype):
        """A variable's value, with the variable initialized first where that is still to come."""
        if self.eager:
            value = variable.read_value()
        elif self.can_branch(variable):  # what initialized_value() was, which resource variables of TF 2.21 lack
            ready = self.tf.is_variable_initialized(variable)
            value = self.tf.cond(ready, variable.read_value, lambda: variable.initial_value)
        else:  # a branch that is a function would read a ref variable too early
            value = variable.initial_value
        return self.cast(value, dtype)

    def gather(self, variable, rows):
        return self.tf.gather(variable, rows)

    def write(self, variable, value, rows=None):
        value = self.cast(value, self.dtype(variable))
        if rows is None:
            return self.tf.assign(variable, value, use_locking=self.use_locking)
        return self._scatter("update", variable, rows, value)

    def _scatter(self, how, variable, rows, value):
        if self.is_ref(variable):
            return getattr(self.tf, "scatter_" + how)(variable, rows, value, use_locking=self.use_locking)
        from tensorflow.python.ops import resource_variable_ops as resource

        generated = getattr(resource, "gen_resource_variable_ops", None)
        scatter = getattr(resource, "resource_scatter_" + how, None) or getattr(
            generated, "resource_scatter_" + how, None
        )
        if scatter is not None:
            return scatter(variable.handle, rows, value)
        # TF 1.4 to 1.6 can only add to rows; when those are the minimum no longer, this branch can go.
        with self.tf.control_dependencies([value]):
            difference = -value if how == "sub" else value - self.gather(variable, rows)
        return resource.resource_scatter_add(variable.handle, rows, difference)

    def add(self, variable, value):
        """Adds at once what others may add to at the same time."""
        return self.tf.assign_add(variable, self.tf.cast(value, self.dtype(variable)), use_locking=self.use_locking)

    def subtract(self, variable, value, rows=None, share=None):
        """Takes a value off a variable or its rows, or a share of the value, which needs no temporary.

        What others write meanwhile stays, but in a variable of less precision than the value, which is taken off before
        it is rounded.
        """
        # Nobody else writes in a function of one process, and this takes 33 us where TF 2.21 takes 75 to subtract 600
        # rows of 64.
        unshared = rows is not None and self.without_strategy() and not self.in_session()
        if unshared or self.dtype(value) != self.dtype(variable):
            old = self.read(variable) if rows is None else self.gather(variable, rows)
            return self.write(variable, self.cast(old, self.dtype(value)) - value, rows)
        if rows is not None:
            return self._scatter("sub", variable, rows, value)
        if share is None:
            return self.tf.assign_sub(variable, value, use_locking=self.use_locking)
        return self.kernel("apply_gradient_descent", variable, [], False)(variable, dict(alpha=share, delta=value))

    def copy(self, value, variable):
        # What is read from a ref variable may be its own buffer; x = max(x, x) is a copy that no optimizer removes.
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

    def tensor(self, value):
        return self.tf.convert_to_tensor(value)

    def rows_of(self, variable):
        count = self.shape(variable)[0]
        return self.tf.shape(variable)[0] if count is None else count

    def stack(self, numbers):
        return self.tf.stack(numbers)

    def unique(self, rows):
        return self.tf.unique(self.tf.reshape(self.tf.convert_to_tensor(rows), [-1]))[0]

    def sum_duplicates(self, values, indices):
        rows, place = self.tf.unique(indices)
        return self.tf.unsorted_segment_sum(values, place, self.tf.shape(rows)[0]), rows

    # What the ways of compat/engine/lowering.py ask for.

    def lowers(self, way):
        return way != "compiled" or self._shares_compiled or self._xla is not None

    def is_since(self, version):
        """Whether this TensorFlow is of that version or a newer one."""
        return self._version >= Version(version)

    def without_strategy(self):
        """Whether there is no strategy that places variables and copies."""
        distribute = getattr(self.tf, "distribute", None)
        has_strategy = getattr(distribute, "has_strategy", None)  # from 1.14 on
        return not (has_strategy and has_strategy())

    def is_here(self, variable):
        """Whether a variable is where the step is computed, as far as anybody said where it is."""
        return not self.in_session() or not variable.device

    def device(self, variable):
        """The name of the device that a variable is on."""
        return variable.device

    def shares_variables(self):
        """Whether others may write the variables meanwhile, who must not be overwritten."""
        return self.in_session() and bool(self.use_locking)

    def kernel(self, operation, variable, slots, by_rows):
        """The fused operation of that name as a function of (variable, arguments); None where there is none."""
        ref = self.is_ref(variable)
        function = self.operation(operation, ref, by_rows)
        if function is None or any(self.is_ref(slot) != ref for slot in slots):
            return None

        def run(variable, arguments):
            if not ref:
                arguments = {name: getattr(value, "handle", value) for name, value in arguments.items()}
                variable = variable.handle
            return function(var=variable, use_locking=self.use_locking is not False, **arguments)

        return run

    @staticmethod
    def operation(name, ref, by_rows):
        """A fused operation for ref or resource variables, dense or on rows; None where there is none."""
        return getattr(_training_ops(), ("" if ref else "resource_") + ("sparse_" if by_rows else "") + name, None)

    def compile(self, function):
        if self._shares_compiled:
            return self.tf.function(function, jit_compile=True, autograph=False)

        def run(variable, slots, grad, outside):
            # Copies wait for what is before; of what the compiled operations wait for, some is left out.
            inputs = [self.tf.identity(value) for value in [grad] + outside]
            done = self._xla.compile(lambda grad, *outside: function(variable, slots, grad, outside), inputs)
            return done[0] if isinstance(done, (list, tuple)) else done

        return run

    def cannot_compile(self, variable, forced):
        """Why a variable's update is not compiled; "" where it is."""
        if self.is_ref(variable):
            return "not compiled: ref variables have no compiled functions"
        if not self.without_strategy():
            return "not compiled: under a tf.distribute strategy"
        if self.eager and not self._shares_compiled:
            return "not compiled: TensorFlow before 2.5 does it in graphs alone"
        if not forced and not self._shares_compiled:
            return "not compiled: TensorFlow before 2.5 does it only by force, each variable for itself"
        return "not compiled: in a session only by force" if self.in_session() and not forced else ""

    def in_session(self):
        """Whether what is built now will run in a session, not in a function."""
        return not self.eager and type(self.tf.get_default_graph()) is self.tf.Graph

    def part(self, value, place):
        """The rows from the one to the other of a variable or value."""
        value = self.read(value) if hasattr(value, "read_value") else value
        return self.tf.strided_slice(value, place[:1], place[1:])

    def write_part(self, variable, value, place):
        """Rows of a ref variable. (A resource variable written so is copied whole at every later read of it.)"""
        return variable[place[0] : place[1]].assign(self.cast(value, self.dtype(variable)))

    def join(self, pieces):
        return self.tf.concat(pieces, 0)

    def concat_flat(self, values):
        """Values end to end, in one dimension."""
        one = self.tf.constant([-1])
        return self.tf.concat([v if len(self.shape(v)) == 1 else self.tf.reshape(v, one) for v in values], 0)

    def split(self, value, shapes):
        """What was laid end to end in its shapes again."""
        parts = self.tf.split(value, [int(np.prod(shape)) for shape in shapes])
        several = {shape: self.tf.constant(shape, "int32") for shape in shapes if len(shape) != 1}
        return [self.tf.reshape(p, several[s]) if s in several else p for p, s in zip(parts, shapes)]

    def iota(self, count):
        return self.tf.range(count)

    def scatter_to_dense(self, values, rows, count):
        return self.tf.unsorted_segment_sum(values, rows, count)

    def rows_equal(self, marks, mark):
        flat = self.tf.reshape(marks, [-1])
        return self.tf.reshape(self._where(self.tf.equal(flat, self.tf.cast(mark, flat.dtype))), [-1])

    def largest(self, counts):
        found = self.tf.reduce_max(self.tf.concat([self.tf.reshape(counts, [-1]), self.tf.constant([0], "int64")], 0))
        return int(found) if self.eager else found

    def repeat(self, count, body, values):
        if self.eager:
            for step in range(count):
                values = body(self.tf.constant(step, "int64"), values)
            return values

        def again(step, *now):
            then = body(step, list(now))
            for old, new in zip(now, then):
                new.set_shape(old.get_shape())
            return [step + 1] + then

        step = self.tf.zeros_like(count)
        found = self.tf.while_loop(
            lambda step, *_: step < count, again, [step] + values, parallel_iterations=1, back_prop=False
        )
        return list(found[1:])

    def can_branch(self, variable):
        """Whether a variable can be written in a branch: not a ref variable where branches are functions (TF 2)."""
        if not self.is_ref(variable):
            return True
        try:
            from tensorflow.python.ops import control_flow_util
        except ImportError:  # TF 1.4, long before branches were functions
            return True
        functions = getattr(control_flow_util, "EnableControlFlowV2", None)  # from 1.13 on
        return not (functions and functions(self.tf.get_default_graph()))

    def branch(self, predicate, yes, no, variables):
        if self.eager:
            return yes() if bool(predicate) else no()

        def done(operations):
            with self.after(operations):
                return self.tf.constant(True)

        return [self.tf.cond(predicate, lambda: done(yes()), lambda: done(no()))]

    def values_if(self, predicate, values, dtypes):
        zeros = lambda: [self.constant(0, dtype) for dtype in dtypes]  # noqa: E731  # a branch
        if self.eager:
            return values() if bool(predicate) else zeros()
        found = self.tf.cond(predicate, values, zeros)
        return list(found) if isinstance(found, (list, tuple)) else [found]

    def choose(self, predicate, yes, no):
        return self._where(predicate, yes, no)

    def barrier(self, grads):
        """An operation that is done when all gradients are."""
        if self.eager:
            return None
        values = [value for grad in grads for value in self._in_replicas(grad)]
        with self.after([value.values if isinstance(value, self.tf.IndexedSlices) else value for value in values]):
            return self.tf.no_op()

    def _in_replicas(self, value):
        """What a value is in each replica."""
        if self.without_strategy():
            return (value,)
        strategy = self.tf.distribute.get_strategy()
        parts = getattr(strategy, "experimental_local_results", None) or strategy.unwrap  # which TF 1.13 calls it
        return parts(value)

    def added_up(self, strategy, pairs):
        """Pairs with the sums of the replicas' gradients, asked for across replicas."""
        pairs = list(pairs)
        if strategy.num_replicas_in_sync == 1:
            return pairs
        sums = strategy.extended.batch_reduce_to(self.tf.distribute.ReduceOp.SUM, pairs)
        return [(grad, variable) for grad, (_, variable) in zip(sums, pairs)]

    def mirrored(self, value):
        """What all replicas have alike, as TF 2.3 to 2.5 want it to be said."""
        values = sys.modules.get("tensorflow.python.distribute.values")
        return values.Mirrored(value.values) if isinstance(value, getattr(values, "PerReplica", ())) else value

    def replica(self):
        distribute = getattr(self.tf, "distribute", None)
        context = distribute.get_replica_context() if hasattr(distribute, "get_replica_context") else None
        number = 0 if context is None else context.replica_id_in_sync_group
        number = number if isinstance(number, int) else self.tf.get_static_value(number)
        return None if number is None else int(number)

    def local(self, value):
        return self._in_replicas(value)[0]

    def wait(self, value, operations):
        """The value, not before the operations are done."""
        with self.after(operations):
            return self.tf.identity(value)

    def wait_for_loss(self, grads, loss):
        """Gradients that are there after the loss: else, fetched beside a step, it may be that of after the step."""
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

    def at(self, variable):
        """Where a variable lives."""
        return self.tf.name_scope("at") if self.eager else self.tf.colocate_with(variable)

    def outside(self):
        """Out of every branch, loop and function, where variables are made."""
        scope = getattr(self.tf, "init_scope", None)  # from 1.5 on
        return scope() if scope else self.tf.control_dependencies(None)

    def at_once(self):
        """Where what is made outside of a function that is traced is made for good.

        A function that makes variables in its first call is traced again without them. What `init_scope` lifts out of
        it counts as made by it too, so that the first step of an optimizer took twice as long.
        """
        if self.eager or self.in_session() or not self.without_strategy():
            return self.after(())
        return self._v2.variable_creator_scope(self._made_at_once)

    def _made_at_once(self, next_creator, **options):
        from tensorflow.python.ops.resource_variable_ops import ResourceVariable

        if not self.eager:
            return next_creator(**options)
        names = ("initial_value", "trainable", "name", "dtype", "constraint", "synchronization", "aggregation", "shape")
        return ResourceVariable(**{name: options[name] for name in names if options.get(name) is not None})

    def first_replica(self):
        """Where what is made takes the first replica's word when the replicas write it: the same in all."""
        return self._v2.variable_creator_scope(self._made_of_the_first)

    def _made_of_the_first(self, next_creator, **options):
        if options.get("aggregation") in (None, self.tf.VariableAggregation.NONE):
            options["aggregation"] = self.tf.VariableAggregation.ONLY_FIRST_REPLICA
        return next_creator(**options)

    def group(self, operations):
        return None if self.eager else self.tf.group(*operations)

    def failure(self, message):
        """An operation that fails when it is run."""
        return self.tf.Assert(False, [message])

    def operations(self, done):
        """A flat list of the operations in nested results."""
        if isinstance(done, (list, tuple)):
            return [operation for part in done for operation in self.operations(part)]
        return [operation for operation in self._in_replicas(done) if operation is not None]

    def plain(self, function):
        """A function that autograph leaves as it is."""
        autograph = getattr(self.tf, "autograph", None)
        keep = getattr(getattr(autograph, "experimental", None), "do_not_convert", None)
        return keep(function) if keep else function

    def after(self, operations):
        if self.eager:
            return self.tf.control_dependencies([])
        # Operations, not tensors: a branch's graph puts what it waits for in a set, and tensors have no hash.
        single = [each for operation in operations for each in self._in_replicas(operation)]
        wanted = [getattr(operation, "op", operation) for operation in single]
        return self.tf.control_dependencies([op for op in wanted if isinstance(op, self.tf.Operation)])

    def scope_of(self, variable):
        """The scope of the strategy that a variable was made under, where that is not the present one."""
        strategy = getattr(variable, "distribute_strategy", None)
        distribute = getattr(self.tf, "distribute", None)
        if strategy is None or distribute.get_strategy() is strategy:
            return self.after(())
        return strategy.scope()

    # For capture and restore: see WithoutGraphs.

    @contextlib.contextmanager
    def inside(self, variables):
        graphs = [variable.graph for variable in variables if self._in_graph(variable)]
        if len(set(map(id, graphs))) > 1:
            raise VariableError("the variables are of several graphs: {!r}".format(variables))
        with graphs[0].as_default() if graphs else contextlib.closing(_Nothing()):
            with self.scope_of(variables[0]) if variables else self.after(()):
                yield

    def session_for(self, variables, session, default):
        held = [variable for variable in variables if self._in_graph(variable)]
        if not held:
            if variables and not self.eager:
                raise StateError("values are taken and given between steps, not inside of a tf.function")
            return None
        session = session or self.tf.get_default_session() or default(held)
        if session is None:
            raise StateError(
                "the variables live in a graph, and only a session has their values: give session=, or call this "
                "where one is the default (with session.as_default())"
            )
        inner = getattr(session, "_tf_sess", None)  # of a MonitoredSession, whose hooks count runs
        session = inner() if inner else session
        if getattr(session, "graph", None) is not held[0].graph:
            raise StateError("{!r} is no session of the graph that {} is in".format(session, held[0].name))
        return session

    def value(self, variable, session):
        try:
            if hasattr(variable, "read_value") and not self._in_graph(variable):
                return np.array(self.tf.convert_to_tensor(variable.read_value()).numpy())
            return np.array(session.run(variable) if session else variable.numpy())
        except Exception as error:  # not initialized; a closed session; a placeholder without a value
            raise StateError("{} has no value: {}".format(variable.name, str(error).split("\n")[0]))

    def start(self, variables, session):
        if session:
            session.run([variable.initializer for variable in variables])

    def put(self, variable, value, session):
        value = np.asarray(value).astype(variable.dtype.base_dtype.as_numpy_dtype)
        if self._in_graph(variable):  # by the initializer, so that the graph may be finalized
            session.run(variable.initializer, {variable.initializer.inputs[1]: value})
        else:
            variable.assign(value)

    @staticmethod
    def _in_graph(variable):
        return getattr(variable, "_in_graph_mode", True)


def _training_ops():
    """The module of the fused operations."""
    try:
        from tensorflow.python.ops import gen_training_ops
    except ImportError:  # before TF 2.9; when that is the minimum, this can go
        from tensorflow.python.training import gen_training_ops
    return gen_training_ops


class _Nothing(object):
    def close(self):
        """There is nothing to leave."""


def _tensorflow_table(tf, select):
    # keep_dims became keepdims in 1.5; when that is the minimum, this can go.
    keep = "keepdims" if Version(tf.__version__) >= Version("1.5") else "keep_dims"

    def reduce(function):
        def reduced(x, axis=None, keepdims=False):
            # All at once, TF before 1.13 gets a million float32 wrong by 2e-5; row by row it does not.
            if axis is None and (x.get_shape().ndims or 0) > 1:
                x = function(x, axis=-1, **{keep: True})
            return function(x, axis=axis, **{keep: keepdims})

        return reduced

    def where(condition, yes, no):
        # The TF1 op wants three equal shapes; adding zeros broadcasts in every version.
        zeros = tf.zeros_like(yes) + tf.zeros_like(no) + tf.cast(tf.zeros_like(condition), yes.dtype)
        full = tf.logical_or(condition, tf.cast(zeros, tf.bool))
        return select(full, yes + zeros, no + zeros)

    return {
        "constant": tf.constant,
        "abs": tf.abs,
        "sqrt": tf.sqrt,
        "rsqrt": tf.rsqrt,
        "square": tf.square,
        "exp": tf.exp,
        "log": tf.log,
        "pow": tf.pow,
        "sin": tf.sin,
        "cos": tf.cos,
        "sign": tf.sign,
        "floor": tf.floor,
        "maximum": tf.maximum,
        "minimum": tf.minimum,
        "clip": lambda x, low, high: tf.minimum(tf.maximum(x, low), high),
        "where": where,
        "equal": tf.equal,
        "isfinite": tf.is_finite,
        "logical_and": tf.logical_and,
        "logical_or": tf.logical_or,
        "logical_not": tf.logical_not,
        "sum": reduce(tf.reduce_sum),
        "mean": reduce(tf.reduce_mean),
        "max": reduce(tf.reduce_max),
        "min": reduce(tf.reduce_min),
        "any": reduce(tf.reduce_any),
        "all": reduce(tf.reduce_all),
        "cast": lambda x, to: tf.cast(x, to),
        "sigmoid": tf.sigmoid,
        "tanh": tf.tanh,
        "zeros_like": tf.zeros_like,
        "ones_like": tf.ones_like,
        "reshape": lambda x, to: tf.reshape(x, to),
        "add": tf.add,
        "subtract": tf.subtract,
        "multiply": tf.multiply,
        "divide": tf.divide,
        "floor_divide": tf.floordiv,
        "remainder": tf.floormod,
        "negative": tf.negative,
        "less": tf.less,
        "less_equal": tf.less_equal,
        "greater": tf.greater,
        "greater_equal": tf.greater_equal,
    }
