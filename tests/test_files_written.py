"""Files that everstep writes are loaded by their framework, which then continues as the first framework did."""
from __future__ import absolute_import, division, print_function

import os
from collections import OrderedDict

import numpy as np
import pytest

import crafted_files as crafted
import everstep
import harness
import small_model
import test_grid
from crafted_files import TENSORFLOW, inspect, read_bytes
from crafted_files import tf1 as tf
from everstep.errors import StateError, UnsupportedError
from everstep.testing import oracle
from test_battery import ids, start_values
from test_files import BY_NAME, OLD_ADADELTA, tensorflow

pytestmark = pytest.mark.shared
SAVERS = sorted(name for name in BY_NAME if name.startswith(("tf1.4/", "tf1.15/")) and "partitioned" not in name
                and "scopes" not in name) + ["tfkeras2.10/our_accumulated.h5", "keras3.15-jax/our_adam.keras"]


def near(fixture, names, weights, bound=4e-6):
    for name, value in fixture.next.items():
        assert oracle.distance(weights[names[name]], np.float32(value)) < bound, name


def state_of(fixture, **how):
    return everstep.read_checkpoint(fixture.path, **(how or fixture.how()))


# tf.train.Saver.


class Graph(object):
    """The model of the fixtures, with any variable names, restored from a checkpoint."""

    def __init__(self, make, names, path):
        with tf.Graph().as_default(), tf.Session() as session:
            variables = [tf.get_variable(name, initializer=tf.constant(value), use_resource=True)
                         for name, value in zip(names, (small_model.EMBEDDINGS, small_model.KERNEL))]
            rows = tf.nn.embedding_lookup(variables[0], small_model.IDS[:, 0])
            loss = tf.reduce_mean(tf.square(tf.matmul(rows, variables[1]) - small_model.TARGETS))
            step = make(tf.train).minimize(loss, global_step=tf.train.get_or_create_global_step())
            tf.train.Saver().restore(session, path)
            self.count = session.run(tf.train.get_global_step())
            session.run(step)
            self.weights = session.run(dict(zip(names, variables)))


def in_model_order(state):
    return sorted(state.slots, key=lambda name: state.variables[name].shape, reverse=True)


@TENSORFLOW
@pytest.mark.parametrize("name", SAVERS)
def test_saver_restores_what_was_written(name, tmp_path):
    fixture, path = BY_NAME[name], str(tmp_path / "model.ckpt-7")
    if fixture.optimizer == "AdadeltaOptimizer" and ("1.4." in tensorflow.__version__) != ("tf1.4" in name):
        pytest.skip(OLD_ADADELTA)
    state = state_of(fixture)
    everstep.write_checkpoint(state, path, "tf-saver", ours=fixture.optimizer is None)
    with pytest.raises(StateError):
        everstep.write_checkpoint(state, path, "tf-saver", ours=fixture.optimizer is None)  # the file exists
    assert sorted(os.listdir(str(tmp_path))) == ["model.ckpt-7.data-00000-of-00001", "model.ckpt-7.index"]
    graph = Graph(lambda train: stock_or_ours(fixture, train), in_model_order(state), path)
    near(fixture, fixture.names(state), graph.weights)


def stock_or_ours(fixture, train):
    if fixture.optimizer:
        return getattr(train, fixture.optimizer)(**{str(name): value for name, value in fixture.arguments.items()})
    return everstep.Definition.from_config(fixture.definition).bind(train)


@TENSORFLOW
@pytest.mark.parametrize(
    "name", ["tfkeras2.10/momentum.h5", "keras3.15-jax/momentum.keras", "keras2.1-tf1.4/momentum.h5"])
def test_keras_goes_on_in_tf_train(name, tmp_path):
    fixture, path = BY_NAME[name], str(tmp_path / "model")
    state = state_of(fixture)
    everstep.write_checkpoint(state, path, "tf-saver", rename=[r"(.*)/\w+=\1"])
    names = {theirs: mine.rpartition("/")[0] for theirs, mine in fixture.names(state).items()}
    graph = Graph(lambda train: train.MomentumOptimizer(0.1, 0.9), ["embedding", "output"], path)
    near(fixture, names, graph.weights)
    assert graph.count == 3


@TENSORFLOW
def test_large_checkpoints_are_written_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(crafted.bundle, "_SHARD", 64)
    state, path, moved = state_of(BY_NAME["tf1.4/adam.ckpt"]), str(tmp_path / "model"), []
    everstep.write_checkpoint(state, path, "tf-saver", moved=moved.append)
    assert len(moved) > 3 and sum(moved) == 16 + sum(array.nbytes for array in harness.arrays_of(state).values())
    again = everstep.read_checkpoint(path, optimizer="Adam(learning_rate=0.1)")
    assert again.updates == 3 and list(again.slots) == list(state.slots)
    harness.assert_same_arrays(again, state)


@TENSORFLOW
@pytest.mark.parametrize("updates", [0, 1, 10, 811, 20000])
def test_beta_powers_tell_the_count(updates, tmp_path):
    """Recovers the number of updates from a power that tf.train multiplies up in float32, update by update."""
    first, again = str(tmp_path / "first"), str(tmp_path / "again")
    power = np.float32(0.999)
    for _ in range(updates):
        power = power * np.float32(0.999)
    ones = np.ones(2, np.float32)
    crafted.write_tensors(first, {"w": ones, "w/Adam": ones, "w/Adam_1": ones, "beta2_power": power,
                                  "beta1_power": np.float32(0.9) ** np.float32(updates + 1)})
    state = everstep.read_checkpoint(first, optimizer="Adam(learning_rate=0.1)")
    assert state.updates == updates
    everstep.write_checkpoint(state, again, "tf-saver")
    assert np.asarray(crafted.read_tensors(again)["beta2_power"]) == power


# Keras.


KERASES = sorted(harness.kerases().items())


def extensions_of(api):
    if api not in ("update_step", "keras3") or tensorflow and tensorflow.__version__.startswith("2.11."):
        return [".h5"]
    return [".h5", ".keras", ".weights.h5"]


TARGETS = [(name, module, api, extension) for name, module in KERASES
           for api in [small_model.api_of(module.optimizers.Adam)] for extension in extensions_of(api)]
FORMAT = {".h5": "keras-h5", ".keras": "keras", ".weights.h5": "keras-weights-h5"}
SOURCES = ["keras2.1-tf1.4/amsgrad.h5", "tfkeras2.15/amsgrad.keras", "keras3.15-jax/amsgrad.keras",
           "tf1.4/momentum.ckpt", "tfkeras1.15/nadam.h5"]

PAIRS = [  # one half in a cell, the other half in the next
    (source, target)
    for place, source in enumerate(SOURCES, harness.TURN)
    for turn, target in enumerate(TARGETS, place)
    if harness.FULL or turn % 2 == 0 or len(TARGETS) == 1
]


def trained(module, stock, arguments):
    harness.clear_session(module)
    try:
        optimizer = small_model.stock_optimizer(module.optimizers, stock, arguments)
    except TypeError as error:
        assert "amsgrad" in str(error)
        pytest.skip("tf.keras of TF 1.4 knows no amsgrad")
    model = small_model.build(module, optimizer)
    model.train_on_batch(small_model.IDS, small_model.TARGETS)
    return model


@pytest.mark.filterwarnings("ignore:Converting sparse IndexedSlices:UserWarning")  # stock Keras 2 does, and TF warns
@pytest.mark.filterwarnings("ignore:Skipping variable loading for optimizer:UserWarning")
@pytest.mark.parametrize("source, target", PAIRS, ids=["-".join([source, to[0] + to[3]]) for source, to in PAIRS])
def test_keras_loads_what_was_written(target, source, tmp_path):
    name, module, api, extension = target
    fixture = BY_NAME[source]
    stock = "SGD" if "momentum" in source else fixture.optimizer
    other_schedule = stock == "Nadam" and api in ("update_step", "keras3")  # see the tests below
    if other_schedule or fixture.format == "tf-saver" and tensorflow is None:
        return
    arguments = {str(key): value for key, value in fixture.arguments.items()}
    template, path = [str(tmp_path / ("{}{}".format(kind, extension))) for kind in ("template", "written")]
    model = trained(module, stock, arguments)
    small_model.save(model, template)
    before, state = read_bytes(template), state_of(fixture)
    how = dict(learning_rate=0.1, by_order=True)
    if extension == ".weights.h5":
        how["variables"] = ["embedding/0", "dense/0"]
    notes = everstep.write_checkpoint(state, path, FORMAT[extension], template=template, **how).notes
    assert all("momentum_product" in note and stock == "Nadam" for note in notes)  # Keras before 2.3 does not store it
    assert read_bytes(template) == before
    assert sorted(os.listdir(str(tmp_path))) == ["template" + extension, "written" + extension]
    again = inspect(path, optimizer=crafted.spelled(stock, arguments) if extension == ".weights.h5" else None)
    assert again["updates"] == state.updates and not again["missing"]

    # Keras 3 does not load .h5 models for training: its own have an optimizer built on no variables, and 3.0 does not
    # find the loss. Load only the weights.
    never_trains = (api, extension) == ("keras3", ".h5")
    harness.clear_session(module)
    if never_trains or extension == ".weights.h5":
        model = trained(module, stock, arguments)
        model.load_weights(path)
    else:
        model = module.models.load_model(path)
    names = fixture.names(state)
    for value, theirs in zip(model.get_weights(), ("embed", "kernel")):
        mine = next(n for n in names if theirs in n)
        np.testing.assert_array_equal(value, np.asarray(state.variables[names[mine]]))
    if never_trains:
        return
    count = model.optimizer.iterations
    get = module.ops.convert_to_numpy if hasattr(module, "ops") else module.backend.get_value
    assert int(get(count)) == state.updates
    model.train_on_batch(small_model.IDS, small_model.TARGETS)
    bound = 0.2 if api == "get_updates" else 4e-6  # stock reads its counter before or after incrementing it, at random
    values = model.get_weights()
    near(fixture, {n: 0 if "embed" in n else 1 for n in fixture.next}, values, bound)


def test_keras_formats_need_a_template(tmp_path):
    state, path = state_of(BY_NAME["keras2.1-tf1.4/amsgrad.h5"]), str(tmp_path / "model.h5")
    wrong = [("tf-object", UnsupportedError, "everstep.restore"), ("hdf5", StateError, "keras-h5")]
    for format, error, word in wrong + [(FORMAT[extension], StateError, "template=") for extension in FORMAT]:
        with pytest.raises(error, match=word):
            everstep.write_checkpoint(state, path, format)
    assert os.listdir(str(tmp_path)) == []


@pytest.mark.parametrize("source, template, word", [
    ("keras2.1-tf1.4/nadam.h5", "tfkeras2.15/nadam.keras", "momentum_decay"),
    ("keras2.1-tf1.4/amsgrad.h5", "tfkeras2.10/momentum.h5", "is of SGD"),
    ("tfkeras2.10/our_accumulated.h5", "tfkeras2.10/momentum.h5", "accumulate/sum"),
    ("keras2.1-tf1.4/amsgrad.h5", "keras3.15-tf/amsgrad.weights.h5", "by_order"),
    ("keras2.1-tf1.4/sgd.h5", "tfkeras2.10/momentum.h5", "velocity")])
def test_what_does_not_fit_writes_nothing(source, template, word, tmp_path):
    template, state = BY_NAME[template], state_of(BY_NAME[source])
    with pytest.raises(StateError, match=word):
        everstep.write_checkpoint(state, str(tmp_path / "out"), template.format, template=template.path)
    assert os.listdir(str(tmp_path)) == []


def test_what_tf_train_has_no_place_for(tmp_path):
    for name, error, word in (("amsgrad", UnsupportedError, "no stock optimizer with the slots of Adam"),
                              ("nadam", StateError, "momentum_schedule")):
        with pytest.raises(error, match=word):
            state = state_of(BY_NAME["keras2.1-tf1.4/{}.h5".format(name)])
            everstep.write_checkpoint(state, str(tmp_path / "out"), "tf-saver")


# Engine state beside a definition's slots: rows of a window, and steps that rows missed.

KEPT = [everstep.accumulate(everstep.optimizers.SGD(0.1), 2), everstep.optimizers.Adam(0.1, sparse="catch_up")]


def same_slots(actual, expected, names):
    """Compares counts and slots; `names` is {name of a variable in the file: its own}."""
    assert (actual.updates, actual.steps, actual.pending) == (expected.updates, expected.steps, expected.pending)
    renamed = {names[name]: slots for name, slots in actual.slots.items()}
    harness.assert_same_arrays(everstep.State(slots=renamed), expected.replace(variables={}))


def models():
    """Returns one way for each module that can build models."""
    ways = [way for way in harness.all_ways() if hasattr(way.module, "layers")]
    return list(OrderedDict((id(way.module), way) for way in ways).values())


@pytest.mark.parametrize("way", models(), ids=lambda way: way.name)
@pytest.mark.parametrize("definition", KEPT, ids=lambda definition: definition._short())
def test_models_with_what_the_engine_keeps(definition, way, tmp_path):
    keras, path = way.module, str(tmp_path / ("model.keras" if way.target == "keras3" else "model.h5"))
    if definition.sparse != "exact":
        definition = definition.replace(dense_ok=True)
    if hasattr(keras.backend, "clear_session"):
        harness.clear_session(keras)
    model = small_model.build(keras, definition.bind(keras))
    for _ in range(3):
        model.train_on_batch(small_model.IDS, small_model.TARGETS)
    trained = list(model.trainable_weights)
    names = [getattr(variable, "path", variable.name).split(":")[0] for variable in trained]
    expected = everstep.capture(model.optimizer, dict(zip(names, trained)))
    table = next(name for name in names if "embedding" in name)
    assert set(expected.slots[table]) - {"accumulate/sum", "m", "v"} or not way.sparse  # what the engine keeps
    small_model.save(model, path)
    actual = everstep.read_checkpoint(path)
    same_slots(actual, expected, {each: next(name for name in names if name.endswith(each)) for each in actual.slots})


@TENSORFLOW
@pytest.mark.parametrize(
    "way", [way for way in harness.all_ways() if issubclass(way.run, (harness.GraphRun, harness.EagerRun))], ids=ids)
@pytest.mark.parametrize("definition", KEPT, ids=lambda definition: definition._short())
def test_checkpoints_with_what_the_engine_keeps(definition, way, tmp_path):
    graph = issubclass(way.run, harness.GraphRun)
    run = harness.new_run(way, definition, start_values("float32", test_grid.SHAPES), test_grid.KINDS,
                          test_grid.BATCHES[:3])
    path = str(tmp_path / "model")
    if graph:
        with run.graph.as_default():
            run.saver.save(run.session, path, write_meta_graph=False)
    else:
        run.checkpoint().write(path)
    expected = run.captured(weights=True)
    names = {name: name for name in run.names}
    same_slots(everstep.read_checkpoint(path, definition), expected, names)
    if graph and way.target == "tf_train":
        everstep.write_checkpoint(expected, path + "-again", "tf-saver", ours=True)
        same_slots(everstep.read_checkpoint(path + "-again", definition), expected, names)
