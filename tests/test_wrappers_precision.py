"""Mixed precision: `everstep.loss_scale`, 16-bit variables, and each API's own LossScaleOptimizer around ours."""

from __future__ import absolute_import, division, print_function

import sys

import numpy as np
import pytest

import everstep
import harness
import runs
from everstep.errors import DefinitionError, HyperTypeError, HyperValueError, UnsupportedError, VariableError
from everstep.optimizers import SGD, Adam
from everstep.testing import oracle
from runs import ONE_EACH, WAYS, distance, moved
from test_battery import ids
from test_capture import dtypes_of_ways, numpy_dtype
from test_wrappers_accumulate import KINDS, START, batches, train

pytestmark = pytest.mark.shared


def scaled(way, definition, batches, scales):
    """Trains on gradients of the scaled loss. Returns (weights after each step, counters, last scale).

    Args:
        scales: the scale at each step, by hand. A batch of None has gradients that are not finite.
    """
    run = runs.started(way, definition, START, KINDS)
    seen = [run.weights()]
    for batch, scale in zip(batches, scales):
        # this API takes the gradients of the loss itself
        scale = np.float32(1 if way.target == "get_updates" else scale)
        kernel, (values, rows) = (batch or BAD)["kernel"], (batch or BAD)["table"]
        run.step({"kernel": kernel * scale, "table": (values * scale, rows)})
        seen.append(run.weights())
    return seen, runs.counted(run), runs.scalar(run, "loss_scale/factor") * definition.initial_scale


BAD = next(batches(1))
BAD["table"][0][2] = np.inf


@pytest.mark.parametrize("way", WAYS, ids=ids)
def test_what_is_not_finite_changes_nothing(way):
    """Tracks the scale by hand: two updates double it, a step that is not finite halves it."""
    inner, feed = Adam(0.05, epsilon=1e-3), list(batches(5))
    steps = [feed[0], None, feed[1], feed[2], None, None, feed[3], feed[4]]
    scales = [64, 64, 32, 32, 64, 32, 16, 16]
    definition = everstep.loss_scale(inner, initial_scale=64.0, growth_interval=2)
    seen, counts, scale = scaled(way, definition, steps, scales)
    assert moved(seen) == [0, 2, 3, 6, 7] and counts == (5, 8) and scale == 32
    assert distance(seen[-1], train(way, inner, feed)[0][-1]) <= 1e-6


@pytest.mark.parametrize("way", ONE_EACH, ids=ids)
def test_a_scale_that_never_changes(way):
    feed = list(batches(3))
    definition = everstep.loss_scale(SGD(0.1, momentum=0.9), initial_scale=64.0, growth_interval=0)
    seen, counts, scale = scaled(way, definition, feed[:1] + [None] + feed[1:], [64] * 4)
    assert counts == (3, 4) and scale == 64
    assert distance(seen[-1], train(way, definition.inner, feed)[0][-1]) <= 1e-6


@pytest.mark.parametrize("way", ONE_EACH, ids=ids)
def test_around_accumulation_and_clipping(way):
    """A step that is not finite does not count in the window."""
    feed = list(batches(8))
    inner = everstep.accumulate(everstep.clip(SGD(1.0), global_norm=1.0), 4)
    if way.sparse:
        inner = inner.replace(inner=inner.inner.replace(inner=Adam(0.05, sparse="rows")))
    definition = everstep.loss_scale(inner, initial_scale=64.0)
    steps = feed[:2] + [None] + feed[2:5] + [None] + feed[5:]
    seen, counts, scale = scaled(way, definition, steps, [64] * 3 + [32] * 4 + [16] * 3)
    assert moved(seen) == [4, 9] and counts == (2, 10) and scale == 16
    assert distance(seen[-1], train(way, inner, feed)[0][-1]) <= 1e-6


def test_the_scale_has_bounds():
    weights = np.zeros(1)
    optimizer = everstep.loss_scale(SGD(1.0), initial_scale=4.0).bind(np)
    for _ in range(5):
        optimizer.scale_loss(1.0)
        optimizer.apply_gradients([(np.array([np.nan]), weights)])
    assert optimizer.scale_loss(1.0) == 1.0 and optimizer.iterations == 0 and optimizer.steps == 5
    optimizer = everstep.loss_scale(SGD(0.0), initial_scale=2.0**100, growth_interval=1, growth=2.0**20).bind(np)
    for _ in range(5):
        optimizer.scale_loss(1.0)
        optimizer.apply_gradients([(np.array([1.0]), weights)])
    assert optimizer.scale_loss(1.0) == 2.0**126


test_what_is_refused = runs.refused([
    (lambda: everstep.loss_scale(SGD()).bind(np).apply_gradients([(np.ones(1), np.ones(1))]), UnsupportedError,
     "no loss was scaled. Take gradients of optimizer.scale_loss"),
    (lambda: everstep.loss_scale(everstep.loss_scale(SGD())), DefinitionError, "loss_scale cannot go around"),
    (lambda: everstep.accumulate(everstep.loss_scale(SGD()), 2), DefinitionError, "put LossScale around accumulate"),
    (lambda: everstep.partition({"a": everstep.loss_scale(SGD())}), DefinitionError, "all branches of a partition"),
    (lambda: everstep.loss_scale(SGD(), growth_interval=1.5), HyperTypeError, "takes a whole number"),
    (lambda: everstep.loss_scale(SGD(), initial_scale=0.5), HyperValueError, "must be at least 1"),
])


@pytest.mark.parametrize("way", [way for way in ONE_EACH if way.target in ("optimizer_v2", "keras3")], ids=ids)
def test_native_clipping_is_refused(way):
    with pytest.raises(UnsupportedError, match="clipnorm would bound gradients of the scaled loss"):
        everstep.loss_scale(SGD()).bind(way.module, clipnorm=1.0)


# APIs that take the gradients of a loss themselves.


def slopes(way, definition, slopes, wrap=lambda optimizer: optimizer):
    """Trains a variable of ones on the loss `slope * sum(variable)` with the API's own `minimize`."""
    if way.target == "get_updates":
        K = way.module.backend
        harness.clear_session(way.module)
        variable, slope = K.variable(np.ones(2)), K.placeholder(())
        optimizer = wrap(definition.bind(way.module))
        symbolic = getattr(K, "symbolic", lambda function: function)
        loss = symbolic(lambda: K.sum(variable) * slope)()
        updates = optimizer.get_updates(loss=loss, params=[variable])
        step = symbolic(lambda: K.function([slope], [loss], updates=updates))()
        for value in slopes:
            step([value])
        return K.get_value(variable)
    if way.target == "keras3":
        import keras

        layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
        model = keras.Sequential([keras.Input((2,)), layer])
        optimizer = wrap(definition.bind(way.module))
        model.compile(optimizer, lambda slope, output: slope * output)
        model.fit(np.ones((len(slopes), 2)), np.reshape(slopes, (-1, 1)), batch_size=1, shuffle=False, verbose=0)
        return model.get_weights()[0][:, 0]
    with way.world(way.module) as world:
        variable, slope = world.variable(np.ones(2, "float32")), world.variable(np.float32(0), trainable=False)
        optimizer = wrap(definition.bind(way.module))
        loss = lambda: world.tf.reduce_sum(variable) * slope  # noqa: E731
        in_graph = issubclass(way.run, harness.GraphRun)
        loss = loss() if in_graph and way.target == "tf_train" else loss
        train_op = optimizer.minimize(loss, var_list=[variable]) if in_graph else None
        for value in slopes:
            world.run(slope.assign(value))
            world.run(train_op) if in_graph else optimizer.minimize(loss, var_list=[variable])
        return world.read(variable)


MINIMIZING = [way for way in WAYS if way.target != "arrays" and "function" not in way.name and "jit" not in way.name]


@pytest.mark.parametrize("way", MINIMIZING, ids=ids)
def test_minimize_scales_the_loss(way):
    definition = everstep.loss_scale(SGD(0.1, momentum=0.5), initial_scale=2.0**10, growth_interval=1)
    value = slopes(way, definition, [1.0, np.inf, 1.0, 1.0])
    np.testing.assert_allclose(value, [1 - 0.1 - 0.15 - 0.175] * 2, rtol=1e-6)


def native_scaling(way):
    """Returns a function that wraps an optimizer in the API's LossScaleOptimizer, or None if the API has none."""
    if way.target in ("arrays", "get_updates"):
        return None
    if way.target == "keras3":
        return lambda optimizer: way.stock.LossScaleOptimizer(optimizer, initial_scale=1024.0)
    import tensorflow as tf

    if way.target == "tf_train":
        tf = harness.graph_mode_tensorflow()
        train = getattr(tf.train, "experimental", None)
        name = "MixedPrecisionLossScaleOptimizer"
        wrapper, scale = (getattr(train, each, None) for each in (name, "DynamicLossScale"))
        wrapper = wrapper or getattr(getattr(tf, "mixed_precision", None), name, None)
        scale = scale or getattr(getattr(tf, "mixed_precision", None), "DynamicLossScale", None)
        return wrapper and (lambda optimizer: wrapper(optimizer, scale(1024.0)))
    package = sys.modules[way.module.__name__.split(".optimizers")[0]]
    precision = getattr(package, "mixed_precision", None)
    wrapper = getattr(precision, "LossScaleOptimizer", None)
    if wrapper:
        return lambda optimizer: wrapper(optimizer, initial_scale=1024.0)
    wrapper = getattr(getattr(precision, "experimental", None), "LossScaleOptimizer", None)
    scale = getattr(getattr(tf.train, "experimental", None), "DynamicLossScale", None)
    return wrapper and (lambda optimizer: wrapper(optimizer, scale(1024.0)))


@pytest.mark.parametrize("way", [way for way in MINIMIZING if native_scaling(way)], ids=ids)
def test_the_api_s_own_loss_scaling_around_ours(way):
    if way.name == "tf_train ref" and "tf_train eager" in [each.name for each in WAYS]:
        # it steps in a branch, which is a function in TF 2
        with pytest.raises(VariableError, match="is a ref variable"):
            slopes(way, SGD(0.1), [1.0], native_scaling(way))
        return
    value = slopes(way, SGD(0.1, momentum=0.5), [1.0, np.inf, 1.0, 1.0], native_scaling(way))
    np.testing.assert_allclose(value, [1 - 0.1 - 0.15 - 0.175] * 2, rtol=1e-6)


# 16-bit variables.


def halves(way, definition, dtype="float16", start=START):
    """Takes small steps of float16 gradients on variables of a dtype. Returns (variables, slots of the copies)."""
    run = runs.started(way, definition, {name: value.astype(dtype) for name, value in start.items()}, KINDS)
    for batch in batches(40):
        values, rows = batch["table"]
        kernel, values = (value.astype("float16").astype(dtype) for value in (batch["kernel"], values))
        run.step({"kernel": kernel, "table": (values, rows)})
    copied = "master/value" in harness.bound(run.optimizer).slot_names(run.variables["kernel"])
    return run.weights(), {name: run.slot(name, "master/value") for name in START} if copied else None


@pytest.mark.parametrize("way", ONE_EACH, ids=ids)
def test_copies_hold_what_16_bits_lose(way):
    start = {name: value.astype("float16").astype("float32") for name, value in START.items()}
    for inner in (SGD(1e-5), everstep.decoupled_weight_decay(Adam(1e-5), 0.1)):
        expected = halves(way, inner, "float32", start)[0]
        actual, copies = halves(way, everstep.master_copies(inner))
        lost, _ = halves(way, inner)
        for name in START:
            assert copies[name].dtype == np.float32 and actual[name].dtype == np.float16
            assert oracle.distance(copies[name], expected[name]) <= 2e-6
            assert np.array_equal(actual[name], copies[name].astype("float16"))
            assert np.abs(expected[name] - start[name]).max() > 1e-4
            assert np.array_equal(lost[name], START[name].astype("float16"))


BRAIN = [way for way, dtype in dtypes_of_ways() if dtype == "bfloat16"]


@pytest.mark.parametrize("way", BRAIN, ids=ids)
def test_copies_of_bfloat16(way):
    """Steps of 2^-10 round to nothing in the variable, which is near 1. The copy keeps the sum of all sixteen."""
    kind = numpy_dtype("bfloat16")
    start = {"w": np.ones((2, 3), kind)}
    grads = [{"w": np.full((2, 3), 0.5 + n % 2, kind)} for n in range(16)]  # 0.5 and 1.5 in turn

    def after(definition):
        return runs.trained(way, definition, start, {"w": harness.DENSE}, grads)

    assert np.array_equal(after(SGD(2.0**-10)).weights()["w"].astype("float32"), np.ones((2, 3)))
    run = after(everstep.master_copies(SGD(2.0**-10)))
    actual, copy = run.weights()["w"].astype("float32"), run.slot("w", "master/value")
    assert copy.dtype == np.float32 and np.array_equal(copy, np.full((2, 3), 1 - 16 * 2.0**-10))
    assert np.array_equal(actual, copy.astype(kind).astype("float32")) and actual[0, 0] < 1


@pytest.mark.parametrize("way", ONE_EACH, ids=ids)
def test_copies_include_changes_by_outer_wrappers(way):
    """The copy includes the change of a decay around it. float32 variables have no copy."""
    decay = lambda definition: everstep.decoupled_weight_decay(definition, 1e-4, times_rate=False)  # noqa: E731
    around, expected = decay(everstep.master_copies(SGD(1e-4))), halves(way, decay(SGD(1e-4)), "float32")[0]
    actual, copies = halves(way, around)
    assert distance(copies, expected) <= 1e-3 and distance(copies, START) > 4e-3
    assert halves(way, everstep.master_copies(SGD(1e-4)), "float32")[1] is None


@pytest.mark.parametrize("way", ONE_EACH, ids=ids)
def test_scaling_accumulation_clipping_and_copies_together(way):
    """Scaled, accumulated and clipped, with copies: float16 is as near to float32 as its gradients are."""
    rule = everstep.accumulate(everstep.clip(everstep.master_copies(Adam(1e-3)), global_norm=1.0), 4)
    actual, copies = halves(way, rule)
    expected, _ = halves(way, everstep.accumulate(everstep.clip(Adam(1e-3), global_norm=1.0), 4), "float32")
    assert distance(copies, expected) <= 1e-3
    assert distance(expected, START) > 5e-3
