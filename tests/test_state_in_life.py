"""State as people have it: of live stock optimizers, inside of others, of a part of a model, with other names."""
from __future__ import absolute_import, division, print_function

import copy
import pickle
from collections import OrderedDict

import numpy as np
import pytest

import everstep
import harness
import oracle
import small_model
import stock
from everstep import errors
from everstep.compat.state.matching import match
from test_battery import ids
from test_files_written import keras_modules, tensorflow

pytestmark = [pytest.mark.shared, pytest.mark.filterwarnings("ignore:Converting sparse IndexedSlices:UserWarning")]
WAYS = harness.all_ways()
SHAPES = {"dense": (4, 3), "bias": (3,), "table": (6, 3)}
STEPS = 3
EMA = [("Adam", 0.1, {"use_ema": True, "ema_momentum": 0.9, "epsilon": 1e-3})]
ACCUMULATED = [("SGD", 0.1, {"momentum": 0.9, "gradient_accumulation_steps": 4})]


def start_values():
    random = np.random.RandomState(1)
    return {name: random.uniform(0.2, 0.8, SHAPES[name]).astype("float32") for name in sorted(SHAPES)}


def make_batches():
    random = np.random.RandomState(2)
    return [{name: random.randn(*SHAPES[name]).astype("float32") for name in sorted(SHAPES)} for _ in range(2 * STEPS)]


BATCHES = make_batches()


def new_run(way, make, start=None):
    return way.run(make, start or start_values(), dict.fromkeys(SHAPES, harness.DENSE))


def in_order(run):
    return OrderedDict((name, run.variables[name]) for name in run.names)


def session_of(run):
    return getattr(run, "session", None)


def stock_cases():
    cases = list(stock.cases())
    for way in WAYS:
        newer = EMA if way.target in ("update_step", "keras3") else []
        newer = newer + (ACCUMULATED if way.target == "keras3" and way.name.endswith("eager") else [])
        cases.extend((way,) + case for case in newer if stock.is_available(way, case[0]))
    return cases


def is_followed(way, name):
    bound, cause = stock.allowed(way, name, "dense")
    return cause is None or bound < 1e-4


@pytest.mark.parametrize("way, name, rate, arguments", harness.share(stock_cases(), 8), ids=ids)
def test_a_live_stock_optimizer_is_captured_and_continued(way, name, rate, arguments):
    if not stock.accepts_arguments(way, name, rate, arguments):
        return  # only other versions have the argument
    first = new_run(way, lambda: stock.make_stock(way, name, rate, arguments))
    try:
        for batch in BATCHES[:STEPS]:
            first.step(batch)
        state = everstep.capture(first.optimizer, in_order(first), session_of(first), weights=True)
        weights = first.weights()
        for variable in weights:
            np.testing.assert_array_equal(state.variables[variable], weights[variable])
        for batch in BATCHES[STEPS:]:
            first.step(batch)
        expected = first.weights()
    finally:
        first.close()
    if not is_followed(way, name):
        return
    definition = everstep.Definition.from_config(state.definition)
    second = new_run(way, lambda: definition.bind(way.module), weights)
    try:
        everstep.restore(second.optimizer, state, in_order(second), session_of(second))
        for batch in BATCHES[STEPS:]:
            second.step(batch)
        for variable, value in second.weights().items():
            assert oracle.distance(value, expected[variable]) <= stock.allowed(way, name, "dense")[0]
    finally:
        second.close()


# Mixed precision

INPUTS = np.random.RandomState(3).uniform(-1, 1, (8, 3)).astype("float32")
OUTPUTS = np.random.RandomState(4).uniform(-1, 1, (8, 2)).astype("float32")
KERNEL, BIAS = np.linspace(-0.5, 0.5, 6).reshape(3, 2).astype("float32"), np.array([0.1, -0.2], "float32")


def set_policy(keras, name):
    """Sets the policy of new layers and models. Returns False if this Keras has none."""
    mixed = getattr(keras, "mixed_precision", None)
    for holder in (mixed, getattr(mixed, "experimental", None)):
        setter = getattr(holder, "set_global_policy", None) or getattr(holder, "set_policy", None)
        if setter is not None:
            setter(name)
            return True
    return False


def mixed_model(keras, make_optimizer):
    """Returns a compiled model of float16; Keras puts a LossScaleOptimizer around the optimizer."""
    set_policy(keras, "mixed_float16")
    try:
        shape = {} if hasattr(keras, "ops") else {"input_shape": (3,)}
        layers = [] if shape else [keras.layers.Input((3,))]
        layers.append(keras.layers.Dense(4, name="hidden", **shape))
        layers.append(keras.layers.Dense(2, name="output", dtype="float32"))
        model = keras.Sequential(layers)
        model.compile(make_optimizer(), "mse")
    finally:
        set_policy(keras, "float32")
    random = np.random.RandomState(5)
    model.set_weights([random.uniform(-0.5, 0.5, value.shape).astype("float32") for value in model.get_weights()])
    return model


def fit(model, steps=STEPS):
    model.fit(INPUTS, OUTPUTS, batch_size=8, epochs=steps, verbose=0, shuffle=False)
    return model.get_weights()


def mixed_cases():
    for name, keras in keras_modules():
        if hasattr(keras, "mixed_precision") and hasattr(keras, "Sequential") and has_loss_scale(keras):
            target = small_model.api_of(keras.optimizers.Adam)
            # Stock of TF 2.11 saves no LossScaleOptimizer, and loads no slots of one from .h5 from then on.
            if target == "optimizer_v2" or not tensorflow.__version__.startswith("2.11."):
                yield name, keras, ".h5" if target == "optimizer_v2" else ".keras"


def has_loss_scale(keras):
    mixed = keras.mixed_precision
    return any(hasattr(holder, "LossScaleOptimizer") for holder in (mixed, getattr(mixed, "experimental", None)))


RATES = {"learning_rate": 0.125, "momentum": 0.5}
MIXED = list(mixed_cases())
DIFFERENCES = {}


def largest(weights, others):
    return max(oracle.distance(value, other) for value, other in zip(weights, others))


@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")
@pytest.mark.filterwarnings("ignore:The dtype policy mixed_float16 may run slowly")
@pytest.mark.parametrize("name, keras, extension", MIXED, ids=ids)
def test_mixed_precision_of_stock_continued_by_ours_and_back(name, keras, extension, tmp_path):
    first, second, third = [str(tmp_path / (each + extension)) for each in ("first", "second", "third")]
    stock_model = mixed_model(keras, lambda: small_model.stock_optimizer(
        keras.optimizers, "SGD", RATES))
    assert "LossScaleOptimizer" in type(stock_model.optimizer).__name__
    fit(stock_model)
    state = everstep.capture(stock_model.optimizer, stock_model.trainable_weights, weights=True)
    assert state.definition["definition"] == "SGD" and set(state.loss_scale) == {"scale", "good_steps"}
    stock_model.save(first)
    expected = fit(stock_model)

    from_file = everstep.read_checkpoint(first)
    assert from_file.updates == state.updates and sorted(from_file.scalars) == sorted(state.scalars)
    if hasattr(keras, "ops"):  # Keras 2 saves no scale in models
        assert from_file.loss_scale == state.loss_scale
    for source in (state, from_file):
        definition = everstep.Definition.from_config(source.definition)
        ours = mixed_model(keras, lambda: definition.bind(keras))
        everstep.restore(ours.optimizer, source, ours.trainable_weights, weights=True)
        far = largest(fit(ours), expected)
        DIFFERENCES[name, "stock to ours", source is state] = far
        assert far <= stock.BOUND
    ours.save(second)  # a file of ours in Keras's LossScaleOptimizer
    assert everstep.read_checkpoint(second).updates == 2 * STEPS

    again = everstep.capture(ours.optimizer, ours.trainable_weights, weights=True)
    everstep.write_checkpoint(again, third, {".h5": "keras-h5", ".keras": "keras"}[extension], template=first)
    set_policy(keras, "mixed_float16")  # which makes Keras 3 wrap the optimizer
    try:
        back = keras.models.load_model(third)
    finally:
        set_policy(keras, "float32")
    assert "LossScaleOptimizer" in type(back.optimizer).__name__
    far = max(largest(back.get_weights(), ours.get_weights()), largest(fit(back), fit(ours)))
    DIFFERENCES[name, "ours to stock", False] = far
    assert far <= stock.BOUND


@pytest.mark.filterwarnings("ignore:The dtype policy mixed_float16 may run slowly")
@pytest.mark.parametrize("name, keras, extension", MIXED[:1], ids=ids)
def test_a_loss_scale_is_taken_over(name, keras, extension, tmp_path):
    model = mixed_model(keras, lambda: everstep.optimizers.SGD(0.1, momentum=0.9).bind(keras))
    fit(model)
    state = everstep.capture(model.optimizer, model.trainable_weights)
    path = str(tmp_path / "run.npz")
    state.save(path)
    loaded = everstep.State.load(path)
    assert loaded.loss_scale == state.loss_scale and state.loss_scale["good_steps"] == STEPS
    definition = everstep.loss_scale(everstep.optimizers.SGD(0.1, momentum=0.9))
    arrays = OrderedDict((name, np.zeros(slots["velocity"].shape, "f")) for name, slots in state.slots.items())
    optimizer = definition.bind(np)
    everstep.restore(optimizer, loaded, arrays)
    assert optimizer.scale_loss(1.0) == state.loss_scale["scale"]
    scalars = everstep.capture(optimizer, arrays).scalars
    assert scalars["loss_scale/finite"] == state.loss_scale["good_steps"]
    other = mixed_model(keras, lambda: everstep.optimizers.SGD(0.1, momentum=0.9).bind(keras))
    fit(other, 1)
    everstep.restore(other.optimizer, state, other.trainable_weights, by_order=True)
    assert everstep.capture(other.optimizer, other.trainable_weights).loss_scale == state.loss_scale
