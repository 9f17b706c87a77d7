"""The rarer verbs of the contract, on every target: small definitions that use them, compared with NumPy loops."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest

import everstep
import harness
import runs
from everstep.testing import training

pytestmark = pytest.mark.shared
WAYS = harness.all_ways()
SHAPES = {"kernel": (4, 3), "table": (6, 3)}
KINDS = {"kernel": harness.DENSE, "table": harness.SPARSE}
START = training.start_values("float32", SHAPES, (0.5, 1.5))
BATCHES = training.make_batches("float32", 12, SHAPES, KINDS)


class GlobalClip(everstep.Definition):
    """Gradient descent on gradients scaled by the norm over all variables."""

    learning_rate = everstep.hyper(0.1)

    def measure(self, ops, grad, var, slots, hyper):
        return {"squares": everstep.total(ops.sum(grad * grad))}

    def update(self, ops, grad, var, slots, hyper, t):
        return hyper.learning_rate * grad / ops.sqrt(hyper.squares), {}


class TrustRatio(everstep.Definition):
    """Scales each variable's gradient to a root mean square of 1."""

    learning_rate = everstep.hyper(0.1)
    zero_grad_is_noop = True

    def measure(self, ops, grad, var, slots, hyper):
        return {"grad_squares": ops.sum(grad * grad), "entries": ops.sum(ops.ones_like(grad))}

    def update(self, ops, grad, var, slots, hyper, t):
        return hyper.learning_rate * grad * ops.sqrt(hyper.entries / ops.maximum(hyper.grad_squares, 1e-12)), {}


class Warming(everstep.Definition):
    """A warm-up whose factor is state: a product over updates."""

    learning_rate = everstep.hyper(0.1)
    zero_grad_is_noop = True
    product = everstep.scalar(1.0)

    def advance(self, ops, scalars, hyper, t):
        return {"product": scalars.product * (1 - 0.5**t)}

    def update(self, ops, grad, var, slots, hyper, t):
        return hyper.learning_rate * (1 - hyper.product) * grad, {}


class ByShape(everstep.Definition):
    """Decays only the table."""

    learning_rate = everstep.hyper(0.1)
    decay_rate = everstep.hyper(0.01)
    decays = everstep.option(False)

    def specialize(self, variable):
        return self.replace(decays=True) if variable.shape == SHAPES["table"] else self

    def update(self, ops, grad, var, slots, hyper, t):
        change = hyper.learning_rate * grad
        return (change + hyper.decay_rate * var if self.decays else change), {}


class Proximal(everstep.Definition):
    """Assigns the new value: never below zero."""

    learning_rate = everstep.hyper(0.1)

    def update(self, ops, grad, var, slots, hyper, t):
        return everstep.assign(ops.maximum(var - hyper.learning_rate * grad, 0.0)), {}


class Swapping(everstep.Definition):
    """Two slots swap at every step: the old value must be copied before its buffer is overwritten."""

    learning_rate = everstep.hyper(0.1)
    first = everstep.slot(init=1.0)
    second = everstep.slot(init=everstep.VARIABLE)

    def update(self, ops, grad, var, slots, hyper, t):
        return hyper.learning_rate * grad * slots.first, {"first": slots.second, "second": slots.first}


class Centered(everstep.Definition):
    """Needs the whole variable: subtracts the mean of its gradient."""

    learning_rate = everstep.hyper(0.1)
    locality = "variable"
    mean = everstep.slot(shape=())

    def update(self, ops, grad, var, slots, hyper, t):
        mean = 0.5 * slots.mean + 0.5 * ops.mean(grad)
        return hyper.learning_rate * (grad - mean), {"mean": mean}


class Peak(everstep.Definition):
    """Uses `collect`, and updates at every step too."""

    learning_rate = everstep.hyper(0.1)
    peak = everstep.slot()

    def collect(self, ops, grad, slots, hyper):
        return {"peak": ops.maximum(slots.peak, ops.abs(grad))}

    def update(self, ops, grad, var, slots, hyper, t):
        return hyper.learning_rate * grad / (slots.peak + 1.0), {}


def by_hand(name, weights, state, grads, t):
    """Computes one update of each definition in float64, on dense gradients and (for measures) the rows present."""
    present = {k: g[np.unique(r)] if r is not None else g for k, (g, r) in grads.items()}
    squares = sum((g * g).sum() for g, _ in grads.values())
    if name == "Warming":
        state["product"] = state.get("product", 1.0) * (1 - 0.5**t)
    for key, (grad, _) in grads.items():
        if name == "GlobalClip":
            weights[key] -= 0.1 * grad / np.sqrt(squares)
        elif name == "TrustRatio":
            weights[key] -= 0.1 * grad * np.sqrt(present[key].size / (grad * grad).sum())
        elif name == "Warming":
            weights[key] -= 0.1 * (1 - state["product"]) * grad
        elif name == "ByShape":
            weights[key] -= 0.1 * grad + (0.01 * weights[key] if key == "table" else 0)
        elif name == "Proximal":
            weights[key] = np.maximum(weights[key] - 0.1 * grad, 0)
        elif name == "Swapping":
            first, second = state.get(key) or (np.ones_like(grad), weights[key].copy())
            weights[key] -= 0.1 * grad * first
            state[key] = second, first
        elif name == "Centered":
            state[key] = 0.5 * state.get(key, 0.0) + 0.5 * grad.mean()
            weights[key] -= 0.1 * (grad - state[key])
        elif name == "Peak":
            state[key] = np.maximum(state.get(key, 0.0), np.abs(grad))
            weights[key] -= 0.1 * grad / (state[key] + 1)


DEFINITIONS = [GlobalClip, TrustRatio, Warming, ByShape, Proximal, Swapping, Centered, Peak]


@pytest.mark.parametrize("steps", [1, 3], ids=["each-step", "accumulated"])
@pytest.mark.parametrize("definition_class", DEFINITIONS, ids=lambda value: value.__name__)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name.replace(" ", "-"))
def test_verb(way, definition_class, steps):
    if definition_class is Peak and steps > 1:
        pytest.skip("accumulate refuses a definition that collects: test_definition.py says so")
    definition = definition_class()
    if steps > 1:
        definition = everstep.accumulate(definition, steps, reduction="sum")
    weights, state = {name: value.astype("float64") for name, value in START.items()}, {}
    for t, place in enumerate(range(0, len(BATCHES), steps), 1):
        window = BATCHES[place : place + steps]
        joined = {name: sum(runs.whole(each[name], SHAPES[name]) for each in window) for name in SHAPES}
        # Where gradients are dense, all rows are present.
        touched = np.concatenate([each["table"][1] for each in window]) if way.sparse else None
        grads = {"kernel": (joined["kernel"], None), "table": (joined["table"], touched)}
        by_hand(definition_class.__name__, weights, state, grads, float(t))
    assert runs.distance(runs.trained(way, definition, START, KINDS, BATCHES).weights(), weights) <= 1e-5


def test_a_scalar_survives_and_is_shared():
    weights = np.ones(2)
    optimizer = runs.steps(Warming(), weights, *[np.ones(2)] * 3)
    assert abs(float(harness.bound(optimizer).adapter.scalar("product")) - 0.5 * 0.75 * 0.875) < 1e-7
