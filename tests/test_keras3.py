"""The keras3 target: training, saving and changing a model with Keras 3, the same on every backend.

The battery checks the numbers for gradients that tests pass in. Here Keras computes them, or results are compared with
stock. test_keras3_backends.py has the tests for one backend.
"""
from __future__ import absolute_import, division, print_function

import importlib
import json
import warnings

import numpy as np
import pytest

import everstep
import harness
import keras_suite
from everstep.errors import DefinitionError, SlotError, UnsupportedError
from everstep.optimizers import SGD, Adam
from keras_suite import difference, same

HERE = keras_suite.available_modules("keras").get("keras3")
if not HERE:
    pytest.skip("no Keras 3 is in this environment", allow_module_level=True)

keras = HERE[0][1]
ops = importlib.import_module("keras.ops")
STOCK = keras.optimizers
ON_TENSORFLOW = keras.backend.backend() == "tensorflow"
OLD = not hasattr(STOCK.SGD(), "_iterations")  # Keras 3.0


class Keras3(keras_suite.Api):
    RANDOM = np.random.RandomState(0)
    ROWS, SIZE = 30, 4
    # No row comes twice in a batch of 8 x 3: on TensorFlow stock treats equal rows one by one.
    INPUTS = np.argsort(RANDOM.rand(8, ROWS))[:, :24].reshape(64, 3).astype("int32")
    OUTPUTS = RANDOM.randn(64, 2).astype("float32")
    BOUND = 1e-5  # float32 precision; the weights are smaller than 1
    ADAM_RATE = 0.05
    compile_options = {"jit_compile": "auto"}  # with XLA, if the backend has it
    native = {"use_ema": True, "gradient_accumulation_steps": 4, "weight_decay": 0.1}
    dtypes = ("float16", "bfloat16", "float32")
    formats = {"keras": (".keras", "save", {}), "h5": (".h5", "save", {}),
               "weights.h5": (".weights.h5", "save_weights", {})}
    initial_epoch = {"initial_epoch": 2} if OLD else {}  # Keras 3.0 forgets the epoch

    def build(self, dense=False):
        layers = keras.layers
        first = [layers.Dense(5)] if dense else [layers.Embedding(self.ROWS, self.SIZE), layers.Flatten()]
        return keras.Sequential([keras.Input((3,), dtype="float32" if dense else "int32")] + first + [layers.Dense(2)])

    def compile(self, model, optimizer, traced=True, **more):
        if ON_TENSORFLOW:
            more.setdefault("jit_compile", False)  # compiling with XLA is slow
            more.setdefault("run_eagerly", not traced)
        model.compile(optimizer, keras.losses.MeanSquaredError(), **more)

    def load(self, path):
        """Loads a model in a custom object scope: Keras 3.0 takes no custom_objects for HDF5 files."""
        with self.scope():
            model = keras.models.load_model(path)
        model.run_eagerly = ON_TENSORFLOW  # which HDF5 files do not store
        return model

    def inputs(self, model):
        """Returns the model's inputs: row numbers, or the same scaled to small numbers."""
        embeds = isinstance(model.layers[0], keras.layers.Embedding)
        return self.INPUTS if embeds else (self.INPUTS / self.ROWS).astype("float32")

    def variable(self, value, dtype="float32", **more):
        return keras.Variable(np.asarray(value, "float32"), dtype=dtype, **more)

    def tensor(self, value, dtype="float32"):
        return ops.convert_to_tensor(np.asarray(value, "float32"), dtype)

    def array(self, value):
        return np.array(ops.convert_to_numpy(value.value if isinstance(value, keras.Variable) else value))

    def set_value(self, hyper, value):
        hyper.assign(value)

    def optimizer_values(self, optimizer):
        return arrays(optimizer.variables)

    def stepper(self, optimizer, pairs):
        return lambda: optimizer.apply(*zip(*pairs))


API = Keras3(keras, keras)
BOUND, INPUTS, OUTPUTS = API.BOUND, API.INPUTS, API.OUTPUTS
compiled, fit, inputs, some_steps = API.compiled, API.fit, API.inputs, API.train_on_batches
optimizer_values = API.optimizer_values
variable, tensor, array, number, schedule = API.variable, API.tensor, API.array, API.number, API.schedule


class TestShared(keras_suite.SharedTests, keras_suite.NewKerasTests):
    api = API


def arrays(values):
    return [array(value) for value in values]


# Steps with gradients that the test passes in.

SHAPES = [(4, 3), (3,), ()]


def variables(names=("kernel", "bias", "scale")):
    random = np.random.RandomState(3)
    return [variable(random.uniform(0.2, 0.8, shape), name=name) for shape, name in zip(SHAPES, names)]


def batches(steps):
    random = np.random.RandomState(4)
    return [[random.normal(0.5, 1.0, shape).astype("float32") for shape in SHAPES] for _ in range(steps)]


def train(optimizer, grads, weights=None):
    """Returns the weights after one step for each list of gradients."""
    weights = variables() if weights is None else weights
    for batch in grads:
        optimizer.apply([tensor(grad) for grad in batch], weights)
    return arrays(weights)


# Every way to train, compared with stock.

rules = pytest.mark.parametrize("rule", sorted(keras_suite.RULES))


@rules
@pytest.mark.parametrize("way", ["apply", "apply without variables", "apply_gradients"])
def test_custom_loop_as_stock(rule, way):
    """The gradients are those of half the squared distance to 1."""
    results = []
    for optimizer in API.ours_and_stock(rule):
        weights = variables()
        if "without" in way:
            optimizer.build(weights)
        for _ in range(10):
            grads = [weight - 1.0 for weight in weights]
            if way == "apply":
                optimizer.apply(grads, weights)
            elif way == "apply_gradients":
                optimizer.apply_gradients(zip(grads, weights))
            else:
                optimizer.apply(grads)
        assert number(optimizer.iterations) == 10
        results.append(arrays(weights))
    assert difference(results[0], arrays(variables())) > 0.05
    assert difference(*results) <= BOUND


NATIVE = [
    {"clipnorm": 0.7}, {"clipvalue": 0.4}, {"global_clipnorm": 0.9}, {"use_ema": True, "ema_momentum": 0.8},
    {"use_ema": True, "ema_momentum": 0.8, "ema_overwrite_frequency": 3}, {"weight_decay": 0.2},
    {"loss_scale_factor": 4.0},
    {"clipnorm": 0.7, "weight_decay": 0.2, "use_ema": True, "ema_overwrite_frequency": 4, "loss_scale_factor": 2.0}]


@rules
@pytest.mark.parametrize("native", NATIVE, ids=lambda native: "-".join(sorted(native)))
def test_native_keywords_as_stock(rule, native):
    results = []
    for optimizer in API.ours_and_stock(rule, **native):
        weights = variables()
        last = train(optimizer, batches(10), weights)
        optimizer.finalize_variable_values(weights)
        results.append(last + arrays(weights))
        assert all(optimizer.get_config()[name] == value for name, value in native.items())
    assert difference(results[0][:3], arrays(variables())) > 0.05
    assert ("use_ema" in native) == (difference(results[0][:3], results[0][3:]) > 0.005)
    assert difference(*results) <= BOUND


@pytest.mark.parametrize("native", [NATIVE[2], NATIVE[4], NATIVE[-1]], ids=lambda native: "-".join(sorted(native)))
def test_native_keywords_in_fit_as_stock(native):
    results = []
    for optimizer in (SGD(0.1, 0.9).bind(keras, **native), STOCK.SGD(0.1, 0.9, **native)):
        model = compiled(optimizer, dense=True)
        fit(model, epochs=2)
        results.append(model.get_weights())
    assert difference(*results) <= BOUND


def test_loss_scale_factor_with_an_embedding():
    """Compares with a run without it: stock on TensorFlow cannot divide a sparse gradient."""
    results = []
    for native in ({}, {"loss_scale_factor": 4.0}):
        model = compiled(Adam(0.05).bind(keras, **native))
        fit(model)
        results.append(model.get_weights())
    assert difference(*results) <= BOUND
    assert API.round_trip(model.optimizer).loss_scale_factor == 4.0
    with pytest.raises(DefinitionError):
        Adam().bind(keras, loss_scale_factor="much")


# Gradient accumulation: Keras's own, and ours.

K = 3


def joined(grads):
    """Returns the mean of each `K` consecutive lists of gradients."""
    return [[np.mean(parts, axis=0) for parts in zip(*grads[place : place + K])] for place in range(0, len(grads), K)]


def test_gradient_accumulation_steps():
    """Equals joined batches, as does stock from 3.1 on. Keras 3.0 counts, clips and decays at every call."""
    rule, native = {"learning_rate": 0.05, "amsgrad": True}, {"clipnorm": 0.5, "weight_decay": 0.2}
    optimizer = Adam(**rule).bind(keras, gradient_accumulation_steps=K, **native)
    actual = train(optimizer, batches(2 * K))
    expected = train(Adam(**rule).bind(keras, **native), joined(batches(2 * K)))
    assert difference(actual, expected) <= BOUND
    assert difference(actual, arrays(variables())) > 0.05
    assert number(optimizer.iterations) == (2 * K if OLD else 2)
    if not OLD:
        stock = STOCK.Adam(gradient_accumulation_steps=K, **dict(rule, **native))
        assert difference(actual, train(stock, batches(2 * K))) <= BOUND


@pytest.mark.filterwarnings("ignore:Gradients do not exist:UserWarning")
def test_gradient_accumulation_steps_in_another_order():
    """Keras 3.0 looks up its sums by position in the call."""
    results = []
    for order in ([0, 1, 2], [2, 0]):
        weights, optimizer = variables(), Adam(0.05).bind(keras, gradient_accumulation_steps=2)
        optimizer.build(weights)
        for batch in batches(4):
            optimizer.apply([tensor(batch[place]) for place in order], [weights[place] for place in order])
        results.append(arrays(weights))
    start = arrays(variables())
    assert same([results[0][0], results[0][2], start[1]], [results[1][0], results[1][2], results[1][1]])
    assert difference(results[0], start) > 0.05


def test_gradient_accumulation_steps_in_fit():
    API.check_windows(Adam(0.05).bind(keras, gradient_accumulation_steps=4))


def test_two_accumulations_are_refused():
    with pytest.raises(UnsupportedError, match="both count"):
        everstep.accumulate(Adam(), 2).bind(keras, gradient_accumulation_steps=2)
    with pytest.raises(DefinitionError, match="gradient_accumulation_steps"):
        Adam().bind(keras, gradient_accumulation_steps=1)
    with pytest.raises(UnsupportedError, match="use_ema"):
        everstep.accumulate(Adam(), 2).bind(keras, use_ema=True)


# Weight decay.


@pytest.mark.filterwarnings("ignore:stock Keras 3 on TensorFlow applies equal rows")
@pytest.mark.filterwarnings("ignore:none of the exclusions")  # where stock searches the last part of a path alone
@pytest.mark.parametrize("way", ["bind", "from_native", "from_native, a pattern"])
def test_a_layer_excluded_by_name(way):
    """Stock searches the path of a variable on TensorFlow, and the last part of it on JAX and torch."""
    pattern = ".*norm" if way.endswith("pattern") else "norm"
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.LayerNormalization(name="norm")])
    gamma = model.trainable_variables[0]
    values = []
    for is_ours in (False, True):
        gamma.assign([1.0, 2.0, 3.0])
        optimizer = STOCK.Adam(0.1, weight_decay=0.5)
        if is_ours and way == "bind":
            optimizer = Adam(0.1).bind(keras, weight_decay=0.5)
        optimizer.exclude_from_weight_decay(var_names=[pattern])
        if is_ours and way != "bind":
            optimizer = everstep.from_native(optimizer).bind(keras)
        optimizer.apply([tensor(np.zeros(3, "float32"))], [gamma])
        values.append(arrays([gamma]))
    assert difference(*values) == 0
    assert same(values[0], [np.array([1.0, 2.0, 3.0], "float32")]) == ON_TENSORFLOW


# Hypers.


def change_of(optimizer, weight, grad=1.0):
    """Returns the change of a single number in one step."""
    before = number(weight)
    optimizer.apply([tensor(grad)], [weight])
    return before - number(weight)


@pytest.mark.parametrize("given", sorted(keras_suite.HYPER_FORMS)[::2])
def test_hypers_that_cannot_be_set_in_fit(given):
    rate, momentum = [keras_suite.HYPER_FORMS[given](API) for _ in range(2)]
    models = [compiled(optimizer, dense=True) for optimizer in (
        SGD(rate, momentum=momentum).bind(keras), STOCK.SGD(0.5, momentum=0.5))]
    for model in models:
        fit(model)
    assert difference(*[model.get_weights() for model in models]) <= BOUND


CHANGES = [("momentum", 0.0, "between"), ("momentum", 0.0, "epoch"), ("momentum", 0.0, "batch")]


@pytest.mark.parametrize("name, value, when", CHANGES + [("learning_rate", 0.01, "batch")])
def test_hypers_change_within_fit(name, value, when):
    """The compiled step reads a hyper set between two calls of fit, or at the end of an epoch or a batch."""
    model, by_hand = [compiled(SGD(0.2, momentum=0.9).bind(keras), dense=True) for _ in range(2)]
    unchanged = compiled(STOCK.SGD(0.2, momentum=0.9), dense=True)
    fit(unchanged, epochs=2)
    for place in range(16):
        start = place % 8 * 8
        by_hand.train_on_batch(inputs(model)[start : start + 8], OUTPUTS[start : start + 8])
        if place == (3 if when == "batch" else 7):
            setattr(by_hand.optimizer, name, value)

    def change(*_, **__):
        setattr(model.optimizer, name, value)

    if when == "between":
        fit(model)
        change()
        fit(model)
    elif when == "epoch":
        fit(model, epochs=2, callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=change)])
    else:
        fit(model, epochs=2, callbacks=[API.at_batch(lambda batch: batch == 3 and change())])
    assert number(getattr(model.optimizer, name)) == pytest.approx(value)
    assert difference(by_hand.get_weights(), unchanged.get_weights()) > 0.02
    assert difference(by_hand.get_weights(), model.get_weights()) <= BOUND


class Fresh(everstep.Definition):
    """Used by no other test: the first definition of a class runs its rule."""

    learning_rate = everstep.hyper(0.1)

    def update(self, ops, grad, var, slots, hyper, t):
        return hyper.learning_rate * grad, {}


def test_the_first_definition_of_a_class_may_have_a_native_schedule():
    weight, asked = variable(0.0), []
    assert change_of(Fresh(schedule(0.5)).bind(keras), weight) == 0.5
    Fresh(lambda: asked.append(1) or 0.5)
    assert asked == []


# Optimizers that wrap ours.


def fit_with_a_batch_that_is_not_finite(inner, dense):
    """Trains on seven batches, the fourth not finite. Returns (weights, updates, scale)."""
    outputs = OUTPUTS[:56].copy()
    outputs[24] = np.inf
    optimizer = STOCK.LossScaleOptimizer(inner, initial_scale=16.0, dynamic_growth_steps=3)
    model = compiled(optimizer, dense)
    model.fit(inputs(model)[:56], outputs, batch_size=8, shuffle=False, verbose=0)
    return model.get_weights(), number(inner.iterations), number(optimizer.dynamic_scale)


def test_loss_scale_optimizer():
    """The batch's step is skipped and moves only the scale: doubled, halved, doubled."""
    actual = fit_with_a_batch_that_is_not_finite(Adam(0.05).bind(keras), dense=False)
    expected = fit_with_a_batch_that_is_not_finite(STOCK.Adam(0.05), dense=False)
    assert actual[1:] == expected[1:] == (6, 32.0)
    assert difference(actual[0], expected[0]) <= BOUND


def test_loss_scale_optimizer_around_accumulate():
    """The six finite batches make three updates."""
    optimizer, whole = everstep.accumulate(Adam(0.05), 2).bind(keras), compiled(Adam(0.05).bind(keras), dense=True)
    actual = fit_with_a_batch_that_is_not_finite(optimizer, dense=True)
    finite = np.r_[0:24, 32:56]
    whole.fit(inputs(whole)[finite], OUTPUTS[finite], batch_size=16, shuffle=False, verbose=0)
    assert actual[1:] == (3, 32.0)
    assert difference(actual[0], whole.get_weights()) <= BOUND


class Halve(keras.constraints.Constraint):
    """Its result shows how often it is applied."""

    def __call__(self, value):
        return value * 0.5


@pytest.mark.parametrize("fitted", [False, True], ids=["apply", "fit"])
def test_constraints_are_applied_once(fitted):
    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones", kernel_constraint=Halve())
    model, optimizer = keras.Sequential([keras.Input((2,)), layer]), SGD(1.0).bind(keras)
    model.compile(optimizer, "mse")
    if fitted:  # the gradient of the mean of (w1 + w2 - 1)^2 is 2
        model.fit(np.ones((4, 2)), np.ones((4, 1)), batch_size=4, verbose=0)
    else:
        optimizer.apply([tensor([[2.0], [2.0]])], model.trainable_variables)
    assert array(layer.kernel).tolist() == [[-0.5], [-0.5]]


# Files.


def test_weights_loaded_before_a_traced_fit(tmpdir):
    """The slots are created while the step is traced, once, from the start weights or the file."""
    path = str(tmpdir.join("model.weights.h5"))
    definition = everstep.accumulate(keras_suite.Follower(0.01), 3)
    whole, half, resumed = [compiled(definition.bind(keras), dense=True) for _ in range(3)]
    start = whole.get_weights()
    fit(whole, epochs=2)
    fit(half)
    half.save_weights(path)
    resumed.load_weights(path)
    fit(resumed)
    assert same(resumed.get_weights(), whole.get_weights())
    assert same(optimizer_values(resumed.optimizer), optimizer_values(whole.optimizer))
    assert same([array(whole.optimizer.get_slot(each, "slow")) for each in whole.trainable_variables], start)


@pytest.mark.shared
@pytest.mark.parametrize("kind", ["slots", "native keywords"])
def test_untrained_models_are_saved_and_loaded(tmpdir, kind):
    model, fresh = [compiled(API.saved(kind), traced=False) for _ in range(2)]
    some_steps(fresh, 5)
    for name in API.names_of_formats():
        path = API.save(model, name, tmpdir)
        loaded = compiled(API.saved(kind), traced=False) if "weights" in name else API.load(path)
        if "weights" in name:
            loaded.load_weights(path)
        some_steps(loaded, 5)
        assert same(loaded.get_weights(), fresh.get_weights())
        assert number(loaded.optimizer.iterations) == number(fresh.optimizer.iterations)


def stored(optimizer):
    store = {}
    optimizer.save_own_variables(store)
    return store


WRONG = {
    "another optimizer": lambda: stored(trained(STOCK.SGD(momentum=0.5))),
    "one too few": lambda: {name: value for name, value in stored(trained(Adam().bind(keras))).items() if name != "9"},
    "other variables": lambda: stored(trained(Adam().bind(keras), [variable(np.ones((5, 5))) for _ in range(3)])),
    "empty": lambda: {},
}


def ones(weights):
    return [tensor(np.ones(weight.shape)) for weight in weights]


def trained(optimizer, weights=None):
    weights = variables() if weights is None else weights
    optimizer.apply(ones(weights), weights)
    return optimizer


@pytest.mark.parametrize("kind", sorted(WRONG))
def test_wrong_state_changes_nothing(kind):
    store, optimizer = WRONG[kind](), trained(Adam().bind(keras))
    before = optimizer_values(optimizer)
    with pytest.warns(everstep.StateWarning, match="another optimizer, or"):
        optimizer.load_own_variables(store)
    with pytest.raises(SlotError, match="another optimizer, or"):
        optimizer.set_weights([value for _, value in sorted(store.items())])
    assert same(optimizer_values(optimizer), before)
    # An optimizer that is not built yet keeps the state, and warns when it is built.
    optimizer = Adam().bind(keras)
    start = optimizer_values(optimizer)
    optimizer.load_own_variables(store)
    with pytest.warns(everstep.StateWarning, match="read_checkpoint"):
        optimizer.build(variables())
    assert same(optimizer_values(optimizer)[: len(start)], start) and not np.any(optimizer_values(optimizer)[-1])


def test_wrong_state_in_a_file(tmpdir):
    model, path = compiled(STOCK.SGD(0.1), traced=False), str(tmpdir.join("model.weights.h5"))
    some_steps(model, 1)
    model.save_weights(path)
    for built in (True, False):
        other = compiled(Adam(0.1).bind(keras), traced=False)
        if built:
            some_steps(other, 1)
        with warnings.catch_warnings(record=True) as caught:  # Keras on torch warns of NumPy, too
            warnings.simplefilter("always")
            other.load_weights(path)
            some_steps(other, 1)
        [told] = [each for each in caught if each.category is everstep.StateWarning]
        assert "another optimizer" in str(told.message)


@pytest.mark.parametrize("name", ["Adam", "amsgrad", "SGD"])
def test_a_file_of_the_stock_optimizer_loads(name, tmpdir):
    rule, arguments = {"Adam": (Adam, {}), "amsgrad": (Adam, {"amsgrad": True}), "SGD": (SGD, {"momentum": 0.5})}[name]
    model = compiled(getattr(STOCK, rule.__name__)(0.1, **arguments), traced=False)
    path = str(tmpdir.join("stock.weights.h5"))
    some_steps(model, 3)
    model.save_weights(path)
    for built in (True, False):
        other = compiled(rule(0.1, **arguments).bind(keras), traced=False)
        if built:
            some_steps(other, 1)
        other.load_weights(path)
        some_steps(other, 1)
        copy = compiled(getattr(STOCK, rule.__name__)(0.1, **arguments), traced=False)
        some_steps(copy, 1)
        copy.load_weights(path)
        some_steps(copy, 1)
        assert API.number(other.optimizer.iterations) == 4
        assert difference(other.get_weights(), copy.get_weights()) < 1e-6


def test_set_weights():
    optimizer = trained(Adam(0.1).bind(keras))
    weights = [weight * 2 for weight in optimizer_values(optimizer)]
    with pytest.raises(SlotError, match="build"):
        Adam(0.1).bind(keras).set_weights(weights)
    optimizer.set_weights(weights)
    assert same(optimizer_values(optimizer), weights)


# Config.


@pytest.mark.parametrize("name", sorted(keras_suite.DEFINITIONS))
def test_serialized_by_keras_saving(name):
    """Inside of a LossScaleOptimizer. Without our classes it raises, and never returns stock's."""
    saving, optimizer = keras.saving, keras_suite.DEFINITIONS[name](API).bind(keras, global_clipnorm=2.0)
    data = json.dumps(saving.serialize_keras_object(STOCK.LossScaleOptimizer(optimizer)))
    for objects in (everstep.custom_objects(keras), None):
        copy = saving.deserialize_keras_object(json.loads(data), custom_objects=objects).inner_optimizer
        assert type(copy) is type(optimizer) and copy.get_config() == optimizer.get_config()
    with harness.unregistered(keras), pytest.raises((TypeError, ValueError)):
        saving.deserialize_keras_object(json.loads(data))


# Variables, counters and slots.


def test_iterations_count_updates():
    optimizer, weights = everstep.accumulate(Adam(0.1), 3).bind(keras), variables()
    for place in range(1, 8):
        optimizer.apply(ones(weights), weights)
        assert number(optimizer.iterations) == place // 3


def test_paths_of_variables():
    """The paths are those in the module's docstring."""
    optimizer = everstep.accumulate(Adam(0.1, amsgrad=True), 2).bind(keras)
    layer = keras.layers.Dense(1, name="layer")
    layer.build((None, 2))
    assert [each.path for each in layer.trainable_variables] == ["layer/kernel", "layer/bias"]
    trained(optimizer, layer.trainable_variables)
    first = ["iteration", "learning_rate", "beta_1", "beta_2", "epsilon", "pending", "steps"]
    slots = ["m", "v", "v_hat", "accumulate_sum"]
    expected = first + ["layer_{}_{}".format(each, slot) for each in ("kernel", "bias") for slot in slots]
    assert [each.path for each in optimizer.variables] == ["Accumulate/" + name for name in expected]
    named = SGD(schedule(), 0.9).bind(keras, name="mine", use_ema=True, gradient_accumulation_steps=2)
    trained(named, layer.trainable_variables)
    stock = STOCK.SGD(name="mine", use_ema=True, gradient_accumulation_steps=2)
    trained(stock, layer.trainable_variables)
    endings = ("_average", "_gradient_accumulator")  # Keras 3.0 and 3.5 have another order than 3.15
    natives = [each.path for each in stock.variables if each.path.endswith(endings)]
    expected = ["mine/iteration", "mine/momentum"] + natives
    expected += ["mine/layer_kernel_velocity", "mine/layer_bias_velocity"]
    assert len(natives) == 4 and [each.path for each in named.variables] == expected


# Arguments of a step.


@pytest.mark.parametrize("order", [[2, 0, 1], [1, 2, 0]])
def test_variables_in_another_order(order):
    optimizer, weights = Adam(0.05).bind(keras), variables()
    optimizer.build(weights)
    for batch in batches(3):
        optimizer.apply([tensor(batch[place]) for place in order], [weights[place] for place in order])
    assert same(arrays(weights), train(Adam(0.05).bind(keras), batches(3)))


@pytest.mark.filterwarnings("ignore:Gradients do not exist:UserWarning")
def test_some_gradients_are_missing():
    results = []
    for optimizer in (Adam(0.05).bind(keras), STOCK.Adam(0.05)):
        weights = variables()
        for batch in batches(3):
            optimizer.apply([None] + [tensor(grad) for grad in batch[1:]], weights)
        results.append(arrays(weights))
        assert same(results[-1][:1], arrays(variables()[:1]))
    assert difference(*results) <= BOUND


