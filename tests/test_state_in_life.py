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
import stock
from everstep import errors
from everstep.compat.state.matching import match
from test_battery import ids

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
