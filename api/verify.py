"""`everstep verify`: reads a file as a whole and compares its checksums."""
from __future__ import absolute_import, division, print_function

from collections import namedtuple

import numpy as np

from everstep.compat.files import formats
from everstep.compat.files.contents import as_file_errors, chunks
from everstep.errors import EverstepError

NO_CHECKSUM = "HDF5 keeps no checksum of these arrays: they were read, but changed numbers cannot be noticed"

Result = namedtuple("Result", "name shape dtype checksum result is_damaged")


def stored_arrays(path, max_bytes=None):
    """Returns (name of the container, [Stored]), all arrays in a file, also those that are not of the optimizer.

    Raises:
        FileError: the file is damaged so that its arrays cannot be found, or something besides them is damaged.
    """
    format, path = formats.find(path)
    with as_file_errors(path):
        return format.stored(path, max_bytes)


def verify_array(array, moved):
    """Reads a Stored. Returns a Result."""
    name, handle, checksum = array
    if handle is None:
        return Result(name, "", "", "none", "not read: it holds no numbers", False)
    described = name, tuple(handle.shape), str(np.dtype(handle.dtype)), checksum
    not_numbers = count = 0
    try:
        for _, values in chunks(handle):
            if values.dtype.kind == "f":
                not_numbers += int(np.sum(np.isnan(values)))
            count += values.size
            moved(values.nbytes)
    except EverstepError as error:
        return Result(*described, result="damaged: {}".format(error), is_damaged=True)
    if not_numbers:
        return Result(*described, result="read, {} of {} are NaN".format(not_numbers, count), is_damaged=False)
    return Result(*described, result="read", is_damaged=False)
