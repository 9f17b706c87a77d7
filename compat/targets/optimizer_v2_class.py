"""The native class of `optimizer_v2`: the methods of an OptimizerV2 that differ, one line each to the adapter."""
from __future__ import absolute_import, division, print_function

from everstep.compat.targets.construction import from_config
from everstep.compat.targets.native import NativeOptimizer
from everstep.compat.targets.optimizer_v2_hooks import prepare_local, update_one, update_rows
from everstep.compat.targets.optimizer_v2_slots import restored_slot


class V2Optimizer(NativeOptimizer):
    @property
    def iterations(self):
        """The variable that counts updates."""
        return self._bound.adapter.counter("updates")

    @iterations.setter
    def iterations(self, variable):
        self._bound.adapter.set_iterations(variable)

    def apply_gradients(self, grads_and_vars, name=None, *more, **native):
        """Runs one step. `compat/targets/optimizer_v2.py` explains a second call in the same step.

        Args:
            more, native: further arguments of the base class: whether it adds up the gradients of replicas.

        Raises:
            VariableError: not a resource variable.
            GradientError: no pair has a gradient, or one does not fit its variable.
        """
        return self._bound.adapter.apply_gradients(grads_and_vars, name, more, native)

    def get_gradients(self, loss, params):
        """Returns gradients as the base class does, but not clipped.

        Raises:
            GradientError: the loss does not depend on a variable.
        """
        return self._bound.adapter.get_gradients(loss, params)

    def get_updates(self, loss, params):
        return self._bound.adapter.get_updates(loss, params)

    def minimize(self, loss, *args, **kwargs):
        return self._bound.adapter.minimize(loss, args, kwargs)

    def add_slot(self, var, slot_name, initializer="zeros", shape=None):
        """Creates a slot. One of the definition has the declared start value, shape and dtype.

        Restoring a checkpoint calls this, too, and then sets the value. A slot that only a subclass has is made as by
        stock.
        """
        return self._bound.adapter.add_slot(var, slot_name, initializer, shape)

    def _create_or_restore_slot_variable(self, slot_variable_position, slot_name, variable):
        """Leaves out, with a warning, a slot in a checkpoint that neither the definition has nor a subclass can add."""
        return restored_slot(self._bound, slot_variable_position, slot_name, variable)

    def set_weights(self, weights):
        """Sets the values that `get_weights` returns. If they do not fit, nothing changes.

        Raises:
            NotBuiltError: there are no weights before the first step.
            SlotError: the number of weights or a shape differs. Keras's loader goes on instead, with a `StateWarning`.
        """
        self._bound.adapter.set_weights(weights)

    def get_config(self):
        return self._bound.adapter.get_config()

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return from_config(cls, config, custom_objects)

    def _set_hyper(self, name, value):
        self._bound.adapter.set_attribute(name, value)

    def _get_hyper(self, name, dtype=None):
        return self._bound.adapter.get_attribute(name, dtype)

    def _decayed_lr(self, var_dtype):
        """Returns the learning rate of the next step. Callbacks log it."""
        return self._bound.adapter.decayed_rate(var_dtype)

    def _create_hypers(self):
        self._bound.adapter.create_hypers()

    def _create_slots(self, var_list):
        self._bound.adapter.create_slots(var_list)

    def _distributed_apply(self, distribution, grads_and_vars, name=None, apply_state=None):
        """Runs the engine's step on all pairs. The base class calls this across replicas."""
        return self._bound.adapter.distributed_apply(distribution, grads_and_vars, name, apply_state)

    def _clip_gradients(self, grads):
        return grads  # TF 2.2 and 2.3 call this; see `compat/targets/optimizer_v2.py`

    def _compute_gradients(self, loss, var_list, *args, **kwargs):
        return self._bound.adapter.compute_gradients(loss, var_list, args, kwargs)

    def _transform_gradients(self, grads_and_vars):
        return self._bound.adapter.transform_gradients(grads_and_vars)

    def _prepare_local(self, var_device, var_dtype, apply_state):
        """Fills `apply_state`, as stock does, where hooks are replaced. Else the engine computes rates itself."""
        prepare_local(self._bound, var_device, var_dtype, apply_state)

    def _resource_apply_dense(self, grad, handle, apply_state=None):
        return update_one(self._bound, grad, handle, apply_state)

    def _resource_apply_sparse(self, grad, handle, indices, apply_state=None):
        return update_rows(self._bound, grad, handle, indices, apply_state)
