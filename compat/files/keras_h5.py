"""Keras's HDF5 files of whole models (`model.save("x.h5")`, every Keras), and of `save_weights` of Keras 1 and 2."""
from __future__ import absolute_import, division, print_function

import numpy as np

from everstep.compat.files import hdf5 as access
from everstep.compat.files import keras_config, keras_weights_h5
from everstep.compat.files.contents import Contents, Numbered, Weight
from everstep.compat.files.npz import native_str
from everstep.errors import FileError


def read(path, max_bytes=None):
    """Returns the Contents of an HDF5 file of any Keras."""
    return access.read_in(access.whole(path, max_bytes), read_open)


def write_without(path, source, names, moved):
    """Does what `hdf5.write_without` does, as `model.save(include_optimizer=False)`: without what was compiled."""
    access.write_without(path, source, names, moved, ("training_config",))


def read_open(hdf5):
    """Returns the Contents of an open HDF5 file."""
    is_model = "layer_names" in hdf5.file.attrs or hdf5.find(hdf5.file, "model_weights")
    return _read_model(hdf5) if is_model else keras_weights_h5.read_open(hdf5)


def _read_model(hdf5):
    path, file = hdf5.path, hdf5.file
    model = hdf5.group(file, "model_weights")
    group = file if model is None else model
    version = _text(file.attrs.get("keras_version", group.attrs.get("keras_version", "")))
    writer = "Keras {}".format(version) if version else "Keras before 2.0"
    weights = _weights(hdf5, group, keras_config.layers_in(_json(file.attrs, "model_config", path)))
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


def _weights(hdf5, group, layers):
    """Returns [Weight] of the model. Its layers are in its order.

    But Keras writes what trains in a model inside of it before the rest, so that there the config has the order.
    """
    layers = {layer.name: layer for layer in keras_config.innermost(layers) + layers}
    weights = []
    for number, name in enumerate(_names(group, "layer_names") + ["top_level_model_weights"]):
        inner, layer = hdf5.group(group, name), layers.get(name)
        stored = [] if inner is None else _names(inner, "weight_names")
        parts = keras_config.innermost(layer.layers) if layer and stored else []
        owners = _owners(stored, {part.name: index for index, part in enumerate(parts)})
        for each, owner in zip(stored, owners):
            trains = None if keras_config.is_statistic(each.split(":")[0]) else not layer or layer.trains and (
                owner is None or parts[owner].trains)
            scope = () if not any(one is not None for one in owners) else (
                ((each.rpartition("/")[0], 0),) if owner is None else (("", owner),))
            weights.append(Weight(each.split(":")[0], hdf5.array(inner, each), trains, (("", number),) + scope))
    return weights


def _owners(weights, layers):
    """Returns, for each name of a weight, the number of the layer that it is named after; None if there is none.

    Args:
        layers: {name: number}.
    """
    owners = []
    for name in weights:
        scopes = name.split("/")[:-1]
        while not scopes and "_" in name and layers:  # Keras 1: dense_1_W
            name = name.rpartition("_")[0]
            scopes = [name] if name in layers else []
        owners.append(next((layers[scope] for scope in reversed(scopes) if scope in layers), None))
    return owners


def _text(value):
    return value.decode("utf-8") if isinstance(value, bytes) else value


def _json(owner, name, path):
    """Returns the JSON value of an attribute, or None if it does not exist."""
    return keras_config.parse(_text(owner[name]), name, path) if name in owner else None


def _names(group, attribute):
    """Returns a list of names. Keras splits a list that is too long for one attribute over several."""
    if attribute in group.attrs:
        parts = [group.attrs[attribute]]
    else:
        parts = []
        while attribute + str(len(parts)) in group.attrs:
            parts.append(group.attrs[attribute + str(len(parts))])
    names = [_text(name) for part in parts for name in np.asarray(part).tolist()]
    if len(names) > access.MAX_ENTRIES:
        raise FileError("{} names are more than a file can have".format(len(names)))
    if len(set(names)) < len(names):
        raise FileError("{}: {} has a name twice".format(group.name, attribute))
    return [native_str(name) for name in names]
