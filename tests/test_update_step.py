"""The update_step target: training, saving and changing a model with new-style tf.keras 2.11 to 2.15 and tf_keras.

The battery checks the numbers for gradients that tests pass in. Here Keras computes them, or results are compared with
stock.
"""
from __future__ import absolute_import, division, print_function

import importlib
import json
import subprocess
import sys

import numpy as np
import pytest

import everstep
import keras_suite
from everstep.errors import SlotError, UnsupportedError, VariableError
from everstep.optimizers import SGD, Adagrad, Adam
from keras_suite import difference, same

HERE = keras_suite.available_modules()
if "update_step" not in HERE:
    pytest.skip("no new-style optimizer of Keras 2 is in this environment", allow_module_level=True)

NAME, MODULE = HERE["update_step"][0]


class NewStyleKeras(keras_suite.Keras2):
    native = {"weight_decay": 0.25, "use_ema": True, "ema_momentum": 0.5}
    dtypes = ("float16", "bfloat16", "float64")
    formats = {"h5": (".h5", "save", {"save_format": "h5"}), "saved model": ("", "save", {"save_format": "tf"}),
               "weights": (".checkpoint", "save_weights", {"save_format": "tf"})}


API = NewStyleKeras(NAME, MODULE)
tf, keras, K, INPUTS, OUTPUTS = API.tf, API.keras, API.K, API.INPUTS, API.OUTPUTS
NEW_FORMAT = hasattr(API.base, "save_own_variables")  # .keras as a zip, from 2.12 on
if NEW_FORMAT:
    API.formats = dict(API.formats, **{"keras": (".keras", "save", {"save_format": "keras"}),
                                       "weights.h5": (".weights.h5", "save_weights", {})})
compiled, fit, schedule, optimizer_values = API.compiled, API.fit, API.schedule, API.optimizer_values
variable, constant, slices = API.variable, API.tensor, API.slices

pytestmark = [
    pytest.mark.filterwarnings("ignore:Converting sparse IndexedSlices:UserWarning"),  # stock does, and TF warns
    pytest.mark.filterwarnings("ignore:`lr` is deprecated"),
]


@pytest.fixture(autouse=True)
def _fresh_graph():
    K.clear_session()


class TestShared(keras_suite.SharedTests, keras_suite.Keras2Tests, keras_suite.NewKerasTests):
    api = API


def run(make, steps=7, start=0.5, sparse=True, traced=False, all_trained=False, **more):
    """Trains on gradients of both kinds. Returns [a vector, a matrix, a variable without gradient, the optimizer]."""
    optimizer, random = make(), np.random.RandomState(3)
    one, two = variable([start, -start], name="one", **more), variable(np.full((4, 2), start), name="two", **more)
    idle = variable([1.0], name="idle")

    def step(dense, values):
        other = tf.IndexedSlices(values, tf.constant([2, 0, 2]), tf.constant([4, 2])) if sparse else values
        optimizer.apply_gradients([(dense, one)] + ([] if all_trained else [(None, idle)]) + [(other, two)])

    step = tf.function(step) if traced else step
    for _ in range(steps):
        step(constant(random.randn(2) + 0.3), constant(random.randn(3 if sparse else 4, 2) + 0.3))
    return one, two, idle, optimizer


def values(ran):
    return [each.numpy() for each in ran[:3]]


def as_stock(ours, stock, bound=1e-5, **how):
    ours_ran, stock_ran = run(ours, **how), run(stock, **how)
    assert difference(values(ours_ran), [np.zeros(2), np.zeros((4, 2)), np.zeros(1)]) > 0.05
    assert difference(values(ours_ran), values(stock_ran)) <= bound
    assert ours_ran[3].iterations.numpy() == stock_ran[3].iterations.numpy()
    return ours_ran, stock_ran


# Ways to train.


def test_compiled_by_xla():
    results = []
    for optimizer in (Adam(0.05).bind(MODULE), keras.optimizers.Adam(0.05)):
        model = compiled(optimizer)
        model.compile(optimizer, "mse", jit_compile=True)
        fit(model)
        results.append(model.get_weights())
    assert difference(*results) <= 1e-5


# Features of the base class around the rule.

DENSE_GRAD = np.array([[3.0, 0.0], [0.0, 4.0], [0.0, 0.0]], "float32")
REPEATED = ([[1.0, 0.0], [2.0, 0.0], [0.0, 4.0]], [0, 0, 1])  # the same gradient, with row 0 in two parts
BOUNDS = [{"clipnorm": 1.0}, {"clipvalue": 2.5}, {"global_clipnorm": 1.0}, {"clipnorm": 2.0, "clipvalue": 0.5}]


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: "-".join(sorted(bound)))
def test_clipping(bound):
    """As stock for dense gradients. Equal rows of a sparse gradient are summed first, and it stays sparse."""
    as_stock(lambda: SGD(0.1).bind(MODULE, **bound), lambda: keras.optimizers.SGD(0.1, **bound), sparse=False)
    changes = []
    for grad in (constant(DENSE_GRAD), slices(REPEATED[0], REPEATED[1], [3, 2])):
        weight = variable(np.zeros((3, 2)))
        optimizer = SGD(1.0, momentum=0.9, sparse="rows").bind(MODULE, **bound)
        optimizer.build([weight])
        optimizer.get_slot(weight, "velocity").assign(np.ones((3, 2)))
        optimizer.apply_gradients([(grad, weight)])
        changes.append(weight.numpy() - 0.9)
        untouched = optimizer.get_slot(weight, "velocity").numpy()[2]
    np.testing.assert_allclose(changes[1][:2], changes[0][:2], rtol=1e-6)
    assert untouched.tolist() == [1.0, 1.0]
    assert all(optimizer.get_config()[name] == value for name, value in bound.items())


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("frequency", [None, 3])
def test_moving_averages_as_stock(frequency, traced):
    settings = dict(use_ema=True, ema_momentum=0.6, ema_overwrite_frequency=frequency)
    ours_ran, stock_ran = as_stock(  # stock needs all trained in TF 2.11
        lambda: SGD(0.1).bind(MODULE, **settings), lambda: keras.optimizers.SGD(0.1, **settings),
        traced=traced, all_trained=True)
    for ran in (ours_ran, stock_ran):
        ran[3].finalize_variable_values(ran[:2])
    assert difference(values(ours_ran), values(stock_ran)) <= 1e-6


def test_moving_averages_in_any_order():
    """Each variable has its own average, in any order of calls. TF 2.11 goes by position and mixes them up."""
    one, two = variable([0.0]), variable([8.0])
    optimizer = SGD(1.0).bind(MODULE, use_ema=True, ema_momentum=0.5)
    optimizer.build([one, two])
    optimizer.apply_gradients([(constant([2.0]), two), (constant([2.0]), one)])
    optimizer.apply_gradients([(constant([2.0]), two)])
    optimizer.finalize_variable_values([two, one])
    assert [one.numpy().tolist(), two.numpy().tolist()] == [[-1.0], [5.5]]  # averages of 0, -2 and of 8, 6 (7), 4
    with pytest.raises(UnsupportedError, match="use_ema"):
        everstep.accumulate(SGD(), 2).bind(MODULE, use_ema=True)


@pytest.mark.parametrize("rule", ["amsgrad", "nesterov"])
def test_weight_decay_as_stock(rule):
    ours, stock = API.ours_and_stock(rule, weight_decay=0.4)
    ran, _ = as_stock(lambda: ours, lambda: stock)
    assert (values(ran)[1][[1, 3]] < 0.5).all()  # rows that never have a gradient
    assert ours.get_config()["weight_decay"] == 0.4


@pytest.mark.parametrize("kind", ["dense", "sparse", "accumulated"])
def test_constraints_once_an_update(kind):
    """The constraint halves the variable, so the result shows if it ran twice or without an update."""
    weight = variable(np.ones((2, 1)), constraint=lambda value: value * 0.5)
    grad = slices([[0.25], [0.25]], [0, 0], [2, 1]) if kind == "sparse" else constant([[0.5], [0.0]])
    definition = everstep.accumulate(SGD(1.0), 2) if kind == "accumulated" else SGD(1.0)
    optimizer = definition.bind(MODULE)
    for _ in range(2 if kind == "accumulated" else 1):
        optimizer.apply_gradients([(grad, weight)])
    assert weight.numpy().tolist() == [[0.25], [0.5]]
    if kind == "dense":
        as_stock(lambda: SGD(0.1).bind(MODULE, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2),
                 lambda: keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2),
                 constraint=keras.constraints.UnitNorm(), all_trained=True)


# Hypers.


def test_weight_decay_follows_a_schedule_as_stock():
    as_stock(lambda: Adam(schedule(0.2, 0.5)).bind(MODULE, weight_decay=0.3),
             lambda: keras.optimizers.Adam(schedule(0.2, 0.5), weight_decay=0.3), traced=True)


# Optimizers of Keras that wrap ours.


def test_loss_scale_as_stock():
    """With float16 layers. A step that is not finite moves only `iterations`, which the wrapper does itself."""
    results = []
    for optimizer in (SGD(0.1, 0.9).bind(MODULE), keras.optimizers.SGD(0.1, 0.9)):
        scaled = keras.mixed_precision.LossScaleOptimizer(optimizer)
        model = keras_suite.set_start_weights(API.build(dtype=keras.mixed_precision.Policy("mixed_float16")))
        API.compile(model, scaled)
        fit(model)
        before, scale = model.get_weights() + optimizer_values(optimizer)[1:], float(scaled.loss_scale)
        model.train_on_batch(INPUTS[:8], OUTPUTS[:8] * np.inf)
        assert same(model.get_weights() + optimizer_values(optimizer)[1:], before)
        assert float(scaled.loss_scale) == scale / 2
        model.train_on_batch(INPUTS[:8], OUTPUTS[:8])
        assert optimizer.iterations.numpy() == 10
        results.append(model.get_weights())
    assert difference(*results) <= 1e-5


def test_a_step_that_is_not_finite_within_a_window():
    """The window continues, with the rows that it has touched."""
    weight = variable(np.zeros((3, 1)))
    scaled = keras.mixed_precision.LossScaleOptimizer(everstep.accumulate(SGD(1.0), 2).bind(MODULE))
    for row, value in [(0, 4.0), (1, np.inf), (2, 8.0)]:
        grads = scaled.get_unscaled_gradients([slices([[value * scaled.loss_scale.numpy()]], [row], [3, 1])])
        scaled.apply_gradients(zip(grads, [weight]))
    assert weight.numpy().tolist() == [[-2.0], [0.0], [-4.0]]


# Variables and slots.


def test_names_and_checkpoint_keys(tmpdir):
    """The same as stock's, for variables that stock has too."""

    def names(optimizer):
        weight = variable([1.0, 2.0], name="W")
        optimizer.apply_gradients([(constant([1.0, 1.0]), weight)])
        path = tf.train.Checkpoint(optimizer=optimizer).write(str(tmpdir.join("checkpoint")))
        keys = [key[len("optimizer/") :].split("/.ATTR")[0] for key, _ in tf.train.list_variables(path)[1:]]
        return [each.name for each in optimizer._variables], keys

    assert names(everstep.accumulate(Adam(), 2).bind(MODULE)) == (
        ["iteration:0", "pending:0", "steps:0", "Adam/m/W:0", "Adam/v/W:0", "Adam/accumulate/sum/W:0"],
        ["_hypers/beta_1", "_hypers/beta_2", "_hypers/epsilon", "_iterations", "_learning_rate"]
        + ["_variables/%d" % place for place in range(1, 6)],
    )
    averaged = names(Adam().bind(MODULE, use_ema=True, name="mine"))
    stock = names(keras.optimizers.Adam(use_ema=True, name="mine"))
    assert averaged[0] == stock[0] == ["iteration:0", "mine/average/W:0", "mine/m/W:0", "mine/v/W:0"]
    assert [key for key in averaged[1] if not key.startswith("_hypers")] == stock[1]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_slots_start_in_their_dtype(dtype):
    weight, started = tf.Variable(tf.cast([1.0, 2.0], dtype)), Adagrad(0.1, initial_accumulator_value=0.1).bind(MODULE)
    started.build([weight])
    exact = np.float64 if dtype == "float64" else np.float32
    assert started.get_slot(weight, "accumulator").numpy()[0] == exact(0.1)


def test_variables_in_another_order_and_without_gradient():
    one, two, optimizer = variable([1.0], name="one"), variable([1.0], name="two"), SGD(0.5, 0.5).bind(MODULE)
    optimizer.apply_gradients([(None, one), (constant([1.0]), two)])
    optimizer.apply_gradients([(constant([1.0]), two), (constant([1.0]), one)])
    assert [one.numpy().tolist(), two.numpy().tolist()] == [[0.5], [-0.25]]
    assert optimizer_values(optimizer)[1:] == [[-0.5], [-0.75]]  # in the order of the first call
    three = variable([1.0], name="three")
    before = optimizer_values(optimizer)
    with pytest.raises(VariableError, match="three"):
        optimizer.apply_gradients([(constant([1.0]), one), (constant([1.0]), three)])
    assert same(optimizer_values(optimizer) + [one.numpy()], before + [np.array([0.5], "float32")])
    assert optimizer.iterations.numpy() == 2  # two calls are two updates


def test_single_variables_handed_over():
    one, two, optimizer = variable([1.0]), variable([1.0]), SGD(0.5, 0.5).bind(MODULE)
    with pytest.raises(VariableError, match="build"):
        optimizer.update_step(constant([1.0]), one)
    optimizer.build([one])
    optimizer.update_step(constant([1.0]), one)
    optimizer.update_step(constant([1.0]), one)
    assert one.numpy().tolist() == [-0.25] and optimizer.iterations.numpy() == 0
    with pytest.raises(VariableError, match="built on other variables"):
        optimizer.update_step(constant([1.0]), two)
    counting = everstep.accumulate(SGD(), 2).bind(MODULE)
    counting.build([one])
    with pytest.raises(UnsupportedError, match="call its apply_gradients"):
        counting.update_step(constant([1.0]), one)


class Zeroing(everstep.Definition):
    """Sets every row that it gets to zero, as stock Ftrl does with rows without any gradient."""

    def update(self, ops, grad, var, slots, hyper, t):
        return everstep.assign(0 * var), {}


@pytest.mark.parametrize("traced", [False, True])
def test_rows_stay_sparse(traced):
    """Rows without a gradient keep every bit, slots too. With "exact" they get a zero gradient."""
    start = np.random.RandomState(4).randn(6, 2).astype("float32")
    for definition in (Adam(0.1, sparse="rows"), SGD(0.1, 0.9, sparse="rows"), Zeroing(sparse="rows"), Zeroing()):
        weight, optimizer = variable(start), definition.bind(MODULE)
        optimizer.build([weight])
        for slot in optimizer._variables[1:]:
            slot.assign(np.abs(start))

        def step(values, weight=weight, optimizer=optimizer):
            sparse = tf.IndexedSlices(values, tf.constant([4, 1, 4]), tf.constant([6, 2]))
            optimizer.apply_gradients([(sparse, weight)])

        step = tf.function(step) if traced else step
        step(constant(np.ones((3, 2))))
        for place, each in enumerate([weight] + optimizer._variables[1:]):
            changed = (each.numpy() != (np.abs(start) if place else start)).all(1)
            assert np.flatnonzero(changed).tolist() == ([1, 4] if definition.sparse == "rows" else list(range(6)))
        if traced and definition.sparse == "rows":
            graph = step.get_concrete_function(constant(np.ones((3, 2)))).graph
            shapes = [out.shape for operation in graph.get_operations() for out in operation.outputs]
            assert tf.TensorShape([6, 2]) not in shapes  # no tensor has the shape of the whole table


# Config.


def test_loss_scale_around_a_config():
    scaled = keras.mixed_precision.LossScaleOptimizer(Adam(0.1).bind(MODULE))
    data = json.loads(json.dumps(keras.optimizers.serialize(scaled)))
    copy = keras.optimizers.deserialize(data, custom_objects=everstep.custom_objects(MODULE))
    assert copy.inner_optimizer.definition == Adam(0.1) and copy.get_config() == scaled.get_config()


def test_a_mesh_is_refused():
    with pytest.raises(UnsupportedError, match="mesh"):
        Adam().bind(MODULE, mesh="any")


# Files.


@pytest.mark.shared
@pytest.mark.parametrize("built", [False, True], ids=["before it is built", "after"])
def test_a_checkpoint_in_the_middle_of_a_window(built, tmpdir):
    def train(steps, path=None):
        one, two = variable([1.0]), variable([2.0])
        optimizer = everstep.accumulate(Adam(0.1), 3).bind(MODULE)
        checkpoint = tf.train.Checkpoint(optimizer=optimizer, one=one, two=two)
        if path:
            if built:
                optimizer.build([one, two])
            status = checkpoint.restore(path)
        step = tf.function(lambda: optimizer.apply_gradients([(constant([1.0]), one), (constant([0.5]), two)]))
        for _ in range(steps):
            step()
        if path:
            status.assert_consumed()
        return checkpoint, [one.numpy(), two.numpy()] + optimizer_values(optimizer)

    path = train(4)[0].save(str(tmpdir.join("checkpoint")))
    assert same(train(3, path)[1], train(7)[1])


LOAD = "load_own_variables" if NEW_FORMAT else "_load_own_variables"


def with_state(definition, *shapes, **native):
    """Returns (a built optimizer, its state as a file has it)."""
    optimizer = definition.bind(MODULE, **native)
    optimizer.build([variable(np.ones(shape)) for shape in shapes])
    optimizer.iterations.assign(3)
    return optimizer, {str(place): value for place, value in enumerate(optimizer_values(optimizer))}


WRONG = [("another rule", lambda: with_state(SGD(0.1, 0.9), (2,), (3,))),
         ("another order", lambda: with_state(Adam(), (3,), (2,))),
         ("a variable less", lambda: with_state(Adam(), (2,))),
         ("averages", lambda: with_state(Adam(), (2,), (3,), use_ema=True))]


@pytest.mark.parametrize("name, wrong", WRONG, ids=[each[0] for each in WRONG])
def test_wrong_state(name, wrong):
    right, state = with_state(Adam(), (2,), (3,))
    before = optimizer_values(right)
    with pytest.warns(everstep.StateWarning, match="other variables"):
        getattr(right, LOAD)(wrong()[1])
    assert same(optimizer_values(right), before)
    # A state that was loaded before slots exist is kept for them, and counts no more if it does not fit.
    later, pairs = Adam().bind(MODULE), [(constant(np.ones(size)), variable(np.ones(size))) for size in (2, 3)]
    getattr(later, LOAD)(wrong()[1])
    assert later.iterations.numpy() == 3
    with pytest.warns(everstep.StateWarning, match="read_checkpoint"):
        later.apply_gradients(pairs)
    assert later.iterations.numpy() == 1
    getattr(later, LOAD)(state)
    assert same(optimizer_values(later), before)
    later.apply_gradients(pairs)
    assert later.iterations.numpy() == 4


def test_set_weights():
    optimizer, weights = with_state(Adam(), (2,), (3,))[0], [4] + [np.ones(size) for size in (2, 2, 3, 3)]
    with pytest.raises(SlotError, match="build"):
        Adam().bind(MODULE).set_weights(weights)
    optimizer.set_weights(weights)
    words = weights[:-1] + [["x"] * 3]
    for wrong in (weights[:-1], weights + [np.zeros(1)], [0.5] + weights[1:], [], ["x"] * 5, words):
        with pytest.raises(SlotError):
            optimizer.set_weights(wrong)
        assert same(optimizer_values(optimizer), weights)


def test_a_checkpoint_of_a_legacy_optimizer(tmpdir):
    legacy, weight = keras.optimizers.legacy.Adam(0.1), variable([1.0])
    legacy.apply_gradients([(constant([1.0]), weight)])
    path = tf.train.Checkpoint(optimizer=legacy, weight=weight).write(str(tmpdir.join("checkpoint")))
    optimizer = Adam().bind(MODULE)
    with pytest.raises(SlotError, match="legacy"):
        tf.train.Checkpoint(optimizer=optimizer, weight=variable([1.0])).restore(path)


def test_a_stock_subclass_made_at_run_time_beside_a_legacy_optimizer(tmpdir):
    """One table of names serves both APIs. TF 2.11 calls the module of its legacy classes by its old name still."""
    stock = type(API.stock("Adam", 0.01))
    model = compiled(type("Adam", (stock,), {})(0.01), traced=False)
    API.train_on_batches(model, 1)
    paths = [API.save(model, name, tmpdir) for name in ("h5", "saved model")]
    Adam().bind(keras.optimizers.legacy)
    for path in paths:
        assert type(keras.models.load_model(path).optimizer) is stock, path


# Bad input: raises an everstep error, and changes nothing.

IN_A_GRAPH = """
import everstep, tensorflow as tf
{imports}
from everstep.errors import UnsupportedError

def refused(do):
    try:
        do()
    except UnsupportedError as error:
        assert "tf.compat.v1.train" in str(error) and ".legacy" in str(error), error
    else:
        raise AssertionError("it was taken")

bound = everstep.optimizers.SGD(0.1).bind(module)
other, weight = everstep.optimizers.SGD(0.1).bind(module), tf.Variable([1.0])
bound.apply_gradients([(tf.constant([1.0]), weight)])
with tf.Graph().as_default():
    inside = tf.Variable([1.0])
    refused(lambda: everstep.optimizers.SGD(0.1).bind(module))
    refused(lambda: bound.apply_gradients([(tf.constant([1.0]), weight)]))
    refused(lambda: other.build([inside]))
    refused(lambda: other.minimize(lambda: inside * 2.0, [inside]))
tf.compat.v1.disable_eager_execution()
refused(lambda: everstep.optimizers.SGD(0.1).bind(module))
refused(lambda: bound.apply_gradients([(tf.constant([1.0]), weight)]))
print("done")
"""


@pytest.mark.shared
def test_graphs_of_tf_1():
    """Runs in a new process, because eager execution is disabled for good."""
    imports = "import tf_keras; module = tf_keras" if NAME == "tf_keras" else "module = tf.keras"
    done = subprocess.Popen([sys.executable, "-c", IN_A_GRAPH.format(imports=imports)], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)
    out, said = done.communicate()
    assert out.decode().split() == ["done"], said.decode()[-2000:]


# One process, one definition, every target.


@pytest.mark.parametrize("definition", [Adam(0.05, amsgrad=True), everstep.accumulate(SGD(0.1, 0.9), 2)])
def test_side_by_side(definition):
    """Optimizers of every target in one process, stepped in turns, give the same numbers."""
    random, ways, start = np.random.RandomState(5), {}, [np.array([0.5, -0.5]), np.full((4, 2), 0.5)]
    for target, modules in HERE.items():
        for name, module in modules if target not in ("arrays", "get_updates") else ():
            make = importlib.import_module("keras").Variable if target == "keras3" else variable
            ways[name] = [make(value.astype("float32")) for value in start], definition.bind(module)
    assert {"optimizer_v2", "tf_train", "update_step"} <= set(HERE) and len(ways) >= 3
    for _ in range(6):
        dense, rows = constant(random.randn(2) + 0.3), slices(random.randn(3, 2) + 0.3, [2, 0, 2], [4, 2])
        for weights, optimizer in ways.values():
            optimizer.apply_gradients([(dense, weights[0]), (rows, weights[1])])
    results = {name: [each.numpy() for each in weights] for name, (weights, _) in ways.items()}
    assert difference(results[NAME], start) > 0.05
    for name in results:
        assert difference(results[name], results[NAME]) <= 1e-6, name


@pytest.mark.parametrize("name", ["Adam", "Adagrad", "SGD"])
def test_a_file_of_a_stock_legacy_optimizer(name, tmp_path):
    """Keras gives it to its `.legacy` class, also where our class stands for the name: TF 2.10 wrote such files."""
    stock = getattr(MODULE.optimizers.legacy, name)
    model = keras.Sequential([keras.layers.Dense(1, input_shape=(2,))])
    model.compile(stock(0.25), "mse")
    model.fit(np.ones((2, 2)), np.ones((2, 1)), verbose=0)
    path = str(tmp_path / "model.h5")
    model.save(path)
    with keras.utils.custom_object_scope(everstep.custom_objects(MODULE)):
        loaded = keras.models.load_model(path).optimizer
    assert type(loaded) is stock and loaded.get_config() == model.optimizer.get_config()
    for own, same_in_file in zip(model.optimizer.get_weights(), loaded.get_weights()):
        np.testing.assert_array_equal(own, same_in_file)
