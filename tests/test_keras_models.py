"""Models of real Keras with layers of a few equal shapes, saved as they are: read right, or refused.

Flags change before and after `compile`, models stand in models, and layers lack weights. The truth is what the live
optimizer holds for each variable.
"""
from __future__ import absolute_import, division, print_function

import os
import random
import sys

import numpy as np
import pytest

import everstep
from crafted_files import optional
from everstep.errors import StateError

pytest.importorskip("h5py", reason="the files are HDF5")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "make"))

import people_keras  # noqa: E402

keras, tensorflow = optional("keras"), optional("tensorflow")
IS_3 = getattr(keras, "__version__", "").startswith("3.")
HERE = keras if IS_3 or tensorflow is None else tensorflow.keras
VERSION = tuple(map(int, getattr(tensorflow, "__version__", "0.0").split(".")[:2]))
# Keras 3 takes the optimizer out of a model's config when it writes .h5, so that later .keras files lack it. Its .h5
# files had bare names of weights before they had paths, and could not have two of one name: "name already exists".
BARE = IS_3 and tuple(map(int, keras.__version__.split(".")[:2])) < (3, 4)
ENDS = ["keras", "weights.h5"] * (IS_3 or VERSION >= (2, 12)) + ["h5"] * (not BARE)
pytestmark = pytest.mark.skipif(HERE is None, reason="no Keras is installed")


def layer(k, chance, depth):
    """Returns a layer from 2 numbers to 2."""
    kind = chance.choice(["dense", "dense", "plain", "norm", "model"][: 5 if depth else 4])
    name = chance.choice("abcdefgh") + str(chance.randrange(10 ** 6))
    if kind == "model":
        model = k.Sequential(name=name)
        model.add(k.layers.InputLayer((2,)))
        model.add(k.layers.Dense(2, name=name + "x"))
        for _ in range(chance.randrange(1, 3)):
            model.add(layer(k, chance, depth - 1))
        return model
    if kind == "norm":
        return k.layers.BatchNormalization(center=chance.random() < 0.7, name=name)
    return k.layers.Dense(2, use_bias=kind == "dense", name=name)


def flat(layers):
    return [inner for each in layers for inner in [each] + flat(getattr(each, "layers", []))]


def trained(chance, changes):
    """Returns (Keras, Watch, model) after two steps.

    Args:
        changes: "frozen" or "thawed", what happens to some layers after `compile`, or "". If both happen, the flags of
            a file may be those of another model, which nobody can tell where slots have no names.
    """
    k = people_keras.Keras(HERE, eager=VERSION >= (2, 0) or IS_3)
    entry = value = k.input(2)
    for _ in range(chance.randrange(2, 5)):
        value = layer(k, chance, 2)(value)
    model = k.fill(k.Model(entry, k.layers.Dense(2, name="answer")(value)))
    for each in flat(model.layers[1:-1]):
        each.trainable = each.trainable and chance.random() < 0.8
    watch = k.compile(model, k.optimizer("Adam", 0.01))
    people_keras.steps_of(model, count=2)
    for each in flat(model.layers[1:]) if changes else ():
        if chance.random() < 0.3:
            each.trainable = changes == "thawed"
    return k, watch, model


@pytest.mark.shared
@pytest.mark.parametrize("changes", ["", "frozen", "thawed"])
@pytest.mark.parametrize("seed", range(12))
def test_reads_what_the_optimizer_held_or_refuses(seed, changes, tmp_path):
    k, watch, model = trained(random.Random(seed), changes)
    truth = dict(zip([value.tobytes() for value in watch.values()], watch.slots()))
    assert len(truth) == len(watch.variables)
    for end in ENDS:
        path = str(tmp_path / ("model." + end))
        k.save(model, path)
        try:
            state = everstep.read_checkpoint(path, **k.how(watch, path))
        except StateError as error:
            assert "variables=" in str(error) and (changes or end == "weights.h5"), error
            continue
        assert len(state.slots) == len(truth)
        for name, slots in state.slots.items():
            for slot, expected in truth[np.asarray(state.variables[name]).tobytes()].items():
                np.testing.assert_array_equal(np.asarray(slots[slot]), expected, "{} of {}".format(slot, name))
