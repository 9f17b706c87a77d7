"""Takes optimizers out of others that keep no slots: loss scaling, and the exchange of gradients between processes."""
from __future__ import absolute_import, division, print_function

from everstep.compat.targets.base import Target

# Classes that wrap an optimizer, by the part of their name that tells them, and the attributes that hold the optimizer.
_WRAPPERS = ("LossScaleOptimizer", "DistributedOptimizer", "SyncReplicasOptimizer", "CrossShardOptimizer")
_HOLDERS = ("inner_optimizer", "_optimizer", "_opt")


def unwrapped(optimizer):
    """Returns the optimizer that keeps the slots: the one inside, if this only scales or exchanges gradients.

    Such are the LossScaleOptimizers of every Keras and of tf.train, `horovod.tensorflow.DistributedOptimizer`,
    SyncReplicasOptimizer and CrossShardOptimizer. `horovod.keras.DistributedOptimizer` is a subclass and has the slots
    itself.
    """
    while not isinstance(optimizer, Target):
        inner = _inner(optimizer)
        if inner is None:
            break
        optimizer = inner
    return optimizer


def _inner(optimizer):
    if not any(part in each.__name__ for each in type(optimizer).__mro__ for part in _WRAPPERS):
        return None
    attributes = getattr(optimizer, "__dict__", {})
    return next((attributes[name] for name in _HOLDERS if attributes.get(name) is not None), None)


def inner_config(config):
    """Returns the config of the optimizer in a LossScaleOptimizer's config, or None for any other config."""
    inner = config.get("inner_optimizer", config.get("optimizer"))
    return inner if isinstance(inner, dict) and isinstance(inner.get("config"), dict) else None
