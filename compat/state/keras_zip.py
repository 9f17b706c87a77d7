"""`.keras` files: a zip of config.json, metadata.json and model.weights.h5."""
from __future__ import absolute_import, division, print_function

import io
import json
import os
import re
import shutil
import struct
import tempfile
import zipfile
from collections import OrderedDict

from everstep.compat.state import keras_h5
from everstep.compat.state.native_file import reading
from everstep.compat.state.replacing import replacing
from everstep.compat.targets.construction import CONFIG_KEY
from everstep.errors import FileError

WEIGHTS, CONFIG, METADATA = "model.weights.h5", "config.json", "metadata.json"
MAX_RATIO = 200  # of what is unpacked to what is packed, where it is more than
MAX_SMALL = 1 << 26

# What the variables of common layers are called, in their order.
_LAYERS = {
    "Dense": ("kernel", "bias"),
    "Embedding": ("embeddings",),
    "BatchNormalization": ("gamma", "beta", "moving_mean", "moving_variance"),
    "LayerNormalization": ("gamma", "beta"),
}
_LAYERS.update(dict.fromkeys(("Conv1D", "Conv2D", "Conv3D"), ("kernel", "bias")))


def read(path):
    """The NativeFile of a `.keras` file."""
    with reading(path), _zip(path) as archive:
        config = keras_h5.plain(json.loads(text(archive, CONFIG, path)))
        metadata = keras_h5.plain(json.loads(text(archive, METADATA, path)))
        version = str(metadata.get("keras_version", ""))
        native = keras_h5.read_open(member(archive, path), path)
        native.format, native.writer = "keras", "Keras {}".format(version)
        _name_variables(native, config)
        compiled = config.get("compile_config")
        optimizer = compiled.get("optimizer") if isinstance(compiled, dict) else None
        if isinstance(optimizer, dict):
            keras_h5.take_config(native, optimizer, version)
        elif optimizer is not None:
            native.missing.append("an optimizer of a class that its config does not tell: {!r}".format(optimizer))
        elif not native.missing:
            native.missing.append("a model that was saved without compiling it")
        if native.target == "optimizer_v2" and not native.entries:
            native.missing[:] = ["the config of a legacy optimizer, {}, but nothing of its state, which this format "
                                 "never keeps; save .h5 instead".format(native.class_name)]
        if native.config is not None and CONFIG_KEY not in native.config and native.target == "optimizer_v2":
            native.target = "update_step"
        return native


def _zip(path):
    try:
        return zipfile.ZipFile(path)
    except Exception as error:  # a damaged directory raises what it likes: struct.error, NotImplementedError, ...
        raise FileError("{} is no whole zip file: {}".format(path, error))


def entry(archive, name, path):
    try:
        found = archive.getinfo(name)
    except KeyError:
        raise FileError("{} is a zip file without {}, so no .keras file; it has {}".format(
            path, name, ", ".join(archive.namelist()[:8]) or "nothing"))
    if found.file_size > MAX_SMALL and found.file_size > MAX_RATIO * max(found.compress_size, 1):
        raise FileError("{}: {} unpacks to {} bytes, {} times what it has".format(
            path, name, found.file_size, found.file_size // max(found.compress_size, 1)))
    return found


def text(archive, name, path):
    found = entry(archive, name, path)
    if found.file_size > MAX_SMALL:
        raise FileError("{}: {} has {} bytes".format(path, name, found.file_size))
    with _opened(archive, found, path) as file:
        try:
            return file.read(MAX_SMALL).decode("utf-8")
        except Exception as error:  # zlib's and zipfile's own
            raise FileError("{}: {} cannot be read: {}".format(path, name, error))


def _opened(archive, found, path):
    try:
        return archive.open(found)
    except Exception as error:
        raise FileError("{}: {} cannot be read: {}".format(path, found.filename, error))


def member(archive, path):
    """The weights as a file: a window on the zip where they are stored as they are, else unpacked beside."""
    found = entry(archive, WEIGHTS, path)
    if found.compress_type == zipfile.ZIP_STORED and not found.flag_bits & 1:
        _check(archive, found, path)
        file = io.open(path, "rb")
        file.seek(found.header_offset)
        header = file.read(30)
        if len(header) < 30 or header[:4] != b"PK\x03\x04":
            file.close()
            raise FileError("{} is damaged: {} is not where the zip says".format(path, WEIGHTS))
        name, extra = struct.unpack("<HH", header[26:30])
        return keras_h5.Window(file, found.header_offset + 30 + name + extra, found.file_size)
    unpacked = tempfile.TemporaryFile()
    with _opened(archive, found, path) as file:
        try:
            _copy(file, unpacked, found.file_size)
        except Exception as error:  # zlib's and zipfile's own
            unpacked.close()
            raise FileError("{}: {} cannot be unpacked: {}".format(path, WEIGHTS, error))
    return keras_h5.Window(unpacked, 0, found.file_size)


def _check(archive, found, path):
    """Reads a member once for its checksum: the HDF5 library may crash on what is damaged."""
    with _opened(archive, found, path) as file:
        try:
            while file.read(1 << 20):
                pass
        except Exception as error:  # zlib's and zipfile's own
            raise FileError("{}: {} is damaged: {}".format(path, found.filename, error))


def _copy(file, into, size):
    """No more than the zip says that there is."""
    while size > 0:
        piece = file.read(min(size, 1 << 20))
        if not piece:
            break
        into.write(piece)
        size -= len(piece)


def write(path, template, values, moved):
    """As `keras_h5.write`; a zip is written anew, its arrays stored as they are."""
    with replacing(path) as temporary, reading(template), _zip(template) as source:
        unpacked = temporary + ".h5"
        try:
            with io.open(unpacked, "wb") as file, member(source, template) as weights:
                shutil.copyfileobj(weights, file, 1 << 20)
            keras_h5.fill(unpacked, values, moved)
            with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED, True) as made:
                for name in source.namelist():
                    if name == WEIGHTS:
                        made.write(unpacked, WEIGHTS)
                    else:
                        made.writestr(name, source.read(name))
        finally:
            if os.path.exists(unpacked):
                os.remove(unpacked)


def _name_variables(native, config):
    """Weights by their layers' names, in the order of the config, where the file's own names can be told from it."""
    handles, named, ordered = dict(native.variables), OrderedDict(), True
    for path, layer in _layers(config, ()):
        names = _LAYERS.get(layer["class_name"])
        inside = sorted(key for key in handles if key.startswith(path + "/"))
        trains = layer["config"].get("trainable", True)
        for key in inside:
            rest = key[len(path) + 1 :]
            ordered = ordered and "/" not in rest
            place = int(rest) if rest.isdigit() else len(names or ())
            called = names[place] if names and place < len(names) else rest
            handle = handles.pop(key)
            if trains and called not in keras_h5._NOT_TRAINED:
                named["{}/{}".format(layer["config"].get("name", path), called)] = handle
    ordered = ordered and not handles
    named.update(handles)
    native.variables, native.ordered = named, ordered


def _layers(config, path):
    """(path in the file, config) of each layer of a model, in order, those of models inside it too."""
    inner = config.get("config") if isinstance(config, dict) else None
    layers = inner.get("layers") if isinstance(inner, dict) else None
    seen = {}
    for layer in layers if isinstance(layers, list) else ():
        if not isinstance(layer, dict) or not isinstance(layer.get("config"), dict):
            continue
        kind = _snake_case(str(layer.get("class_name")))
        seen[kind] = seen.get(kind, -1) + 1
        here = path + ("{}_{}".format(kind, seen[kind]) if seen[kind] else kind,)
        if isinstance(layer["config"].get("layers"), list):
            for found in _layers(layer, here):
                yield found
        else:
            yield "/".join(here), layer


def _snake_case(name):
    """As Keras names a layer's group after its class."""
    name = re.sub(r"\W+", "", name)
    name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()
