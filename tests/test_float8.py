"""Variables that take their gradient as their value, such as the scales of float8 training, beside stock Keras 3."""
from __future__ import absolute_import, division, print_function

import numpy as np
import pytest

import everstep
from everstep.optimizers import SGD, Adam, ScheduleFreeAdamW

try:
    import keras

    MAKES_SCALES = hasattr(keras.layers.Dense, "quantize") and hasattr(keras.layers.Dense(1), "_float8_build")
except ImportError:
    MAKES_SCALES = False
if not MAKES_SCALES:
    pytest.skip("only Keras 3.4 and newer train in float8", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("ignore:Layer InputLayer does not have a `quantize:UserWarning")
RANDOM = np.random.RandomState(0)
INPUTS, TARGETS = RANDOM.randn(32, 16).astype("float32"), RANDOM.randn(32, 4).astype("float32")
RATE, BOUND = 1e-2, 1e-5


def model_with(optimizer):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(4)])
    model.quantize("float8")
    jit_compile = "auto" if keras.backend.backend() == "jax" else False  # compiling with XLA is slow on TensorFlow
    model.compile(optimizer, "mse", jit_compile=jit_compile)
    return model


def train(model, steps):
    for _ in range(steps):
        model.train_on_batch(INPUTS, TARGETS)
    return model


def scales(model):
    """Returns the values of the variables that gradients overwrite: 2 * 3 scales and 2 * 3 histories."""
    found = [v for v in model.trainable_variables if v.overwrite_with_gradient]
    assert len(found) == 12
    return [np.array(keras.ops.convert_to_numpy(v)) for v in found]


def values(model):
    return [np.array(keras.ops.convert_to_numpy(v)) for v in model.trainable_variables]


def difference(values, expected):
    values, expected = [[np.array(keras.ops.convert_to_numpy(each)) for each in some] for some in (values, expected)]
    return max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)) for a, b in zip(values, expected))


def copy_values(first, second):
    for variable, value in zip(second.trainable_variables, values(first)):
        variable.assign(value)


def slots(optimizer, model):
    return {name: list(each) for name, each in everstep.capture(optimizer, model.trainable_variables).slots.items()}


# SGD accumulates here: stock's Adam before Keras 3.5 counts calls where its rule needs the count of updates.
CASES = {
    "plain": (dict(weight_decay=0.1, global_clipnorm=0.5), dict(weight_decay=0.1, global_clipnorm=0.5), None),
    "of Keras": (dict(gradient_accumulation_steps=3), dict(gradient_accumulation_steps=3), None),
    "accumulate": (dict(gradient_accumulation_steps=3, global_clipnorm=0.5), {},
                   lambda rule: everstep.accumulate(everstep.clip(rule, global_norm=0.5), 3)),
    "moving_average": (dict(), {}, lambda rule: everstep.moving_average(rule, 0.9)),
}


@pytest.mark.parametrize("case", sorted(CASES))
def test_training_is_that_of_stock(case):
    of_stock, native, wrap = CASES[case]
    if "gradient_accumulation_steps" in of_stock:
        definition, native_class, of_stock = SGD(RATE, momentum=0.9), keras.optimizers.SGD, dict(of_stock, momentum=0.9)
    else:
        definition, native_class = Adam(RATE), keras.optimizers.Adam
    optimizer = (wrap(definition) if wrap else definition).bind(keras, **native)
    ours, stock = model_with(optimizer), model_with(native_class(RATE, **of_stock))
    for steps in (2, 2):  # inside of the first window, and of the second
        train(ours, steps)
        train(stock, steps)
        assert difference(values(ours), values(stock)) <= BOUND
    made = slots(optimizer, ours) if case != "of Keras" else {}
    overwritten = [made[v.path] for v in ours.trainable_variables if v.path in made and v.overwrite_with_gradient]
    expected = ["overwrite/maximum"] if case == "accumulate" else []
    assert all(each == expected for each in overwritten)
    assert "of Keras" == case or len(overwritten) == 12 or len(made) == 16


@pytest.mark.parametrize("wrap", [
    lambda adam: everstep.moving_average(adam, 0.9), lambda adam: everstep.stochastic_weight_averaging(adam, start=1),
    lambda adam: everstep.lookahead(adam, 2), lambda adam: ScheduleFreeAdamW(RATE)],
    ids=["moving_average", "swa", "lookahead", "schedule_free"])
def test_averages_leave_scales_alone(wrap, tmp_path):
    optimizer = wrap(Adam(RATE)).bind(keras)
    model = train(model_with(optimizer), 3)
    before, trained = scales(model), values(model)
    assert all(np.any(each != 1) for each in before[:1])
    with everstep.averaged(optimizer):
        assert difference(values(model), trained) > 1e-6
        assert difference(scales(model), before) == 0
        model.save(str(tmp_path / "model.keras"))
    assert difference(values(model), trained) == 0
    loaded = keras.models.load_model(str(tmp_path / "model.keras"), compile=False)
    assert difference(scales(loaded), before) == 0
    everstep.assign_averages(optimizer)
    assert difference(scales(model), before) == 0
    assert difference([layer.kernel for layer in model.layers], [layer.kernel for layer in loaded.layers]) == 0


@pytest.mark.skipif(
    not hasattr(keras.optimizers.Optimizer, "add_optimizer_variables"),
    reason="before Keras 3.10 stock's LossScaleOptimizer divides new scales by the loss scale: "
           "https://github.com/keras-team/keras/blob/v3.9.2/keras/src/optimizers/loss_scale_optimizer.py")
def test_scales_wait_for_a_step_that_is_accepted():
    """As with Keras's LossScaleOptimizer, a step with a gradient that is not finite writes no scale."""
    definition = everstep.loss_scale(SGD(RATE), 2.0**10)
    ours = model_with(definition.bind(keras))
    stock = model_with(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(RATE), initial_scale=2.0**10))
    for model in (ours, stock):
        train(model, 2)
        before = values(model)
        model.train_on_batch(INPUTS, TARGETS + np.float32("inf"))
        assert difference(values(model), before) == 0
        train(model, 1)
    assert difference(values(ours), values(stock)) <= BOUND


def test_stored_arrays_of_stock_and_an_open_window():
    """Our optimizer continues from what stock stored, and another one from a half-full window of accumulation."""
    stock, ours, store = train(model_with(keras.optimizers.Adam(RATE)), 2), model_with(Adam(RATE).bind(keras)), {}
    stock.optimizer.save_own_variables(store)
    ours.optimizer.load_own_variables(store)
    copy_values(stock, ours)
    captured = [np.asarray(slot) for each in everstep.capture(stock.optimizer, stock.trainable_variables).slots.values()
                for slot in each.values()]
    loaded = [np.asarray(slot) for each in everstep.capture(ours.optimizer, ours.trainable_variables).slots.values()
              for slot in each.values()]
    assert len(captured) == 8 and difference(captured, loaded) == 0
    assert difference(values(train(ours, 2)), values(train(stock, 2))) <= BOUND

    definition = everstep.accumulate(Adam(RATE), 3)
    first, second = model_with(definition.bind(keras)), model_with(definition.bind(keras))
    train(first, 2)
    copy_values(first, second)
    state = everstep.capture(first.optimizer, first.trainable_variables, weights=False)
    names = [v.path for v in first.trainable_variables]
    everstep.restore(second.optimizer, state, dict(zip(names, second.trainable_variables)))
    assert difference(values(train(second, 2)), values(train(first, 2))) == 0
    first.optimizer.flush()
    assert all(np.isfinite(each).all() for each in values(first))
