"""Format "everstep": a State in one `.npz` file, as docs/state_format.md specifies."""
from __future__ import absolute_import, division, print_function

import json
from collections import OrderedDict

import numpy as np

from everstep.compat.files.contents import Contents, Stored
from everstep.compat.files.npz_archive import (
    MAX_HEADER,
    ArchiveFile,
    StoredArray,
    is_countable,
    member_name,
    size_in,
    write,
)
from everstep.errors import StateError

FORMAT, VERSION = "everstep-state", 1
DTYPES = frozenset("<f2 <f4 <f8 |i1 <i2 <i4 <i8 |u1 <u2 <u4 <u8".split())
MAX_ARRAYS, MAX_RANK, MAX_DEPTH, MAX_VALUES = 1 << 16, 32, 100, 1 << 22
INTEGERS = (int, type(1 << 64))  # Python 2 has two types
KEYS = frozenset("format version definition updates steps pending scalars slots variables".split())
OPTIONAL, LOSS_SCALE = frozenset(["ordered", "loss_scale"]), ("scale", "good_steps")


def save(state, path):
    """Writes a State. An existing file is replaced only once all is written.

    Raises:
        StateError: the format cannot hold something in the state, or the file cannot be written.
    """
    header, arrays = build_header(state)
    try:
        text = json.dumps(header).encode("ascii")
    except (TypeError, ValueError, RuntimeError) as error:
        raise StateError("the definition's config has something that JSON cannot hold: {}".format(error))
    if len(text) > MAX_HEADER or len(arrays) > MAX_ARRAYS:
        raise StateError(
            "the state has {} arrays, and names and settings of {} bytes; a file holds at most {} and {}".format(
                len(arrays), len(text), MAX_ARRAYS, MAX_HEADER
            )
        )
    write(path, text, arrays)


def is_it(path, start, end):
    """Returns True for a zip file; those of Keras come first in the table of formats."""
    return start[:4] == b"PK\x03\x04"


def read(path, max_bytes=None):
    """Returns the Contents of a file."""
    return Contents(path, "everstep", "everstep", state=load(path))


def stored(path, max_bytes=None):
    """Returns (name of the container, [Stored])."""
    parts = load(path)
    arrays = [("{}/{}".format(name, slot), handle)
              for name, slots in parts["slots"].items() for slot, handle in slots.items()]
    return "everstep", [Stored(name, handle, "CRC-32") for name, handle in arrays + list(parts["variables"].items())]


def load(path):
    """Returns the arguments of the State in a file. Its arrays are read on demand.

    Raises:
        FileError: the file is not a whole file of this format. The message says what is wrong with it.
    """
    file = ArchiveFile(path)
    text = file.header_text()
    header = parse_header(file, text)
    entries = []
    slots, variables = OrderedDict(), OrderedDict()
    for name, slot_entries in as_mapping(file, header["slots"], "slots").items():
        slots[name] = OrderedDict(
            (slot, _entry(file, entry, "{}/{}".format(name, slot), entries))
            for slot, entry in as_mapping(file, slot_entries, name).items()
        )
    for name, entry in as_mapping(file, header["variables"], "variables").items():
        variables[name] = _entry(file, entry, name, entries)
    file.check(text, entries)
    header.pop("format")
    header.pop("version")
    return dict(header, slots=slots, variables=variables)


def build_header(state):
    """Returns (header, [(entry, handle)]) of a State."""
    arrays = []

    def entry(label, handle):
        if not all(hasattr(handle, name) for name in ("shape", "dtype")):
            handle = np.asarray(handle)
        dtype = np.dtype("<f4") if handle.dtype.name == "bfloat16" else np.dtype(handle.dtype).newbyteorder("<")
        if dtype.str not in DTYPES:
            raise StateError("{} is of {}, which a file does not hold".format(label, handle.dtype))
        shape = [int(size) for size in handle.shape]
        if not is_countable(shape, dtype.itemsize):
            raise StateError("{} has the shape {}, which no array can have".format(label, shape))
        array_entry = OrderedDict([("member", member_name(len(arrays))), ("shape", shape), ("dtype", dtype.str)])
        arrays.append((array_entry, handle))
        return array_entry

    header = OrderedDict([("format", FORMAT), ("version", VERSION), ("definition", state.definition)])
    for name in ("updates", "steps", "pending"):
        header[name] = _as_count(getattr(state, name), "the state has {}".format(name))
    if not state.ordered:
        header["ordered"] = False
    try:
        if state.loss_scale is not None:
            header["loss_scale"] = OrderedDict((name, float(state.loss_scale[name])) for name in LOSS_SCALE)
        header["scalars"] = OrderedDict((native_str(name), float(value)) for name, value in state.scalars.items())
        header["slots"] = OrderedDict(
            (native_str(name), OrderedDict((native_str(slot), entry(slot, handle)) for slot, handle in slots.items()))
            for name, slots in state.slots.items()
        )
        header["variables"] = OrderedDict(
            (native_str(name), entry(name, handle)) for name, handle in state.variables.items()
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:  # ValueError: text that is not Unicode
        raise error if isinstance(error, StateError) else StateError("the state cannot be written: {}".format(error))
    return header, arrays


def _as_count(value, label, error=StateError):
    """Returns a count as an int, or None; raises `error` for anything else."""
    if value is not None:
        if isinstance(value, (bool, float)) or not hasattr(value, "__index__") or not 0 <= value < 1 << 63:
            raise error("{} = {!r}; needed is a count".format(label, value))
        value = int(value)
    return value


def parse_header(file, text):
    """Returns the header, with everything checked but the entries of arrays."""
    try:
        header = parse_json(text.decode("utf-8"), unique_keys)
    except (ValueError, RuntimeError, MemoryError) as error:  # RuntimeError: nested too deeply
        raise file.error("the header is not JSON in UTF-8: {}".format(error))
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise file.error("the header does not say that this is an {}".format(FORMAT))
    version = header.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise file.error("the header has no version")
    if version > VERSION:
        raise file.error(
            "the file is of version {} of the format; this everstep reads up to {}. Read it with a newer "
            "everstep".format(version, VERSION)
        )
    header = as_mapping(file, header, "the outer object")
    if set(header) - OPTIONAL != KEYS:
        raise file.error("the header has {}; needed are {}".format(", ".join(sorted(header)), ", ".join(sorted(KEYS))))
    if not isinstance(header["definition"], (dict, type(None))):
        raise file.error("the definition is not a config")
    try:
        header["definition"] = with_native_strings(header["definition"])
    except UnicodeError as error:
        raise file.error("the definition in the header has something that is not text: {}".format(error))
    except OverflowError as error:
        raise file.error("the definition in the header {}".format(error))
    if header.get("ordered", False) is not False:
        raise file.error("ordered is {!r}; it can only be false".format(header["ordered"]))
    if "loss_scale" in header:
        scale = as_mapping(file, header["loss_scale"], "loss_scale")
        if set(scale) != set(LOSS_SCALE) or not all(type(value) in (int, float) for value in scale.values()):
            raise file.error("loss_scale is {!r}; needed are the numbers {}".format(scale, " and ".join(LOSS_SCALE)))
        header["loss_scale"] = OrderedDict((name, float(scale[name])) for name in LOSS_SCALE)
    for name in ("updates", "steps", "pending"):
        header[name] = _as_count(header[name], "the header has {}".format(name), file.error)
    scalars = as_mapping(file, header["scalars"], "scalars")
    for name, value in scalars.items():
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise file.error("the scalar {} is {!r}; needed is a number".format(name, value))
    header["scalars"] = OrderedDict((name, float(value)) for name, value in scalars.items())
    return header


def as_mapping(file, mapping, name):
    """Returns an object of the header with native strings as keys."""
    if not isinstance(mapping, dict):
        raise file.error("{} in the header is {!r}; needed is an object".format(name, mapping))
    try:
        return OrderedDict((native_str(key), value) for key, value in mapping.items())
    except UnicodeError as error:
        raise file.error("{} in the header has a name that is not text: {}".format(name, error))


def _entry(file, entry, name, arrays):
    """Returns the handle of one array, and appends it to the list of all."""
    if not isinstance(entry, dict) or set(entry) != {"member", "shape", "dtype"}:
        raise file.error("{} in the header is {!r}; needed is member, shape and dtype".format(name, entry))
    shape, dtype = entry["shape"], entry["dtype"]
    if not isinstance(shape, list) or len(shape) > MAX_RANK:
        raise file.error("{} has the shape {!r}".format(name, shape))
    for size in shape:
        if not isinstance(size, INTEGERS) or isinstance(size, bool) or size < 0:
            raise file.error("{} has the shape {!r}".format(name, shape))
    if not isinstance(dtype, type(u"")) or dtype not in DTYPES:
        raise file.error("{} is of {!r}; a file holds {}".format(name, dtype, ", ".join(sorted(DTYPES))))
    if len(arrays) >= MAX_ARRAYS:
        raise file.error("more than {} arrays are not read".format(MAX_ARRAYS))
    if entry["member"] != member_name(len(arrays)):
        raise file.error("{} is in {!r}; needed is {}".format(name, entry["member"], member_name(len(arrays))))
    if size_in(entry) > file.size:
        raise file.error("{} has the shape {!r}, which is more than the file has bytes".format(name, shape))
    if not is_countable(shape, int(dtype[-1])):
        raise file.error("{} has the shape {!r}, which no array can have".format(name, shape))
    arrays.append(StoredArray(file, name, tuple(shape), np.dtype(str(dtype))))
    return arrays[-1]


def parse_json(text, object_pairs_hook=None):
    """Returns the value of a JSON text, or raises ValueError if it would take very long or much memory."""
    def bounded_int(digits):
        if len(digits) > 20:  # int() takes long for very many digits
            raise ValueError("a number has {} digits".format(len(digits)))
        return int(digits)

    if sum(map(text.count, ",[{")) > MAX_VALUES:  # an empty list takes 56 bytes of memory
        raise ValueError("it has more than {} values".format(MAX_VALUES))
    return json.loads(text, object_pairs_hook=object_pairs_hook, parse_int=bounded_int)


def unique_keys(pairs):
    """Returns an object of JSON as a dictionary; raises ValueError if a name stands twice in it."""
    result = OrderedDict(pairs)
    if len(result) < len(pairs):
        raise ValueError("a name stands twice in one object")
    return result


def native_str(text):
    """Returns text as `str`: on Python 2 its UTF-8 bytes. Raises UnicodeError for text that is not Unicode."""
    if not isinstance(text, type(u"")):
        text.decode("utf-8")
        return text
    encoded = text.encode("utf-8")  # raises for half of a surrogate pair
    return encoded if str is bytes else text


def with_native_strings(value, sequence=tuple, depth=0):
    """Returns a value of JSON with `str` for text, and with lists as another type."""
    if depth > MAX_DEPTH:
        raise OverflowError("has more than {} levels".format(MAX_DEPTH))
    if isinstance(value, dict):
        return {native_str(key): with_native_strings(inner, sequence, depth + 1) for key, inner in value.items()}
    if isinstance(value, list):
        return sequence(with_native_strings(inner, sequence, depth + 1) for inner in value)
    return native_str(value) if isinstance(value, type(u"")) else value
