"""`everstep.accumulate`: many small steps equal one of the joined batch, and no part of a window is lost.

tests/test_battery.py runs it around every definition, against the oracle.
"""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest

import everstep
import harness
import runs
from everstep.errors import DefinitionError, HyperTypeError, HyperValueError, SlotError, UnsupportedError
from everstep.optimizers import LAMB, SGD, Adafactor, Adam
from runs import ONE_EACH, WAYS, counted, distance, moved
from test_battery import ids
from test_catch_up import Counted

pytestmark = pytest.mark.shared
START = {"kernel": np.random.RandomState(0).uniform(0.5, 1.5, (4, 3)).astype("float32"),
         "table": np.random.RandomState(1).uniform(0.5, 1.5, (6, 3)).astype("float32")}
KINDS = {"kernel": harness.DENSE, "table": harness.SPARSE}
RULES = {"SGD": SGD(0.1), "momentum": SGD(0.1, momentum=0.9), "Adam": Adam(0.05, epsilon=1e-3),
         "LAMB": LAMB(0.05, epsilon=1e-3), "Adafactor": Adafactor(0.05, epsilon_1=1e-3)}


def batches(count, seed=2):
    """Yields gradients away from zero. Rows of the table repeat, in a step and between steps; the last never comes."""
    random = np.random.RandomState(seed)
    for _ in range(count):
        values, kernel = (random.uniform(0.5, 1.5, (4, 3)).astype("float32") for _ in range(2))
        yield {"kernel": kernel, "table": (values, random.randint(0, 5, 4).astype(np.int64))}


def joined(window):
    """Joins batches into one, if each loss is a mean over the same number of examples."""
    values, rows = zip(*[batch["table"] for batch in window])
    kernel = np.mean([batch["kernel"] for batch in window], axis=0, dtype="float32")
    return {"kernel": kernel, "table": (np.concatenate(values) / np.float32(len(window)), np.concatenate(rows))}


def windows(batches, sizes):
    batches = list(batches)
    while batches and sizes:
        yield batches[: sizes[0]]
        batches, sizes = batches[sizes[0] :], sizes[1:]


def train(way, definition, batches, act=lambda run: None):
    """Returns (weights after each batch, (updates, steps)). Calls `act(run)` at the end."""
    run = runs.started(way, definition, START, KINDS)
    seen = [run.weights()]
    for batch in batches:
        run.step(batch)
        seen.append(run.weights())
    if act(run):
        seen.append(run.weights())
    return seen, counted(run)


@pytest.mark.parametrize("way", ONE_EACH, ids=ids)
@pytest.mark.parametrize("rule", sorted(RULES))
def test_four_small_batches_are_one(way, rule):
    whole = [joined(window) for window in windows(batches(16), [4] * 4)]
    expected = train(way, RULES[rule], whole)[0][-1]
    seen, counts = train(way, everstep.accumulate(RULES[rule], steps=4), batches(16))
    assert moved(seen) == [3, 7, 11, 15] and counts == (4, 16)
    assert distance(seen[-1], START) > 0.1
    print("{} {}: {:.1e}".format(way.name, rule, distance(seen[-1], expected)))
    assert distance(seen[-1], expected) <= 1e-6


class Growing(everstep.Schedule):
    """1, 2, 3, ... steps per update."""

    def value(self, ops, updates):
        return updates + 1


@pytest.mark.parametrize("way", ONE_EACH, ids=ids)
def test_steps_by_a_schedule_and_a_flush_of_the_rest(way):
    """Windows of 1, 2 and 3 steps, then two of four. `flush` applies their mean; a second flush does nothing."""
    sizes = [1, 2, 3, 2]
    for rule in (Adam(0.05, epsilon=1e-3), Adam(0.05, epsilon=1e-3, sparse="rows", dense_ok=True)):
        whole = [joined(window) for window in windows(batches(8), sizes)]
        expected = train(way, rule, whole)[0]
        seen, counts = train(way, everstep.accumulate(rule, Growing()), batches(8), lambda run: run.flush() or True)
        assert moved(seen) == [0, 2, 5, 8] and counts == (4, 8)
        for step, whole in ((1, 1), (3, 2), (6, 3), (9, 4)):
            assert distance(seen[step], expected[whole]) <= 1e-6

    def twice(run):
        run.flush()
        before = run.weights(), counted(run)
        run.flush()
        assert distance(run.weights(), before[0]) == 0 and counted(run) == before[1]
        run.step(next(batches(1)))  # opens a window of four
        assert distance(run.weights(), before[0]) == 0 and counted(run) == (before[1][0], before[1][1] + 1)

    train(way, everstep.accumulate(SGD(0.1), Growing()), batches(7), twice)


@pytest.mark.parametrize("way", [way for way in ONE_EACH if way.sparse], ids=ids)
@pytest.mark.parametrize("sparse", ["rows", "catch_up"])
def test_flush_by_rows(way, sparse):
    """A flush updates the window's rows only. With catch_up, other rows then take the updates that they missed."""
    rule = Adam(0.05, epsilon=1e-3)
    only = [dict(batch, table=(batch["table"][0][:1], np.full(1, row))) for row, batch in enumerate(batches(5))]
    expected = train(way, rule.replace(sparse="rows"), [joined(only[:2]), joined(only[2:4]), only[4]])[0][-1]
    if sparse == "catch_up":
        expected = train(way, rule, [joined(only[:2]), joined(only[2:4]), only[4]])[0][-1]
    definition = everstep.accumulate(rule.replace(sparse=sparse), 2)
    seen, _ = train(way, definition, only, lambda run: run.flush() or True)
    assert distance(seen[-1], expected) <= 1e-6
    assert distance(seen[-2], expected) > 1e-3


@pytest.mark.parametrize("way", ONE_EACH, ids=ids)
def test_clipped_inside_and_outside(way):
    """Inside, clip bounds the gradient of the joined batch; outside, that of each step."""
    clip = lambda definition: everstep.clip(definition, global_norm=1.0)  # noqa: E731
    whole = [joined(window) for window in windows(batches(8), [4, 4])]
    inside = train(way, everstep.accumulate(clip(SGD(1.0)), 4), batches(8))[0][-1]
    assert distance(inside, train(way, clip(SGD(1.0)), whole)[0][-1]) <= 1e-6

    def clipped(batch):
        norm = np.float32(np.sqrt((batch["kernel"] ** 2).sum() + (runs.whole(batch["table"], (6, 3)) ** 2).sum()))
        return {"kernel": batch["kernel"] / norm, "table": (batch["table"][0] / norm, batch["table"][1])}

    whole = [joined([clipped(batch) for batch in window]) for window in windows(batches(8), [4, 4])]
    outside = train(way, clip(everstep.accumulate(SGD(1.0), 4)), batches(8))[0][-1]
    assert distance(outside, train(way, SGD(1.0), whole)[0][-1]) <= 1e-6
    assert distance(outside, inside) > 1e-3


@pytest.mark.parametrize("way", [way for way in WAYS if way.target == "keras3"], ids=ids)
@pytest.mark.parametrize("native", [{"clipnorm": 0.5}, {"global_clipnorm": 0.5}, {"clipvalue": 0.2}], ids=str)
@pytest.mark.filterwarnings("ignore:stock Keras 3 on TensorFlow applies equal rows:UserWarning")  # none here
def test_stock_accumulation_with_clipping_is_migrated(way, native):
    """SGD's rule does not use t, which counts calls in Keras 3.0."""
    stock = way.stock.SGD(0.5, momentum=0.9, gradient_accumulation_steps=4, **native)
    dense = dict.fromkeys(START, harness.DENSE)
    run = runs.started(way, everstep.from_native(stock), START, dense)
    theirs = harness.new_run(way, lambda: way.stock.SGD.from_config(stock.get_config()), START, dense)
    for batch in batches(8):
        batch["table"] = runs.whole(batch["table"], (6, 3)).astype("float32")
        for each in (run, theirs):
            each.step(batch)
    assert distance(run.weights(), theirs.weights()) <= 1e-5
    assert distance(run.weights(), START) > 0.05


@pytest.mark.parametrize("way", ONE_EACH, ids=ids)
def test_an_open_window_is_saved(way):
    """Saving and loading twice within a window, then flushing it, changes nothing, bit for bit."""
    definition = everstep.accumulate(Adam(0.05, sparse="rows", dense_ok=True), 4)

    def ended(cuts):
        run = runs.started(way, definition, START, KINDS)
        for place, batch in enumerate(batches(11)):
            if place in cuts:
                assert counted(run) == (place // 4, place)
                run = runs.resumed(run)
            run.step(batch)
        run.flush()
        assert counted(run) == (3, 11)
        return run.weights()

    assert runs.same(ended([5, 10]), ended([]))


@runs.numpy_cells
@pytest.mark.parametrize("sparse", ["exact", "rows"])
def test_a_step_in_between_moves_its_rows_alone(sparse):
    """At a step that does not update, the elements read and written do not grow with the table."""
    costs = []
    for rows in (100, 10000):
        table = np.ones((rows, 3), "float32")
        optimizer = everstep.accumulate(Adam(0.05, sparse=sparse), 4).bind(np)
        grad = everstep.IndexedSlices(np.ones((4, 3)), [1, 2, 3, 3])
        optimizer.apply_gradients([(grad, table)])
        bound = harness.bound(optimizer)
        slots = bound.adapter.slots[bound.variable_key(table)]
        slots["accumulate/sum"] = slots["accumulate/sum"].view(Counted)
        bound.seen[id(table)].slots.update(slots)
        Counted.moved = 0
        optimizer.apply_gradients([(grad, table)])
        costs.append(Counted.moved)
        assert np.flatnonzero(np.asarray(slots["accumulate/sum"])[:, 0]).tolist() == [1, 2, 3]
    assert costs[0] == costs[1] > 0


def test_bad_calls():
    for steps, message in ((0, "at least 1"), (1.5, "a whole number"), (-3, "at least 1"), (len, "a whole number")):
        with pytest.raises((HyperTypeError, HyperValueError), match=message):
            everstep.accumulate(SGD(), steps)
    with pytest.raises(DefinitionError, match="multiply the numbers of steps"):
        everstep.accumulate(everstep.clip(everstep.accumulate(SGD(), 2), norm=1.0), 2)
    one, two = np.ones(2), np.ones(2)
    optimizer = everstep.accumulate(SGD(), 4).bind(np)
    with pytest.raises(SlotError, match="has no slot"):
        optimizer.flush([one])
    optimizer.flush()
    optimizer.apply_gradients([(np.ones(2), one), (np.ones(2), two)])
    with pytest.raises(UnsupportedError, match="flush them in one call"):
        optimizer.flush([one])
    assert one.tolist() == two.tolist() == [1, 1] and optimizer.iterations == 0
    optimizer.flush([two, one])
    np.testing.assert_allclose([one, two], np.full((2, 2), 0.99), rtol=1e-6)
    assert optimizer.iterations == 1


def test_config_keeps_the_schedule():
    runs.check_config(everstep.accumulate(SGD(), everstep.PiecewiseConstantDecay((10,), (2.0, 4.0))))
    assert everstep.accumulate(SGD(), 4).steps == 4


@pytest.mark.parametrize("way", [way for way in WAYS if way.name == "tf_train resource"], ids=ids)
def test_one_branch_for_all_variables(way):
    """A branch for each variable took eight times the time of a plain first step."""
    tf = harness.graph_mode_tensorflow()

    def branches(count):
        with tf.Graph().as_default() as graph:
            variables = [tf.get_variable("w%d" % place, (3,), use_resource=True) for place in range(count)]
            optimizer = everstep.accumulate(Adam(0.1), 2).bind(way.module)
            optimizer.apply_gradients([(tf.ones(3), variable) for variable in variables])
            return sum(operation.type in ("Merge", "If", "StatelessIf") for operation in graph.get_operations())

    assert branches(6) == branches(2) > 0
