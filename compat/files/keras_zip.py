"""`.keras` files: a zip of config.json, metadata.json and model.weights.h5."""
from __future__ import absolute_import, division, print_function

import contextlib
import io
import json
import re
import shutil
import struct
import tempfile
import zipfile
from collections import Counter, OrderedDict

from everstep.compat.files import hdf5, keras_config, keras_h5
from everstep.compat.files.contents import Weight, as_file_errors
from everstep.compat.files.hdf5 import Window, bound_of, too_large
from everstep.compat.files.keras_weights_h5 import kind_of
from everstep.compat.files.open_file import OpenFile
from everstep.compat.files.replacing import replacing
from everstep.errors import FileError

WEIGHTS, CONFIG, METADATA = "model.weights.h5", "config.json", "metadata.json"

# The names of the variables of common layers, in order.
_LAYERS = {
    "Dense": ("kernel", "bias"),
    "Embedding": ("embeddings",),
    "BatchNormalization": ("gamma", "beta", "moving_mean", "moving_variance"),
    "LayerNormalization": ("gamma", "beta"),
}
_LAYERS.update(dict.fromkeys(("Conv1D", "Conv2D", "Conv3D"), ("kernel", "bias")))
_OPTIONS = {"gamma": "scale", "beta": "center"}  # {name of a variable: the option without which it does not exist}


def is_it(path, start, end):
    """Returns True for a zip file of Keras, False for a file of `State.save`."""
    if start[:4] != b"PK\x03\x04":
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except Exception:  # zipfile raises many types for a damaged directory; the first member is whole, if any is
        with io.open(path, "rb") as file:
            names = [file.read(64)[30:].decode("latin-1")]
        return names[0].startswith((WEIGHTS, CONFIG, METADATA))
    return any(name.endswith((".json", ".h5")) and name != "everstep.json" for name in names)


def read(path, max_bytes=None):
    """Returns the Contents of a `.keras` file."""
    with as_file_errors(path), open_zip(path) as archive:
        config = keras_config.parse(read_text(archive, CONFIG, path), CONFIG, path)
        metadata = keras_config.parse(read_text(archive, METADATA, path), METADATA, path)
        version = str(metadata.get("keras_version", ""))
        contents = hdf5.read_in(open_weights(archive, path, max_bytes), keras_h5.read_open)
        compiled = config.get("compile_config")
        optimizer = compiled.get("optimizer") if isinstance(compiled, dict) else None
        missing = contents.missing
        if optimizer is None and not missing and not contents.optimizers[-1].entries:
            missing += ("a model that was saved without compiling it",)
        return contents._replace(format="keras", writer="Keras {}".format(version), version=version,
                                 weights=_named(contents.weights, config), config=optimizer, missing=tuple(missing))


def stored(path, max_bytes=None):
    """Returns (name of the container, [Stored])."""
    with open_zip(path) as archive:
        weights = open_weights(archive, path, max_bytes)
        for info in archive.infolist():
            verify_checksum(archive, info, path)
    return "keras", hdf5.read_in(weights, lambda file: hdf5.stored_in(file, "CRC-32 of the zip"))


def open_zip(path):
    """Returns an open zip file."""
    try:
        return zipfile.ZipFile(path)
    except Exception as error:  # a damaged directory raises many types: struct.error, NotImplementedError, ...
        raise FileError("{} is not a complete .keras file, which is a zip file: {}. It was cut short or damaged: copy "
                        "it again from where it was saved".format(path, error))


def find_member(archive, name, path):
    """Returns the ZipInfo of a member, or raises FileError if it is missing."""
    try:
        return archive.getinfo(name)
    except KeyError:
        raise FileError("{} is a zip file without {}, so it is not a .keras file; it has {}".format(
            path, name, ", ".join(archive.namelist()[:8]) or "nothing"))


def read_text(archive, name, path):
    """Returns the text of a small member."""
    info = find_member(archive, name, path)
    if info.file_size > keras_config.MAX_TEXT:
        raise too_large(path, info.file_size, keras_config.MAX_TEXT)
    with _member(archive, info, path) as file:
        return file.read(keras_config.MAX_TEXT).decode("utf-8")


@contextlib.contextmanager
def _member(archive, info, path):
    """Opens a member. While it is open, all errors are FileErrors."""
    try:
        with archive.open(info) as file:
            yield file
    except Exception as error:  # errors of zlib and zipfile have no common base
        raise FileError("{}: {} is damaged, or cannot be read: {}".format(path, info.filename, error))


def open_weights(archive, path, max_bytes=None):
    """Returns a Window of the weights: a part of the zip if they are stored uncompressed, else an unpacked copy."""
    packed = OpenFile(path)
    bound = bound_of(packed.size, max_bytes)
    total = sum(info.file_size for info in archive.infolist())
    if total > bound:
        raise too_large(path, total, bound)
    info = find_member(archive, WEIGHTS, path)
    if info.compress_type == zipfile.ZIP_STORED and not info.flag_bits & 1:
        verify_checksum(archive, info, path)
        header = packed.read(info.header_offset, 30)
        if header[:4] != b"PK\x03\x04":
            raise FileError("{} is damaged: {} is not where the zip says".format(path, WEIGHTS))
        name_length, extra_length = struct.unpack("<HH", header[26:30])
        return Window(packed, info.header_offset + 30 + name_length + extra_length, info.file_size, bound)
    unpacked = tempfile.TemporaryFile()  # its file is gone once nobody holds it
    with _member(archive, info, path) as file:
        _copy(file, unpacked, info.file_size)
    unpacked.flush()
    return Window(OpenFile(path, unpacked), 0, info.file_size, bound)


def verify_checksum(archive, info, path):
    """Reads a member once to verify its checksum: the HDF5 library may crash on damaged data."""
    with _member(archive, info, path) as file:
        while file.read(1 << 20):
            pass


def _copy(file, target, size):
    """Copies at most as many bytes as the zip declares."""
    while size > 0:
        chunk = file.read(min(size, 1 << 20))
        if not chunk:
            break
        target.write(chunk)
        size -= len(chunk)


def write(path, template, values, moved):
    """Does what `hdf5.write` does, for a `.keras` file. The zip is written anew, uncompressed."""
    def change(weights, unpacked):
        with weights, io.open(unpacked, "wb") as file:
            shutil.copyfileobj(weights, file, 1 << 20)
        hdf5.fill(unpacked, values, moved)

    _write_changed(path, template, change)


def write_without(path, source, names, moved):
    """Does what `hdf5.write_without` does, for a `.keras` file: the model is as if nobody had compiled it."""
    def change(weights, unpacked):
        hdf5.read_in(weights, lambda file: hdf5.copy_without(file, unpacked, names, moved))

    with open_zip(source) as archive:
        config = json.loads(read_text(archive, CONFIG, source), object_pairs_hook=OrderedDict)
    config.pop("compile_config", None)
    _write_changed(path, source, change, {CONFIG: json.dumps(config)})


def _write_changed(path, source, change, texts=()):
    """Writes a copy of a `.keras` file.

    Args:
        change: change(Window of the weights, path) writes the new weights to the path.
        texts: {name of a member: its new text}.
    """
    with replacing(path) as temporary, open_zip(source) as old:
        unpacked = temporary + ".h5"
        with as_file_errors(source):
            weights = open_weights(old, source)
        change(weights, unpacked)
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED, True) as archive:
            for name in old.namelist():
                if name == WEIGHTS:
                    archive.write(unpacked, WEIGHTS)
                else:
                    with as_file_errors(source):
                        content = dict(texts)[name] if name in dict(texts) else old.read(name)
                    archive.writestr(name, content)


def _named(weights, config):
    """Returns the weights with names after their layers, those of layers in the config first, in its order.

    Trained weights of one layer stay together. What the config does not show keeps the name and place of its group.
    """
    left = OrderedDict((weight.name, weight) for weight in weights)
    named, below = [], {}
    for key in left:
        for match in re.finditer("/", key):
            below.setdefault(key[: match.start()], []).append(key)
    for index, (path, layer) in enumerate(_layers(keras_config.layers_in(config), (), _numbers(left))):
        names = [name for name in _LAYERS.get(layer.class_name, ()) if layer.config.get(_OPTIONS.get(name), True)]
        for key in [key for key in below.get("/".join(path), ()) if key in left]:
            weight, rest = left.pop(key), key[len("/".join(path)) + 1 :]
            name = names[int(rest)] if rest.isdigit() and int(rest) < len(names) else rest
            named.append(Weight("{}/{}".format(layer.name or path[-1], name), weight.handle,
                                weight.trains and layer.trains, (("", index),) + weight.place[len(path) :]))
    return named + list(left.values())


def _numbers(names):
    """Returns {(path, kind): the numbers of the layers of a kind in a group, in order}; `dense` has number 0."""
    numbers = {}
    for name in names:
        parts = tuple(name.split("/"))
        for depth, part in enumerate(parts[:-1]):
            kind, number = kind_of(part)
            numbers.setdefault((parts[:depth], kind), set()).add(number)
    return {place: sorted(found) for place, found in numbers.items()}


def _layers(layers, path, numbers):
    """Yields (path in the file, Layer) of each layer of a model in order, also inside nested models."""
    kinds = [_snake_case(layer.class_name) for layer in layers]
    in_all, seen = Counter(kinds), Counter()
    for kind, layer in zip(kinds, layers):
        number, stored = seen[kind], numbers.get((path, kind), ())
        seen[kind] += 1
        if len(stored) == in_all[kind]:
            number = stored[number]  # Keras 2.13 leaves some out: dense, dense_2, dense_4
        layer_path = path + ("{}_{}".format(kind, number) if number else kind,)
        if isinstance(layer.config.get("layers"), list):
            for item in _layers(layer.layers, layer_path, numbers):
                yield item
        else:
            yield layer_path, layer


def _snake_case(name):
    """Returns a class name in snake case, which is how Keras names a layer's group."""
    name = re.sub(r"\W+", "", name)
    name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()
