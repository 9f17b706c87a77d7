"""`ops.random_normal`, `ops.random_uniform`, and slots that start with random numbers: equal on every API.

All are compared with Python's integers, by the function of docs/numbers.md that test_wrappers_gradient.py computes too.
"""

from __future__ import absolute_import, division, print_function

import math
import zlib

import numpy as np
import pytest

import everstep
import harness
import runs
from everstep.errors import DefinitionError, HyperTypeError, HyperValueError, VariableError
from everstep.optimizers import SGD
from runs import ONE_EACH, WAYS
from test_battery import ids

pytestmark = pytest.mark.shared
SHAPES = {"bias": (3,), "conv": (2, 2, 3, 2), "single": (), "table": (6, 3)}
KINDS = {"bias": harness.DENSE, "conv": harness.DENSE, "single": harness.DENSE, "table": harness.SPARSE}
START = {name: np.zeros(shape, "float32") for name, shape in SHAPES.items()}
PRIME = 23159


class Drawing(everstep.Definition):
    """Keeps what it draws."""

    learning_rate = everstep.hyper(1.0)
    seed = everstep.option(7)
    text = everstep.option("")
    first = everstep.slot(init=everstep.random_normal(mean=1.0, stddev=2.0))
    second = everstep.slot(init=everstep.random_uniform(-1.0, 3.0, seed="seed"))
    row = everstep.slot(init=everstep.random_normal(), shape="row")
    normal = everstep.slot()
    uniform = everstep.slot()

    def specialize(self, variable):
        return self.replace(text=variable.name)

    def update(self, ops, grad, var, slots, hyper, t):
        new = {name: getattr(slots, name) for name in ("first", "second", "row")}
        new.update(normal=ops.random_normal(self.text, t, hyper), uniform=ops.random_uniform("seed", t, hyper))
        return grad, new


class Shaped(everstep.Definition):
    """Draws arrays of shapes of its own."""

    learning_rate = everstep.hyper(1.0)
    locality = "variable"
    block = everstep.slot(shape=(2, 3, 2))
    line = everstep.slot(shape=(4,))
    one = everstep.slot(shape=())

    def update(self, ops, grad, var, slots, hyper, t):
        new = {name: ops.random_normal(name, t, getattr(slots, name).shape) for name in ("block", "one")}
        return grad, dict(new, line=ops.random_uniform("line", hyper.updates, (4,)))


def drawn(seed, shape, count, kind="normal", places=None):
    """Returns the numbers of a shape, or of some places in it, by Python's integers, one after the other."""

    def key(number):
        return (zlib.crc32("{}/{}".format(seed, number).encode("utf-8")) & 0xFFFFFFFF) % PRIME

    def network(pair, keys):
        left, right = pair
        for each in keys:
            left, right = right, (left + pow(right + each, 3, PRIME)) % PRIME
        return left, right

    def number(place):
        row, column = divmod(place, int(np.prod(shape[1:], dtype=int))) if shape else (0, 0)
        left, right = network((row % PRIME, column % PRIME), keys[:3])
        left, right = network(((left + row // PRIME) % PRIME, (right + column // PRIME) % PRIME), keys[3:])
        if kind == "uniform":
            return (left * PRIME + right + 0.5) / PRIME**2
        return math.sqrt(-2 * math.log((left + 0.5) / PRIME)) * math.cos(2 * math.pi * (right + 0.5) / PRIME)

    keys = [key(n) for n in range(6)]
    of_count = network((count % PRIME, count // PRIME % PRIME), [(keys[0] + count // PRIME**2) % PRIME] + keys[1:])
    keys = [(of_count[0] * key(6 + n) + of_count[1] * each) % PRIME for n, each in enumerate(keys)]
    if places is not None:
        return np.array([number(place) for place in places])
    return np.reshape([number(place) for place in range(int(np.prod(shape, dtype=int)))], shape)


def starts(name, shape, seed=7):
    """Returns the first values of the slots of Drawing, in float32."""
    row = shape[:1] + (1,) * (len(shape) - 1)
    values = {"first": 1 + 2 * drawn(name + "/first/0", shape, 0),
              "second": -1 + 4 * drawn("{}/second/{}".format(name, seed), shape, 0, "uniform"),
              "row": drawn(name + "/row/0", row, 0)}
    return {slot: value.astype("float32") for slot, value in values.items()}


GRADS = {name: np.ones(shape, "float32") for name, shape in SHAPES.items()}
GRADS["table"] = np.ones((2, 3), "float32"), np.array([1, 4], "int64")


@pytest.mark.parametrize("way", WAYS if harness.FULL else ONE_EACH, ids=ids)
def test_numbers_are_equal_on_every_api(way):
    """First values agree bit for bit, since NumPy computes them; what a rule draws agrees to rounding."""
    run = runs.trained(way, Drawing(), START, KINDS, [GRADS] * 3)
    for name, shape in SHAPES.items():
        check_starts(way, run, name)
        assert np.abs(run.slot(name, "normal") - drawn(name, shape, 3)).max() <= 2e-5
        assert np.abs(run.slot(name, "uniform") - drawn("seed", shape, 3, "uniform")).max() <= 1e-6


@pytest.mark.parametrize("way", ONE_EACH, ids=ids)
def test_numbers_of_any_shape(way):
    run = runs.trained(way, Shaped(), {"table": START["table"]}, {"table": "dense"}, [{"table": START["table"]}] * 3)
    assert np.abs(run.slot("table", "block") - drawn("block", (2, 3, 2), 3)).max() <= 2e-5
    assert np.abs(run.slot("table", "one") - drawn("one", (), 3)).max() <= 2e-5
    assert np.abs(run.slot("table", "line") - drawn("line", (4,), 2, "uniform")).max() <= 1e-6


def check_starts(way, run, name):
    for slot, expected in starts(name, SHAPES[name]).items():
        assert np.array_equal(run.slot(name, slot), expected), (name, slot)


@pytest.mark.parametrize("way", ONE_EACH, ids=ids)
def test_a_resumed_run_keeps_what_it_started_with(way):
    run = runs.resumed(runs.trained(way, Drawing(), START, KINDS, [GRADS]))
    run.step(GRADS)
    for name in SHAPES:
        check_starts(way, run, name)


def test_a_state_keeps_them():
    """This holds whatever seed the other optimizer has."""
    table = np.zeros((6, 3), "float32")
    optimizer = runs.steps(Drawing(), table, table)
    state = everstep.capture(optimizer, [table])
    other, variable = Drawing(seed=8).bind(np), np.zeros((6, 3), "float32")
    everstep.restore(other, state, [variable], other_definition=True)
    assert np.array_equal(other.get_slot(variable, "second"), starts("array_0", (6, 3))["second"])
    fresh = runs.steps(Drawing(seed=8), table, table)
    assert np.array_equal(fresh.get_slot(table, "second"), starts("array_0", (6, 3), 8)["second"])


@pytest.mark.parametrize("way", [way for way in WAYS if way.name == "tf_train resource"], ids=ids)
@pytest.mark.parametrize("axis", [0, 1])
def test_parts_start_with_the_numbers_of_the_whole(way, axis):
    tf = harness.graph_mode_tensorflow()
    with tf.Graph().as_default(), tf.Session() as session:
        split = tf.fixed_size_partitioner(2, axis)
        table = tf.get_variable("table", [6, 4], tf.float32, tf.zeros_initializer(), partitioner=split)
        optimizer = Drawing().bind(way.module)
        step = optimizer.apply_gradients([(tf.zeros(part.get_shape()), part) for part in table])
        session.run(tf.global_variables_initializer())
        before = {name: everstep.capture(optimizer, [table]).slots["table"][name][...] for name in ("first", "second")}
        session.run(step)
        for name, expected in starts("table", (6, 4)).items():
            if name in before:
                assert np.array_equal(before[name], expected)
                parts = [optimizer.get_slot(part, name) for part in table]
                assert np.array_equal(session.run(tf.concat(parts, axis)), expected)


@pytest.mark.parametrize("way", [way for way in WAYS if way.name == "tf_train ref"], ids=ids)
def test_an_unknown_shape_is_an_error(way):
    tf = harness.graph_mode_tensorflow()
    with tf.Graph().as_default():
        shapeless = tf.Variable(tf.placeholder(tf.float32), validate_shape=False)
        with pytest.raises(VariableError, match="needs the shape of"):
            Drawing().bind(way.module).apply_gradients([(tf.ones([2]), shapeless)])


def with_slot(**noise):
    return type("Wrong", (SGD,), {"noise": everstep.slot(**noise)})


test_mistakes = runs.refused([
    (lambda: everstep.random_normal(stddev=-1.0), HyperValueError, "random_normal.stddev must be at least 0"),
    (lambda: everstep.random_uniform(2.0, 1.0), HyperValueError, "random_uniform.high must be at least 2"),
    (lambda: everstep.random_normal(seed=0.5), HyperTypeError, "seed takes a whole number"),
    (lambda: everstep.random_normal(seed=True), HyperTypeError, "seed takes a whole number"),
    (lambda: everstep.random_normal(seed=None), HyperTypeError, "seed takes a whole number"),
    (lambda: everstep.random_uniform(seed=-1), HyperValueError, "seed must be at least 0"),
    (lambda: with_slot(init=everstep.random_normal(seed="other")), DefinitionError,
     "'other', which is no option of Wrong"),
    (lambda: with_slot(init=None), DefinitionError, r"VARIABLE, random_normal\(\) or random_uniform\(\); got None"),
])
