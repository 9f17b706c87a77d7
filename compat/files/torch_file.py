"""Format "torch": files of `torch.save`, read without torch and without running the pickle that is in them.

A file is a zip whose `data.pkl` has the values and names the arrays, each a member `data/<key>` (torch 1.6 and newer:
https://github.com/pytorch/pytorch/blob/v2.9.0/torch/serialization.py), or five pickles with the arrays behind them.
"""
from __future__ import absolute_import, division, print_function

import binascii
import io
import struct
import zipfile
from collections import OrderedDict, namedtuple

import numpy as np

from everstep.compat.files import pickled
from everstep.compat.files.contents import (
    Contents,
    Handle,
    Numbered,
    Stored,
    Weight,
    as_file_errors,
    handle_of,
    product,
)
from everstep.compat.files.npz import MAX_DEPTH, MAX_RANK
from everstep.compat.files.npz_archive import BLOCK_BYTES, is_countable
from everstep.compat.files.open_file import OpenFile, select
from everstep.compat.files.pickled import Damaged, Global
from everstep.compat.files.safetensors import widened
from everstep.errors import FileError
from everstep.optimizers.contract.checks import TEXT

OLD_START = b"\x80\x02\x8a\nl\xfc\x9cF"  # the magic number of the old format, in a pickle
_OLD_MAGIC, _OLD_PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
MAX_TREE = 1 << 20  # values that are looked at for state_dicts; a pickle can name one value many times

BUFFERS = ("running_mean", "running_var", "num_batches_tracked")  # what a model's state_dict has beside parameters
# {torch's name of a type: NumPy's}; NumPy has no bfloat16, whose values are read as float32.
_TYPES = {"bfloat16": "u2", "bool": "?", "uint8": "u1"}
_TYPES.update(("{}{}".format(kind, 8 * size), "{}{}".format(kind[0], size))
              for kind, sizes in (("int", (1, 2, 4, 8)), ("float", (2, 4, 8)), ("complex", (8, 16))) for size in sizes)
_STORAGES = {"FloatStorage": "float32", "DoubleStorage": "float64", "HalfStorage": "float16", "BoolStorage": "bool",
             "BFloat16Storage": "bfloat16", "ByteStorage": "uint8", "CharStorage": "int8", "ShortStorage": "int16",
             "IntStorage": "int32", "LongStorage": "int64", "ComplexFloatStorage": "complex64",
             "ComplexDoubleStorage": "complex128", "UntypedStorage": "uint8"}

# Objects that people save beside state_dicts. Nothing here needs them, so they are read as None.
_IDLE = {"torch device", "argparse Namespace", "_codecs encode", "numpy dtype", "numpy ndarray"}
_IDLE.update("numpy.{}.multiarray {}".format(core, name)
             for core in ("core", "_core") for name in ("scalar", "_reconstruct"))

# slots: {parameter: [(slot, handle)]}, with parameters as in groups; groups: the param_groups, as they are.
OptimizerDict = namedtuple("OptimizerDict", "place slots groups")


def is_it(path, start, end):
    """Returns whether a file is of `torch.save`."""
    if start == OLD_START:
        return True
    if start[:4] != b"PK\x03\x04":
        return False
    with io.open(path, "rb") as file:  # torch writes it first, and a damaged file may have no directory
        header = file.read(30)  # https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT, 4.3.7
        return len(header) == 30 and file.read(*struct.unpack("<H", header[26:28])).endswith(b"data.pkl")


def read(path, max_bytes=None):
    """Returns the Contents of a file. Its `objects` are the OptimizerDicts in it."""
    optimizers, models = [], []  # type: list, list
    with as_file_errors(path):
        _search(_opened(path)[0], "", optimizers, models, [MAX_TREE], 0)
    missing = ()  # type: tuple
    if not optimizers:
        missing = ("no state_dict of an optimizer" + "".join(", but {} arrays of a model".format(len(tensors))
                                                             for _, tensors in models[:1]),)
    weights = _weights(models[0][1]) if len(models) == 1 else []
    groups = [Numbered(each.place, [("{}/{}".format(name, slot), handle) for name, slots in each.slots.items()
                                    for slot, handle in slots]) for each in optimizers]
    return Contents(path, "torch", "torch.save", weights=weights, optimizers=groups, objects=optimizers,
                    missing=missing)


def stored(path, max_bytes=None):
    """Returns (name of the container, [Stored])."""
    with as_file_errors(path):
        file = _opened(path)[1]
    return "torch", [Stored(str(key), each.array("bytes", "uint8"), "none" if each.crc is None else "CRC-32")
                     for key, each in file.storages.items()]


def _opened(path):
    """Returns (the value in a file, its _File)."""
    file = _File(path)
    try:
        tree = file.old_tree() if file.read(0, min(8, file.size)) == OLD_START else file.zip_tree()
        for each in file.storages.values():
            each.check()
    except Damaged as error:
        raise file.error("it is damaged, or not of torch.save: {}".format(error))
    return tree, file


class _Storage(object):
    """The bytes that one tensor or several lie in."""

    def __init__(self, file, type, key, size):
        self.file, self.type, self.key, self.size = file, type, key, size  # size: in bytes
        self.offset, self.crc, self._checked = -1, None, False  # -1: not found yet

    def check(self):
        if self.offset < 0:
            raise Damaged("the bytes of the array {} are missing".format(self.key))
        if self.offset + self.size > self.file.size:
            raise Damaged("the file ends in the middle of the array {}".format(self.key))

    def array(self, name, type):
        return _Tensor(self, name, type, 0, (self.size // np.dtype(_TYPES[type]).itemsize,), (1,))

    def verify(self):
        """Compares the checksum once, if the file has one."""
        crc = 0
        for start in range(0, self.size if self.crc is not None and not self._checked else 0, BLOCK_BYTES):
            crc = binascii.crc32(self.file.read(self.offset + start, min(BLOCK_BYTES, self.size - start)), crc)
        if self.crc is not None and not self._checked and crc & 0xFFFFFFFF != self.crc:
            raise self.file.error("the array {} is damaged: its checksum does not match".format(self.key))
        self._checked = True


class _Tensor(Handle):
    """A tensor in a file, which is read on demand."""

    def __init__(self, storage, name, type, start, shape, strides):
        self.storage, self.name, self.shape, self._type = storage, name, shape, type
        self.dtype = np.dtype("f4" if type == "bfloat16" else _TYPES[type])
        self._start, self._strides = start, strides
        self._stored = np.dtype(_TYPES[type]).newbyteorder(storage.file.order)
        sizes, step = [], 1
        for size in reversed(shape):
            sizes.append(step)
            step *= max(1, size)
        self._in_order = all(size < 2 or own == wanted for size, own, wanted in zip(shape, strides, sizes[::-1]))

    def _read(self, selection):
        self.storage.verify()
        if self._in_order:
            return select(selection, self.shape, self._rows)
        last = sum((size - 1) * stride for size, stride in zip(self.shape, self._strides))
        flat = self._at(self._start, (last + 1,))
        strides = [stride * self._stored.itemsize for stride in self._strides]
        view = np.lib.stride_tricks.as_strided(flat, self.shape, strides)
        return self._as_numbers(np.array(view, order="C"))[selection]

    def _rows(self, start, stop):
        shape = (stop - start,) + self.shape[1:]
        return self._as_numbers(self._at(self._start + start * product(self.shape[1:]), shape))

    def _at(self, start, shape):
        return self.storage.file.read_array(self.storage.offset + start * self._stored.itemsize, shape, self._stored)

    def _as_numbers(self, values):
        if self._type == "bfloat16":
            return widened(values)
        return values.astype(self.dtype, copy=False)


class _File(OpenFile):
    """A file of `torch.save`, open."""

    def __init__(self, path):
        super(_File, self).__init__(path)
        self.storages, self.order = OrderedDict(), "<"  # type: OrderedDict, str

    def zip_tree(self):
        """Returns the value in a zip file."""
        try:
            with zipfile.ZipFile(self.path) as archive:
                members = OrderedDict((each.filename, each) for each in archive.infolist())
        except Exception as error:  # a damaged directory raises many types
            raise self.error("it is no whole zip file: {}. It was cut short or damaged: copy it again from where it "
                             "was saved".format(error))
        root = next((name[: -len("data.pkl")] for name in members if name.endswith("data.pkl")), None)
        if root is None or root + "constants.pkl" in members:
            raise self.error("it is a TorchScript model, without the state of an optimizer: save that with torch.save("
                             "optimizer.state_dict(), path)")
        if root + "byteorder" in members and self._member(members[root + "byteorder"])[0] == b"big":
            self.order = ">"
        data, _ = self._member(members[root + "data.pkl"])
        tree, _ = pickled.load(data, 0, self._call, self._storage)
        for key, each in self.storages.items():
            info = members.get("{}data/{}".format(root, key))
            if info is not None and info.file_size >= each.size:
                each.offset, each.crc = self._data_of(info), info.CRC
                each.size = info.file_size
        return tree

    def old_tree(self):
        """Returns the value in a file of the old format: pickles, then for each array its size and its numbers."""
        data, at = self.read(0, min(self.size, pickled.MAX_BYTES)), 0
        parts = []
        for _ in range(5):
            part, at = pickled.load(data, at, self._call, self._storage)
            parts.append(part)
        magic, protocol, system, tree, keys = parts
        if (magic, protocol) != (_OLD_MAGIC, _OLD_PROTOCOL) or not isinstance(keys, list):
            raise Damaged("it is of another version of the old format")
        if isinstance(system, dict) and system.get("little_endian") is False:
            self.order = ">"
        for key in keys:
            count = struct.unpack("<q", self.read(at, 8))[0]
            storage, at = self.storages.get(key) if isinstance(key, TEXT) else None, at + 8
            if storage is None or count * np.dtype(_TYPES[storage.type]).itemsize != storage.size:
                raise Damaged("an array in it has another size than its tensors say")
            storage.offset, at = at, at + storage.size
        return tree

    def _data_of(self, info):
        """Returns where the data of a member begin."""
        header = self.read(info.header_offset, 30)
        if header[:4] != b"PK\x03\x04" or info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
            raise Damaged("{} is not stored as torch.save stores it".format(info.filename))
        return info.header_offset + 30 + sum(struct.unpack("<HH", header[26:30]))

    def _member(self, info):
        """Returns (the bytes of a small member, where they are)."""
        if info.file_size > pickled.MAX_BYTES:
            raise Damaged("{} has more than {} bytes".format(info.filename, pickled.MAX_BYTES))
        place = self._data_of(info)
        data = self.read(place, info.file_size)
        if binascii.crc32(data) & 0xFFFFFFFF != info.CRC:
            raise Damaged("the checksum of {} does not match".format(info.filename))
        return data, place

    def _storage(self, value):
        """Returns the _Storage that a pickle names."""
        if not isinstance(value, tuple) or len(value) not in (5, 6) or value[0] != "storage" or value[5:] not in (
                (), (None,)):
            raise Damaged("it has an array of a kind that is not known here")
        _, kind, key, _, count = value[:5]
        type = _STORAGES.get(kind.name) if isinstance(kind, Global) else None
        if type is None or not isinstance(key, TEXT) or not _is_count(count):
            raise Damaged("it has numbers of the type {}, which NumPy has not".format(getattr(kind, "name", "unknown")))
        size = count * np.dtype(_TYPES[type]).itemsize
        if size > self.size:
            raise Damaged("the array {} has more bytes than the file".format(key))
        storage = self.storages.setdefault(key, _Storage(self, type, key, size))
        if (storage.type, storage.size) != (type, size):
            raise Damaged("the array {} has two types or sizes".format(key))
        return storage

    def _call(self, function, arguments):
        """Returns what stands for an object in the pickle.

        Raises:
            FileError: the pickle wants another function called than those of tensors and dictionaries.
        """
        name = "{0.module} {0.name}".format(function)
        if name == "collections OrderedDict" and not arguments:
            return OrderedDict()
        if name in ("torch._utils _rebuild_parameter", "torch._utils _rebuild_parameter_with_state"):
            return arguments[0] if arguments else None
        if name == "torch Size":
            return arguments[0] if arguments else ()
        if name in ("torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_tensor"):
            return self._tensor(arguments[:4], None)
        if name == "torch._utils _rebuild_tensor_v3" and len(arguments) > 6:
            return self._tensor(arguments[:4], arguments[6])
        if name in _IDLE:
            return None
        raise self.error(
            "its pickle wants to call {0.module}.{0.name}, which is no part of a state_dict. Nothing was run. If you "
            "trust the file, load it in torch and save the state_dicts alone: torch.save({{\"model\": "
            "model.state_dict(), \"optimizer\": optimizer.state_dict()}}, path)".format(function))

    def _tensor(self, arguments, type):
        """Returns a _Tensor of (storage, first element, shape, strides)."""
        if len(arguments) != 4 or not isinstance(arguments[0], _Storage):
            raise Damaged("it has a tensor without an array")
        storage, start, shape, strides = arguments
        type = storage.type if type is None else type.name if isinstance(type, Global) else None
        if type not in _TYPES:
            raise Damaged("it has numbers of the type {}, which NumPy has not".format(type))
        if not (_is_count(start) and _are_counts(shape) and _are_counts(strides) and len(shape) == len(strides)):
            raise Damaged("it has a tensor of no shape")
        itemsize = np.dtype(_TYPES[type]).itemsize
        last = start + sum((size - 1) * stride for size, stride in zip(shape, strides))
        count, room = product(shape), storage.size // itemsize
        if not is_countable(shape, itemsize) or count and (last >= room or count > room):
            raise Damaged("it has a tensor of the shape {}, for which {} has no numbers".format(shape, storage.key))
        return _Tensor(storage, "data/{}".format(storage.key), type, start, shape, strides)


def _is_count(value):
    return isinstance(value, (int, type(1 << 64))) and not isinstance(value, bool) and 0 <= value < 1 << 62


def _are_counts(values):
    return isinstance(values, tuple) and len(values) <= MAX_RANK and all(map(_is_count, values))


def _search(tree, place, optimizers, models, left, depth):
    """Finds the state_dicts in a value.

    Args:
        optimizers, models: lists to append to: OptimizerDict, and (place, {name: tensor}).
        left: [how many values may still be looked at].
    """
    left[0] -= 1
    if left[0] < 0 or depth > MAX_DEPTH:
        raise FileError("the file nests more values than are looked at for an optimizer's state_dict")
    if isinstance(tree, dict) and isinstance(tree.get("state"), dict) and isinstance(tree.get("param_groups"), list):
        optimizers.append(_optimizer_dict(tree, place))
        return
    tensors = OrderedDict((name, each) for name, each in tree.items() if isinstance(each, _Tensor)) if isinstance(
        tree, dict) else {}
    if tensors and all(isinstance(name, TEXT) for name in tensors):
        models.append((place, tensors))
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, (list, tuple)) else ()
    for name, each in items:
        if isinstance(each, (dict, list, tuple)):
            _search(each, "{}/{}".format(place, name).lstrip("/"), optimizers, models, left, depth + 1)


def _optimizer_dict(tree, place):
    """Returns the OptimizerDict of a state_dict."""
    where = place or "the state_dict"
    for group in tree["param_groups"]:
        if not isinstance(group, dict) or not isinstance(group.get("params"), list) or not all(
                isinstance(key, TEXT) or _is_count(key) for key in group["params"]):
            raise FileError("{} has a group of parameters without their list".format(where))
    slots = OrderedDict()
    for name, values in tree["state"].items():
        if not isinstance(values, dict):
            raise FileError("{} has no dictionary of state for the parameter {}".format(where, name))
        slots[name] = [(slot, each if isinstance(each, _Tensor) else _number(slot, each))
                       for slot, each in values.items() if each is not None]
    return OptimizerDict(place, slots, tree["param_groups"])


def _number(slot, value):
    """Returns a handle of a number."""
    if isinstance(value, bool) or not isinstance(value, (int, float, type(1 << 64))) or not abs(value) < 1 << 62:
        raise FileError("its state has {} as {}, which is no array and no number".format(type(value).__name__, slot))
    return handle_of(slot, np.asarray(value, np.float64 if isinstance(value, float) else np.int64))


def _weights(tensors):
    """Returns [Weight] of a model's state_dict, its layers in their order. A shared weight counts once."""
    weights, seen, layers = [], set(), OrderedDict()  # type: list, set, OrderedDict
    for name, tensor in tensors.items():
        layer, _, last = name.rpartition(".")
        key = tensor.storage.key, tensor._start, tensor.shape
        is_buffer = last in BUFFERS or tensor.dtype.kind != "f"
        if product(tensor.shape) and key in seen:
            continue
        seen.add(key)
        place = (("", layers.setdefault(layer, len(layers))),)
        weights.append(Weight(name, tensor, None if is_buffer else True, place))
    return weights
