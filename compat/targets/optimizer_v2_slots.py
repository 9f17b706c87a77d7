"""The slots of an OptimizerV2. Its own method gives all of them the shape and dtype of their variable."""
from __future__ import absolute_import, division, print_function

from everstep.compat.engine.step import engine_slots
from everstep.compat.targets.hooks import replaced
from everstep.compat.targets.loading import warn
from everstep.compat.targets.partitioned import shards_of
from everstep.optimizers.contract import VARIABLE, flat
from everstep.optimizers.contract.binder import binder

# Stock classes that do not store slots as definitions declare them, one after the other. The stock table has the order
# of all; a test compares them.
STOCK_ORDERS = {
    "RMSprop": [["mean_square"], ["velocity"], ["mean_grad"]],
    "Ftrl": [["accumulator", "linear"]],
}


def is_plain(bound, variable, name):
    """Returns True if a slot declares neither shape nor dtype, and so has those of its variable."""
    rule = bound.rule(variable)
    if name in engine_slots(bound.backend, rule, bound.record(variable)):
        return False
    _, declaration = flat(rule, "slot")[name]
    return declaration.shape is None and declaration.dtype is None


def make_slot(bound, variable, name):
    """Returns a new variable for a slot, beside its variable."""
    backend, (initial, shape, dtype) = bound.backend, bound.slot_declaration(variable, name)
    whole = backend.distributed(variable)  # TF 2.0 creates nothing beside a replica's copy

    def value():
        if initial is not VARIABLE:
            return backend.filled(shape, initial, dtype, variable)
        return backend.start_value(variable, dtype)

    full_name = "{}/{}".format(variable._shared_name, name)
    with backend.scope_of(variable), backend.tf.distribute.get_strategy().extended.colocate_vars_with(whole):
        return backend.tf.Variable(value, name=full_name, dtype=dtype, trainable=False, use_resource=True)


def restored_slot(bound, position, name, variable):
    """Returns the variable to restore a slot of a checkpoint into; None for a slot that is none, or comes later."""
    shards = shards_of(variable)
    name = _restored_name(bound, shards[0] if shards else variable, name)
    if not name or not shards or not bound.backend.eager:
        return name and bound.base._create_or_restore_slot_variable(position, name, variable)
    for shard in shards:
        bound.native.add_slot(shard, name)
    bound.adapter.sharded.join(shards)
    return bound.adapter.get_slot(variable, name)


def _restored_name(bound, variable, name):
    """Returns the slot that a slot of a checkpoint is, ours or stock's; None, with a warning, if it is none."""
    names = bound.slot_names(variable)
    if name in names or replaced(bound.native, ["_create_slots"]):  # the user's class may add it
        return name
    of_stock = binder.stock_slots(bound.adapter.target, bound.definition).get(name)
    if of_stock in names:
        return of_stock
    warn(bound, "the checkpoint has a slot {!r}, of another optimizer; {} has {}".format(
        name, bound.owner, ", ".join(names) or "none"))
    return None
