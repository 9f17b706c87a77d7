"""Hooks of an OptimizerV2 that a user's class replaces, called as the base class of stock optimizers calls them."""
from __future__ import absolute_import, division, print_function

from everstep.compat.targets.hooks import replaced, through
from everstep.compat.targets.stock_members import present_value

_COEFFICIENTS = ("_prepare_local", "_decayed_lr")  # these decide what `apply_state` has
HOOKS = ("_resource_apply_dense", "_resource_apply_sparse", "_resource_apply_sparse_duplicate_indices") + _COEFFICIENTS


def hooks_of(bound, apply_state):
    """Returns the `Hooks` of a step, or None."""
    native = bound.native

    def update(variable, grad):
        slices = bound.backend.slices(grad)
        takes = getattr(native, "_dense_apply_args" if slices is None else "_sparse_apply_args", ())  # TF 1.14: none
        given = {"apply_state": apply_state} if "apply_state" in takes else {}
        if slices is None:
            done = native._resource_apply_dense(grad, variable, **given)
        else:
            done = native._resource_apply_sparse_duplicate_indices(slices[0], variable, slices[1], **given)
        return [bound.adapter.constrain(variable, done)]

    return through(native, HOOKS, update)


def _names(bound):
    """Returns {key in `apply_state`: hyper}, with stock's names."""
    names = bound.hyper_names.items()
    return {"lr_t" if name == "learning_rate" else attribute + "_t": name for attribute, name in names}


def prepare_local(bound, device, dtype, apply_state):
    """Fills `apply_state` as stock does, if a hook is replaced. The engine reads hypers itself."""
    if not replaced(bound.native, HOOKS):
        return
    bound.base._prepare_local(device, dtype, apply_state)
    coefficients = apply_state[device, dtype]
    for key, name in _names(bound).items():
        if key not in coefficients:
            coefficients[key] = bound.backend.tf.cast(present_value(bound, name), dtype)


def update_one(bound, grad, variable, apply_state):
    """Updates one variable, for a hook that is replaced, or for optimizers that wrap this one. Returns an operation.

    Those share its `iterations` and loop over variables.
    """
    operations = bound.update_one(grad, variable, _given_hypers(bound, apply_state, variable))
    return bound.backend.tf.group(*operations)


def update_rows(bound, grad, variable, indices, apply_state):
    """The same for the rows of a sparse gradient."""
    return update_one(bound, bound.backend.tf.IndexedSlices(grad, indices), variable, apply_state)


def _given_hypers(bound, apply_state, variable):
    """Returns {hyper: value} of `apply_state` if a hook is replaced that may have changed them."""
    native, key = bound.native, (variable.device, variable.dtype.base_dtype)
    if not replaced(native, _COEFFICIENTS):
        return {}
    if hasattr(native, "_fallback_apply_state"):
        coefficients = (apply_state or {}).get(key) or native._fallback_apply_state(*key)
    else:  # TF 1.14: its optimizers ask for the rate themselves
        coefficients = {"lr_t": native._decayed_lr(key[1])}
    return {name: coefficients[key] for key, name in _names(bound).items() if key in coefficients}
