"""Takes optimizers out of others that keep no slots: loss scaling, and the exchange of gradients between processes."""
from __future__ import absolute_import, division, print_function

from everstep.compat.targets.native import NativeOptimizer

# Classes that wrap an optimizer, by the part of their name that tells them, and the attributes that hold the optimizer.
_WRAPPERS = ("LossScaleOptimizer", "DistributedOptimizer", "SyncReplicasOptimizer", "CrossShardOptimizer")
# Where they keep the scale and its counter: Keras 3, tf.keras from 2.4 on, before that and tf.train, tf.contrib.
_SCALES = (("dynamic_scale", "step_counter"), ("_current_loss_scale", "_counter"),
           ("_current_loss_scale", "_num_good_steps"), ("_loss_scale", "_num_good_steps"))
_HOLDERS = ("inner_optimizer", "_optimizer", "_opt")


def unwrapped(optimizer):
    """Returns the optimizer that keeps the slots: the one inside, if this only scales or exchanges gradients.

    Such are the LossScaleOptimizers of every Keras and of tf.train, `horovod.tensorflow.DistributedOptimizer`,
    SyncReplicasOptimizer and CrossShardOptimizer. `horovod.keras.DistributedOptimizer` is a subclass and has the slots
    itself.
    """
    while not isinstance(optimizer, NativeOptimizer):
        inner = _inner(optimizer)
        if inner is None:
            break
        optimizer = inner
    return optimizer


def scale_variables(optimizer):
    """Returns {"scale": variable, "good_steps": variable} of a LossScaleOptimizer around an optimizer; {} if none.

    A constant scale has no variables.
    """
    while not isinstance(optimizer, NativeOptimizer) and optimizer is not None:
        attributes = getattr(optimizer, "__dict__", {})
        holder = attributes.get("_loss_scale", attributes.get("_loss_scale_manager", optimizer))
        for names in _SCALES:
            variables = [getattr(holder, "__dict__", {}).get(name) for name in names]
            if all(hasattr(variable, "assign") for variable in variables):
                return dict(zip(("scale", "good_steps"), variables))
        optimizer = _inner(optimizer)
    return {}


def _inner(optimizer):
    if not any(part in each.__name__ for each in type(optimizer).__mro__ for part in _WRAPPERS):
        return None
    attributes = getattr(optimizer, "__dict__", {})
    return next((attributes[name] for name in _HOLDERS if attributes.get(name) is not None), None)


def inner_config(config):
    """Returns the config of the optimizer in a LossScaleOptimizer's config, or None for any other config."""
    inner = config.get("inner_optimizer", config.get("optimizer"))
    return inner if isinstance(inner, dict) and isinstance(inner.get("config"), dict) else None


def scalars_of(definition, loss_scale):
    """Returns {name: number} of the scalars of `everstep.loss_scale` that continue a LossScaleOptimizer."""
    factor = loss_scale["scale"] / definition.initial_scale
    return {"loss_scale/factor": factor, "loss_scale/used": factor, "loss_scale/finite": loss_scale["good_steps"]}


def loss_scale_of(definition, scalars):
    """Returns `State.loss_scale` for the scalars of `everstep.loss_scale`."""
    return {"scale": scalars["loss_scale/factor"] * definition.initial_scale,
            "good_steps": scalars["loss_scale/finite"]}
