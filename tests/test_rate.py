"""`everstep.current_rate` reads the rate of the next update, of everstep's optimizers and stock ones, on every API."""
from __future__ import absolute_import, division, print_function

import numpy as np
import pytest

import everstep
import harness
from block_setups import X, Y, dense_model, every_keras, tf, v1
from everstep.errors import StateError, UnsupportedError
from everstep.optimizers import SGD, Adam
from harness import detect

LINE = everstep.PolynomialDecay(1.0, decay_steps=8, end=0.0)
KERASES = [pytest.param(keras, id=detect.find(keras).target.name + "-" + keras.__name__) for keras in every_keras()]
EXPECTED = {0: 1.0, 2: 0.75}  # updates: LINE's value
graphs = pytest.mark.skipif(tf is None, reason="tf.train is TensorFlow's")


@pytest.fixture(autouse=True)
def fresh_sessions():
    """In TF 1 an earlier test's session may be of another graph."""
    for keras in every_keras():
        harness.clear_session(keras)


def trained(keras, optimizer, steps=2):
    model, saves_traces = dense_model(keras), hasattr(tf, "function") and tf.executing_eagerly()
    saves_traces = saves_traces and detect.find(keras).target.name != "get_updates"
    model.compile(optimizer, "mse", **({"run_eagerly": True} if saves_traces else {}))
    before = everstep.current_rate(model.optimizer)
    for _ in range(steps):
        model.train_on_batch(X, Y)
    return before, everstep.current_rate(model.optimizer), model.optimizer


def test_numpy():
    weights = np.ones(2)
    optimizer = everstep.accumulate(SGD(LINE), 2).bind(np)
    for _ in range(4):
        optimizer.apply_gradients([(np.ones(2), weights)])
    assert everstep.current_rate(optimizer) == EXPECTED[2]  # updates count, not steps
    optimizer = SGD(0.5).bind(np)
    optimizer.learning_rate = 0.25
    assert everstep.current_rate(optimizer) == 0.25
    assert everstep.current_rate(SGD(lambda: np.float32(0.125)).bind(np)) == 0.125


def test_a_rate_that_decays():
    weights = np.ones(2)
    branches = everstep.partition({"a": (lambda variable: True, everstep.rate_decay(SGD(1.0), 0.5))}, default=SGD(1.0))
    for definition, expected in [(everstep.clip(everstep.rate_decay(SGD(1.0), 0.5), norm=9.0), 0.5),
                                 (branches, {"a": 0.5, "default": 1.0}),
                                 (everstep.rate_decay(branches, 0.5), {"a": 0.25, "default": 0.5})]:
        optimizer = definition.bind(np)
        for _ in range(2):
            optimizer.apply_gradients([(np.ones(2), weights)])
        assert everstep.current_rate(optimizer) == expected


def test_a_partition_has_many():
    optimizer = everstep.partition({"tables": ("table", SGD(0.5))}, default=Adam(LINE)).bind(np)
    assert everstep.current_rate(optimizer) == {"tables": 0.5, "default": 1.0}
    optimizer.tables_learning_rate = 0.25
    assert everstep.current_rate(optimizer)["tables"] == 0.25


class NoRate(everstep.Definition):
    def update(self, ops, grad, var, slots, hyper, t):
        return grad, {}


def test_what_has_none():
    with pytest.raises(UnsupportedError, match="NoRate has no learning rate"):
        everstep.current_rate(NoRate().bind(np))
    with pytest.raises(UnsupportedError, match="bind it first"):
        everstep.current_rate(SGD(0.1))
    with pytest.raises(UnsupportedError, match="known API; got 0.1"):
        everstep.current_rate(0.1)


@pytest.mark.parametrize("keras", KERASES)
def test_keras(keras):
    assert trained(keras, Adam(LINE).bind(keras))[:2] == (EXPECTED[0], EXPECTED[2])
    _, rate, optimizer = trained(keras, SGD(0.5).bind(keras))
    assert rate == 0.5
    if hasattr(optimizer.learning_rate, "assign"):
        keras.backend.set_value(optimizer.learning_rate, 0.25) if hasattr(
            keras.backend, "set_value") else optimizer.learning_rate.assign(0.25)
        assert everstep.current_rate(optimizer) == 0.25


@pytest.mark.parametrize("keras", KERASES)
def test_stock_keras(keras):
    before, after, _ = trained(keras, keras.optimizers.SGD(0.5))
    assert (before, after) == (0.5, 0.5)
    if detect.find(keras).target.name in ("get_updates", "optimizer_v2"):
        before, after, _ = trained(keras, keras.optimizers.SGD(0.5, decay=0.5))
        assert (before, after) == (0.5, 0.25)
    legacy = getattr(keras.optimizers, "legacy", None)
    if hasattr(legacy, "SGD") and detect.find(keras).target.name != "keras3":
        assert trained(keras, legacy.SGD(0.5, decay=0.5))[:2] == (0.5, 0.25)


@pytest.mark.parametrize("keras", KERASES)
def test_native_schedules(keras):
    schedules = getattr(keras.optimizers, "schedules", None)
    if schedules is None:
        pytest.skip("this Keras has no schedules")
    for made in (keras.optimizers.SGD, SGD.native_class(keras)):
        schedule = getattr(schedules, "learning_rate_schedule", schedules).PolynomialDecay(1.0, 8, 0.0)
        assert trained(keras, made(schedule))[:2] == (EXPECTED[0], EXPECTED[2])


@graphs
@pytest.mark.parametrize("is_stock", [False, True], ids=["ours", "stock"])
def test_tf_train_in_a_graph(is_stock):
    with tf.Graph().as_default() as graph:
        weights = v1.get_variable("weights", initializer=[1.0, 2.0], use_resource=True)
        step = v1.train.get_or_create_global_step()
        placeholder = v1.placeholder(tf.float32, [])
        made = v1.train.GradientDescentOptimizer if is_stock else lambda rate: SGD(rate).bind(v1.train)
        by_step = v1.train.polynomial_decay(1.0, step, 8, 0.0)
        optimizers = [made(by_step), made(0.5), made(placeholder)] + ([] if is_stock else [SGD(LINE).bind(v1.train)])
        train = [each.minimize(tf.reduce_sum(weights), step if place == 0 else None)
                 for place, each in enumerate(optimizers)]
        session = v1.Session()
        session.run(v1.global_variables_initializer())
        for _ in range(2):
            session.run([train[0]] + train[3:])
        graph.finalize()
    with session.as_default():
        assert [everstep.current_rate(each) for each in optimizers[:2]] == [EXPECTED[2], 0.5]
        with pytest.raises(StateError, match="no learning rate with a value here"):
            everstep.current_rate(optimizers[2])
    assert everstep.current_rate(optimizers[0], session=session) == EXPECTED[2]
    if not is_stock:
        assert everstep.current_rate(optimizers[3], session=session) == EXPECTED[2]
    with pytest.raises(StateError, match="give session="):
        everstep.current_rate(optimizers[0])


@graphs
def test_inside_of_a_traced_function():
    if not hasattr(tf, "function") or not tf.executing_eagerly():
        pytest.skip("TensorFlow 2 has functions")
    optimizer = trained(tf.keras, SGD(0.5).bind(tf.keras))[2]

    @tf.function
    def read():
        return everstep.current_rate(optimizer)

    with pytest.raises(Exception, match="no learning rate with a value here"):
        read()


@graphs
def test_inside_of_a_loss_scale_optimizer():
    if not hasattr(getattr(tf.keras, "mixed_precision", None), "LossScaleOptimizer"):
        pytest.skip("this Keras has no LossScaleOptimizer")
    assert everstep.current_rate(tf.keras.mixed_precision.LossScaleOptimizer(SGD(LINE).bind(tf.keras))) == 1.0
