"""`clip`, `centralize`, `cautious`, `grokfast` and `gradient_noise`: wrappers that change the gradient of a rule."""

from __future__ import absolute_import, division, print_function

import math

import numpy as np
import pytest

import everstep
import harness
import runs
from everstep.errors import DefinitionError, HyperTypeError, HyperValueError, RuleError
from everstep.optimizers import LAMB, SGD, Adam
from everstep.optimizers.contract import flat
from everstep.testing import oracle, training
from runs import ONE_EACH, WAYS
from test_battery import ids
from test_catch_up import Counted
from test_random import KINDS, SHAPES, drawn

pytestmark = pytest.mark.shared
START = {name: np.full(shape, 0.5, "float32") for name, shape in SHAPES.items()}
BATCHES = training.make_batches("float32", 6, SHAPES, KINDS)


def trained(way, definition):
    return runs.trained(way, definition, START, KINDS, BATCHES)


def descent(change, by_rows=False):
    """Returns {name: weights} of descent at rate 0.1 with `change({name: gradient}, step)` on all names of a step."""
    weights = {name: value.astype("float64") for name, value in START.items()}
    for step, batch in enumerate(BATCHES, 1):
        changed = change({name: runs.whole(grad, SHAPES[name]) for name, grad in batch.items()}, step)
        for name, value in weights.items():
            rows = np.unique(batch[name][1]) if by_rows and isinstance(batch[name], tuple) else Ellipsis
            value[rows] -= np.float32(0.1) * changed[name][rows]
    return weights


def check(run, expected):
    assert runs.distance(run.weights(), expected) <= 3e-6


# Clipping


def units(array):
    """Returns the norms of an array's units: all axes but the last; of a vector, all."""
    return np.sqrt((array**2).sum(tuple(range(max(array.ndim - 1, 1))) if array.ndim else None, keepdims=True))


@pytest.mark.parametrize("way", ONE_EACH, ids=ids)
def test_clip_by_units(way):
    """Brock et al. 2021, equation 3, for weights that change: one unit of the table is 0 at first."""
    weights = {name: value.astype("float64") for name, value in START.items()}
    weights["table"][:, 0] = 0
    start = {name: value.astype("float32") for name, value in weights.items()}
    for batch in BATCHES:
        for name, value in weights.items():
            grad = runs.whole(batch[name], SHAPES[name])
            ratio = units(grad) / np.maximum(units(value), 1e-3)
            value -= np.float32(0.1) * grad * np.minimum(1, 0.25 / np.maximum(ratio, 1e-30))
    check(runs.trained(way, everstep.clip(SGD(0.1), unit_norm=0.25), start, KINDS, BATCHES), weights)


def test_clip_by_units_inside_of_others():
    """The gradient or the variable that clip gets is then the result of an operation."""
    for wrap in (lambda inner: everstep.accumulate(inner, 2), lambda inner: everstep.decoupled_weight_decay(inner, 0.5),
                 lambda inner: everstep.grokfast(inner, factor=0.0)):
        weights = np.full((2, 2), 3.0)
        grad = np.array([[30.0, 0.0], [40.0, 0.0]])
        runs.steps(wrap(everstep.clip(SGD(1.0), unit_norm=0.125)), weights, grad, grad)
        assert weights[1, 0] < weights[0, 0] < 3.0


def bounded(norm=None, global_norm=None, value=None):
    def change(grads, step):
        if global_norm:
            size = math.sqrt(sum((grad**2).sum() for grad in grads.values()))
            grads = {name: grad * min(1, global_norm / size) for name, grad in grads.items()}
        if norm:
            grads = {name: grad * min(1, norm / math.sqrt((grad**2).sum())) for name, grad in grads.items()}
        if value:
            grads = {name: np.clip(grad, -value, value) for name, grad in grads.items()}
        return grads

    return change


@pytest.mark.parametrize("bounds", [dict(norm=0.7), dict(global_norm=1.5, value=0.4)], ids=str)
@pytest.mark.parametrize("way", ONE_EACH, ids=ids)
def test_clip(way, bounds):
    check(trained(way, everstep.clip(SGD(0.1), **bounds)), descent(bounded(**bounds)))


def percentiles(numbers, share):
    """Yields the percentile of all numbers so far, by the text of Jain & Chlamtac 1985 (box 1)."""
    heights, places, seen = [], [], []
    for number in numbers:
        seen.append(number)
        if len(seen) <= 5:
            yield np.percentile(seen, 100 * share)
            heights, places = sorted(seen), [1, 2, 3, 4, 5]
            continue
        heights[0], heights[4] = min(heights[0], number), max(heights[4], number)
        cell = max(place for place in range(4) if place == 0 or heights[place] <= number)
        places = [place + (marker > cell or marker == 4) for marker, place in enumerate(places)]
        steps = len(seen) - 1
        for marker, wanted in ((1, steps * share / 2), (2, steps * share), (3, steps * (1 + share) / 2)):
            off = 1 + wanted - places[marker]
            sign = 1 if off >= 1 else -1
            if abs(off) < 1 or sign * (places[marker + sign] - places[marker]) <= 1:
                continue
            (low, here, high), (q0, q1, q2) = places[marker - 1:marker + 2], heights[marker - 1:marker + 2]
            slopes = (here - low + sign) * (q2 - q1) / (high - here) + (high - here - sign) * (q1 - q0) / (here - low)
            curved = q1 + sign * slopes / (high - low)
            if not q0 < curved < q2:
                curved = q1 + sign * (heights[marker + sign] - q1) / (places[marker + sign] - here)
            heights[marker], places[marker] = curved, here + sign
        yield heights[2]


# The worked example of the paper: after 20 observations the median is estimated as 4.44.
OBSERVED = [0.02, 0.15, 0.74, 3.39, 0.83, 22.37, 10.15, 15.43, 38.62, 15.92]
OBSERVED += [34.60, 10.28, 1.47, 0.40, 0.05, 11.39, 0.27, 0.42, 0.09, 11.37]


@pytest.mark.parametrize("percentile", [0, 10, 50, 90, 100])
def test_clip_by_percentile_of_observations(percentile):
    weights, steps = np.zeros(1), []
    optimizer = everstep.clip(SGD(1.0), percentile=percentile).bind(np)
    for number in OBSERVED:
        before = weights.copy()
        optimizer.apply_gradients([(np.array([number]), weights)])
        steps.append(float((before - weights)[0]))
    expected = list(percentiles(OBSERVED, percentile / 100))
    assert oracle.distance(steps, np.minimum(expected, OBSERVED)) <= 1e-6
    if percentile == 50:
        assert round(steps[-1], 2) == 4.44


@pytest.mark.parametrize("way", ONE_EACH, ids=ids)
def test_clip_by_percentile(way):
    """Seetharaman et al. 2020, algorithm 1, with norms that rise and fall."""
    scales = [1, 3, 0.5, 2, 0.25, 4, 1.5, 0.125, 8, 2, 1]
    start = {"table": np.full((4, 2), 0.5, "float32"), "bias": np.full(2, 0.5, "float32")}
    kinds = {"table": harness.SPARSE, "bias": harness.DENSE}
    run = runs.started(way, everstep.clip(SGD(0.1), percentile=30), start, kinds)
    weights = {name: value.astype("float64") for name, value in start.items()}
    for scale, bound in zip(scales, percentiles([2 * scale for scale in scales], 0.3)):
        factor = min(1, bound / (2 * scale))
        weights["table"][[1, 3]] -= np.float32(0.1) * scale * factor * np.array([[1, 1], [1, 0]])
        weights["bias"] -= np.float32(0.1) * scale * factor * np.array([1, 0])
        values = np.array([[1, 1], [1, 0]], "float32") * np.float32(scale)
        run.step({"table": (values, np.array([1, 3])), "bias": np.array([1, 0], "float32") * np.float32(scale)})
    check(run, weights)


def test_clip_by_percentile_leaves_out_norms_that_are_not_finite():
    weights = np.zeros(1)
    optimizer = everstep.clip(SGD(1.0), percentile=50).bind(np)
    with np.errstate(all="ignore"):
        for number in (np.nan, 4.0, np.inf, 2.0, 6.0):
            weights[...] = 0
            optimizer.apply_gradients([(np.array([number]), weights)])
    assert abs(weights[0] + 4) <= 1e-6 and float(harness.bound(optimizer).adapter.scalar("clip/seen")) == 3


def test_clip_has_scalars_for_a_percentile_alone():
    assert list(flat(everstep.clip(SGD(), norm=1.0), "scalar")) == []
    assert len(flat(everstep.clip(SGD(), percentile=1.0), "scalar")) == 9


@pytest.mark.parametrize("bounds", [dict(norm=0.7), dict(global_norm=0.7), dict(value=0.4)], ids=str)
@pytest.mark.parametrize("inner", [SGD(0.1), Adam(0.1, sparse="rows")], ids=lambda inner: type(inner).__name__)
def test_clip_costs_the_rows_present(inner, bounds):
    moved = []
    for rows in (100, 10000):
        table = np.ones((rows, 3), "float32").view(Counted)
        optimizer = everstep.clip(inner, **bounds).bind(np)
        grad = everstep.IndexedSlices(np.ones((4, 3)), [1, 2, 3, 3])
        optimizer.apply_gradients([(grad, table)])
        Counted.moved = 0
        optimizer.apply_gradients([(grad, table)])
        moved.append(Counted.moved)
    assert moved[0] == moved[1] > 0


@pytest.mark.parametrize("way", [way for way in WAYS if way.name == "tf_train resource"], ids=ids)
def test_clip_makes_no_gradient_of_an_embedding_whole(way):
    """Only reads of the table have its shape; no other op of the graph makes such a tensor."""
    run = runs.started(way, everstep.clip(SGD(0.1), global_norm=0.7), START, KINDS)
    reads = {"ReadVariableOp", "VarHandleOp", "Const", "VariableV2", "Identity", "IdentityN"}
    assert not [
        op.name for op in run.graph.get_operations()
        if op.type not in reads and not op.name.startswith(("table/", "save/", "Const"))
        for output in op.outputs if output.get_shape().ndims == 2 and output.get_shape().as_list() == [6, 3]]


# Centralizing


def centered(grads, step):
    return {
        name: grad - grad.mean(tuple(range(grad.ndim - 1)), keepdims=True) if grad.ndim > 1 else grad
        for name, grad in grads.items()
    }


@pytest.mark.parametrize("way", WAYS, ids=ids)
def test_centralize(way):
    check(trained(way, everstep.centralize(SGD(0.1))), descent(centered))


def test_centralize_from_a_rank_on():
    run = trained(harness.NUMPY, everstep.centralize(SGD(0.1), minimum_rank=3))
    check(run, descent(lambda grads, step: dict(grads, conv=centered(grads, step)["conv"])))


def test_sparse_gradients_become_whole_ones_by_centering():
    tables = []
    for sparse in ("exact", "rows"):
        table = np.zeros((4, 2))
        runs.steps(everstep.centralize(SGD(1.0, sparse=sparse)), table, (np.ones((1, 2)), [1]))
        tables.append(table.tolist())
    assert tables[0] == tables[1] == [[0.25, 0.25], [-0.75, -0.75], [0.25, 0.25], [0.25, 0.25]]
    line = np.zeros(4)  # a table with one number in each row has no axis to centralize
    runs.steps(everstep.centralize(SGD(1.0, sparse="rows")), line, (np.ones(1), [1]))
    assert line.tolist() == [0, -1, 0, 0]


# Caution and slow gradients


@pytest.mark.parametrize("way", ONE_EACH, ids=ids)
def test_cautious(way):
    velocities = {name: 0.0 for name in SHAPES}

    def masked(grads, step):
        changes = {}
        for name, grad in grads.items():
            velocities[name] = np.float32(0.9) * velocities[name] + grad
            mask = velocities[name] * grad > 0
            changes[name] = velocities[name] * mask / max(mask.mean(), 1e-3)
        return changes

    check(trained(way, everstep.cautious(SGD(0.1, momentum=0.9, rate_in_velocity=False))), descent(masked))


def test_cautious_by_hand():
    """Momentum 0.5, velocities (1, 4, -2) and (1.5, 1, -2): one of three goes against its gradient."""
    weights = np.zeros(3)
    optimizer = runs.steps(everstep.cautious(SGD(1.0, momentum=0.5)), weights, np.array([1.0, 4.0, -2.0]))
    assert weights.tolist() == [-1.0, -4.0, 2.0]
    optimizer.apply_gradients([(np.array([1.0, -1.0, -1.0]), weights)])
    assert np.abs(weights - [-3.25, -4.0, 5.0]).max() < 1e-7
    optimizer.apply_gradients([(np.zeros(3), weights)])  # a mean of 0 is replaced by xi
    assert np.abs(weights - [-3.25, -4.0, 5.0]).max() < 1e-7
    few = np.zeros(4)
    runs.steps(everstep.cautious(SGD(1.0), xi=0.5), few, np.array([1.0, 0.0, 0.0, 0.0]))
    assert few.tolist() == [-2.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("way", ONE_EACH, ids=ids)
def test_grokfast(way):
    averages = {}

    def amplified(grads, step):
        for name, grad in grads.items():
            averages[name] = np.float32(0.9) * averages[name] + np.float32(0.1) * grad if step > 1 else grad
        return {name: grad + 2 * averages[name] for name, grad in grads.items()}

    check(trained(way, everstep.grokfast(SGD(0.1), 0.9)), descent(amplified))


@runs.numpy_cells
def test_rows_catch_up_with_a_slow_gradient():
    """Row 1 misses 600 updates, in which only its average moves it: 500 are replayed, the rest is 0.98^500 of it."""
    tables = []
    for sparse in ("exact", "catch_up"):
        table = np.zeros((2, 1))
        both, one = (np.ones((2, 1)), [0, 1]), (np.ones((1, 1)), [0])
        definition = everstep.grokfast(SGD(0.1, momentum=0.5, sparse=sparse))
        optimizer = runs.steps(definition, table, *([both] + [one] * 600 + [both]))
        tables.append(np.append(table, optimizer.get_slot(table, "grokfast/average")))
    assert abs(tables[0][1]) > 10
    assert oracle.distance(tables[1], tables[0]) < 1e-4
    assert abs(tables[1][3] - tables[0][3]) < 1e-9


# Noise


def noisy(way, seed=0):
    def change(grads, step):
        size = math.sqrt(0.3 / step**0.55)
        return {name: grad + size * drawn("{}/{}".format(name, seed), grad.shape, step)
                for name, grad in grads.items()}

    return change


@pytest.mark.parametrize("way", ONE_EACH, ids=ids)
def test_noise(way):
    """All rows of a table get noise with "exact", the rows present with "rows". Each row's noise differs."""
    check(trained(way, everstep.gradient_noise(SGD(0.1), 0.3)), descent(noisy(way)))
    if way.sparse:
        rows = everstep.gradient_noise(SGD(0.1, sparse="rows"), 0.3, seed=7)
        check(trained(way, rows), descent(noisy(way, 7), by_rows=True))


@pytest.mark.parametrize("way", [way for way in WAYS if way.name == "tf_train resource"], ids=ids)
@pytest.mark.parametrize("axis", [0, 1])
def test_parts_have_the_noise_of_the_whole(way, axis):
    tf = harness.graph_mode_tensorflow()
    with tf.Graph().as_default(), tf.Session() as session:
        split = tf.fixed_size_partitioner(2, axis)
        table = tf.get_variable("table", [6, 4], tf.float32, tf.zeros_initializer(), partitioner=split)
        optimizer = everstep.gradient_noise(SGD(1.0), 1.0, 0.0).bind(way.module)
        step = optimizer.apply_gradients([(tf.zeros(part.get_shape()), part) for part in table])
        session.run(tf.global_variables_initializer())
        session.run(step)
        assert oracle.distance(session.run(tf.concat(list(table), axis)), -drawn("table/0", (6, 4), 1)) <= 1e-5


def noise_of(shape, count=1, seed=0):
    """Returns the noise of `count` steps, with variance 1."""
    steps, weights = [], np.zeros(shape)
    optimizer = everstep.gradient_noise(SGD(1.0), 1.0, 0.0, seed).bind(np)
    for _ in range(count):
        weights[...] = 0
        optimizer.apply_gradients([(np.zeros(shape), weights)])
        steps.append(-weights)
    return np.array(steps)


@runs.numpy_cells
def test_noise_is_normal_and_uncorrelated():
    """Each measure is within four standard deviations, for 250,000 numbers."""
    first, second = noise_of((500, 500), 2)
    other = noise_of((500, 500), 1, seed=1)[0]
    count = float(first.size)
    assert abs(first.mean()) <= 4 / math.sqrt(count)
    assert abs(first.var() - 1) <= 4 * math.sqrt(2 / count)
    assert abs((first**3).mean()) <= 4 * math.sqrt(15 / count)
    assert abs((first**4).mean() - 3) <= 4 * math.sqrt(96 / count)
    pairs = [(first[:, :-lag], first[:, lag:]) for lag in (1, 2, 3, 8, 64)]
    pairs += [(first[:-lag], first[lag:]) for lag in (1, 2, 3, 8, 64)]
    pairs += [(first, second), (first, other), (first[1:], second[:-1]), (first, first.T * (1 - np.eye(500)))]
    for one, two in pairs:
        assert abs((one * two).mean()) <= 4 / math.sqrt(one.size)
        assert abs(((one**2 - 1) * (two**2 - 1)).mean()) <= 4 * 2 / math.sqrt(one.size) + 0.005
    edges = [-2.5, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 2.5]
    below = np.array([0.5 * (1 + math.erf(edge / math.sqrt(2))) for edge in edges])
    expected = count * np.diff(np.concatenate([[0], below, [1]]))
    counts = np.histogram(first, np.concatenate([[-9], edges, [9]]))[0]
    assert ((counts - expected) ** 2 / expected).sum() <= 32  # chi-squared, 11 degrees of freedom, p = 0.001
    assert len(np.unique(first)) > 0.99 * count


@runs.numpy_cells
def test_distant_steps_and_rows_have_different_noise():
    """Also beyond the prime that the generator counts in."""
    weights = np.zeros((60000, 1))
    optimizer = runs.steps(everstep.gradient_noise(SGD(1.0), 1.0, 0.0), weights, np.zeros((60000, 1)))
    assert len(np.unique(weights)) > 59900
    rows = [0, 23158, 23159, 46318, 59999]
    assert np.abs(weights[rows, 0] + drawn("array_0/0", (60000, 1), 1, places=rows)).max() <= 1e-9
    seen = []
    for updates in (0, 23158, 23159, 1000000):
        harness.bound(optimizer).adapter.counters["updates"][...] = updates
        weights[:] = 0
        optimizer.apply_gradients([(np.zeros((60000, 1)), weights)])
        seen.append(weights[0, 0])
    assert len(set(seen)) == 4


# Together. test_wrappers_battery.py has stacks of all wrappers.


def test_one_clip_of_the_mean():
    """accumulate(clip) clips the mean of a window, clip(accumulate) each gradient."""
    weights, other = np.zeros(1), np.zeros(1)
    grads = np.array([[3.0], [-3.5]])
    runs.steps(everstep.accumulate(everstep.clip(SGD(1.0), value=1.0), 2), weights, *grads)
    runs.steps(everstep.clip(everstep.accumulate(SGD(1.0), 2), value=1.0), other, *grads)
    assert weights == 0.25 and other == 0.0


test_bad_input = runs.refused([
    (lambda: everstep.cautious(everstep.accumulate(SGD(), 2)), DefinitionError, "put cautious inside"),
    (lambda: everstep.cautious(everstep.moving_average(SGD(), 0.9)), DefinitionError, "put cautious inside"),
    (lambda: everstep.cautious(SGD(), xi=0.0), HyperValueError, "xi must be at least"),
    (lambda: everstep.cautious(Adam(sparse="catch_up")), RuleError, "needs the whole variable"),
    (lambda: everstep.clip(SGD(), norm=1.0, unit_norm=1.0), DefinitionError, "not both"),
    (lambda: everstep.clip(SGD(), percentile=10, global_norm=1.0), DefinitionError, "and percentile, not both"),
    (lambda: everstep.clip(SGD(), percentile=101), HyperValueError, "percentile must be at most 100"),
    (lambda: everstep.clip(everstep.accumulate(SGD(), 2), percentile=10), DefinitionError, "norms of other updates"),
    (lambda: everstep.clip(SGD(), unit_norm=-1.0), HyperValueError, "unit_norm must be at least 0"),
    (lambda: everstep.clip(everstep.accumulate(SGD(), 2), unit_norm=1.0), DefinitionError, "put clip inside"),
    (lambda: everstep.clip(Adam(sparse="catch_up"), unit_norm=1.0), RuleError, "needs the whole variable"),
    (lambda: everstep.grokfast(everstep.accumulate(SGD(), 2)), DefinitionError, "put grokfast inside"),
    (lambda: everstep.grokfast(everstep.clip(SGD(), norm=1.0)), DefinitionError, "put grokfast inside"),
    (lambda: everstep.grokfast(SGD(), 1.5), HyperValueError, "average_decay must be at most 1"),
    (lambda: everstep.centralize(SGD(), minimum_rank=1), HyperValueError, "minimum_rank must be at least 2"),
    (lambda: everstep.centralize(everstep.clip(LAMB(), norm=1.0)), DefinitionError, "measures gradients"),
    (lambda: everstep.centralize(everstep.accumulate(SGD(), 2)), DefinitionError, "put centralize inside"),
    (lambda: everstep.centralize(Adam(sparse="catch_up")), RuleError, "needs the whole variable"),
    (lambda: everstep.gradient_noise(SGD(), eta=-1.0), HyperValueError, "eta must be at least 0"),
    (lambda: everstep.gradient_noise(SGD(), seed=0.5), HyperTypeError, "takes a whole number"),
    (lambda: everstep.gradient_noise(everstep.clip(LAMB(), norm=1.0)), DefinitionError, "before there is noise"),
    (lambda: everstep.gradient_noise(everstep.accumulate(SGD(), 2)), DefinitionError, "put gradient_noise inside"),
    (lambda: everstep.gradient_noise(Adam(sparse="catch_up")), RuleError, "rows would miss noise"),
])
