"""Opens files for reading by position, from any thread and after a fork."""
from __future__ import absolute_import, division, print_function

import io
import os
import sys
import threading

import numpy as np

from everstep.compat.backends.arrays_in_memory import aligned_empty
from everstep.errors import FileError

CHUNK_BYTES = 1 << 24  # read or written at once
# What libraries raise for damaged files and full disks.
LIBRARY_ERRORS = (ArithmeticError, AttributeError, EnvironmentError, LookupError, MemoryError, RuntimeError, TypeError,
                  ValueError)


def as_path(path):
    """Returns a path as `str`. It may be text, bytes or an os.PathLike.

    Raises:
        TypeError: it is something else, such as an open file.
    """
    path = path.__fspath__() if hasattr(path, "__fspath__") else path
    if isinstance(path, str):
        return path
    if isinstance(path, bytes):
        return os.fsdecode(path)
    if not isinstance(path, type(u"")):
        name = getattr(path, "filename", getattr(path, "name", None))  # the first one is h5py.File's
        raise TypeError("a path is text, bytes or os.PathLike; got {!r}{}".format(
            path, ": give its path, {!r}".format(name) if hasattr(name, "split") else
            ": write what is in it to a file, and give that file's path" if hasattr(path, "read") else ""))
    try:
        return path.encode(sys.getfilesystemencoding() or "utf-8")
    except UnicodeError:  # Python 2 in the C locale
        return path.encode("utf-8")


class ProcessLock(object):
    """A lock for the threads of a process.

    A forked process has a lock that nobody holds, because the thread that held the old one does not exist there.
    """

    def __init__(self):
        self._locks = {}

    def __enter__(self):
        self._own().acquire()

    def __exit__(self, *error):
        self._own().release()

    def _own(self):
        return self._locks.setdefault(os.getpid(), threading.Lock())


class OpenFile(object):
    """A file that stays open, so that it can be read after another file took its name, or after it was deleted.

    Args:
        path: the file.
        file: the file, if it is open already.
    """

    def __init__(self, path, file=None):
        self._file = None
        try:
            self.path = as_path(path)
            if file is None and os.path.exists(self.path) and not os.path.isfile(self.path):
                raise FileError("{!r} cannot be read: it is not a regular file".format(self.path))
            self._file = io.open(self.path, "rb", buffering=0) if file is None else file
            self._status = self._state_of(self._file)
        except (OSError, IOError, TypeError, ValueError) as error:  # ValueError: a null character
            if isinstance(error, FileError):
                raise
            raise FileError("{!r} cannot be read: {}".format(path, error))
        self.size = self._status[0]
        self._place = os.path.abspath(self.path)  # the current folder may change
        self._lock, self._files = ProcessLock(), {os.getpid(): self._file}

    def __del__(self):
        self.close()

    def close(self):
        if self._file is not None:
            self._file.close()

    def error(self, problem):
        """Returns the FileError to raise for a problem with this file."""
        return FileError("{}: {}".format(self.path, problem))

    def read(self, offset, size):
        """Returns `size` bytes from `offset`, or raises FileError if the file does not have them."""
        if offset + size > self.size:
            raise self.error("the file is truncated, or the sizes in it are wrong")
        data = np.empty(size, np.uint8)
        self.read_into(data, offset)
        return data.tobytes()

    def read_array(self, offset, shape, dtype):
        """Returns the array that is stored at an offset, in C order and at an address that frameworks like."""
        array = aligned_empty(shape, dtype)
        self.read_into(array.reshape(-1).view(np.uint8), offset)
        return array

    def read_into(self, data, offset):
        """Fills an array of bytes from an offset, or raises FileError if the file does not have them."""
        if offset + data.size > self.size:
            raise self.error("the file is truncated, or the sizes in it are wrong")
        start = 0
        try:
            if self._state_of(self._file) != self._status:
                raise self.error("the file was changed after it was opened; open it again")
            while start < data.size:
                count = self._read_at(offset + start, data[start : start + CHUNK_BYTES])
                if not count:
                    raise self.error("the file became shorter while it was read")
                start += count
        except (OSError, IOError) as error:
            raise self.error("cannot be read: {}".format(error))

    @staticmethod
    def _state_of(file):
        """Returns what changes when somebody writes to an open file."""
        status = os.fstat(file.fileno())
        return status.st_size, status.st_mtime

    def _read_at(self, offset, data):
        """Fills the start of an array of bytes. Returns the number of bytes read; 0 at the end of the file."""
        if hasattr(os, "preadv"):
            return os.preadv(self._file.fileno(), [data], offset)
        with self._lock:  # seeking and reading in two calls is safe in one thread only
            if os.getpid() not in self._files:
                self._files[os.getpid()] = self._opened_again()
            file = self._files[os.getpid()]
            file.seek(offset)
            return file.readinto(data)

    def _opened_again(self):
        """Opens the same file once more, for a forked process: it shares the old position with its parent."""
        for path in (self._place, "/proc/self/fd/{}".format(self._file.fileno())):
            try:
                file = io.open(path, "rb", buffering=0)
            except (OSError, IOError):
                continue
            if os.path.sameopenfile(file.fileno(), self._file.fileno()):
                return file
            file.close()
        raise self.error("another file took its name, so that this forked process cannot read it; load it here")


def select(selection, shape, read_rows):
    """Returns what `array[selection]` does for an array of which rows can be read.

    Args:
        selection: a slice of rows needs only these rows; for others the whole array is read.
        shape: the shape of the array.
        read_rows: read_rows(start, stop) returns rows; of an array without axes, read_rows(0, 1) returns its one value.
    """
    rows = selection[0] if isinstance(selection, tuple) and selection else selection
    if shape and isinstance(rows, slice):
        start, stop, step = rows.indices(shape[0])
        if step == 1:
            values = read_rows(start, max(start, stop))
            return values[(slice(None),) + selection[1:]] if isinstance(selection, tuple) else values
    return (read_rows(0, shape[0]) if shape else read_rows(0, 1).reshape(()))[selection]
