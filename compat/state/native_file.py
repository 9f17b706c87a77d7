"""What every reader of a framework's files gives: the file's own names, places and arrays, before they have roles."""
from __future__ import absolute_import, division, print_function

import contextlib
import re
from collections import OrderedDict

import numpy as np

from everstep.compat.state.npz_archive import PIECE
from everstep.errors import EverstepError, FileError


class Handle(object):
    """An array in a file, read when it is asked for."""

    def __init__(self, name, shape, dtype, read):
        self.name, self.shape, self.dtype = name, tuple(int(size) for size in shape), np.dtype(dtype)
        self._read = read  # of a selection; Ellipsis is the whole

    def __array__(self, dtype=None, copy=None):
        value = self[Ellipsis]
        return value if dtype is None else value.astype(dtype)

    def __getitem__(self, selection):
        value = np.asarray(self._read(selection))
        if selection is Ellipsis and value.shape != self.shape:
            raise FileError("{}: has shape {}; read were {}".format(self.name, self.shape, value.shape))
        return value

    def __repr__(self):
        return "<{} {} {}>".format(self.name, self.dtype, self.shape)


def pieces(handle):
    """(where, values) of an array, some rows at a time, so that a large one is never whole in memory."""
    if not handle.shape:
        yield Ellipsis, np.asarray(handle)
        return
    width = np.dtype(handle.dtype).itemsize
    for size in handle.shape[1:]:
        width *= size
    rows = max(1, PIECE // max(1, width))
    for start in range(0, handle.shape[0], rows):
        where = slice(start, start + rows)
        yield where, np.asarray(handle[where])


class NativeFile(object):
    """A file of a framework, as far as optimizers are concerned.

    Attributes:
        path, format: the format is a key of `files.FORMATS`.
        writer: what wrote it, for people.
        target: the optimizer API (a name in compat/targets/detect.py); None where the file does not say.
        class_name, config: of the optimizer; None where the file has none.
        entries: [(name, handle)], the optimizer's variables by position; names are "" where the file has none.
        slots: {variable: {name in the file: handle}}, where slots have names instead.
        own: {name: [handle, ...]}, what else the optimizer has by name (`beta1_power`, `iter`, `learning_rate`).
        variables: {name: handle}, the trainable weights of the model, as far as the file tells.
        ordered: whether `variables` are in the model's order.
        counted: whether there is a count of updates.
        missing: what stands in the way of a state, in words.
        notes: what a state is read without, in words.
    """

    def __init__(self, path, format, writer="unknown"):
        self.path, self.format, self.writer = path, format, writer
        self.target = self.class_name = self.config = None
        self.entries, self.slots, self.own = [], OrderedDict(), OrderedDict()
        self.variables, self.ordered = OrderedDict(), True
        self.counted, self.missing, self.notes = True, [], []


@contextlib.contextmanager
def reading(path):
    """Turns what libraries raise about a damaged file into our error."""
    try:
        yield
    except EverstepError:
        raise
    except (ArithmeticError, AttributeError, EnvironmentError, LookupError, MemoryError, RuntimeError, TypeError,
            ValueError) as error:
        raise FileError("{} is damaged, or no file of its kind: {}: {}".format(path, type(error).__name__, error))


def numbered(names):
    """Names, equal ones with #0, #1 behind."""
    seen, result = {}, []
    for name in names:
        seen[name] = seen.get(name, -1) + 1
        result.append("{}#{}".format(name, seen[name]) if names.count(name) > 1 else name)
    return result


def check_present(native):
    if native.missing:
        raise FileError("{} has {}; there is no optimizer's state to read".format(
            native.path, "; ".join(native.missing)))


def saver_slots(native, op):
    """{variable: {number: handle}} of the slots whose names end with `op`."""
    keys, found = dict(native.entries), OrderedDict()
    pattern = re.compile(r"^(.+)/{}(?:_(\d+))?$".format(re.escape(op)))
    for key, handle in native.entries:
        match = pattern.match(key)
        variable = match and variable_of(match.group(1), keys, handle.shape)
        if match:
            found.setdefault(variable or match.group(1), {})[int(match.group(2) or 0)] = handle
    return found


def variable_of(path, keys, shape=None):
    """The variable that a slot's name begins with, below the scope in which the optimizer stood."""
    parts = path.split("/")
    for place in range(len(parts)):
        name = "/".join(parts[place:])
        if name in keys and (shape is None or keys[name].shape == shape):
            return name
    return None
