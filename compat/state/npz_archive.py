"""Reads and writes the archive of a `.npz` file: where each member is, byte by byte.

A file is the one sequence of bytes that `write` makes of its header and arrays: members stored without compression, in
order, nothing between or behind them. So a reader knows every place and size from the header, has nothing to trust, and
allocates no more than the file has.
"""
from __future__ import absolute_import, division, print_function

import binascii
import io
import os
import struct
from collections import namedtuple

import numpy as np

from everstep.compat.state.replacing import replacing
from everstep.errors import FileError, StateError

HEADER_NAME = "everstep.json"
MAX_HEADER = 1 << 23
PIECE = 1 << 24  # bytes that are read or written at once

# Every member has the sizes and places of ZIP64, so that a large file is laid out as a small one.
_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END64, _LOCATOR, _END = struct.Struct("<4sQ2H2L4Q"), struct.Struct("<4sLQL"), struct.Struct("<4s4H2LH")
_VERSION, _DATE, _LARGE = 45, 33, 0xFFFFFFFF  # 33: the first day of 1980, so that equal states are equal files

_Member = namedtuple("_Member", "name start size offset")  # offset: of its data; start: of its local header


def write(path, text, arrays):
    """Writes a header's text and [(entry, handle)]. What was at `path` is replaced when all is written, or not at all.

    Raises:
        StateError: an array is not what its entry says, or the file cannot be written.
    """
    starts = [_npy_start(entry) for entry, _ in arrays]
    sizes = [len(text)] + [len(start) + size_of(entry) for (entry, _), start in zip(arrays, starts)]
    members, end = _layout(sizes)
    with replacing(path) as temporary, io.open(temporary, "wb") as file:
        crcs = [binascii.crc32(text) & _LARGE]
        file.write(_local(members[0], crcs[0]) + text)
        for member, start, (entry, handle) in zip(members[1:], starts, arrays):
            file.write(_local(member, 0) + start)
            crc = binascii.crc32(start)
            for piece in _pieces(handle, entry):
                file.write(piece)
                crc = binascii.crc32(piece, crc)
            crcs.append(crc & _LARGE)
            if file.tell() != member.offset + member.size:
                raise StateError("{} of the state has not the size that it says".format(member.name))
            file.seek(member.start)
            file.write(_local(member, crcs[-1]))
            file.seek(0, os.SEEK_END)
        file.write(_directory(members, crcs, end))
        file.flush()
        os.fsync(file.fileno())


class Stored(object):
    """An array in a file: `shape`, `dtype`, rows by `stored[a:b]`, the whole by `numpy.asarray(stored)`."""

    def __init__(self, file, name, shape, dtype):
        self.shape, self.dtype = shape, dtype
        self._file, self._name = file, name
        self._place = (0, 0)  # (where the numbers are, their bytes), which `File.check` finds
        self._start_crc = self._crc = 0  # the checksums of what stands before them and of all
        self._checked = False

    @property
    def ndim(self):
        return len(self.shape)

    def __len__(self):
        return self.shape[0]

    def __array__(self, dtype=None, copy=None):
        found = self._rows(0, self.shape[0]) if self.shape else self._rows(0, 1).reshape(())
        return found if dtype is None else found.astype(dtype, copy=False)

    def __getitem__(self, key):
        rows = key[0] if isinstance(key, tuple) and key else key
        if not self.shape or not isinstance(rows, slice):
            return np.asarray(self)[key]
        start, stop, step = rows.indices(self.shape[0])
        if step != 1:
            return np.asarray(self)[key]
        found = self._rows(start, max(start, stop))
        return found[(slice(None),) + key[1:]] if isinstance(key, tuple) else found

    def __repr__(self):
        return "<{} of {}: {} {}>".format(self._name, self._file.path, self.shape, self.dtype)

    def _rows(self, start, stop):
        self._check()
        row = self.dtype.itemsize * _product(self.shape[1:])
        place, size = self._place
        data = self._file.read(place + start * row, (stop - start) * row)
        return np.frombuffer(bytearray(data), self.dtype).reshape((stop - start,) + self.shape[1:])

    def _check(self):
        """Compares the checksum, once: rows alone have none."""
        if self._checked:
            return
        (place, size), crc = self._place, self._start_crc
        for offset in range(0, size, PIECE):
            crc = binascii.crc32(self._file.read(place + offset, min(PIECE, size - offset)), crc)
        if crc & _LARGE != self._crc:
            raise self._file.error("{} is damaged: its checksum does not fit".format(self._name))
        self._checked = True


class File(object):
    """A file that stays open: another one put in its place changes nothing for a State that was read from it."""

    def __init__(self, path):
        self.path = path
        self._file = None
        try:
            self._file = io.open(path, "rb", buffering=0)
            self.size = os.fstat(self._file.fileno()).st_size
        except (OSError, IOError, TypeError, ValueError) as error:  # ValueError: a null character
            raise FileError("{!r} cannot be read: {}".format(path, error))

    def __del__(self):
        if self._file is not None:
            self._file.close()

    def error(self, what):
        return FileError("{}: {}".format(self.path, what))

    def read(self, offset, size):
        if offset + size > self.size:
            raise self.error("the file is truncated, or the sizes in it are wrong")
        found = []
        try:
            self._file.seek(offset)
            while size:
                piece = self._file.read(min(size, PIECE))
                if not piece:
                    raise self.error("the file became shorter while it was read")
                found.append(piece)
                size -= len(piece)
        except (OSError, IOError) as error:
            raise self.error("cannot be read: {}".format(error))
        return b"".join(found)

    def member_text(self):
        """The header's bytes: what the first member holds."""
        start = _Member(HEADER_NAME, 0, 0, 0)
        length = len(_local(start, 0))
        if self.size < length or self.read(0, 4) != b"PK\3\4":
            raise self.error("this is no file that State.save wrote")
        found = self.read(0, length)
        crc, (size,) = _LOCAL.unpack(found[: _LOCAL.size])[6], struct.unpack("<Q", found[-8:])
        if found != _local(start._replace(size=size), crc):
            raise self.error("this is no file that State.save wrote: it does not begin with {}".format(HEADER_NAME))
        if size > MAX_HEADER:
            raise self.error("the header has {} bytes; more than {} are not read".format(size, MAX_HEADER))
        text = self.read(length, size)
        if binascii.crc32(text) & _LARGE != crc:
            raise self.error("the header is damaged: its checksum does not fit")
        return text

    def check(self, text, arrays):
        """Compares all but the header and the numbers with what `save` writes, and tells arrays where they are."""
        entries = [{"shape": array.shape, "dtype": array.dtype.str} for array in arrays]
        starts = [_npy_start(entry) for entry in entries]
        sizes = [len(start) + size_of(entry) for entry, start in zip(entries, starts)]
        members, end = _layout([len(text)] + sizes)
        crcs = [binascii.crc32(text) & _LARGE]
        wanted = end + len(_directory(members, [0] * len(members), end))
        if self.size != wanted:
            raise self.error(
                "the file is truncated, or more than its header says: it has {} bytes; needed are {}".format(
                    self.size, wanted
                )
            )
        for member, array, start in zip(members[1:], arrays, starts):
            length = member.offset - member.start
            found = self.read(member.start, length + len(start))
            crcs.append(_LOCAL.unpack(found[: _LOCAL.size])[6])
            if found != _local(member, crcs[-1]) + start:
                raise self.error("{} is not where the header says, or not of that kind".format(member.name))
            array._place = member.offset + len(start), member.size - len(start)
            array._start_crc, array._crc = binascii.crc32(start), crcs[-1]
        if self.read(end, wanted - end) != _directory(members, crcs, end):
            raise self.error("the directory of the archive is damaged")


def member_name(place):
    return "array_{}.npy".format(place)


def _product(sizes):
    found = 1
    for size in sizes:  # of Python's whole numbers, which have no largest
        found *= size
    return found


def size_of(entry):
    """The bytes of an array's numbers."""
    return _product(entry["shape"]) * int(entry["dtype"][-1])


def _npy_start(entry):
    """The bytes before the numbers of a `.npy` file."""
    shape = "".join("{}, ".format(size) for size in entry["shape"])
    shape = shape.rstrip() if len(entry["shape"]) == 1 else shape.rstrip(", ")
    text = "{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}".format(entry["dtype"], shape)
    text += " " * (-(10 + len(text) + 1) % 64) + "\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text.encode("ascii")


def _pieces(handle, entry):
    """The bytes of an array, some rows at a time."""
    shape, dtype = tuple(entry["shape"]), np.dtype(str(entry["dtype"]))
    if not shape:
        yield np.asarray(handle).astype(dtype).tobytes()
        return
    rows = max(1, PIECE // max(1, _product(shape[1:]) * dtype.itemsize))
    for start in range(0, shape[0], rows):
        piece = np.asarray(handle[start : start + rows])
        if piece.shape[1:] != shape[1:]:
            raise StateError("{} has rows of another shape than it says".format(entry["member"]))
        yield np.ascontiguousarray(piece, dtype).tobytes()


def _layout(sizes):
    """(members, where the directory begins) for the sizes of all members."""
    members, place = [], 0
    for number, size in enumerate(sizes):
        name = member_name(number - 1) if number else HEADER_NAME
        offset = place + _LOCAL.size + len(name) + 20
        members.append(_Member(name, place, size, offset))
        place = offset + size
    return members, place


def _local(member, crc):
    name, large = member.name.encode("ascii"), struct.pack("<2H2Q", 1, 16, member.size, member.size)
    fields = (b"PK\3\4", _VERSION, 0, 0, 0, _DATE, crc, _LARGE, _LARGE, len(name), len(large))
    return _LOCAL.pack(*fields) + name + large


def _directory(members, crcs, start):
    found = []
    for member, crc in zip(members, crcs):
        name = member.name.encode("ascii")
        large = struct.pack("<2H3Q", 1, 24, member.size, member.size, member.start)
        made_by = (3 << 8) + _VERSION  # 3: Unix, for the mode below
        fields = (b"PK\1\2", made_by, _VERSION, 0, 0, 0, _DATE, crc, _LARGE, _LARGE, len(name), len(large), 0, 0, 0)
        found.append(_CENTRAL.pack(*(fields + (0o600 << 16, _LARGE))) + name + large)
    directory = b"".join(found)
    end = start + len(directory)
    count = len(members)
    directory += _END64.pack(b"PK\6\6", 44, _VERSION, _VERSION, 0, 0, count, count, end - start, start)
    directory += _LOCATOR.pack(b"PK\6\7", 0, end, 1)
    return directory + _END.pack(b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, _LARGE, _LARGE, 0)
