"""TensorFlow's checkpoints: those of `tf.train.Saver`, by name, and those of `tf.train.Checkpoint`, by object.

TensorFlow itself, any version from 1.4 on, reads the tensors. The object graph of the second kind is parsed here, so
that versions without object checkpoints can read them too.
"""
from __future__ import absolute_import, division, print_function

import contextlib
import os
import re
from collections import OrderedDict

import numpy as np

from everstep.compat.backends.on_tensorflow import with_names_of_tf1
from everstep.compat.state.bundle_index import check_index, fields, last
from everstep.compat.state.native_file import Handle, NativeFile, as_file_errors, numbered
from everstep.compat.state.open_file import ProcessLock
from everstep.compat.state.replacing import publish, scratch_folder, write_errors
from everstep.errors import FileError, StateError, UnsupportedError

GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"


def tensorflow_for(path):
    """Returns TensorFlow with the names of TF 1, or raises UnsupportedError if it is not installed."""
    try:
        import tensorflow
    except ImportError:
        raise UnsupportedError(
            "{} is a TensorFlow checkpoint, which only TensorFlow (any version from 1.4 on) reads, and that is not "
            "installed. Install it, or convert the file where it is: everstep convert {} run.npz --to everstep".format(
                path, path)
        )
    return with_names_of_tf1(tensorflow)


class Tensors(object):
    """The tensors of a checkpoint. They can only be read whole, so only the last one is kept in memory."""

    def __init__(self, path):
        self.path, self._cached, self._lock = path, (None, None), ProcessLock()
        self.tf = tensorflow_for(path)
        smallest = check_index(path)
        self._absolute_path = os.path.abspath(path)  # the current folder may change
        with self.guarded():
            self._reader = self.tf.train.NewCheckpointReader(self._absolute_path)
            self.shapes = self._reader.get_variable_to_shape_map()
            self.dtypes = self._reader.get_variable_to_dtype_map()
            for name in smallest.values():  # TensorFlow opens a data file when it first reads from it
                self._reader.get_tensor(name)

    @contextlib.contextmanager
    def guarded(self):
        """Turns TensorFlow's errors into FileError."""
        with as_file_errors(self.path):
            try:
                yield
            except self.tf.errors.OpError as error:
                raise FileError("{} is damaged, or not a checkpoint: {}".format(self.path, error.message))

    def get(self, name):
        """Returns a tensor. TensorFlow's reader is for one thread at a time."""
        with self._lock:
            if self._cached[0] != name:
                self._cached = (None, None)  # free the old tensor first, so that there are never two
                with self.guarded():
                    # A reader keeps the error of a partitioned variable, and ends the process when it is used again.
                    reader, self._reader = self._reader or self.tf.train.NewCheckpointReader(self._absolute_path), None
                    self._cached = name, reader.get_tensor(name)
                    self._reader = reader
            return self._cached[1]

    def handle(self, name):
        with self.guarded():
            dtype = np.dtype(self.tf.as_dtype(self.dtypes[name]).as_numpy_dtype)
        return Handle(name, self.shapes[name], dtype, lambda selection: np.asarray(self.get(name), dtype)[selection])

    def numeric(self):
        """Yields (name, handle) of every tensor that is not a string, by name."""
        for name in sorted(self.shapes):
            if self.tf.as_dtype(self.dtypes[name]) != self.tf.string:
                yield name, self.handle(name)


def find(path):
    """Returns the prefix of the checkpoint that a path, a file or a directory names; None if there is none."""
    path = str(path)
    if os.path.isdir(path):
        prefixes = [latest_in(path), os.path.join(path, "variables", "variables")]  # the second one: of a SavedModel
        return next((prefix for prefix in prefixes if prefix and os.path.isfile(prefix + ".index")), None)
    for suffix in (".index", ".data-00000-of-00001"):
        if path.endswith(suffix) and os.path.isfile(path):
            path = path[: -len(suffix)]
    return path if os.path.isfile(path + ".index") else None


def latest_in(path):
    """Returns the checkpoint that TensorFlow's file `checkpoint` in a directory names last; None if there is none."""
    tf = tensorflow_for(path)
    with as_file_errors(os.path.join(path, "checkpoint")):
        try:
            return tf.train.latest_checkpoint(path)
        except tf.errors.OpError as error:
            raise FileError("{} cannot be read: {}".format(os.path.join(path, "checkpoint"), error.message))


def read(path):
    """Returns the NativeFile of the checkpoint with this prefix."""
    tensors = Tensors(path)
    with as_file_errors(path):
        return _read_objects(tensors, path) if GRAPH in tensors.shapes else _read_named(tensors, path)


def _read_named(tensors, path):
    """Reads a checkpoint of tf.train.Saver."""
    native = NativeFile(path, "tf-saver", "tf.train.Saver")
    native.target = "tf_train"
    native.entries = list(tensors.numeric())
    native.variables = OrderedDict(native.entries)
    if not native.entries:
        native.missing.append("no variables at all")
    return native


def check_new(path):
    """Raises StateError if there is a checkpoint at the path already."""
    tensorflow_for(path)
    if find(path):
        raise StateError(
            "{} exists; a checkpoint is several files, which cannot be replaced at once: give another path, or "
            "remove it first".format(path)
        )


_SHARD = 1 << 28  # bytes that TensorFlow gets at once


def write(path, tensors, moved):
    """Writes a checkpoint as `tf.train.Saver` does.

    A large one gets several data files, so that it is never all in memory.

    Args:
        tensors: {name: handle}.
        moved: a function, called repeatedly with the number of bytes written since the last call.
    """
    tf, path = tensorflow_for(path), str(path)
    check_new(path)
    target = os.path.abspath(path)
    with write_errors(path), scratch_folder(target) as folder:
        try:
            _save(tf, tensors, folder, os.path.basename(target), moved)
        except tf.errors.OpError as error:
            raise StateError("{!r} cannot be written: {}".format(path, error.message))
        # The index comes last: without it there is no checkpoint.
        names = sorted(name for name in os.listdir(folder) if name.startswith(os.path.basename(target) + "."))
        publish([(os.path.join(folder, name), os.path.join(os.path.dirname(target), name)) for name in names])
        _delete_other_parts(target, names)


def _delete_other_parts(target, names):
    """Deletes data files that a killed process published without their index, so that nothing can read them."""
    parent, name = os.path.split(target)
    for left in os.listdir(parent):
        if left not in names and re.match(re.escape(name) + r"\.data-[0-9]{5}-of-[0-9]{5}\Z", left):
            os.remove(os.path.join(parent, left))


def _save(tf, tensors, folder, basename, moved):
    """Saves tensors into an empty folder: parts first, which are then merged."""
    from tensorflow.python.ops import gen_io_ops, io_ops  # the ops that Saver uses; public from 1.14 on, as tf.raw_ops

    with tf.Graph().as_default(), tf.Session() as session:
        parts = []
        for group in _shards(tensors):
            parts.append(os.path.join(folder, str(len(parts))))
            values = [np.asarray(tensors[name]) for name in group]
            placeholders = [tf.placeholder(tf.as_dtype(value.dtype), value.shape) for value in values]
            saved = io_ops.save_v2(parts[-1], group, [""] * len(group), placeholders)
            session.run(saved, dict(zip(placeholders, values)))
            moved(sum(value.nbytes for value in values))
        merged = os.path.join(folder, basename)
        session.run(gen_io_ops.merge_v2_checkpoints(parts, merged, delete_old_dirs=False))


def _shards(tensors):
    """Yields lists of names whose tensors together have at most _SHARD bytes, or one larger tensor."""
    group, size = [], 0
    for name, handle in tensors.items():
        nbytes = np.dtype(handle.dtype).itemsize * int(np.prod(handle.shape, dtype=np.float64))
        if group and size + nbytes > _SHARD:
            yield group
            group, size = [], 0
        group, size = group + [name], size + nbytes
    yield group


# Field numbers in the object graph's protobuf message, TrackableObjectGraph.
_NODES, _CHILDREN, _ATTRIBUTES, _SLOTS = 1, 1, 2, 3


# Names such as `touched/0`: everstep's OptimizerV2 so tracks slots whose shape or dtype differs from the variable's.
_TRACKED = re.compile(r"(.+)/[0-9]+\Z")


class _Node(object):
    """One object: `children` {name: place}, `key` and `full_name` of its value, `slots` [(name, variable, slot)]."""

    def __init__(self, data):
        message = fields(data)
        self.children, self.slots, self.key, self.full_name = OrderedDict(), [], None, ""
        for child in map(fields, message.get(_CHILDREN, ())):
            self.children[last(child, 2, b"").decode("utf-8")] = last(child, 1, 0)
        for value in map(fields, message.get(_ATTRIBUTES, ())):
            if last(value, 1, b"") == b"VARIABLE_VALUE":
                self.full_name, self.key = _text(last(value, 2, b"")), _text(last(value, 3, b""))
        for slot in map(fields, message.get(_SLOTS, ())):
            self.slots.append((_text(last(slot, 2, b"")), last(slot, 1, 0), last(slot, 3, 0)))


def _text(data):
    return str(bytes(data).decode("utf-8"))


def _read_objects(tensors, path):
    """Reads a checkpoint of tf.train.Checkpoint. A place is an object's number in the graph."""
    native = NativeFile(path, "tf-object", "tf.train.Checkpoint")
    nodes = [_Node(data) for data in fields(bytearray(tensors.get(GRAPH))).get(_NODES, ())]
    _join_averages(nodes)
    wrappers, scale_places = _loss_scales(native, nodes, tensors)
    optimizers = [node for node in nodes if _is_optimizer(node) and node not in wrappers]
    optimizer_places = {place for node in optimizers + wrappers for place in _optimizer_places(node, nodes)}
    optimizer_places.update(scale_places)
    if len(optimizers) > 1:
        raise FileError("{} has {} optimizers; save each in a separate checkpoint, or call everstep.capture on the "
                        "live optimizers".format(path, len(optimizers)))

    def named(places):
        places = [place for place in places if nodes[place].key in tensors.shapes]
        names = numbered([nodes[place].full_name or nodes[place].key[: -len(_SUFFIX)] for place in places])
        return OrderedDict((place, (name, tensors.handle(nodes[place].key))) for place, name in zip(places, names))

    if not optimizers:
        native.variables = OrderedDict(named(range(len(nodes))).values())
        native.missing.append("no optimizer among its objects")
        return native
    node = optimizers[0]
    native.target = _target(node)
    trainable = node.children.get("_trainable_variables")
    native.ordered = trainable is not None
    if trainable is not None:
        native.variables = OrderedDict(named(nodes[trainable].children.values()).values())
    elif not node.slots:
        other_places = [place for place in range(len(nodes)) if place not in optimizer_places and nodes[place].key]
        native.variables = OrderedDict(item for item in named(other_places).values() if item[0] != "save_counter")
    tracked = {name: place for name, place in node.children.items() if _TRACKED.match(name)}
    if node.slots or tracked:
        order = list(OrderedDict.fromkeys(variable for _, variable, _ in node.slots))
        if tracked:
            order.extend(place for place in range(len(nodes)) if place not in optimizer_places and place not in order)
        names = named(order)
        for slot, variable, place in node.slots:
            if variable in names and nodes[place].key in tensors.shapes:
                name = names[variable][0]
                native.slots.setdefault(name, OrderedDict())[slot] = tensors.handle(nodes[place].key)
        for slot, place in [(_TRACKED.match(name).group(1), place) for name, place in tracked.items()]:
            endings = {name: "/{}/{}".format(name, slot) for name, _ in names.values()}
            matches = [name for name in endings if ("/" + nodes[place].full_name).endswith(endings[name])]
            if not matches:
                raise FileError("{} has the slot {}, but not its variable".format(path, nodes[place].full_name))
            native.slots.setdefault(max(matches, key=len), OrderedDict())[slot] = tensors.handle(nodes[place].key)
        native.variables = OrderedDict(item for item in names.values() if item[0] in native.slots)
    if "_variables" in node.children:
        numbered_variables = nodes[node.children["_variables"]].children
        if sorted(numbered_variables) != sorted(map(str, range(len(numbered_variables)))):
            raise FileError("{} has an optimizer whose variables are {}".format(path, ", ".join(numbered_variables)))
        for place in map(str, range(len(numbered_variables))):
            entry = nodes[numbered_variables[place]]
            native.entries.append((entry.full_name, tensors.handle(entry.key)))
    owners = [node] + [nodes[place] for name, place in node.children.items() if name == "_hypers"]
    for name, place in [item for owner in owners for item in owner.children.items()]:
        if nodes[place].key in tensors.shapes and name != "_iterations" and name not in tracked:
            # Names of tf.train, such as Adam/updates, begin with the optimizer's.
            name = str(name.partition("/")[2] or name if native.target == "tf_train" else name)
            native.optimizer_values[name] = tensors.handle(nodes[place].key)
    return native


def _join_averages(nodes):
    """Gives the optimizer inside Lookahead, MovingAverage or SWA of TensorFlow Addons the slots and the count of those.

    They keep one slot of their own, and have no numbers.
    """
    for node in nodes:
        inner = [node.children.pop(name) for name in ("lh_base_optimizer", "awg_optimizer") if name in node.children]
        for place in inner:
            nodes[place].slots.extend(node.slots)
            nodes[place].children.update(node.children)
            node.slots, node.children = [], OrderedDict()


# The children of a LossScaleOptimizer: of Keras 3, and of its `loss_scale` in tf.keras and tf.train.
_SCALE_NAMES = {"dynamic_scale": "scale", "step_counter": "good_steps", "current_loss_scale": "scale",
                "good_steps": "good_steps"}


def _loss_scales(native, nodes, tensors):
    """Takes the loss scale of a LossScaleOptimizer. Returns (the nodes around optimizers, the places of the scale)."""
    wrappers, places = [], set()
    for node in nodes:
        inner = [node.children[name] for name in ("inner_optimizer", "base_optimizer") if name in node.children]
        if any(_is_optimizer(nodes[place]) for place in inner):
            wrappers.append(node)
        holder = nodes[node.children["loss_scale"]] if "loss_scale" in node.children else node
        found = {_SCALE_NAMES[name]: place for name, place in holder.children.items()
                 if name in _SCALE_NAMES and nodes[place].key in tensors.shapes}
        if set(found) == {"scale", "good_steps"}:
            native.loss_scale = {name: tensors.handle(nodes[place].key) for name, place in found.items()}
            places.update(found.values())
    return wrappers, places


def _is_optimizer(node):
    if node.slots or {"iter", "learning_rate"} <= set(node.children):
        return True
    return {"_iterations", "_variables"} <= set(node.children)


def _target(node):
    """Returns the API of an optimizer object."""
    if "_variables" in node.children:
        return "keras3" if "_trainable_variables" in node.children else "update_step"
    return "optimizer_v2" if "iter" in node.children else "tf_train"


def _optimizer_places(node, nodes):
    """Returns the places of all objects that belong to an optimizer alone."""
    places = set(place for _, _, place in node.slots)
    for name, place in node.children.items():
        places.add(place)
        if name.startswith("_") and name != "_trainable_variables":
            places.update(nodes[place].children.values())
    return places
