"""Methods that run every few updates: the same numbers everywhere, and nothing computed in between."""
from __future__ import absolute_import, division, print_function

import numpy as np
import pytest

import everstep
import harness
import runs
from everstep.errors import DefinitionError, HyperValueError, RuleError
from everstep.testing import checks, oracle, training

pytestmark = pytest.mark.shared
SHAPES = {"dense": (5, 3), "bias": (4,), "single": (1,)}
KINDS = dict.fromkeys(SHAPES, "dense")
WAYS = runs.WAYS


class Held(everstep.Definition):
    """Scales a gradient by what the last refresh saw."""

    learning_rate = everstep.hyper(0.1)
    period = everstep.option(3)
    mean = everstep.slot()
    scale = everstep.slot(1.0)
    centre = everstep.slot()
    locality = "variable"

    @everstep.refresh(every="period")
    def new_scale(self, ops, grad, var, slots, hyper):
        return {"scale": ops.sqrt(ops.mean(grad * grad)) + ops.abs(slots.mean) + 0.1 + 0 * grad}

    @everstep.refresh(every=2)
    def new_centre(self, ops, grad, var, slots, hyper):
        return {"centre": slots.scale * 0.1 + hyper.learning_rate * var}

    def update(self, ops, grad, var, slots, hyper, t):
        mean = 0.9 * slots.mean + 0.1 * grad
        return hyper.learning_rate * (mean + slots.centre) / slots.scale, {"mean": mean}


def by_hand(start, grads, period, rate):
    """Computes what `Held` does to one variable, step by step."""
    var, mean, scale, centre = start.astype("float64"), 0.0, 1.0, 0.0
    for step, grad in enumerate(grads):
        if step % period == 0:
            scale = np.sqrt(np.mean(grad * grad)) + np.abs(mean) + 0.1 + 0 * grad
        if step % 2 == 0:
            centre = scale * 0.1 + rate * var
        mean = 0.9 * mean + 0.1 * grad
        var = var - rate * (mean + centre) / scale
    return var


class Later(Held):
    """Its scale is set once, its centre at updates 5, 8, 11, ..."""

    @everstep.refresh(every=None)
    def new_scale(self, ops, grad, var, slots, hyper):
        return {"scale": ops.abs(grad) + 1}

    @everstep.refresh(every="period", after=2)
    def new_centre(self, ops, grad, var, slots, hyper):
        return {"centre": slots.centre + grad}


def later_by_hand(start, grads, rate):
    var, mean, scale, centre = start.astype("float64"), 0.0, np.abs(grads[0]) + 1.0, 0.0
    for step, grad in enumerate(grads, 1):
        centre = centre + grad if step in (5, 8, 11) else centre
        mean = 0.9 * mean + 0.1 * grad
        var = var - rate * (mean + centre) / scale
    return var


STACKS = {
    "plain": lambda rule: rule,
    "clip": lambda rule: everstep.clip(rule, global_norm=0.7),
    "moving_average": lambda rule: everstep.moving_average(rule, 0.8),
    "accumulate": lambda rule: everstep.accumulate(rule, steps=2),
    "decay": lambda rule: everstep.decoupled_weight_decay(rule, 0.01),
    "sharpness_aware": everstep.sharpness_aware,
    "partition": lambda rule: everstep.partition({"bias": everstep.optimizers.SGD(0.1)}, rule),
}


def start_and_batches(steps=8):
    return training.start_values("float32", SHAPES), training.make_batches("float32", steps, SHAPES, KINDS)


@pytest.mark.parametrize("period", [1, 3])
@pytest.mark.parametrize("way", WAYS, ids=harness.way_name)
def test_it_runs_at_each_period(way, period):
    start, batches = start_and_batches()
    trained = runs.trained(way, Held(0.3, period=period), start, KINDS, batches)
    for name, weight in trained.weights().items():
        expected = by_hand(start[name], [batch[name] for batch in batches], period, 0.3)
        assert np.abs(weight - expected).max() < 1e-5 * np.abs(expected).max(), name


@pytest.mark.parametrize("way", harness.one_of_each_target(WAYS), ids=harness.way_name)
def test_it_runs_once_and_later(way):
    start, batches = start_and_batches(12)
    trained = runs.trained(way, Later(0.1, period=3), start, KINDS, batches)
    for name, weight in trained.weights().items():
        expected = later_by_hand(start[name], [batch[name] for batch in batches], 0.1)
        assert np.abs(weight - expected).max() < 1e-5 * np.abs(expected).max(), name


@pytest.mark.parametrize("name, way", harness.each_in_turn(sorted(STACKS), WAYS, 2), ids=lambda each: getattr(
    each, "name", each))
def test_inside_of_wrappers(name, way):
    trial = runs.Trial(way, STACKS[name](Held(0.05, period=3)), steps=9, shapes=SHAPES, kinds=KINDS)
    expected, slots = oracle.trajectory(trial.definition, trial.start, trial.batches)
    assert max(each.distance for each in trial.apart(trial.train(trial.run()), expected, slots)) < 1e-5


@pytest.mark.parametrize("way", harness.one_of_each_target(WAYS), ids=harness.way_name)
def test_it_goes_on_in_the_middle_of_a_period(way):
    assert checks.resumed_differs(runs.Trial(way, Held(0.05, period=4), steps=10), half=5) == []


@pytest.mark.parametrize("way", [way for way in WAYS if way.target == "arrays" or "torch" in way.name],
                         ids=harness.way_name)
def test_nothing_is_computed_in_between(way, monkeypatch):
    """Counts, in uncompiled code, how often the backend takes the square root that only the method has."""
    start, batches = start_and_batches(7)
    run = runs.started(way, Held(0.3, period=3), start, KINDS)
    backend, calls = harness.bound(run.optimizer).backend, []
    root = backend.ops["sqrt"]
    monkeypatch.setitem(backend.ops, "sqrt", lambda x: calls.append(1) or root(x))
    for batch in batches:
        run.step(batch)
    assert len(calls) == 3 * len(SHAPES)  # at updates 1, 4 and 7


def refused(error, **body):
    with pytest.raises(error) as caught:
        type("Refused", (Held,), body)()
    return str(caught.value)


@runs.numpy_cells
def test_what_is_refused():
    with pytest.raises(DefinitionError, match="whole number from 1"):
        everstep.refresh(every=0)
    for arguments in (2, -1), (2, 1.5), (None, 1), (None, 0):
        with pytest.raises(DefinitionError, match="refresh.after=.*whole number from 0, beside `every`"):
            everstep.refresh(*arguments)
    with pytest.raises(HyperValueError, match="period is how many updates lie between two of new_scale"):
        Held(period=0)
    with pytest.raises(DefinitionError, match='takes only sparse="exact"'):
        Held(sparse="rows")
    marked = everstep.refresh(every="mean")(lambda self, ops, grad, var, slots, hyper: {})
    assert "no option" in refused(DefinitionError, more=marked)
    shape = everstep.refresh(every=2)(lambda self, ops, grad, var, slots, hyper: {"scale": ops.sum(grad)})
    assert "every few updates gave float32 of shape ()" in refused(RuleError, new_scale=shape)
    tuples = everstep.refresh(every=2)(lambda self, ops, grad, var, slots, hyper: (grad,))
    assert "must return a dict of slots" in refused(RuleError, new_scale=tuples)


@runs.numpy_cells
def test_a_wrapper_that_leaves_it_out_is_refused():
    class Halved(everstep.Wrapper):
        prefix = "halved"

        def update(self, ops, grad, var, slots, hyper, t):
            change, inner = self.inner.update(ops, 0.5 * grad, var, slots.inner, hyper.inner, t)
            return change, {"inner": inner}

    Halved(everstep.optimizers.SGD(0.1))
    with pytest.raises(RuleError, match="leaves out Held.new_scale"):
        Halved(Held())
