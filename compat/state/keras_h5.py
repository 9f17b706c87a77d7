"""Keras's HDF5 files: whole models (`.h5`, every Keras), and `.weights.h5` (Keras 3, tf.keras 2.12 and newer)."""
from __future__ import absolute_import, division, print_function

import io
import json
import os
import shutil
from collections import OrderedDict

import numpy as np

from everstep.compat.state.native_file import Handle, NativeFile, as_file_errors, chunks, numbered
from everstep.compat.state.replacing import replacing
from everstep.compat.state.unwrapping import inner_config
from everstep.compat.state.values import cast_exactly
from everstep.errors import EverstepError, FileError, UnsupportedError

MAX_TEXT, MAX_ENTRIES, MAX_DEPTH = 1 << 26, 1 << 17, 32
_MAX_COMPRESSION = 1100  # deflate shrinks zeros about a thousandfold
_NOT_TRAINED = ("moving_mean", "moving_variance", "seed_generator_state")  # weights that no optimizer trains


def import_h5py(path):
    """Returns h5py, or raises UnsupportedError with how to install it."""
    try:
        import h5py
    except ImportError:
        raise UnsupportedError("{} is an HDF5 file, which h5py reads: pip install everstep[files]".format(path))
    return h5py


def read(path):
    """Returns the NativeFile of an HDF5 file."""
    with as_file_errors(path):
        return read_open(Window(io.open(path, "rb"), 0, os.path.getsize(path)), path)


def read_open(window, path):
    """Returns the NativeFile of an open file.

    It takes a file, not a path: for a path that is open already, HDF5 returns the old contents even if the file
    changed.
    """
    file = None
    try:
        with as_file_errors(path):
            file = import_h5py(path).File(window, "r")
            weights_only = "layer_names" not in file.attrs and "model_weights" not in file
            return _read_weights(file, path) if weights_only else _read_model(file, path)
    except EverstepError:
        if file is not None:
            file.close()
        window.close()
        raise


class Window(io.RawIOBase):
    """A part of a file, readable as a file."""

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
        data = self._file.read(count)
        buffer[: len(data)] = data
        self._place += len(data)
        return len(data)

    def close(self):
        self._file.close()
        super(Window, self).close()


class Contents(object):
    """Bounded access to an HDF5 file: no other file is opened, and no array exceeds what the file can hold."""

    def __init__(self, file, path):
        self.file, self.path = file, path
        self.size = file.id.get_filesize()

    def array(self, group, name):
        """Returns the handle of an array, or raises FileError if it is not safe to read."""
        h5py = import_h5py(self.path)
        dataset = group[name]
        if not isinstance(dataset, h5py.Dataset):
            raise FileError("{}: {} is not an array".format(self.path, name))
        dtype, shape = dataset.dtype, dataset.shape
        external = getattr(dataset, "external", None) or getattr(dataset, "is_virtual", False)
        if external or dataset.file.filename != group.file.filename or shape is None:
            raise FileError("{}: {} is kept in another file".format(self.path, name))
        if dtype.kind not in "fiuVb":
            raise FileError("{}: {} holds {}, not numbers".format(self.path, name, dtype))
        size = dtype.itemsize
        for length in shape:
            size *= int(length)
        compressed = dataset.chunks is not None
        if size > self.size * (_MAX_COMPRESSION if compressed else 1):
            raise FileError("{}: {} says that it has {} bytes; the file has {}".format(
                self.path, name, size, self.size))

        def read(selection):
            with as_file_errors(self.path):
                return dataset[() if selection is Ellipsis else selection]

        return Handle(dataset.name, shape, dtype, read)


def write(path, template, values, moved):
    """Copies a file and replaces the values of some of its arrays.

    Args:
        values: {name of an array in the file: handle}.
        moved: a function, called repeatedly with the number of bytes written since the last call.
    """
    with replacing(path) as temporary:
        shutil.copyfile(template, temporary)
        fill(temporary, values, moved)


def fill(path, values, moved):
    """Writes values into the arrays of an existing file."""
    with as_file_errors(path), import_h5py(path).File(path, "r+") as file:
        for name, handle in values.items():
            dataset = file[name]
            for selection, chunk in chunks(handle):
                dataset[selection] = cast_exactly(name, chunk, dataset.dtype.name)
                moved(chunk.nbytes)


def _text(value):
    return value.decode("utf-8") if isinstance(value, bytes) else value


def _json(owner, name, path):
    """Returns the JSON value of an attribute, or None if it does not exist."""
    if name not in owner:
        return None
    text = _text(owner[name])
    if not hasattr(text, "split") or len(text) > MAX_TEXT:
        raise FileError("{}: {} is not text, or too long".format(path, name))
    return with_native_strings(json.loads(text))


def with_native_strings(value):
    """Returns a JSON value with `str` for text on Python 2 as well."""
    if isinstance(value, dict):
        return {with_native_strings(key): with_native_strings(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [with_native_strings(inner) for inner in value]
    if not isinstance(value, str) and hasattr(value, "encode"):
        try:
            return str(value)
        except UnicodeError:
            return value
    return value


def _names(group, attribute):
    """Returns a list of names. Keras splits a list that is too long for one attribute over several."""
    if attribute in group.attrs:
        parts = [group.attrs[attribute]]
    else:
        parts = []
        while attribute + str(len(parts)) in group.attrs:
            parts.append(group.attrs[attribute + str(len(parts))])
    names = [_text(name) for part in parts for name in np.asarray(part).tolist()]
    if len(names) > MAX_ENTRIES:
        raise FileError("{} names are more than a file can have".format(len(names)))
    return [str(name) for name in names]


def _read_model(file, path):
    """Reads what `model.save("x.h5")` of any Keras writes, or `save_weights` of Keras 2."""
    native, contents = NativeFile(path, "keras-h5"), Contents(file, path)
    weights = file["model_weights"] if "model_weights" in file else file
    version = _text(file.attrs.get("keras_version", weights.attrs.get("keras_version", "")))
    native.writer = "Keras {}".format(version) if version else "Keras before 2.0"
    frozen = _frozen_layers(_json(file.attrs, "model_config", path))
    names = []
    for layer in _names(weights, "layer_names") + ["top_level_model_weights"]:
        if layer not in weights:
            continue
        for name in _names(weights[layer], "weight_names"):
            handle = contents.array(weights[layer], name)
            weight_name = name.split(":")[0]
            if layer not in frozen and weight_name.split("/")[-1] not in _NOT_TRAINED and handle.dtype.kind in "fV":
                names.append((weight_name, handle))
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
    if native.scaling is not None and native.target == "keras3":
        native.entries = without_loss_scale(native, native.entries, len(native.entries) - _LOSS_SCALE_VARIABLES)
    if native.target == "optimizer_v2" and native.entries and "/iterations" in native.entries[0][0]:
        native.target = "get_updates"  # everstep's Keras 2 optimizers have a name in their config too
    return native


def take_config(native, serialized, version):
    """Sets the optimizer's class and config, and its API, which the config tells."""
    if not isinstance(serialized, dict) or not isinstance(serialized.get("config"), dict):
        raise FileError("{} has no optimizer's config, but {!r}".format(native.path, serialized))
    config, name = serialized["config"], str(serialized.get("class_name")).split(">")[-1]
    if "LossScaleOptimizer" in name and inner_config(config) is not None:
        native.scaling = config
        take_config(native, inner_config(config), version)
        return
    native.class_name, native.config = name, config
    if version[:1] >= "3":
        native.target = "keras3"
    elif "is_legacy_optimizer" in config or "jit_compile" in config:
        native.target = "update_step"
    else:
        native.target = "optimizer_v2" if "name" in config else "get_updates"


def _frozen_layers(config):
    """Returns the names of the layers that do not train."""
    layers = (config or {}).get("config")
    layers = layers.get("layers", []) if isinstance(layers, dict) else layers
    names = set()
    for layer in layers or []:
        inner = layer.get("config") if isinstance(layer, dict) else None
        if isinstance(inner, dict) and inner.get("trainable") is False:
            names.add(inner.get("name"))
    return names


def _read_weights(file, path):
    """Reads what `save_weights("x.weights.h5")` writes, which a `.keras` file also contains."""
    native, contents = NativeFile(path, "keras-weights-h5", "Keras 3, or tf.keras 2.12 or newer"), Contents(file, path)
    variables = OrderedDict()
    for root in ("layers", "_layer_checkpoint_dependencies", "_functional"):
        if root in file:
            _collect_arrays(file[root], (), contents, variables, 0)
    if not variables and "vars" not in file and "optimizer" not in file:
        raise FileError("{} is an HDF5 file, but not from Keras".format(path))
    native.variables, native.ordered = variables, False
    if "optimizer" not in file or "vars" not in file["optimizer"]:
        native.missing.append("weights alone: the model was saved without its optimizer, or with a legacy optimizer, "
                              "whose state this format never keeps")
        return native
    native.entries = numbered_arrays(file["optimizer"]["vars"], contents)
    inner = file["optimizer"].get("inner_optimizer")
    if inner is not None and "vars" in inner:  # of a LossScaleOptimizer; Keras stores the inner variables twice
        entries = numbered_arrays(inner["vars"], contents)
        outer = without_loss_scale(native, native.entries, len(entries))
        native.entries = entries
        native.copies.update((handle.name, copy.name) for (_, handle), (_, copy) in zip(entries, outer))
    if not native.entries:
        native.missing.append("an optimizer without variables: it never trained")
    return native


_LOSS_SCALE_VARIABLES = 4  # of Keras 3: iteration, learning_rate, step_counter, dynamic_scale


def without_loss_scale(native, entries, count):
    """Returns the last `count` entries, those of the optimizer inside of a LossScaleOptimizer, and takes its scale.

    The LossScaleOptimizer of tf.keras has no variables of its own here.
    """
    own = entries[: len(entries) - count]
    if count < 0 or len(own) not in (0, _LOSS_SCALE_VARIABLES) or any(handle.shape != () for _, handle in own):
        raise FileError("{} has a LossScaleOptimizer with {} variables around {}".format(native.path, len(own), count))
    if own:
        native.loss_scale = {"good_steps": own[2][1], "scale": own[3][1]}
    return entries[len(own):]


def numbered_arrays(group, contents):
    """Returns [("", handle)] of the arrays that are stored under the numbers 0, 1, ..."""
    count = len(group)
    if count > MAX_ENTRIES or set(group.keys()) != set(map(str, range(count))):
        raise FileError("{}: variables are numbered 0, 1, ...; the file has {}".format(
            contents.path, ", ".join(sorted(group.keys())[:8])))
    return [("", contents.array(group, str(place))) for place in range(count)]


def _collect_arrays(group, path, contents, variables, depth):
    """Collects the arrays in all `vars` groups below a group into `variables`, {path: handle}."""
    if depth > MAX_DEPTH or len(variables) > MAX_ENTRIES:
        raise FileError("{} has groups nested deeper, or more arrays, than a model can have".format(contents.path))
    for name in group:
        inner = group[name]
        if not hasattr(inner, "keys"):
            continue
        if name == "vars":
            for place in sorted(inner, key=lambda place: (len(place), place)):
                handle = contents.array(inner, place)
                if handle.dtype.kind in "fV":
                    variables["/".join(path + (place,))] = handle
        else:
            _collect_arrays(inner, path + ((str(name),) if name != "layers" else ()), contents, variables, depth + 1)
