"""Target `update_step`: the new-style optimizers of `tf.keras` 2.11 to 2.15 and of tf_keras.

Names of variables, for a definition bound under the name NAME (its class's name unless given) and a variable `W`:
`iteration` (updates; `pending` and `steps` where steps can skip), scalars by their name, slots `NAME/<slot>/W`, or as
in stock `<slot>/W` where `build` was called before the first step. `variables`, HDF5 and `.keras` files hold them by
position: iteration, the other counters, scalars, moving averages where `use_ema`, then the slots of each variable in
turn, in the order in which `build` or the first step got them. Checkpoints of objects know the first as
`optimizer/_iterations`, the others as `optimizer/_variables/<position>`. Hypers are variables too, `<hyper>`, and
`optimizer/_learning_rate` and `optimizer/_hypers/<hyper>` in checkpoints; the files have them in the config.

A checkpoint has no roles, so what another rule wrote for the same shapes is restored without a word, as in stock; other
shapes are TensorFlow's own error.

Keras's LossScaleOptimizer moves `iterations` at steps that it leaves out, and with it `t` and what schedules see.

`weight_decay` of the base class comes before the rule: each update first takes rate * weight_decay * variable off the
whole variable, rows without a gradient too, and the rule sees what is left. A definition that declares a `weight_decay`
of its own means that one; giving both is an error. `clipnorm`, `global_clipnorm` and `clipvalue`: the first of them
that is given bounds the gradients as they come in, equal rows of a sparse one added up before.
"""
from __future__ import absolute_import, division, print_function

from everstep.compat.backends.on_tensorflow import TensorFlowBackend
from everstep.compat.engine.step import as_pairs, skips
from everstep.compat.targets.construction import DECAY, PARTITIONED, Unsupported, in_parts
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
        PARTITIONED, SLOT_NAMES, WEIGHTS, DECAY,
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
        self.native_super().__init__(name, **native)
        self._learning_rate = self._build_learning_rate(self._given_rate())

    def _make_hyper(self, name, value):
        with self.backend.tf.init_scope():
            return self.backend.tf.Variable(value, name=name, dtype="float32", trainable=False)

    def _make_variable(self, name, shape, dtype, initial, variable=None):
        tf = self.backend.tf
        named = "{}/{}".format(name, variable._shared_name) if variable is not None else name
        colocate = tf.distribute.get_strategy().extended.colocate_vars_with
        with tf.init_scope(), colocate(self.iterations if variable is None else variable):
            value = self.start_value(initial, shape, dtype, variable)
            self._variables.append(tf.Variable(value, name=named, dtype=dtype, trainable=False))
        return self._variables[-1]

    # Hypers.

    @property
    def learning_rate(self):
        """The variable of the learning rate; the base class has one also where the definition has none, or several."""
        if self._many_rates("learning_rate"):
            raise AttributeError(self._many_rates("learning_rate"))
        return super(UpdateStepTarget, self).learning_rate

    lr = learning_rate

    def _schedule_step(self):
        return self.iterations

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
        """What restoring a checkpoint calls for each slot that an OptimizerV2 had."""
        raise SlotError(
            "the checkpoint was written by a legacy optimizer, whose slots {} cannot take; bind the definition to the "
            "module's .optimizers.legacy to restore it".format(type(self).__name__)
        )

    # The step.

    def apply_gradients(self, grads_and_vars, name=None, skip_gradients_aggregation=False, **native):
        """One step. See everstep.compat.targets.new_style for what a second call in the same step does.

        What the base class does, but for constraints, which it would apply at steps that update nothing as well.

        Raises:
            UnsupportedError: in a graph of TF 1.
            VariableError: something else than a resource variable, or a variable that the optimizer was not built on.
            GradientError: no gradient at all, or one that does not fit its variable.
        """
        pairs = as_pairs(grads_and_vars)
        if not pairs:  # a model with nothing to train
            return self.iterations
        self.check_step(pairs)
        if native.get("experimental_aggregate_gradients", not skip_gradients_aggregation):
            pairs = self.aggregate_gradients(pairs)
        self._compute_current_learning_rate()
        tf = module_of(self.native_base).tf
        with tf.name_scope(name or self.name):
            with self.backend.at_once(), tf.init_scope():
                self.build([variable for _, variable in pairs])
            grads, variables = zip(*module_of(self.native_base).optimizer_utils.filter_empty_gradients(pairs))
            done = self._internal_apply_gradients(list(zip(self._clip_gradients(grads), variables)))
            for variable in variables if not skips(self.definition) else ():  # after the averages, as in stock
                self.backend.constrain(variable, done)
        return done

    def minimize(self, loss, *args, **kwargs):
        return self.run_stages(super(UpdateStepTarget, self).minimize, loss, *args, **kwargs)

    def compute_gradients(self, loss, var_list, tape=None):
        with tape if tape is not None else self.backend.after(()):
            loss = self.scale_loss(loss)
        if self._gradients is not None:
            return self.by_hand(loss, var_list() if callable(var_list) else var_list)
        return super(UpdateStepTarget, self).compute_gradients(loss, var_list, tape)

    def _distributed_apply_gradients_fn(self, distribution, grads_and_vars, **native):
        """The list-level step, which the base class calls across replicas."""
        pairs = list(grads_and_vars)
        self.take_step(pairs)
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

    # These two go by place in TF 2.11, and mix up variables that come in another order.

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
        """For those who hand over single variables and count themselves, once `build` has had all of them."""
        if not self._is_built():
            raise VariableError("call build(trainable_variables) of {} first".format(type(self).__name__))
        pairs = [(gradient, variable)]
        self.check_step(pairs)
        self.take_step(pairs, count=False)

    def _clip_gradients(self, grads):
        # The base class clips the values of a sparse gradient, equal rows apart.
        if self.clipnorm or self.global_clipnorm or self.clipvalue:
            grads = [without_duplicates(self.backend, grad) for grad in grads]
        return super(UpdateStepTarget, self)._clip_gradients(grads)
