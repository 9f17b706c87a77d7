"""`everstep.read_checkpoint`, `everstep.write_checkpoint`, and what `everstep inspect` prints."""
from __future__ import absolute_import, division, print_function

from collections import namedtuple

import numpy as np

from everstep.compat.checkpoints import reading, writing
from everstep.compat.checkpoints.claims import Request
from everstep.compat.checkpoints.moving import renamed
from everstep.compat.checkpoints.state import State, with_arrays
from everstep.compat.files import bundle, formats, npz, safetensors
from everstep.compat.files.contents import Handle, as_file_errors
from everstep.compat.files.formats import FORMATS
from everstep.compat.files.open_file import as_path
from everstep.compat.files.replacing import write_errors
from everstep.errors import StateError, UnsupportedError

Written = namedtuple("Written", "matches notes")  # [(name in the file, name in the state, how)], [sentence]


def read_checkpoint(
    path, definition=None, optimizer=None, updates=None, learning_rate=None, variables=None, slots=None, scope=None,
    max_bytes=None,
):
    """Reads an optimizer's state from a file, whether the optimizer was stock or bound by everstep.

    Args:
        path: the file. For a TensorFlow checkpoint: the path that `save` returned, its directory, or that of a
            SavedModel. The format is detected from the contents.
        definition: the definition that trained. Needed if the file has no config of its optimizer: all TensorFlow
            checkpoints, and `.weights.h5`. If its form of momentum is not the file's, momentum is rescaled.
        optimizer: instead of `definition`: the stock optimizer that trained, written as in its API: `"Adam"`, or
            `"MomentumOptimizer(learning_rate=0.1, momentum=0.9)"`. Arguments that neither this nor the file gives take
            the class's defaults; arguments without a default are required.
        updates: int, the number of updates, if the file does not say and the rule needs it; or the name of the array
            of a tf.train.Saver file that holds it, such as `"global_step"`.
        learning_rate: float, the rate in force, used to rescale momentum.
        variables: the names of the trained variables in the optimizer's order, if the file leaves that open.
        slots: for a tf.train.Saver file of your own optimizer class: the names of its slots there, with `{var}` for
            the variable's name: `{"m": "{var}/adam_m", "v": "{var}/adam_v"}`. Needs `definition`. A definition that
            `everstep.port` made of a tf.train optimizer has them as its attribute `saved_as`.
        scope: text that says which optimizer to read, if the file has several: `"D_opt"` if its slots are named so,
            `"critic/Adam"`, or the attribute of a saved object, such as `"optimizer"`. The error that you get
            without it lists what to give.
        max_bytes: int, how many bytes a packed file (`.keras`, HDF5) may unpack to. Default: 20 times its size, or
            64 MiB if that is more.

    Returns:
        A `State`. Its arrays are handles, which are read and checked on first use.

    Raises:
        FileError: the file is damaged, of an unknown format, or without an optimizer's state. The message says which.
        StateError: the file can be read in more than one way. The message says what to choose between.
        UnsupportedError: the library that reads this format, TensorFlow or h5py, is not installed; or no stock
            optimizer of the file's API has such slots.

    >>> import numpy, os, tempfile, everstep
    >>> weights, path = numpy.zeros(1), os.path.join(tempfile.mkdtemp(), "run.npz")
    >>> optimizer = everstep.optimizers.SGD(0.1, momentum=0.9).bind(numpy)
    >>> optimizer.apply_gradients([(numpy.ones(1), weights)])
    >>> everstep.capture(optimizer, {"w": weights}).save(path)
    >>> list(everstep.read_checkpoint(path).slots["w"])
    ['velocity']
    """
    contents = formats.read(path, max_bytes)
    with as_file_errors(path):
        request = Request(definition, optimizer, updates, learning_rate, variables, slots, scope)
        return reading.to_state(contents, request)[0]


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
    """Writes a state as a file of a framework. If it fails, nothing is written.

    Args:
        state: a `State`.
        path: the file. For a TensorFlow checkpoint: the path without `.index`, where no checkpoint may exist.
        format: "everstep", "safetensors", "tf-saver", "keras-h5", "keras" or "keras-weights-h5".
        template: required for Keras's formats: a file of the same format with the model and the optimizer to continue
            with, saved after a step. The new file is a copy of it with the state, and with the weights if the state has
            them. The optimizer's settings, its learning rate too, stay the template's.
        ours: for "tf-saver", True names the slots as a definition bound to `tf.train` does; False (the default), as the
            stock optimizer with such slots does. For "keras-weights-h5", True says that the template is of a bound
            definition, which such a file does not say.
        learning_rate: float, the rate in force, if momentum is rescaled. Default: the rate of the state's definition.
        rename, by_order: how variables are matched with the template's, as for `restore`.
        variables: the names of the template's variables, as for `read_checkpoint`.
        moved: a function, called repeatedly with the number of bytes written since the last call.
        dry_run: True checks everything and writes nothing. Default False.

    Returns:
        A `Written`: `matches`, how each variable was matched, and `notes`, sentences on what the file could not take.

    Raises:
        StateError: the state does not fit the format or the template, or the file cannot be written. The message says
            where.
        UnsupportedError: this format cannot be written here. The message says what to do instead.

    >>> import numpy, os, tempfile, everstep
    >>> weights, path = numpy.zeros(1), os.path.join(tempfile.mkdtemp(), "run.npz")
    >>> optimizer = everstep.optimizers.Adam().bind(numpy)
    >>> optimizer.apply_gradients([(numpy.ones(1), weights)])
    >>> written = everstep.write_checkpoint(everstep.capture(optimizer, {"w": weights}), path, format="everstep")
    >>> everstep.read_checkpoint(path)
    <everstep state of Adam: 1 updates, 1 variables>
    """
    moved = moved or (lambda count: None)
    with write_errors(path):
        path = as_path(path)
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
    if format == "torch":
        raise UnsupportedError(
            "torch loads a state_dict, which a pickle holds. Restore the state into the optimizer, everstep.restore("
            "optimizer, state, variables), and save there: torch.save(optimizer.state_dict(), path)"
        )
    if FORMATS[format].write is not None:
        options = (ours, learning_rate, rename, by_order, variables)
        return _write_into(state, path, format, template, options, moved, dry_run)
    if template is not None:
        raise StateError("a file of format {} needs no template".format(format))
    state, matches = renamed(state, rename)
    if format == "tf-saver":
        tensors = writing.saver_tensors(state, ours, learning_rate)
        bundle.check_new(path)
        if not dry_run:
            bundle.write(path, tensors, moved)
    elif not dry_run:
        (safetensors if format == "safetensors" else npz).save(_with_progress(state, moved), path)
    return Written(matches, [])


def _write_into(state, path, format, template, options, moved, dry_run):
    """Writes a copy of a template with the state in it."""
    if template is None:
        raise StateError(
            "a {} file also holds a model, which a state does not: give template= (--template), a file of that kind "
            "with the model and the optimizer to continue with, saved after a step".format(format)
        )
    contents = formats.read(template)
    if contents.format != format:
        raise StateError("the template {} is of format {}, not {}".format(template, contents.format, format))
    with as_file_errors(template):
        values, matches, notes = writing.fit_to_template(contents, state, *options)
    if not dry_run:
        FORMATS[format].write(path, contents.path, values, moved)
    return Written(matches, notes)


def _with_progress(state, moved):
    """Returns the state with arrays that report the bytes read of them to `moved`."""

    def counted(handle):
        def read(selection):
            value = np.asarray(handle[selection])
            moved(value.nbytes)
            return value

        return Handle("array", handle.shape, handle.dtype, read)

    return with_arrays(state, counted)
