"""Keras's HDF5 files: whole models (`.h5`, every Keras), and `.weights.h5` (Keras 3, tf.keras 2.12 and newer)."""
from __future__ import absolute_import, division, print_function

import io
import json
import os
import shutil
from collections import OrderedDict

import numpy as np

from everstep.compat.state.native_file import Handle, NativeFile, numbered, pieces, reading
from everstep.compat.state.replacing import replacing
from everstep.compat.state.values import exactly
from everstep.errors import EverstepError, FileError, UnsupportedError

MAX_TEXT, MAX_ENTRIES, MAX_DEPTH = 1 << 26, 1 << 17, 32
_MOST_COMPRESSED = 1100  # deflate makes zeros a thousandth
_NOT_TRAINED = ("moving_mean", "moving_variance", "seed_generator_state")  # weights that are no optimizer's affair


def import_h5py(path):
    try:
        import h5py
    except ImportError:
        raise UnsupportedError("{} is an HDF5 file, which h5py reads: pip install everstep[files]".format(path))
    return h5py


def read(path):
    """The NativeFile of an HDF5 file."""
    with reading(path):
        return read_open(Window(io.open(path, "rb"), 0, os.path.getsize(path)), path)


def read_open(window, path):
    """The NativeFile of an open file. (Of a path HDF5 gives what it holds open of it, changed or not.)"""
    file = None
    try:
        with reading(path):
            file = import_h5py(path).File(window, "r")
            weights = "layer_names" not in file.attrs and "model_weights" not in file
            return _read_weights(file, path) if weights else _read_model(file, path)
    except EverstepError:
        if file is not None:
            file.close()
        window.close()
        raise


class Window(io.RawIOBase):
    """A part of a file, to be read as a file."""

    def __init__(self, file, start, size):
        super(Window, self).__init__()
        self._file, self._start, self._size, self._place = file, start, size, 0

    def readable(self):
        return True

    def seekable(self):
        return True

    def tell(self):
        return self._place

    def seek(self, place, whence=0):
        self._place = place + (0, self._place, self._size)[whence]
        return self._place

    def readinto(self, buffer):
        self._file.seek(self._start + self._place)
        count = max(0, min(len(buffer), self._size - self._place))
        piece = self._file.read(count)
        buffer[: len(piece)] = piece
        self._place += len(piece)
        return len(piece)

    def close(self):
        self._file.close()
        super(Window, self).close()


class Contents(object):
    """Bounded access to an HDF5 file: no other file is followed, no array is larger than the file can hold."""

    def __init__(self, file, path):
        self.file, self.path = file, path
        self.size = file.id.get_filesize()

    def array(self, group, name):
        h5py = import_h5py(self.path)
        found = group[name]
        if not isinstance(found, h5py.Dataset):
            raise FileError("{}: {} is no array".format(self.path, name))
        dtype, shape = found.dtype, found.shape
        external = getattr(found, "external", None) or getattr(found, "is_virtual", False)
        if external or found.file.filename != group.file.filename or shape is None:
            raise FileError("{}: {} is kept in another file".format(self.path, name))
        if dtype.kind not in "fiuVb":
            raise FileError("{}: {} holds no numbers, but {}".format(self.path, name, dtype))
        size = dtype.itemsize
        for length in shape:
            size *= int(length)
        compressed = found.chunks is not None
        if size > self.size * (_MOST_COMPRESSED if compressed else 1):
            raise FileError("{}: {} says that it has {} bytes; the file has {}".format(
                self.path, name, size, self.size))

        def read(selection):
            with reading(self.path):
                return found[() if selection is Ellipsis else selection]

        return Handle(found.name, shape, dtype, read)


def write(path, template, values, moved):
    """A copy of a file with the values of some arrays.

    Args:
        values: {name of an array in the file: handle}.
        moved: called with the number of bytes that were written, again and again.
    """
    with replacing(path) as temporary:
        shutil.copyfile(template, temporary)
        fill(temporary, values, moved)


def fill(path, values, moved):
    with reading(path), import_h5py(path).File(path, "r+") as file:
        for name, handle in values.items():
            into = file[name]
            for where, piece in pieces(handle):
                into[where] = exactly(name, piece, into.dtype.name)
                moved(piece.nbytes)


def _text(value):
    return value.decode("utf-8") if isinstance(value, bytes) else value


def _json(owner, name, path):
    if name not in owner:
        return None
    text = _text(owner[name])
    if not hasattr(text, "split") or len(text) > MAX_TEXT:
        raise FileError("{}: {} is no text of a size that makes sense".format(path, name))
    return plain(json.loads(text))


def plain(value):
    """What JSON gives, with `str` on Python 2 as well."""
    if isinstance(value, dict):
        return {plain(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    if not isinstance(value, str) and hasattr(value, "encode"):
        try:
            return str(value)
        except UnicodeError:
            return value
    return value


def _names(group, attribute):
    """A list of names, which Keras cuts into pieces where it is too long for one attribute."""
    if attribute in group.attrs:
        pieces = [group.attrs[attribute]]
    else:
        pieces = []
        while attribute + str(len(pieces)) in group.attrs:
            pieces.append(group.attrs[attribute + str(len(pieces))])
    names = [_text(name) for piece in pieces for name in np.asarray(piece).tolist()]
    if len(names) > MAX_ENTRIES:
        raise FileError("{} names are more than a file may have".format(len(names)))
    return [str(name) for name in names]


def _read_model(file, path):
    """What `model.save("x.h5")` writes, of any Keras; or `save_weights` of Keras 2."""
    native, contents = NativeFile(path, "keras-h5"), Contents(file, path)
    weights = file["model_weights"] if "model_weights" in file else file
    version = _text(file.attrs.get("keras_version", weights.attrs.get("keras_version", "")))
    native.writer = "Keras {}".format(version) if version else "Keras before 2.0"
    frozen = _frozen(_json(file.attrs, "model_config", path))
    names = []
    for layer in _names(weights, "layer_names") + ["top_level_model_weights"]:
        if layer not in weights:
            continue
        for name in _names(weights[layer], "weight_names"):
            handle = contents.array(weights[layer], name)
            bare = name.split(":")[0]
            if layer not in frozen and bare.split("/")[-1] not in _NOT_TRAINED and handle.dtype.kind in "fV":
                names.append((bare, handle))
    native.variables = OrderedDict(zip(numbered([name for name, _ in names]), [handle for _, handle in names]))
    if "model_weights" not in file:
        native.missing.append("weights alone, as save_weights writes them")
        return native
    training = _json(file.attrs, "training_config", path)
    if training is None:
        native.missing.append("a model that was saved without its optimizer (not compiled, or include_optimizer=False)")
        return native
    take_config(native, training.get("optimizer_config"), version)
    if "optimizer_weights" not in file:
        native.missing.append("the config of an optimizer, {}, but none of its variables (it never trained)".format(
            native.class_name))
        return native
    group = file["optimizer_weights"]
    native.entries = [(name, contents.array(group, name)) for name in _names(group, "weight_names")]
    if native.target == "optimizer_v2" and native.entries and "/iterations" in native.entries[0][0]:
        native.target = "get_updates"  # ours have a name there, too
    return native


def take_config(native, serialized, version):
    """The optimizer's class and config, and by them its API."""
    if not isinstance(serialized, dict) or not isinstance(serialized.get("config"), dict):
        raise FileError("{} has no optimizer's config, but {!r}".format(native.path, serialized))
    config = native.config = serialized["config"]
    native.class_name = str(serialized.get("class_name")).split(">")[-1]
    if version[:1] >= "3":
        native.target = "keras3"
    elif "is_legacy_optimizer" in config or "jit_compile" in config:
        native.target = "update_step"
    else:
        native.target = "optimizer_v2" if "name" in config else "get_updates"


def _frozen(config):
    """The names of the layers that do not train."""
    layers = (config or {}).get("config")
    layers = layers.get("layers", []) if isinstance(layers, dict) else layers
    found = set()
    for layer in layers or []:
        inner = layer.get("config") if isinstance(layer, dict) else None
        if isinstance(inner, dict) and inner.get("trainable") is False:
            found.add(inner.get("name"))
    return found


def _read_weights(file, path):
    """What `save_weights("x.weights.h5")` writes, and what a `.keras` file has inside."""
    native, contents = NativeFile(path, "keras-weights-h5", "Keras 3, or tf.keras 2.12 or newer"), Contents(file, path)
    named = OrderedDict()
    for root in ("layers", "_layer_checkpoint_dependencies", "_functional"):
        if root in file:
            _walk(file[root], (), contents, named, 0)
    if not named and "vars" not in file and "optimizer" not in file:
        raise FileError("{} is an HDF5 file, but none of Keras".format(path))
    native.variables, native.ordered = named, False
    if "optimizer" not in file or "vars" not in file["optimizer"]:
        native.missing.append("weights alone: the model was saved without its optimizer, or with one of Keras's legacy "
                              "ones, of which this format keeps nothing")
        return native
    native.entries = places(file["optimizer"]["vars"], contents)
    if not native.entries:
        native.missing.append("an optimizer without variables: it never trained")
    return native


def places(group, contents):
    """The arrays that are stored under the numbers 0, 1, ..."""
    count = len(group)
    if count > MAX_ENTRIES or set(group.keys()) != set(map(str, range(count))):
        raise FileError("{}: variables are numbered 0, 1, ...; found were {}".format(
            contents.path, ", ".join(sorted(group.keys())[:8])))
    return [("", contents.array(group, str(place))) for place in range(count)]


def _walk(group, path, contents, named, depth):
    if depth > MAX_DEPTH or len(named) > MAX_ENTRIES:
        raise FileError("{} nests deeper, or has more arrays, than a model may".format(contents.path))
    for name in group:
        inner = group[name]
        if not hasattr(inner, "keys"):
            continue
        if name == "vars":
            for place in sorted(inner, key=lambda place: (len(place), place)):
                handle = contents.array(inner, place)
                if handle.dtype.kind in "fV":
                    named["/".join(path + (place,))] = handle
        else:
            _walk(inner, path + ((str(name),) if name != "layers" else ()), contents, named, depth + 1)
