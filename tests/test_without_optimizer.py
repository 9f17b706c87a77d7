"""`everstep convert --without-optimizer`: the weights stay bit for bit, the optimizer is gone, and stock loads it."""
from __future__ import absolute_import, division, print_function

import contextlib
import json
import os
import warnings

import numpy as np
import pytest

import crafted_files as crafted
import everstep
import harness
import small_model
import test_files
from crafted_files import TENSORFLOW, h5py, tensorflow, tf1
from everstep import cli, verify
from everstep.compat.checkpoints.claims import Request
from everstep.compat.checkpoints.stripping import write_without_optimizer
from everstep.errors import EverstepError, FileError, StateError, UnsupportedError
from test_battery import ids
from test_files_written import models

pytestmark = [pytest.mark.shared, pytest.mark.filterwarnings("ignore:Converting sparse IndexedSlices:UserWarning")]
FOLDER = os.environ.get("EVERSTEP_REAL_FILES", "")
REAL = pytest.mark.skipif(not os.path.isdir(FOLDER), reason="EVERSTEP_REAL_FILES names no folder of real files")
WRITTEN = [each for each in test_files.HERE if each.format != "tf-object"]
OF_EACH_FORMAT = [each for each in map(test_files.BY_NAME.get, (
    "tf1.15/rmsprop.ckpt", "tfkeras1.15/rmsprop.h5", "tfkeras2.15/amsgrad.keras", "tfkeras2.15/sgd.weights.h5",
)) if each in WRITTEN]


def arrays_in(path):
    """Returns {name: array} of everything in a file."""
    arrays = verify.stored_arrays(path, None)[1]
    return {each.name: np.asarray(each.handle) for each in arrays if each.handle is not None}


def strip(path, target, **how):
    return write_without_optimizer(path, target, Request(**how))


def same(actual, expected):
    assert sorted(actual) == sorted(expected)
    for name, value in expected.items():
        assert actual[name].dtype == value.dtype
        np.testing.assert_array_equal(actual[name], value, name)


def size_on_disk(path):
    folder, name = os.path.split(path)
    return sum(os.path.getsize(os.path.join(folder, each)) for each in os.listdir(folder)
               if (each == name or each.startswith((name + ".data", name + ".index"))) and not each.endswith(".json"))


@pytest.mark.parametrize("fixture", WRITTEN, ids=test_files.ids)
def test_files_of_every_framework(fixture, tmp_path):
    """What is left is the model's, as the framework named it, and `global_step`."""
    path = str(tmp_path / os.path.basename(fixture.name))
    before = arrays_in(fixture.path)
    result = strip(fixture.path, path, **fixture.how())
    after, removed = arrays_in(path), {name.lstrip("/") for name in result.removed}
    same(after, {name: value for name, value in before.items() if name not in removed})
    sizes = sorted(value.size for name, value in after.items() if "global_step" not in name)
    own = sorted(np.size(value) for value in fixture.variables.values())
    assert [size for size in sizes if size > 1] == own if fixture.format == "tf-saver" else set(own) <= set(sizes)
    kept = list(after.values())
    for value in fixture.variables.values():
        assert any(each.shape == np.shape(value) and (each == np.float32(value)).all() for each in kept)
    words = ("optimizer", "Adam", "Momentum", "RMSProp", "Adagrad", "Adadelta", "Ftrl", "SGD", "beta1", "updates")
    assert not [name for name in after if any(word in name for word in words)]
    assert size_on_disk(path) <= size_on_disk(fixture.path) - sum(before[name].nbytes for name in removed)
    with pytest.raises(EverstepError, match="no optimizer|alone|no slots|no stock optimizer|no arrays"):
        strip(path, path + "-again", **fixture.how())


@TENSORFLOW
@pytest.mark.parametrize("name", ["tf1.15/adam-global_step.ckpt", "tf1.15/rmsprop.ckpt", "tf1.4/adam-partitioned.ckpt",
                                  "tf1.15/our_adam.ckpt"])
def test_saver_restores_the_weights(name, tmp_path):
    """Also the parts of a partitioned variable, which stock reads out of the whole."""
    fixture, path = test_files.BY_NAME[name], str(tmp_path / "model.ckpt")
    strip(fixture.path, path, **fixture.how())
    shapes = {key: np.shape(value) for key, value in fixture.variables.items()}
    with tf1.Graph().as_default(), tf1.Session() as session:
        divided = tf1.fixed_size_partitioner(2) if "partitioned" in name else None
        variables = {key: tf1.get_variable(key, shape, partitioner=divided) for key, shape in shapes.items()}
        tf1.train.Saver().restore(session, path)
        for key, value in fixture.variables.items():
            np.testing.assert_array_equal(session.run(tf1.convert_to_tensor(variables[key])), np.float32(value))
        assert sorted(each for each, _ in tf1.train.list_variables(path) if each != "global_step") == sorted(shapes)


@TENSORFLOW
def test_text_and_other_arrays_stay(tmp_path):
    source, path = str(tmp_path / "model"), str(tmp_path / "weights")
    ones = np.ones((2, 3), np.float32)
    tensors = {"w": ones, "w/Adam": ones, "w/Adam_1": ones, "beta1_power": np.float32(0.81),
               "beta2_power": np.float32(0.998), "global_step": np.int64(7), "epochs": np.int32(3),
               "vocabulary": np.array([b"a", b"bc"], object), "mask": np.array([True, False])}
    crafted.write_tensors(source, tensors)
    result = strip(source, path, optimizer="Adam(learning_rate=0.1)")
    assert sorted(result.removed) == ["beta1_power", "beta2_power", "w/Adam", "w/Adam_1"]
    reader = tf1.train.NewCheckpointReader(path)
    assert sorted(reader.get_variable_to_shape_map()) == ["epochs", "global_step", "mask", "vocabulary", "w"]
    assert reader.get_tensor("vocabulary").tolist() == [b"a", b"bc"] and reader.get_tensor("global_step") == 7
    assert "global_step stays" in result.notes[-1]


@TENSORFLOW
def test_slots_of_an_optimizer_written_by_hand(command, tmp_path):
    """Those of BERT; a mask that has the shape of its variable is nobody's slot."""
    source, path = str(tmp_path / "model"), str(tmp_path / "weights")
    names = ["bert/kernel", "bert/kernel/adam_m", "bert/kernel/adam_v", "bert/kernel/mask"]
    tensors = {name: np.full((2, 3), number, np.float32) for number, name in enumerate(names)}
    crafted.write_tensors(source, dict(tensors, global_step=np.int64(60)))
    rule = "AdamW(learning_rate=1e-4, weight_decay=0.01, bias_correction=False)"
    arguments = ["convert", source, path, "--without-optimizer", "--optimizer", rule, "--slot", "m={var}/adam_m",
                 "--slot", "v={var}/adam_v", "--json"]
    code, output, complaint = command(*(arguments + ["--dry-run"]))
    assert (code, json.loads(output)["written"]) == (0, False), complaint
    assert not os.path.exists(path + ".index")
    code, output, _ = command(*arguments)
    assert code == 0 and json.loads(output)["removed"] == names[1:3] and json.loads(output)["bytes"] == 48
    same(arrays_in(path), dict({name: tensors[name] for name in (names[0], names[3])}, global_step=np.int64(60)))


@pytest.mark.parametrize("fixture", OF_EACH_FORMAT, ids=test_files.ids)
def test_the_bar_ends_where_the_weights_end(command, monkeypatch, fixture, tmp_path):
    source, path = fixture.path, str(tmp_path / os.path.basename(fixture.name))
    seen = []

    @contextlib.contextmanager
    def progress(total):
        seen.append(total)
        yield seen.append

    monkeypatch.setattr(cli, "progress", progress)
    optimizer = fixture.how().get("optimizer")
    arguments = ["--optimizer", optimizer] if optimizer else []
    code, _, complaint = command("convert", source, path, "--without-optimizer", *arguments)
    assert code == 0, complaint
    assert seen[0] == sum(seen[1:]) == sum(array.nbytes for array in arrays_in(path).values()) > 0


@TENSORFLOW
def test_one_optimizer_of_several(tmp_path):
    source, path = str(tmp_path / "model"), str(tmp_path / "one")
    one = np.ones(3, np.float32)
    tensors = {"d/w": one, "d/w/D_opt": one, "d/w/D_opt_1": one, "g/w": one, "g/w/G_opt": one, "g/w/G_opt_1": one}
    tensors.update({name + end: np.float32(0.5) for name in ("beta1_power", "beta2_power") for end in ("", "_1")})
    crafted.write_tensors(source, tensors)
    adam = "Adam(learning_rate=0.1)"
    with pytest.raises(StateError, match="more than one optimizer.*scope="):
        strip(source, path, optimizer=adam)
    with pytest.raises(FileError, match="beta powers of 2 optimizers.*updates="):
        strip(source, path, optimizer=adam, scope="D_opt")
    strip(source, path, optimizer=adam, scope="D_opt", updates="beta1_power")
    left = {name for name in tensors if "D_opt" not in name} - {"beta1_power", "beta2_power"}
    assert set(arrays_in(path)) == left
    strip(path, path + "-2", optimizer=adam)
    assert sorted(arrays_in(path + "-2")) == ["d/w", "g/w"]


@TENSORFLOW
def test_checkpoints_of_objects_are_refused(tmp_path):
    fixture = test_files.BY_NAME["tfkeras2.15/momentum.ckpt-1"]
    with pytest.raises(UnsupportedError, match="save_weights"):
        strip(fixture.path, str(tmp_path / "out"), **fixture.how())


def test_what_makes_no_sense(command, tmp_path):
    everstep.State(slots={"w": {"m": np.ones(3)}}).save(str(tmp_path / "run.npz"))
    path = str(tmp_path / "out")
    for arguments, words in ((["--without-optimizer"], "nothing left"),
                             (["--without-optimizer", "--template", "x"], "--template has no effect"),
                             (["--without-optimizer", "--by-order"], "--by-order has no effect")):
        code, output, complaint = command("convert", str(tmp_path / "run.npz"), path, *arguments)
        assert (code, output) == (2, "") and words in complaint
    for arguments in ([], ["--to", "everstep", "--without-optimizer"]):
        with pytest.raises(SystemExit):
            command("convert", str(tmp_path / "run.npz"), path, *arguments)
    assert os.listdir(str(tmp_path)) == ["run.npz"]


# Models that a Keras trains here, which its own loader reads again.


def trained(way, own):
    keras = way.module
    if hasattr(keras.backend, "clear_session"):
        harness.clear_session(keras)
    model = small_model.build(keras, everstep.optimizers.Adam(0.1).bind(keras) if own else small_model.stock_optimizer(
        way.stock, "Adam", {"learning_rate": 0.1}))
    for _ in range(2):
        model.train_on_batch(small_model.IDS.astype(np.int32), small_model.TARGETS)
    return model


def attributes_in(path):
    """Returns {name of a group: {attribute: its bytes}}."""
    found = {}
    with h5py.File(path, "r") as file:
        file.visititems(lambda name, item: found.update({name: dict(item.attrs)}))
        found[""] = dict(file.attrs)
    return {name: {key: np.asarray(value).tolist() for key, value in each.items()} for name, each in found.items()}


@pytest.mark.skipif(h5py is None, reason="h5py is not installed")
@pytest.mark.parametrize("own", [True, False], ids=["ours", "stock"])
@pytest.mark.parametrize("way", models(), ids=ids)
def test_h5_is_what_keras_writes_without_its_optimizer(way, own, tmp_path):
    keras, paths = way.module, [str(tmp_path / name) for name in ("model.h5", "stripped.h5", "without.h5")]
    model = trained(way, own)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras 3 advises against HDF5
        model.save(paths[0])
        model.save(paths[2], include_optimizer=False)
        strip(paths[0], paths[1])
        loaded = keras.models.load_model(paths[1])  # without anything of everstep
    same(arrays_in(paths[1]), arrays_in(paths[2]))
    assert attributes_in(paths[1]) == attributes_in(paths[2])
    for actual, expected in zip(loaded.get_weights(), model.get_weights()):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.skipif(h5py is None, reason="h5py is not installed")
@pytest.mark.parametrize("own", [True, False], ids=["ours", "stock"])
@pytest.mark.parametrize("ending", [".keras", ".weights.h5"])
@pytest.mark.parametrize("way", [way for way in models() if way.target in ("keras3", "update_step")], ids=ids)
def test_keras_files_load_as_those_of_a_model_that_nobody_compiled(way, ending, own, tmp_path):
    keras, paths = way.module, [str(tmp_path / (name + ending)) for name in ("model", "stripped")]
    is_old = way.target == "update_step" and not hasattr(getattr(keras, "saving", None), "deserialize_keras_object")
    if ending == ".weights.h5" and is_old:
        pytest.skip("Keras 2.11 writes weights alone: https://github.com/keras-team/keras/releases/tag/v2.12.0")
    model = trained(way, own)
    (model.save if ending == ".keras" else model.save_weights)(paths[0])
    strip(paths[0], paths[1])
    if ending == ".keras":
        loaded = keras.models.load_model(paths[1])
        assert getattr(loaded, "optimizer", None) is None
    else:
        loaded = keras.Sequential.from_config(model.get_config())
        loaded.build(model.input_shape)
        loaded.load_weights(paths[1])
    for actual, expected in zip(loaded.get_weights(), model.get_weights()):
        np.testing.assert_array_equal(actual, expected)


# Files of other people.

ADAM = {"optimizer": "Adam(learning_rate=0.1)"}
NAMES = [("tf1-adam-named.ckpt", ADAM), ("tf1-five-adams.ckpt", ADAM), ("tf1-tflearn", ADAM), ("tf1-rnn", ADAM),
         ("tf1-saver-v1-power-zero.ckpt", ADAM), ("keras-2.0-adam-xception.hdf5", {}), ("keras-old-small.hdf5", {}),
         ("keras-2.2.0-rmsprop-hdf5.keras", {}), ("keras-3.8-adam.h5", {}), ("tf.keras-2.4-adam.h5", {}),
         ("keras-2.15-windows.keras", {}), ("keras-3-small.weights.h5", {}),
         ("keras-3-equal-biases.weights.h5", {})]


@REAL
@pytest.mark.parametrize("name, how", [each for each in NAMES if tensorflow or not each[0].startswith("tf1")])
def test_real_files(name, how, tmp_path):
    """In TF 1 files, all that stock Adam names is gone; in those of Keras, the optimizer's group.

    In one file the counter is outside of the group.
    """
    source, path = os.path.join(FOLDER, name), str(tmp_path / name)
    before = arrays_in(source)
    result = strip(source, path, **how)
    after = arrays_in(path)
    words = ("Adam", "beta1_power", "beta2_power") if how else ("optimizer_weights/", "optimizer/", "iterations")
    same(after, {key: value for key, value in before.items()
                 if not any(word in (key.split("/")[-1] if how else key) for word in words)})
    assert len(before) - len(after) == len(result.removed)
