"""Continues runs of stock optimizers of TF 1.4, Keras 2.1.6 and 2.3.1 with everstep, on every API of this environment.

tests/make/states.py wrote the frameworks' own files after 50 of 100 steps, and the stock weights after 100. Adam of
Keras 2.3 reads its counter before or after incrementing it, at random. Its slots do not depend on that, its weights do.
There the expected weights are those of the file plus the oracle's change from step 50 to step 100.
"""

from __future__ import absolute_import, division, print_function

import io
import json
import os

import numpy as np
import pytest

import everstep
import harness
from crafted_files import TENSORFLOW, h5py, tensorflow
from everstep.optimizers import SGD
from everstep.testing import oracle
from test_battery import ids, start_values
from test_grid import BATCHES, HALF, KINDS, SHAPES, STATES

pytestmark = pytest.mark.shared
BOUND = 5e-6
TRAIN = [("adam", "AdamOptimizer", {"learning_rate": 0.1}),
         ("momentum", "MomentumOptimizer", {"learning_rate": 0.1, "momentum": 0.9}),
         ("rmsprop", "RMSPropOptimizer", {"learning_rate": 0.1, "momentum": 0.5, "epsilon": 1e-3}),
         ("rmsprop_centered", "RMSPropOptimizer", {"learning_rate": 0.1, "centered": True, "epsilon": 1e-3}),
         ("adagrad", "AdagradOptimizer", {"learning_rate": 1.0}),
         ("ftrl", "FtrlOptimizer", {"learning_rate": 1.0, "l1_regularization_strength": 0.01})]
DEFAULTS = [  # the other arguments are stock's defaults: epsilon is 1e-8 and 1e-10
    ("adam_defaults", "AdamOptimizer", {"learning_rate": 0.1}),
    ("rmsprop_defaults", "RMSPropOptimizer", {"learning_rate": 0.01, "momentum": 0.5}),
]
KERAS = [
    ("momentum", "SGD", {"learning_rate": 0.1, "momentum": 0.9}),
    ("nesterov", "SGD", {"learning_rate": 0.1, "momentum": 0.9, "nesterov": True}),
    ("rmsprop", "RMSprop", {"learning_rate": 0.1, "epsilon": 1e-3}), ("adagrad", "Adagrad", {"learning_rate": 1.0}),
    ("adadelta", "Adadelta", {"learning_rate": 3.0, "epsilon": 1e-3}), ("adam", "Adam", {"learning_rate": 0.1}),
    ("amsgrad", "Adam", {"learning_rate": 0.1, "amsgrad": True}), ("adamax", "Adamax", {"learning_rate": 0.1})]
RACE = ("keras2.3", ("Adam", "Adamax"))
NAMES = {"dense/kernel": "dense", "dense/bias": "bias", "unique/embeddings": "unique"}  # in files of Keras


def start():
    return start_values("float32", SHAPES)


def keras_batches():
    """Returns the batches as a Keras layer sees them: with a mean loss, the bias gets the mean of 4 rows."""
    return [dict(batch, bias=batch["dense"].mean(0, dtype="float32")) for batch in BATCHES]


def files():
    """Returns {folder/case: facts}."""
    facts_of = {}
    for folder in sorted(os.listdir(os.path.join(STATES, "stock"))):
        with io.open(os.path.join(STATES, "stock", folder, "ends.json"), encoding="ascii") as file:
            for case, facts in sorted(json.load(file).items()):
                if h5py or "keras" not in folder:
                    facts_of["{}/{}".format(folder, case)] = facts
    return facts_of


FILES = files()


def path_of(name, extension):
    return os.path.join(STATES, "stock", *name.split("/")) + extension


def read(name, converted=tensorflow is None, **how):
    if "keras" in name:
        return everstep.read_checkpoint(path_of(name, ".h5"))
    if converted:
        return everstep.read_checkpoint(path_of(name, ".npz"))
    return everstep.read_checkpoint(path_of(name, ".ckpt"), **(how or {"optimizer": FILES[name]["optimizer"]}))


def final_weights(way, name, state):
    """Restores a state, trains the second half and returns the weights."""
    definition = everstep.Definition.from_config(state.definition)
    if not way.sparse and definition.sparse != "exact":
        definition = definition.replace(dense_ok=True)
    names = sorted(FILES[name]["weights"])
    batches, rename = BATCHES, ()
    if "keras" in name:
        batches, rename = keras_batches(), list(NAMES.items())
    # Start from other values, so that the file's values must be restored.
    values, kinds = {each: start()[each] + 1 for each in names}, {each: KINDS[each] for each in names}
    run = harness.new_run(way, definition, values, kinds)
    run.restored(state, rename=rename, weights=True)
    for batch in batches[HALF:]:
        run.step({each: batch[each] for each in names})
    return run.weights()


def expected_weights(name, state):
    """Returns the expected weights at the end."""
    facts = FILES[name]
    weights = {each: np.float32(values) for each, values in facts["weights"].items()}
    if RACE[0] not in name or facts["optimizer"] not in RACE[1]:
        return weights
    definition = everstep.Definition.from_config(state.definition)
    batches = [{each: batch[each] for each in weights} for batch in keras_batches()]
    first = {each: start()[each] for each in weights}
    half, whole = [oracle.trajectory(definition, first, batches[:steps])[0] for steps in (HALF, 2 * HALF)]
    halfway = {NAMES[each]: np.asarray(value, np.float64) for each, value in state.variables.items()}
    return {each: halfway[each] + whole[each] - half[each] for each in weights}


def check(name, way, state):
    actual, expected = final_weights(way, name, state), expected_weights(name, state)
    by_rows = state.definition["sparse"] != "exact" and not way.sparse  # a dense gradient has no absent rows
    compared = [each for each in expected if not by_rows or KINDS[each] == harness.DENSE]
    for each in compared:
        assert np.abs(expected[each] - start()[each]).max() > 0.2, each
    assert max(oracle.distance(actual[each], expected[each]) for each in compared) <= BOUND


def test_there_are_files_of_all():
    expected = {"tf_train-tf1.4/" + case for case, _, _ in TRAIN}
    expected.update("tf_train-tf1.15/" + case for case, _, _ in DEFAULTS)
    if h5py:
        for folder in ("get_updates-keras2.1/", "get_updates-keras2.3/"):
            expected.update(folder + case for case, _, _ in KERAS)
    assert set(FILES) == expected


@pytest.mark.parametrize("way", harness.quickest(), ids=ids)
@pytest.mark.parametrize("name", sorted(FILES))
def test_goes_on(name, way):
    check(name, way, read(name))


def test_what_nobody_said_is_stock_s_own():
    for name, epsilon in (("adam", 1e-8), ("rmsprop", 1e-10)):
        assert read("tf_train-tf1.15/{}_defaults".format(name)).definition["epsilon"] == epsilon


@TENSORFLOW
@pytest.mark.parametrize("way", harness.quickest(), ids=ids)
def test_momentum_goes_on_in_the_form_of_keras(way):
    """tf.train accumulates gradients in the velocity, Keras accumulates gradients times -rate."""
    definition = SGD(0.1, momentum=0.9, sparse="rows")
    state = read("tf_train-tf1.4/momentum", definition=definition, learning_rate=0.1)
    assert everstep.Definition.from_config(state.definition) == definition
    check("tf_train-tf1.4/momentum", way, state)


@TENSORFLOW
@pytest.mark.parametrize("name", [name for name in sorted(FILES) if "keras" not in name])
def test_conversion_equals_reading(name):
    how = {}
    if name.endswith("tf1.4/adam"):  # converted when a missing epsilon became everstep's default, not tf.train's
        how["optimizer"] = FILES[name]["optimizer"].replace(")", ", epsilon=1e-07)")
    actual, expected = read(name, converted=True).to_dict(), read(name, **how).to_dict()
    del actual["ordered"], expected["ordered"]  # converted before states said whether they have an order
    # Converted before Adam had bias_correction: arguments that are left out have their defaults.
    actual["definition"] = everstep.Definition.from_config(actual["definition"]).get_config()
    np.testing.assert_equal(actual, expected)
