"""Keras's HDF5 files: whole models (`.h5`, every Keras), and `.weights.h5` (Keras 3, tf.keras 2.12 and newer)."""
from __future__ import absolute_import, division, print_function

import shutil

import numpy as np

from everstep.compat.files.contents import Contents, Numbered, Stored, Weight, as_file_errors, chunks
from everstep.compat.files.exact import cast_exactly
from everstep.compat.files.hdf5 import MAX_ENTRIES, Hdf5, Window, default_bound, import_h5py
from everstep.compat.files.npz import native_str, parse_json
from everstep.compat.files.open_file import OpenFile
from everstep.compat.files.replacing import replacing
from everstep.errors import FileError

MAX_TEXT, MAX_DEPTH = 1 << 26, 32
NOT_TRAINED = ("moving_mean", "moving_variance", "seed_generator_state")  # weights that no optimizer trains


def is_it(path, start, end):
    return start == b"\x89HDF\r\n\x1a\n"


def read(path, max_bytes=None):
    """Returns the Contents of an HDF5 file."""
    return read_open(*open_whole(path, max_bytes))


def open_whole(path, max_bytes=None):
    """Returns (the file as a Window, path, the largest size of all its arrays)."""
    file = OpenFile(path)
    return Window(file, 0, file.size), path, default_bound(file.size) if max_bytes is None else max_bytes


def read_open(window, path, bound):
    """Returns the Contents of an open file."""
    with as_file_errors(path):
        hdf5 = open_hdf5(window, path, bound)
        try:
            is_model = "layer_names" in hdf5.file.attrs or hdf5.find(hdf5.file, "model_weights")
            return _read_model(hdf5) if is_model else _read_weights(hdf5)
        except BaseException:
            hdf5.file.close()
            window.close()
            raise


def open_hdf5(window, path, bound):
    """Returns the Hdf5 of an open file.

    It takes a file, not a path: for a path that is open already, HDF5 returns the old contents even if the file
    changed.
    """
    try:
        return Hdf5(window, path, bound)
    except BaseException:
        window.close()
        raise


def stored(path, max_bytes=None):
    """Returns (name of the container, [Stored])."""
    return "HDF5", stored_in(open_hdf5(*open_whole(path, max_bytes)), None)


def stored_in(hdf5, checksum):
    """Returns the list of Stored in an HDF5 file. `checksum` is of the whole file, or None."""
    arrays, own = [], "none"
    for name, dataset in hdf5.arrays():
        is_numeric = getattr(dataset, "dtype", np.dtype("O")).kind in "fiuVb"
        handle = hdf5.array(hdf5.file, name) if is_numeric else None
        if checksum is None and is_numeric:
            own = "Fletcher-32" if dataset.fletcher32 else "Adler-32" if dataset.compression == "gzip" else "none"
        arrays.append(Stored(name, handle, checksum or own))
    return arrays


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


def _read_model(hdf5):
    """Reads what `model.save("x.h5")` of any Keras writes, or `save_weights` of Keras 2."""
    path, file = hdf5.path, hdf5.file
    model = hdf5.group(file, "model_weights")
    layers = file if model is None else model
    version = _text(file.attrs.get("keras_version", layers.attrs.get("keras_version", "")))
    writer = "Keras {}".format(version) if version else "Keras before 2.0"
    frozen = _frozen_layers(_json(file.attrs, "model_config", path))
    weights = []
    for layer in _names(layers, "layer_names") + ["top_level_model_weights"]:
        group = hdf5.group(layers, layer)
        for name in [] if group is None else _names(group, "weight_names"):
            handle, weight_name = hdf5.array(group, name), name.split(":")[0]
            trains = layer not in frozen and weight_name.split("/")[-1] not in NOT_TRAINED
            weights.append(Weight(weight_name, handle, trains, layer))
    missing, config, optimizers = [], None, []
    training = None if model is None else _json(file.attrs, "training_config", path)
    if model is None:
        missing.append("weights alone, as save_weights writes them")
    elif training is None:
        missing.append("a model that was saved without its optimizer (not compiled, or include_optimizer=False)")
    else:
        config, group = training.get("optimizer_config"), hdf5.group(file, "optimizer_weights")
        if group is not None:
            entries = [(name, hdf5.array(group, name)) for name in _names(group, "weight_names")]
            optimizers.append(Numbered("optimizer_weights", entries))
    return Contents(path, "keras-h5", writer, version, weights=weights, optimizers=optimizers, config=config,
                        missing=missing)


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


def _read_weights(hdf5):
    """Reads what `save_weights("x.weights.h5")` writes, which a `.keras` file also contains."""
    path, file, weights = hdf5.path, hdf5.file, []
    for root in _ROOTS:
        group = hdf5.group(file, root)
        if group is not None:
            _collect_arrays(group, (), hdf5, weights, 0)
    optimizer = hdf5.group(file, "optimizer")
    if not weights and hdf5.group(file, "vars") is None and optimizer is None:
        raise FileError("{} is an HDF5 file, but not from Keras".format(path))
    optimizers, missing = [], []
    for name in ("", "inner_optimizer", "_optimizer"):  # the third one: inside of a LossScaleOptimizer up to Keras 2.14
        owner = optimizer if not name or optimizer is None else hdf5.group(optimizer, name)
        group = None if owner is None else hdf5.group(owner, "vars")
        if group is not None:
            optimizers.append(Numbered("optimizer/" + name, numbered_arrays(group, hdf5)))
    if not optimizers:
        missing.append("weights alone: the model was saved without its optimizer, or with a legacy optimizer, whose "
                       "state this format never keeps")
    elif not optimizers[-1].entries:
        missing.append("an optimizer without variables: it never trained")
    return Contents(path, "keras-weights-h5", "Keras 3, or tf.keras 2.12 or newer", weights=weights, ordered=False,
                        optimizers=optimizers, missing=missing)


_ROOTS = ("layers", "_layer_checkpoint_dependencies", "_functional")  # groups of a model that hold its layers


def numbered_arrays(group, hdf5):
    """Returns [("", handle)] of the arrays that are stored under the numbers 0, 1, ..."""
    count = len(group)
    if count > MAX_ENTRIES or set(group.keys()) != set(map(str, range(count))):
        raise FileError("{}: variables are numbered 0, 1, ...; the file has {}".format(
            hdf5.path, ", ".join(sorted(group.keys())[:8])))
    return [("", hdf5.array(group, str(place))) for place in range(count)]


def _collect_arrays(group, path, hdf5, weights, depth):
    """Collects the arrays in all `vars` groups below a group."""
    if depth > MAX_DEPTH or len(weights) > MAX_ENTRIES:
        raise FileError("{} has groups nested deeper, or more arrays, than a model can have".format(hdf5.path))
    for name in group:
        if not hasattr(hdf5.find(group, name), "keys"):
            continue
        inner = hdf5.group(group, name)
        if name == "vars":
            for place in sorted(inner, key=lambda place: (len(place), place)):
                handle = hdf5.array(inner, place)
                weights.append(Weight("/".join(path + (place,)), handle, True, "/".join(path)))
        else:
            _collect_arrays(inner, path + (() if name in _ROOTS else (str(name),)), hdf5, weights, depth + 1)
