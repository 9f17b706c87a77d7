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
`optimizer/_variables/<position>`, and hypers are `optimizer/_learning_rate` and `optimizer/_hypers/<hyper>`. Restoring
one sets no hyper but the learning rate, as with stock.

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
from everstep.compat.engine.flush import Flush
from everstep.compat.engine.pairs import as_pairs
from everstep.compat.engine.step import skips
from everstep.compat.targets import hypers
from everstep.compat.targets.checking import forgetting_failures
from everstep.compat.targets.construction import COMPLEX, DECAY, PARTITIONED, Unsupported, from_config, in_parts, prefix
from everstep.compat.targets.hooks import replaced, through
from everstep.compat.targets.loading import keep_from_restores
from everstep.compat.targets.losses import by_hand, run_stages, scaled
from everstep.compat.targets.native import NativeOptimizer
from everstep.compat.targets.native_clipping import without_duplicates
from everstep.compat.targets.new_style import GRAPHS, SLOT_NAMES, WEIGHTS, NewStyleAdapter
from everstep.compat.targets.sharded import check_not_whole
from everstep.compat.targets.since_v2 import is_eager_tensor, module_of, number_of_rate, update_everywhere
from everstep.errors import SlotError, UnsupportedError, VariableError

HOOKS = ("update_step", "_update_step")  # each of them updates one variable


class UpdateStepOptimizer(NativeOptimizer):
    @property
    def learning_rate(self):
        """The variable of the learning rate. The base class has one even if the definition has none, or several."""
        return self._bound.adapter.native_rate()

    lr = learning_rate

    def build(self, variables):
        """Creates the slots of all variables to train. The first step calls it if nobody did before.

        Args:
            variables: all variables that this optimizer will train.

        Warns with `StateWarning` if a state that was loaded before belongs to another optimizer or other variables.
        """
        self._bound.adapter.build_slots(variables)

    def set_weights(self, weights):
        """Sets the values of `optimizer.variables`, a list of arrays. If they do not fit, nothing changes.

        Keras's loader of HDF5 files calls it, too. Then it does what `load_own_variables` does.

        Raises:
            NotBuiltError: `build` was not called.
            SlotError: the number of weights or a shape differs.
        """
        self._bound.adapter.give_weights(weights)

    def save_own_variables(self, store):
        """Saves the state to a file: also one that was loaded, and waits for the slots."""
        self._bound.adapter.save(store)

    def load_own_variables(self, store):
        """Loads the state from a file, ours or that of the stock optimizer that computes the same.

        If the slots do not exist yet, they get theirs later; counters arrive now. Hypers stay as they are. Warns with
        `StateWarning`, and changes nothing, if the state belongs to another optimizer or other variables.
        """
        self._bound.adapter.load(store)

    _save_own_variables, _load_own_variables = save_own_variables, load_own_variables  # of TF 2.11 and 2.12

    def apply_gradients(self, grads_and_vars, name=None, skip_gradients_aggregation=False, **native):
        """Runs one step. everstep.compat.targets.new_style explains a second call in the same step.

        Unlike the base class, does not apply constraints at steps that skip the update.

        Raises:
            UnsupportedError: in a graph of TF 1.
            VariableError: not a resource variable, or not one that the optimizer was built on.
            GradientError: no pair has a gradient, or one does not fit its variable.
        """
        return self._bound.adapter.apply_gradients(grads_and_vars, name, skip_gradients_aggregation, native)

    def minimize(self, loss, *args, **kwargs):
        return self._bound.adapter.minimize(loss, args, kwargs)

    def compute_gradients(self, loss, var_list, tape=None):
        return self._bound.adapter.compute_gradients(loss, var_list, tape)

    def update_step(self, gradient, variable):
        """Updates one variable and counts nothing: for wrapper optimizers that loop over variables themselves.

        Raises:
            VariableError: `build` was not called, or not with this variable.
        """
        self._bound.adapter.update_one(gradient, variable)

    def get_config(self):
        return self._bound.adapter.get_config()

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return from_config(cls, config, custom_objects)

    def _create_or_restore_slot_variable(self, **native):
        """Raises SlotError. Restoring a checkpoint calls this for each slot of an OptimizerV2."""
        self._bound.adapter.refuse_legacy_slots()

    def _distributed_apply_gradients_fn(self, distribution, grads_and_vars, **native):
        """Runs the engine's step on all pairs. The base class calls this across replicas."""
        return self._bound.adapter.take_pairs(list(grads_and_vars))

    def _apply_weight_decay(self, variables):
        """Does nothing unless replaced: the engine decays each variable right before its update, only at updates."""
        self._bound.adapter.apply_weight_decay(variables)

    def _clip_gradients(self, grads):
        return self._bound.adapter.clipped(grads)

    def _update_model_variables_moving_average(self, var_list):
        self._bound.adapter.move_averages(var_list)

    def _overwrite_model_variables_with_average_value(self, var_list):
        self._bound.adapter.assign_averages(var_list)


class UpdateStepAdapter(NewStyleAdapter):
    target = "update_step"
    works_on = "tf.keras of TF 2.11 to 2.15, tf_keras"
    native_class = UpdateStepOptimizer
    unsupported = (
        GRAPHS,
        Unsupported("ref variables", VariableError, "{optimizer} trains resource variables (tf.Variable); got {got!r}"),
        PARTITIONED, COMPLEX, SLOT_NAMES, WEIGHTS, DECAY,
        Unsupported("DTensor meshes", UnsupportedError, "{optimizer} does not run on a DTensor mesh"),
    )
    takes_gradients = True

    # Construction and config.

    @classmethod
    def entries(cls, base):
        return ("apply_gradients",)

    @classmethod
    def schedules(cls, base):
        return module_of(base).learning_rate_schedule

    @classmethod
    def native_keywords(cls, config):
        native = {name: config[name] for name in config if name != "is_legacy_optimizer"}  # for their own loaders
        if "lowering" not in native:
            native.pop("jit_compile", None)  # the base class writes False also where it only found no GPU
        return native

    def make_backend(self):
        import tensorflow

        return TensorFlowBackend(tensorflow)

    def start_native(self, name, native):
        if native.get("mesh") is not None:
            raise hypers.refusal(self.bound, "DTensor meshes")
        self.module = module_of(type(self.native).native_base)
        self.base.__init__(prefix(name, self.bound.definition.base), weight_decay=None, **native)
        rate = self.bound.given("learning_rate") if "learning_rate" in self.bound.hyper_declarations() else None
        if is_eager_tensor(rate):
            number_of_rate(self.bound, rate)
        if hasattr(rate, "assign"):
            self.native._learning_rate = rate  # as the base class's own variable, which callbacks set
        else:
            self.take_schedule(self.given_rate())

    def make_hyper(self, name, value):
        with self.backend.tf.init_scope():
            variable = self.backend.tf.Variable(value, name=name, dtype="float32", trainable=False)
        return keep_from_restores(variable, variable.read_value, self.backend.tf.no_op)

    def make_variable(self, name, shape, dtype, initial, variable=None):
        tf = self.backend.tf
        full_name = "{}/{}".format(name, variable._shared_name) if variable is not None else name
        colocate = tf.distribute.get_strategy().extended.colocate_vars_with
        with tf.init_scope(), colocate(self.native.iterations if variable is None else variable):
            value = self.start_value(initial, shape, dtype, variable)
            made = tf.Variable(value, name=full_name, dtype=dtype, trainable=False)
        self.native._variables.append(made)
        return self.native._variables[-1]

    def get_config(self):
        config = self.native_config()
        if self.bound.arguments.get("jit_compile") is False:
            config["lowering"] = {"compiled": False}
        return config

    def check_eager(self):
        if not self.backend.tf.executing_eagerly_outside_functions():
            raise hypers.refusal(self.bound, "graphs of TF 1")

    # Hypers.

    def counter_of_schedules(self):
        return self.native.iterations

    def take_schedule(self, schedule):
        self.native._learning_rate = self.native._build_learning_rate(schedule)

    def native_rate(self):
        many = hypers.many_rates(self.bound, "learning_rate")
        if many:
            raise AttributeError(many)
        return self.base.learning_rate

    # Counters and scalars.

    def counter(self, name):
        return self.native.iterations if name == "updates" else self.scalar(name)

    def calls_per_update(self):
        return 1

    # Variables and slots.

    def unwrap(self, variable):
        return variable

    def is_built(self):
        return vars(self.native).get("_built", False)

    # State.

    def check_variable(self, variable):
        check_not_whole(variable)
        if not hasattr(variable, "read_value") or self.backend.is_ref(variable):
            what = "partitioned variables" if in_parts(variable) else "ref variables"
            raise hypers.refusal(self.bound, what, got=variable)

    def not_carried(self):
        return self.why_others_stay()

    def refuse_legacy_slots(self):
        raise SlotError(
            "the checkpoint was written by a legacy optimizer, whose slots {} cannot take; bind the definition to the "
            "module's .optimizers.legacy to restore it".format(self.bound.owner)
        )

    # The step.

    def scale_loss(self, loss):
        return scaled(self.bound, loss)

    def update(self, variable, function, grad):
        return update_everywhere(self.backend, variable, function, grad)

    def constrain(self, variable, write):
        # Without skipped steps, `apply_gradients` applies constraints after the step, as the base class does.
        return self.backend.constrain(variable, write) if skips(self.bound.definition) else write

    def take_flush(self, variables):
        return Flush(self.bound, variables).run()

    def apply_gradients(self, grads_and_vars, name, skip_gradients_aggregation, native):
        pairs = as_pairs(grads_and_vars)
        if not pairs:  # a model with nothing to train
            return self.native.iterations
        with forgetting_failures(self.bound):
            pairs = self.check_step(pairs)
            if native.get("experimental_aggregate_gradients", not skip_gradients_aggregation):
                pairs = self.native.aggregate_gradients(pairs)
            return self._apply(pairs, name)

    def _apply(self, pairs, name):
        tf, native = self.module.tf, self.native
        native._compute_current_learning_rate()
        with tf.name_scope(name or native.name):
            with self.backend.at_once(), tf.init_scope():
                native.build([variable for _, variable in pairs])
                self.take_waiting()
            grads, variables = zip(*self.module.optimizer_utils.filter_empty_gradients(pairs))
            grads = native._clip_gradients(grads)
            if replaced(native, ["_deduplicate_sparse_grad"]):  # the engine sums equal rows itself
                grads = native._deduplicate_sparse_grad(grads)
            native._apply_weight_decay(variables)
            result = native._internal_apply_gradients(list(zip(grads, variables)))
            # constraints come after averages, as in stock
            for variable in variables if not skips(self.bound.definition) else ():
                self.backend.constrain(variable, result)
        return result

    def minimize(self, loss, args, kwargs):
        return run_stages(self.bound, self.base.minimize, loss, *args, **kwargs)

    def compute_gradients(self, loss, var_list, tape):
        with tape if tape is not None else self.backend.after(()):
            loss = self.native.scale_loss(loss)
        if self.bound.gradients is not None:
            return by_hand(self.bound, loss, var_list() if callable(var_list) else var_list)
        return self.base.compute_gradients(loss, var_list, tape)

    def take_pairs(self, pairs):
        """Runs the engine's step on all pairs, which `apply_gradients` checked."""
        native = self.native
        hooks = through(native, HOOKS, lambda variable, grad: [native._update_step(grad, variable)])
        self.bound.take_step(pairs, checked=False, hooks=hooks)
        if native.use_ema:
            self._average([variable for _, variable in pairs])
        return self.native.iterations

    def _average(self, variables):
        native = self.native
        native._update_model_variables_moving_average(variables)
        if native.ema_overwrite_frequency:
            self.backend.tf.cond(
                native.iterations % native.ema_overwrite_frequency == 0,
                lambda: native._overwrite_model_variables_with_average_value(variables),
                lambda: None,
            )

    # TF 2.11 finds averages by position, and mixes up variables that come in another order. The next methods find them
    # by variable.

    def _average_of(self, variable):
        native = self.native
        return native._model_variables_moving_average[native._index_dict[native._var_key(variable)]]

    def move_averages(self, variables):
        momentum = self.native.ema_momentum

        def move(average, value):
            average.assign(momentum * average + (1 - momentum) * value)

        for variable in variables:
            average = self._average_of(variable)
            self.native._distribution_strategy.extended.update(average, move, args=(variable,), group=False)

    def assign_averages(self, variables):
        for variable in variables:
            self.native._distribution_strategy.extended.update(
                variable, lambda to, average: to.assign(average), args=(self._average_of(variable),)
            )

    def update_one(self, gradient, variable):
        if not self.is_built():
            raise VariableError("call build(trainable_variables) of {} first".format(self.bound.owner))
        with forgetting_failures(self.bound):
            if self.bound.hooked_step is None:
                [(gradient, variable)] = self.check_step([(gradient, variable)])
            self.bound.update_one(gradient, variable)

    def clipped(self, grads):
        # The base class clips equal rows of a sparse gradient one by one, so they are summed first.
        native = self.native
        if native.clipnorm or native.global_clipnorm or native.clipvalue:
            grads = [without_duplicates(self.backend, grad) for grad in grads]
        return self.base._clip_gradients(grads)


UpdateStepTarget = UpdateStepAdapter  # its name in older pickles
