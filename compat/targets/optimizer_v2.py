"""Target `optimizer_v2`: OptimizerV2 of `tf.keras` 1.14 to 2.10, `.legacy` of 2.11 to 2.15 and of tf_keras.

The API: `apply_gradients` calls `_distributed_apply` across replicas with all pairs. The first step creates the slots.

Names of variables. NAME is the name given to `bind`, by default the class name of the innermost definition.

| what | name |
|---|---|
| counters | `NAME/iter` counts updates; `NAME/pending` and `NAME/steps` exist only if steps can skip updates |
| scalars | `NAME/<scalar>` |
| slots of `W` | `NAME/W/<slot>` |
| hypers | `NAME/<hyper>` |

`get_weights` and HDF5 files store all but the hypers by position: iter, the other counters, scalars, then the slots, as
stock does: the first slot of all variables, then the next slot. (The slots of one variable, then those of the next one,
of Ftrl, as in stock, and where variables have different slots.) The order of variables is that of the first
`apply_gradients` calls, including variables without a gradient.

Checkpoints of objects, and those inside a SavedModel, find counters, scalars and hypers by the last part of these
names, and a slot by its variable and name (`W/.OPTIMIZER_SLOT/optimizer/<slot>`). A slot that declares its own shape or
dtype is `optimizer/<slot>/<index of the variable>` instead. When TensorFlow loads a SavedModel, it creates every slot
that it knows of with the shape and dtype of the variable, and then fails on any other shape or dtype. (So it cannot
load the SavedModel of a model with 16-bit variables, whose slots are float32.) For the same reason `get_slot_names`
does not list such slots; `get_slot` finds them.

Keras does not restore slots when it loads a SavedModel. The checkpoint inside does. (TF 2.1 to 2.3 need the scope:
there `load_model` ignores `custom_objects` for a SavedModel.)

    with tf.keras.utils.custom_object_scope(everstep.custom_objects(tf.keras)):
        model = tf.keras.models.load_model(path)
    model.load_weights(path + "/variables/variables")

Limits: TF 1.15 in graph mode cannot train a model that it loaded from a SavedModel, whatever the optimizer. Keras 2.12
and newer never store the weights of a `.legacy` optimizer in `.keras` files, so it starts afresh. Use `.h5`, a
SavedModel or a checkpoint instead.

As in stock, a second `apply_gradients` call in the same step (two losses, two groups of variables) is a second update:
`iterations` increases twice, and so does the t of each group. A definition that counts calls refuses it.
"""
from __future__ import absolute_import, division, print_function

import contextlib
from collections import OrderedDict

import numpy as np

from everstep.compat.backends.on_tensorflow import TensorFlowBackend
from everstep.compat.engine.flush import Flush
from everstep.compat.engine.pairs import as_list, as_pairs, with_gradients
from everstep.compat.engine.step import counters
from everstep.compat.targets import checking, hypers
from everstep.compat.targets.adapter import Adapter
from everstep.compat.targets.construction import COMPLEX, DECAY, PARTITIONED, Unsupported, config_of, in_parts, prefix
from everstep.compat.targets.copying import ByRole
from everstep.compat.targets.hooks import why_other_slots_stay
from everstep.compat.targets.hypers import attribute, is_function
from everstep.compat.targets.loading import in_stock_order, weights_fit
from everstep.compat.targets.losses import by_hand, run_stages, scaled
from everstep.compat.targets.native_clipping import check_bounds, clip, without_duplicates
from everstep.compat.targets.optimizer_v2_class import V2Optimizer
from everstep.compat.targets.optimizer_v2_hooks import hooks_of
from everstep.compat.targets.optimizer_v2_hypers import hand_over, set_hyper, shown
from everstep.compat.targets.optimizer_v2_slots import STOCK_ORDERS, is_plain, make_slot
from everstep.compat.targets.partitioned import shards_of
from everstep.compat.targets.sharded import ShardedSlots, check_not_whole, name_of, place_of
from everstep.compat.targets.since_v2 import is_native_schedule, module_of, update_everywhere
from everstep.compat.targets.stock_members import constant, present_rate, present_schedule
from everstep.errors import NotBuiltError, SlotError, VariableError
from everstep.optimizers.contract import Schedule, is_tensor, scalar_starts


class V2Adapter(Adapter):
    target = "optimizer_v2"
    works_on = "tf.keras of TF 1.14 to 2.10, tf.keras.optimizers.legacy of 2.11 to 2.15, tf_keras.optimizers.legacy"
    native_class = V2Optimizer
    unsupported = (
        Unsupported(
            "ref variables", VariableError,
            "{optimizer} trains resource variables, as every OptimizerV2; got {got!r}. In TF 1.x make it with "
            "use_resource=True, or bind to tf.train",
        ),
        PARTITIONED, COMPLEX, DECAY,
    )
    stock_members = {"decay": constant("decay", 0.0)}
    takes_gradients = True
    has_slots = "once it has trained the variable"
    carries = ByRole

    # Construction and config.

    @classmethod
    def base_class(cls, optimizer, module):
        return next(base for base in reversed(optimizer.__mro__) if "add_slot" in vars(base))

    @classmethod
    def entries(cls, base):
        return ("apply_gradients",)

    @classmethod
    def schedules(cls, base):
        return module_of(base).learning_rate_schedule

    @classmethod
    def native_keywords(cls, config):
        return config

    def start(self, name=None, **native):
        import tensorflow

        self.use(TensorFlowBackend(tensorflow))
        self.module = module_of(type(self.native).native_base)  # Slots need a few helpers that it does not export.
        self._own = OrderedDict()  # counters and scalars by name
        self._ordered = 0  # the number of weights when they were last put in order
        self._trained = OrderedDict()  # variables by key, in the order of their slots in get_weights
        self._numbers = {}  # {hyper: (number it was given, its variable)} of those that became native schedules
        self._variables_of_call = []  # the variables of the running `apply_gradients` call
        self.sharded = ShardedSlots(self)
        self._may_miss_gradients = False  # True while updates are built that may never run
        self._scope = None  # the name scope of variables that are made outside of `apply_gradients`
        self.base.__init__(prefix(name, self.bound.definition.base), **check_bounds(native))
        hand_over(self.bound)

    def get_config(self):
        config = self.base.get_config()
        config.update(config_of(self.bound))
        return config

    # Hypers.

    def present(self, name):
        value = self.read(name)
        if isinstance(value, Schedule):
            return present_schedule(self.bound, value, "float32")
        if hasattr(value, "assign"):
            return value
        if is_native_schedule(self.bound, value):
            return value(self.backend.tf.cast(self.counter("updates"), "float32"))
        return hypers.called(self.bound, name, value) if is_function(value) else value

    def read(self, name):
        return self.native._hyper[attribute(name)]

    def set(self, name, value):
        set_hyper(self.bound, self._numbers, name, value)

    def number(self, name, value):
        value = value() if is_function(value) else value
        return self.module.backend.get_value(value) if is_tensor(value) else value

    def set_attribute(self, name, value):
        """Sets a hyper by the name of its attribute. The base class calls this when an attribute is assigned."""
        flat_name = self.bound.hyper_names.get(name)
        if flat_name is None:
            self.base._set_hyper(name, value)
        else:
            self.set(flat_name, value)

    def get_attribute(self, name, dtype):
        """Returns a hyper by the name of its attribute. The base class would call an everstep.Schedule."""
        value = self.native._hyper[name]
        if not isinstance(value, Schedule):
            return self.base._get_hyper(name, dtype)
        return shown(self.bound, value) if name == "learning_rate" else value

    def decayed_rate(self, dtype):
        return self.backend.tf.cast(present_rate(self.bound), dtype)

    def create_hypers(self):
        with self._named():
            self.base._create_hypers()

    # Counters and scalars.

    def counter(self, name):
        if name != "updates":
            return self.scalar(name)
        if self.native._iterations is not None:
            return self.native._iterations
        with self._named():
            return self.base.iterations

    def scalar(self, name):
        if name not in self._own:
            with self.backend.outside():
                self._create_own()
        return self._own[name]

    def own_variables(self):
        iterations = self.native._iterations
        return {} if iterations is None else dict(self._own, updates=iterations)

    def counted_elsewhere(self):
        return None

    def calls_per_update(self):
        return 1

    def set_iterations(self, variable):
        type(self.native).native_base.iterations.fset(self.native, variable)

    @contextlib.contextmanager
    def _named(self):
        """Returns a context in which variables are named after the optimizer, whichever call comes first."""
        if self._variables_of_call and self._scope is None:  # the base class has entered a name scope
            yield
            return
        with self.backend.tf.name_scope(self._scope or self.native._name) as self._scope:
            yield

    def _create_own(self):
        """Creates the counters and scalars other than `iter`, once."""
        tf, definition = self.backend.tf, self.bound.definition
        initial = [(name, 0, "int64") for name in counters(definition) if name != "updates"]
        initial += [(name, start, "float32") for name, start in scalar_starts(definition).items()]
        missing = [each for each in initial if each[0] not in self._own]
        for name, value, dtype in missing:
            start = tf.constant_initializer(value)
            with self._named():
                self._own[name] = self.native.add_weight(
                    name, (), tf.as_dtype(dtype), initializer=start, trainable=False
                )

    # Variables and slots.

    def find_key(self, variable):
        return id(self.backend.distributed(variable))

    def variable_name(self, variable):
        return name_of(variable)

    def state_name(self, variable, index):
        return self.variable_name(variable)

    def unwrap(self, variable):
        return variable

    def collections(self, variable):
        return ()

    def parts(self, variable):
        return shards_of(variable) or [variable]

    def place(self, variable):
        return place_of(variable)

    def decays(self, record):
        return True

    def find_slot(self, variable, name):
        return self.native._slots.get(self.module._var_key(variable), {}).get(name)

    def other_slots(self, variable):
        names = self.bound.slot_names(variable)
        return [name for name in self.native._slots.get(self.module._var_key(variable), {}) if name not in names]

    def get_slot(self, variable, name):
        return self.sharded.get_slot(variable, name)

    def create_slots(self, var_list):
        """Creates slots, also for variables without a gradient: loading a file creates the slots of all variables."""
        bound, native, variables = self.bound, self.native, self._variables_of_call or var_list
        if self._ordered == len(native._weights) and bound.has_slots_for(variables):
            return
        self._create_own()
        for variable in variables:
            self._trained.setdefault(self.module._var_key(variable), variable)
            for name in bound.slot_names(variable):
                native.add_slot(variable, name)
        self.sharded.join(variables)
        # A checkpoint restored first creates slots in another order.
        ordered = [self.counter("updates")] + list(self._own.values())
        ordered.extend(bound.slot(*each) for each in bound.stored_slots(list(self._trained.values()), STOCK_ORDERS))
        ordered_ids = set(map(id, ordered))
        native._weights = ordered + [weight for weight in native._weights if id(weight) not in ordered_ids]
        self._ordered = len(native._weights)
        bound.made = tuple(variables)

    def add_slot(self, variable, name, initializer, shape):
        native, key = self.native, self.module._var_key(variable)
        if name not in self.bound.slot_names(variable):  # of a subclass
            return self.base.add_slot(variable, name, initializer, *(() if shape is None else (shape,)))
        slots = native._slots.setdefault(key, {})
        if name in slots:
            return slots[name]
        with self._named():
            slots[name] = slot = make_slot(self.bound, variable, name)
        self.module.backend.track_variable(slot)
        if is_plain(self.bound, variable, name):
            if name not in native._slot_names:
                native._slot_names.append(name)
            native._restore_slot_variable(slot_name=name, variable=variable, slot_variable=slot)
        else:
            native._track_trackable(slot, "{}/{}".format(name, list(self._trained).index(key)))
        native._weights.append(slot)
        return slot

    def set_weights(self, weights):
        weights = as_list(weights, SlotError, "set_weights takes a list of arrays")
        own = [(weight.name, self.backend.shape(weight)) for weight in self.native.weights]
        error = SlotError if own else NotBuiltError
        weights = in_stock_order(self.bound, own, weights, STOCK_ORDERS)
        if weights_fit(self.bound, own, weights, error, "It makes them at its first step"):
            self.base.set_weights([np.asarray(weight) for weight in weights])

    # State.

    def check_variable(self, variable):
        check_not_whole(variable)
        if not hasattr(variable, "read_value") or self.backend.is_ref(variable):
            what = "partitioned variables" if in_parts(variable) else "ref variables"
            raise hypers.refusal(self.bound, what, got=variable)

    def make_state(self, variables):
        native = self.native
        had_hypers = native._hypers_created
        with self.backend.outside():  # as the base class does in a step
            self._create_own()
            native._create_hypers()
            native._create_slots(variables)
        return [] if had_hypers else [hyper for hyper in native._hyper.values() if hasattr(hyper, "initializer")]

    def default_session(self, variables):
        # Keras's session, if Keras created all the variables: other sessions hold other values.
        keras = self.module.backend
        of_keras = set(map(id, getattr(keras, "_GRAPH_VARIABLES", {}).get(variables[0].graph, ())))
        return keras.get_session() if of_keras.issuperset(map(id, variables)) else None

    def not_carried(self):
        return why_other_slots_stay(self)

    # Copies.

    def trained(self):
        return self.bound.first_seen()

    def copied_variable(self, variable, memo):
        return variable

    def exclusions(self, same_variables):
        return None

    # The step.

    def scale_loss(self, loss):
        return scaled(self.bound, loss)

    def update(self, variable, function, grad):
        return update_everywhere(self.backend, variable, function, grad)

    def constrain(self, variable, write):
        return self.backend.constrain(variable, write)

    def native_decay(self, variable):
        return None

    def take_flush(self, variables):
        return Flush(self.bound, variables).run()

    def apply_gradients(self, grads_and_vars, name, more, native):
        bound, pairs = self.bound, as_pairs(grads_and_vars)
        checking.check_operation_name(bound, name)
        if not pairs:  # a model with nothing to train
            return self.backend.tf.no_op()
        with checking.forgetting_failures(bound):
            variables = [variable for _, variable in pairs]
            for variable in () if bound.has_slots_for(variables) else variables:
                self.check_variable(variable)
            bound.check_first(variables)
            pairs = checking.check_grads(bound, pairs)
            checking.check_repeat(bound, [variable for _, variable in with_gradients(pairs)])
            self.carries.give(bound, variables)
            self._variables_of_call = variables
            try:
                # Includes the pairs without a gradient: the base class warns about them.
                with self.backend.at_once():
                    return self.base.apply_gradients(pairs, name, *more, **native)
            finally:
                self._variables_of_call = []

    def get_gradients(self, loss, params):
        keras = self.module.backend
        with keras.get_graph().as_default(), keras.name_scope(self.native._name + "/gradients"):
            loss = self.native.scale_loss(loss)
            if self.bound.gradients is not None:
                return [grad for grad, _ in by_hand(self.bound, loss, params)]
            grads = self.backend.tf.gradients(loss, params)
            return grads if self._may_miss_gradients else checking.check_connected(grads, params)

    def get_updates(self, loss, params):
        self.bound.calls.clear()  # a recompiled model builds a second train function beside the first
        # Loaders of TF 2.0 and 2.1 build a function that nobody runs. It must not fail.
        self._may_miss_gradients = not self.backend.in_session()
        try:
            with self.module.backend.get_graph().as_default():  # Keras 2.0 to 2.3 on eager TensorFlow has its own graph
                return checking.failing_updates(self.bound, params) or self.base.get_updates(loss, params)
        finally:
            self._may_miss_gradients = False

    def minimize(self, loss, args, kwargs):
        return run_stages(self.bound, self.base.minimize, loss, *args, **kwargs)

    def distributed_apply(self, distribution, grads_and_vars, name, apply_state):
        pairs = list(grads_and_vars)
        if not hasattr(self.base, "_aggregate_gradients"):  # before TF 2.2 this method sums over replicas
            pairs = self.backend.added_up(distribution, pairs)
        if "gradient_transformers" not in vars(self.native):
            grads, bounds = [grad for grad, _ in pairs], self._clip_bounds()
            clipped = clip(self.backend, grads, bounds.get("clipnorm"), bounds.get("clipvalue"))
            pairs = [(grad, variable) for grad, (_, variable) in zip(clipped, pairs)]
        pairs = [(self.backend.mirrored(grad), variable) for grad, variable in pairs]
        with self.backend.tf.name_scope(name or self.native._name):
            checked = not self._variables_of_call  # `apply_gradients` checks
            operations = self.bound.take_step(pairs, checked=checked, hooks=hooks_of(self.bound, apply_state))
        return self.counter("updates") if self.backend.eager else self.backend.tf.group(*operations)

    # Clipping. TF 2.4 and newer clip in `apply_gradients`, after the sum over replicas. Before, some versions clip only
    # in `minimize`, others also in `fit`. The hooks disable that, and `distributed_apply` clips instead. When 2.4 is
    # the minimum, all but `transform_gradients` can go.

    def _clip_bounds(self):
        own = vars(self.native)
        return {name: own[name] for name in ("clipnorm", "clipvalue") if name in own}

    def compute_gradients(self, loss, var_list, args, kwargs):
        bounds, own = self._clip_bounds(), vars(self.native)
        for name in bounds:
            del own[name]
        tape = kwargs.get("tape")
        try:
            with tape if tape is not None else self.backend.after(()):
                loss = self.native.scale_loss(loss)
            if self.bound.gradients is not None:
                return by_hand(self.bound, loss, var_list() if callable(var_list) else var_list)
            return self.base._compute_gradients(loss, var_list, *args, **kwargs)
        finally:
            own.update(bounds)

    def transform_gradients(self, grads_and_vars):
        # The base class clips equal rows of a sparse gradient one by one, so they are summed first.
        native = self.native
        if native.clipnorm is not None or native.clipvalue is not None or native.global_clipnorm is not None:
            grads_and_vars = [(without_duplicates(self.backend, grad), variable) for grad, variable in grads_and_vars]
        return self.base._transform_gradients(grads_and_vars)


OptimizerV2Target = V2Adapter  # its name in older pickles
