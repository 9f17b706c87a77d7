"""Periods and boundaries at large numbers of updates: each way counts right at 2^24, 2^31 and 2^40.

A float32 holds every integer up to 2^24. Each test sets the counter, trains some steps across such a number, and
compares with Python's integers, with numbers by hand, or with the float64 oracle, which counts exactly up to 2^53.
"""

from __future__ import absolute_import, division, print_function

import math
from collections import OrderedDict
from fractions import Fraction

import numpy as np
import pytest

import everstep
import harness
import runs
import test_battery as battery
import test_wrappers_battery as wrappers
from everstep.errors import DefinitionError, RuleError, StateError
from everstep.optimizers import SGD, AdagradDecay, Adam, ScheduleFreeAdamW
from everstep.optimizers.contract import flat
from everstep.testing import oracle, training
from runs import put
from test_battery import ids
from test_random import drawn

pytestmark = pytest.mark.shared
WAYS = harness.all_ways()
SOME = WAYS if harness.FULL else harness.one_of_each_target(WAYS)
START = {"w": np.zeros(3, "float32")}
ONES = {"w": np.ones(3, "float32")}
LARGE = [2**24, 2**31, 2**40]
INT32_END = 2**31 - 2**16  # of Keras 3 on JAX and torch


def counts_in_int32(way):
    return way.target == "keras3" and not way.sparse


def counts(way):
    """Returns numbers of updates to start from. Eight steps cross each of the large ones."""
    if counts_in_int32(way):
        return [0, 2**24 - 7, INT32_END - 100]
    return [0] + [count - 7 for count in LARGE]


def some_counts(way):
    """Returns all counts on NumPy; elsewhere one of the large ones, by rotation."""
    large = counts(way)[1:]
    return counts(way) if harness.FULL or way.target == "arrays" else harness.share(large, len(large))


def set_updates(run, count):
    put(run, lambda optimizer: harness.bound(optimizer).adapter.counter("updates"), count)


def reset(run):
    put(run, lambda _: run.variables["w"], np.zeros(3, "float32"))


def started(way, definition, start=START, kinds=None):
    run = runs.started(way, definition, start, kinds or {"w": harness.DENSE})
    if not isinstance(run, (harness.GraphRun, harness.GetUpdatesRun)):
        harness.bound(run.optimizer).adapter.make_state([run.variables[name] for name in run.names])
    return run


def report(*cells):
    print("TABLE | " + " | ".join(map(str, cells)))


# Schedules.

ODD = 5592405  # 3 * ODD = 2^24 - 1


def by_hand():
    """Yields (schedule, {updates: value}), worked out by hand."""
    yield everstep.InverseTimeDecay(1.0, rate=0.5), {0: 1, 2: 0.5, 6: 0.25}
    yield everstep.InverseTimeDecay(1.0, rate=2.0**-24), {2**24: 0.5, 2**31: 1 / 129, 2**40: 1 / 65537}
    yield everstep.ExponentialDecay(1.0, 4, 0.5), {0: 1, 2: 0.7071067812, 8: 0.25}
    yield everstep.ExponentialDecay(1.0, 4, 0.5, staircase=True), {0: 1, 3: 1, 4: 0.5, 7: 0.5, 8: 0.25}
    yield everstep.ExponentialDecay(1.0, 2.5, 0.5, staircase=True), {2: 1, 3: 0.5, 4: 0.5, 5: 0.25}
    yield everstep.ExponentialDecay(1.0, ODD, 0.5, True), {2**24 - 2: 0.25, 2**24 - 1: 0.125, 2**24: 0.125}
    yield everstep.ExponentialDecay(1.0, 2**24 + 1, 0.5, True), {2**24: 1, 2**24 + 1: 0.5, 2**25: 0.5, 2**25 + 2: 0.25}
    yield everstep.ExponentialDecay(1.0, 2**30, 0.5, True), {2**31 - 1: 0.5, 2**31: 0.25, 2**31 + 1: 0.25}
    yield everstep.ExponentialDecay(1.0, 2**39, 0.5, True), {2**40 - 1: 0.5, 2**40: 0.25, 2**40 + 1: 0.25}
    yield everstep.PolynomialDecay(1.0, 10, 0.5), {0: 1, 4: 0.8, 10: 0.5, 12: 0.5}
    yield everstep.PolynomialDecay(1.0, 10, 0.0, power=2), {4: 0.36}
    yield everstep.PolynomialDecay(1.0, 10, 0.0, cycle=True), {0: 1, 4: 0.6, 10: 0, 12: 0.4, 20: 0, 21: 0.3}
    yield everstep.PolynomialDecay(1.0, 2**25, 0.0), {2**24: 0.5, 2**24 + 2**23: 0.25, 2**26: 0}
    yield everstep.PolynomialDecay(1.0, 2**23, 0.0, cycle=True), {2**24: 0, 2**24 + 2**22: 1 / 6, 2**24 + 2**23: 0}
    yield everstep.PolynomialDecay(1.0, 2**32, 0.0), {2**31: 0.5, 2**40: 0}
    edges = {0: 1, 1: 1, 2: 1, 3: 0.5, 5: 0.5, 6: 0.1, 2**40: 0.1}
    yield everstep.PiecewiseConstantDecay((2, 5), (1.0, 0.5, 0.1)), edges
    for count in LARGE:
        edges = {count - 1: 1, count: 1, count + 1: 0.5, count + 2: 0.1}
        yield everstep.PiecewiseConstantDecay((count, count + 1), (1.0, 0.5, 0.1)), edges
        warm = {count - count // 4: 0.75, count: 1, count + 5: 0.5, count + 10: 0, count + 11: 0}
        yield everstep.CosineDecay(0.0, 10, warmup_target=1.0, warmup_steps=count), warm
        late = everstep.PiecewiseConstantDecay((3,), (1.0, 0.25))
        shifted = {count // 2: 0.5, count: 1, count + 3: 1, count + 4: 0.25}
        yield everstep.Warmup(late, count, shift=True), shifted
        yield everstep.Warmup(late, count), {count // 2: 0.5, count: 0.25}
    yield everstep.CosineDecay(1.0, 10), {0: 1, 5: 0.5, 10: 0, 12: 0}
    yield everstep.CosineDecay(1.0, 10, alpha=0.5), {5: 0.75, 10: 0.5}
    yield everstep.CosineDecay(0.0, 10, warmup_target=1.0, warmup_steps=4), {1: 0.25, 4: 1, 9: 0.5, 14: 0}
    # 2^24, 2^31 and 2^40 modulo 10 are 6, 8 and 6.
    cosines = {0: 1, 5: 0.5, 10: 1, 15: 0.5, 2**24 + 4: 1, 2**24 + 9: 0.5, 2**31 + 2: 1, 2**31 + 7: 0.5, 2**40 + 9: 0.5}
    yield everstep.CosineDecayRestarts(1.0, 10), cosines
    yield everstep.CosineDecayRestarts(1.0, 10, done=5), {0: 0.5, 5: 1, 2**24 + 4: 0.5}
    yield everstep.CosineDecayRestarts(1.0, 10, peak=0.5, alpha=0.2), {0: 1, 5: 0.6, 10: 0.6, 15: 0.4}
    yield everstep.CosineDecayRestarts(1.0, 10, 2.0), {0: 1, 5: 0.5, 10: 1, 20: 0.5, 30: 1, 50: 0.5}
    # The cosine from 2^23 - 1 on takes 2^23 updates, the one from 2^30 - 1 on 2^30.
    middles = {2**23 - 1 + 2**22: 0.5, 2**24 - 1 + 2**23: 0.5, 2**30 - 1 + 2**29: 0.5, 2**40 - 1 + 2**39: 0.5}
    yield everstep.CosineDecayRestarts(1.0, 1, 2.0), middles
    yield everstep.Warmup(0.5, 4), {0: 0, 1: 0.125, 4: 0.5, 9: 0.5, 2**40: 0.5}
    yield everstep.Warmup(0.5, 4, start=0.25), {0: 0.25, 2: 0.375}
    yield everstep.Warmup(everstep.InverseTimeDecay(1.0, rate=1.0), 4, shift=True), {2: 0.5, 4: 1, 5: 0.5, 7: 0.25}
    yield everstep.Warmup(everstep.InverseTimeDecay(1.0, rate=1.0), 4), {2: 0.5, 4: 0.2}
    # Settings together, before, at and after each boundary.
    yield everstep.InverseTimeDecay(0.25), {0: 0.25, 9: 0.25}
    yield everstep.ExponentialDecay(0.8, 3, 0.25, staircase=True), {2: 0.8, 3: 0.2, 5: 0.2, 6: 0.05}
    yield everstep.PolynomialDecay(0.5, 4, 0.1, power=2), {0: 0.5, 1: 0.325, 3: 0.125, 4: 0.1, 5: 0.1}
    yield everstep.PolynomialDecay(0.1, 4, 0.5), {0: 0.1, 3: 0.4, 4: 0.5, 5: 0.5}
    again = {0: 1, 5: 0.4, 9: 0.208, 10: 0.2, 11: 0.362, 15: 0.25, 19: 0.202, 20: 0.2, 21: 0.272}
    yield everstep.PolynomialDecay(1.0, 10, 0.2, power=2, cycle=True), again
    yield everstep.PiecewiseConstantDecay((), (0.25,)), {0: 0.25, 9: 0.25}
    yield everstep.CosineDecay(1.0, 9), {3: 0.75, 6: 0.25}
    yield everstep.CosineDecay(0.5, 6, alpha=0.2), {0: 0.5, 2: 0.4, 4: 0.2, 5: 0.1267949192, 6: 0.1, 7: 0.1}
    warmed = {0: 0.2, 1: 0.4, 3: 0.8, 4: 1, 9: 0.55, 13: 0.1220245677, 14: 0.1, 15: 0.1}
    yield everstep.CosineDecay(0.2, 10, alpha=0.1, warmup_target=1.0, warmup_steps=4), warmed
    yield everstep.CosineDecay(0.2, 10, warmup_target=1.0), {0: 1, 5: 0.5, 10: 0}  # without steps
    yield everstep.CosineDecay(1.0, 10, warmup_steps=4), {0: 1, 5: 0.5, 10: 0}  # without a target
    yield everstep.CosineDecayRestarts(1.0, 6), {1: 0.9330127019, 4: 0.25, 5: 0.0669872981, 6: 1, 7: 0.9330127019}
    # Cosine n of three times the length of the one before starts at (3^n - 1) / 2.
    triple = {(3**n - 1) // 2: 1 for n in range(13)}
    triple.update({(3**n - 1) // 2 + 3 ** (n - 1): 0.75 for n in range(1, 13)})
    triple.update({(3**n - 1) // 2 - 1: math.sin(math.pi / 2 / 3 ** (n - 1)) ** 2 for n in range(2, 8)})
    yield everstep.CosineDecayRestarts(1.0, 1, 3.0), triple
    lower = {0: 1, 9: 0.2195773934, 10: 0.6, 20: 0.4, 29: 0.2024623319, 30: 0.4, 50: 0.3, 70: 0.3}
    yield everstep.CosineDecayRestarts(1.0, 10, 2.0, peak=0.5, alpha=0.2), lower
    yield everstep.CosineDecayRestarts(1.0, 10, 2.0, done=15), {0: 0.8535533906, 5: 0.5, 14: 0.0061558297, 15: 1}
    yield everstep.CosineDecayRestarts(1.0, 4, 1.5), {3: 0.1464466094, 4: 1, 7: 0.5, 9: 0.0669872981, 10: 1, 19: 1}
    first = everstep.ExponentialDecay(1.0, 2, 0.25)
    yield everstep.Warmup(first, 4, start=0.2), {0: 0.2, 1: 0.4, 3: 0.8, 4: 0.0625, 6: 0.015625}
    yield everstep.Warmup(first, 4, start=0.2, shift=True), {0: 0.2, 1: 0.4, 3: 0.8, 4: 1, 5: 0.5, 6: 0.25}
    one = {0: 0.04, 2: 0.52, 4: 1, 7: 0.500002, 10: 4e-6, 11: 4e-6, 2**40: 4e-6}
    yield everstep.OneCycle(1.0, 10, 4, shape="linear"), one
    yield everstep.OneCycle(1.0, 10, 4, 5.0, 2.0), {0: 0.2, 2: 0.6, 4: 1, 6: 0.775, 7: 0.55, 10: 0.1, 11: 0.1}
    yield everstep.OneCycle(1.0, 20), {0: 0.04, 3: 0.52, 6: 1, 13: 0.500002, 20: 4e-6}
    three = {0: 0.5, 1: 0.75, 2: 1, 3: 0.75, 4: 0.5, 5: 0.375, 6: 0.25, 9: 0.25}
    yield everstep.OneCycle(1.0, 6, 2, 2.0, 2.0, "linear", three_phases=True), three
    for count in LARGE:
        yield everstep.OneCycle(1.0, count + 4, count, 2.0, 4.0, "linear"), {
            count - count // 4: 0.875, count: 1, count + 2: 0.5625, count + 4: 0.125, count + 5: 0.125}
        yield everstep.WarmupStableDecay(1.0, count, 3, 4), {
            count // 2: 0.5, count: 1, count + 3: 1, count + 4: 0.75, count + 7: 0, count + 8: 0}
        yield everstep.Hold(everstep.PiecewiseConstantDecay((count,), (1.0, 0.25)), count + 1), {
            count: 1, count + 1: 0.25, 2 * count: 0.25}
        yield everstep.Hold(everstep.PiecewiseConstantDecay((count,), (1.0, 0.25)), count), {count: 1, 2 * count: 1}
        yield everstep.InverseSquareRoot(1.0, count), {0: 1, count: 1, 4 * count: 0.5}
    # 2^24, 2^31 and 2^40 modulo 5 are 1, 3 and 1, modulo 7 are 1, 2 and 2.
    ups = {0: 0.1, 1: 0.5, 2: 0.9, 4: 0.3666666667, 5: 0.1, 2**24: 0.5, 2**24 + 1: 0.9, 2**31: 0.6333333333, 2**40: 0.5}
    yield everstep.Cyclical(0.1, 0.9, 2, 3), ups
    yield everstep.Cyclical(0.0, 1.0, 3.5), {0: 0, 1: 2 / 7, 3: 6 / 7, 4: 6 / 7, 7: 0, 2**24: 2 / 7, 2**31: 4 / 7}
    yield everstep.Cyclical(0.5, 1.5, 2, mode="triangular2"), {1: 1, 2: 1.5, 4: 0.5, 6: 1, 10: 0.75, 2**40 + 2: 0.5}
    yield everstep.Cyclical(0.5, 1.5, 2, mode="exp_range", rate=0.5), {0: 0.5, 1: 0.75, 2: 0.75, 3: 0.5625, 6: 0.515625}
    yield everstep.Noam(2.0, 4, 4), {0: 0.125, 3: 0.5, 15: 0.25, 2**24 - 1: 2.0**-12, 2**40 - 1: 2.0**-20}
    yield everstep.InverseSquareRoot(0.5, 4), {0: 0.5, 4: 0.5, 16: 0.25, 2**30: 2.0**-15}
    yield everstep.Warmup(everstep.InverseSquareRoot(0.5, 4), 4), {0: 0, 2: 0.25, 4: 0.5, 16: 0.25}
    yield everstep.WarmupStableDecay(1.0, 4, 2, 4, start=0.5, end=0.2), {0: 0.5, 2: 0.75, 4: 1, 6: 1, 8: 0.6, 10: 0.2}
    yield everstep.WarmupStableDecay(1.0, 0, 2, 4, shape="cosine"), {0: 1, 2: 1, 4: 0.5, 6: 0, 7: 0}
    yield everstep.WarmupStableDecay(1.0, 0, 2, 4, end=0.5, shape="sqrt"), {2: 1, 3: 0.75, 6: 0.5, 7: 0.5}
    yield everstep.Hold(everstep.PolynomialDecay(1.0, 10, 0.0), 4), {0: 1, 3: 0.7, 4: 0.6, 9: 0.6, 2**40: 0.6}
    yield everstep.AsSchedule(everstep.PolynomialDecay(1.0, 10, 0.0)), {4: 0.6}


SCHEDULES = list(by_hand())


@pytest.mark.shared(False)
def test_schedules_called_give_the_numbers_by_hand():
    for schedule, values in SCHEDULES:
        for updates, value in values.items():
            assert abs(schedule(updates) - value) <= 1e-9, (schedule, updates)
    assert {type(schedule) for schedule, _ in SCHEDULES} == {
        each for each in vars(everstep).values()
        if isinstance(each, type) and issubclass(each, everstep.Schedule) and each is not everstep.Schedule
    }


def of_keras(holder, ours):
    """Returns Keras's schedule of the same maths, or None if Keras has none."""
    stock = getattr(holder, type(ours).__name__, None)
    given = OrderedDict((name, getattr(ours, name)) for name in type(ours).declared_order)
    if stock is None or given.get("boundaries") == () or given.get("done") or given.get("multiplier", 1) != 1:
        return None  # Keras rounds the number of cosines of growing length down, at their first update too
    if isinstance(ours, everstep.InverseTimeDecay):
        return stock(ours.initial, 1, ours.rate)
    if isinstance(ours, everstep.PiecewiseConstantDecay):
        return stock(list(ours.boundaries), list(ours.values))
    if isinstance(ours, everstep.CosineDecayRestarts):
        return stock(ours.initial, ours.decay_steps, 1.0, ours.peak, ours.alpha)
    warmup = {name: given.pop(name) for name in ("warmup_target", "warmup_steps") if name in given}
    try:
        return stock(*given.values(), **(warmup if warmup.get("warmup_target") else {}))
    except TypeError:  # no warmup before TensorFlow 2.13
        return None


# Not on JAX, which compiles the conditions of Keras's schedules at each call.
KERAS = [way for way in harness.one_of_each_target(
    [way for way in WAYS if way.target != "arrays" and way.name.endswith("eager") and "jax" not in way.name]
) if hasattr(way.stock, "schedules")]


@pytest.mark.shared(False)
@pytest.mark.parametrize("way", KERAS, ids=ids)
def test_the_numbers_by_hand_are_those_of_keras(way):
    compared = set()
    for ours, values in SCHEDULES:
        stock = of_keras(way.stock.schedules, ours)
        for updates, value in values.items() if stock else ():
            if updates < 1000:
                assert abs(float(stock(updates)) - value) <= 2e-6, (ours, updates)
                compared.add(type(ours).__name__)
    assert len(compared) >= 4 + hasattr(way.stock.schedules, "CosineDecay")  # from TF 2.5 on


@pytest.mark.parametrize("case, way", harness.each_in_turn(SCHEDULES, WAYS, 5), ids=ids)
def test_schedules_in_a_step_give_the_numbers_by_hand(case, way):
    schedule, values = case
    end = INT32_END if counts_in_int32(way) else 2**53
    run, worst = started(way, SGD(schedule)), 0.0
    for updates, value in sorted(values.items()):
        if updates < end:
            set_updates(run, updates)
            before = run.weights()["w"].astype("float64")
            run.step(ONES)
            worst = max(worst, np.abs(before - run.weights()["w"] - value).max())
    report("schedule", schedule, way.name, max(values), "%.0e" % worst)
    assert worst <= 2e-6  # cosines and powers in float32


def test_a_schedule_of_a_user_counts_exactly():
    class Blink(everstep.Schedule):
        def value(self, ops, updates):
            return ops.where(ops.equal(updates % 3, 0), 1.0, 0.5)

    for way in harness.quickest():
        run = started(way, SGD(Blink()))
        for count in counts(way):
            set_updates(run, count)
            before = run.weights()["w"][0]
            for _ in range(6):
                run.step(ONES)
            assert before - run.weights()["w"][0] == 4.0, (way.name, count)


# Rules with periods, against Python's integers. Each function trains from the update after `count` on.


def lookahead(count, var, average, grads):
    for t, grad in enumerate(grads, count + 1):
        var = var - grad
        if t % 6 == 0:
            average = average + (var - average) / 2
            var = average
        yield var, average


def swa(count, var, average, grads):
    for t, grad in enumerate(grads, count + 1):
        var, since = var - grad * 2.0**20, t - 1 - 5
        if since < 0:
            average = var
        elif since % 6 == 0:
            average = average + (var - average) / (since // 6 + 1)
        yield var, average


def overwritten(count, var, average, grads):
    for t, grad in enumerate(grads, count + 1):
        var = var - grad
        average = average + (var - average) / 2
        var = average if t % 6 == 0 else var
        yield var, average


def late_ramp(start):
    def train(count, var, average, grads):
        for t, grad in enumerate(grads, count + 1):
            var, n = var - grad, t - 1 - start
            average = var if n < 0 else average + (1 - min(0.5, (1 + n) / (10 + n))) * (var - average)
            yield var, average

    return train


AVERAGE = "moving_average/average"
# {name: (definition for a count, slot, function)}
PERIODS = {
    "lookahead": lambda count: (everstep.lookahead(SGD(1.0), 6), "lookahead/slow", lookahead),
    "swa": lambda count: (everstep.stochastic_weight_averaging(SGD(2.0**20), 5, 6), "swa/average", swa),
    "overwritten": lambda count: (everstep.moving_average(SGD(1.0), 0.5, overwrite_every=6), AVERAGE, overwritten),
    "late ramp": lambda count: (everstep.moving_average(SGD(1.0), 0.5, "ramp", start=count + 7), AVERAGE,
                                late_ramp(count + 7)),
}


@pytest.mark.parametrize("name, way", harness.each_in_turn(sorted(PERIODS), WAYS), ids=ids)
def test_periods_are_those_of_integers(name, way):
    for count in some_counts(way):
        definition, slot, train = PERIODS[name](count)
        grads, actual = [1.0] * (60 if harness.FULL else 15), []
        run = started(way, definition)
        set_updates(run, count)
        for _ in grads:
            run.step(ONES)
            actual.append((run.weights()["w"][0], run.slot("w", slot)[0]))
        expected = list(train(count, 0.0, 0.0, grads))
        moves = [sum(a[1] != b[1] for a, b in zip([(0.0, 0.0)] + values, values)) for values in (actual, expected)]
        distance = oracle.distance(actual, expected)
        report(name, way.name, count, "moves {} of {}".format(*moves), "%.0e" % distance)
        assert distance <= 1e-5
        assert moves[0] == moves[1]


@pytest.mark.parametrize("way", SOME, ids=ids)
def test_noise_is_another_at_each_update(way):
    run = started(way, everstep.gradient_noise(SGD(1.0), 1.0, gamma=0.0))
    name = harness.bound(run.optimizer).record(harness.bound(run.optimizer).adapter.unwrap(run.variables["w"])).name
    for count in counts(way):
        set_updates(run, count)
        for update in range(count, count + 9):
            before = run.weights()["w"].astype("float64")
            run.step({"w": np.zeros(3, "float32")})
            added = before - run.weights()["w"]
            assert np.abs(added - drawn(name + "/0", (3,), update + 1)).max() <= 1e-4, (way.name, update)
    report("noise", way.name, count, "9 of 9")


class Digits(everstep.Definition):
    """A rule as a user writes it, with all operators that count."""

    learning_rate = everstep.hyper(1.0)
    boundary = everstep.option(0)

    def update(self, ops, grad, var, slots, hyper, t):
        digits = t % 7 + 10 * (t // 3 % 5) + 100 * (ops.floor((t + 2) / 4) % 3) + 1000 * (ops.floor(t / 2.5) % 4)
        digits = digits + ops.where(t > self.boundary, 1e4, 0) + ops.where(self.boundary + 2 <= t, 2e4, 0)
        digits = digits + ops.where(ops.equal(t, self.boundary + 1), 4e4, 0)
        digits = digits + ops.where(t < self.boundary + 1.5, 8e4, 0)
        digits = digits + 1e5 * (hyper.updates % 2) + 2e5 * ops.clip(t - self.boundary, 0, 2)
        return (digits + 1e6 * (-t % 4) + 1e-9 * hyper.pending) * grad, {}


def digits(t, boundary):
    value = t % 7 + 10 * (t // 3 % 5) + 100 * ((t + 2) // 4 % 3) + 1000 * (int(t / Fraction(5, 2)) % 4)
    value += 10**4 * (t > boundary) + 2 * 10**4 * (boundary + 2 <= t) + 4 * 10**4 * (t == boundary + 1)
    value += 8 * 10**4 * (t < boundary + 1.5) + 10**5 * ((t - 1) % 2) + 2 * 10**5 * min(max(t - boundary, 0), 2)
    return value + 10**6 * (-t % 4)


@pytest.mark.parametrize("way", WAYS if harness.FULL else harness.one_of_each_target(WAYS, harness.TURN + 1), ids=ids)
def test_rules_of_users_count_exactly(way):
    for count in some_counts(way) + ([] if counts_in_int32(way) else [2**53 - 100]):
        run = started(way, Digits(boundary=count + 6))
        for update in range(count, count + 14):
            set_updates(run, update)
            reset(run)
            run.step(ONES)
            assert -run.weights()["w"][0] == digits(update + 1, count + 6), (way.name, update)


class Bounds(everstep.Definition):
    """Computes a quotient times 2^62, which fits an int64 for 0 and 1 only, and a remainder times 2^24, plus 1.

    A float32 cannot hold 2^24 + 1. Such results are integers if their bounds fit, else floats.
    """

    learning_rate = everstep.hyper(1.0)

    def update(self, ops, grad, var, slots, hyper, t):
        return (t // 2 * 2**62 / 2.0**62 + 100 * ((t % 2 * 2**24 + 1) % 2)) * grad, {}


@pytest.mark.parametrize("way", harness.quickest(), ids=ids)
def test_products_of_quotients_and_remainders_stay_within_their_bounds(way):
    run = started(way, Bounds())
    for t in range(1, 7):
        reset(run)
        run.step(ONES)
        assert -run.weights()["w"][0] == t // 2 + 100, (way.name, t)


# Every definition and wrapper, against the float64 oracle.

STEPS = 8


def every_definition():
    for definition_class, settings in battery.CONFIGURED:
        # Adafactor's default times the share of step 2^40 is 2e-40. Some threads of TensorFlow round that to 0.
        more = {"epsilon_1": 1e-20} if definition_class.takes("epsilon_1") else {}
        yield battery.label(definition_class, settings), battery.define(definition_class, settings, **more)
    yield "AdagradDecay of 3", AdagradDecay(0.1, decay_steps=3)


def every_wrapper():
    for name in sorted(wrappers.MADE):
        yield name, wrappers.MADE[name](SGD(0.05, momentum=0.5), wrappers.is_dense)


def check_from(way, definition, name):
    start, batches = battery.start_values("float32"), training.make_batches("float32", STEPS)
    # The rule sees gradients of the unscaled loss; only targets that differentiate themselves scale it.
    scaled = wrappers.scaled(batches) if "loss scale" in name else batches
    fed = batches if way.target == "get_updates" else scaled
    large = counts(way)[1:]
    for count in large if harness.FULL else harness.share(large, len(large)):
        expected, _ = oracle.trajectory(definition, start, scaled, updates=count)
        run = started(way, definition, start, training.KINDS)
        if way.target != "tf_train" or runs.counted(run):
            set_updates(run, count)
        else:
            assert not flat(definition, "slot")  # plain SGD, whose steps are all alike
        weights = runs.stepped(run, fed).weights()
        worst = max(oracle.distance(weights[each], expected[each]) for each in run.trained())
        report("oracle", name, way.name, count, "%.0e" % worst)
        assert worst <= 2 * training.BOUNDS["float32"], (name, count)


@pytest.mark.parametrize("case, way", harness.each_in_turn(list(every_definition()), WAYS, 12), ids=ids)
def test_every_definition_counts_exactly(case, way):
    check_from(way, case[1], case[0])


@pytest.mark.parametrize("case, way", harness.each_in_turn(list(every_wrapper()), WAYS, 6), ids=ids)
def test_every_wrapper_counts_exactly(case, way):
    wrappers.skip_noise_on_arrays(case[0], way)
    check_from(way, case[1], case[0])


@pytest.mark.parametrize("way", [way for way in SOME if way.sparse], ids=ids)
def test_a_row_takes_the_periods_that_it_missed(way):
    start = {"table": np.zeros((3, 2), "float32")}
    taken = {0: [1.0] * 16, 1: [1.0] * 3 + [0.0] * 12 + [1.0], 2: [0.0] * 15 + [1.0]}
    for count in some_counts(way):
        run = started(way, everstep.lookahead(SGD(1.0, sparse="catch_up"), 6), start, {"table": harness.SPARSE})
        set_updates(run, count)
        for step in range(16):
            rows = np.array([row for row in range(3) if taken[row][step]], "int64")
            run.step({"table": (np.ones((len(rows), 2), "float32"), rows)})
        expected = [list(lookahead(count, 0.0, 0.0, taken[row]))[-1][0] for row in range(3)]
        apart = np.abs(run.weights()["table"][:, 0] - expected).max()
        report("catch_up", way.name, count, "%.0e" % apart)
        assert apart <= 1e-5, (way.name, count)


# Sums and counts in float32 scalars.


@pytest.mark.parametrize("way", harness.quickest(), ids=ids)
def test_the_sum_of_schedule_free_grows_by_each_weight(way):
    """With a constant rate, the sum is the number of updates times the square of the rate."""
    for count in counts(way)[1:] if harness.FULL else counts(way)[1:2]:
        run = started(way, ScheduleFreeAdamW(0.25))
        before = np.float32(count / 16.0)
        put(run, lambda optimizer: harness.bound(optimizer).adapter.scalar("greatest_rate"), np.float32(0.25))
        put(run, lambda optimizer: harness.bound(optimizer).adapter.scalar("weights_sum"), before)
        addends = 2 ** min(24, int(math.log(before / 2.0**9, 2) + 1e-9))  # one update of so many
        set_updates(run, count - count % addends - 2)
        runs.stepped(run, [ONES] * 2)
        grown = (runs.scalar(run, "weights_sum") - float(before)) * 16
        assert abs(grown / addends - 1) <= 1e-3, (way.name, count, grown)


class Values(object):
    learning_rate = greatest_rate = np.float32(0.3)
    averaging_power, rate_power = np.float32(0), np.float32(2)
    weights_sum = np.float32(0)


def test_the_sum_of_schedule_free_stays_right():
    """From the sum of 2^20 weights on: added one by one in float32, each would be rounded by 4%."""
    definition, square = ScheduleFreeAdamW(0.3), float(np.float32(0.3)) ** 2
    start = Values.weights_sum = np.float32(2**20 * square)
    for t in range(2**20 + 1, 2**20 + 2**12 + 1):
        new = definition.advance(np, Values, Values, np.float64(t))
        Values.weights_sum = np.float32(new["weights_sum"])
    assert abs((float(Values.weights_sum) - float(start)) / (2**12 * square) - 1) <= 2e-3


def test_a_long_growth_interval_is_counted():
    optimizer = everstep.loss_scale(SGD(1.0), 8.0, growth_interval=2**26).bind(np)
    weights = np.zeros(3, "float32")
    harness.bound(optimizer).adapter.make_state([weights])
    optimizer.scale_loss(1.0)
    harness.bound(optimizer).adapter.scalar("loss_scale/finite")[...] = 2**23 - 1
    harness.bound(optimizer).adapter.counter("updates")[...] = 2**40
    scales = []
    for _ in range(9):
        optimizer.apply_gradients([(np.ones(3, "float32"), weights)])
        scales.append(float(optimizer.scale_loss(1.0)))
    assert scales == [8.0] * 7 + [16.0] * 2


# The end of the counters of Keras 3 on JAX and torch.

SHORT = [way for way in WAYS if counts_in_int32(way)]


@pytest.mark.skipif(not SHORT, reason="every counter here is an int64")
@pytest.mark.parametrize("wrap", [lambda rule: rule, lambda rule: everstep.accumulate(rule, 1)], ids=["plain", "skips"])
def test_a_counter_of_int32_ends_with_an_error(wrap):
    for way in SHORT:
        run = started(way, wrap(Adam(0.1)))
        set_updates(run, INT32_END - 2)
        before = runs.stepped(run, [ONES] * 2).weights()["w"]
        if isinstance(run, harness.KerasJitRun):  # nothing can raise there
            runs.stepped(run, [ONES] * 5)
            assert int(run.world.read(run.optimizer.iterations)) == INT32_END
            assert np.all(run.weights()["w"] < before)
            continue
        with pytest.raises(StateError, match="the counter of updates .* is 2147418112; .* up to 2147418112"):
            run.step(ONES)
        assert np.array_equal(run.weights()["w"], before)
        for wrong in (2**31 - 3, -5):
            again = started(way, wrap(Adam(0.1)))
            set_updates(again, wrong)
            with pytest.raises(StateError, match="the counter of updates"):
                again.step(ONES)


@pytest.mark.skipif(not SHORT, reason="every counter here is an int64")
def test_restoring_more_updates_than_an_int32_counts_is_an_error():
    trained = started(harness.NUMPY, Adam(0.1))
    set_updates(trained, 2**31)
    run = started(SHORT[0], Adam(0.1))
    with pytest.raises(StateError, match="updates = 2147483648; a counter .* of int32 on (jax|torch) and ends at"):
        run.restored(trained.captured())
    assert int(run.world.read(run.optimizer.iterations)) == 0


# Arguments with which a wrapper would do nothing.


test_a_wrapper_without_an_effect_is_an_error = runs.refused([(call, DefinitionError, needle) for call, needle in [
    (lambda: everstep.clip(Adam()), "needs a bound: give norm, global_norm, unit_norm, percentile or value"),
    (lambda: everstep.clip(Adam(), value_first=True), "needs a bound"),
    (lambda: everstep.learning_rate_multipliers(Adam(), {}), "got no factors"),
    (lambda: everstep.decoupled_weight_decay(Adam(), {}), "got no rule for the variables that decay"),
    (lambda: everstep.decoupled_weight_decay(Adam(), 0.1, include=[]), "got no rule for the variables that decay"),
    (lambda: everstep.partition({}, default=Adam()), "a rule for each branch"),
]])


def test_numbers_of_a_sweep_may_have_no_effect():
    everstep.accumulate(Adam(), 1)
    everstep.decoupled_weight_decay(Adam(), 0.0)
    everstep.decoupled_weight_decay(Adam(), {"bias": 0.0})
    everstep.gradient_noise(Adam(), 0.0)
    everstep.learning_rate_multipliers(Adam(), {}, otherwise=0.5)


@pytest.mark.parametrize("way", SOME, ids=ids)
def test_clip_goes_around_a_clip_by_value(way):
    """By hand: (3, 4) scaled to the norm 1 is (0.6, 0.8), of which at most 0.7 is left."""
    run = started(way, everstep.clip(everstep.clip(SGD(1.0), value=0.7), norm=1.0), {"w": np.zeros(2, "float32")})
    run.step({"w": np.array([3, 4], "float32")})
    assert np.abs(run.weights()["w"] + [0.6, 0.7]).max() <= 1e-6
    with pytest.raises(DefinitionError, match="measures gradients before clip"):
        everstep.clip(everstep.clip(SGD(1.0), norm=1.0), value=0.7)


class ByRow(everstep.Definition):
    learning_rate = everstep.hyper(1.0)
    reads = everstep.option("row_number", choices=("row_number", "place_in_row"))

    def update(self, ops, grad, var, slots, hyper, t):
        return hyper.learning_rate * (grad + 0.5 * ops.cast(getattr(hyper, self.reads), grad.dtype)), {}


@pytest.mark.parametrize("name", ["row_number", "place_in_row"])
def test_catch_up_of_a_rule_by_rows_is_refused_when_it_is_built(name):
    with pytest.raises(RuleError, match='cannot take sparse="catch_up", which replays .* no \'{}\' here'.format(name)):
        ByRow(reads=name, sparse="catch_up")
    ByRow(reads=name)


class Every(everstep.Definition):
    """Subtracts 1 at every third update, counted by `hyper.updates`."""

    learning_rate = everstep.hyper(1.0)

    def update(self, ops, grad, var, slots, hyper, t):
        return hyper.learning_rate * grad + ops.where(ops.equal(hyper.updates % 3, 0), 1.0, 0.0), {}


@pytest.mark.parametrize("way", [way for way in harness.quickest() if way.sparse], ids=ids)
def test_replayed_updates_have_their_number(way):
    run = started(way, Every(sparse="catch_up"), {"t": np.zeros((2, 2), "float32")}, {"t": harness.SPARSE})
    set_updates(run, 2**24 - 4)
    for row in (0, 1, 1, 1, 1, 1, 1, 0):
        run.step({"t": (np.zeros((1, 2), "float32"), np.array([row], "int64"))})
    # Updates 2^24 - 4 to 2^24 + 3, of which 2^24 - 4, 2^24 - 1 and 2^24 + 2 are multiples of 3.
    assert run.weights()["t"][0].tolist() == [-3.0, -3.0]
