"""`bind(..., gradients=fn)`: the user computes the gradients, and all other steps stay the same."""

from __future__ import absolute_import, division, print_function

import functools
import time

import numpy as np
import pytest

import harness
from everstep.errors import ConfigError, DefinitionError, GradientError, UnsupportedError
from everstep.optimizers import SGD, Adam
from everstep.testing import oracle
from test_battery import ids
from test_multistage import KERAS, X, Y, a_model

WAYS = harness.framework_ways()
TAKING = [way for way in WAYS if way.target in ("tf_train", "optimizer_v2", "update_step")]
ONE_EACH = harness.one_of_each_target(TAKING)
EAGER = [way for way in TAKING if not issubclass(way.run, harness.GraphRun)]
FIRST = {"w": np.linspace(0.5, 1.5, 6).reshape(3, 2).astype("float32"), "table": np.ones((4, 2), "float32")}
ROWS = np.array([1, 3, 1])
RULE = Adam(0.125, epsilon=1e-3)


def expected_weights(steps=3):
    run = harness.NUMPY.run(lambda: RULE.bind(np), FIRST, {"w": harness.DENSE, "table": harness.SPARSE})
    for _ in range(steps):
        values = run.weights()
        run.step({"w": 2 * values["w"], "table": (np.cos(values["table"][ROWS]), ROWS)})
    return run.weights()


def written_out(tf, seen):
    """Returns a gradients function whose values no differentiation of this loss would give."""

    def gradients(loss, variables):
        seen.append(loss)
        w, table = variables
        rows = tf.constant(ROWS)
        return [2 * w, tf.IndexedSlices(tf.cos(tf.gather(table, rows)), rows, tf.constant([4, 2]))]

    return gradients


def minimizes(world, way, optimizer, loss, variables):
    """Returns a function that takes a step on a loss; in a session it returns the loss of before."""
    tf = world.tf
    if world.session and way.target == "optimizer_v2":
        operation = tf.group(*optimizer.get_updates(loss, variables))
    elif world.session:
        operation = optimizer.minimize(loss, var_list=variables)
    else:
        step = functools.partial(optimizer.minimize, loss, var_list=variables)
        return tf.function(lambda: step() and None) if issubclass(way.run, harness.FunctionRun) else step
    return lambda: world.run([loss, operation])[0]


@pytest.mark.parametrize("way", TAKING, ids=ids)
def test_minimize_takes_them(way):
    seen = []
    with way.world(way.module) as world:
        variables = [world.variable(FIRST[name], name) for name in ("w", "table")]
        optimizer = RULE.bind(way.module, gradients=written_out(world.tf, seen))
        loss = lambda: world.tf.reduce_sum(variables[0])  # noqa: E731
        step = minimizes(world, way, optimizer, loss() if world.session else loss, variables)
        for _ in range(3):
            step()
        assert seen
        for name, value in expected_weights().items():
            assert oracle.distance(world.read(variables[name == "table"]), value) < 1e-6, name


IN_SESSIONS = [way for way in TAKING if issubclass(way.run, harness.GraphRun)]


@pytest.mark.parametrize("way", IN_SESSIONS, ids=ids)
def test_a_loss_beside_the_step_is_that_of_before(way):
    """The loss fetched beside the step is that before the step, although no gradient depends on it."""
    with way.world(way.module) as world:
        tf, variable = world.tf, world.variable(FIRST["w"])
        late = tf.py_func(lambda: time.sleep(0.1), [], [])
        with tf.control_dependencies([late] if isinstance(late, tf.Operation) else late):
            loss = tf.reduce_sum(variable.read_value())
        optimizer = SGD(0.5).bind(way.module, gradients=lambda loss, variables: [tf.ones((3, 2))])
        step = minimizes(world, way, optimizer, loss, [variable])
        assert np.allclose([step() for _ in range(2)], [6.0, 3.0])


HAND_MADE = [case for case in KERAS if case[1] is case[2] and not hasattr(case[2].models.Model, "train_step")]


@pytest.mark.parametrize("name, module, keras", HAND_MADE, ids=[name.replace(" ", "-") for name, _, _ in HAND_MADE])
def test_fit_of_graphs_takes_them(name, module, keras):
    """The function can use the model's own inputs and targets."""
    model = []

    def gradients(loss, variables):
        (kernel,) = variables
        tf = harness.sys.modules["tensorflow"]
        targets = getattr(model[0], "targets", None) or model[0]._targets  # `_targets` on TF 1.14 and newer
        inputs, targets = model[0].inputs[0], targets[0]
        off = tf.matmul(inputs, kernel) - tf.cast(targets, "float32")
        return [tf.matmul(inputs, off, transpose_a=True) / 4]  # half the gradient of the mean square

    model.append(a_model(keras, lambda: SGD(0.5).bind(module, gradients=gradients)))
    model[0].fit(X, Y, batch_size=4, epochs=1, shuffle=False, verbose=0)
    value = np.array([[1.0], [-2.0]]) / 4
    for batch in (slice(0, 4), slice(4, 8), slice(8, 12)):
        value = value - 0.5 * X[batch].T.dot(X[batch].dot(value) - Y[batch]) / 4
    assert oracle.distance(model[0].get_weights()[0], value) < 1e-6


@pytest.mark.parametrize("way", EAGER, ids=ids)
def test_what_a_mistaken_function_gives(way):
    with way.world(way.module) as world:
        variable = world.variable(FIRST["w"])
        optimizer = RULE.bind(way.module, gradients=lambda loss, variables: [])
        with pytest.raises(GradientError, match="gave 0 gradients for 1 variables"):
            optimizer.minimize(world.loss([(FIRST["w"], variable)]), var_list=[variable])
        assert np.array_equal(world.read(variable), FIRST["w"])


@pytest.mark.parametrize("way", harness.one_of_each_target(harness.all_ways()), ids=ids)
def test_refused_where_no_optimizer_takes_gradients(way):
    if way.target in ("keras3", "arrays"):
        with pytest.raises(UnsupportedError, match="give yours to apply_gradients"):
            RULE.bind(way.module, gradients=lambda loss, variables: [])
    else:
        with pytest.raises(DefinitionError, match="a function of"):
            RULE.bind(way.module, gradients=3)


@pytest.mark.parametrize("way", ONE_EACH, ids=ids)
def test_gradients_of_another_hand_are_refused(way):
    first = {"w": FIRST["w"]}
    with pytest.raises(UnsupportedError, match="was bound with gradients="):
        run = way.run(lambda: RULE.bind(way.module, gradients=lambda loss, variables: []), first, {"w": harness.DENSE})
        run.step({"w": FIRST["w"]})


@pytest.mark.parametrize("way", [way for way in ONE_EACH if way.target != "tf_train"], ids=ids)
def test_a_config_says_that_it_holds_no_function(way):
    optimizer = RULE.bind(way.module, gradients=lambda loss, variables: [])
    with pytest.raises(ConfigError, match="which no config holds"):
        type(optimizer).from_config(optimizer.get_config())
