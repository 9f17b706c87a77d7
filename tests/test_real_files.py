"""Checkpoints that other people's programs wrote, in the folder that EVERSTEP_REAL_FILES names, are read right.

Numbers here were read with h5py. Slots are compared with the arrays of the file by position or name, so that no code
of everstep says which is whose. The next step is compared with that of a stock optimizer that has these arrays.
"""
from __future__ import absolute_import, division, print_function

import io
import os
import zipfile
from collections import OrderedDict

import numpy as np
import pytest

import everstep
from everstep.compat.ways.known import quickest

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


BETA_2 = float(np.float32(0.999))  # as a variable of float32 has it; newer stock Adams take 1 - 0.999 of Python
# {file: (the target of the API that wrote it, class, learning rate, other arguments)}, by its config or by `how`.
OPTIMIZERS = {
    "keras-2.0-adam-xception.hdf5": ("get_updates", "Adam", 1e-3, {"epsilon": 1e-8, "beta_2": BETA_2}),
    "keras-old-small.hdf5": ("get_updates", "SGD", 1e-2, {"decay": 1e-6}),
    "keras-2.2.0-rmsprop-hdf5.keras": ("get_updates", "RMSprop", 1e-2, {"epsilon": 1e-7}),
    "keras-3.8-adam.h5": ("keras3", "Adam", 1e-2, {"beta_2": BETA_2}),
    "tf.keras-2.4-adam.h5": ("optimizer_v2", "Adam", 1e-3, {"beta_2": BETA_2}),
    "keras-2.15-windows.keras": ("update_step", "Adam", 1e-2, {"beta_2": BETA_2}),
    "keras-3-small.weights.h5": ("keras3", "RMSprop", 1e-3, {}),
    "keras-3-equal-biases.weights.h5": ("keras3", "Adam", 1e-3, {"beta_2": BETA_2}),
}
# {slot: (its name in OptimizerV2, the attribute that has the list of them in newer optimizers)}
NATIVE = {"m": ("m", "_momentums"), "v": ("v", "_velocities"), "mean_square": ("rms", "_velocities")}


def optimizer_arrays(path):
    """Returns the arrays of the optimizer in the file's order, by h5py."""
    file = io.BytesIO(zipfile.ZipFile(path).read("model.weights.h5")) if zipfile.is_zipfile(path) else path
    with h5py.File(file, "r") as stored:
        if "optimizer_weights" not in stored:
            return [np.array(stored["optimizer/vars"][name]) for name in sorted(stored["optimizer/vars"], key=int)]
        group = stored["optimizer_weights"]
        return [np.array(group[name]) for name in group.attrs["weight_names"]]


def slot_arrays(row):
    """Returns {slot: [array of each variable]} of a file, in the order in which it has the variables."""
    name, _, before, slots, is_by_slot, _, count, _ = row
    arrays = optimizer_arrays(os.path.join(FOLDER, name))[before:]
    assert len(arrays) == count * len(slots)
    return {slot: arrays[number * count :][:count] if is_by_slot else arrays[number :: len(slots)]
            for number, slot in enumerate(slots)}


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_file_of_keras(row):
    name, updates, _, slots, _, names, count, how = row
    state, stored = everstep.read_checkpoint(os.path.join(FOLDER, name), **how), slot_arrays(row)
    assert state.updates == updates and len(state.slots) == count and list(state.slots)[: len(names)] == names
    assert set(state.variables) == set(state.slots)
    for index, (variable, held) in enumerate(state.slots.items()):
        assert tuple(held) == slots
        for slot in slots:
            array = stored[slot][index]
            np.testing.assert_array_equal(np.asarray(held[slot]), array, "{} of {}".format(slot, variable))
            assert np.shape(state.variables[variable]) == array.shape


def some(items):
    """Returns all of up to 15 items, and about 8 of more: graphs of TensorFlow 1 with 52 variables take a minute."""
    return list(items)[:: max(1, len(items) // 8)]


def stock_optimizer(way, row):
    """Returns a new stock optimizer of a way, with the settings of the one that wrote a file."""
    _, name, rate, more = OPTIMIZERS[row[0]]
    if way.target == "keras3" and "decay" in more:
        rate, more = way.stock.schedules.InverseTimeDecay(rate, 1, more["decay"]), {}
    return getattr(way.stock, name)(rate, **more)


def stock_step(way, row, values, grads):
    """Returns the variables after a step of a stock optimizer that goes on with the slots and the count of a file."""
    stored = slot_arrays(row)
    with way.world(way.module) as world:
        stock, variables = stock_optimizer(way, row), [world.variable(value) for value in values]
        world.step(stock, [(np.zeros_like(grad), variable) for grad, variable in zip(grads, variables)])  # makes slots
        pairs = list(zip(variables, values)) + [(stock.iterations, row[1])]
        for number, slot in enumerate(row[3]):
            if way.target == "get_updates":
                own = [weight for weight in stock.weights if world.read(weight).shape][number * len(values) :]
            elif way.target == "optimizer_v2":
                own = [stock.get_slot(variable, NATIVE[slot][0]) for variable in variables]
            else:
                own = getattr(stock, NATIVE[slot][1])
            pairs += zip(own, some(stored[slot]))
        with world.inside():
            world.run([variable.assign(value) for variable, value in pairs])
        world.step(stock, list(zip(grads, variables)))
        return [world.read(variable) for variable in variables]


def own_step(way, state, grads):
    """Returns the same of a bound optimizer that a state was restored into."""
    with way.world(way.module) as world:
        optimizer = everstep.Definition.from_config(state.definition).bind(way.module)
        variables = OrderedDict((name, world.variable(np.zeros_like(grad))) for name, grad in zip(state.slots, grads))
        everstep.restore(optimizer, state, variables, session=world.session, weights=True)
        world.step(optimizer, list(zip(grads, variables.values())))
        return [world.read(variable) for variable in variables.values()]


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_the_next_step_is_that_of_stock(row):
    target = OPTIMIZERS[row[0]][0]
    ways = [way for way in quickest() if way.target in (target, "keras3")]
    if not ways:
        pytest.skip("neither {} nor Keras 3 is installed here".format(target))
    state = everstep.read_checkpoint(os.path.join(FOLDER, row[0]), **row[-1])
    state = state.replace(slots=some(state.slots.items()))
    values, random = [np.asarray(state.variables[name]) for name in state.slots], np.random.RandomState(0)
    # none is near 0, where the epsilon of an RMSprop of Keras 3 is another one than that of Keras 2
    grads = [random.uniform(0.5, 1.5, value.shape).astype("float32") for value in values]
    for way in ways:
        expected, ours = stock_step(way, row, values, grads), own_step(way, state, grads)
        if way.target == "get_updates" and max(abs(a - b).max() for a, b in zip(ours, expected)) > 1e-6:
            # In a graph, stock Adam reads its counter before or after it moves, at random.
            ours = own_step(way, state.replace(updates=state.updates + 1), grads)
        for name, before, own, stock in zip(state.slots, values, ours, expected):
            np.testing.assert_allclose(own, stock, rtol=1e-5, atol=1e-7, err_msg="{} on {}".format(name, way.name))
            assert not np.array_equal(stock, before), name
