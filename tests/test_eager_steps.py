"""Eager steps as functions of TensorFlow that are kept: the same numbers, whatever changes between steps."""
from __future__ import absolute_import, division, print_function

import copy
import importlib

import numpy as np
import pytest

import everstep
import harness
from everstep.compat.engine import eager_steps
from everstep.optimizers import SGD, Adam

WAYS = [way for way in harness.framework_ways() if way.name.endswith("eager") and way.sparse]
pytestmark = pytest.mark.skipif(not WAYS, reason="no eager TensorFlow")
EACH = pytest.mark.parametrize("way", WAYS, ids=[way.name for way in WAYS])


class Trained(object):
    """Two variables, and what SGD without momentum makes of them with gradients of 1."""

    def __init__(self, way, definition, **native):
        self.tf = importlib.import_module("tensorflow")
        self.optimizer = definition.bind(way.module, **native)
        self.variables = [self.tf.Variable(np.zeros(3, "float32")), self.tf.Variable(np.zeros((4, 2), "float32"))]
        if not self.keeps():
            pytest.skip("this TensorFlow has no functions, or this API runs its steps in some already")

    def keeps(self):
        return harness.bound(self.optimizer).backend.keeps_functions()

    def step(self, *grads):
        grads = grads or [self.tf.ones_like(variable) for variable in self.variables]
        self.optimizer.apply_gradients(list(zip(grads, self.variables)))
        return float(self.variables[0].numpy()[0])

    def functions(self):
        return [kept for kept in harness.bound(self.optimizer).eager_steps._functions.values() if kept]


@EACH
def test_a_function_serves_all_later_steps(way):
    run = Trained(way, SGD(1.0))
    assert [run.step() for _ in range(4)] == [-1, -2, -3, -4]
    assert len(run.functions()) == 1


@EACH
def test_a_rate_that_a_function_gives(way):
    rates, asked = [0.5, 1.0, 1.5, 2.0], []
    run = Trained(way, SGD(lambda: asked.append(rates[0]) or rates[0]))
    for expected in (-0.5, -1.5, -3, -5):
        before = len(asked)
        assert run.step() == expected
        assert len(asked) == before + 1 or way.target in ("update_step", "keras3")  # whose base class asks too
        del rates[0]


@EACH
def test_a_rate_that_is_set(way):
    run = Trained(way, SGD(1.0))
    for _ in range(3):
        run.step()
    if not harness.bound(run.optimizer).adapter.sets_hypers:
        pytest.skip("hypers of this API cannot be set")
    run.optimizer.learning_rate = 0.25
    assert run.step() == -3.25 and run.step() == -3.5


@EACH
def test_schedules_of_ours_and_of_keras(way):
    ours = Trained(way, SGD(everstep.ExponentialDecay(1.0, 1, 0.5)))
    assert [ours.step() for _ in range(4)] == [-1, -1.5, -1.75, -1.875]
    if not hasattr(way.stock, "schedules") or way.target == "keras3":  # whose schedules get a variable of Keras
        return

    class Halved(way.stock.schedules.LearningRateSchedule):
        """Runs Python code at each step."""

        asked = []

        def __call__(self, step):
            self.asked.append(int(step))
            return 0.5 ** float(step)

        def get_config(self):
            return {}

    theirs = Trained(way, SGD(Halved()))
    assert [theirs.step() for _ in range(4)] == [-1, -1.5, -1.75, -1.875]
    asked = [step for place, step in enumerate(Halved.asked) if step not in Halved.asked[:place]]
    assert asked[-3:] == [1, 2, 3]


@EACH
def test_sparse_gradients_of_any_length(way):
    run = Trained(way, SGD(1.0, momentum=0.5, sparse="rows"))
    expected, velocity = np.zeros((4, 2)), np.zeros((4, 2))
    for rows in ([0, 1], [1, 1, 2], [3], [0, 3, 2, 1], [2, 2]):
        run.optimizer.apply_gradients([
            (run.tf.IndexedSlices(run.tf.ones((len(rows), 2)), run.tf.constant(rows), (4, 2)), run.variables[1])])
        for row in set(rows):
            velocity[row] = 0.5 * velocity[row] - rows.count(row)
            expected[row] += velocity[row]
        np.testing.assert_allclose(run.variables[1].numpy(), expected, rtol=1e-6)
    assert len(run.functions()) == 1


@EACH
def test_gradients_that_come_and_go(way):
    run, random = Trained(way, Adam(0.1)), np.random.RandomState(1)
    oracle, arrays = Adam(0.1).bind(np), [np.zeros(3), np.zeros((4, 2))]
    for chosen in ((0, 1), (0,), (0, 1), (0,), (1,), (0, 1), (0,)):
        grads = [random.normal(size=arrays[place].shape) for place in chosen]
        oracle.apply_gradients([(grad, arrays[place]) for grad, place in zip(grads, chosen)])
        run.optimizer.apply_gradients([
            (run.tf.constant(grad, "float32"), run.variables[place]) for grad, place in zip(grads, chosen)])
    for variable, array in zip(run.variables, arrays):
        np.testing.assert_allclose(variable.numpy(), array, rtol=1e-4)
    assert len(run.functions()) == 3


@EACH
def test_wrong_gradients_change_nothing(way):
    run = Trained(way, SGD(1.0))
    before = [run.step() for _ in range(3)][-1]
    with pytest.raises(everstep.errors.GradientError):
        run.step(run.tf.ones(3), run.tf.ones((2, 2)))
    with pytest.raises(everstep.errors.GradientError):
        run.step(run.tf.ones(3), run.tf.IndexedSlices(run.tf.ones((1, 2)), run.tf.constant([7]), (4, 2)))
    assert float(run.variables[0].numpy()[0]) == before and run.step() == before - 1


@EACH
def test_not_in_functions_that_run_eagerly(way):
    run = Trained(way, SGD(1.0))
    config = run.tf.config
    switch = getattr(config, "run_functions_eagerly", None) or getattr(
        config, "experimental_run_functions_eagerly", None)
    if switch is None:
        pytest.skip("this TensorFlow cannot run functions eagerly")
    switch(True)
    try:
        if hasattr(config, "functions_run_eagerly"):
            assert not run.keeps()
        assert [run.step() for _ in range(3)] == [-1, -2, -3]
    finally:
        switch(False)
    assert run.step() == -4


@EACH
def test_constraints_of_the_user_stay_out(way):
    run = Trained(way, SGD(1.0))
    bounded = lambda value: run.tf.constant(np.maximum(value.numpy(), -1.5))  # noqa: E731
    run.variables = [run.tf.Variable(np.zeros(3, "float32"), constraint=bounded)]
    if way.target not in ("tf_train", "optimizer_v2"):
        pytest.skip("the base class applies constraints after the step")
    assert [run.step() for _ in range(3)] == [-1, -1.5, -1.5]
    assert not run.functions()


@EACH
def test_programs_that_never_repeat_a_step_trace_no_more(way, monkeypatch):
    monkeypatch.setattr(eager_steps, "MOST", 2)
    run = Trained(way, SGD(1.0))
    run.variables = [run.tf.Variable(np.zeros(3, "float32")) for _ in range(5)]
    if hasattr(run.optimizer, "build"):
        run.optimizer.build(run.variables)
    for _ in range(3):
        for variable in run.variables:
            run.optimizer.apply_gradients([(run.tf.ones(3), variable)])
    assert len(run.functions()) == 2
    assert all(float(variable.numpy()[0]) == -3 for variable in run.variables)


@EACH
def test_a_copy_has_functions_of_its_own(way):
    run = Trained(way, SGD(1.0))
    for _ in range(3):
        run.step()
    twin = copy.copy(run.optimizer)
    twin.apply_gradients([(run.tf.ones_like(variable), variable) for variable in run.variables])
    assert len(run.functions()) == 1
    kept = harness.bound(twin).eager_steps._functions.values()
    assert [each.function for each in kept] != [run.functions()[0].function]
    assert run.step() == -5


@EACH
def test_a_tape_outside(way):
    """Gradients of gradients: the step runs under a tape that watches the variables."""
    run = Trained(way, SGD(0.5))
    for _ in range(3):
        with run.tf.GradientTape() as outer:
            outer.watch(run.variables)
            loss = sum(run.tf.reduce_sum(variable) for variable in run.variables)
            run.step(*[run.tf.ones_like(variable) for variable in run.variables])
        assert outer.gradient(loss, run.variables[0]).numpy().tolist() == [1.0] * 3
    assert float(run.variables[0].numpy()[0]) == -1.5
