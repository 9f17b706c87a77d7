"""Makes files of every format, whole and crafted ones, for tests and for fuzz.py.

What tests need of the inside of readers and writers, they get here.
"""
from __future__ import absolute_import, division, print_function

import binascii
import importlib
import io
import json
import os
import shutil
import struct
import zipfile
from collections import OrderedDict

import numpy as np
import pytest

import everstep
from everstep.compat.extras.event_file import _checksum as checksum  # noqa: F401
from everstep.compat.files import bundle, formats, npz_archive
from everstep.compat.files.bundle_index import OpenFile, _entries_of_table, check_index, read_varints  # noqa: F401
from everstep.compat.files.formats import FORMATS  # noqa: F401
from everstep.compat.files.object_graph import GRAPH  # noqa: F401
from everstep.file_facts import inspect  # noqa: F401


def read_varint(data, position):
    """Returns (the varint at a position, the position after it)."""
    values, position = read_varints(data, position)
    return values[0], position


def optional(name):
    """Returns a module, or None if it is not installed here."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


tensorflow, h5py = optional("tensorflow"), optional("h5py")
tf1 = getattr(getattr(tensorflow, "compat", None), "v1", tensorflow)  # TensorFlow with the names of TF 1
HDF5 = pytest.mark.skipif(h5py is None, reason="h5py reads HDF5")
TENSORFLOW = pytest.mark.skipif(tensorflow is None, reason="TensorFlow reads its checkpoints")
FILES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "files")
BUNDLES = ("tf-saver", "tf-object")
LENGTH, ARRAYS = 3000, 8


def handles_of(state):
    """Returns {(variable, slot): array or handle} of a state, in order; the slot of a variable's own value is None."""
    named = [((name, slot), handle) for name, slots in state.slots.items() for slot, handle in slots.items()]
    return OrderedDict(named + [((name, None), handle) for name, handle in state.variables.items()])


def arrays_of(state):
    return OrderedDict((key, np.asarray(handle)) for key, handle in handles_of(state).items())


# Files of real frameworks


def spelled(name, arguments):
    """Returns a call of an optimizer's class as text, such as "Adam(learning_rate=0.1)"."""
    return "{}({})".format(name, ", ".join("{}={!r}".format(str(key), arguments[key]) for key in sorted(arguments)))


class Fixture(object):
    def __init__(self, name):
        self.name, self.path = name, os.path.join(FILES, name)
        with io.open(self.path + ".json", encoding="utf-8") as file:
            self.facts = json.load(file)

    def __getattr__(self, name):
        if name not in self.facts:
            raise AttributeError(name)
        return self.facts[name]

    def how(self):
        """Returns the arguments that `read_checkpoint` needs."""
        if self.format not in BUNDLES + ("keras-weights-h5",):
            return {}
        if self.definition:
            return {"definition": everstep.Definition.from_config(self.definition)}
        return {"optimizer": spelled(self.optimizer, self.arguments)}

    def read(self):
        return everstep.read_checkpoint(self.path, **self.how())

    def names(self, state):
        """Returns {name in the fixture: name in the state}. In formats without names, matches by shape."""
        shapes = {name: np.shape(value) for name, value in self.variables.items()}
        return {name: next(n for n in state.slots if n == name or state.variables[n].shape == shape)
                for name, shape in shapes.items()}


def fixtures():
    for folder, _, names in sorted(os.walk(FILES)):
        for name in sorted(names):
            if name.endswith(".json"):
                yield Fixture(os.path.relpath(os.path.join(folder, name[: -len(".json")]), FILES))


# Files by hand


def read_bytes(path):
    with io.open(path, "rb") as file:
        return file.read()


def write_bytes(path, data):
    with io.open(path, "wb") as file:
        file.write(data)


def copy_bundle(source, path):
    """Copies a checkpoint, or a file of another kind."""
    folder, name = os.path.split(source)
    for other in os.listdir(folder):
        if (other == name or other.startswith(name + ".")) and not other.endswith(".json"):
            shutil.copyfile(os.path.join(folder, other), path + other[len(name) :])


def values(number):
    return np.arange(LENGTH * 4, dtype=np.float32).reshape(LENGTH, 4) + np.float32(100000 * number)


def write_hdf5(path, arrays, **options):
    with h5py.File(path, "w") as file:
        for number, array in enumerate(arrays):
            for name in ("layers/dense/vars/%d", "optimizer/vars/%d"):
                file.create_dataset(name % number, data=array, **options)


def write_zip(path, hdf5, how=zipfile.ZIP_STORED, config="{}"):
    with zipfile.ZipFile(path, "w", how) as archive:
        archive.writestr("config.json", config)
        archive.writestr("metadata.json", '{"keras_version": "3.0.0"}')
        archive.write(hdf5, "model.weights.h5")


def write(kind, path, arrays):
    """Writes arrays as a file of a kind. Returns a function that opens it and returns handles."""
    if kind == "npz":
        state = everstep.State(slots=OrderedDict(("w%d" % n, {"m": array}) for n, array in enumerate(arrays)))
        state.save(path)
        return lambda: [slots["m"] for slots in everstep.State.load(path).slots.values()]
    if kind == "tf":
        write_tensors(path, OrderedDict(("w%02d" % n, array) for n, array in enumerate(arrays)))
        return lambda: list(read_tensors(path).values())
    write_hdf5(path, arrays)
    if kind == "keras":
        os.rename(path, path + ".h5")
        write_zip(path, path + ".h5")
        os.remove(path + ".h5")
    return lambda: [handle for _, handle in formats.read(path).optimizers[-1].entries]


def write_tensors(path, tensors):
    """Writes a checkpoint with these tensors."""
    bundle.write(path, tensors, lambda count: None)


def read_tensors(path):
    """Returns {name: handle} of a checkpoint."""
    return bundle.read(path).arrays


def index_entries(path):
    """Returns [[key, value]] of the index of a checkpoint, or of one of version 1."""
    file = OpenFile(path)
    try:
        return [[key, bytes(value)] for key, value in _entries_of_table(file)]
    finally:
        file.close()


def writers(folder):
    """Yields (name, path, save) of every writer: save(path, number) writes a state with this number there."""
    def save_npz(path, number=1):
        everstep.State(updates=number, slots={"w": {"m": np.full(3, float(number))}}).save(path)

    yield "npz", os.path.join(str(folder), "run.npz"), save_npz
    for name, kind in _KERAS_WRITERS.items() if h5py is not None else ():
        template = os.path.join(FILES, "keras3.15-jax" if kind != "keras-h5" else "keras2.1-tf1.4", name)
        how = {"optimizer": "Adam(amsgrad=True)"} if kind == "keras-weights-h5" else {}
        source = everstep.read_checkpoint(template, **how)

        def save(path, number=1, source=source, kind=kind, template=template):
            slots = OrderedDict((variable, OrderedDict((slot, np.full(handle.shape, number, np.float32))
                                                       for slot, handle in each.items()))
                                for variable, each in source.slots.items())
            everstep.write_checkpoint(source.replace(updates=number, slots=slots), path, kind, template=template)

        yield kind, os.path.join(str(folder), name), save
    if tensorflow is not None:
        yield "tf-saver", os.path.join(str(folder), "run.ckpt"), lambda path, number=1: (
            write_tensors(path, {"w": np.full(3, number, np.float32)}))


_KERAS_WRITERS = OrderedDict([
    ("amsgrad.h5", "keras-h5"), ("amsgrad.keras", "keras"), ("amsgrad.weights.h5", "keras-weights-h5")])


def loaded_number(name, path):
    """Returns the number in a file of one of `writers`; None if there is no file; "mixed" if it is half written."""
    if name == "tf-saver":
        if bundle.find(path) is None:
            return None
        numbers = set(np.asarray(read_tensors(path)["w"]).tolist())
    else:
        how = {"optimizer": "Adam(amsgrad=True)"} if name == "keras-weights-h5" else {}
        state = everstep.read_checkpoint(path, **how)
        slots = arrays_of(state.replace(variables={})).values()
        numbers = {float(state.updates)}.union(*[array.ravel().tolist() for array in slots])
    return int(numbers.pop()) if len(numbers) == 1 else "mixed"


def bomb(tmp_path, how):
    """Returns the path of a small `.keras` file with 1.4 GB of zeros."""
    hdf5, path = str(tmp_path / "bomb.h5"), str(tmp_path / "bomb.keras")
    with h5py.File(hdf5, "w") as file:
        for number in range(2):
            if how == "one array under many names":
                file.require_group("optimizer/vars")
                first = file.create_dataset("layers/dense/vars/%d" % number, data=np.zeros(1 << 19, np.float32))
                for name in range(number * 300, number * 300 + 300):
                    file["optimizer/vars/%d" % name] = first
            else:
                file.create_dataset("layers/dense/vars/%d" % number, data=np.zeros((4, 2), np.float32))
                file.create_dataset("optimizer/vars/%d" % number, (1 << 20, 350 // 2), "f4", chunks=(1 << 10, 175),
                                    compression="gzip")
    write_zip(path, hdf5, zipfile.ZIP_DEFLATED)
    assert os.path.getsize(path) < 100000
    return path


# Crafted .npz


def npz_of(contents):
    """Returns a file as `State.save` writes it, with right places and checksums, of members of any contents."""
    members, end = npz_archive._layout([len(each) for each in contents])
    crcs = [binascii.crc32(each) & 0xFFFFFFFF for each in contents]
    data = b"".join(npz_archive._local(*item) + each for item, each in zip(zip(members, crcs), contents))
    return data + npz_archive._directory(members, crcs, end)


def deep(depth):
    config = {}
    for _ in range(depth):
        config = {"child": config}
    return config


# TensorFlow's index


def varint(value):
    value, result = value % (1 << 64), bytearray()
    while value > 127:
        result.append(value & 127 | 128)
        value >>= 7
    return bytes(result) + bytes(bytearray([value]))


def message(*pairs):
    """Returns a protobuf message of (field, number or bytes)."""
    return b"".join(
        varint(field << 3) + varint(value) if isinstance(value, int) else
        varint(field << 3 | 2) + varint(len(value)) + value for field, value in pairs
    )


def block(entries, restarts=(0,), kind=b"\0"):
    """Returns a block of a table of LevelDB, with its checksum; `kind` says how it is compressed."""
    data = b"".join(varint(0) + varint(len(key)) + varint(len(value)) + key + value for key, value in entries)
    data += struct.pack("<{}I".format(len(restarts) + 1), *(tuple(restarts) + (len(restarts),))) + kind
    return data + checksum(data)


def table(first, separator=b"zzz"):
    """Returns a table of LevelDB with one block of entries."""
    middle = block([])
    last = block([(separator, varint(0) + varint(len(first) - 5))])
    places = [len(first), len(middle) - 5, len(first) + len(middle), len(last) - 5]
    footer = b"".join(map(varint, places)).ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)
    return first + middle + last + footer


def write_index(path, entries, restart=0):
    write_bytes(path + ".index", table(block(entries, [restart])))
    write_bytes(path + ".data-00000-of-00001", b"\0" * 24)


HEADER = message((1, 1), (3, message((1, 1))))


def entry(dtype=1, sizes=(2, 3), shard=0, offset=0, size=24, more=()):
    shape = b"".join(message((2, message((1, length)))) for length in sizes)
    crc = varint(6 << 3 | 5) + checksum(b"\0" * 24)
    return message((1, dtype), (2, shape), (3, shard), (4, offset), (5, size), *more) + crc
