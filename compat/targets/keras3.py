"""Target `keras3`: the optimizers of Keras 3, on TensorFlow, JAX and torch; `tf.keras` of TF 2.16 and newer.

The API: `apply(grads, variables)` calls `_backend_update_step` with all pairs. `build(variables)` creates all slots.

Paths of variables. NAME is the name given to `bind`, by default the class name of the definition.

| what | path |
|---|---|
| counters | `NAME/iteration` counts updates; `NAME/pending` and `NAME/steps` exist only if steps can skip updates |
| hypers | `NAME/learning_rate`, `NAME/<hyper>`; a schedule or callable has no variable |
| scalars | `NAME/<scalar>` |
| slots of `W` | `NAME/<path of W>_<slot>`, with `_` for each `/` |

`variables` and all files store them by position:
1. iteration, the learning rate, the other hypers, the other counters, scalars;
2. with `use_ema`, moving averages; with `gradient_accumulation_steps`, gradient accumulators (with both, Keras 3.0
   alternates between the two, variable by variable);
3. the slots of each variable in turn, in the order of `build` or of the first step.
So hypers are part of the saved state, as the learning rate is in stock optimizers.

Base class arguments:
- `weight_decay` runs before the rule. Each update first subtracts rate * weight_decay * variable from the whole
  variable, including rows without a gradient; the rule sees the result. A definition that declares its own
  `weight_decay` uses that one, and raises an error for the argument.
- `clipnorm`, `global_clipnorm` and `clipvalue` clip the gradients that the base class passes on. Equal rows of a sparse
  gradient are summed first.
- `gradient_accumulation_steps` sums gradients in dense variables. Native schedules, and `iterations` of Keras 3.0,
  count calls; `t` counts updates. Clipping and decay happen once per update. `everstep.accumulate` keeps sparse
  gradients sparse, and there schedules and `iterations` count updates.

On JAX and torch sparse gradients (BCOO, COO) are made dense, so `sparse="rows"` needs `dense_ok=True` there. Counters
and int64 slots are int32, Keras's own integer dtype. A counter ends at 2^31 - 2^16: the next eager step is an error,
and jitted steps leave it there.
"""
from __future__ import absolute_import, division, print_function

import copy

import numpy as np

from everstep.compat.backends.on_keras import KerasBackend
from everstep.compat.backends.on_tensorflow import TensorFlowBackend
from everstep.compat.backends.ops import END
from everstep.compat.engine.pairs import as_list, as_pairs, check_rows
from everstep.compat.engine.step import Step, counters, skips
from everstep.compat.engine.variable_view import is_known
from everstep.compat.targets.construction import COMPLEX, DECAY, PARTITIONED, in_parts, member
from everstep.compat.targets.native_classes import PACKAGE, stock_class_named
from everstep.compat.targets.native_clipping import without_duplicates
from everstep.compat.targets.new_style import GRAPHS, SLOT_NAMES, WEIGHTS, NewStyleTarget
from everstep.compat.targets.since_v2 import module_of
from everstep.compat.targets.stock_members import StockMember, branches
from everstep.errors import GradientError, SlotError, StateError, UnsupportedError, VariableError
from everstep.optimizers.contract.trees import tree, walk

_PREFIX = PACKAGE + ">"
_UNREAD = 2**15  # steps between two looks at the counters; fewer than a counter has left after its end


class Keras3Target(NewStyleTarget):
    target = "keras3"
    works_on = "keras 3 on TensorFlow, JAX and torch; tf.keras of TF 2.16 and newer"
    unsupported = (
        GRAPHS, PARTITIONED, COMPLEX, SLOT_NAMES, WEIGHTS, DECAY,
        member("minimize", "train with fit, or give gradients to apply_gradients"),
    )
    stock_members = dict(NewStyleTarget.stock_members, optimizers=StockMember(None, None, branches))
    entries = ("apply_gradients", "apply")
    moved_natively = ("updates",)
    casts_gradients = True

    @classmethod
    def runs_on_tensorflow(cls, base):
        return cls._keras_backend(base).backend() == "tensorflow"

    @staticmethod
    def _keras_backend(base):
        return module_of(base).base_optimizer.backend

    def _make_backend(self):
        if self.runs_on_tensorflow(self.native_base):
            import tensorflow

            return TensorFlowBackend(tensorflow)
        import keras

        return KerasBackend(keras, self._keras_backend(self.native_base).Variable)

    def _start_native(self, name, native):
        steps = native.get("gradient_accumulation_steps")
        if steps and skips(self.definition):
            raise UnsupportedError(
                "gradient_accumulation_steps={} and {} both count calls; give one of them".format(
                    steps, self.definition._short()
                )
            )
        self._check_dense(steps)
        if native.get("loss_scale_factor") is not None:
            native = dict(native, loss_scale_factor=_Scale(native["loss_scale_factor"]))
        # Each replica increments `iterations`. In Keras 3.0 that fails under a CentralStorageStrategy.
        with self.backend.first_replica():
            self.native_super().__init__(learning_rate=self._given_rate(), name=name, **native)
        self.__dict__["_applied"] = True  # True if the last call made an update
        self.__dict__["_unread"] = 0  # the number of steps until the next look at the counters

    def _check_dense(self, accumulates):
        """Raises UnsupportedError if the definition needs sparse gradients and all gradients will be dense."""
        why = None
        if not isinstance(self.backend, TensorFlowBackend):
            why = "on {} gradients are dense".format(self.backend.name)
        elif accumulates:
            why = "gradient_accumulation_steps makes gradients dense (everstep.accumulate does not)"
        for node in walk(tree(self.definition)) if why else ():
            definition = node.definition
            if definition.sparse != "exact" and not definition.zero_grad_is_noop and not definition.dense_ok:
                raise UnsupportedError(
                    'sparse="{}" of {} has no effect here: {}, so every row would be updated. Use sparse="exact", or '
                    "dense_ok=True to accept that".format(definition.sparse, definition._short(), why)
                )

    def _make_hyper(self, name, value):
        return self._make_variable(name, (), "float32", value)

    def _make_variable(self, name, shape, dtype, initial, variable=None):
        full_name = name.replace("/", "_")
        if variable is not None:
            full_name = "{}_{}".format(self.variable_name(variable).replace("/", "_"), full_name)
        dtype = self.backend.stored(dtype)
        return self.add_variable(
            shape=shape,
            initializer=lambda shape, dtype: self.start_value(initial, shape, dtype, variable),
            dtype=dtype,
            name=full_name,
        )

    def native_name(self, name):
        # The HDF5 loader replaces an unknown class by the stock class of the same name. So everstep.accumulate(SGD())
        # must not be called "SGD".
        return super(Keras3Target, self).native_name(name or type(self.definition).__name__.lstrip("_"))

    # Hypers.

    @classmethod
    def _schedules(cls):
        return module_of(cls.native_base).base_optimizer.learning_rate_schedule

    def _schedule_step(self):
        return self._variables[0]

    def _take_schedule(self, schedule):
        rate, count = self._learning_rate, len(self._variables)
        self.native_super().__setattr__("learning_rate", schedule)
        self._tracker.untrack(rate)  # Keras 3.0 keeps the variable, and then cannot load what it saves
        # A new list, since checkpoints of TensorFlow refuse one that lost an item.
        is_variable, variables = self._tracker.config["variables"]
        with module_of(self.native_base).base_optimizer.tracking.DotNotTrackScope():  # it is what tracking appends to
            self._variables = list(variables)
        self._tracker.config["variables"] = is_variable, self._variables
        if self._is_built():
            self.__dict__["_before_slots"] += len(self._variables) - count

    # Counters and scalars.

    def counter(self, name):
        return self.unwrap(self._variables[0]) if name == "updates" else super(Keras3Target, self).counter(name)

    def read_counter(self, name):
        value, steps = super(Keras3Target, self).read_counter(name), self.gradient_accumulation_steps
        return value // steps if steps else value  # with steps, the base class counts calls

    def _check_counters(self):
        """Raises StateError if a counter has reached its end. Looks seldom: reading a value waits for the device."""
        if self._unread:
            self.__dict__["_unread"] -= 1
            return
        names = [name for name in counters(self.definition) if name != "pending"]
        values = [self.backend.read(self.counter(name)) for name in names]
        if any(self.backend.is_traced(value) for value in values):
            return
        end = END[self.backend.stored("int64")]
        for name, value in zip(names, map(int, values)):
            if not 0 <= value < end:
                raise StateError(
                    "the counter of {} of {} is {}; on {} Keras counts in int32, and everstep up to {}. To train on, "
                    "move the state to Keras on TensorFlow, which counts in int64 (everstep.capture), or set the "
                    "counter to a smaller number".format(name, self.name, value, self.backend.name, end)
                )
        self.__dict__["_unread"] = min(_UNREAD, end - max(map(int, values))) - 1

    # Variables and slots.

    def build(self, variables):
        variables = as_list(variables, VariableError, "build takes a list of variables")
        if variables:  # the HDF5 loader passes the model's own variables: none, if all belong to its layers
            # Outside of a function that is being traced: XLA takes no function that creates variables from tensors.
            with self.backend.at_once(), self.backend.outside():
                super(Keras3Target, self).build(variables)

    def __copy__(self):
        return copy.deepcopy(self)  # as stock, which Keras copies by saving and loading it

    def set_weights(self, weights):
        if self._is_built():
            super(Keras3Target, self).set_weights(weights)
        else:  # the HDF5 loader calls this before `build`, then closes the file
            self.__dict__["_waiting"] = [
                np.asarray(weight) for weight in as_list(weights, SlotError, "set_weights takes a list of arrays")
            ]

    def unwrap(self, variable):
        """Returns the native variable that the backend works on: on TensorFlow, the tf.Variable of a Keras variable."""
        is_keras_variable = isinstance(variable, self._keras_backend(self.native_base).Variable)
        return variable.value if is_keras_variable and isinstance(self.backend, TensorFlowBackend) else variable

    def _is_built(self):
        return self.built

    # State.

    def check_variable(self, variable):
        is_keras = isinstance(variable, self._keras_backend(self.native_base).Variable)
        # A tf.Variable, also one that a strategy made: those have no common class in all versions.
        is_tensorflow = isinstance(self.backend, TensorFlowBackend) and hasattr(variable, "read_value")
        if in_parts(variable):
            raise self.refusal("partitioned variables", got=variable)
        if not is_keras and (not is_tensorflow or self.backend.is_ref(variable)):
            raise VariableError(
                "{} trains keras.Variable{}; got {!r}".format(
                    type(self).__name__,
                    " and tf.Variable" if isinstance(self.backend, TensorFlowBackend) else "",
                    variable,
                )
            )
        if not is_known(self.backend.shape(self.unwrap(variable))):
            raise VariableError(
                "{} needs the shape of {}: a slot of Keras 3 has a fixed one. Give the variable its shape, or bind to "
                "tf_keras or tf.compat.v1.train".format(type(self).__name__, self.variable_name(variable))
            )

    def calls_per_update(self):
        return self.gradient_accumulation_steps or 1

    def not_carried(self):
        steps = self.gradient_accumulation_steps
        if steps and int(self.backend.values([self.unwrap(self._variables[0])], None)[0]) % steps:
            return (
                "it is in the middle of its {} gradient_accumulation_steps, and a state cannot hold their sums; train "
                "until the next update first".format(steps)
            )
        return super(Keras3Target, self).not_carried()

    # The step.

    def scale_loss(self, loss):
        return self.native_super().scale_loss(super(Keras3Target, self).scale_loss(loss))

    def apply_gradients(self, grads_and_vars):
        """Runs one step. everstep.compat.targets.new_style explains a second call in the same step.

        Raises:
            UnsupportedError: in a graph of TF 1.
            VariableError: not a Keras variable, or not one that the optimizer was built on.
            GradientError: no pair has a gradient, or one does not fit its variable.
        """
        pairs = as_pairs(grads_and_vars)
        self.apply([grad for grad, _ in pairs], [variable for _, variable in pairs])
        return self.iterations

    def apply(self, grads, trainable_variables=None):
        """Runs one step, as `apply_gradients`. Default variables: those that the optimizer was built on."""
        is_plain = isinstance(self.backend, TensorFlowBackend)  # whose `entries` are
        step = self._checked_apply if is_plain else self.backend.plain(self._checked_apply)
        step(grads, trainable_variables)

    def _checked_apply(self, grads, trainable_variables):
        grads = [self.backend.dense(grad) for grad in as_list(grads, GradientError, "apply takes a list of gradients")]
        if not grads:  # a model with nothing to train
            return
        variables = self._trainable_variables if trainable_variables is None else list(trainable_variables)
        if len(grads) != len(variables):
            raise GradientError(
                "{} gradients were given for {} variables{}".format(
                    len(grads), len(variables), "" if self.built else "; call build(trainable_variables) first"
                )
            )
        with self.forgetting_failures():
            grads = [grad for grad, _ in self.check_step(list(zip(grads, variables)))]
            self.build(variables)  # may load the counters of a file
            # The base class counts the step itself, which must wait for gradients that may fail.
            with self.backend.after([self.backend.barrier(grads)] if self.backend.without_strategy() else ()):
                self._apply(grads, variables)

    def _apply(self, grads, variables):
        updates = self.counter("updates")  # the base class increments it at every call
        on_tensorflow = isinstance(self.backend, TensorFlowBackend)
        if not on_tensorflow:
            self._check_counters()
        if skips(self.definition):
            before = self.backend.read(updates) + 0
        super(Keras3Target, self).apply(grads, variables)
        if skips(self.definition):
            self.backend.write(updates, before + self.backend.cast(self._applied, "int64"))
            if not on_tensorflow:  # on TensorFlow, each replica still reads it
                self.__dict__["_applied"] = True  # a traced value must not outlive its jitted function
        if not on_tensorflow and self.backend.is_traced(self.backend.read(updates)):
            self.backend.add(updates, 0)  # stops at the end of the counter

    def update(self, variable, function, grad):
        if not isinstance(self.backend, TensorFlowBackend):
            return function(variable, grad)
        return super(Keras3Target, self).update(variable, function, grad)

    def _backend_apply_gradients(self, grads, trainable_variables):
        if not self.gradient_accumulation_steps or self._finds_sums_by_variable():
            super(Keras3Target, self)._backend_apply_gradients(grads, trainable_variables)
            return
        sums, order = self._accumulated_gradients, map(self._get_variable_index, trainable_variables)
        self.__dict__["_accumulated_gradients"] = [sums[place] for place in order]
        try:
            super(Keras3Target, self)._backend_apply_gradients(grads, trainable_variables)
        finally:
            self.__dict__["_accumulated_gradients"] = sums

    def _finds_sums_by_variable(self):
        """Returns True if the base class looks up accumulated gradients by variable; Keras 3.0 does by position."""
        increment = module_of(self.native_base).base_optimizer.BaseOptimizer._backend_increment_gradient_accumulators
        return "acc_grads" in increment.__code__.co_varnames[: increment.__code__.co_argcount]

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        grads = self._clipped(grads)
        if isinstance(self.backend, TensorFlowBackend):  # calls `_distributed_tf_update_step` across replicas
            super(Keras3Target, self)._backend_update_step(grads, trainable_variables, learning_rate)
        else:
            with self.backend.computing():
                self._take_list(zip(grads, trainable_variables))

    def _distributed_tf_update_step(self, distribution, grads_and_vars, learning_rate):
        # Up to Keras 3.4 the base class does not sum gradients over replicas, or tries to where it cannot: here.
        if "_all_reduce_sum_gradients" not in self.native_base._backend_update_step.__code__.co_names:
            grads_and_vars = self.backend.added_up(distribution, grads_and_vars)
        self._take_list(grads_and_vars)

    def _take_list(self, pairs):
        """Runs the engine's step on all pairs, which `apply` checked."""
        if not skips(self.definition):
            self.take_step(list(pairs), checked=False)
            return
        step = Step(self, list(pairs))
        step.run()
        self.__dict__["_applied"] = step.predicate

    def take_flush(self, variables):
        with self.backend.computing():
            operations = super(Keras3Target, self).take_flush(variables)
        for variable in variables:  # as the base class does after each step
            keras_variable = self.record(variable).native
            if getattr(keras_variable, "constraint", None) is not None:
                keras_variable.assign(keras_variable.constraint(keras_variable))
        return operations

    def update_step(self, gradient, variable, learning_rate):
        """Updates one variable and counts nothing: for wrapper optimizers that loop over variables themselves."""
        with self.backend.computing():
            self.take_step(check_rows(self.backend, [(gradient, self.unwrap(variable))]), count=False)

    def _clip_gradients(self, grads):
        return grads  # `_backend_update_step` clips instead: Keras 3.0 would clip before it accumulates

    def _clipped(self, grads):
        # The base class clips equal rows one by one, and some of its methods make the gradient dense.
        if not isinstance(self.backend, TensorFlowBackend):
            return super(Keras3Target, self)._clip_gradients(grads)
        tf = self.backend.tf
        if self.clipnorm or self.global_clipnorm or self.clipvalue:
            grads = [without_duplicates(self.backend, grad) for grad in grads]
        if self.clipnorm:
            return [tf.clip_by_norm(grad, self.clipnorm) for grad in grads]
        if self.global_clipnorm:
            return tf.clip_by_global_norm(grads, self.global_clipnorm)[0]
        if self.clipvalue:
            return [tf.clip_by_value(grad, -self.clipvalue, self.clipvalue) for grad in grads]
        return grads


    # Config.

    def get_config(self):
        """The native config. A name that stock has too is written as `everstep>NAME`.

        The HDF5 loader takes an optimizer whose class it does not know for the stock one of that name.
        """
        config = super(Keras3Target, self).get_config()
        if stock_class_named(self.native_base, config["name"]):
            config["name"] = _PREFIX + config["name"]
        return config

    @classmethod
    def split_config(cls, config):
        definition, native = super(Keras3Target, cls).split_config(config)
        if str(native.get("name")).startswith(_PREFIX):
            native["name"] = native["name"][len(_PREFIX):]
        return definition, native


class _Scale(float):
    """A loss scale that divides sparse gradients, too: IndexedSlices do not support division."""

    def __rtruediv__(self, grad):
        if not hasattr(grad, "indices"):
            return grad / float(self)
        return type(grad)(grad.values / float(self), grad.indices, grad.dense_shape)
