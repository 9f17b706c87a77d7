"""A rule runs once for each shape and kind of gradient, however many variables, steps and functions there are."""
from __future__ import absolute_import, division, print_function

import importlib

import numpy as np
import pytest

import everstep
import harness
import runs
from everstep.compat.engine import lowering
from everstep.errors import RuleError
from everstep.optimizers import SGD, Adam

pytestmark = pytest.mark.shared
EACH_WAY = pytest.mark.parametrize("way", runs.WAYS, ids=harness.way_name)
START = {"v{}".format(place): np.ones((4, 3) if place % 2 else (5,), "float32") for place in range(12)}


class Counted(everstep.Definition):
    """Momentum that counts how often its `update` runs."""

    learning_rate = everstep.hyper(0.1)
    m = everstep.slot()
    ran = 0

    def update(self, ops, grad, var, slots, hyper, t):
        Counted.ran += 1
        m = slots.m * 0.5 + grad
        return hyper.learning_rate * m, {"m": m}


@EACH_WAY
@pytest.mark.parametrize("wrap", [lambda each: each, lambda each: everstep.clip(each, global_norm=1e6)])
def test_a_rule_runs_once_for_each_shape(way, wrap):
    definition = wrap(Counted())
    before = Counted.ran
    run = runs.started(way, definition, START, dict.fromkeys(START, harness.DENSE))
    try:
        run.step(START)
        first = Counted.ran - before
        assert 2 <= first <= 4  # two shapes; a check before the step and the step share what they trace
        for _ in range(2):
            run.step(START)
        assert Counted.ran - before == first
        for name, value in run.weights().items():  # 0.1 * (1 + 1.5 + 1.75)
            np.testing.assert_allclose(value, START[name] - 0.425, rtol=1e-5)
    finally:
        run.close()


def test_another_function_of_tensorflow_traces_no_rule():
    ways = [way for way in runs.WAYS if way.name.endswith("function") and way.target != "tf_train"]
    if not ways:
        pytest.skip("no tf.function that trains")
    tf, optimizer = importlib.import_module("tensorflow"), Counted().bind(ways[0].module)
    variables = [tf.Variable(value) for _, value in sorted(START.items())]

    def step():
        optimizer.apply_gradients([(tf.ones_like(variable), variable) for variable in variables])

    tf.function(step)()
    before = Counted.ran
    tf.function(step)()
    assert Counted.ran == before
    np.testing.assert_allclose(variables[0].numpy(), np.full(5, 1 - 0.25), rtol=1e-6)  # 0.1 * (1 + 1.5)


class Shaped(everstep.Definition):
    """A rule with a slot whose shape depends on the variable's index."""

    learning_rate = everstep.hyper(0.1)
    m = everstep.slot(shape=lambda variable: variable.shape if variable.index else (1, variable.shape[1]))

    def update(self, ops, grad, var, slots, hyper, t):
        m = slots.m + (grad if slots.m.shape == grad.shape else ops.sum(grad, axis=0, keepdims=True))
        return hyper.learning_rate * m, {"m": m}

    locality = "variable"


@EACH_WAY
def test_variables_of_one_shape_whose_slots_differ(way):
    start = {name: np.ones((4, 3), "float32") for name in ("a", "b")}
    run = runs.started(way, Shaped(), start, dict.fromkeys(start, harness.DENSE))
    try:
        run.step(start)
        run.step(start)
        weights = sorted(float(value[0, 0]) for value in run.weights().values())
        np.testing.assert_allclose(weights, [1 - 1.2, 1 - 0.3], rtol=1e-5)  # 0.1 * (4 + 8) and 0.1 * (1 + 2)
    finally:
        run.close()


class Changing(everstep.Definition):
    """A rule that reads Python state."""

    learning_rate = everstep.hyper(0.1)
    factor = 1.0

    def update(self, ops, grad, var, slots, hyper, t):
        Changing.factor += 1.0
        return hyper.learning_rate * grad * Changing.factor, {}


class Again(Counted):
    """A rule that writes another slot each time."""

    other = everstep.slot()

    def update(self, ops, grad, var, slots, hyper, t):
        Counted.ran += 1
        new = slots.m + grad
        return grad, {"m": new, "other": slots.other} if Counted.ran % 2 else {"m": slots.m, "other": new}


@pytest.mark.parametrize("rule", [Changing, Again])
@runs.numpy_cells
def test_a_rule_that_differs_from_run_to_run_is_refused(rule):
    with pytest.raises(RuleError, match="something else each time it runs"):
        rule().bind(np)


@runs.numpy_cells
def test_a_new_rate_at_each_step_is_not_kept_forever(monkeypatch):
    monkeypatch.setattr(lowering, "MOST_VALUES", 60)
    optimizer, variable = Adam(0.1).bind(np), np.ones(3, "float32")
    again, other = SGD(0.0).bind(np), np.zeros(3, "float32")
    sizes = set()
    for step in range(100):
        optimizer.learning_rate, again.learning_rate = 1 / (step + 1), step
        optimizer.apply_gradients([(variable, variable)])
        again.apply_gradients([(np.ones_like(other), other)])
        sizes.add(len(harness.bound(optimizer).lowerings.tracer("float32")))
    assert max(sizes) < 100
    np.testing.assert_allclose(other, np.full(3, -sum(range(100))), rtol=1e-6)
