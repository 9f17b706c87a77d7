"""`everstep verify`: reads a file as a whole and compares its checksums."""
from __future__ import absolute_import, division, print_function

from collections import namedtuple

import numpy as np

from everstep.compat.checkpoints import files
from everstep.compat.checkpoints.state import State
from everstep.compat.files import bundle, keras_h5, keras_zip
from everstep.compat.files.native_file import as_file_errors, chunks
from everstep.errors import EverstepError

NO_CHECKSUM = "HDF5 keeps no checksum of these arrays: they were read, but changed numbers cannot be noticed"

# handle: None if the array is not read, such as one of texts; checksum: its kind, or "none"
Stored = namedtuple("Stored", "name handle checksum")
Result = namedtuple("Result", "name shape dtype checksum result is_damaged")


def stored_arrays(path, max_bytes=None):
    """Returns (format, [Stored]), all arrays in a file, also those that are not of the optimizer.

    Raises:
        FileError: the file is damaged so that its arrays cannot be found, or something besides them is damaged.
    """
    kind, path = files.find_format(path)
    with as_file_errors(path):
        if kind == "everstep":
            state = State.load(path)
            arrays = [("{}/{}".format(name, slot), handle)
                      for name, slots in state.slots.items() for slot, handle in slots.items()]
            arrays += state.variables.items()
            return kind, [Stored(name, handle, "CRC-32") for name, handle in arrays]
        if kind == "bundle":
            tensors = bundle.Tensors(path)
            return "TensorFlow", [Stored(name, tensors.handle(name), "CRC-32C") for name in sorted(tensors.shapes)]
        if kind == "keras":
            with keras_zip.open_zip(path) as archive:
                weights = keras_zip.open_weights(archive, path, max_bytes)
                for info in archive.infolist():
                    keras_zip.verify_checksum(archive, info, path)
            return kind, _in_hdf5(keras_h5.open_contents(*weights), "CRC-32 of the zip")
        return "HDF5", _in_hdf5(keras_h5.open_contents(*keras_h5.open_whole(path, max_bytes)), None)


def _in_hdf5(contents, checksum):
    """Returns the list of Stored in an HDF5 file. `checksum` is of the whole file, or None."""
    arrays, own = [], "none"
    for name, dataset in contents.arrays():
        is_numeric = getattr(dataset, "dtype", np.dtype("O")).kind in "fiuVb"
        handle = contents.array(contents.file, name) if is_numeric else None
        if checksum is None and is_numeric:
            own = "Fletcher-32" if dataset.fletcher32 else "Adler-32" if dataset.compression == "gzip" else "none"
        arrays.append(Stored(name, handle, checksum or own))
    return arrays


def size_of(array):
    """Returns the size of a Stored in bytes."""
    if array.handle is None:
        return 0
    return np.dtype(array.handle.dtype).itemsize * int(np.prod(array.handle.shape, dtype=np.float64))


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
