"""HDF5 files: bounded and safe access to what is in them, and new values for their arrays."""
from __future__ import absolute_import, division, print_function

import io
import shutil

import numpy as np

from everstep.compat.files.contents import Handle, Stored, as_file_errors, chunks, size_of
from everstep.compat.files.exact import cast_exactly
from everstep.compat.files.open_file import OpenFile, ProcessLock, select
from everstep.compat.files.replacing import replacing
from everstep.errors import FileError, UnsupportedError

MAX_ENTRIES = 1 << 17
MAX_RATIO, MAX_SMALL = 20, 1 << 26
SIGNATURE, MAX_USER_BLOCK = b"\x89HDF\r\n\x1a\n", 1 << 24
AHEAD = 1 << 14  # bytes that are read at once, where HDF5 asks for a few


def is_it(path, start, end):
    """Returns whether a file is HDF5. What a user put before it, its user block, has 512 bytes, 1024, or so on."""
    if start == SIGNATURE:
        return True
    with io.open(path, "rb") as file:
        offset, found = 512, start
        while found and found != SIGNATURE and offset <= MAX_USER_BLOCK:
            file.seek(offset)
            offset, found = 2 * offset, file.read(len(SIGNATURE))
    return found == SIGNATURE


def read_in(window, read):
    """Returns `read(hdf5)` of the Hdf5 in a Window.

    It takes a file, not a path: for a path that is open already, HDF5 returns the old contents even if the file
    changed.
    """
    with as_file_errors(window.path):
        hdf5 = None
        try:
            hdf5 = Hdf5(window)
            return read(hdf5)
        except BaseException:
            if hdf5 is not None:
                hdf5.file.close()
            window.close()
            raise


def whole(path, max_bytes=None):
    """Returns a file as a Window."""
    file = OpenFile(path)
    return Window(file, 0, file.size, bound_of(file.size, max_bytes))


def stored(path, max_bytes=None):
    """Returns (name of the container, [Stored])."""
    return "HDF5", read_in(whole(path, max_bytes), lambda hdf5: stored_in(hdf5, None))


def stored_in(hdf5, checksum):
    """Returns the list of Stored in an HDF5 file. `checksum` is of the whole file, or None."""
    arrays, own = [], "none"
    for name, dataset in hdf5.arrays():
        is_numeric = getattr(dataset, "dtype", np.dtype("O")).kind in "fiuVb"
        handle = hdf5.array(hdf5.file, name) if is_numeric else None
        if checksum is None and is_numeric:
            own = "Fletcher-32" if dataset.fletcher32 else "Adler-32" if dataset.compression == "gzip" else "none"
        arrays.append(Stored(name, handle, checksum or own))
    return arrays


def write(path, template, values, moved):
    """Copies a file and replaces the values of some of its arrays.

    Args:
        values: {name of an array in the file: handle}.
        moved: a function, called repeatedly with the number of bytes written since the last call.
    """
    with replacing(path) as temporary:
        shutil.copyfile(template, temporary)
        fill(temporary, values, moved)


def fill(path, values, moved):
    """Writes values into the arrays of an existing file."""
    with import_h5py(path).File(path, "r+") as file:
        for name, handle in values.items():
            dataset = file[name]
            for selection, chunk in chunks(handle):
                dataset[selection] = cast_exactly(name, chunk, dataset.dtype.name)
                moved(chunk.nbytes)


def write_without(path, source, names, moved, attributes=()):
    """Copies a file without some arrays, and without the groups that have nothing else.

    Args:
        names: a set of the names of these arrays in the file.
        moved: a function, called repeatedly with the number of bytes written since the last call.
        attributes: the names of attributes of the file that are left out, too.
    """
    with replacing(path) as temporary:
        read_in(whole(source), lambda hdf5: copy_without(hdf5, temporary, names, moved, attributes))


def copy_without(hdf5, path, names, moved, attributes=()):
    """Writes what is in an open Hdf5 to a new file. The arguments are those of `write_without`."""
    arrays = list(hdf5.arrays())
    kept = _groups_of(key for key, dataset in arrays if dataset.name not in names)
    emptied = _groups_of(key for key, dataset in arrays if dataset.name in names) - kept
    seen = set()

    def copy(source, target, around):
        if source.id in seen:
            raise FileError("{}: the group {} is in two places, which no Keras writes".format(hdf5.path, around))
        seen.add(source.id)
        _copy_attributes(hdf5, source, target, () if around else attributes)
        for name in source:
            item, key = hdf5.find(source, name), around + name + "/"
            if hasattr(item, "keys"):
                if key not in emptied:
                    copy(item, target.create_group(name), key)
            elif item.name not in names:
                hdf5.file.copy(item, target, name)
                moved(size_of(item) if getattr(item, "shape", None) is not None else 0)

    with import_h5py(path).File(path, "w") as new:
        copy(hdf5.file, new, "")


def _groups_of(keys):
    """Returns the set of the groups around arrays, each with a slash at its end."""
    return {key[: place + 1] for key in keys for place, letter in enumerate(key) if letter == "/"}


def _copy_attributes(hdf5, source, target, left_out):
    """Copies attributes as they are stored: old versions of Keras ask whether a text is bytes."""
    h5a = import_h5py(hdf5.path).h5a
    for name in source.attrs:
        if name not in left_out:
            key = name.encode("utf-8")
            old = h5a.open(source.id, key)
            value, new = np.empty(old.shape, old.dtype), h5a.create(target.id, key, old.get_type(), old.get_space())
            if value.size:
                old.read(value, mtype=old.get_type())
                new.write(value, mtype=old.get_type())


def import_h5py(path):
    """Returns h5py, or raises UnsupportedError with how to install it."""
    try:
        import h5py
    except ImportError:
        raise UnsupportedError("{} is an HDF5 file, which h5py reads: pip install everstep[files]".format(path))
    return h5py


def bound_of(size, max_bytes):
    """Returns the number of bytes that a file of this size may unpack to: what the user says, or else a default."""
    return max(MAX_SMALL, MAX_RATIO * size) if max_bytes is None else max_bytes


def too_large(path, size, bound):
    """Returns the FileError for a file that would unpack to more than allowed."""
    return FileError(
        "{} unpacks to {} bytes or more; at most {} are read, in case the file wants to fill the memory or the disk. "
        "If you trust it, give max_bytes= (--max-bytes)".format(path, size, bound)
    )


class Window(io.RawIOBase):
    """A part of an OpenFile, readable as a file.

    Args:
        bound: the largest total size of the arrays in it, in bytes.
    """

    def __init__(self, file, start, size, bound):
        super(Window, self).__init__()
        self.path, self.bound = file.path, bound
        self._file, self._start, self._size, self._place = file, start, size, 0
        self._ahead, self._ahead_place = b"", 0

    def readable(self):
        return True

    def seekable(self):
        return True

    def tell(self):
        return self._place

    def seek(self, place, whence=0):
        self._place = place + (0, self._place, self._size)[whence]
        return self._place

    def readinto(self, buffer):
        count = max(0, min(len(buffer), self._size - self._place))
        offset = self._place - self._ahead_place
        if not 0 <= offset <= len(self._ahead) - count:
            ahead = min(max(count, AHEAD), self._size - self._place)
            self._ahead, self._ahead_place, offset = self._file.read(self._start + self._place, ahead), self._place, 0
        buffer[:count] = self._ahead[offset : offset + count]
        self._place += count
        return count

    def read_array(self, offset, shape, dtype):
        """Does what `OpenFile.read_array` does."""
        return self._file.read_array(self._start + offset, shape, dtype)

    def close(self):
        self._file.close()
        super(Window, self).close()


class Hdf5(object):
    """Access to an HDF5 file: no other file is opened, and its arrays together are not larger than a bound.

    Args:
        window: a Window.
    """

    def __init__(self, window):
        self._h5py = import_h5py(window.path)
        self.file, self.window, self.path = self._h5py.File(window, "r"), window, window.path
        self.total = self._visits = 0
        self._lock = ProcessLock()

    def find(self, group, name):
        """Returns the object of this name in a group; None if there is none.

        Links to other names and other files are refused. Even asking h5py if such a name exists opens the other file.
        """
        h5py = self._h5py
        item = group.file if name.startswith("/") else group
        for part in filter(None, name.split("/")):
            link = item.get(part, getlink=True) if isinstance(item, h5py.Group) else None
            if link is None:
                return None
            if not isinstance(link, h5py.HardLink):
                raise FileError("{}: {} is a link, which no Keras writes and everstep does not follow: {}".format(
                    self.path, name, _describe_link(link)))
            item = item[part]
        return item

    def group(self, group, name):
        """Returns the group of this name, or None if there is none."""
        found = self.find(group, name)
        if found is not None and not hasattr(found, "keys"):
            raise FileError("{}: {} is not a group".format(self.path, name))
        self._visits += 1
        if self._visits > MAX_ENTRIES:
            raise FileError("{} has more groups than a model can have".format(self.path))
        return found

    def array(self, group, name):
        """Returns the handle of an array, or raises FileError if it is not safe to read."""
        dataset = self.find(group, name)
        if not isinstance(dataset, self._h5py.Dataset):
            raise FileError("{}: {} is {}".format(
                self.path, name, "missing" if dataset is None else "not an array"))
        dtype, shape = dataset.dtype, dataset.shape
        if getattr(dataset, "external", None) or getattr(dataset, "is_virtual", False) or shape is None:
            raise FileError("{}: {} is kept in another file".format(self.path, name))
        if dtype.kind not in "fiuVb":
            raise FileError("{}: {} holds {}, not numbers".format(self.path, name, dtype))
        size = size_of(dataset)
        if dataset.chunks is None and size > self.file.id.get_filesize():
            raise FileError("{}: {} says that it has {} bytes; the file has {}".format(
                self.path, name, size, self.file.id.get_filesize()))
        self.total += size
        if self.total > self.window.bound:
            raise too_large(self.path, self.total, self.window.bound)
        offset, row = self._offset(dataset, size), size // max(1, shape[0] if shape else 1)

        def read_rows(start, stop):
            return self.window.read_array(offset + start * row, (stop - start,) + tuple(shape[1:]), dtype)

        def read(selection):
            with as_file_errors(self.path):
                if offset is not None:
                    return select(selection, shape, read_rows)
                with self._lock:
                    return dataset[() if selection is Ellipsis else selection]

        return Handle(dataset.name, shape, dtype, read)

    def _offset(self, dataset, size):
        """Returns the place of an array in the file if it is stored in one piece as NumPy does; else None.

        Such an array is read without HDF5. HDF5 has one lock, which a thread may hold when another one forks, and then
        nobody opens it in the new process.
        """
        plain = dataset.chunks is None and dataset.id.get_storage_size() == size and not self.file.userblock_size
        if plain and dataset.id.get_type().equal(self._h5py.h5t.py_create(dataset.dtype)):
            return dataset.id.get_offset()
        return None

    def arrays(self):
        """Yields (name, dataset) of everything in the file but groups, wherever it is."""
        groups, seen = [("", self.file)], set()
        while groups:
            path, group = groups.pop()
            for name in group:
                item = self.find(group, name)
                if not hasattr(item, "keys"):
                    yield path + name, item
                elif item.id not in seen:  # a group can contain itself
                    seen.add(item.id)
                    groups.append((path + name + "/", item))


def _describe_link(link):
    return " in ".join(filter(None, [getattr(link, "path", ""), getattr(link, "filename", "")]))
