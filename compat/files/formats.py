"""The table of file formats: how each is found by its contents, read and written."""
from __future__ import absolute_import, division, print_function

import io
import os
import re
from collections import OrderedDict, namedtuple

from everstep.compat.files import bundle, foreign, hdf5, keras_h5, keras_zip, npz, safetensors, torch_file
from everstep.compat.files.contents import as_file_errors
from everstep.compat.files.open_file import as_path
from everstep.errors import FileError, NoFileError

# title: for people. is_it(path, first bytes, last bytes): is a file one? read(path, max_bytes): its Contents.
# write(path, template, values, moved): a copy of a template with other values in its arrays; None if there is another
# way, or none. stored(path, max_bytes): (name of the container, [Stored], all its arrays). write_without(path, source,
# names, moved): a copy of a file without the arrays of these names, those of its optimizer; None if there is no way.
Format = namedtuple("Format", "name title is_it read write stored write_without")
FORMATS = OrderedDict((each.name, each) for each in [
    Format("everstep", "everstep's own, .npz", npz.is_it, npz.read, None, npz.stored, None),
    Format("tf-saver", "checkpoints of tf.train.Saver", bundle.is_it, bundle.read, None, bundle.stored,
           bundle.write_without),
    Format("tf-object", "checkpoints of tf.train.Checkpoint and of tf.keras's save_weights", bundle.is_it, bundle.read,
           None, bundle.stored, None),
    Format("keras-h5", "models in HDF5, of every Keras", hdf5.is_it, keras_h5.read, hdf5.write, hdf5.stored,
           keras_h5.write_without),
    Format("keras", ".keras of Keras 3 and tf.keras 2.12 and newer", keras_zip.is_it, keras_zip.read, keras_zip.write,
           keras_zip.stored, keras_zip.write_without),
    Format("keras-weights-h5", ".weights.h5 of Keras 3 and tf.keras 2.12 and newer", hdf5.is_it, keras_h5.read,
           hdf5.write, hdf5.stored, hdf5.write_without),
    Format("safetensors", "everstep's own, .safetensors", safetensors.is_it, safetensors.read, None,
           safetensors.stored, None),
    Format("torch", "state_dicts, saved with torch.save", torch_file.is_it, torch_file.read, None, torch_file.stored,
           None),
])


def find(path):
    """Returns (Format, path) of a file, judged by its contents; of formats in one container the first one.

    Raises:
        NoFileError: there is no file.
        FileError: its format is unknown, or it is a part of a checkpoint that says nothing alone.
    """
    with as_file_errors(path):
        try:
            path = as_path(path)
        except TypeError as error:
            raise FileError(str(error))
        foreign.check(path)
    prefix = bundle.find(path)
    if prefix is not None:
        return FORMATS["tf-saver"], prefix
    if not os.path.isfile(path):
        raise NoFileError("there is no file or checkpoint {}{}".format(path, _why_not_there(path)))
    with as_file_errors(path), io.open(path, "rb") as file:
        start = file.read(8)
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - 8))
        end = file.read(8)
    for each in reversed(list(FORMATS.values())):  # a zip file that is not of Keras is everstep's own
        if each.is_it(path, start, end):
            return each, path
    for pattern, what in _PARTS.items():
        match = re.search(pattern, path)
        if match:
            raise FileError("{} is {}, without values: give {}".format(path, what, match.expand(r"\1") or "its folder"))
    raise FileError("{} is of no format that everstep knows: {}".format(
        path, "; ".join("{} ({})".format(each.name, each.title) for each in FORMATS.values())))


# {pattern of a file that belongs to a checkpoint: what it is}; group 1 is the path to give instead
_PARTS = OrderedDict([
    (r"(.+)\.meta$", "the graph of a checkpoint"),
    (r"(.*?)[/\\]?checkpoint$", "the list of a folder's checkpoints"),
])


def _why_not_there(path):
    """Returns what to say of a path that names nothing on disk."""
    if re.match(r"[a-z0-9]+://", path):
        return ": everstep reads files of this computer. Copy it first, for example with tf.io.gfile.copy, with all " \
            "files of a checkpoint"
    if os.path.isdir(path):
        return "; the directory has no checkpoint that TensorFlow wrote"
    folder, name = os.path.split(path)
    near = sorted(each for each in os.listdir(folder or os.curdir) if each.startswith(name)) if os.path.isdir(
        folder or os.curdir) and name else []
    return "; there are {}".format(", ".join(near[:4])) if near else ""


def read(path, max_bytes=None):
    """Returns the Contents of a file of any format."""
    format, path = find(path)
    return format.read(path, max_bytes)
