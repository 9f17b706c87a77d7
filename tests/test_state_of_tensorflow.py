"""States of TensorFlow's checkpoints as people have them: slots with names of their own, SavedModels, other orders."""
from __future__ import absolute_import, division, print_function

import json
from collections import OrderedDict

import numpy as np
import pytest

import everstep
from crafted_files import tf1 as tf
from crafted_files import write_tensors
from everstep import cli, errors
from everstep.testing import oracle

tensorflow = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.shared
START = OrderedDict((name, np.linspace(-1, 1, 6).reshape(3, 2).astype("float32") * scale)
                    for scale, name in enumerate(("net/query", "net/key", "net/value"), 1))
GRADS = {name: np.cos(np.arange(6)).reshape(3, 2).astype("float32") * (place + 1) for place, name in enumerate(START)}
ADAM = everstep.optimizers.Adam(0.1, beta_2=0.99)


def by_hand(path, steps=3):
    """Trains with an Adam written by hand, as BERT's, and saves it. Returns the weights after as many steps again."""
    weights = OrderedDict((name, value.copy()) for name, value in START.items())
    slots = {name + slot: np.zeros_like(START[name]) for name in START for slot in ("/adam_m", "/adam_v")}
    for t in range(1, 2 * steps + 1):
        for name, grad in GRADS.items():
            m, v = slots[name + "/adam_m"], slots[name + "/adam_v"]
            m += 0.1 * (grad - m)
            v += 0.01 * (grad**2 - v)
            weights[name] -= 0.1 * m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.99**t)) + 1e-7)
        if t == steps:
            write_tensors(path, dict(weights, global_step=np.int64(t), **slots))
    return weights


@pytest.fixture(scope="module")
def saved(tmpdir_factory):
    path = str(tmpdir_factory.mktemp("by_hand").join("model.ckpt"))
    return path, by_hand(path)


SLOTS = {"m": "{var}/adam_m", "v": "{var}/adam_v"}


@pytest.mark.parametrize("updates", ["global_step", 3, None])
def test_slots_of_an_optimizer_written_by_hand(saved, updates):
    path, expected = saved
    state = everstep.read_checkpoint(path, ADAM, slots=SLOTS, updates=updates)
    assert state.updates == 3 and sorted(state.slots) == sorted(START) and not state.ordered
    arrays = OrderedDict((name, np.zeros_like(value)) for name, value in START.items())
    optimizer = ADAM.bind(np)
    everstep.restore(optimizer, state, arrays, weights=True)
    for _ in range(3):
        optimizer.apply_gradients([(GRADS[name], arrays[name]) for name in arrays])
    assert max(oracle.distance(arrays[name], expected[name]) for name in arrays) <= 4e-6


def test_what_is_wrong_with_slot_names(saved):
    path, _ = saved
    for options, words in (
        ({"slots": {"m": "{var}/adm_m", "v": "{var}/adam_v"}},
         "near names are net/key/adam_m, net/key/adam_v, net/query/adam_m"),
        ({"slots": {"m": "{var}/xyz", "v": "{var}/adam_v"}}, "near names are global_step, net/key, net/key/adam_m"),
        ({"slots": {"m": "{var}/adam_m"}}, "the slots m, v of Adam"),
        ({"slots": {"m": "{var}/adam_m", "v": "adam_v"}}, "{var} once"),
        ({"slots": {"m": "{var}/adam_m", "v": 3}}, "{var} once"), ({"slots": ["m"]}, "the slots m, v of Adam"),
        ({"slots": SLOTS, "updates": "globalstep"}, "near names are global_step"),
        ({"slots": SLOTS, "updates": "net/key"}, "not a number of updates"),
        ({"slots": SLOTS, "updates": 1.5}, "updates is a number"), ({}, "your own optimizer class, give slots=")):
        with pytest.raises(errors.StateError) as raised:
            everstep.read_checkpoint(path, ADAM, **options)
        assert words in str(raised.value), raised.value
    with pytest.raises(errors.UnsupportedError, match="slots="):
        everstep.read_checkpoint(path, everstep.optimizers.DiffGrad(0.1))


def test_slots_on_the_command_line(saved, tmp_path, capsys):
    path, _ = saved
    slots = ["--slot", "m={var}/adam_m", "--slot", "v={var}/adam_v", "--updates", "global_step"]
    assert cli.main(["inspect", path, "--optimizer", "Adam(learning_rate=0.1)", "--json"] + slots) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["updates"] == 3 and facts["definition"]["learning_rate"] == 0.1 and not facts["missing"]
    target = str(tmp_path / "run.npz")
    assert cli.main(["convert", path, target, "--to", "everstep", "--optimizer", "Adam"] + slots) == 0
    assert everstep.State.load(target).updates == 3 and not everstep.State.load(target).ordered
    assert cli.main(["inspect", path, "--slot", "m"]) == 2
    assert cli.main(["convert", path, target, "--to", "everstep", "--optimizer", "Unknown"] + slots) == 2
    assert "there is no definition called 'Unknown'" in capsys.readouterr().err


keras = getattr(tensorflow, "keras", None)
LEGACY = getattr(getattr(keras, "optimizers", None), "legacy", None)
HAS_SAVED_MODEL = hasattr(tensorflow, "saved_model") and int(tensorflow.__version__.split(".")[0]) >= 2 and hasattr(
    tensorflow, "Module")


@pytest.mark.skipif(not HAS_SAVED_MODEL, reason="this TensorFlow has no objects to save")
def test_a_folder_of_a_saved_model(tmp_path):
    module = tensorflow.Module()
    module.weight = tensorflow.Variable([1.0, 2.0], name="weight")
    module.optimizer = everstep.optimizers.Adam(0.1).bind(tf.train)
    module.optimizer.apply_gradients([(tensorflow.constant([0.5, 0.5]), module.weight)])
    tensorflow.saved_model.save(module, str(tmp_path / "model"))
    for path in (str(tmp_path / "model"), tmp_path / "model", str(tmp_path / "model").encode("ascii"),
                 str(tmp_path / "model" / "variables" / "variables")):
        try:
            state = everstep.read_checkpoint(path, everstep.optimizers.Adam(0.1))
        except errors.FileError as error:  # the object graph is in another file there
            assert "no optimizer" in str(error) or "no slots" in str(error)
            continue
        assert state.updates == 1


@pytest.mark.skipif(not hasattr(getattr(LEGACY, "Adam", None), "add_slot"), reason="tf.keras has no legacy optimizers")
def test_a_legacy_optimizer_s_checkpoint_for_a_new_one(tmp_path):
    """Stock refuses this; a state carries it."""
    weight = tensorflow.Variable([1.0, 2.0], name="weight")
    legacy = LEGACY.Adam(0.1)
    for _ in range(3):
        legacy.apply_gradients([(tensorflow.constant([0.5, 0.25]), weight)])
    path = tensorflow.train.Checkpoint(weight=weight, optimizer=legacy).save(str(tmp_path / "model"))
    state = everstep.read_checkpoint(path, everstep.optimizers.Adam(0.1))
    other = tensorflow.Variable([0.0, 0.0], name="weight")
    optimizer = everstep.optimizers.Adam(0.1).bind(keras)
    everstep.restore(optimizer, state, [other], weights=True)
    for each, variable in ((legacy, weight), (optimizer, other)):
        each.apply_gradients([(tensorflow.constant([0.5, 0.25]), variable)])
    assert int(optimizer.iterations) == 4 and oracle.distance(other.numpy(), weight.numpy()) <= 4e-6
