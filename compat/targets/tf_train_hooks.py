"""Hooks of a tf.train.Optimizer that a user's class replaces, called as the base class of stock calls them."""
from __future__ import absolute_import, division, print_function

from everstep.compat.engine.step import Step
from everstep.compat.targets.hooks import through
from everstep.compat.targets.since_v2 import module_of

# They update one variable, but for `_finish`, which comes after the last one.
HOOKS = "_apply_dense _resource_apply_dense _apply_sparse _apply_sparse_duplicate_indices".split()
HOOKS += "_resource_apply_sparse _resource_apply_sparse_duplicate_indices _finish".split()


def hooks_of(bound, name):
    """Returns the `Hooks` of a step, or None. `name`: that of the operation that ends it."""
    native = bound.native

    def update(variable, grad):
        processor = module_of(type(native).native_base)._get_processor(variable)
        return [processor.update_op(native, grad)]

    return through(native, HOOKS, update, lambda operations: [native._finish(operations, name)])


def update_one(bound, grad, variable):
    """Updates one variable, for a hook that is replaced, or for optimizers that wrap this one. Returns an operation.

    Those loop over variables, and call `_finish` last.
    """
    return bound.backend.tf.group(*bound.update_one(grad, variable))


def update_rows(bound, grad, variable, indices):
    """The same for the rows of a sparse gradient."""
    return update_one(bound, bound.backend.tf.IndexedSlices(grad, indices), variable)


def finish(bound, operations, name):
    """Counts the update, after the operations that make it. Returns an operation."""
    if bound.hooked_step is not None:
        counted = bound.hooked_step.end(operations)
    else:
        with bound.backend.after(operations):
            counted = [Step.count_update(bound)] if bound.adapter.keeps_count else []
    return bound.backend.tf.group(*(list(operations) + counted), name=name)
