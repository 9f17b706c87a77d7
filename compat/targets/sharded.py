"""Sharded variables: parts of a table on several parameter servers, which a `ShardedVariable` of TensorFlow joins.

A step gets the shards. TensorFlow 2.9 and newer tell from a shard what it is a part of; older ones cannot.
"""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict

from everstep.compat.targets.bound import Place
from everstep.compat.targets.partitioned import shards_of, whole_of
from everstep.errors import SlotError, VariableError


def check_not_whole(variable):
    """Raises VariableError for a ShardedVariable: a step writes its shards."""
    if shards_of(variable):
        raise VariableError("{} is in shards: give its shards, its `variables`, with a gradient for each".format(
            variable.name))


def place_of(variable):
    """Returns the `Place` of a shard, or of the slot of one; None for anything else."""
    whole = whole_of(variable)
    if whole is None:
        return None
    index = [each is variable for each in whole.variables].index(True)
    first = sum(int(each.shape[0]) for each in whole.variables[:index])
    sizes = [int(size) for size in variable.shape]
    slices = (slice(first, first + sizes[0]),) + tuple(slice(0, size) for size in sizes[1:])
    return Place(slices, tuple(int(size) for size in whole.shape), ("shards", id(whole)))


def name_of(variable):
    """Returns the name of a variable without `:0`; of a shard, that of the whole, which a strategy gives the shards."""
    whole = whole_of(variable)
    if whole is None:
        return variable.name.split(":")[0]
    name, _, number = whole.variables[0].name.split(":")[0].rpartition("/part_")
    return name if number == "0" else whole.name


class ShardedSlots(object):
    """The slots of sharded variables. Those that are split as their variable is are joined as it is."""

    def __init__(self, adapter):
        self._adapter, self._joined = adapter, {}  # {(id of a ShardedVariable, slot): (it, its sharded slot)}

    def join(self, variables):
        """Joins the slots of all sharded variables of which some shards are given."""
        wholes = OrderedDict((id(whole), whole) for whole in map(whole_of, variables) if whole is not None)
        for key, whole in wholes.items():
            for name in self._adapter.bound.slot_names(whole.variables[0]):
                slots = [self._adapter.find_slot(shard, name) for shard in whole.variables]
                split = all(slot is not None and slot.shape[:1] == shard.shape[:1]
                            for slot, shard in zip(slots, whole.variables))
                split = split and len({tuple(slot.shape[1:]) for slot in slots}) == 1
                if split and (key, name) not in self._joined:
                    self._joined[key, name] = whole, type(whole)(slots, name=whole.name)

    def get_slot(self, variable, name):
        """Returns the slot of a variable, also of a ShardedVariable. Raises SlotError if there is none."""
        shards = shards_of(variable)
        if not shards:
            return self._adapter.bound.require_slot(variable, name)
        if (id(variable), name) in self._joined:
            return self._joined[id(variable), name][1]
        self._adapter.bound.require_slot(shards[0], name)
        raise SlotError("each shard of {} has a separate slot {!r}: get those of its `variables`".format(
            variable.name, name))
