"""Checkpoints that other people's programs wrote, in the folder that EVERSTEP_REAL_FILES names, are read right.

Numbers here were read with h5py. Slots are compared with the arrays of the file by position or name, so that no code
of everstep says which is whose.
"""
from __future__ import absolute_import, division, print_function

import io
import os
import zipfile

import numpy as np
import pytest

import everstep

FOLDER = os.environ.get("EVERSTEP_REAL_FILES", "")
pytestmark = pytest.mark.skipif(not os.path.isdir(FOLDER), reason="EVERSTEP_REAL_FILES names no folder of real files")
h5py = pytest.importorskip("h5py", reason="these files are HDF5")

ADAM = {"optimizer": "Adam(learning_rate=0.001)"}
RMSPROP = {"optimizer": "RMSprop(learning_rate=0.001)"}
M_AND_V = ("m", "v")
XCEPTION = ["batch_normalization_{}/{}".format(number, weight) for number in (1, 10, 11, 12, 13, 14, 2, 3)
            for weight in ("beta", "gamma")]  # and so on: sorted names, as in Keras before 2.0.6
SMALL = ["dense{}/{}".format(layer, weight) for layer in ("_1", "_2", "_3") for weight in ("bias", "kernel")]
LSTM = ["lstm_1/kernel", "lstm_1/recurrent_kernel", "lstm_1/bias", "dense_1/kernel", "dense_1/bias"]
CONVS = ["{}/{}".format(layer, weight) for layer in ("conv2d", "conv2d_1", "dense", "dense_1") for weight in "01"]


def dense(layers, weights=("kernel", "bias")):
    return ["{}/{}".format(layer, weight) for layer in layers for weight in weights]


# file, updates, how many arrays come before the slots, slots, whether the file has all m before all v, names of the
# variables in the order of the slots, how many there are, and what a person says to `read_checkpoint`.
ROWS = [
    ("keras-2.0-adam-xception.hdf5", 246, 1, M_AND_V, True, XCEPTION, 52, {}),
    ("keras-old-small.hdf5", 16511, 7, (), True, SMALL, 6, {}),  # SGD without momentum never used its six velocities
    ("keras-2.2.0-rmsprop-hdf5.keras", 0, 0, ("mean_square",), True, LSTM, 5, {}),
    ("keras-3.8-adam.h5", 4500, 2, M_AND_V, False, dense(["sequential_2/dense_%d" % number for number in (6, 7, 8)]), 6,
     {}),
    ("tf.keras-2.4-adam.h5", 12642, 1, M_AND_V, True, dense(["dense", "dense_1", "dense_2", "dense_3"]), 8, {}),
    ("keras-2.15-windows.keras", 0, 1, M_AND_V, False, dense(["dense", "dense_1", "dense_2"]), 6, {}),
    ("keras-3-small.weights.h5", 37600, 2, ("mean_square",), True, dense(["dense", "dense_1", "dense_2"], "01"), 6,
     RMSPROP),
    ("keras-3-equal-biases.weights.h5", 1883548, 2, M_AND_V, False, CONVS, 8, ADAM),
]


def optimizer_arrays(path):
    """Returns the arrays of the optimizer in the file's order, by h5py."""
    file = io.BytesIO(zipfile.ZipFile(path).read("model.weights.h5")) if zipfile.is_zipfile(path) else path
    with h5py.File(file, "r") as stored:
        if "optimizer_weights" not in stored:
            return [np.array(stored["optimizer/vars"][name]) for name in sorted(stored["optimizer/vars"], key=int)]
        group = stored["optimizer_weights"]
        return [np.array(group[name]) for name in group.attrs["weight_names"]]


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_file_of_keras(row):
    name, updates, before, slots, is_by_slot, names, count, how = row
    path = os.path.join(FOLDER, name)
    state, arrays = everstep.read_checkpoint(path, **how), optimizer_arrays(path)[before:]
    assert state.updates == updates and len(state.slots) == count and list(state.slots)[: len(names)] == names
    assert set(state.variables) == set(state.slots) and len(arrays) == count * len(slots)
    for index, (variable, held) in enumerate(state.slots.items()):
        assert tuple(held) == slots
        for number, slot in enumerate(slots):
            stored = arrays[number * count + index if is_by_slot else index * len(slots) + number]
            np.testing.assert_array_equal(np.asarray(held[slot]), stored, "{} of {}".format(slot, variable))
            assert np.shape(state.variables[variable]) == stored.shape
