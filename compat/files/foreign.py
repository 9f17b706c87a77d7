"""What a path is that leads to no file of a known format, and what to give instead."""
from __future__ import absolute_import, division, print_function

import os

from everstep.errors import FileError


def check(path):
    """Raises FileError if a path leads to something that is often taken for a file of an optimizer's state."""
    folder, name = os.path.split(os.path.abspath(path))
    cause = None
    if name in ("saved_model.pb", "saved_model.pbtxt", "keras_metadata.pb", "fingerprint.pb"):
        cause = "is a part of a SavedModel, whose state is beside it: give the folder, {}".format(folder)
    elif os.path.isdir(path) and os.path.isfile(os.path.join(path, "model.weights.h5")):
        cause = "is the folder of an unpacked .keras file: give {}, and the optimizer that trained".format(
            os.path.join(path, "model.weights.h5"))
    if cause is not None:
        raise FileError("{} {}".format(path, cause))
