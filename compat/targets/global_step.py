"""The `global_step` of `tf.train`, and `iterations` that are set: a variable, or the ref tensor of one, that counts."""
from __future__ import absolute_import, division, print_function

from everstep.errors import VariableError

_INSTEAD = "give a scalar variable of a number type, such as tf.train.get_or_create_global_step()"


def check_global_step(bound, global_step):
    """Raises VariableError for anything but a counter that stock could increment.

    `tf.train.get_global_step()` gives a ref tensor if the graph has a variable of that name, but no collection of
    global steps. A graph that was imported has no variables at all, and gives ref tensors by name.
    """
    tf, what = bound.backend.tf, "{!r} as global_step".format(global_step)
    owner = bound.owner
    is_tensor = isinstance(global_step, tf.Tensor)
    if is_tensor and global_step.dtype.base_dtype == tf.resource:
        raise VariableError(
            "{} got {}, the handle of a resource variable; give the variable itself".format(owner, what)
        )
    if hasattr(global_step, "_get_partitions"):
        raise VariableError("{} got {}, a partitioned variable; {}".format(owner, what, _INSTEAD))
    if is_tensor and not bound.backend.is_ref(global_step) or not (is_tensor or hasattr(global_step, "assign_sub")):
        raise VariableError("{} counts in TensorFlow variables; got {}".format(owner, what))
    dtype, shape = global_step.dtype.base_dtype, bound.backend.shape(global_step)
    if shape or not (dtype.is_integer or dtype.is_floating or dtype.is_complex):
        raise VariableError("{} cannot count in {}; {}".format(owner, what, _INSTEAD))
    graph = None if bound.backend.eager else tf.get_default_graph()
    if type(graph) is tf.Graph and getattr(global_step, "graph", None) is not graph:  # a function captures variables
        raise VariableError("{} got {}, which belongs to another graph; {}".format(owner, what, _INSTEAD))


def count_step(adapter, global_step, operations):
    """Returns the operation that increments a `global_step` after the operations of its step."""
    counter = adapter.unwrap(global_step)
    with adapter.backend.after(operations), adapter.backend.at(counter):
        return adapter.backend.tf.assign_add(counter, 1)
