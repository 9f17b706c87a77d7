"""Reads and writes the ZIP archive of a `.npz` file.

A file's bytes follow from its header and arrays: `write` stores the members uncompressed, in order, with nothing
between or after them. So a reader computes every offset and size from the header, trusts nothing else, and never
allocates more than the file's size.
"""
from __future__ import absolute_import, division, print_function

import binascii
import io
import os
import struct
from collections import namedtuple

import numpy as np

from everstep.compat.backends.arrays_in_memory import aligned_empty
from everstep.compat.files.contents import Handle, chunks, product
from everstep.compat.files.open_file import OpenFile, select
from everstep.compat.files.replacing import replacing
from everstep.errors import StateError

HEADER_NAME = "everstep.json"
MAX_HEADER = 1 << 24
BLOCK_BYTES = 1 << 18  # they stay in the processor's cache between the checksum and the file

# Every member has ZIP64 sizes and offsets, so that large and small files have the same layout.
_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END64, _LOCATOR, _END = struct.Struct("<4sQ2H2L4Q"), struct.Struct("<4sLQL"), struct.Struct("<4s4H2LH")
_VERSION, _DATE, _LARGE = 45, 33, 0xFFFFFFFF  # 33: 1980-01-01, a fixed date, so that equal states give equal files

_Member = namedtuple("_Member", "name start size offset")  # offset: of its data; start: of its local header


def write(path, text, arrays):
    """Writes a header's text and [(entry, handle)]. An existing file is replaced only once all is written.

    Raises:
        StateError: an array does not have the size in its entry, or the file cannot be written.
    """
    starts = [_npy_start(entry) for entry, _ in arrays]
    sizes = [len(text)] + [len(start) + size_in(entry) for (entry, _), start in zip(arrays, starts)]
    members, end = _layout(sizes)
    with replacing(path) as temporary, io.open(temporary, "wb") as file:
        crcs = [binascii.crc32(text) & _LARGE]
        file.write(_local(members[0], crcs[0]) + text)
        for member, start, (entry, handle) in zip(members[1:], starts, arrays):
            file.write(_local(member, 0) + start)
            crc = binascii.crc32(start)
            for block in _blocks(handle, entry):
                crc = binascii.crc32(block, crc)
                file.write(block)
            crcs.append(crc & _LARGE)
            if file.tell() != member.offset + member.size:
                raise StateError("{} of the state does not have the size that it says".format(member.name))
            file.seek(member.start)
            file.write(_local(member, crcs[-1]))
            file.seek(0, os.SEEK_END)
        file.write(_directory(members, crcs, end))


class StoredArray(Handle):
    """An array in a file whose checksum is compared once."""

    reads_new_arrays = True  # each read returns a new array, which its reader may keep

    def __init__(self, file, name, shape, dtype):
        self.name, self.shape, self.dtype, self._file = name, shape, dtype, file
        self._place = (0, 0)  # (offset of the numbers, their size in bytes), set by `ArchiveFile.check`
        self._start_crc = self._crc = 0  # checksums of the bytes before the numbers, and of all
        self._checked = False

    def _read(self, selection):
        return select(selection, self.shape, self._rows)

    def _rows(self, start, stop):
        shape = (stop - start,) + self.shape[1:]
        if not self._checked and shape in (self.shape, (1,) + self.shape):  # all of it: one read is enough
            array = aligned_empty(shape, self.dtype)
            self.verify(array.reshape(-1).view(np.uint8))
            return array
        self.verify()
        row = self.dtype.itemsize * product(self.shape[1:])
        return self._file.read_array(self._place[0] + start * row, shape, self.dtype)

    def verify(self, data=None):
        """Compares the checksum, once: it covers the whole array, so single rows cannot be checked.

        Args:
            data: bytes to read the numbers into; None forgets them.

        Raises:
            FileError: the array is damaged.
        """
        if self._checked:
            return
        (place, size), crc = self._place, self._start_crc
        buffer = np.empty(min(size, BLOCK_BYTES), np.uint8)
        for offset in range(0, size, BLOCK_BYTES):
            block = buffer[: size - offset] if data is None else data[offset : offset + BLOCK_BYTES]
            self._file.read_into(block, place + offset)
            crc = binascii.crc32(block.data, crc)
        if crc & _LARGE != self._crc:
            raise self._file.error("{} is damaged: its checksum does not match".format(self.name))
        self._checked = True


class ArchiveFile(OpenFile):
    """A file of `State.save`."""

    def header_text(self):
        """Returns the header: the contents of the first member."""
        start = _Member(HEADER_NAME, 0, 0, 0)
        length = len(_local(start, 0))
        if self.size < length or self.read(0, 4) != b"PK\3\4":
            raise self.error("this is not a file from State.save")
        local_header = self.read(0, length)
        crc, (size,) = _LOCAL.unpack(local_header[: _LOCAL.size])[6], struct.unpack("<Q", local_header[-8:])
        if local_header != _local(start._replace(size=size), crc):
            raise self.error("this is not a file from State.save: it does not begin with {}".format(HEADER_NAME))
        if size > MAX_HEADER:
            raise self.error("the header has {} bytes; more than {} are not read".format(size, MAX_HEADER))
        text = self.read(length, size)
        if binascii.crc32(text) & _LARGE != crc:
            raise self.error("the header is damaged: its checksum does not match")
        return text

    def check(self, text, arrays):
        """Compares the rest of the file, but for the arrays' numbers, with what `write` writes for this header.

        Also tells each array its place in the file.
        """
        entries = [{"shape": array.shape, "dtype": array.dtype.str} for array in arrays]
        starts = [_npy_start(entry) for entry in entries]
        sizes = [len(start) + size_in(entry) for entry, start in zip(entries, starts)]
        members, end = _layout([len(text)] + sizes)
        crcs = [binascii.crc32(text) & _LARGE]
        expected_size = end + len(_directory(members, [0] * len(members), end))
        if self.size != expected_size:
            raise self.error(
                "the file is truncated, or longer than its header says: it has {} bytes; needed are {}".format(
                    self.size, expected_size
                )
            )
        for member, array, start in zip(members[1:], arrays, starts):
            length = member.offset - member.start
            start_bytes = self.read(member.start, length + len(start))
            crcs.append(_LOCAL.unpack(start_bytes[: _LOCAL.size])[6])
            if start_bytes != _local(member, crcs[-1]) + start:
                raise self.error("{} is not where the header says, or has another shape or dtype".format(member.name))
            array._place = member.offset + len(start), member.size - len(start)
            array._start_crc, array._crc = binascii.crc32(start), crcs[-1]
        if self.read(end, expected_size - end) != _directory(members, crcs, end):
            raise self.error("the directory of the archive is damaged")


def member_name(place):
    """Returns the name of the member for the array at this position."""
    return "array_{}.npy".format(place)


def is_countable(shape, itemsize):
    """Returns True if NumPy can count the bytes of an array of this shape. It counts an axis of 0 as 1."""
    return product([itemsize] + [max(1, size) for size in shape]) < 1 << 63


def size_in(entry):
    """Returns the size of an entry's numbers in bytes."""
    return product(entry["shape"]) * int(entry["dtype"][-1])


def _npy_start(entry):
    """Returns the bytes before the numbers of a `.npy` file."""
    shape = "".join("{}, ".format(size) for size in entry["shape"])
    shape = shape.rstrip() if len(entry["shape"]) == 1 else shape.rstrip(", ")
    text = "{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}".format(entry["dtype"], shape)
    text += " " * (-(10 + len(text) + 1) % 64) + "\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text.encode("ascii")


def _blocks(handle, entry):
    """Yields the bytes of an array, some at a time."""
    shape, dtype = tuple(entry["shape"]), np.dtype(str(entry["dtype"]))
    if 0 in shape:  # the other axes can be very long
        return
    for _, values in chunks(handle if shape else np.asarray(handle)):
        if values.shape[1:] != shape[1:]:
            raise StateError("{} has rows of another shape than its entry says".format(entry["member"]))
        data = np.asarray(values, dtype, order="C").reshape(-1).view(np.uint8)
        for start in range(0, data.size, BLOCK_BYTES):
            yield data[start : start + BLOCK_BYTES].data


def _layout(sizes):
    """Returns (members, offset of the directory) for the sizes of all members."""
    members, place = [], 0
    for number, size in enumerate(sizes):
        name = member_name(number - 1) if number else HEADER_NAME
        offset = place + _LOCAL.size + len(name) + 20
        members.append(_Member(name, place, size, offset))
        place = offset + size
    return members, place


def _local(member, crc):
    """Returns the local header of a member."""
    name, large = member.name.encode("ascii"), struct.pack("<2H2Q", 1, 16, member.size, member.size)
    fields = (b"PK\3\4", _VERSION, 0, 0, 0, _DATE, crc, _LARGE, _LARGE, len(name), len(large))
    return _LOCAL.pack(*fields) + name + large


def _directory(members, crcs, start):
    """Returns the central directory and the end records."""
    records = []
    for member, crc in zip(members, crcs):
        name = member.name.encode("ascii")
        large = struct.pack("<2H3Q", 1, 24, member.size, member.size, member.start)
        made_by = (3 << 8) + _VERSION  # 3: Unix, for the mode below
        fields = (b"PK\1\2", made_by, _VERSION, 0, 0, 0, _DATE, crc, _LARGE, _LARGE, len(name), len(large), 0, 0, 0)
        records.append(_CENTRAL.pack(*(fields + (0o600 << 16, _LARGE))) + name + large)
    directory = b"".join(records)
    end = start + len(directory)
    count = len(members)
    directory += _END64.pack(b"PK\6\6", 44, _VERSION, _VERSION, 0, 0, count, count, end - start, start)
    directory += _LOCATOR.pack(b"PK\6\7", 0, end, 1)
    return directory + _END.pack(b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, _LARGE, _LARGE, 0)
