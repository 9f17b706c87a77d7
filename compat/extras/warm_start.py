"""`everstep.warm_start`: starts a run from a checkpoint of another optimizer."""
from __future__ import absolute_import, division, print_function

import numbers
import os
import warnings
from collections import OrderedDict

from everstep.compat.backends.on_tensorflow import TensorFlowBackend
from everstep.compat.checkpoints.conversions import first_few
from everstep.compat.files.bundle import latest_in
from everstep.compat.files.bundle_index import check_index
from everstep.compat.targets.dry_run import reads_updates
from everstep.errors import StateError, UnsupportedError
from everstep.optimizers.contract import Schedule, flat


class WarmStart(object):
    """Starts a graph from a checkpoint, as `warm_start` prepared it. Prints what is restored and what is new.

    For example:

        start = everstep.warm_start("old_run")
        start.run(session)
        print(start.new)

    Attributes:
        checkpoint: the path of the checkpoint.
        restored: the sorted names of the variables that it restores.
        new: {name: why it is not restored} of all others; they start at their initial values.
        counted: {name: number} of the new counters that start at the number of updates that the checkpoint had.

    Args:
        tf: TensorFlow, with the names of TF 1.
        checkpoint: the path of the checkpoint.
        restorable: the variables to restore.
        new: [(variable, why it is not restored)].
        counted: [(variable, number)] of the new counters that do not start at 0.

    Raises:
        ValueError: there is nothing to restore; `warm_start` checks that first.
    """

    def __init__(self, tf, checkpoint, restorable, new, counted):
        self.checkpoint = checkpoint
        self.restored = sorted(set(map(_name, restorable)))
        self.new = OrderedDict(sorted((_name(variable), why) for variable, why in new))
        self._saver = tf.train.Saver(restorable)
        dependent, independent = [], []
        for variable, _ in new:
            (dependent if _initialized_from_variable(variable) else independent).append(variable)
        # The initial value of some slots reads their variable, so initialize these last.
        self._initializers = [tf.variables_initializer(independent), tf.variables_initializer(dependent)]
        self.counted = OrderedDict(sorted((_name(variable), number) for variable, number in counted))
        self._initializers.append(tf.group(*[tf.assign(variable, number) for variable, number in counted]))

    def run(self, session):
        """Restores the variables that the checkpoint has, then initializes the others.

        Args:
            session: the session to start.

        Raises:
            tf.errors.OpError, ValueError: the checkpoint was moved or changed after `warm_start` looked at it.
        """
        self._saver.restore(session, self.checkpoint)
        for initializer in self._initializers:
            session.run(initializer)

    def init_fn(self, scaffold, session):
        """Does the same as `run`, for `tf.train.Scaffold(init_fn=start.init_fn)`.

        Args:
            scaffold: the Scaffold, which is not used.
            session: the session to start.
        """
        self.run(session)

    def __repr__(self):
        counted = {name: "; starts at {}".format(number) for name, number in self.counted.items()}
        new = "".join("\n  {}: {}{}".format(name, why, counted.get(name, "")) for name, why in self.new.items())
        restored = ", ".join(self.restored)
        return "warm start from {}\nrestored: {}\nnew:{}".format(self.checkpoint, restored, new or " none")


def warm_start(checkpoint, variables=None, updates=None):
    """Prepares a graph to start from a checkpoint that lacks some of its variables, such as another optimizer's slots.

    Call it while the graph is built, after `minimize`. A variable is restored if the checkpoint has its name with its
    shape and dtype. The parts of a partitioned variable are looked up under the name of the whole.

    A new counter of updates starts at the checkpoint's `global_step` if only schedules read it, so that they go on. It
    starts at 0 if the rule itself reads it, as Adam does for the bias correction of its averages, which are new too. If
    that restarts a schedule, you get a warning.

    For example, after `minimize`:

        start = everstep.warm_start("old_run")
        with tf.train.MonitoredTrainingSession(scaffold=tf.train.Scaffold(init_fn=start.init_fn)) as session: ...

    Args:
        checkpoint: the path that `Saver.save` returned, or a directory, whose latest checkpoint is taken.
        variables: the variables to start. Default: all global variables of the default graph.
        updates: the number that all new counters of updates start at. Default: as above.

    Returns:
        A `WarmStart`. `run(session)` starts the variables; `init_fn` is for `tf.train.Scaffold`.

    Raises:
        StateError: there is no checkpoint, it cannot be read, it has none of the variables, or `updates` is no count.
        UnsupportedError: TensorFlow runs eagerly, or the graph is finalized.
        ImportError: TensorFlow is not installed.
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
    is_integer = isinstance(updates, numbers.Integral) and not isinstance(updates, bool)
    if updates is not None and not (is_integer and 0 <= int(updates) < 2**63):
        raise StateError("updates is a count, such as 60; got {!r}".format(updates))
    path = _checkpoint_path(tf, checkpoint)
    shapes, dtypes, global_step = _read(tf, path)
    to_start = tf.global_variables() if variables is None else list(variables)
    restorable, new = [], []
    for variable in to_start:
        why = _why_not_restored(variable, shapes, dtypes)
        if why:
            new.append((variable, why))
        else:
            restorable.append(variable)
    trainable = set(map(_name, tf.trainable_variables()))
    names, expected = set(map(_name, restorable)), set(map(_name, to_start))
    expected = expected & trainable or expected
    if not names & expected:
        raise StateError(
            "{} has none of the {}; it has {}, the graph {}".format(
                path,
                "trainable variables" if names else "variables",
                first_few(sorted(shapes)),
                first_few(sorted(expected)),
            )
        )
    return WarmStart(tf, path, restorable, new, _counted(new, global_step, updates))


def _checkpoint_path(tf, checkpoint):
    """Returns the path of a checkpoint, or of the latest one in a directory."""
    path = str(checkpoint)
    if os.path.isdir(path):
        latest = latest_in(path)
        if latest is None:
            raise StateError("{} is a directory without a checkpoint that tf.train.Saver wrote".format(path))
        return latest
    if not tf.gfile.Glob(path + ".index") and not tf.gfile.Exists(path):
        raise StateError(
            "there is no checkpoint {}; give the path that Saver.save returned, such as run/model.ckpt-1000, or its "
            "directory".format(path)
        )
    return path


def _read(tf, path):
    """Returns ({name: shape}, {name: dtype}, `global_step` or 0) of a checkpoint."""
    check_index(path)
    try:
        reader = tf.train.NewCheckpointReader(path)
        shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
        is_count = list(shapes.get("global_step", [0])) == [] and dtypes["global_step"].is_integer
        return shapes, dtypes, int(reader.get_tensor("global_step")) if is_count else 0
    except (tf.errors.OpError, RuntimeError, ValueError) as error:  # the type depends on the version
        raise StateError("{} cannot be read as a checkpoint: {}".format(path, error))


def _counted(new, global_step, updates):
    """Returns [(variable, number)] of the new counters that do not start at 0."""
    counted = []
    for variable, _ in new:
        name, definition = getattr(variable, "everstep_owner", (None, None))
        if name not in ("updates", "steps"):
            continue
        number, scheduled = updates, _scheduled(definition)
        if updates is None and scheduled and global_step:
            number = 0 if reads_updates(definition) else global_step
            if not number and name == "updates":
                warnings.warn(
                    "warm_start: {0} starts at 0, so the schedule of {1} begins anew, though the checkpoint's "
                    "global_step is {2}. The rule needs the count of its own updates, for its new slots. Give {1} as a "
                    "tensor made from tf.train.get_global_step(), or say its start: updates={2} or updates=0".format(
                        _name(variable), " and ".join(scheduled), global_step
                    ),
                    stacklevel=3,
                )
        if number:
            counted.append((variable, number))
    return counted


def _scheduled(definition):
    """Returns the names of the hypers that everstep schedules give."""
    hypers = flat(definition, "hyper").items()
    return [name for name, (owner, hyper) in hypers if isinstance(owner._values[hyper.name], Schedule)]


def _name(variable):
    """Returns a variable's name in a checkpoint; a part has the name of its whole."""
    part = getattr(variable, "_save_slice_info", None)
    return part.full_name if part else variable.op.name


def _why_not_restored(variable, shapes, dtypes):
    """Returns why the checkpoint has no value for a variable, or None if it has one."""
    name, part = _name(variable), getattr(variable, "_save_slice_info", None)
    if name not in shapes:
        return "not in the checkpoint"
    shape = list(part.full_shape) if part else variable.get_shape().as_list()
    if list(shapes[name]) != shape:
        return "of shape {} in the checkpoint, {} here".format(tuple(shapes[name]), tuple(shape))
    dtype = variable.dtype.base_dtype
    return None if dtypes[name] == dtype else "{} in the checkpoint, {} here".format(dtypes[name].name, dtype.name)


def _initialized_from_variable(variable):
    """Returns True if a variable's initial value reads another variable."""
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
