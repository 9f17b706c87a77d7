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

from everstep.compat.engine.fitting import is_known
from everstep.compat.engine.flush import Flush
from everstep.compat.engine.overwritten import is_overwritten
from everstep.compat.engine.pairs import as_list, as_pairs
from everstep.compat.engine.step import skips
from everstep.compat.targets import hypers
from everstep.compat.targets.checking import check_dense, forgetting_failures
from everstep.compat.targets.construction import COMPLEX, DECAY, PARTITIONED, in_parts, member, prefix
from everstep.compat.targets.copying import WithoutSlots
from everstep.compat.targets.hooks import replaced, slots_missing, through
from everstep.compat.targets.keras3_class import Keras3Optimizer
from everstep.compat.targets.keras3_frameworks import framework_of, runs_on_tensorflow
from everstep.compat.targets.keras3_layouts import FirstValue
from everstep.compat.targets.losses import scaled
from everstep.compat.targets.native_classes import PACKAGE, stock_class_named
from everstep.compat.targets.new_style import GRAPHS, SLOT_NAMES, WEIGHTS, NewStyleAdapter
from everstep.compat.targets.since_v2 import module_of
from everstep.compat.targets.stock_members import StockMember, averages_of_all, branches
from everstep.errors import GradientError, SlotError, UnsupportedError, VariableError

_PREFIX = PACKAGE + ">"
MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments


class Keras3Adapter(NewStyleAdapter):
    target = "keras3"
    works_on = "keras 3 on TensorFlow, JAX and torch; tf.keras of TF 2.16 and newer"
    native_class = Keras3Optimizer
    carries = WithoutSlots
    unsupported = (
        GRAPHS, PARTITIONED, COMPLEX, SLOT_NAMES, WEIGHTS, DECAY,
        member("minimize", "train with fit, or give gradients to apply_gradients"),
    )
    stock_members = dict(NewStyleAdapter.stock_members, optimizers=StockMember(None, None, branches),
                         _model_variables_moving_average=StockMember(None, None, averages_of_all))
    moved_natively = ("updates",)
    casts_gradients = True
    copies_deeply = True  # as stock, which Keras copies by saving and loading it
    applied = True  # whether the last call made an update
    _overwriting = ()  # type: Any  # the pairs of the running step whose gradients are new values
    _rate_of_step = None  # the learning rate that the running step gives its hooks

    # Construction and config.

    @classmethod
    def entries(cls, base):
        return ("apply_gradients", "apply") if runs_on_tensorflow(base) else ()

    @classmethod
    def schedules(cls, base):
        return module_of(base).base_optimizer.learning_rate_schedule

    @classmethod
    def native_keywords(cls, config):
        native = {name: config[name] for name in config if name != "is_legacy_optimizer"}  # of Keras 2.11 to 2.15
        if str(native.get("name")).startswith(_PREFIX):
            native["name"] = native["name"][len(_PREFIX):]
        return native

    def make_backend(self):
        self.keras = module_of(type(self.native).native_base).base_optimizer
        self.framework = framework_of(self)
        return self.framework.backend

    def start_native(self, name, native):
        steps = native.get("gradient_accumulation_steps")
        if steps and skips(self.bound.definition):
            raise UnsupportedError(
                "gradient_accumulation_steps={} and {} both count calls; give one of them".format(
                    steps, self.bound.definition._short()
                )
            )
        self._check_dense(steps)
        if native.get("loss_scale_factor") is not None:
            native = dict(native, loss_scale_factor=_Scale(native["loss_scale_factor"]))
        # The HDF5 loader replaces an unknown class by the stock class of the same name. So everstep.accumulate(SGD())
        # must not be called "SGD".
        name = prefix(name, self.bound.definition)
        # Each replica increments `iterations`. In Keras 3.0 that fails under a CentralStorageStrategy.
        with self.backend.first_replica():
            self.base.__init__(learning_rate=self.given_rate(), name=name, **native)

    def _check_dense(self, accumulates):
        """Raises UnsupportedError if the definition needs sparse gradients and all gradients will be dense."""
        why = self.framework.why_dense
        if why is None and accumulates:
            why = "gradient_accumulation_steps makes gradients dense (everstep.accumulate does not)"
        if why:
            check_dense(self.bound.definition, why)

    def make_hyper(self, name, value):
        return self.framework.hyper(self.make_variable(name, (), "float32", value))

    def make_variable(self, name, shape, dtype, initial, variable=None):
        full_name, scope, more = name.replace("/", "_"), self.backend.after(()), {}
        if variable is not None:
            full_name = "{}_{}".format(self.variable_name(variable).replace("/", "_"), full_name)
            scope, more = self.framework.beside(variable, shape)
        with scope:
            return self.native.add_variable(
                shape=shape,
                initializer=FirstValue(lambda shape, dtype: self.start_value(initial, shape, dtype, variable)),
                dtype=self.backend.stored(dtype),
                name=full_name,
                **more
            )

    def check_eager(self):
        self.framework.check_eager()

    def get_config(self):
        config = self.native_config()
        if stock_class_named(type(self.native).native_base, config["name"]):
            config["name"] = _PREFIX + config["name"]
        return config

    # Hypers.

    def counter_of_schedules(self):
        return self.native._variables[0]

    def take_schedule(self, schedule):
        native, tracker = self.native, self.native._tracker
        rate, count = native._learning_rate, len(native._variables)
        self.base.__setattr__("learning_rate", schedule)
        tracker.untrack(rate)  # Keras 3.0 keeps the variable, and then cannot load what it saves
        # A new list, since checkpoints of TensorFlow refuse one that lost an item.
        is_variable, variables = tracker.config["variables"]
        with self.keras.tracking.DotNotTrackScope():  # it is what tracking appends to
            native._variables = list(variables)
        tracker.config["variables"] = is_variable, native._variables
        if self.is_built():
            self.before_slots += len(native._variables) - count

    # Counters and scalars.

    def counter(self, name):
        return self.unwrap(self.native._variables[0]) if name == "updates" else self.scalar(name)

    def calls_per_update(self):
        return self.native.gradient_accumulation_steps or 1  # with steps, the base class counts calls

    # Variables and slots.

    def unwrap(self, variable):
        return self.framework.unwrap(variable)

    def is_built(self):
        return self.native.built

    def build(self, variables):
        variables = as_list(variables, VariableError, "build takes a list of variables")
        if variables:  # the HDF5 loader passes the model's own variables: none, if all belong to its layers
            # Outside of a function that is being traced: XLA takes no function that creates variables from tensors.
            with self.backend.at_once(), self.backend.outside():
                self.build_slots(variables)

    # State.

    def check_variable(self, variable):
        if in_parts(variable):
            raise hypers.refusal(self.bound, "partitioned variables", got=variable)
        if not self.framework.can_train(variable):
            raise VariableError(
                "{} trains {}; got {!r}".format(self.bound.owner, self.framework.trains, variable)
            )
        if not is_known(self.backend.shape(self.unwrap(variable))) and self.bound.slot_names(variable):
            raise VariableError(
                "{} needs the shape of {}: a slot of Keras 3 has a fixed one. Give the variable its shape, or bind to "
                "tf_keras or tf.compat.v1.train".format(self.bound.owner, self.variable_name(variable))
            )

    def not_carried(self):
        steps = self.native.gradient_accumulation_steps
        if steps and int(self.backend.values([self.counter("updates")], None)[0]) % steps:
            return (
                "it is in the middle of its {} gradient_accumulation_steps, and a state cannot hold their sums; train "
                "until the next update first".format(steps)
            )
        return self.why_others_stay()

    # The step.

    def scale_loss(self, loss):
        self.framework.check_scale()
        return self.base.scale_loss(scaled(self.bound, loss))

    def update(self, variable, function, grad):
        return self.framework.update(variable, function, grad)

    def constrain(self, variable, write):
        return write  # the base class applies constraints after the step

    def take_flush(self, variables):
        with self.backend.computing():
            operations = Flush(self.bound, variables).run()
        for variable in variables:  # as the base class does after each step
            keras_variable = self.bound.record(variable).native
            if getattr(keras_variable, "constraint", None) is not None:
                keras_variable.assign(keras_variable.constraint(keras_variable))
        return operations

    def apply_gradients(self, grads_and_vars):
        pairs = as_pairs(grads_and_vars)
        self.native.apply([grad for grad, _ in pairs], [variable for _, variable in pairs])
        return self.native.iterations

    def apply(self, grads, variables):
        self.framework.run(self._apply, grads, variables)

    def _apply(self, grads, variables):
        grads = [self.backend.dense(grad) for grad in as_list(grads, GradientError, "apply takes a list of gradients")]
        if not grads:  # a model with nothing to train
            return
        native = self.native
        variables = native._trainable_variables if variables is None else list(variables)
        if len(grads) != len(variables):
            raise GradientError(
                "{} gradients were given for {} variables{}".format(
                    len(grads), len(variables), "" if self.is_built() else "; call build(trainable_variables) first"
                )
            )
        self._check_hooks()
        with forgetting_failures(self.bound):
            grads = [grad for grad, _ in self.check_step(list(zip(grads, variables)))]
            if not self.is_built():
                native.build(variables)
                if not self._trained:
                    raise SlotError(slots_missing(self.bound.owner, "slots"))
                self.take_waiting()  # it may have the counters of a file
            # The base class counts the step itself. That has to wait for the gradients, because they may fail.
            with self.backend.after([self.backend.barrier(grads)] if self.backend.without_strategy() else ()):
                self.framework.apply(grads, variables)

    def _check_hooks(self):
        """Raises UnsupportedError if the user's class replaces a method that stock updates call, and ours do not."""
        found = replaced(self.native, ["assign", "assign_add", "assign_sub"])
        if found:
            raise UnsupportedError(
                "{} replaces {}, but updates of everstep write variables by themselves. Replace update_step, or write "
                "a wrapper around the definition".format(self.bound.owner, found[0])
            )

    def backend_apply(self, grads, variables):
        native = self.native
        if not native.gradient_accumulation_steps or self._finds_sums_by_variable():
            self.base._backend_apply_gradients(grads, variables)
            return
        sums, order = native._accumulated_gradients, map(native._get_variable_index, variables)
        vars(native)["_accumulated_gradients"] = [sums[index] for index in order]
        try:
            self.base._backend_apply_gradients(grads, variables)
        finally:
            vars(native)["_accumulated_gradients"] = sums

    def _finds_sums_by_variable(self):
        """Returns True if the base class looks up accumulated gradients by variable; Keras 3.0 does by position."""
        increment = self.keras.BaseOptimizer._backend_increment_gradient_accumulators
        return "acc_grads" in increment.__code__.co_varnames[: increment.__code__.co_argcount]

    def clips_by_hook(self):
        """Returns whether the user's class has its own clipping, around ours."""
        return bool(replaced(self.native, ["_clip_gradients"]))

    def overwrite(self, grads, variables):
        """Overwrites variables by their gradients, and returns the other gradients and variables.

        Where steps can skip updates, these gradients wait for the engine's step, which knows whether this one does.
        """
        overwritten = [is_overwritten(variable) for variable in variables]
        if not skips(self.bound.definition) or all(overwritten):
            return self.base._overwrite_variables_directly_with_gradients(grads, variables)
        pairs = list(zip(grads, variables))
        self._overwriting = [pair for pair, waits in zip(pairs, overwritten) if waits]
        others = [pair for pair, waits in zip(pairs, overwritten) if not waits]
        return [grad for grad, _ in others], [variable for _, variable in others]

    def clip_in_hook(self, grads):
        return self.framework.clipped(grads) if self.clips_by_hook() else grads

    def backend_update(self, grads, variables, learning_rate):
        grads = list(grads if self.clips_by_hook() else self.framework.clipped(grads))
        waiting, self._overwriting = self._overwriting, ()
        grads += [grad / self.backend.replicas() for grad, _ in waiting]  # they are summed over replicas
        self.framework.update_step(grads, list(variables) + [variable for _, variable in waiting], learning_rate)

    def distributed_update(self, distribution, pairs, learning_rate):
        self.take_pairs(self.framework.added_up(distribution, pairs), learning_rate)

    def take_pairs(self, pairs, learning_rate):
        """Runs the engine's step on all pairs, which `apply` checked."""
        bound, native, self._rate_of_step = self.bound, self.native, learning_rate
        hooks = through(native, ["update_step"], lambda v, grad: [native.update_step(grad, v, learning_rate)])
        try:
            if not skips(bound.definition):
                bound.take_step(list(pairs), checked=False, hooks=hooks)
                return
            step = bound.new_step(list(pairs), hooks=hooks)
            step.run()
            self.applied = step.predicate
        finally:
            self._rate_of_step = None  # a traced value must not outlive its jitted function

    def update_one(self, gradient, variable, learning_rate):
        hypers, is_hooked = {}, self.bound.hooked_step is not None
        if "learning_rate" in self.bound.hyper_declarations():
            hypers["learning_rate"] = learning_rate
        elif is_hooked and learning_rate is not self._rate_of_step:
            raise UnsupportedError(
                "update_step of {} was given another learning rate than the step has, but {} has no hyper of that "
                "name, or several; set the definition's own hypers".format(
                    self.bound.owner, self.bound.definition._short()
                )
            )
        with self.backend.computing():
            self.bound.update_one(gradient, self.unwrap(variable), hypers)


class _Scale(float):
    """A loss scale that divides sparse gradients, too: IndexedSlices do not support division."""

    def __rtruediv__(self, grad):
        if not hasattr(grad, "indices"):
            return grad / float(self)
        return type(grad)(grad.values / float(self), grad.indices, grad.dense_shape)


Keras3Target = Keras3Adapter  # its name in older pickles
