"""`Contents`, what every reader of a format returns: names, positions and arrays as stored, not yet interpreted."""
from __future__ import absolute_import, division, print_function

import contextlib
from collections import Counter, OrderedDict, namedtuple

import numpy as np

from everstep.compat.files.open_file import CHUNK_BYTES, LIBRARY_ERRORS
from everstep.errors import EverstepError, FileError


class Handle(object):
    """An array in a file that is read on demand."""

    def __init__(self, name, shape, dtype, read):
        self.name, self.shape, self.dtype = name, tuple(int(size) for size in shape), np.dtype(dtype)
        self._read = read  # read(selection); Ellipsis selects the whole

    def __array__(self, dtype=None, copy=None):
        value = self[Ellipsis]
        return value if dtype is None else value.astype(dtype, copy=False)

    def __getitem__(self, selection):
        value = np.asarray(self._read(selection))
        if selection is Ellipsis and value.shape != self.shape:
            raise FileError("{}: has shape {}; read were {}".format(self.name, self.shape, value.shape))
        return value

    def __repr__(self):
        return "<{} {} {}>".format(self.name, self.dtype, self.shape)


def handle_of(name, value):
    """Returns the handle of a number that is in memory."""
    array = np.asarray(value)
    return Handle(name, (), array.dtype, lambda selection: array[selection])


def product(sizes):
    """Returns the product of integers. Python's cannot overflow, as NumPy's can."""
    result = 1
    for size in sizes:
        result *= int(size)
    return result


def size_of(array):
    """Returns the size of an array or a handle in bytes."""
    return product(array.shape) * np.dtype(array.dtype).itemsize


def chunks(handle):
    """Yields (selection, values) of an array, some rows at a time, so that a large array is never all in memory."""
    if not handle.shape:
        yield Ellipsis, np.asarray(handle)
    if not handle.shape or 0 in handle.shape:  # an empty array can have very many rows
        return
    rows = max(1, CHUNK_BYTES * handle.shape[0] // max(1, size_of(handle)))
    for start in range(0, handle.shape[0], rows):
        selection = slice(start, start + rows)
        yield selection, np.asarray(handle[selection])


# A weight of a model. trains: False if it is frozen now, or in a model with an optimizer of its own; None if nothing
# trains it, such as a moving mean; True if it trains, or the file does not say. place: where its layer stands in the
# model, from the outermost to the innermost: a tuple of (chain, number). Of two places, the first pairs that differ
# decide: in one chain the lower number comes first, of two chains the file does not say. In the same place, weights
# are in their order.
Weight = namedtuple("Weight", "name handle trains place")
# The arrays that an optimizer stores by position. group: where in the file; entries: [(name or "", handle)].
Numbered = namedtuple("Numbered", "group entries")


# An array of a file, to be verified. handle: None if it holds no numbers; checksum: its kind, or "none".
Stored = namedtuple("Stored", "name handle checksum")


class Contents(namedtuple(
    "Contents", "path format writer version arrays weights optimizers config objects state missing"
)):
    """What a file holds, as it is stored. No optimizer is known here, and nobody changes it.

    Attributes:
        path, format: the format is a name of `formats.FORMATS`, or "live" for what a program holds.
        writer: the program that wrote it, for people.
        version: the version of Keras that wrote it, as text; "" if the file does not say.
        arrays: {name in the file: handle} of all arrays of numbers, in files that only name them.
        weights: [Weight] of the model.
        optimizers: [Numbered], the groups of optimizers, an outer one before the one inside.
        config: the config of the compiled optimizer, as the file has it: a dictionary, the name of a class, or None.
        objects: the object_graph.Graph of a file that says how objects refer to each other, or None.
        state: the arguments of a State, in everstep's own files; else None.
        missing: sentences on why no optimizer's state is in it.
    """

    __slots__ = ()

    def __new__(cls, path, format, writer="unknown", version="", arrays=(), weights=(), optimizers=(), config=None,
                objects=None, state=None, missing=()):
        return super(Contents, cls).__new__(
            cls, path, format, writer, version, OrderedDict(arrays), tuple(weights), tuple(optimizers), config, objects,
            state, tuple(missing))


@contextlib.contextmanager
def as_file_errors(path):
    """Turns the errors that libraries raise for a damaged file into FileError."""
    try:
        yield
    except EverstepError:
        raise
    except LIBRARY_ERRORS as error:
        raise FileError("{} is damaged, or not a file of its kind: {}: {}".format(path, type(error).__name__, error))


def numbered(names):
    """Returns the names with #0, #1, ... after equal ones."""
    seen, result, count = {}, [], Counter(names)
    for name in names:
        seen[name] = seen.get(name, -1) + 1
        result.append("{}#{}".format(name, seen[name]) if count[name] > 1 else name)
    return result
