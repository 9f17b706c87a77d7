"""`everstep.warm_start`: a run that starts from a checkpoint of another optimizer."""
from __future__ import absolute_import, division, print_function

import os
from collections import OrderedDict

from everstep.compat.backends.on_tensorflow import TensorFlowBackend
from everstep.compat.state.bundle import check_index
from everstep.errors import StateError, UnsupportedError


class WarmStart(object):
    """What a checkpoint has for a graph, and the way to start from it. Printing it tells both.

    Attributes:
        checkpoint: the path of the checkpoint.
        restored: the names of the variables that it gives values to.
        new: {name: why it is not restored} of all others; they start at their initial values.
    """

    def __init__(self, tf, checkpoint, found, new):
        self.checkpoint = checkpoint
        self.restored = sorted(set(map(_name, found)))
        self.new = OrderedDict(sorted((_name(variable), why) for variable, why in new))
        self._saver = tf.train.Saver(found)
        following, first = [], []
        for variable, _ in new:
            (following if _starts_at_another(variable) else first).append(variable)
        # A slot that starts at its variable's value must find it there already.
        self._initializers = [tf.variables_initializer(first), tf.variables_initializer(following)]

    def run(self, session):
        """Restores what the checkpoint has, then initializes the rest."""
        self._saver.restore(session, self.checkpoint)
        for initializer in self._initializers:
            session.run(initializer)

    def init_fn(self, scaffold, session):
        """For `tf.train.Scaffold(init_fn=start.init_fn)`."""
        self.run(session)

    def __repr__(self):
        new = "".join("\n  {}: {}".format(*item) for item in self.new.items())
        restored = ", ".join(self.restored)
        return "warm start from {}\nrestored: {}\nnew:{}".format(self.checkpoint, restored, new or " none")


def warm_start(checkpoint, variables=None):
    """Prepares a graph to start from a checkpoint that lacks some of its variables, such as another optimizer's slots.

    A variable is restored where the checkpoint has its name with its shape and dtype; the parts of a partitioned one
    are found under the name of the whole. Call it where the graph is built, after `minimize`.

    Args:
        checkpoint: what `Saver.save` returned, or a directory, of which the latest checkpoint is taken.
        variables: the variables to start; all global ones of the default graph unless given.

    Returns:
        A `WarmStart`: `run(session)` starts the variables; `init_fn` is what `tf.train.Scaffold` takes.

    Raises:
        StateError: there is no checkpoint, it cannot be read, or it has none of the variables.
        UnsupportedError: there is no graph to prepare.
    """
    import tensorflow

    backend = TensorFlowBackend(tensorflow)
    tf = backend.tf
    if backend.eager or tf.get_default_graph().finalized:
        raise UnsupportedError(
            "warm_start prepares a graph while it is built; {}".format(
                "in eager code use tf.train.Checkpoint(...).restore(path)" if backend.eager else "this one is finalized"
            )
        )
    path = _find(tf, checkpoint)
    shapes, dtypes = _contents(tf, path)
    wanted = tf.global_variables() if variables is None else list(variables)
    found, new = [], []
    for variable in wanted:
        why = _difference(variable, shapes, dtypes)
        if why:
            new.append((variable, why))
        else:
            found.append(variable)
    trainable = set(map(_name, tf.trainable_variables()))
    names, needed = set(map(_name, found)), set(map(_name, wanted))
    needed = needed & trainable or needed
    if not names & needed:
        raise StateError(
            "{} has none of the {}; it has {}, the graph {}".format(
                path, "trainable variables" if names else "variables", _some(shapes), _some(needed)
            )
        )
    return WarmStart(tf, path, found, new)


def _find(tf, checkpoint):
    path = str(checkpoint)
    if os.path.isdir(path):
        latest = tf.train.latest_checkpoint(path)
        if latest is None:
            raise StateError("{} is a directory without a checkpoint that tf.train.Saver wrote".format(path))
        return latest
    if not tf.gfile.Glob(path + ".index") and not tf.gfile.Exists(path):
        raise StateError(
            "there is no checkpoint {}; give the path that Saver.save returned, such as run/model.ckpt-1000, or its "
            "directory".format(path)
        )
    return path


def _contents(tf, path):
    check_index(path)
    try:
        reader = tf.train.NewCheckpointReader(path)
        return reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    except (tf.errors.OpError, RuntimeError, ValueError) as error:  # which one depends on the version
        raise StateError("{} cannot be read as a checkpoint: {}".format(path, error))


def _name(variable):
    part = getattr(variable, "_save_slice_info", None)
    return part.full_name if part else variable.op.name


def _difference(variable, shapes, dtypes):
    """Why the checkpoint has no value for a variable, or None."""
    name, part = _name(variable), getattr(variable, "_save_slice_info", None)
    if name not in shapes:
        return "not in the checkpoint"
    needed = list(part.full_shape) if part else variable.get_shape().as_list()
    if list(shapes[name]) != needed:
        return "of shape {} in the checkpoint, {} here".format(tuple(shapes[name]), tuple(needed))
    dtype = variable.dtype.base_dtype
    return None if dtypes[name] == dtype else "{} in the checkpoint, {} here".format(dtypes[name].name, dtype.name)


def _starts_at_another(variable):
    """Whether a variable's initial value reads another variable."""
    waiting, seen = [variable.initializer], {variable.op}
    while waiting:
        operation = waiting.pop()
        if operation in seen:
            continue
        if operation.type in ("Variable", "VariableV2", "VarHandleOp"):
            return True
        seen.add(operation)
        waiting.extend([value.op for value in operation.inputs] + list(operation.control_inputs))
    return False


def _some(names):
    names = sorted(names)
    return ", ".join(names[:5] + ["..."] * (len(names) > 5)) or "none"
