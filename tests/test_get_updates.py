"""The get_updates target: training, saving and changing a model with every old Keras of this environment.

The battery checks the numbers for gradients that tests pass in. Here Keras computes the gradients.
"""
from __future__ import absolute_import, division, print_function

import functools
import importlib

import numpy as np
import pytest

import everstep
import harness
from chain import chain_gradients, orthogonal, wrong_steps
from everstep import errors
from everstep.optimizers import SGD, AdagradDecay, Adam, Lion
from harness import clear_session, detect
from keras_suite import available_modules, same

MODULES = [module for _, module in available_modules().get("get_updates", [])]
if not MODULES:
    pytest.skip("no Keras that speaks get_updates is in this environment", allow_module_level=True)

tf = importlib.import_module("tensorflow")
v1 = getattr(getattr(tf, "compat", None), "v1", None) or tf
TF2 = not hasattr(tf, "global_variables_initializer")


@pytest.fixture(params=MODULES, ids=lambda module: module.__name__.replace("tensorflow.python.", "tf."))
def keras(request):
    clear_session(request.param)
    yield request.param
    clear_session(request.param)  # other files make no session of their own


def chain_model(keras, optimizer, layers=2, size=4):
    model = keras.models.Sequential()
    for _ in range(layers):
        model.add(keras.layers.Dense(size, use_bias=False, input_shape=(size,)))
    model.set_weights([orthogonal(size, seed) for seed in range(layers)])
    if optimizer is not None:
        model.compile(optimizer, "mse")
    return model


def chain_function(keras, optimizer, layers, size, resource):
    """Returns (a K.function that trains a chain, its variables)."""
    K = keras.backend
    with keras_graph(keras):
        x, y = K.placeholder((None, size)), K.placeholder((None, size))
        variables, value = [], x
        for place in range(layers):
            variables.append(make_variable(orthogonal(size, place), "W%d" % place, resource))
            value = K.dot(value, variables[-1])
        loss = K.mean(K.square(value - y))
        updates = optimizer.get_updates(loss=loss, params=variables)
        initialize(keras, variables)
        return K.function([x, y], [loss], updates=updates), variables


def keras_graph(keras):
    """Enters the graph in which Keras builds: on TF 2 its own."""
    get_graph = v1.get_default_graph
    if TF2:
        get_graph = importlib.import_module("keras.backend.tensorflow_backend").tf_keras_backend.get_graph
    return get_graph().as_default()


def make_variable(value, name, resource):
    if TF2:
        with tf.init_scope():
            return tf.Variable(value, name=name)
    return v1.get_variable(name, initializer=tf.constant(value), use_resource=resource)


def initialize(keras, variables):
    if not TF2:  # tf.keras initializes only the variables that it created
        keras.backend.get_session().run([variable.initializer for variable in variables])


# Order of reads and writes. The stock Adam of Keras 2.2.4 fails this in up to nine of ten steps.


def is_resource(variable):
    return not getattr(variable.dtype, "_is_ref_dtype", False)


WAYS = [(where, resource) for where in ("train_on_batch", "K.function") for resource in (False, True)]
# An epsilon large enough that a gradient near 0 does not amplify rounding.
ADAM = Adam(0.01, epsilon=1e-5)
IN_ORDER = [(ADAM, way) for way in WAYS] + [(everstep.accumulate(SGD(0.1, momentum=0.9), 4), way) for way in WAYS[2:]]


@pytest.mark.shared
@pytest.mark.parametrize("definition, way", IN_ORDER, ids=str)
def test_every_step_is_in_order(keras, definition, way):
    builds, steps = (20, 300) if harness.FULL else (2, 60)
    for _ in range(builds):
        clear_session(keras)
        optimizer, (where, resource) = definition.bind(keras), way
        if where == "train_on_batch":
            if resource and not TF2:
                v1.get_variable_scope().set_use_resource(True)
            model = chain_model(keras, optimizer, 4, 48)
            variables, step = model.weights, lambda batch, model=model: model.train_on_batch(*batch)
        else:
            step, variables = chain_function(keras, optimizer, 4, 48, resource)
        if is_resource(variables[0]) != resource:
            pytest.skip("this Keras makes no variables of this kind")
        read = functools.partial(keras.backend.batch_get_value, variables)
        wrong, worst = wrong_steps(step, read, definition, steps)
        print("{} {}: {} of {} steps wrong, worst error {:.1e}".format(keras.__name__, way, wrong, steps, worst))
        assert wrong == 0


@pytest.mark.parametrize("resource", [False, True], ids=["ref", "resource"])
def test_a_gradient_that_is_another_variable(keras, resource):
    """The gradient of sum(v * w) for v is w. On ref variables it may share the memory that is being written."""
    if TF2 and not resource:
        pytest.skip("TF 2 makes no ref variables outside of graphs")
    K, optimizer = keras.backend, SGD(0.1).bind(keras)
    start = np.arange(1.0, 1 + 4096, dtype="float32") / 4096
    with keras_graph(keras):
        v, w = make_variable(start, "v", resource), make_variable(-start, "w", resource)
        loss = K.sum(v * w)
        step = K.function([], [loss], updates=optimizer.get_updates(loss=loss, params=[v, w]))
        initialize(keras, [v, w])
    expected = [start.astype("float64"), -start.astype("float64")]
    for _ in range(50):
        step([])
        expected = [expected[0] - 0.1 * expected[1], expected[1] - 0.1 * expected[0]]
    for value, expected_value in zip(K.batch_get_value([v, w]), expected):
        np.testing.assert_allclose(value, expected_value, rtol=1e-5)


# Training a model.


def batches(count, size=4, seed=2):
    return np.random.RandomState(seed).randn(count, 2, 8, size).astype("float32")


def expected_chain(definition, steps, layers=2, size=4, before_step=None):
    """Returns the weights of a chain after some batches, by the NumPy target in float64."""
    weights = [orthogonal(size, place).astype("float64") for place in range(layers)]
    oracle = definition.bind(np)
    for place, (x, y) in enumerate(steps):
        if before_step:
            before_step(place, oracle)
        oracle.apply_gradients(zip(chain_gradients(weights, x, y), weights))
    return weights


def assert_close(actual, expected, bound=1e-5):
    for one, other in zip(actual, expected):
        assert abs(np.asarray(one, "float64") - other).max() <= bound * abs(other).max()


def fit(model, data):
    size = data.shape[2]
    x, y = data[:, 0].reshape(-1, data.shape[3]), data[:, 1].reshape(-1, data.shape[3])
    model.fit(x, y, batch_size=size, epochs=1, shuffle=False, verbose=0)


def fit_generator(model, data):
    model.fit_generator(((x, y) for x, y in data), steps_per_epoch=len(data), epochs=1, verbose=0, max_queue_size=1)


def train_on_batch(model, data):
    for x, y in data:
        model.train_on_batch(x, y)


@pytest.mark.parametrize("train", [fit, fit_generator, train_on_batch])
def test_a_model_trains(keras, train):
    definition, data = Adam(0.05, amsgrad=True, epsilon=1e-5), batches(6)
    optimizer = definition.bind(keras)
    model = chain_model(keras, optimizer)
    train(model, data)
    assert isinstance(optimizer, keras.optimizers.Optimizer)
    assert type(optimizer).__name__ == "Adam" and model.optimizer is optimizer
    assert_close(model.get_weights(), expected_chain(definition, data))
    assert keras.backend.get_value(optimizer.iterations) == len(data)


def test_restored_before_the_first_step(keras):
    """Keras 2.0.8 initializes each variable that it has not seen in a session, even if it has a value."""
    definition, data = Adam(0.05, epsilon=1e-5), batches(4)
    model = chain_model(keras, definition.bind(keras))
    train_on_batch(model, data[:2])
    state = everstep.capture(model.optimizer, model.trainable_weights, weights=True)
    resumed = chain_model(keras, definition.bind(keras))
    variables = dict(zip(sorted(state.slots), sorted(resumed.trainable_weights, key=lambda weight: weight.name)))
    everstep.restore(resumed.optimizer, state, variables, weights=True)
    train_on_batch(resumed, data[2:])
    assert_close(resumed.get_weights(), expected_chain(definition, data))


def test_outputs_and_batch_normalization(keras):
    """Two losses, one of them weighted, and the updates of batch normalization."""
    layers = keras.layers
    inputs = layers.Input((3,))
    hidden = layers.BatchNormalization(momentum=0.5)(layers.Dense(4)(inputs))
    outputs = [layers.Dense(2, name="a")(hidden), layers.Dense(1, name="b")(hidden)]
    model = keras.models.Model(inputs, outputs)
    model.compile(SGD(0.05).bind(keras), "mse", loss_weights=[1.0, 0.5])
    random = np.random.RandomState(3)
    x, y = random.randn(16, 3), [random.randn(16, 2), random.randn(16, 1)]
    before, losses = model.get_weights(), [model.train_on_batch(x, y)[0] for _ in range(30)]
    assert losses[-1] < losses[0]
    assert all(abs(old - new).max() > 0 for old, new in zip(before, model.get_weights()) if old.any())
    moving = model.layers[2].get_weights()[2:]
    assert all(abs(value).max() > 0 for value in moving)


def test_compiling_again_keeps_slots_and_counters(keras):
    """Compiling again, with other layers frozen, keeps slots and counters. Stock optimizers silently reset them."""
    definition, data = SGD(0.05, momentum=0.9), batches(9)
    optimizer = definition.bind(keras)
    model = chain_model(keras, optimizer)
    train_on_batch(model, data[:3])
    model.compile(optimizer, "mse")
    train_on_batch(model, data[3:6])
    assert_close(model.get_weights(), expected_chain(definition, data[:6]))
    kernel = model.layers[0].weights[0]
    slot = keras.backend.get_value(optimizer.get_slot(kernel, "velocity"))
    model.layers[0].trainable = False
    model.compile(optimizer, "mse")
    frozen = model.get_weights()
    train_on_batch(model, data[6:7])
    assert (model.get_weights()[0] == frozen[0]).all() and (model.get_weights()[1] != frozen[1]).any()
    assert len(optimizer.get_weights()) == 2  # iterations and one velocity: what a loaded model expects
    model.layers[0].trainable = True
    model.compile(optimizer, "mse")
    np.testing.assert_array_equal(keras.backend.get_value(optimizer.get_slot(kernel, "velocity")), slot)
    train_on_batch(model, data[7:])
    assert len(optimizer.get_weights()) == 3 and keras.backend.get_value(optimizer.iterations) == len(data)


def test_nothing_to_train(keras):
    model = chain_model(keras, None)
    model.trainable = False
    model.compile(Adam(0.1).bind(keras), "mse")
    before = model.get_weights()
    train_on_batch(model, batches(1))
    assert same(before, model.get_weights())


def test_two_models_with_one_optimizer(keras):
    """Each model has its own slots. They share hypers and the count of updates, as with stock optimizers."""
    optimizer = SGD(0.05, momentum=0.9).bind(keras)
    models, data = [chain_model(keras, optimizer), chain_model(keras, optimizer)], batches(4)
    for model in models:
        train_on_batch(model, data)
    for model in models:
        assert_close(model.get_weights(), expected_chain(SGD(0.05, momentum=0.9), data))
    assert keras.backend.get_value(optimizer.iterations) == 2 * len(data)


@pytest.mark.skipif(TF2, reason="under TF 2 the program's loss is in a graph of Keras")
def test_the_arguments_of_an_older_keras(keras):
    """Actors and critics of old programs write `get_updates(weights, [], loss)`, and stock takes it."""
    K = keras.backend
    values = []
    for makes in [keras.optimizers.SGD] * (keras.__name__ == "keras") + [lambda rate: SGD(rate).bind(keras)]:
        weight = K.variable([1.0, 2.0])
        loss = K.sum(weight * weight)
        K.function([], [loss], updates=makes(0.25).get_updates([weight], [], loss))([])
        values.append(K.get_value(weight).tolist())
    assert values == [[0.5, 1.0]] * len(values)


def test_two_calls_are_two_steps(keras):
    """Two losses of one weight, trained in turn: they share slots and counters, and each call is a step."""
    K, optimizer, functions = keras.backend, SGD(0.1, momentum=0.5).bind(keras), []
    weight = K.variable(np.ones(2), name="W")
    for factor in (1.0, 2.0):
        with keras_graph(keras):
            loss = K.sum(weight * factor)
        functions.append(K.function([], [loss], updates=optimizer.get_updates(loss=loss, params=[weight])))
    for place in range(4):
        functions[place % 2]([])
    oracle, expected = SGD(0.1, momentum=0.5).bind(np), np.ones(2)
    for place in range(4):
        oracle.apply_gradients([(np.full(2, 1.0 + place % 2), expected)])
    np.testing.assert_allclose(K.get_value(weight), expected, rtol=1e-6)
    assert K.get_value(optimizer.iterations) == 4


# Hypers.


def test_hypers_can_be_set(keras):
    K, definition, data = keras.backend, SGD(0.05, momentum=0.5), batches(5)
    optimizer = definition.bind(keras)
    model = chain_model(keras, optimizer)
    changes = {1: ("lr", 0.02), 2: ("lr", 0.01), 3: ("learning_rate", np.float32(0.03)), 4: ("momentum", 0.9)}

    def change(place, oracle):
        if place in changes:
            setattr(oracle, *changes[place])

    for place in range(5):
        if place == 1:
            K.set_value(optimizer.lr, changes[1][1])
        else:
            change(place, optimizer)
        train_on_batch(model, data[place : place + 1])
    assert_close(model.get_weights(), expected_chain(definition, data, before_step=change))
    for wrong in (float("nan"), "fast", float("inf"), None, [0.1], K.variable(0.1)):
        with pytest.raises((errors.HyperValueError, errors.HyperTypeError)):
            optimizer.lr = wrong
    assert abs(K.get_value(optimizer.lr) - 0.03) < 1e-7
    rate = K.variable(0.1)
    SGD(rate).bind(keras).lr = 0.5
    assert K.get_value(rate) == 0.5


def test_a_schedule_is_no_variable(keras):
    """Setting the rate with Keras's own calls raises an error that says why."""
    K, optimizer = keras.backend, SGD(everstep.InverseTimeDecay(0.1)).bind(keras)
    model, (x, y) = chain_model(keras, optimizer), batches(1)[0]
    before = model.get_weights()
    for change in (
        lambda: K.set_value(optimizer.lr, 0.5),
        lambda: model.fit(x, y, verbose=0, callbacks=[keras.callbacks.LearningRateScheduler(lambda epoch: 0.5)]),
    ):
        with pytest.raises(AttributeError, match="schedule, which sets the value"):
            change()
    assert same(before, model.get_weights())


# Clipping.


BOUNDS = [{"clipnorm": 0.1}, {"clipvalue": 0.01}, {"clipnorm": 0.1, "clipvalue": 0.02}]


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_clipping_is_the_stock_one(keras, bounds):
    data, weights = batches(1), []
    x, y = data[0]
    for optimizer in (SGD(0.5).bind(keras, **bounds), keras.optimizers.SGD(0.5, **bounds)):
        model = chain_model(keras, optimizer)
        model.train_on_batch(x, y)
        weights.append(model.get_weights())
    assert_close(weights[0], weights[1], 1e-6)
    assert abs(weights[0][0] - expected_chain(SGD(0.5), data)[0]).max() > 1e-3


@pytest.mark.filterwarnings("ignore:stock get_updates reads its counter")
@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_get_gradients_of_an_optimizer_made_of_stock_is_clipped(keras, bounds):
    K, found = keras.backend, []
    stock = keras.optimizers.SGD(0.5, **bounds)
    for optimizer in (everstep.from_native(stock).bind(keras), stock):
        with keras_graph(keras):
            weights = [K.variable(np.ones((2, 2))), K.variable(np.ones(3))]
            loss = K.sum(3.0 * weights[0]) + K.sum(K.square(weights[1]))
            grads = optimizer.get_gradients(loss, weights)
        found.append([K.function([], [grad])([])[0] for grad in grads])
    for actual, expected in zip(*found):
        np.testing.assert_allclose(actual, expected, rtol=1e-6)
        assert abs(expected).max() < 1


@pytest.mark.parametrize("bounds", [{"clipnorm": 0.1}, {"clipvalue": 0.01}], ids=str)
def test_clipping_keeps_rows(keras, bounds):
    """Stock Keras 2.3.1 on TF 2.1 crashes on a clipped sparse gradient. Other versions clip equal rows one by one."""
    K = keras.backend
    table, rows, values = np.ones((50, 2), "float32"), [3, 7, 3], np.array([[1, 2], [3, 4], [5, 6]], "float32")
    summed = np.zeros((50, 2))
    np.add.at(summed, rows, values)
    optimizer = SGD(1.0).bind(keras, **bounds)
    weight = K.variable(table, name="table")
    with keras_graph(keras):
        loss = K.sum(K.gather(weight, K.constant(rows, dtype="int32")) * K.constant(values))
        assert not whole_tensors(loss, lambda: optimizer.get_updates(loss=loss, params=[weight]), 50)
    K.function([], [loss], updates=optimizer.updates)([])
    if "clipnorm" in bounds:
        summed *= 0.1 / np.sqrt((summed**2).sum())
    else:
        summed = np.clip(summed, -0.01, 0.01)
    np.testing.assert_allclose(K.get_value(weight), table - summed, rtol=1e-6)


def test_clipping_of_other_dtypes(keras):
    """The norm of 16-bit gradients does not overflow, and that of float64 gradients is computed in float64."""
    K = keras.backend
    for dtype, bound in [("float16", 1e-3), ("float64", 1e-12)]:
        start, factor = np.ones(3), np.array([600.0, 800.0, 0.0])  # a norm of 1000
        weight, optimizer = K.variable(start, dtype=dtype, name="W"), SGD(0.5, 0.5).bind(keras, clipnorm=0.125)
        with keras_graph(keras):
            loss = K.sum(weight * K.constant(factor, dtype=dtype))
        K.function([], [loss], updates=optimizer.get_updates(loss=loss, params=[weight]))([])
        np.testing.assert_allclose(K.get_value(weight), start - 0.5 * 0.125 * factor / 1000, rtol=bound)
        assert K.get_value(optimizer.get_slot(weight, "velocity")).dtype == {"float16": "float32"}.get(dtype, dtype)


# Embeddings.


def whole_tensors(loss, build, rows):
    """Returns the operations of `build` that create or write a tensor with all rows; sparse steps must have none."""
    known = set(map(id, loss.graph.get_operations()))
    build()
    operations = []
    for operation in loss.graph.get_operations():
        # Skip variables, their initializers, and operations that forward a tensor without a copy.
        starts = "/table/" in operation.name or operation.type == "Fill"
        if id(operation) not in known and not starts and not operation.type.startswith(HANDS_ON):
            tensors = list(operation.outputs) + list(operation.inputs[1:] if "Assign" in operation.type else [])
            # Compare only the number of rows: after a sum over rows, TF 1.8 knows nothing else.
            if any(tensor.shape.ndims == 2 and tensor.shape.as_list()[0] == rows for tensor in tensors):
                operations.append(operation)
    return operations


HANDS_ON = ("Identity", "ReadVariableOp", "Scatter", "SparseApply", "Switch", "RefSwitch")


ROWWISE = [SGD(0.1), Adam(0.1, sparse="rows"), Adam(0.1, sparse="rows", amsgrad=True),
           SGD(0.1, momentum=0.9, sparse="rows"), AdagradDecay(0.1, decay_steps=2, sparse="rows"),
           everstep.accumulate(Adam(0.1, sparse="rows"), 2)]


def embedding_updates(keras, optimizer, rows):
    K = keras.backend
    weight = K.variable(np.ones((rows, 2)), name="table")
    ids = K.placeholder((None,), dtype="int32")
    with keras_graph(keras):
        loss = K.sum(K.square(K.gather(weight, ids)))
    return whole_tensors(loss, lambda: optimizer.get_updates(loss=loss, params=[weight]), rows)


@pytest.mark.parametrize("definition", ROWWISE, ids=lambda definition: definition._short())
def test_rows_stay_rows(keras, definition):
    assert embedding_updates(keras, definition.bind(keras), 97) == []


@pytest.mark.filterwarnings("ignore:Converting sparse IndexedSlices")  # the stock optimizer does
def test_whole_tensors_are_seen(keras):
    """The check of the test above finds such tensors in our exact Adam and in stock Adam."""
    assert embedding_updates(keras, Adam(0.1).bind(keras), 97)
    assert embedding_updates(keras, keras.optimizers.Adam(0.1), 97)


def embedding_model(keras, optimizer, start, **embedding):
    model = keras.models.Sequential()
    model.add(keras.layers.Embedding(start.shape[0], start.shape[1], input_length=3, **embedding))
    model.add(keras.layers.Flatten())
    model.set_weights([start])
    model.compile(optimizer, "mse")
    return model


def embedding_gradient(start, ids, y):
    """Returns the gradient of mean((table[ids] - y)^2): (values, rows)."""
    return 2.0 * (start[ids].reshape(y.shape) - y).reshape(-1, start.shape[1]) / y.size, ids.reshape(-1)


def embedding_batches(count, seed=4):
    random = np.random.RandomState(seed)
    return [(random.randint(0, 9, (8, 3)), random.randn(8, 6)) for _ in range(count)]  # rows from 9 on never come


@pytest.mark.parametrize(
    "definition",
    [
        SGD(0.5),
        SGD(0.5, momentum=0.9, sparse="rows"),
        Adam(0.05, epsilon=1e-5),
        Adam(0.05, epsilon=1e-5, sparse="rows"),
    ],
    ids=lambda definition: definition._short(),
)
def test_an_embedding_trains(keras, definition):
    start, data = np.random.RandomState(5).randn(12, 2).astype("float32"), embedding_batches(5)
    model = embedding_model(keras, definition.bind(keras), start)
    expected, oracle = start.astype("float64"), definition.bind(np)
    for ids, y in data:
        model.train_on_batch(ids, y)
        oracle.apply_gradients([(everstep.IndexedSlices(*embedding_gradient(expected, ids, y)), expected)])
    assert_close(model.get_weights(), [expected])


# Constraints.


def constraints(keras):
    return [keras.constraints.NonNeg(), keras.constraints.MaxNorm(0.8, axis=0)]


@pytest.mark.filterwarnings("ignore:Converting sparse IndexedSlices")  # the stock optimizer does
@pytest.mark.parametrize("place", [0, 1], ids=["NonNeg", "MaxNorm"])
def test_constraints_are_the_stock_ones(keras, place):
    (x, y), start = batches(1)[0], abs(orthogonal(4, 0))
    table, weights = abs(np.random.RandomState(6).randn(12, 2)).astype("float32"), []
    for make in (lambda: SGD(0.5).bind(keras), lambda: keras.optimizers.SGD(0.5)):
        constraint = constraints(keras)[place]
        model = keras.models.Sequential()
        model.add(keras.layers.Dense(4, use_bias=False, input_shape=(4,), kernel_constraint=constraint))
        model.set_weights([start])
        model.compile(make(), "mse")
        for _ in range(4):
            model.train_on_batch(x, y)
        rows = embedding_model(keras, make(), table, embeddings_constraint=constraint)
        for ids, target in embedding_batches(4):
            rows.train_on_batch(ids, 3 * target)
        weights.append(model.get_weights() + rows.get_weights())
    assert_close(weights[0], weights[1], 1e-6)
    if place:
        assert np.sqrt((weights[0][0] ** 2).sum(axis=0)).max() <= 0.8 * (1 + 1e-5)
    else:
        assert weights[0][0].min() == 0 and weights[0][1].min() == 0


# Accumulation.


def test_accumulation_is_built_again(keras):
    optimizer, data = everstep.accumulate(SGD(0.1), 4).bind(keras), batches(8)
    model = chain_model(keras, optimizer)
    train_on_batch(model, data[:2])
    model.compile(optimizer, "mse")
    train_on_batch(model, data[2:])
    joined = data.reshape(2, 4, 2, 8, 4).transpose(0, 2, 1, 3, 4).reshape(2, 2, 32, 4)
    assert_close(model.get_weights(), expected_chain(SGD(0.1), joined))
    model.layers[0].trainable = False
    model.compile(optimizer, "mse")
    train_on_batch(model, data[:4])


def test_accumulation_refuses_a_second_group(keras):
    optimizer, data = everstep.accumulate(SGD(0.1), 4).bind(keras), batches(1)
    train_on_batch(chain_model(keras, optimizer), data)
    other = chain_model(keras, optimizer)
    before = other.get_weights()
    with pytest.raises(errors.UnsupportedError, match="one definition for each group"):
        train_on_batch(other, data)
    assert same(before, other.get_weights())


# Slots.


class Anchored(everstep.Definition):
    """Has a slot that starts at the variable's value, one of another dtype, and a scalar."""

    locality = "row"
    learning_rate = everstep.hyper(0.1)
    anchor = everstep.slot(init=everstep.VARIABLE)
    squares = everstep.slot(dtype="float32", shape="row")
    power = everstep.scalar(1.0)

    def advance(self, ops, scalars, hyper, t):
        return {"power": 0.5 * scalars.power}

    def update(self, ops, grad, var, slots, hyper, t):
        squares = slots.squares + ops.mean(grad * grad, axis=1, keepdims=True)
        change = hyper.learning_rate * (grad + var - slots.anchor) * hyper.power
        return change, {"anchor": slots.anchor, "squares": squares}


def test_a_slot_starts_at_the_trained_value(keras):
    """The slot starts at the trained value, or at the initial value if nothing is initialized yet."""
    K, data = keras.backend, batches(3)
    model = chain_model(keras, SGD(0.1).bind(keras))
    train_on_batch(model, data)
    trained = model.get_weights()
    optimizer = Anchored(0.1).bind(keras)
    model.compile(optimizer, "mse")
    train_on_batch(model, data[:1])
    for weight, value in zip(model.weights, trained):
        np.testing.assert_array_equal(K.get_value(optimizer.get_slot(weight, "anchor")), value)
    fresh = keras.models.Sequential()
    fresh.add(keras.layers.Dense(64, input_shape=(64,), use_bias=False))
    optimizer = Anchored(0.0).bind(keras)
    fresh.compile(optimizer, "mse")
    fresh.train_on_batch(np.ones((1, 64)), np.ones((1, 64)))
    np.testing.assert_array_equal(K.get_value(optimizer.get_slot(fresh.weights[0], "anchor")), fresh.get_weights()[0])
    assert K.get_value(harness.bound(optimizer).adapter.scalar("power")) == 0.5


def test_weights_by_position(keras):
    optimizer, data = Anchored(0.1).bind(keras), batches(2)
    model = chain_model(keras, optimizer, layers=1)
    assert optimizer.get_weights() == []
    with pytest.raises(errors.StateError, match="before a train function is built"):
        optimizer.set_weights([np.zeros(())])
    with pytest.raises(errors.SlotError, match="anchor, squares once"):
        optimizer.get_slot(model.weights[0], "anchor")
    train_on_batch(model, data)
    weights = optimizer.get_weights()
    assert [weight.shape for weight in weights] == [(), (), (4, 4), (4, 1)]
    assert optimizer.get_slot_names() == ["anchor", "squares"]
    for wrong in (weights[:-1], weights + weights[:1], weights[:2] + weights[:1:-1], []):
        with pytest.raises(errors.StateError):
            optimizer.set_weights(wrong)
    assert same(optimizer.get_weights(), weights)
    optimizer.set_weights([weight + 1 for weight in weights])
    for now, then in zip(optimizer.get_weights(), weights):
        np.testing.assert_array_equal(now, then + 1)


# Config and files.

DEFINITIONS = [SGD(0.001, momentum=0.9, nesterov=True), Adam(0.001, amsgrad=True, epsilon=1e-5, sparse="rows"),
               AdagradDecay(everstep.InverseTimeDecay(0.1, rate=1e-3), decay_steps=7),
               everstep.accumulate(Adam(0.001), 3, reduction="sum")]


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda definition: definition._short())
def test_a_config_comes_back(keras, definition):
    optimizer = definition.bind(keras, clipnorm=1.5, name="mine")
    config = optimizer.get_config()
    other = type(optimizer).from_config(config)
    assert other.definition == definition and type(other) is type(optimizer)
    assert other.get_config() == config and other.clipnorm == 1.5 and other.name == "mine"
    written = keras.optimizers.serialize(optimizer)
    # Stock's class must never be loaded instead.
    with harness.unregistered(keras), pytest.raises((TypeError, ValueError)):
        keras.optimizers.deserialize(dict(written))
    assert keras.optimizers.deserialize(dict(written)).definition == definition
    read = keras.optimizers.deserialize(dict(written), custom_objects=everstep.custom_objects(keras))
    assert type(read) is type(optimizer) and read.definition == definition
    with keras.utils.CustomObjectScope(everstep.custom_objects(keras)):
        assert keras.optimizers.get(dict(written)).definition == definition
    assert keras.optimizers.get(optimizer) is optimizer
    assert "clipnorm" not in definition.bind(keras, clipnorm=None).get_config()


def test_a_config_has_the_hypers_of_the_day(keras):
    K, optimizer = keras.backend, Adam(0.001).bind(keras)
    optimizer.lr = 0.25
    config = optimizer.get_config()
    assert (config["learning_rate"], config["beta_1"], config["epsilon"]) == (0.25, 0.9, 1e-7)
    assert type(optimizer).from_config(config).definition == Adam(0.25)
    for given in (K.variable(0.5), K.variable(0.25) * 2, lambda: 0.5, lambda: K.variable(0.5)):
        if TF2 and K.is_tensor(given) and not hasattr(given, "assign") and not callable(given):
            continue
        assert Adam(given).bind(keras).get_config()["learning_rate"] == 0.5
    with pytest.raises(errors.ConfigError, match="learning_rate"):
        Adam(K.placeholder(())).bind(keras).get_config()
    assert type(type(optimizer).from_config({"lr": 0.1})) is keras.optimizers.Adam
    with pytest.raises(errors.ConfigError, match="everstep did not write it"):
        Lion.native_class(keras).from_config({"lr": 0.1})


def saved(model, tmpdir):
    path = str(tmpdir.join("model.h5"))
    model.save(path)
    return path


def loaded(keras, path):
    """Loads a model in a new session."""
    clear_session(keras)
    return keras.models.load_model(path, custom_objects=everstep.custom_objects(keras))


RESUMED = [AdagradDecay(0.05, decay_steps=4), everstep.accumulate(Adam(0.05, amsgrad=True), 3)]


@pytest.mark.parametrize("definition", RESUMED, ids=lambda each: each._short())
def test_a_saved_model_resumes(keras, definition, tmpdir):
    """5 steps, saving, loading and 5 more equal 10 steps, bit for bit."""
    data = batches(10)
    model = chain_model(keras, definition.bind(keras))
    train_on_batch(model, data[:5])
    path = saved(model, tmpdir)
    train_on_batch(model, data[5:])
    expected, slots = model.get_weights(), model.optimizer.get_weights()
    model = loaded(keras, path)
    assert model.optimizer.definition == definition
    train_on_batch(model, data[5:])
    assert same(model.get_weights() + model.optimizer.get_weights(), expected + slots)


@pytest.mark.parametrize("definition", [Adam(0.05), everstep.accumulate(SGD(0.05), 2)], ids=lambda each: each._short())
def test_no_stock_optimizer_is_loaded_instead(keras, definition, tmpdir):
    model = chain_model(keras, definition.bind(keras), layers=1)
    train_on_batch(model, batches(1))
    words = "everstep|[Uu]nknown optimizer|Unexpected keyword"
    with harness.unregistered(keras), pytest.raises((TypeError, ValueError), match=words):
        keras.models.load_model(saved(model, tmpdir))


def test_a_model_saved_before_its_first_step(keras, tmpdir):
    path = saved(chain_model(keras, Adam(0.05).bind(keras)), tmpdir)
    model = loaded(keras, path)
    train_on_batch(model, batches(2))
    assert_close(model.get_weights(), expected_chain(Adam(0.05), batches(2)))


def test_a_model_saved_with_frozen_layers(keras, tmpdir):
    """The file has the slots of the layers that are trained now, as a loaded model expects."""
    optimizer, data = SGD(0.05, momentum=0.9).bind(keras), batches(4)
    model = chain_model(keras, optimizer)
    train_on_batch(model, data[:1])
    model.layers[0].trainable = False
    model.compile(optimizer, "mse")
    train_on_batch(model, data[1:2])
    path = saved(model, tmpdir)
    train_on_batch(model, data[2:])
    expected = model.get_weights()
    model = loaded(keras, path)
    train_on_batch(model, data[2:])
    assert same(model.get_weights(), expected)


def test_names_on_disk(keras, tmpdir):
    import h5py

    model = keras.models.Sequential()
    model.add(keras.layers.Dense(2, input_shape=(3,), name="layer"))
    model.compile(everstep.accumulate(Adam(0.1), 2).bind(keras), "mse")
    model.train_on_batch(np.ones((1, 3)), np.ones((1, 2)))
    with h5py.File(saved(model, tmpdir), "r") as stored:
        names = [name.decode() for name in stored["optimizer_weights"].attrs["weight_names"]]
    expected = ["Adam/iterations:0", "Adam/pending:0", "Adam/steps:0"]
    for slot in ("m", "v", "accumulate/sum"):
        expected += ["Adam/{}/{}:0".format(variable, slot) for variable in ("layer/kernel", "layer/bias")]
    assert names == expected
    if not TF2:  # eager variables are in no graph
        known = [name for name, _ in tf.train.list_variables(checkpoint(keras, tmpdir))]
        assert set(name[:-2] for name in expected) <= set(known)
        hypers = ["Adam/" + name for name in ("learning_rate", "beta_1", "beta_2", "epsilon")]
        assert set(hypers) | {"layer/kernel", "layer/bias"} <= set(known)


def checkpoint(keras, tmpdir):
    return v1.train.Saver().save(keras.backend.get_session(), str(tmpdir.join("saver")), write_meta_graph=False)


def test_a_checkpoint_resumes(keras, tmpdir):
    if TF2:
        pytest.skip("under TF 2 Keras's variables are eager, which tf.train.Saver does not take")
    data, definition = batches(6), SGD(0.05, momentum=0.9)
    model = chain_model(keras, definition.bind(keras))
    train_on_batch(model, data[:3])
    path = checkpoint(keras, tmpdir)
    train_on_batch(model, data[3:])
    expected = model.get_weights() + model.optimizer.get_weights()
    v1.train.Saver().restore(keras.backend.get_session(), path)
    train_on_batch(model, data[3:])
    assert same(model.get_weights() + model.optimizer.get_weights(), expected)


# Errors: they say what is wrong, and nothing has changed.


def test_a_missing_gradient(keras):
    K, optimizer = keras.backend, Adam(0.1).bind(keras)
    used, unused = K.variable(np.ones(2), name="used"), K.variable(np.ones(2), name="unused")
    with keras_graph(keras):
        loss = K.sum(used * used)
    with pytest.raises(errors.GradientError, match="unused"):
        optimizer.get_updates(loss=loss, params=[used, unused])
    assert optimizer.weights == []
    with pytest.raises(errors.SlotError):
        optimizer.get_slot(used, "m")


def test_wrong_arguments(keras):
    K, optimizer = keras.backend, Adam(0.1).bind(keras)
    weight = K.variable(np.ones(2), name="W")
    with keras_graph(keras):
        loss = K.sum(weight * weight)
    for wrong in ((loss, weight), ([weight], loss), (loss, ["W"]), (loss, [weight, weight]), (None, [weight])):
        with pytest.raises(errors.VariableError):
            optimizer.get_updates(*wrong)
    with pytest.raises(errors.GradientError, match="int32"):
        harness.bound(optimizer).take_step([(loss, K.variable(np.ones((), "int32"), dtype="int32", name="I"))])


def test_an_optimizer_of_another_graph(keras):
    if TF2:
        pytest.skip("under TF 2 Keras's variables are in no graph")
    optimizer = Adam(0.1).bind(keras)
    clear_session(keras)
    with pytest.raises(errors.VariableError, match="bind the definition again"):
        train_on_batch(chain_model(keras, optimizer), batches(1))


def test_what_it_cannot(keras):
    optimizer = Adam(0.1).bind(keras)
    for name in ("minimize", "apply_gradients"):
        assert not hasattr(optimizer, name)
    with pytest.raises(errors.DefinitionError, match="global_clipnorm"):
        Adam(0.1).bind(keras, global_clipnorm=1.0)


# The order of stock.


def in_stocks_order():
    options = {"Adam": {"amsgrad": True}, "SGD": {"momentum": 0.5}}
    for entry in harness.entries_of("get_updates"):
        yield entry.make(options.get(entry.native, {})), [slot.name for slot in entry.slots]


@pytest.mark.parametrize("definition, slots", in_stocks_order(), ids=lambda value: type(value).__name__)
def test_weights_have_the_order_of_the_stock_table(keras, definition, slots):
    optimizer = definition.bind(keras)
    model = chain_model(keras, optimizer)
    model.train_on_batch(*batches(1)[0])
    expected = [optimizer.get_slot(each, slot) for slot in slots for each in model.trainable_weights]
    assert list(map(id, optimizer.weights[-len(expected):])) == list(map(id, expected))


@pytest.mark.filterwarnings("ignore:stock get_updates reads its counter:UserWarning")
@pytest.mark.parametrize("name, arguments", [("Adam", {}), ("SGD", {"momentum": 0.5}), ("RMSprop", {})])
def test_a_list_of_stocks_weights_is_taken_in_its_order(keras, name, arguments):
    """All variables have one shape, so that no shape tells a wrong order."""
    data = batches(1)[0]
    stock = getattr(keras.optimizers, name)(0.1, **arguments)
    model = chain_model(keras, stock)
    model.train_on_batch(*data)
    optimizer = everstep.from_native(stock).bind(keras)
    ours = chain_model(keras, optimizer)
    ours.train_on_batch(*data)
    theirs = stock.get_weights()
    if name == "RMSprop" and len(theirs) == 2:  # before Keras 2.3 it does not save its counter
        theirs = [np.int64(1)] + theirs
    optimizer.set_weights(theirs)
    slots = {"Adam": ["m", "v"], "SGD": ["velocity"], "RMSprop": ["mean_square"]}[name]
    found = [keras.backend.get_value(optimizer.get_slot(each, slot)) for slot in slots
             for each in ours.trainable_weights]
    assert len(found) == 2 * len(slots)
    for one, other in zip(found, theirs[1:]):
        np.testing.assert_array_equal(one, other)


# Counting in the user's variable.


def adam_model(keras, optimizer):
    model = keras.models.Sequential([keras.layers.Dense(1, kernel_initializer="ones", input_shape=(2,))])
    model.compile(optimizer, "mse")
    return model


@pytest.mark.parametrize("dtype", ["int64", "int32"])
@pytest.mark.parametrize("stock", [True, False], ids=["stock", "ours"])
def test_iterations_can_be_set_to_a_variable(keras, stock, dtype):
    """Estimators set the global step. Stock's Adam may read its count before or after it moves, so ours is compared."""
    K, data = keras.backend, (np.ones((4, 2)), np.zeros((4, 1)))
    optimizer = keras.optimizers.Adam(0.1) if stock else Adam(0.1).bind(keras)
    counter = K.variable(5, dtype=dtype)
    optimizer.iterations = counter
    model = adam_model(keras, optimizer)
    model.fit(*data, epochs=2, verbose=0)
    assert optimizer.iterations is counter and K.get_value(counter) == 7
    if not stock:
        other = adam_model(keras, Adam(0.1).bind(keras))
        K.set_value(other.optimizer.iterations, 5)
        other.fit(*data, epochs=2, verbose=0)
        assert same(model.get_weights(), other.get_weights())
        assert same(model.optimizer.get_weights()[1:], other.optimizer.get_weights()[1:])


@pytest.mark.parametrize("value, error", [(5, errors.HyperTypeError), ([0, 0], errors.VariableError)])
def test_iterations_cannot_be_set_to_what_does_not_count(keras, value, error):
    optimizer = Adam(0.1).bind(keras)
    counter = optimizer.iterations
    with pytest.raises(error):
        optimizer.iterations = keras.backend.variable(value) if isinstance(value, list) else value
    assert optimizer.iterations is counter


@pytest.mark.skipif(not hasattr(v1.Session, "_make_callable_from_options"), reason="TF 1.6 is the first with callables")
def test_a_callable_may_outlive_its_session():
    """TF 1.6 to 1.9 crash there, unless `clear_session` of everstep.testing ran before."""
    clear_session(MODULES[0])
    with tf.Graph().as_default():
        options = importlib.import_module("tensorflow.core.protobuf.config_pb2").CallableOptions()
        options.fetch.append(tf.constant(1.0).name)
        session = v1.Session()
        function = session._make_callable_from_options(options)
        assert function() == [1.0]
        session.__del__()
        del function


@pytest.mark.skipif(not hasattr(getattr(v1.keras, "estimator", None), "model_to_estimator"),
                    reason="no model_to_estimator in this TensorFlow")
@pytest.mark.parametrize("stock", [True, False], ids=["stock", "ours"])
def test_a_model_becomes_an_estimator(stock, tmpdir):
    """TensorFlow counts the updates of the estimator's optimizer in its global step."""
    keras = v1.keras
    if detect.find(keras).target.name != "get_updates":
        pytest.skip("tf.keras is OptimizerV2 here")
    if tf.__version__.startswith("1.11."):
        pytest.skip("TF 1.11 gives the global step to its TFOptimizer alone, so training never ends: "
                    "https://github.com/tensorflow/tensorflow/blob/v1.11.0/tensorflow/python/keras/models.py#L454")
    clear_session(keras)
    model = adam_model(keras, keras.optimizers.SGD(0.1, momentum=0.5) if stock else SGD(0.1, momentum=0.5).bind(keras))
    name = model.input_names[0]
    estimator = keras.estimator.model_to_estimator(model, model_dir=str(tmpdir.join("run")))

    def batches():
        return tf.data.Dataset.from_tensors(({name: np.ones((4, 2), "float32")}, np.zeros((4, 1), "float32"))).repeat()

    for steps in (2, 3):  # the second call restores a checkpoint
        estimator.train(lambda: batches().make_one_shot_iterator().get_next(), steps=steps)
    kernel = next(each for each in estimator.get_variable_names() if each.endswith("kernel"))
    assert estimator.get_variable_value("global_step") == 5
    weights, velocity = np.array([1.0, 1.0, 0.0]), np.zeros(3)
    for _ in range(5):
        velocity = 0.5 * velocity - 0.1 * 2 * weights.sum()
        weights = weights + velocity
    np.testing.assert_allclose(estimator.get_variable_value(kernel)[:, 0], weights[:2], rtol=1e-5)
