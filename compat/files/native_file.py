"""The result of every reader of a framework's file: names, positions and arrays as stored, not yet interpreted."""
from __future__ import absolute_import, division, print_function

import contextlib
import re
from collections import Counter, OrderedDict

import numpy as np

from everstep.compat.engine.step import ENGINE_SLOTS
from everstep.compat.files.open_file import CHUNK_BYTES, LIBRARY_ERRORS
from everstep.errors import EverstepError, FileError


class Handle(object):
    """An array in a file that is read on demand."""

    def __init__(self, name, shape, dtype, read):
        self.name, self.shape, self.dtype = name, tuple(int(size) for size in shape), np.dtype(dtype)
        self._read = read  # read(selection); Ellipsis selects the whole

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


def chunks(handle):
    """Yields (selection, values) of an array, some rows at a time, so that a large array is never all in memory."""
    if not handle.shape:
        yield Ellipsis, np.asarray(handle)
    if not handle.shape or 0 in handle.shape:  # an empty array can have very many rows
        return
    row_bytes = np.dtype(handle.dtype).itemsize
    for size in handle.shape[1:]:
        row_bytes *= size
    rows = max(1, CHUNK_BYTES // max(1, row_bytes))
    for start in range(0, handle.shape[0], rows):
        selection = slice(start, start + rows)
        yield selection, np.asarray(handle[selection])


class NativeFile(object):
    """A framework's file, as far as optimizers are concerned.

    Attributes:
        path, format: the format is a key of `files.FORMATS`.
        writer: the program that wrote it, for people.
        target: the optimizer API (a name in compat/targets/detect.py); None if the file does not say.
        class_name, config: the optimizer's; None if the file has none.
        entries: [(name, handle)], the optimizer's variables by position; a name is "" if the file has none.
        slots: {variable: {name in the file: handle}}, in files that name slots.
        optimizer_values: {name: handle}, the named values of the optimizer as a whole: counters, scalars and hypers
            (`beta1_power`, `iter`, `learning_rate`).
        variables: {name: handle}, the trainable weights of the model, as far as the file says.
        shapes: {variable: shape} of those whose slots go by position, under the names that were given.
        ordered: True if `variables` are in the model's order.
        counted: True if the file has a count of updates.
        scaling: the config of the LossScaleOptimizer around the optimizer; None if there is none or no config.
        loss_scale: {"scale": handle, "good_steps": handle} of a LossScaleOptimizer, if the file has them.
        copies: {name of an array: name of a second copy of it}.
        missing: sentences on why no state can be read.
        notes: sentences on what the file lacks that a state can do without.
    """

    def __init__(self, path, format, writer="unknown"):
        self.path, self.format, self.writer = path, format, writer
        self.target = self.class_name = self.config = None
        self.entries, self.slots, self.optimizer_values = [], OrderedDict(), OrderedDict()
        self.variables, self.shapes, self.ordered = OrderedDict(), {}, True
        self.scaling, self.loss_scale, self.copies = None, {}, {}
        self.counted, self.missing, self.notes = True, [], []


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


def check_has_state(native):
    """Raises FileError if the file holds no optimizer state."""
    if native.missing:
        raise FileError("{} has {}; there is no optimizer's state to read".format(
            native.path, "; ".join(native.missing)))


def check_floats(native, slots):
    """Raises FileError if a slot holds integers, such as a count that has the name of a slot."""
    for name, variable_slots in slots.items():
        for slot, handle in variable_slots.items():
            if slot not in ENGINE_SLOTS and np.dtype(handle.dtype).kind not in "fV":  # V: bfloat16
                raise FileError("{}: {} of {} holds {}; needed are floating point numbers".format(
                    native.path, slot, name, np.dtype(handle.dtype)))


def saver_slots(native, op):
    """Returns {variable: {number: handle}} of the slots whose names end with `op` or `op_<number>`."""
    keys, slots = dict(native.entries), OrderedDict()
    pattern = re.compile(r"^(.+)/{}(?:_(\d+))?$".format(re.escape(op)))
    for key, handle in native.entries:
        match = pattern.match(key)
        variable = match and variable_of(match.group(1), keys, handle.shape)
        if match:
            slots.setdefault(variable or match.group(1), {})[int(match.group(2) or 0)] = handle
    return slots


def variable_of(path, keys, shape=None):
    """Returns the variable in a slot's path, without the scopes around the optimizer; None if none fits."""
    parts = path.split("/")
    for place in range(len(parts)):
        name = "/".join(parts[place:])
        if name in keys and (shape is None or keys[name].shape == shape):
            return name
    return None
