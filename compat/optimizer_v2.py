"""Target `optimizer_v2`: OptimizerV2 of `tf.keras` 1.14 to 2.10, `.legacy` of 2.11 to 2.15 and of tf_keras.

On disk, for a definition bound under the name NAME (its class's name unless given) and a variable `W`: slots
`NAME/W/<slot>`, counters `NAME/iter` (updates; `NAME/steps` and `NAME/pending` where steps can skip), scalars
`NAME/<scalar>`; the last part is also the key in checkpoints of objects. `get_weights` has iter first, then the
other counters, scalars, and the slots of each variable in turn.
"""
from __future__ import absolute_import, division, print_function

import sys

from everstep.compat.adapter import Adapter, attribute
from everstep.compat.clip import clip
from everstep.compat.ops import TensorFlowBackend
from everstep.compat.step import check_pairs, skips
from everstep.errors import SlotError, VariableError
from everstep.optimizers.declarations import VARIABLE
from everstep.optimizers.schedule import Schedule
from everstep.optimizers.tree import flat


class OptimizerV2Adapter(Adapter):
    target = "optimizer_v2"
    works_on = "tf.keras of TF 1.14 to 2.10, tf.keras.optimizers.legacy of 2.11 to 2.15, tf_keras.optimizers.legacy"
    cannot = ("ref variables", "partitioned variables", "decay")

    @classmethod
    def base_class(cls, optimizer, module):
        return next(base for base in reversed(optimizer.__mro__) if "add_slot" in vars(base))

    def start(self, name=None, **native):
        import tensorflow

        self.backend = TensorFlowBackend(tensorflow)
        self._distribution = None
        self._own = {}  # counters and scalars by name
        super(Adapter, self).__init__(name or type(self.definition.base).__name__, **native)
        for hyper in self.hyper_declarations():
            super(OptimizerV2Adapter, self)._set_hyper(attribute(hyper), self.given_hyper(hyper))

    @property
    def _keras(self):
        """The module of the base class, for the few helpers of its own that slots need."""
        return sys.modules[self.native_base.__module__]

    # Hypers.

    def hyper(self, name):
        value = self._hyper[attribute(name)]
        if isinstance(value, Schedule):
            return value
        if self._is_native_schedule(value):
            return value(self.backend.tf.cast(self.iterations, "float32"))
        return value() if callable(value) else value

    def read_hyper(self, name):
        return self._hyper[attribute(name)]

    def set_hyper(self, name, value):
        super(OptimizerV2Adapter, self)._set_hyper(attribute(name), self.check_hyper(name, value))

    def _set_hyper(self, name, value):
        # What an attribute's assignment comes to in the base class.
        flat_name = next((hyper for hyper in self.hyper_declarations() if attribute(hyper) == name), None)
        self.set_hyper(flat_name, value)

    def _get_hyper(self, name, dtype=None):
        # The base class would call a schedule of ours as if it were a callable without arguments.
        value = self._hyper[name]
        return value if isinstance(value, Schedule) else super(OptimizerV2Adapter, self)._get_hyper(name, dtype)

    def _is_native_schedule(self, value):
        return isinstance(value, self._keras.learning_rate_schedule.LearningRateSchedule)

    # Counters and scalars.

    def counter(self, name):
        return self.iterations if name == "updates" else self._own[name]

    def scalar(self, name):
        return self._own[name]

    def _create_own(self):
        """Counters and scalars beside `iter`, made once."""
        initial = {name: (0, "int64") for name in (("pending", "steps") if skips(self.definition) else ())}
        for name, (_, declaration) in flat(self.definition, "scalar").items():
            initial[name] = (declaration.init, "float32")
        for name in sorted(set(initial) - set(self._own)):
            value, dtype = initial[name]
            self._own[name] = self.add_weight(
                name,
                shape=[],
                dtype=self.backend.tf.as_dtype(dtype),
                initializer=self.backend.tf.constant_initializer(value),
                trainable=False,
            )
            self._weights.append(self._own[name])

    # Variables and slots.

    def slot(self, variable, name):
        return super(OptimizerV2Adapter, self).get_slot(variable, name)

    def _create_slots(self, var_list):
        self._create_own()
        for variable in var_list:
            for name in self.slot_names(variable):
                self.add_slot(variable, name)

    def add_slot(self, var, slot_name, initializer="zeros", shape=None):
        """Makes a slot as its definition declares it; the base class knows no dtype but the variable's.

        Restoring a checkpoint calls this too and then gives the slot its value, so `initializer` and `shape`, which
        the declaration decides, are not looked at.
        """
        slots = self._slots.setdefault(self._keras._var_key(var), {})
        if slot_name in slots:
            return slots[slot_name]
        if slot_name not in self.slot_names(var):
            raise SlotError(
                "{} has no slot {!r}; it has {}".format(type(self).__name__, slot_name, ", ".join(self.slot_names(var)) or "none")
            )
        tf = self.backend.tf
        initial, shape, dtype = self.slot_declaration(var, slot_name)

        def value():
            if initial is not VARIABLE:
                return tf.fill(shape, tf.cast(initial, dtype))
            return tf.cast(var.read_value() if self.backend.eager else var.initialized_value(), dtype)

        with tf.distribute.get_strategy().extended.colocate_vars_with(var):
            made = tf.Variable(
                value, name="{}/{}".format(var._shared_name, slot_name), dtype=dtype, trainable=False, use_resource=True
            )
        self._keras.backend.track_variable(made)
        if slot_name not in self._slot_names:
            self._slot_names.append(slot_name)
        slots[slot_name] = made
        self._restore_slot_variable(slot_name=slot_name, variable=var, slot_variable=made)
        self._weights.append(made)
        return made

    def get_slot(self, var, slot_name):
        """The variable that holds a slot.

        Raises:
            SlotError: there is no such slot, or not yet.
        """
        found = self._slots.get(self._keras._var_key(var), {})
        if slot_name not in found:
            raise SlotError(
                "{} has no slot {!r} of {}; it has {} once it has trained the variable".format(
                    type(self).__name__, slot_name, getattr(var, "name", var), ", ".join(self.slot_names(var)) or "none"
                )
            )
        return found[slot_name]

    # The step.

    def update(self, variable, function, grad):
        function = self.backend.plain(function)
        done = self._distribution.extended.update(variable, function, args=(grad,), group=False)
        return self.backend.operations(done)

    def apply_gradients(self, grads_and_vars, name=None, **native):
        pairs = list(grads_and_vars)
        for _, variable in pairs:
            if not hasattr(variable, "assign_sub") or self.backend.is_ref(variable):
                raise VariableError(
                    "{} trains resource variables, as every OptimizerV2; got {!r}. In TF 1.x make it with "
                    "use_resource=True, or bind to tf.train".format(type(self).__name__, variable)
                )
        if pairs:  # without any the base class does nothing, as a model with nothing to train needs
            pairs = check_pairs(self.backend, pairs)
            self.check_repeat([variable for _, variable in pairs])
        return super(OptimizerV2Adapter, self).apply_gradients(pairs, name=name, **native)

    def _distributed_apply(self, distribution, grads_and_vars, name=None, apply_state=None):
        """The list-level step, which the base class calls across replicas; only names are given by keyword."""
        pairs = list(grads_and_vars)
        if not hasattr(self, "_aggregate_gradients"):  # before 2.2 the sum over replicas is made here
            reduced = distribution.extended.batch_reduce_to(self.backend.tf.distribute.ReduceOp.SUM, pairs)
            pairs = [(grad, variable) for grad, (_, variable) in zip(reduced, pairs)]
        if not hasattr(self, "_transform_gradients"):  # before 2.4 `fit` or `apply_gradients` clip in some versions only
            clipped = clip(
                self.backend, [grad for grad, _ in pairs], getattr(self, "clipnorm", None), getattr(self, "clipvalue", None)
            )
            pairs = [(grad, variable) for grad, (_, variable) in zip(clipped, pairs)]
        self._distribution = distribution
        with self.backend.tf.name_scope(name or self._name):
            operations = self.take_step(pairs)
        return self.iterations if self.backend.eager else self.backend.tf.group(*operations)

    def _prepare_local(self, var_device, var_dtype, apply_state):
        """The engine computes rates itself, once for each dtype."""

    def _resource_apply_dense(self, grad, handle, apply_state=None):
        return self._apply_one(grad, handle)

    def _resource_apply_sparse(self, grad, handle, indices, apply_state=None):
        return self._apply_one(self.backend.tf.IndexedSlices(grad, indices), handle)

    def _resource_apply_sparse_duplicate_indices(self, grad, handle, indices, **native):
        return self._resource_apply_sparse(grad, handle, indices)

    def _apply_one(self, grad, variable):
        """For optimizers that wrap this one, share its `iterations` and hand it single variables."""
        self._distribution = self.backend.tf.distribute.get_strategy()
        return self.backend.tf.group(*self.take_step([(grad, variable)], count=False))

    # Config.

    def get_config(self):
        config = super(OptimizerV2Adapter, self).get_config()
        config.update(self.definition_config())
        return config

    def write_hyper(self, name, value):
        if isinstance(value, (float, Schedule)):
            return value
        return self.as_given(name, self._serialize_hyperparameter(attribute(name)))

    @classmethod
    def parse_hyper(cls, value):
        if isinstance(value, dict) and "class_name" in value:
            return sys.modules[cls.native_base.__module__].learning_rate_schedule.deserialize(value)
        return super(OptimizerV2Adapter, cls).parse_hyper(value)

    @classmethod
    def from_config(cls, config, custom_objects=None):
        definition, native = cls.split_config(config)
        return cls.from_definition(definition, **native)
