"""Target `tf_train`: `tf.train.Optimizer` of TF 1.4 to 1.15 and `tf.compat.v1.train.Optimizer` up to 2.21.

On disk, beside the variable `W` and for a definition bound under the name NAME (its class's name unless given):
slots `W/NAME/<slot>`, counters `NAME/updates` (and `NAME/steps`, `NAME/pending` where steps can skip), scalars
`NAME/<scalar>`; all below the variable scope in which they are made, as stock slots are.
"""
from __future__ import absolute_import, division, print_function

from everstep.compat.adapter import Adapter
from everstep.compat.ops import TensorFlowBackend
from everstep.compat.step import Step, check_pairs, skips
from everstep.errors import HyperValueError, SlotError, VariableError
from everstep.optimizers.declarations import VARIABLE
from everstep.optimizers.tree import flat


class TrainAdapter(Adapter):
    target = "tf_train"
    works_on = "tf.train of TF 1.4 to 1.15, tf.compat.v1.train of TF 1.13 to 2.21"
    cannot = ("get_config", "get_weights", "clipnorm", "setting hypers")

    @classmethod
    def base_class(cls, optimizer, module):
        return next(base for base in reversed(optimizer.__mro__) if "_apply_dense" in vars(base))

    def start(self, use_locking=False, name=None, **native):
        import tensorflow

        self.backend = TensorFlowBackend(tensorflow, use_locking)
        self._counts = {}  # by graph, for TF 1.4 and 1.5, whose base class keeps no variables but slots
        super(Adapter, self).__init__(use_locking, name or type(self.definition.base).__name__, **native)

    # Hypers.

    def hyper(self, name):
        return self.given_hyper(name)

    def read_hyper(self, name):
        return self.given_hyper(name)

    def set_hyper(self, name, value):
        raise HyperValueError(
            "{0}.{1} is a constant of the graph, as in every tf.train optimizer, so that a restored checkpoint never "
            "brings back an old value. Give {1} as a tensor, placeholder or everstep.Schedule to vary it".format(
                type(self).__name__, name
            )
        )

    # Counters and scalars.

    def counter(self, name):
        return self._variable_called(name)

    def scalar(self, name):
        return self._variable_called(name)

    def _variable_called(self, name):
        graph = None if self.backend.eager else self.backend.tf.get_default_graph()
        if hasattr(self, "_get_non_slot_variable"):
            return self._get_non_slot_variable("{}/{}".format(self._name, name), graph=graph)
        return self._counts[name, graph]

    def _make_variable(self, name, initial_value, beside):
        full_name = "{}/{}".format(self._name, name)
        if hasattr(self, "_create_non_slot_variable"):
            return self._create_non_slot_variable(initial_value, full_name, beside)
        graph = beside.graph  # TF 1.4 and 1.5; when 1.6 is the minimum, this can go
        if (name, graph) not in self._counts:
            from tensorflow.python.ops import variable_scope

            with self.backend.tf.colocate_with(beside):
                self._counts[name, graph] = variable_scope.variable(initial_value, name=full_name, trainable=False)
        return self._counts[name, graph]

    # Variables and slots.

    def variable_name(self, variable):
        slice_info = getattr(variable, "_save_slice_info", None)
        return slice_info.full_name if slice_info is not None else super(TrainAdapter, self).variable_name(variable)

    def collections(self, variable):
        if self.backend.eager:
            return ()
        graph = self.backend.tf.get_default_graph()
        keys = [key for key in graph.get_all_collection_keys() if isinstance(key, str)]
        return tuple(key for key in keys if any(held is variable for held in graph.get_collection_ref(key)))

    def slot(self, variable, name):
        return super(TrainAdapter, self).get_slot(variable, name)

    def _create_slots(self, var_list):
        import numpy

        for variable in var_list:
            for name in self.slot_names(variable):
                self._make_slot(variable, name)
        beside = min(var_list, key=lambda variable: variable.name)
        for name in ("updates", "pending", "steps") if skips(self.definition) else ("updates",):
            self._make_variable(name, numpy.int64(0), beside)
        for name, (_, declaration) in flat(self.definition, "scalar").items():
            self._make_variable(name, numpy.float32(declaration.init), beside)

    def _make_slot(self, variable, name):
        tf = self.backend.tf
        initial, shape, dtype = self.slot_declaration(variable, name)
        op_name = "{}/{}".format(self._name, name)
        if initial is VARIABLE:
            start = variable.read_value() if self.backend.eager else variable.initialized_value()
            slot = self._get_or_make_slot(variable, tf.cast(start, dtype), name, op_name)
        else:
            start = tf.constant_initializer(initial)
            slot = self._get_or_make_slot_with_initializer(
                variable, start, tf.TensorShape(shape), tf.as_dtype(dtype), name, op_name
            )
        _mend_slice_info(variable, slot, shape)
        return slot

    def get_slot(self, var, name):
        """The variable that holds a slot.

        Raises:
            SlotError: there is no such slot, or not yet.
        """
        found = super(TrainAdapter, self).get_slot(var, name)
        if found is None:
            raise SlotError(
                "{} has no slot {!r} of {}; it has {} once minimize or apply_gradients has run".format(
                    type(self).__name__, name, getattr(var, "name", var), ", ".join(self.slot_names(var)) or "none"
                )
            )
        return found

    # The step.

    def update(self, variable, function, grad):
        with self.backend.at(variable):
            return list(function(variable, grad))

    def apply_gradients(self, grads_and_vars, global_step=None, name=None, **native):
        """One step: the operation that runs it (None in eager code, where it has run).

        `global_step` is incremented at every step, also at one that only accumulates.
        """
        return self.backend.plain(self._apply)(list(grads_and_vars), global_step, name)

    def _apply(self, pairs, global_step, name):
        tf = self.backend.tf
        for _, variable in pairs:
            if not hasattr(variable, "assign_sub") or isinstance(variable, tf.Tensor):
                raise VariableError("{} trains TensorFlow variables; got {!r}".format(type(self).__name__, variable))
        pairs = check_pairs(self.backend, pairs)
        variables = [variable for _, variable in pairs]
        self.check_repeat(variables)
        with self.backend.outside():
            self._create_slots(variables)
        self._prepare()
        with tf.name_scope(name or self._name) as scope:
            operations = self.take_step(pairs)
            if global_step is not None:
                with self.backend.after(operations):
                    operations = [tf.assign_add(global_step, 1)]
            if self.backend.eager:
                return None
            train_op = tf.group(*operations, name=scope.rstrip("/").rsplit("/", 1)[-1] + "_done")
        collection = tf.get_collection_ref(tf.GraphKeys.TRAIN_OP)
        if train_op not in collection:
            collection.append(train_op)
        return train_op

    def _apply_dense(self, grad, var):
        return self._apply_one(grad, var)

    def _resource_apply_dense(self, grad, handle):
        return self._apply_one(grad, handle)

    def _apply_sparse(self, grad, var):
        return self._apply_one(grad, var)

    def _apply_sparse_duplicate_indices(self, grad, var):
        return self._apply_one(grad, var)

    def _resource_apply_sparse(self, grad, handle, indices):
        return self._apply_one(self.backend.tf.IndexedSlices(grad, indices), handle)

    def _resource_apply_sparse_duplicate_indices(self, grad, handle, indices):
        return self._resource_apply_sparse(grad, handle, indices)

    def _apply_one(self, grad, variable):
        """For optimizers that wrap this one and hand it single variables; they call `_finish` at the end."""
        return self.backend.tf.group(*self.take_step([(grad, variable)], count=False))

    def _finish(self, update_ops, name_scope):
        with self.backend.after(update_ops):
            counted = Step.count_update(self)
        return self.backend.tf.group(*(list(update_ops) + [counted]), name=name_scope)

    # What TF 1.4 lacks.

    def variables(self):
        """All variables that this optimizer made in the current graph, sorted by name."""
        if hasattr(super(TrainAdapter, self), "variables"):
            return super(TrainAdapter, self).variables()
        graph = self.backend.tf.get_default_graph()
        made = [variable for (_, where), variable in self._counts.items() if where is graph]
        for slots in self._slots.values():
            made.extend(slot for slot in slots.values() if slot.graph is graph)
        return sorted(made, key=lambda variable: variable.name)



def _mend_slice_info(variable, slot, shape):
    """A part's slot of another shape than the part gets its own place in the whole slot, for Saver."""
    part = getattr(variable, "_save_slice_info", None)
    if part is None or getattr(slot, "_save_slice_info", None) is None or tuple(shape) == tuple(part.var_shape):
        return
    info = slot._save_slice_info
    own = list(shape)
    info.full_shape = [whole if mine == cut else mine for whole, cut, mine in zip(part.full_shape, part.var_shape, own)]
    info.var_offset = [at if mine == cut else 0 for at, cut, mine in zip(part.var_offset, part.var_shape, own)]
    info.var_shape = own
