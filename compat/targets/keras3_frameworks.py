"""What `keras3` does in another way on TensorFlow than on JAX and torch. One of the two classes is chosen, once."""
from __future__ import absolute_import, division, print_function

import sys

from everstep.compat.backends.on_keras import KerasBackend
from everstep.compat.backends.on_tensorflow import TensorFlowBackend
from everstep.compat.engine.step import counters, skips
from everstep.compat.rules.operations import END
from everstep.compat.targets.hypers import refusal
from everstep.compat.targets.keras3_layouts import instead_of_names, layout_of_slot
from everstep.compat.targets.loading import keep_from_restores
from everstep.compat.targets.native_clipping import without_duplicates
from everstep.compat.targets.repeated_steps import RepeatedSteps
from everstep.compat.targets.since_v2 import module_of, update_everywhere
from everstep.errors import StateError, UnsupportedError
from everstep.optimizers.contract.verbs import defines

_UNREAD = 2**15  # steps between two looks at the counters; fewer than a counter has left after its end


def keras_backend(base):
    """Returns the `backend` module of a native base's Keras."""
    return module_of(base).base_optimizer.backend


def runs_on_tensorflow(base):
    return keras_backend(base).backend() == "tensorflow"


def framework_of(adapter):
    """Returns the `OnTensorFlow` or `OnArrays` of an adapter."""
    base = type(adapter.native).native_base
    return (OnTensorFlow if runs_on_tensorflow(base) else OnArrays)(adapter, keras_backend(base).Variable)


def _is_compiling():
    """Returns whether torch's compiler traces this."""
    return "torch._dynamo" in sys.modules and sys.modules["torch"].compiler.is_compiling()


class OnTensorFlow(object):
    """Keras 3 on TensorFlow: its variables hold a tf.Variable, gradients may be sparse, replicas share a step."""

    trains = "keras.Variable and tf.Variable"
    why_dense = None  # why gradients are dense here

    def __init__(self, adapter, variable_class):
        import tensorflow

        self.adapter, self.variable_class = adapter, variable_class
        self.backend = TensorFlowBackend(tensorflow)

    def check_eager(self):
        if not self.backend.tf.executing_eagerly_outside_functions():
            raise refusal(self.adapter.bound, "graphs of TF 1")

    def check_scale(self):
        """Does nothing: functions read variables each time they run."""

    def hyper(self, variable):
        """Returns the variable of a hyper, for checkpoints of the framework."""
        return keep_from_restores(variable, lambda: self.unwrap(variable), self.backend.tf.no_op)

    def unwrap(self, variable):
        """Returns the native variable that the backend works on: the tf.Variable of a Keras variable."""
        return variable.value if isinstance(variable, self.variable_class) else variable

    def beside(self, variable, shape):
        """Returns a scope and keywords of `add_variable`, which create a slot on the devices of its variable."""
        return self.adapter.native._distribution_strategy.extended.colocate_vars_with(self.unwrap(variable)), {}

    def can_train(self, variable):
        # A tf.Variable, also one that a strategy made: those have no common class in all versions.
        is_resource = hasattr(variable, "read_value") and not self.backend.is_ref(variable)
        return isinstance(variable, self.variable_class) or is_resource

    def run(self, function, grads, variables):
        """Runs a step: `function`, the adapter's."""
        function(grads, variables)  # `entries` are plain already

    def apply(self, grads, variables):
        """Calls the base class's `apply`, which counts a step. Corrects the count if the step was no update."""
        adapter, backend = self.adapter, self.backend
        skipping = skips(adapter.bound.definition)
        if skipping:
            updates = adapter.counter("updates")
            before = backend.read(updates) + 0
        adapter.base.apply(grads, variables)
        if skipping:
            backend.write(updates, before + backend.cast(adapter.applied, "int64"))

    def update(self, variable, function, grad):
        return update_everywhere(self.backend, variable, function, grad)

    def update_step(self, grads, variables, learning_rate):
        # Calls `_distributed_tf_update_step` across replicas.
        self.adapter.base._backend_update_step(grads, variables, learning_rate)

    def added_up(self, distribution, pairs):
        """Returns pairs whose gradients are summed over replicas.

        Up to Keras 3.4 the base class does not, or tries to where it cannot: here.
        """
        step = type(self.adapter.native).native_base._backend_update_step
        if "_all_reduce_sum_gradients" in step.__code__.co_names:
            return pairs
        return self.backend.added_up(distribution, pairs)

    def clipped(self, grads):
        # The base class clips equal rows one by one, and some of its methods make the gradient dense.
        tf, native = self.backend.tf, self.adapter.native
        if native.clipnorm or native.global_clipnorm or native.clipvalue:
            grads = [without_duplicates(self.backend, grad) for grad in grads]
        if native.clipnorm:
            return [tf.clip_by_norm(grad, native.clipnorm) for grad in grads]
        if native.global_clipnorm:
            return tf.clip_by_global_norm(grads, native.global_clipnorm)[0]
        if native.clipvalue:
            return [tf.clip_by_value(grad, -native.clipvalue, native.clipvalue) for grad in grads]
        return grads


class OnArrays(object):
    """Keras 3 on JAX and torch: gradients are dense, and counters are int32, which end."""

    trains = "keras.Variable"

    def __init__(self, adapter, variable_class):
        import keras

        self.adapter, self.variable_class = adapter, variable_class
        self.backend = KerasBackend(keras, variable_class)
        self.why_dense = "on {} gradients are dense".format(self.backend.name)
        self._repeated = RepeatedSteps(adapter) if self.backend.lists else None
        self._unread = 0  # the number of steps until the next look at the counters

    def check_eager(self):
        """Does nothing: there are no graphs here."""

    def check_scale(self):
        """Raises UnsupportedError in a function of jax.jit that has no state: the scale would be a constant there."""
        bound, backend = self.adapter.bound, self.backend
        if not defines(bound.definition, "loss_scale") or not backend.is_traced(backend.keras.ops.zeros(())):
            return
        if not any(backend.is_traced(backend.read(variable)) for variable in self.adapter.own_variables().values()):
            raise UnsupportedError(
                "{} scales the loss in a function of jax.jit, which would keep the scale that it has now. Call "
                "scale_loss in `with keras.StatelessScope(list(zip(optimizer.variables, state))):`, with the state "
                "that stateless_apply gets".format(bound.owner))

    def hyper(self, variable):
        return variable

    def unwrap(self, variable):
        return variable

    def beside(self, variable, shape):
        if "layout" in self.adapter.keras.BaseOptimizer.add_variable.__code__.co_varnames:
            return self.backend.after(()), {"layout": layout_of_slot(variable, shape)}
        return instead_of_names(self.backend.keras.distribution, variable, shape), {}

    def can_train(self, variable):
        return isinstance(variable, self.variable_class)

    def run(self, function, grads, variables):
        """Runs a step: `function`, the adapter's, unless it is one that repeats the last."""
        run = self.backend.plain(self._run) if _is_compiling() else self._run
        run(function, grads, variables)

    def _run(self, function, grads, variables):
        if self._repeated is None:
            function(grads, variables)
        elif not self._repeated.run(grads, variables):
            function(grads, variables)
            self._repeated.keep(variables)

    def apply(self, grads, variables):
        adapter, backend = self.adapter, self.backend
        updates, skipping = adapter.counter("updates"), skips(adapter.bound.definition)
        self.check_counters()
        if skipping:
            before = backend.read(updates) + 0
        adapter.base.apply(grads, variables)
        if skipping:
            backend.write(updates, before + backend.cast(adapter.applied, "int64"))
            adapter.applied = True  # a traced value must not outlive its jitted function
        if backend.is_traced(backend.read(updates)):
            backend.add(updates, 0)  # stops at the end of the counter

    def check_counters(self):
        """Raises StateError if a counter has reached its end. Looks seldom: reading a value waits for the device."""
        if self._unread:
            self._unread -= 1
            return
        adapter, backend = self.adapter, self.backend
        names = [name for name in counters(adapter.bound.definition) if name != "pending"]
        values = [backend.read(adapter.counter(name)) for name in names]
        if any(backend.is_traced(value) for value in values):
            return
        end = END[backend.stored("int64")]
        for name, value in zip(names, map(int, values)):
            if not 0 <= value < end:
                raise StateError(
                    "the counter of {} of {} is {}; on {} Keras counts in int32, and everstep up to {}. To train on, "
                    "move the state to Keras on TensorFlow, which counts in int64 (everstep.capture), or set the "
                    "counter to a smaller number".format(name, adapter.native.name, value, backend.name, end)
                )
        self._unread = min(_UNREAD, end - max(map(int, values))) - 1

    def update(self, variable, function, grad):
        return function(variable, grad)

    def update_step(self, grads, variables, learning_rate):
        with self.backend.computing():
            self.adapter.take_pairs(list(zip(grads, variables)), learning_rate)

    def clipped(self, grads):
        return self.adapter.base._clip_gradients(grads)
