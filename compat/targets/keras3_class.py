"""The native class of `keras3`: the methods of an optimizer of Keras 3 that differ, one line each to the adapter."""
from __future__ import absolute_import, division, print_function

from everstep.compat.targets.construction import from_config
from everstep.compat.targets.native import NativeOptimizer


class Keras3Optimizer(NativeOptimizer):
    def build(self, variables):
        """Creates the slots of all variables to train. The first step calls it if nobody did before.

        Args:
            variables: all variables that this optimizer will train.

        Warns with `StateWarning` if a state that was loaded before belongs to another optimizer or other variables.
        """
        self._bound.adapter.build(variables)

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

    def apply_gradients(self, grads_and_vars):
        """Runs one step. everstep.compat.targets.new_style explains a second call in the same step.

        Raises:
            UnsupportedError: in a graph of TF 1.
            VariableError: not a Keras variable, or not one that the optimizer was built on.
            GradientError: no pair has a gradient, or one does not fit its variable.
        """
        return self._bound.adapter.apply_gradients(grads_and_vars)

    def apply(self, grads, trainable_variables=None):
        """Runs one step, as `apply_gradients`. Default variables: those that the optimizer was built on."""
        self._bound.adapter.apply(grads, trainable_variables)

    def update_step(self, gradient, variable, learning_rate):
        """Updates one variable and counts nothing: for subclasses that replace it, and optimizers that wrap this one.

        Args:
            gradient: the gradient, dense or sparse.
            variable: a variable that the optimizer was built on.
            learning_rate: what the definition's hyper `learning_rate` is in this update.

        Raises:
            UnsupportedError: another rate than the step's, for a definition that has no learning rate, or several.
        """
        self._bound.adapter.update_one(gradient, variable, learning_rate)

    def get_config(self):
        """The native config. A name that stock has too is written as `everstep>NAME`.

        The HDF5 loader takes an optimizer whose class it does not know for the stock one of that name.
        """
        return self._bound.adapter.get_config()

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return from_config(cls, config, custom_objects)

    def _apply_weight_decay(self, variables):
        """Does nothing unless replaced: the engine decays each variable right before its update, only at updates."""
        self._bound.adapter.apply_weight_decay(variables)

    def _backend_apply_gradients(self, grads, trainable_variables):
        self._bound.adapter.backend_apply(grads, trainable_variables)

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        self._bound.adapter.backend_update(grads, trainable_variables, learning_rate)

    def _distributed_tf_update_step(self, distribution, grads_and_vars, learning_rate):
        self._bound.adapter.distributed_update(distribution, grads_and_vars, learning_rate)

    def _overwrite_variables_directly_with_gradients(self, grads, vars):
        return self._bound.adapter.overwrite(grads, vars)

    def _clip_gradients(self, grads):
        """Clips only if replaced. Else `_backend_update_step` clips: Keras 3.0 would clip before it accumulates."""
        return self._bound.adapter.clip_in_hook(grads)
