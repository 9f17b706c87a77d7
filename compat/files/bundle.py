"""TensorFlow's checkpoints: those of `tf.train.Saver`, by name, and those of `tf.train.Checkpoint`, by object.

TensorFlow itself, any version from 1.4 on, reads the tensors; object_graph.py reads the objects of the second kind.
"""
from __future__ import absolute_import, division, print_function

import contextlib
import os
import re
from collections import OrderedDict

import numpy as np

from everstep.compat.backends.on_tensorflow import with_names_of_tf1
from everstep.compat.files.bundle_index import TABLE_END, check_index
from everstep.compat.files.contents import Contents, Handle, Stored, as_file_errors, size_of
from everstep.compat.files.object_graph import GRAPH, Graph
from everstep.compat.files.open_file import ProcessLock
from everstep.compat.files.replacing import publish, scratch_folder, write_errors
from everstep.errors import FileError, StateError, UnsupportedError


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
        smallest = check_index(path, shards_of(path))
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
        dtype = np.dtype(self.tf.as_dtype(self.dtypes[name]).as_numpy_dtype)
        return Handle(name, self.shapes[name], dtype, lambda selection: np.asarray(self.get(name), dtype)[selection])


def find(path):
    """Returns what names a checkpoint: the prefix of its files, or of version 1 its file or a pattern of its shards.

    None if a path, a file or a directory names none.
    """
    path = str(path)
    if os.path.isdir(path):
        prefixes = [latest_in(path), os.path.join(path, "variables", "variables")]  # the second one: of a SavedModel
        return next((found for found in map(_of_file, filter(None, prefixes)) if found), None)
    return _of_file(path)


def _of_file(path):
    """Returns the checkpoint that a path names, which is that of no directory; None if it names none."""
    shard = re.match(r"(.+)-([0-9]{5}|\?{5})-of-([0-9]{5})\Z", path)  # with ?????, as Saver's save returns it
    if shard and not os.path.isfile(path + ".index"):
        prefix, _, count = shard.groups()
        return _of_prefix(prefix[: -len(".data")] if prefix.endswith(".data") else prefix, count)
    stem = path[: -len(".index")]
    return _of_prefix(stem if path.endswith(".index") and not os.path.isfile(path + ".index") else path)


def _of_prefix(prefix, count="[0-9]" * 5):
    """Returns the checkpoint of a prefix, with as many shards; None if there is none."""
    if os.path.isfile(prefix + ".index"):
        return prefix
    shards = shards_of("{}-?????-of-{}".format(prefix, count))
    return "{}-?????-of-{}".format(prefix, shards[0][-5:]) if shards else None


def shards_of(pattern):
    """Returns the files of a checkpoint of version 1 that is called PREFIX-?????-of-COUNT; [] if it is no such name."""
    prefix, _, count = pattern.rpartition("-?????-of-")
    folder, name = os.path.split(prefix)
    expression = re.compile(re.escape(name) + "-[0-9]{5}-of-(%s)\\Z" % count)
    names = os.listdir(folder or os.curdir) if prefix and os.path.isdir(folder or os.curdir) else []
    return sorted(os.path.join(folder, each) for each in names if expression.match(each))


def latest_in(path):
    """Returns the checkpoint that TensorFlow's file `checkpoint` in a directory names last; None if there is none."""
    tf = tensorflow_for(path)
    with as_file_errors(os.path.join(path, "checkpoint")):
        try:
            return tf.train.latest_checkpoint(path)
        except tf.errors.OpError as error:
            raise FileError("{} cannot be read: {}".format(os.path.join(path, "checkpoint"), error.message))


def is_it(path, start, end):
    """Returns True for a checkpoint of version 1, which is one file; `find` knows the others by their names."""
    return end == TABLE_END


def read(path, max_bytes=None):
    """Returns the Contents of the checkpoint with this prefix."""
    tensors = Tensors(path)
    with as_file_errors(path):
        if GRAPH in tensors.shapes:
            return Contents(path, "tf-object", "tf.train.Checkpoint", objects=Graph(tensors))
        arrays = OrderedDict((name, tensors.handle(name)) for name in sorted(tensors.shapes)
                             if tensors.tf.as_dtype(tensors.dtypes[name]) != tensors.tf.string)
        missing = [] if arrays else ["no variables at all"]
        return Contents(path, "tf-saver", "tf.train.Saver", arrays=arrays, missing=missing)


def stored(path, max_bytes=None):
    """Returns (name of the container, [Stored])."""
    tensors = Tensors(path)
    return "TensorFlow", [Stored(name, tensors.handle(name), "CRC-32C") for name in sorted(tensors.shapes)]


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


def write_without(path, source, names, moved):
    """Copies a checkpoint of tf.train.Saver without some arrays. The arguments are those of `hdf5.write_without`."""
    tensors = Tensors(source)
    write(path, OrderedDict((name, tensors.handle(name)) for name in sorted(tensors.shapes) if name not in names),
          moved)


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
        if group and size + size_of(handle) > _SHARD:
            yield group
            group, size = [], 0
        group, size = group + [name], size + size_of(handle)
    yield group
