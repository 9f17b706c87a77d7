"""Checks the index of a TensorFlow checkpoint before TensorFlow reads it.

TensorFlow verifies checksums, but ends the process if an entry with the right checksum makes no sense, and allocates
whatever an entry says. An index is a table of LevelDB: blocks of sorted keys and values, a block that lists the blocks,
and a footer that points to it (https://github.com/google/leveldb/blob/main/doc/table_format.md). Keys are names of
tensors, and values are protobuf messages (tensorflow/core/protobuf/tensor_bundle.proto).
"""
from __future__ import absolute_import, division, print_function

import os
import struct

from everstep.compat.files.contents import as_file_errors
from everstep.compat.files.open_file import OpenFile
from everstep.errors import FileError

# The footer: offset and length of two blocks as varints, padding, and a magic number.
_FOOTER_SIZE, TABLE_END, _BLOCK_TRAILER = 48, b"\x57\xfb\x80\x8b\x24\x75\x47\xdb", 5
_MAX_KEY, _MAX_RANK, _MAX_SHARDS, _MAX_SHARED = 1 << 16, 254, 1 << 17, 100
_STRING, _VARIANT = 7, 21
# The fields of BundleEntryProto in tensor_bundle.proto.
_DTYPE, _SHAPE, _SHARD, _OFFSET, _SIZE, _SLICES = 1, 2, 3, 4, 5, 7
# {number in types.proto: bytes of an element}
_ITEM_SIZES = {1: 4, 2: 8, 3: 4, 4: 1, 5: 2, 6: 1, 8: 8, 9: 8, 10: 1, 11: 1, 12: 1, 13: 4, 14: 2, 15: 2, 16: 2, 17: 2,
               18: 16, 19: 2, 22: 4, 23: 8, 24: 1, 25: 1, 29: 1, 30: 1}
# {number in types.proto: (its field in tensor.proto, bytes of an element or None for varints)}; others are in field 7.
_VALUES = {1: (5, 4), 2: (6, 8), 7: (8, None), 8: (9, 8), 9: (10, None), 10: (11, None), 14: (13, None), 18: (12, 16),
           19: (13, None), 22: (16, None), 23: (17, None)}
_LENGTHS = {1: 8, 5: 4}  # {kind of a field: bytes of its value}, where no number says it


def check_index(path, shards=()):
    """Checks the index of a checkpoint: every entry makes sense and points into its data file.

    Args:
        path: the checkpoint, without `.index`; a checkpoint of version 1 is one file.
        shards: the files of a checkpoint of version 1 that is in several.

    Returns:
        {data file: the tensor in it that is read with the least effort}.

    Raises:
        FileError: TensorFlow should not get this file.
    """
    if shards and len(shards) != int(shards[0][-5:]):
        raise FileError("{} is in {} files; only {} of them are here".format(path, int(shards[0][-5:]), len(shards)))
    smallest = {}
    for name in shards or [name for name in (path + ".index", path) if os.path.isfile(name)][:1]:
        with as_file_errors(name):
            file = OpenFile(name)
            try:
                if file.read(max(0, file.size - len(TABLE_END)), min(file.size, len(TABLE_END))) != TABLE_END:
                    raise file.error("the file is damaged, or not a checkpoint: it does not end as one")
                entries = _entries_of_table(file)
                has_index = name == path + ".index"
                smallest.update(_check_entries(path, file, entries) if has_index else
                                _check_first_version(file, entries))
            finally:
                file.close()
    return smallest


def _entries_of_table(file):
    """Returns [(key, value)] of a table."""
    footer, position, handles = bytearray(file.read(file.size - _FOOTER_SIZE, _FOOTER_SIZE)), 0, []
    for _ in range(2):
        handle, position = read_varints(footer, position, 2)
        handles.append(_checked_handle(file, handle))
    entries, end, last_key = [], 0, None
    for separator, value in _entries_of_block(file, handles[1]):
        start, length = _checked_handle(file, read_varints(value, 0, 2)[0])
        if start < end:
            raise file.error("the index is damaged: its blocks overlap")
        end = start + length
        block = _entries_of_block(file, (start, length))
        if block and last_key is not None and block[0][0] <= last_key or block and block[-1][0] > separator:
            raise file.error("the index is damaged: its names are not in order")
        last_key = separator
        entries.extend(block)
    return entries


def _checked_handle(file, handle):
    """Returns (offset, length) of a block that is in the file."""
    start, length = handle
    if start + length + _BLOCK_TRAILER > file.size - _FOOTER_SIZE:
        raise file.error("the file is damaged, or not a checkpoint: it has a pointer to {} bytes at {}, and {} in "
                         "all".format(length, start, file.size))
    return handle


def _entries_of_block(file, handle):
    """Returns [(key, value)] of a block, with all that a search in it relies on checked."""
    start, length = handle
    data = bytearray(file.read(start, length + 1))
    if data.pop():
        raise file.error("the index is compressed, which TensorFlow does not do to its checkpoints")
    count = struct.unpack("<I", bytes(data[-4:]))[0] if length >= 4 else 0
    end = length - 4 * (count + 1)
    if end < 0 or not count:
        raise file.error("the index is damaged: a block has no list of its entries")
    restarts = set(struct.unpack("<{}I".format(count), bytes(data[end : length - 4]))) - {end}
    entries, key, position, name_bytes = [], b"", 0, 0
    while position < end:
        start = position
        (shared, added, size), position = read_varints(data, position, 3)
        if shared > len(key) or added + size > end - position or shared + added > _MAX_KEY:
            raise file.error("the index is damaged: an entry is longer than its block")
        if start not in restarts or not shared:  # TensorFlow cannot find a restart entry whose key is shortened
            restarts.discard(start)
        last_key, key = key, key[:shared] + bytes(data[position : position + added])
        position += added
        if entries and key <= last_key:
            raise file.error("the index is damaged: its names are not in order")
        name_bytes += len(key)
        if name_bytes > _MAX_SHARED * length:  # in 3 bytes a name can repeat 65,000 characters of the name before it
            raise file.error("the index is damaged: its names are {} times as long as itself".format(_MAX_SHARED))
        entries.append((key, data[position : position + size]))
        position += size
    if restarts - {0}:
        raise file.error("the index is damaged: a search in it would not begin at an entry")
    return entries


def _check_entries(path, file, entries):
    """Checks the entries of an index. Returns {data file: the smallest tensor in it}."""
    if not entries or entries[0][0]:
        raise file.error("the index has no header")
    header = fields(entries[0][1])
    shards = last(header, 1, 0)
    if not 0 < shards <= _MAX_SHARDS or last(header, 2, 0):
        raise file.error("the index says that it is of {} data files{}".format(
            shards, ", with numbers in big-endian order" if last(header, 2, 0) else ""))
    smallest, sizes, parts, taken = {}, {}, {}, {}
    for key, value in entries[1:]:
        name = _describe(key)
        entry = fields(value)
        if len(entry.get(_SHAPE, ())) > 1:  # TensorFlow's protobuf would merge the shapes
            raise file.error("{} has several shapes".format(name))
        dtype, shard, offset, size = [last(entry, number, 0) for number in (_DTYPE, _SHARD, _OFFSET, _SIZE)]
        shape = last(entry, _SHAPE, b"")
        count = _element_count(file, name, shape)
        if dtype not in _ITEM_SIZES and dtype not in (_STRING, _VARIANT):
            raise file.error("{} is of type number {}, which no checkpoint has".format(name, dtype))
        if _SLICES in entry:  # a partitioned variable: its parts have entries of their own, which come first
            counts, own_parts = _check_slices(file, name, shape, entry[_SLICES]), parts.get(key, {})
            if len(counts) != len(own_parts) or own_parts != {
                    _part_key(key, part): (dtype, part_count) for part, part_count in zip(entry[_SLICES], counts)}:
                raise file.error("{} has parts of other places, sizes or types than it says".format(name))
            continue
        if key[:1] == b"\0":  # the name of the variable, and then the place of the part
            whole = key[1:].partition(b"\0\1")[0].replace(b"\0\xff", b"\0").replace(b"\xff\0", b"\xff")
            parts.setdefault(whole, {})[key] = dtype, count
        if shard >= shards:
            raise file.error("{} is in data file {} of {}".format(name, shard, shards))
        data_file = "{}.data-{:05d}-of-{:05d}".format(path, shard, shards)
        if data_file not in sizes:
            sizes[data_file] = os.path.getsize(data_file) if os.path.isfile(data_file) else None
        if sizes[data_file] is None:
            raise FileError("{} has no data file {}".format(path, data_file))
        if offset + size > sizes[data_file]:
            raise FileError("{} is truncated, or its index is damaged: {} has {} bytes at {}; the file has {}".format(
                data_file, name, size, offset, sizes[data_file]))
        taken[data_file] = taken.get(data_file, 0) + size
        if taken[data_file] > sizes[data_file]:
            raise file.error("its tensors share bytes: those in {} have {} bytes, and it has {}".format(
                data_file, taken[data_file], sizes[data_file]))
        if dtype in _ITEM_SIZES and size != count * _ITEM_SIZES[dtype]:
            raise file.error("{} has {} elements of {} bytes, in {} bytes".format(
                name, count, _ITEM_SIZES[dtype], size))
        if dtype == _STRING:
            _check_strings(data_file, name, count, offset, size)
        if dtype in _ITEM_SIZES and key[:1] != b"\0":
            smallest[data_file] = min(smallest.get(data_file, (size, name)), (size, name))
    return {data_file: name for data_file, (_, name) in smallest.items()}


def _element_count(file, name, shape):
    """Returns the number of elements of a TensorShapeProto."""
    axes = [fields(each) for each in fields(shape).get(2, ())]
    sizes, product = [last(axis, 1, 0) for axis in axes], 1
    for axis in axes:
        last(axis, 2, b"").decode("utf-8")  # TensorFlow ends the process if the name of an axis is not text
    for size in sizes[: _MAX_RANK + 1]:  # a product of very many takes long
        product *= max(size, 1)
    if len(sizes) > _MAX_RANK or last(fields(shape), 3, 0) or product >= 1 << 60:  # negative ones are over 2**63
        raise file.error("{} has a shape that no tensor can have: {}".format(name, tuple(sizes[:32])))
    return 0 if 0 in sizes else product


def _check_slices(file, name, shape, slices):
    """Checks that the parts of a variable are inside of it. Returns their numbers of elements."""
    sizes = [last(fields(each), 1, 0) for each in fields(shape).get(2, ())]
    counts = []
    for each in slices:
        extents = [fields(extent) for extent in fields(each).get(1, ())]
        places = [(last(extent, 1, 0), last(extent, 2, size)) for extent, size in zip(extents, sizes)]
        if len(extents) != len(sizes) or any(start + length > size for (start, length), size in zip(places, sizes)):
            raise file.error("{} has parts outside of its shape {}".format(name, tuple(sizes)))
        counts.append(1)
        for _, length in places:
            counts[-1] *= length
    return counts


def _check_strings(data_file, name, count, offset, size):
    """Checks the lengths of texts, which stand before their checksum and the texts themselves."""
    file = OpenFile(data_file)
    data, position, total = bytearray(file.read(offset, size)), 0, 0
    if count > size:
        raise file.error("{} has {} texts in {} bytes".format(name, count, size))
    for _ in range(count):
        (length,), position = read_varints(data, position)
        total += length
    if position + 4 + total != size:
        raise file.error("{} has texts of {} bytes in {}".format(name, total, size))


def _check_first_version(file, entries):
    """Checks a checkpoint of version 1, which has the tensors in its one table."""
    if not entries or entries[0][0]:
        raise file.error("the checkpoint has no header")
    tensors = {}
    for meta in fields(entries[0][1]).get(1, ()):
        for tensor in map(fields, fields(meta).get(1, ())):
            name, dtype, shape = _describe(last(tensor, 1, b"")), last(tensor, 3, 0), last(tensor, 2, b"")
            count = _element_count(file, name, shape)
            if dtype not in _ITEM_SIZES and dtype != _STRING:
                raise file.error("{} is of type number {}, which no checkpoint has".format(name, dtype))
            if count > file.size:  # each element takes at least one byte
                raise file.error("{} has {} elements, in a file of {} bytes".format(name, count, file.size))
            _check_slices(file, name, shape, tensor.get(4, ()))
            tensors[name] = dtype, shape
    for key, value in entries[1:]:
        data = fields(last(fields(value), 2, b""))
        name = _describe(last(data, 1, b""))
        if name not in tensors:
            raise file.error("{} has values, but no shape".format(name))
        dtype, shape = tensors[name]
        field, size = _VALUES.get(dtype, (7, None))
        needed = sum(_check_slices(file, name, shape, [last(data, 2, b"")]))
        if key != _part_key(last(data, 1, b""), last(data, 2, b"")):  # TensorFlow looks at the key alone
            raise file.error("the values of {} stand in place of those of {}".format(
                name, _describe(key[1:].partition(b"\0")[0])))
        count = 0
        for values in fields(last(data, 3, b"")).get(field, ()):
            if dtype == _STRING or isinstance(values, int):
                count += 1
            else:  # bytes of many numbers; the last byte of a varint is below 128
                count += len(values) // size if size else sum(byte < 128 for byte in values)
        if count != needed:
            raise file.error("{} has {} elements in a part of {}".format(name, count, needed))
    return {}


def _part_key(name, part):
    """Returns the key of a part of a variable, as TensorFlow's saved_tensor_slice_util.cc and ordered_code.cc make it.

    Args:
        name: bytes.
        part: a TensorSliceProto.
    """
    extents = [fields(extent) for extent in fields(part).get(1, ())]
    key = b"\0" + bytes(name) + b"\0\1" + (struct.pack("BB", 1, len(extents)) if extents else b"\0")
    for extent in extents:
        key += _signed_number(last(extent, 1, 0)) + _signed_number(last(extent, 2, -1))  # -1: all of the axis
    return key


def _signed_number(value):
    """Returns a number in a form that sorts: ones in front say how many bytes it has, then 0, then the number."""
    length = max(value, ~value).bit_length() // 7 + 1
    number = value + ((1 << length) - 1 << 7 * length) if value >= 0 else value + (1 << 7 * length)
    return bytes(bytearray(number >> 8 * place & 255 for place in reversed(range(length))))


def _describe(key):
    """Returns a key as text. The key of a part of a variable is not text alone."""
    return str(bytes(key).replace(b"\0", b"/").decode("ascii", "ignore"))


def read_varints(data, position, count=1):
    """Returns (the varints from a position on, the position after them)."""
    values = []
    while len(values) < count:
        value = shift = 0
        byte = 128
        while byte > 127:
            if shift > 63:
                raise ValueError("a number of more than 64 bits")
            byte = data[position]
            position += 1
            value |= (byte & 127) << shift
            shift += 7
        values.append(value)
    return values, position


def fields(data):
    """Returns {field number: [value]} of a protobuf message; values are integers and bytes."""
    result, position = {}, 0
    while position < len(data):
        (tag,), position = read_varints(data, position)
        if not 8 <= tag < 1 << 32:
            raise ValueError("a field of number {}".format(tag >> 3))
        kind, length = tag & 7, _LENGTHS.get(tag & 7)
        if kind == 0:
            (value,), position = read_varints(data, position)
        else:
            if kind == 2:
                (length,), position = read_varints(data, position)
            if length is None:
                raise ValueError("a field of kind {}".format(kind))
            if length > len(data) - position:
                raise ValueError("a field that is longer than its message")
            value = data[position : position + length]
            position += length
        result.setdefault(tag >> 3, []).append(value)
    return result


def last(message, number, default):
    """Returns the last value of a field, which is the one that counts in protobuf.

    It has the type of the default: a number or bytes.
    """
    value = message.get(number, [default])[-1]
    if isinstance(value, (int, type(1 << 64))) != isinstance(default, int):
        raise ValueError("field {} of a message is of another type".format(number))
    return value
