"""`everstep convert --without-optimizer`: copies a file without what its optimizer keeps there."""
from __future__ import absolute_import, division, print_function

import contextlib
from collections import OrderedDict, namedtuple

from everstep.compat.checkpoints import reading
from everstep.compat.checkpoints.claims import check_has_state
from everstep.compat.checkpoints.identify import parsed
from everstep.compat.files import formats
from everstep.compat.files.contents import as_file_errors, size_of
from everstep.compat.files.formats import FORMATS
from everstep.compat.files.open_file import as_path
from everstep.compat.files.replacing import write_errors
from everstep.errors import FileError, UnsupportedError

# format: that of both files; removed: {name: handle} of what the new file does not have; notes: [sentence].
Stripped = namedtuple("Stripped", "format removed notes")
_INSTEAD = {
    "everstep": "a file of everstep is the state of an optimizer; there would be nothing left",
    "tf-object": "a checkpoint of objects says how they refer to each other. Restore it into the model alone, and save "
                 "there: tf.train.Checkpoint(model=model).write(path), or model.save_weights(path)",
}


@contextlib.contextmanager
def _unseen(total):
    yield lambda count: None


def write_without_optimizer(source, path, request, max_bytes=None, progress=_unseen, dry_run=False):
    """Copies a file without what its optimizer keeps there. All else stays bit for bit, in the same format.

    Slots, counters, hypers, beta powers and loss scales are left out, and in Keras's formats what the model was
    compiled with: stock loads the file as one of `model.save(include_optimizer=False)`. `global_step` stays.

    Args:
        source: the file to read, as for `read_checkpoint`.
        path: the file to write.
        request: a Request: what the user says of the file.
        max_bytes: as for `read_checkpoint`.
        progress: called with the number of bytes to write, it gives a context manager of a function that is called
            repeatedly with the number of bytes written since the last call. Default: nothing is shown.
        dry_run: True checks everything and writes nothing. Default False.

    Returns:
        A `Stripped`.

    Raises:
        FileError: the file is damaged, of an unknown format, or without an optimizer's state.
        StateError: the file has several optimizers, or the new one cannot be written.
        UnsupportedError: files of this format cannot be written so. The message says what to do instead.
    """
    contents = formats.read(source, max_bytes)
    format = FORMATS[contents.format]
    if format.write_without is None:
        raise UnsupportedError("{} is of format {}: {}".format(
            contents.path, contents.format, _INSTEAD[contents.format]))
    with write_errors(path):
        path = as_path(path)
    with as_file_errors(source):
        removed, notes = _removed(contents, parsed(request))
        if not dry_run:
            arrays = [array.handle for array in format.stored(contents.path, max_bytes)[1] if array.handle is not None]
            with progress(sum(map(size_of, arrays)) - sum(map(size_of, removed.values()))) as moved:
                format.write_without(path, contents.path, frozenset(removed), moved)
    return Stripped(contents.format, removed, notes)


def _removed(contents, request):
    """Returns ({name: handle} of the arrays that are the optimizer's, notes)."""
    if contents.format == "tf-saver":
        claim = reading.settled(contents, request)
        removed, notes = claim.owned(request), list(claim.notes)
        if "global_step" in claim.values:
            notes.append("global_step stays: it is the graph's, and not the optimizer's")
    else:
        check_has_state(reading.found(contents)[0])
        removed, notes = OrderedDict(
            (handle.name, handle) for each in contents.optimizers for _, handle in each.entries), []
    if not removed:
        raise FileError("{} has no arrays of an optimizer to leave out: its optimizer stores none".format(
            contents.path))
    return removed, notes
