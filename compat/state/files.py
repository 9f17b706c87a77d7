"""`everstep.read_checkpoint`, `everstep.write_checkpoint`, and which format a file is of."""
from __future__ import absolute_import, division, print_function

import io
import os
import zipfile
from collections import OrderedDict, namedtuple

import numpy as np

from everstep.compat.state import bundle, identify, keras_h5, keras_zip, reading, writing
from everstep.compat.state.matching import Match, expanded, parsed
from everstep.compat.state.native_file import Handle
from everstep.compat.state.native_file import reading as guarded
from everstep.compat.state.state import State
from everstep.errors import EverstepError, FileError, StateError, UnsupportedError

FORMATS = OrderedDict([
    ("everstep", "everstep's own, .npz"),
    ("tf-saver", "checkpoints of tf.train.Saver"),
    ("tf-object", "checkpoints of tf.train.Checkpoint and of tf.keras's save_weights"),
    ("keras-h5", "models in HDF5, of every Keras"),
    ("keras", ".keras of Keras 3 and tf.keras 2.12 and newer"),
    ("keras-weights-h5", ".weights.h5 of Keras 3 and tf.keras 2.12 and newer"),
])
_READERS = {"keras-h5": keras_h5.read, "keras": keras_zip.read, "bundle": bundle.read}
_TABLE_END = b"\x57\xfb\x80\x8b\x24\x75\x47\xdb"  # of a checkpoint of version 1


Written = namedtuple("Written", "matches notes")  # [(name in the file, name in the state, how)], [sentence]


def find_format(path):
    """(how to read it, path) of a file, by what is in it.

    Raises:
        FileError: there is none, or none that everstep knows.
    """
    path = str(path)
    prefix = bundle.find(path)
    if prefix is not None:
        return "bundle", prefix
    if not os.path.isfile(path):
        raise FileError("there is no file or checkpoint {}{}".format(
            path, "; the directory has no checkpoint that TensorFlow wrote" if os.path.isdir(path) else ""))
    with guarded(path), io.open(path, "rb") as file:
        start = file.read(8)
        file.seek(0, os.SEEK_END)
        size = file.tell()
        file.seek(max(0, size - 8))
        end = file.read(8)
    if start == b"\x89HDF\r\n\x1a\n":
        return "keras-h5", path
    if start[:4] == b"PK\x03\x04":
        return ("keras" if _has_weights(path) else "everstep"), path
    if end == _TABLE_END:
        return "bundle", path
    raise FileError("{} is no file of a format that everstep knows: {}".format(
        path, "; ".join("{} ({})".format(*item) for item in FORMATS.items())))


def _has_weights(path):
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith((".json", ".h5")) and name != "everstep.json" for name in archive.namelist())
    except Exception:  # a damaged directory raises what it likes; the reader of our own format says what is wrong
        return False


def read_native(path):
    """The NativeFile of a framework's file; a State of our own."""
    kind, path = find_format(path)
    return State.load(path) if kind == "everstep" else _READERS[kind](path)


def read_checkpoint(path, definition=None, optimizer=None, updates=None, learning_rate=None, variables=None):
    """The state that a file has, of a stock optimizer or of one that everstep bound.

    Args:
        path: a file; of a TensorFlow checkpoint what `save` returned, or its directory. Its format is found by what is
            in it.
        definition: the definition that trained; needed where the file has no optimizer's config (all TensorFlow
            checkpoints, and `.weights.h5`). One that has the other form of momentum gets it rescaled.
        optimizer: instead, the stock optimizer that trained, as its API spells it: `"Adam"`, or
            `"MomentumOptimizer(learning_rate=0.1, momentum=0.9)"`. Arguments that neither it nor the file says have
            that class's own defaults; one without a default must be said.
        updates: how many updates were made, where the file does not say and the rule needs it.
        learning_rate: the rate in force, to rescale momentum with.
        variables: the names of the trained variables in the optimizer's order, where the file leaves it open.

    Returns:
        A State. Its arrays are handles: read, and checked, when they are asked for.

    Raises:
        FileError: the file is damaged, unknown, or has no optimizer's state; the message says which.
        StateError: it could be read in more than one way; the message says what to choose between.
    """
    native = read_native(path)
    if isinstance(native, State):
        return native
    with guarded(path):
        return reading.to_state(native, definition, optimizer, updates, learning_rate, variables)


def write_checkpoint(
    state,
    path,
    format,
    template=None,
    ours=False,
    learning_rate=None,
    rename=(),
    by_order=False,
    variables=None,
    moved=None,
    dry_run=False,
):
    """Writes a state as a file of a framework. What fails writes nothing.

    Args:
        state: a State.
        path: the file; of a TensorFlow checkpoint the path without `.index`, where none may be.
        format: "everstep", "tf-saver", "keras-h5", "keras" or "keras-weights-h5".
        template: for Keras's formats, a file of the same format that has the model and the optimizer to continue with,
            saved after a step. The new file is a copy of it with the state, and the weights where the state has them;
            the optimizer's settings, its learning rate too, are the template's.
        ours: for "tf-saver", whether slots are named as those of a definition bound to `tf.train` are; otherwise, as
            those of the stock optimizer that has such slots. For "keras-weights-h5", whether the template is of a bound
            definition, which such a file does not say.
        learning_rate: the rate in force, where momentum is rescaled; unless given, that of the state's definition.
        rename, by_order: how variables are matched with the template's: as for `restore`.
        variables: as for `read_checkpoint`, of the template.
        moved: called with the number of bytes that were written, again and again.
        dry_run: whether all is checked and nothing written.

    Returns:
        A Written: `matches`, how each variable was matched, and `notes`, what the file could not take, in words.

    Raises:
        StateError: the state does not fit the format or the template; the message says where.
        UnsupportedError: the format cannot be written here; the message says what to do instead.
    """
    moved = moved or (lambda count: None)
    if not isinstance(state, State):
        raise StateError("write_checkpoint takes an everstep.State; got {!r}".format(state))
    if format not in FORMATS:
        raise StateError("there is no format {!r}; there are {}".format(format, ", ".join(FORMATS)))
    if format == "tf-object":
        raise UnsupportedError(
            "a checkpoint of objects follows how the user's objects refer to each other, which a state does not know. "
            "Restore the state into the live optimizer, everstep.restore(optimizer, state, variables), and save there: "
            "tf.train.Checkpoint(model=model, optimizer=optimizer).save(path)"
        )
    if format in _WRITERS:
        how = (ours, learning_rate, rename, by_order, variables)
        return _write_into(state, path, format, template, how, moved, dry_run)
    if template is not None:
        raise StateError("a file of format {} needs no template".format(format))
    state, matches = renamed(state, rename)
    if format == "tf-saver":
        tensors = writing.saver_names(state, ours, learning_rate)
        bundle.check_new(path)
        if not dry_run:
            bundle.write(path, tensors, moved)
    elif not dry_run:
        _counting(state, moved).save(path)
    return Written(matches, [])


_WRITERS = {"keras-h5": keras_h5.write, "keras": keras_zip.write, "keras-weights-h5": keras_h5.write}


def _write_into(state, path, format, template, how, moved, dry_run):
    if template is None:
        raise StateError(
            "a {} file holds a model as well, which a state has not: give template= (--template), a file of that kind "
            "with the model and the optimizer to continue with, saved after a step".format(format)
        )
    native = read_native(template)
    if isinstance(native, State) or native.format != format:
        raise StateError("the template {} is of format {}, not {}".format(
            template, getattr(native, "format", "everstep"), format))
    with guarded(template):
        values, matches, notes = writing.fitted_to(native, state, *how)
    if not dry_run:
        _WRITERS[format](path, native.path, values, moved)
    return Written(matches, notes)


def renamed(state, rename):
    """(a state with other names of variables, by "OLD=NEW" patterns as `restore` takes them; its matches)"""
    new, how = OrderedDict((name, name) for name in state.slots), dict.fromkeys(state.slots, "name")
    for old, replacement, pattern in map(parsed, rename):
        hits = [name for name in new if pattern.match(name)]
        if not hits:
            raise StateError("no variable is called {!r}; there are {}".format(old, ", ".join(state.slots)))
        for name in hits:
            new[name], how[name] = expanded(pattern, old, replacement, name), "{}={}".format(old, replacement)
    if len(set(new.values())) < len(new):
        raise StateError("the patterns make equal names: {}".format(", ".join(sorted(new.values()))))
    slots = OrderedDict((new[name], found) for name, found in state.slots.items())
    values = OrderedDict((new.get(name, name), value) for name, value in state.variables.items())
    matches = [Match(new[name], name, how[name]) for name in new]
    return State(state.definition, state.updates, state.steps, state.pending, state.scalars, slots, values), matches


def _counting(state, moved):
    """A state that tells of what is read of its arrays."""

    def counted(handle):
        def read(selection):
            value = np.asarray(handle[selection])
            moved(value.nbytes)
            return value

        return Handle("array", handle.shape, handle.dtype, read)

    slots = OrderedDict((name, OrderedDict((slot, counted(found[slot])) for slot in found))
                        for name, found in state.slots.items())
    values = OrderedDict((name, counted(value)) for name, value in state.variables.items())
    return State(state.definition, state.updates, state.steps, state.pending, state.scalars, slots, values)


def size_of(state):
    """The bytes of all arrays of a state."""
    handles = list(state.variables.values()) + [handle for found in state.slots.values() for handle in found.values()]
    return sum(np.dtype(h.dtype).itemsize * int(np.prod(h.shape, dtype=np.float64)) for h in handles)


def inspect(path, definition=None, optimizer=None, updates=None, learning_rate=None, variables=None):
    """What is in a file, as a dictionary of plain values: for people see `everstep inspect`.

    Keys: path, format, writer, api, optimizer, definition (None where the file does not say), updates, steps, pending,
    scalars, slots ([variable, slot, shape, dtype]), variables, missing (what stands in the way of reading a state, in
    words) and notes (what it is read without). Where the file does not say which optimizer it is of, but one kind of
    stock optimizer has such slots, they are told as that one's.
    """
    native = read_native(path)
    facts = dict(path=str(path), format="everstep", writer="everstep", api=None, optimizer=None)  # type: dict
    facts.update(missing=[], notes=[])
    if isinstance(native, State):
        state = native
    else:
        facts.update(format=native.format, writer=native.writer, missing=list(native.missing))
        kinds, state = identify.kinds_of(native), None
        facts["optimizer"] = " or ".join(kinds) or None
        try:
            state = reading.to_state(native, definition, optimizer, updates, learning_rate, variables)
        except EverstepError as error:
            if not native.missing:
                facts["missing"].append(str(error))
            if definition is None and optimizer is None and native.config is None:
                state = _guessed(native, kinds)
        facts.update(api=native.target, notes=native.notes)
    if state is not None:
        slots = [[name, slot] + _told(found[slot]) for name, found in state.slots.items() for slot in found]
        facts.update(
            definition=None if facts["missing"] else state.definition, slots=slots, variables=list(state.slots),
            updates=state.updates if getattr(native, "counted", True) else None,
            steps=state.steps, pending=state.pending, scalars=dict(state.scalars),
        )
        facts["optimizer"] = facts["optimizer"] or (state.definition or {}).get("definition")
    else:
        named = [("{}/{}".format(name, slot), handle)
                 for name, found in native.slots.items() for slot, handle in found.items()]
        slots = [[None, name or str(place)] + _told(handle)
                 for place, (name, handle) in enumerate(native.entries or named)]
        facts.update(dict.fromkeys(("definition", "updates", "steps", "pending")), scalars={}, slots=slots)
        facts["variables"] = list(native.variables)
    return facts


def _told(handle):
    return [list(handle.shape), str(np.dtype(handle.dtype))]


def _guessed(native, kinds):
    """The state as one of the kinds that it might be of; that has no settings that anybody said."""
    for kind in kinds:
        for momentum in (False, True):
            try:
                return reading.to_state(native, identify.guessed_definition(native, kind, momentum))
            except EverstepError:
                continue
    return None
