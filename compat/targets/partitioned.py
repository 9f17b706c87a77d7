"""Parts of variables: of partitioned variables of `tf.train`, with their slots, and shards of a `ShardedVariable`."""
from __future__ import absolute_import, division, print_function


def part_of(variable):
    """Returns TensorFlow's SaveSliceInfo of a part of a partitioned variable; None for all other variables."""
    return getattr(variable, "_save_slice_info", None)


def is_partitioned(variable):
    return hasattr(variable, "_get_partitions")


def place_slice(variable, slot, op_name, shape, whole_shape):
    """Tells Saver the position of a part's slot in the whole slot. The base class assumes the variable's own position.

    Below a variable scope the base class also gets the name of the whole wrong: it cuts the part's name off by length
    (https://github.com/tensorflow/tensorflow/blob/v1.15.0/tensorflow/python/training/slot_creator.py#L86).
    """
    part = part_of(variable)
    split_axes = [axis for axis, (size, whole) in enumerate(zip(part.var_shape, part.full_shape)) if size != whole]
    splits_as_variable = all(
        tuple(shape[axis : axis + 1] + whole_shape[axis : axis + 1]) == (part.var_shape[axis], part.full_shape[axis])
        for axis in split_axes
    )
    if not splits_as_variable:
        slot._set_save_slice_info(None)
        return
    scope, _, number = slot.op.name.rpartition("{}/{}".format(variable.op.name, op_name))
    name = "{}{}/{}{}".format(scope, part.full_name, op_name, number)
    offset = [part.var_offset[axis] if axis in split_axes else 0 for axis in range(len(shape))]
    slot._set_save_slice_info(type(part)(name, list(whole_shape), offset, list(shape)))


def shards_of(variable):
    """Returns the shards of a ShardedVariable, in order; an empty list for anything else."""
    is_sharded = any(base.__name__ == "ShardedVariableMixin" for base in type(variable).__mro__)
    return list(variable.variables) if is_sharded else []


def whole_of(variable):
    """Returns the ShardedVariable that a variable is a shard of, or None."""
    find = getattr(variable, "_sharded_container", None)
    return find() if find else None


def is_lost_shard(variable):
    """Returns whether a variable is a shard that does not know its whole: of TF 2.4 to 2.8."""
    strategy = getattr(variable, "_distribute_strategy", None)
    in_shards = type(strategy).__name__ == "ParameterServerStrategyV2" and whole_of(variable) is None
    return in_shards and variable.name.split(":")[0].rpartition("/part_")[2].isdigit()
