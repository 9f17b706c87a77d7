"""Target `update_step`: the new-style optimizers of `tf.keras` 2.11 to 2.15 and of tf_keras.

The API: `apply_gradients` takes all pairs. `build(variables)` creates all slots.

Names of variables. NAME is the name given to `bind`, by default the class name of the innermost definition.

| what | name |
|---|---|
| counters | `iteration` counts updates; `pending` and `steps` exist only if steps can skip updates |
| scalars | `<scalar>` |
| slots of `W` | `NAME/<slot>/W`; as in stock, `<slot>/W` if `build` was called before the first step |
| hypers | `<hyper>` |

`variables`, HDF5 and `.keras` files store all but the hypers by position: iteration, the other counters, scalars,
moving averages with `use_ema`, then the slots of each variable in turn, in the order of `build` or of the first step.
The files hold hypers in the config. In checkpoints of objects, iteration is `optimizer/_iterations`, the others are
`optimizer/_variables/<position>`, and hypers are `optimizer/_learning_rate` and `optimizer/_hypers/<hyper>`.

A checkpoint does not store the roles of variables. As in stock, it restores the state of another rule silently if all
shapes are equal. If shapes differ, TensorFlow raises its own error.

Keras's LossScaleOptimizer increments `iterations` at steps that it skips, and so changes `t` and schedules, too.

Base class arguments:
- `weight_decay` runs before the rule. Each update first subtracts rate * weight_decay * variable from the whole
  variable, including rows without a gradient; the rule sees the result. A definition that declares its own
  `weight_decay` uses that one, and raises an error for the argument.
- `clipnorm`, `global_clipnorm` and `clipvalue`: only the first that is set applies. It clips the gradients as they come
  in. Equal rows of a sparse gradient are summed first.
"""
from __future__ import absolute_import, division, print_function

from everstep.compat.backends.on_tensorflow import TensorFlowBackend
from everstep.compat.engine.pairs import as_pairs
from everstep.compat.engine.step import skips
from everstep.compat.targets.construction import COMPLEX, DECAY, PARTITIONED, Unsupported, in_parts
from everstep.compat.targets.native_clipping import without_duplicates
from everstep.compat.targets.new_style import GRAPHS, SLOT_NAMES, WEIGHTS, NewStyleTarget
from everstep.compat.targets.since_v2 import module_of
from everstep.errors import SlotError, UnsupportedError, VariableError


class UpdateStepTarget(NewStyleTarget):
    target = "update_step"
    works_on = "tf.keras of TF 2.11 to 2.15, tf_keras"
    unsupported = (
        GRAPHS,
        Unsupported("ref variables", VariableError, "{optimizer} trains resource variables (tf.Variable); got {got!r}"),
        PARTITIONED, COMPLEX, SLOT_NAMES, WEIGHTS, DECAY,
        Unsupported("DTensor meshes", UnsupportedError, "{optimizer} does not run on a DTensor mesh"),
    )
    entries = ("apply_gradients",)
    takes_gradients = True

    def _make_backend(self):
        import tensorflow

        return TensorFlowBackend(tensorflow)

    def _start_native(self, name, native):
        if native.get("mesh") is not None:
            raise self.refusal("DTensor meshes")
        self.native_super().__init__(name, weight_decay=None, **native)
        self._learning_rate = self._build_learning_rate(self._given_rate())

    def _make_hyper(self, name, value):
        with self.backend.tf.init_scope():
            return self.backend.tf.Variable(value, name=name, dtype="float32", trainable=False)

    def _make_variable(self, name, shape, dtype, initial, variable=None):
        tf = self.backend.tf
        full_name = "{}/{}".format(name, variable._shared_name) if variable is not None else name
        colocate = tf.distribute.get_strategy().extended.colocate_vars_with
        with tf.init_scope(), colocate(self.iterations if variable is None else variable):
            value = self.start_value(initial, shape, dtype, variable)
            self._variables.append(tf.Variable(value, name=full_name, dtype=dtype, trainable=False))
        return self._variables[-1]

    # Hypers.

    @property
    def learning_rate(self):
        """The variable of the learning rate. The base class has one even if the definition has none, or several."""
        if self._many_rates("learning_rate"):
            raise AttributeError(self._many_rates("learning_rate"))
        return super(UpdateStepTarget, self).learning_rate

    lr = learning_rate

    def _schedule_step(self):
        return self.iterations

    def _take_schedule(self, schedule):
        self._learning_rate = self._build_learning_rate(schedule)

    # Counters and scalars.

    def counter(self, name):
        return self.iterations if name == "updates" else super(UpdateStepTarget, self).counter(name)

    # Variables and slots.

    def _is_built(self):
        return getattr(self, "_built", False)

    # State.

    def check_variable(self, variable):
        if not hasattr(variable, "read_value") or self.backend.is_ref(variable):
            raise self.refusal("partitioned variables" if in_parts(variable) else "ref variables", got=variable)

    def _create_or_restore_slot_variable(self, **native):
        """Raises SlotError. Restoring a checkpoint calls this for each slot of an OptimizerV2."""
        raise SlotError(
            "the checkpoint was written by a legacy optimizer, whose slots {} cannot take; bind the definition to the "
            "module's .optimizers.legacy to restore it".format(type(self).__name__)
        )

    # The step.

    def apply_gradients(self, grads_and_vars, name=None, skip_gradients_aggregation=False, **native):
        """Runs one step. everstep.compat.targets.new_style explains a second call in the same step.

        Unlike the base class, does not apply constraints at steps that skip the update.

        Raises:
            UnsupportedError: in a graph of TF 1.
            VariableError: not a resource variable, or not one that the optimizer was built on.
            GradientError: no pair has a gradient, or one does not fit its variable.
        """
        pairs = as_pairs(grads_and_vars)
        if not pairs:  # a model with nothing to train
            return self.iterations
        with self.forgetting_failures():
            return self._apply(self.check_step(pairs), name, skip_gradients_aggregation, native)

    def _apply(self, pairs, name, skip_gradients_aggregation, native):
        if native.get("experimental_aggregate_gradients", not skip_gradients_aggregation):
            pairs = self.aggregate_gradients(pairs)
        self._compute_current_learning_rate()
        tf = module_of(self.native_base).tf
        with tf.name_scope(name or self.name):
            with self.backend.at_once(), tf.init_scope():
                self.build([variable for _, variable in pairs])
            grads, variables = zip(*module_of(self.native_base).optimizer_utils.filter_empty_gradients(pairs))
            result = self._internal_apply_gradients(list(zip(self._clip_gradients(grads), variables)))
            for variable in variables if not skips(self.definition) else ():  # after the moving averages, as in stock
                self.backend.constrain(variable, result)
        return result

    def minimize(self, loss, *args, **kwargs):
        return self.run_stages(super(UpdateStepTarget, self).minimize, loss, *args, **kwargs)

    def compute_gradients(self, loss, var_list, tape=None):
        with tape if tape is not None else self.backend.after(()):
            loss = self.scale_loss(loss)
        if self._gradients is not None:
            return self.by_hand(loss, var_list() if callable(var_list) else var_list)
        return super(UpdateStepTarget, self).compute_gradients(loss, var_list, tape)

    def _distributed_apply_gradients_fn(self, distribution, grads_and_vars, **native):
        """Runs the engine's step on all pairs. The base class calls this across replicas."""
        pairs = list(grads_and_vars)
        self.take_step(pairs, checked=False)  # `apply_gradients` checked them
        if self.use_ema:
            self._average([variable for _, variable in pairs])
        return self.iterations

    def constrain(self, variable, write):
        return self.backend.constrain(variable, write) if skips(self.definition) else write

    def _average(self, variables):
        self._update_model_variables_moving_average(variables)
        if self.ema_overwrite_frequency:
            self.backend.tf.cond(
                self.iterations % self.ema_overwrite_frequency == 0,
                lambda: self._overwrite_model_variables_with_average_value(variables),
                lambda: None,
            )

    def _average_of(self, variable):
        return self._model_variables_moving_average[self._index_dict[self._var_key(variable)]]

    # TF 2.11 finds averages by position, and mixes up variables that come in another order. The next two methods find
    # them by variable.

    def _update_model_variables_moving_average(self, var_list):
        def move(average, value):
            average.assign(self.ema_momentum * average + (1 - self.ema_momentum) * value)

        for variable in var_list:
            average = self._average_of(variable)
            self._distribution_strategy.extended.update(average, move, args=(variable,), group=False)

    def _overwrite_model_variables_with_average_value(self, var_list):
        for variable in var_list:
            self._distribution_strategy.extended.update(
                variable, lambda to, average: to.assign(average), args=(self._average_of(variable),)
            )

    def update_step(self, gradient, variable):
        """Updates one variable and counts nothing: for wrapper optimizers that loop over variables themselves.

        Raises:
            VariableError: `build` was not called, or not with this variable.
        """
        if not self._is_built():
            raise VariableError("call build(trainable_variables) of {} first".format(type(self).__name__))
        with self.forgetting_failures():
            self.take_step(self.check_step([(gradient, variable)]), count=False)

    def _clip_gradients(self, grads):
        # The base class clips equal rows of a sparse gradient one by one, so they are summed first.
        if self.clipnorm or self.global_clipnorm or self.clipvalue:
            grads = [without_duplicates(self.backend, grad) for grad in grads]
        return super(UpdateStepTarget, self)._clip_gradients(grads)
