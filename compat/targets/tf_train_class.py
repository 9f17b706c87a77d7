"""The native class of `tf_train`: the methods of a tf.train.Optimizer that differ, one line each to the adapter."""
from __future__ import absolute_import, division, print_function

from everstep.compat.targets import tf_train_hooks
from everstep.compat.targets.native import NativeOptimizer


class TrainOptimizer(NativeOptimizer):
    def minimize(self, loss, global_step=None, var_list=None, *args, **kwargs):
        """Minimizes a loss, as in stock.

        A multistage rule needs `loss` as a function without arguments, and in a graph resource variables.
        """
        return self._bound.adapter.minimize(loss, global_step, var_list, args, kwargs)

    def compute_gradients(self, loss, var_list=None, *args, **kwargs):
        """Returns (gradient, variable) pairs, as in stock. Accepts partitioned variables in `var_list`."""
        return self._bound.adapter.compute_gradients(loss, var_list, args, kwargs)

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        """Runs one step.

        Args:
            grads_and_vars: (gradient, variable) pairs.
            global_step: a variable to increment at every step, even if that step only accumulates, or the ref tensor
                of one, which `tf.train.get_global_step()` gives in some graphs. Default: none.
            name: the name of the operation. Default: the optimizer's name.

        Returns:
            In a graph, the operation that runs the step. In eager code None; the step has run.
        """
        return self._bound.adapter.apply_gradients(grads_and_vars, global_step, name)

    def variables(self):
        """Returns all variables that this optimizer created in the current graph, sorted by name."""
        return self._bound.adapter.variables()

    def _create_slots(self, var_list):
        self._bound.adapter.create_slots(var_list)

    def _create_or_restore_slot_variable(self, slot_variable_position, slot_name, variable):
        self._bound.adapter.create_or_restore(slot_variable_position, slot_name, variable)

    def _non_slot_variables(self):
        return self._bound.adapter.non_slot_variables()

    def _apply_dense(self, grad, variable):
        return tf_train_hooks.update_one(self._bound, grad, variable)

    def _resource_apply_dense(self, grad, handle):
        return tf_train_hooks.update_one(self._bound, grad, handle)

    def _apply_sparse(self, grad, variable):
        return tf_train_hooks.update_one(self._bound, grad, variable)

    def _resource_apply_sparse(self, grad, handle, indices):
        return tf_train_hooks.update_rows(self._bound, grad, handle, indices)

    def _finish(self, update_ops, name_scope):
        return tf_train_hooks.finish(self._bound, update_ops, name_scope)
