"""Format "safetensors": a State in the file that models in torch and JAX are kept in.

A file is the length of its header in 8 bytes, the header in JSON, and the numbers of all arrays one after another
(https://github.com/huggingface/safetensors, README, "Format"). The header's `__metadata__` has, under `everstep`, the
header of docs/state_format.md, in which each `member` is the name of an array.
"""
from __future__ import absolute_import, division, print_function

import io
import json
import struct
from collections import OrderedDict

import numpy as np

from everstep.compat.files.contents import Contents, Handle, Stored, as_file_errors, chunks, numbered, product
from everstep.compat.files.npz import (
    INTEGERS,
    MAX_ARRAYS,
    MAX_RANK,
    as_mapping,
    build_header,
    native_str,
    parse_header,
    parse_json,
    unique_keys,
)
from everstep.compat.files.npz_archive import MAX_HEADER, is_countable
from everstep.compat.files.open_file import OpenFile, select
from everstep.compat.files.replacing import replacing
from everstep.errors import StateError
from everstep.optimizers.contract.checks import TEXT

METADATA, KEY = "__metadata__", "everstep"
# {name of a type: NumPy's}; NumPy has no bfloat16, whose values are read as float32.
_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2",
          "I8": "|i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1"}
_NAMES = {numpys: name for name, numpys in _TYPES.items() if name != "BF16"}
_ALIGNED = 8


def save(state, path):
    """Writes a State. An existing file is replaced only once all is written.

    A variable's value has the variable's name, and a slot `<variable>/<slot>`. Arrays of bfloat16 stay of bfloat16.

    Raises:
        StateError: the format cannot hold something in the state, or the file cannot be written.
    """
    header, arrays = build_header(state)
    labels = ["{}/{}".format(name, slot) for name, slots in header["slots"].items() for slot in slots]
    arrays = [(name, entry, handle) for name, (entry, handle) in zip(
        numbered(labels + list(header["variables"])), arrays)]
    for name, entry, _ in arrays:
        entry["member"] = name
    # The widest numbers come first, so that all lie at an address that is a multiple of their size.
    arrays = sorted(arrays, key=lambda each: -_stored_dtype(each[2], each[1]).itemsize)
    directory, end = OrderedDict(), 0  # type: OrderedDict, int
    for name, entry, handle in arrays:
        dtype = _stored_dtype(handle, entry)
        size = product(entry["shape"]) * dtype.itemsize
        directory[name] = OrderedDict([
            ("dtype", "BF16" if _is_bfloat16(handle) else _NAMES[dtype.str]), ("shape", entry["shape"]),
            ("data_offsets", [end, end + size])])
        end += size
    try:
        directory[METADATA] = {KEY: json.dumps(header)}
        text = json.dumps(directory).encode("ascii")
    except (TypeError, ValueError, RuntimeError) as error:
        raise StateError("the definition's config has something that JSON cannot hold: {}".format(error))
    if len(text) > MAX_HEADER or len(arrays) > MAX_ARRAYS:
        raise StateError("the state has {} arrays, and names and settings of {} bytes; a file holds at most {} and "
                         "{}".format(len(arrays), len(text), MAX_ARRAYS, MAX_HEADER))
    text += b" " * (-len(text) % _ALIGNED)
    with replacing(path) as temporary, io.open(temporary, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, entry, handle in arrays:
            _write(file, name, entry, handle)


def _write(file, name, entry, handle):
    """Writes the numbers of an array."""
    before, dtype = file.tell(), _stored_dtype(handle, entry)
    for _, values in chunks(handle if len(handle.shape) else np.asarray(handle)):
        values = np.ascontiguousarray(values)
        values = values.view(np.uint16) if _is_bfloat16(handle) else values
        file.write(np.ascontiguousarray(values.astype(dtype, copy=False)).reshape(-1).view(np.uint8).data)
    if file.tell() - before != product(entry["shape"]) * dtype.itemsize:
        raise StateError("{} of the state does not have the size that it says".format(name))


def _is_bfloat16(handle):
    return np.dtype(handle.dtype).name == "bfloat16"


def _stored_dtype(handle, entry):
    return np.dtype("<u2" if _is_bfloat16(handle) else str(entry["dtype"]))


def is_it(path, start, end):
    """Returns whether a file is of this format: a length, then a JSON object."""
    if len(start) < 8 or not 2 <= struct.unpack("<Q", start)[0] < 1 << 40:
        return False
    with io.open(path, "rb") as file:
        return file.read(9)[8:] == b"{"


def read(path, max_bytes=None):
    """Returns the Contents of a file."""
    with as_file_errors(path):
        file = _File(path)
        arrays, header = file.arrays(), file.header
        if header is None:
            return Contents(path, "safetensors", arrays=arrays, missing=(
                "{} arrays, and no state that everstep wrote".format(len(arrays)),))
        return Contents(path, "safetensors", "everstep", state=_state(file, header, arrays))


def load(path):
    """Returns the arguments of the State in a file. Its arrays are read on demand.

    Raises:
        FileError: the file is not a whole file of this format, or has no state.
    """
    contents = read(path)
    if contents.state is None:
        raise OpenFile(path).error("has {}".format(contents.missing[0]))
    return contents.state


def stored(path, max_bytes=None):
    """Returns (name of the container, [Stored])."""
    with as_file_errors(path):
        return "safetensors", [Stored(name, each, "none") for name, each in _File(path).arrays().items()]


def _state(file, text, arrays):
    """Returns the arguments of a State, of everstep's header and {name: handle}."""
    header, used = parse_header(file, text), set()

    def array(entry, name):
        member = entry.get("member") if isinstance(entry, dict) else None
        handle = arrays.get(native_str(member)) if isinstance(member, type(u"")) else None
        if handle is None or list(handle.shape) != entry.get("shape") or handle.dtype.str != entry.get("dtype"):
            raise file.error("everstep's header has {}, and the file no such array of its shape and type".format(name))
        used.add(handle.name)
        return handle

    slots = OrderedDict()
    for name, entries in as_mapping(file, header["slots"], "slots").items():
        slots[name] = OrderedDict((slot, array(entry, "{}/{}".format(name, slot)))
                                  for slot, entry in as_mapping(file, entries, name).items())
    variables = OrderedDict((name, array(entry, name))
                            for name, entry in as_mapping(file, header["variables"], "variables").items())
    if used != set(arrays):
        raise file.error("everstep's header does not name the array {}".format(sorted(set(arrays) - used)[0]))
    parts = {name: value for name, value in header.items() if name not in ("format", "version")}
    return dict(parts, slots=slots, variables=variables)


class _File(OpenFile):
    """A file in this format, open. `header` is the text of everstep's header, or None; `arrays` sets it."""

    def arrays(self):
        """Returns {name: handle} of the arrays, in the order of their numbers."""
        length = struct.unpack("<Q", self.read(0, 8))[0]
        if length > MAX_HEADER:
            raise self.error("the header has {} bytes; more than {} are not read".format(length, MAX_HEADER))
        try:
            directory = parse_json(self.read(8, length).decode("utf-8"), unique_keys)
        except (ValueError, RuntimeError, MemoryError) as error:
            raise self.error("the header is not JSON in UTF-8: {}".format(error))
        directory = as_mapping(self, directory, "the header")
        metadata = as_mapping(self, directory.pop(METADATA, {}), METADATA)
        text = metadata.get(KEY)
        if not isinstance(text, (type(u""), type(None))):
            raise self.error("{} of {} is no text".format(KEY, METADATA))
        self.header = None if text is None else text.encode("utf-8")
        if len(directory) > MAX_ARRAYS:
            raise self.error("more than {} arrays are not read".format(MAX_ARRAYS))
        entries = sorted((self._entry(name, entry) for name, entry in directory.items()), key=lambda each: each[3:])
        arrays, at = OrderedDict(), 0
        for name, kind, shape, start, end in entries:
            if start != at:
                raise self.error("{} does not begin where the array before it ends".format(name))
            at = end
            arrays[name] = _Array(self, name, kind, shape, 8 + length + start)
        if 8 + length + at != self.size:
            raise self.error("the file is truncated, or longer than its header says: it has {} bytes; needed are "
                             "{}".format(self.size, 8 + length + at))
        return arrays

    def _entry(self, name, entry):
        """Returns (name, kind, shape, start, end) of an array."""
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise self.error("{} in the header has not the keys dtype, shape and data_offsets".format(name))
        kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not _are_counts(shape, MAX_RANK) or not _are_counts(offsets, 2) or len(offsets) < 2:
            raise self.error("{} has a shape or offsets that are no lists of counts".format(name))
        if not isinstance(kind, TEXT) or kind not in _TYPES:
            raise self.error("{} is of no type of {}".format(name, ", ".join(sorted(_TYPES))))
        itemsize = np.dtype(_TYPES[kind]).itemsize
        if not is_countable(shape, itemsize) or product(shape) * itemsize != offsets[1] - offsets[0]:
            raise self.error("{} has the shape {!r}, for which {!r} are not its bytes".format(name, shape, offsets))
        return name, str(kind), tuple(shape), offsets[0], offsets[1]


def _are_counts(values, most):
    return isinstance(values, list) and len(values) <= most and all(
        isinstance(each, INTEGERS) and not isinstance(each, bool) and each >= 0 for each in values)


class _Array(Handle):
    """An array in a file, which is read on demand."""

    def __init__(self, file, name, kind, shape, place):
        self.name, self.shape, self._file, self._type, self._place = name, shape, file, kind, place
        self.dtype = np.dtype("<f4" if kind == "BF16" else _TYPES[kind])

    def _read(self, selection):
        return select(selection, self.shape, self._rows)

    def _rows(self, start, stop):
        stored = np.dtype(_TYPES[self._type])
        shape = (stop - start,) + self.shape[1:]
        place = self._place + start * stored.itemsize * product(self.shape[1:])
        values = self._file.read_array(place, shape, stored)
        return widened(values) if self._type == "BF16" else values


def widened(values):
    """Returns the bits of bfloat16 numbers as float32, which holds them exactly."""
    return (values.astype(np.uint32) << 16).view(np.float32)
