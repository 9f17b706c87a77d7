"""Keras's HDF5 files: whole models (`.h5`, every Keras), and `.weights.h5` (Keras 3, tf.keras 2.12 and newer)."""
from __future__ import absolute_import, division, print_function

import shutil
from collections import OrderedDict

import numpy as np

from everstep.compat.files.exact import cast_exactly
from everstep.compat.files.h5_contents import MAX_ENTRIES, Contents, Window, default_bound, import_h5py
from everstep.compat.files.native_file import NativeFile, as_file_errors, chunks, numbered
from everstep.compat.files.npz import native_str, parse_json
from everstep.compat.files.open_file import OpenFile
from everstep.compat.files.replacing import replacing
from everstep.errors import FileError

MAX_TEXT, MAX_DEPTH = 1 << 26, 32
_NOT_TRAINED = ("moving_mean", "moving_variance", "seed_generator_state")  # weights that no optimizer trains


def read(path, max_bytes=None):
    """Returns the NativeFile of an HDF5 file."""
    return read_open(*open_whole(path, max_bytes))


def open_whole(path, max_bytes=None):
    """Returns (the file as a Window, path, the largest size of all its arrays)."""
    file = OpenFile(path)
    return Window(file, 0, file.size), path, default_bound(file.size) if max_bytes is None else max_bytes


def read_open(window, path, bound):
    """Returns the NativeFile of an open file."""
    with as_file_errors(path):
        contents = open_contents(window, path, bound)
        try:
            is_model = "layer_names" in contents.file.attrs or contents.find(contents.file, "model_weights")
            return _read_model(contents) if is_model else _read_weights(contents)
        except BaseException:
            contents.file.close()
            window.close()
            raise


def open_contents(window, path, bound):
    """Returns the Contents of an open file.

    It takes a file, not a path: for a path that is open already, HDF5 returns the old contents even if the file
    changed.
    """
    try:
        return Contents(window, path, bound)
    except BaseException:
        window.close()
        raise


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
    with import_h5py(path).File(path, "r+") as file:
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
    return with_native_strings(parse_json(text))


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
    if len(set(names)) < len(names):
        raise FileError("{}: {} has a name twice".format(group.name, attribute))
    return [native_str(name) for name in names]


def _read_model(contents):
    """Reads what `model.save("x.h5")` of any Keras writes, or `save_weights` of Keras 2."""
    path, file = contents.path, contents.file
    native, model = NativeFile(path, "keras-h5"), contents.group(file, "model_weights")
    weights = file if model is None else model
    version = _text(file.attrs.get("keras_version", weights.attrs.get("keras_version", "")))
    native.writer = "Keras {}".format(version) if version else "Keras before 2.0"
    frozen = _frozen_layers(_json(file.attrs, "model_config", path))
    names = []
    for layer in _names(weights, "layer_names") + ["top_level_model_weights"]:
        group = contents.group(weights, layer)
        if group is None:
            continue
        for name in _names(group, "weight_names"):
            handle = contents.array(group, name)
            weight_name = name.split(":")[0]
            if layer not in frozen and weight_name.split("/")[-1] not in _NOT_TRAINED and handle.dtype.kind in "fV":
                names.append((weight_name, handle))
    native.variables = OrderedDict(zip(numbered([name for name, _ in names]), [handle for _, handle in names]))
    if model is None:
        native.missing.append("weights alone, as save_weights writes them")
        return native
    training = _json(file.attrs, "training_config", path)
    if training is None:
        native.missing.append("a model that was saved without its optimizer (not compiled, or include_optimizer=False)")
        return native
    take_config(native, training.get("optimizer_config"), version)
    group = contents.group(file, "optimizer_weights")
    if group is None:
        native.missing.append("the config of an optimizer, {}, but none of its variables (it never trained)".format(
            native.class_name))
        return native
    native.entries = [(name, contents.array(group, name)) for name in _names(group, "weight_names")]
    if native.scaling is not None and native.target == "keras3":
        native.entries = without_loss_scale(native, native.entries, len(native.entries) - _LOSS_SCALE_VARIABLES[-1])
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


def inner_config(config):
    """Returns the config of the optimizer in a LossScaleOptimizer's config, or None for any other config."""
    inner = config.get("inner_optimizer", config.get("optimizer"))
    return inner if isinstance(inner, dict) and isinstance(inner.get("config"), dict) else None


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


def _read_weights(contents):
    """Reads what `save_weights("x.weights.h5")` writes, which a `.keras` file also contains."""
    path, file = contents.path, contents.file
    native, variables = NativeFile(path, "keras-weights-h5", "Keras 3, or tf.keras 2.12 or newer"), OrderedDict()
    for root in _ROOTS:
        group = contents.group(file, root)
        if group is not None:
            _collect_arrays(group, (), contents, variables, 0)
    optimizer = contents.group(file, "optimizer")
    if not variables and contents.group(file, "vars") is None and optimizer is None:
        raise FileError("{} is an HDF5 file, but not from Keras".format(path))
    native.variables, native.ordered = variables, False
    saved = None if optimizer is None else contents.group(optimizer, "vars")
    if saved is None:
        native.missing.append("weights alone: the model was saved without its optimizer, or with a legacy optimizer, "
                              "whose state this format never keeps")
        return native
    native.entries = numbered_arrays(saved, contents)
    inner = contents.group(optimizer, "inner_optimizer") or contents.group(optimizer, "_optimizer")  # up to Keras 2.14
    inner_saved = None if inner is None else contents.group(inner, "vars")
    if inner_saved is not None:  # of a LossScaleOptimizer; Keras stores the inner variables twice
        entries = numbered_arrays(inner_saved, contents)
        outer = without_loss_scale(native, native.entries, len(entries))
        native.entries = entries
        native.copies.update((handle.name, copy.name) for (_, handle), (_, copy) in zip(entries, outer))
    if not native.entries:
        native.missing.append("an optimizer without variables: it never trained")
    return native


_ROOTS = ("layers", "_layer_checkpoint_dependencies", "_functional")  # groups of a model that hold its layers
# How many variables of its own a LossScaleOptimizer stores: none in tf.keras; in Keras 3 iteration and learning_rate,
# and once it is built step_counter and dynamic_scale.
_LOSS_SCALE_VARIABLES = (0, 2, 4)


def without_loss_scale(native, entries, count):
    """Returns the entries of the optimizer inside of a LossScaleOptimizer, and puts the loss scale into `native`.

    They are the last `count` entries. Keras 3 stores the LossScaleOptimizer's own variables before them; tf.keras
    stores none.
    """
    before = len(entries) - count
    own = entries[: max(before, 0)]
    if count < 0 or before not in _LOSS_SCALE_VARIABLES or any(handle.shape != () for _, handle in own):
        raise FileError("{} has a LossScaleOptimizer with {} variables around {}".format(native.path, before, count))
    if before == _LOSS_SCALE_VARIABLES[-1]:
        native.loss_scale = {"good_steps": own[2][1], "scale": own[3][1]}
    return entries[before:]


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
        if not hasattr(contents.find(group, name), "keys"):
            continue
        inner = contents.group(group, name)
        if name == "vars":
            for place in sorted(inner, key=lambda place: (len(place), place)):
                handle = contents.array(inner, place)
                if handle.dtype.kind in "fV":
                    variables["/".join(path + (place,))] = handle
        else:
            _collect_arrays(inner, path + (() if name in _ROOTS else (str(name),)), contents, variables, depth + 1)
