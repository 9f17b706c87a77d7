"""Target `optimizer_v2`: OptimizerV2 of `tf.keras` 1.14 to 2.10, `.legacy` of 2.11 to 2.15 and of tf_keras.

The API: `apply_gradients` calls `_distributed_apply` across replicas with all pairs. The first step creates the slots.

Names of variables. NAME is the name given to `bind`, by default the class name of the innermost definition.

| what | name |
|---|---|
| counters | `NAME/iter` counts updates; `NAME/pending` and `NAME/steps` exist only if steps can skip updates |
| scalars | `NAME/<scalar>` |
| slots of `W` | `NAME/W/<slot>` |
| hypers | `NAME/<hyper>` |

`get_weights` and HDF5 files store all but the hypers by position: iter, the other counters, scalars, then the slots of
each variable in turn. The order is that of the first `apply_gradients` calls, including variables without a gradient.

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

from collections import OrderedDict

import numpy as np

from everstep.compat.backends.on_tensorflow import TensorFlowBackend
from everstep.compat.engine.pairs import as_list, as_pairs, check_rows, with_gradients
from everstep.compat.engine.step import counters, engine_slots
from everstep.compat.targets.construction import COMPLEX, DECAY, PARTITIONED, Unsupported, in_parts
from everstep.compat.targets.hypers import attribute, is_function
from everstep.compat.targets.native_clipping import check_bounds, clip, without_duplicates
from everstep.compat.targets.since_v2 import SinceV2Target, module_of
from everstep.compat.targets.stepping import check_connected
from everstep.compat.targets.stock_members import constant, present_rate
from everstep.errors import EverstepError, NotBuiltError, SlotError, VariableError
from everstep.optimizers.contract import VARIABLE, Schedule, flat, is_tensor


class OptimizerV2Target(SinceV2Target):
    target = "optimizer_v2"
    works_on = "tf.keras of TF 1.14 to 2.10, tf.keras.optimizers.legacy of 2.11 to 2.15, tf_keras.optimizers.legacy"
    unsupported = (
        Unsupported(
            "ref variables", VariableError,
            "{optimizer} trains resource variables, as every OptimizerV2; got {got!r}. In TF 1.x make it with "
            "use_resource=True, or bind to tf.train",
        ),
        PARTITIONED, COMPLEX, DECAY,
    )
    stock_members = {"decay": constant("decay", 0.0)}
    entries = ("apply_gradients",)
    takes_gradients = True
    has_slots = "once it has trained the variable"

    @classmethod
    def base_class(cls, optimizer, module):
        return next(base for base in reversed(optimizer.__mro__) if "add_slot" in vars(base))

    def start(self, name=None, **native):
        import tensorflow

        self.backend = TensorFlowBackend(tensorflow)
        self._own = OrderedDict()  # counters and scalars by name
        self._ordered = 0  # the number of weights when they were last put in order
        self._trained = OrderedDict()  # variables by key, in the order of their slots in get_weights
        self._numbers = {}  # {hyper: (number it was given, its variable)} of those that became native schedules
        self._variables_of_call = []  # the variables of the running `apply_gradients` call
        self._may_miss_gradients = False  # while updates are built that may never run
        self.native_super().__init__(self.native_name(name), **check_bounds(native))
        for hyper in self.hyper_declarations():
            super(OptimizerV2Target, self)._set_hyper(attribute(hyper), self._hyper_to_keep(hyper))

    @property
    def _keras(self):
        """The module of the base class. Slots need a few helpers that it does not export."""
        return module_of(self.native_base)

    # Hypers. The base class's __getattribute__ is slow: Python code that runs for every attribute. All that it adds is
    # hypers, which __getattr__ finds here.

    __getattribute__ = object.__getattribute__

    def __getattr__(self, name):
        key = "learning_rate" if name == "lr" else name
        if key in self.__dict__.get("_hyper", ()):
            return self._get_hyper(key)
        return super(OptimizerV2Target, self).__getattr__(name)

    def hyper(self, name):
        value = self._hyper[attribute(name)]
        if isinstance(value, Schedule):
            return value
        if self._is_native_schedule(value):
            return value(self.backend.tf.cast(self.iterations, "float32"))
        return self.call_hyper(name, value) if is_function(value) else value

    def read_hyper(self, name):
        return self._hyper[attribute(name)]

    def set_hyper(self, name, value):
        if self._is_native_schedule(value):
            before = self.given_hyper(name), self._hyper[attribute(name)]
            self.replace_by_schedule(name, value)
            if isinstance(before[0], float):
                self._numbers[name] = before
            self._hyper[attribute(name)] = value
        elif name in self._numbers:
            self._set_number_again(name, value)
        else:
            super(OptimizerV2Target, self)._set_hyper(attribute(name), self.check_hyper(name, value))

    def _set_number_again(self, name, value):
        """Sets a hyper that became a native schedule to a number, as stock does."""
        number, variable = self._numbers[name]
        with_schedule, self.definition = self.definition, self.definition_with(name, number)
        try:
            checked = self.check_hyper(name, value)
        except EverstepError:
            self.definition = with_schedule
            raise
        self._hyper[attribute(name)] = variable
        del self._numbers[name]
        super(OptimizerV2Target, self)._set_hyper(attribute(name), checked)

    def _hyper_to_keep(self, name):
        value = self.given_hyper(name)
        if hasattr(value, "assign"):
            # TF 1.14 would copy the variable's present value. Drop this when 1.14 is no longer supported.
            return lambda: value
        self._check_schedule(value)
        return value

    def _set_hyper(self, name, value):
        # The base class calls this when an attribute is assigned.
        hypers = {attribute(hyper): hyper for hyper in self.hyper_declarations()}
        if name in hypers:
            self.set_hyper(hypers[name], value)
        else:
            super(OptimizerV2Target, self)._set_hyper(name, value)

    def _get_hyper(self, name, dtype=None):
        # The base class would call an everstep.Schedule without arguments.
        value = self._hyper[name]
        return value if isinstance(value, Schedule) else super(OptimizerV2Target, self)._get_hyper(name, dtype)

    def _decayed_lr(self, var_dtype):
        """Returns the learning rate of the next step. Callbacks log it."""
        return self.backend.tf.cast(present_rate(self), var_dtype)

    # Counters and scalars.

    def counter(self, name):
        return self.iterations if name == "updates" else self.scalar(name)

    def scalar(self, name):
        if name not in self._own:
            with self.backend.tf.name_scope(self._name), self.backend.outside():
                self._create_own()
        return self._own[name]

    def _create_own(self):
        """Creates the counters and scalars other than `iter`, once."""
        tf = self.backend.tf
        initial = [(name, 0, "int64") for name in counters(self.definition) if name != "updates"]
        for name, (_, declaration) in flat(self.definition, "scalar").items():
            initial.append((name, declaration.init, "float32"))
        for name, value, dtype in initial:
            if name not in self._own:
                start = tf.constant_initializer(value)
                self._own[name] = self.add_weight(name, (), tf.as_dtype(dtype), initializer=start, trainable=False)

    # Variables and slots.

    def _create_slots(self, var_list):
        """Creates slots, also for variables without a gradient: loading a file creates the slots of all variables."""
        variables = self._variables_of_call or var_list
        if self._ordered == len(self._weights) and self.has_slots_for(variables):
            return
        self._create_own()
        for variable in variables:
            self._trained.setdefault(self._keras._var_key(variable), variable)
            for name in self.slot_names(variable):
                self.add_slot(variable, name)
        self._order_weights()
        self._made = tuple(variables)

    def _order_weights(self):
        """Sorts `_weights` into the documented order. A checkpoint restored first creates slots in another order."""
        ordered = [self.iterations] + list(self._own.values())
        for variable in self._trained.values():
            ordered.extend(self.slot(variable, name) for name in self.slot_names(variable))
        ordered_ids = set(map(id, ordered))
        self._weights = ordered + [weight for weight in self._weights if id(weight) not in ordered_ids]
        self._ordered = len(self._weights)

    def add_slot(self, var, slot_name, initializer="zeros", shape=None):
        """Creates a slot with the declared shape and dtype. The base class would use the variable's dtype.

        Restoring a checkpoint calls this, too, and then sets the value. `initializer` and `shape` are ignored: the
        slot's declaration decides.

        Raises:
            SlotError: the definition does not declare this slot.
        """
        slots = self._slots.setdefault(self._keras._var_key(var), {})
        if slot_name in slots:
            return slots[slot_name]
        if slot_name not in self.slot_names(var):
            raise SlotError(
                "{} has no slot {!r}; it has {}. A checkpoint that holds it was written by another optimizer: restore "
                "tf.train.Checkpoint(model=model) without the optimizer, or load weights before the model is "
                "compiled".format(type(self).__name__, slot_name, ", ".join(self.slot_names(var)) or "none")
            )
        slots[slot_name] = self._make_slot(var, slot_name)
        if self._is_plain(var, slot_name):
            if slot_name not in self._slot_names:
                self._slot_names.append(slot_name)
            self._restore_slot_variable(slot_name=slot_name, variable=var, slot_variable=slots[slot_name])
        else:
            index = list(self._trained).index(self._keras._var_key(var))
            self._track_trackable(slots[slot_name], "{}/{}".format(slot_name, index))
        self._weights.append(slots[slot_name])
        return slots[slot_name]

    def _is_plain(self, variable, slot_name):
        """Returns True if a slot declares neither shape nor dtype, and so has those of its variable."""
        if slot_name in engine_slots(self.backend, self.rule(variable), self.record(variable)):
            return False
        _, declaration = flat(self.rule(variable), "slot")[slot_name]
        return declaration.shape is None and declaration.dtype is None

    def _make_slot(self, var, slot_name):
        backend, (initial, shape, dtype) = self.backend, self.slot_declaration(var, slot_name)
        whole = backend.distributed(var)  # TF 2.0 creates nothing beside a replica's copy

        def value():
            if initial is not VARIABLE:
                return backend.filled(shape, initial, dtype, var)
            return backend.start_value(var, dtype)

        with backend.scope_of(var), backend.tf.distribute.get_strategy().extended.colocate_vars_with(whole):
            slot = backend.tf.Variable(
                value, name="{}/{}".format(var._shared_name, slot_name), dtype=dtype, trainable=False, use_resource=True
            )
        self._keras.backend.track_variable(slot)
        return slot

    def get_slot(self, var, slot_name):
        """Returns the variable that holds a slot.

        Raises:
            SlotError: there is no such slot, or it does not exist yet.
        """
        return self.require_slot(var, slot_name)

    def set_weights(self, weights):
        """Sets the values that `get_weights` returns. If they do not fit, nothing changes.

        Raises:
            NotBuiltError: there are no weights before the first step.
            SlotError: the number of weights or a shape differs. It is not a ValueError: Keras's `load_model` catches
                that, logs a line and continues with a fresh optimizer.
        """
        weights = as_list(weights, SlotError, "set_weights takes a list of arrays")
        shapes = [np.shape(weight) for weight in weights]
        expected = [self.backend.shape(weight) for weight in self.weights]
        if shapes != expected:
            names = ["{} {}".format(weight.name, shape) for weight, shape in zip(self.weights, expected)]
            raise (SlotError if expected else NotBuiltError)(
                "{} has {} weights, {}; got {} of shapes {}{}".format(
                    type(self).__name__,
                    len(expected),
                    ", ".join(names) or "none",
                    len(shapes),
                    shapes,
                    "" if expected else ". It makes them at its first step",
                )
            )
        super(OptimizerV2Target, self).set_weights([np.asarray(weight) for weight in weights])

    # State.

    def check_variable(self, variable):
        if not hasattr(variable, "read_value") or self.backend.is_ref(variable):
            raise self.refusal("partitioned variables" if in_parts(variable) else "ref variables", got=variable)

    def own_variables(self):
        return {} if self._iterations is None else dict(self._own, updates=self._iterations)

    def find_slot(self, variable, name):
        return self._slots.get(self._keras._var_key(variable), {}).get(name)

    def make_state(self, variables):
        had_hypers = self._hypers_created
        with self.backend.tf.name_scope(self._name), self.backend.outside():  # as the base class does in a step
            self._create_own()
            self._create_hypers()
            self._create_slots(variables)
        return [] if had_hypers else [hyper for hyper in self._hyper.values() if hasattr(hyper, "initializer")]

    def default_session(self, variables):
        # Keras's session, if Keras created all the variables: other sessions hold other values.
        keras = self._keras.backend
        of_keras = set(map(id, getattr(keras, "_GRAPH_VARIABLES", {}).get(variables[0].graph, ())))
        return keras.get_session() if of_keras.issuperset(map(id, variables)) else None

    # The step.

    def apply_gradients(self, grads_and_vars, name=None, **native):
        """Runs one step. The module's docstring explains a second call in the same step.

        Raises:
            VariableError: not a resource variable.
            GradientError: no pair has a gradient, or one does not fit its variable.
        """
        self.check_operation_name(name)
        pairs = as_pairs(grads_and_vars)
        if not pairs:  # a model with nothing to train
            return self.backend.tf.no_op()
        with self.forgetting_failures():
            variables = [variable for _, variable in pairs]
            for variable in () if self.has_slots_for(variables) else variables:
                self.check_variable(variable)
            self.check_first(variables)
            pairs = self.check_grads(pairs)
            self.check_repeat([variable for _, variable in with_gradients(pairs)])
            self.take_carried(variables)
            self._variables_of_call = variables
            try:
                # Includes the pairs without a gradient: the base class warns about them.
                with self.backend.at_once():
                    return super(OptimizerV2Target, self).apply_gradients(pairs, name=name, **native)
            finally:
                self._variables_of_call = []

    def get_gradients(self, loss, params):
        """Returns gradients as the base class does, but not clipped.

        Raises:
            GradientError: the loss does not depend on a variable.
        """
        keras = self._keras.backend
        with keras.get_graph().as_default(), keras.name_scope(self._name + "/gradients"):
            if self._gradients is not None:
                return [grad for grad, _ in self.by_hand(self.scale_loss(loss), params)]
            grads = self.backend.tf.gradients(self.scale_loss(loss), params)
            return grads if self._may_miss_gradients else check_connected(grads, params)

    def get_updates(self, loss, params):
        self._calls.clear()  # a recompiled model builds a second train function beside the first
        # Loaders of TF 2.0 and 2.1 build a function that nobody runs. It must not fail.
        self._may_miss_gradients = not self.backend.in_session()
        try:
            return self.failing_updates(params) or super(OptimizerV2Target, self).get_updates(loss, params)
        finally:
            self._may_miss_gradients = False

    def minimize(self, loss, *args, **kwargs):
        return self.run_stages(super(OptimizerV2Target, self).minimize, loss, *args, **kwargs)

    def _distributed_apply(self, distribution, grads_and_vars, name=None, apply_state=None):
        """Runs the engine's step on all pairs. The base class calls this across replicas."""
        pairs = list(grads_and_vars)
        if not hasattr(self, "_aggregate_gradients"):  # before TF 2.2 this method sums over replicas
            pairs = self.backend.added_up(distribution, pairs)
        if not hasattr(self, "gradient_transformers"):
            grads, bounds = [grad for grad, _ in pairs], self._clip_bounds()
            clipped = clip(self.backend, grads, bounds.get("clipnorm"), bounds.get("clipvalue"))
            pairs = [(grad, variable) for grad, (_, variable) in zip(clipped, pairs)]
        pairs = [(self.backend.mirrored(grad), variable) for grad, variable in pairs]
        with self.backend.tf.name_scope(name or self._name):
            operations = self.take_step(pairs, checked=not self._variables_of_call)  # `apply_gradients` checks too
        return self.iterations if self.backend.eager else self.backend.tf.group(*operations)

    # Clipping. TF 2.4 and newer clip in `apply_gradients`, after the sum over replicas. Before, some versions clip only
    # in `minimize`, others also in `fit`. The methods below disable that, and `_distributed_apply` clips instead. When
    # 2.4 is the minimum, all but `_transform_gradients` can go.

    def _clip_bounds(self):
        return {name: vars(self)[name] for name in ("clipnorm", "clipvalue") if name in vars(self)}

    def _clip_gradients(self, grads):
        return grads  # TF 2.2 and 2.3 call this

    def _compute_gradients(self, loss, var_list, *args, **kwargs):
        bounds = self._clip_bounds()
        for name in bounds:
            del vars(self)[name]
        tape = kwargs.get("tape")
        try:
            with tape if tape is not None else self.backend.after(()):
                loss = self.scale_loss(loss)
            if self._gradients is not None:
                return self.by_hand(loss, var_list() if callable(var_list) else var_list)
            return super(OptimizerV2Target, self)._compute_gradients(loss, var_list, *args, **kwargs)
        finally:
            vars(self).update(bounds)

    def _transform_gradients(self, grads_and_vars):
        # The base class clips equal rows of a sparse gradient one by one, so they are summed first.
        if self.clipnorm is not None or self.clipvalue is not None or self.global_clipnorm is not None:
            grads_and_vars = [(without_duplicates(self.backend, grad), variable) for grad, variable in grads_and_vars]
        return super(OptimizerV2Target, self)._transform_gradients(grads_and_vars)

    def _prepare_local(self, var_device, var_dtype, apply_state):
        """Does nothing: the engine computes learning rates itself, once for each dtype."""

    def _resource_apply_dense(self, grad, handle, apply_state=None):
        return self._apply_one(grad, handle)

    def _resource_apply_sparse(self, grad, handle, indices, apply_state=None):
        return self._apply_one(self.backend.tf.IndexedSlices(grad, indices), handle)

    def _resource_apply_sparse_duplicate_indices(self, grad, handle, indices, **native):
        return self._resource_apply_sparse(grad, handle, indices)

    def _apply_one(self, grad, variable):
        """Updates one variable. For optimizers that wrap this one, share its `iterations` and loop over variables."""
        return self.backend.tf.group(*self.take_step(check_rows(self.backend, [(grad, variable)]), count=False))

    # Config.

    def get_config(self):
        config = super(OptimizerV2Target, self).get_config()
        config.update(self.definition_config())
        return config

    def _present_number(self, value):
        return self._keras.backend.get_value(value) if is_tensor(value) else value
