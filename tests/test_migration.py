"""`from_native` across APIs: a converted stock optimizer, bound to another API, trains as the original did."""

from __future__ import absolute_import, division, print_function

import glob
import io
import json
import os

import numpy as np
import pytest

import everstep
import harness
import stock
from crafted_files import tf1
from everstep.testing import oracle
from everstep.testing.training import KINDS, make_batches
from test_battery import ids, start_values

pytestmark = pytest.mark.shared
BOUND = 1e-5
APART = 1e-3  # the least difference between two stock optimizers whose formulas differ
WAYS = harness.quickest()
NATIVE = [way for way in WAYS if way.stock is not None]
RESULTS = {}  # (case, from, to) -> (difference of the two stock optimizers, difference of the migrated one)
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FILES = sorted(glob.glob(os.path.join(ROOT, "tests", "golden", "tf_train_*.json")))


def case(of_tf_train, of_keras, rate, rates=None, **arguments):
    """Returns a case; `rates` is {step: rate from then on}."""
    return {"tf_train": of_tf_train, "keras": of_keras, "rate": rate, "rates": rates or {}, "arguments": arguments}


CASES = {
    "RMSprop": case("RMSPropOptimizer", "RMSprop", 0.1, epsilon=1e-3),
    "RMSprop, centered": case("RMSPropOptimizer", "RMSprop", 0.1, epsilon=1e-3, momentum=0.9, centered=True),
    "momentum, the rate cut to a tenth": case("MomentumOptimizer", "SGD", 0.1, {50: 0.01}, momentum=0.9),
    "Nadam": case("NadamOptimizer", "Nadam", 0.1, epsilon=1e-3), "Adagrad": case("AdagradOptimizer", "Adagrad", 1.0),
    "Ftrl": case("FtrlOptimizer", "Ftrl", 1.0, l1_regularization_strength=0.01, l2_regularization_strength=0.001)}
DIFFERENT = ("RMSprop", "momentum, the rate cut to a tenth")  # tf.train and every Keras differ in these


def stock_name(name, way):
    return CASES[name]["tf_train" if way.target == "tf_train" else "keras"]


def final_weights(way, make, rate, rates):
    """Returns the weights after 100 steps with `make(rate)`. On tf.train a changing rate is a variable."""
    rate_variables = []

    def build():
        if way.target != "tf_train" or not rates:
            return make(rate)
        rate_variables.append(tf1.get_variable("rate", initializer=np.float32(rate), trainable=False))
        return make(rate_variables[0])

    trained = harness.new_run(way, build, start_values("float32"), KINDS)
    for step, batch in enumerate(make_batches("float32")):
        if step in rates and rate_variables:
            initializer = rate_variables[0].initializer
            trained.session.run(initializer, {initializer.inputs[1]: rates[step]})
        elif step in rates:
            trained.set_rate(rates[step])
        trained.step(batch)
    return trained.weights()


def cached_weights(key, *arguments):
    """Caches the weights of a run by key."""
    if key not in _cache:
        _cache[key] = final_weights(*arguments)
    return _cache[key]


_cache = {}


def stock_weights(name, way):
    settings = CASES[name]
    way = stock.stock_way(way, stock_name(name, way), settings["arguments"])

    def make(rate):
        return stock.make_stock(way, stock_name(name, way), rate, settings["arguments"])

    return cached_weights((name, way.name), way, make, settings["rate"], settings["rates"])


def weights_of(definition, way, rates):
    if not way.sparse and definition.sparse != "exact":
        definition = definition.replace(dense_ok=True)

    def make(rate):
        return definition.replace(learning_rate=rate).bind(way.module)

    return cached_weights((definition, tuple(rates), way.name), way, make, definition.learning_rate, rates)


def definition_of(name, way):
    """Converts the stock optimizer of a case. Returns None if this version lacks an argument."""
    with way.world(way.module):
        optimizer = stock.make_stock(way, stock_name(name, way), CASES[name]["rate"], CASES[name]["arguments"])
        return optimizer and stock.migrate(optimizer)


def known(name, way):
    return stock.is_available(way, stock_name(name, way))


def largest(actual, expected, names):
    return max(oracle.distance(actual[name], expected[name]) for name in names)


@pytest.mark.filterwarnings("ignore:Converting sparse IndexedSlices:UserWarning")  # stock Keras 2 does, and TF warns
@pytest.mark.parametrize("way", NATIVE, ids=ids)
@pytest.mark.parametrize("name", sorted(CASES))
def test_moves_to_every_other_api(name, way):
    if not known(name, way):
        return  # this API does not have it
    definition = definition_of(name, way)
    if definition is None:
        return  # Keras 2 has no centered RMSprop
    expected = stock_weights(name, way)
    right = [each for each, kind in stock.KIND_OF.items() if not stock.allowed(way, stock_name(name, way), kind)[1]]
    for other in WAYS:
        if other is way:
            continue
        far = largest(weights_of(definition, other, CASES[name]["rates"]), expected, right) if right else None
        apart = None
        if other in NATIVE and known(name, other) and definition_of(name, other):
            apart = largest(stock_weights(name, other), expected, ["dense", "bias", "single"])
        RESULTS[name, way.target, other.target] = apart, far
        assert not right or far <= BOUND, (other.name, far)
        if apart is not None and name in DIFFERENT and "tf_train" in (way.target, other.target):
            assert apart > APART, other.name


def test_there_are_files():
    assert {origin.split()[-1][:4] for origin, _, _ in trajectories()} == {"1.4.", "1.15"}


def trajectories():
    for path in FILES:
        with io.open(path, encoding="ascii") as file:
            read = json.load(file)
        for name in sorted(read["cases"]):
            yield "tf.train of TF " + read["written by"]["tensorflow"], name, read["cases"][name]


@pytest.mark.parametrize("way", WAYS, ids=ids)
@pytest.mark.parametrize("origin, name, ran", list(trajectories()), ids=ids)
def test_follows_what_old_tensorflow_did(origin, name, ran, way):
    """Compares with final weights of stock optimizers in TF 1.4 and 1.15, recorded by tests/make/trajectories.py."""
    definition = everstep.Definition.from_config(ran["definition"])
    by_rows = definition.sparse != "exact" and not way.sparse  # a dense gradient has no absent rows
    expected = {each: np.array(ran["weights"][each]) for each in stock.KIND_OF if each in ran["weights"]}
    compared = [each for each in expected if not by_rows or stock.KIND_OF[each] == "dense"]
    far = largest(weights_of(definition, way, CASES[name]["rates"]), expected, compared)
    RESULTS[name, origin, way.target] = None, far
    assert far <= BOUND
    if way.target == "tf_train" and known(name, way):
        assert definition_of(name, way) == definition


@pytest.mark.shared(False)
def test_zz_results():
    """Prints the differences, and writes them for matrix/report.py."""
    harness.write_table("migration", [list(key) + list(distances) for key, distances in sorted(RESULTS.items())])
