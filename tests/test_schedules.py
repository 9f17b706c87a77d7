"""Schedules made of others: sums and products, native schedules and functions inside ours. One for every number."""
from __future__ import absolute_import, division, print_function

import copy
import inspect
import pickle

import numpy as np
import pytest

import everstep
import harness
import runs
import test_periods
from everstep.errors import ConfigError, HyperTypeError, HyperValueError
from everstep.optimizers import SGD, Adam, wrappers
from everstep.optimizers.contract.schedule_base import Combined
from test_battery import ids

pytestmark = pytest.mark.shared
WAYS = harness.all_ways()
ONE_EACH = harness.one_of_each_target(WAYS)
START, ONES = {"w": np.zeros(2, "float32")}, {"w": np.ones(2, "float32")}
LINE = everstep.PolynomialDecay(1.0, decay_steps=8, end=0.0)
HALVING = everstep.ExponentialDecay(1.0, 1, 0.5)
RISING = everstep.WarmupStableDecay(1.0, warmup=4, stable=10, fall=2)

SUMS = [  # (schedule, its repr with {} for LINE's, {updates: value})
    (0.5 * LINE, "0.5 * {}", {0: 0.5, 4: 0.25, 9: 0}),
    (LINE * 0.5, "{} * 0.5", {4: 0.25}),
    (np.float64(2) * LINE, "2.0 * {}", {4: 1}),
    (np.float32(2) / (1 + LINE), "2.0 / (1.0 + {})", {0: 1, 8: 2}),
    (LINE / 4, "{} / 4.0", {0: 0.25}),
    (1 - LINE, "1.0 - {}", {0: 0, 2: 0.25}),
    (LINE - 0.25, "{} - 0.25", {2: 0.5}),
    (-LINE, "-1.0 * {}", {2: -0.75}),
    (LINE + LINE * LINE, "{} + ({} * {})", {0: 2, 4: 0.75}),
    (LINE.at_least(0.5), "{}.at_least(0.5)", {0: 1, 4: 0.5, 9: 0.5}),
    ((2 * LINE).at_most(1 - LINE), "(2.0 * {}).at_most(1.0 - {})", {0: 0, 4: 0.5, 7: 0.25}),
    (LINE + (lambda step: step * 0.125), None, {0: 1, 3: 1, 8: 1, 16: 2}),
    (everstep.AsSchedule(lambda step: 1 / (1 + step)) * 2, None, {0: 2, 1: 1, 3: 0.5}),
    (everstep.Warmup(lambda step: 0.5**step, 2, shift=True), None, {0: 0, 1: 0.5, 2: 1, 4: 0.25}),
    (everstep.AsSchedule(0.5), "AsSchedule(of=0.5)", {0: 0.5}),
    (everstep.AsSchedule(lambda step: step % 3), None, {2**24 + 1: 2, 2**31: 2, 2**40: 1}),
]


@pytest.mark.shared(False)
@pytest.mark.parametrize("schedule, text, values", SUMS, ids=lambda value: value if isinstance(value, str) else "")
def test_sums_and_products(schedule, text, values):
    for updates, value in values.items():
        assert abs(schedule(updates) - value) <= 1e-12
    assert copy.deepcopy(schedule) == schedule and schedule.replace() == schedule
    if text is not None:
        assert repr(schedule) == text.replace("{}", repr(LINE))
        assert pickle.loads(pickle.dumps(schedule)) == schedule
        runs.check_config(SGD(schedule))


@pytest.mark.shared(False)
def test_equal_sums_are_equal():
    again = everstep.PolynomialDecay(1.0, decay_steps=8, end=0.0)
    assert 0.5 * LINE == 0.5 * again and hash(0.5 * LINE) == hash(0.5 * again)
    assert 0.5 * LINE != LINE * 0.5 and LINE + 1 != LINE - 1
    assert SGD(0.5 * LINE) == SGD(0.5 * again)


@pytest.mark.parametrize("case, way", harness.each_in_turn(SUMS, WAYS, 5), ids=ids)
def test_sums_in_a_step(case, way):
    schedule, _, values = case
    end = test_periods.INT32_END if test_periods.counts_in_int32(way) else 2**53
    run = test_periods.started(way, SGD(schedule))
    for updates, value in sorted(values.items()):
        if updates < end:
            test_periods.set_updates(run, updates)
            before = run.weights()["w"].astype("float64")
            run.step({"w": np.ones(3, "float32")})
            assert np.abs(before - run.weights()["w"] - value).max() <= 2e-6, updates


# Native schedules.

NATIVE = [way for way in WAYS if hasattr(getattr(way.stock, "schedules", None), "PolynomialDecay")
          and way.target in ("optimizer_v2", "update_step", "keras3")]
OTHERS = [way for way in ONE_EACH if way.target in ("arrays", "get_updates", "tf_train")]


def with_native(native):
    """Yields (schedule, function of the updates that gives its value by hand); `native` is LINE's."""
    yield everstep.Warmup(native, 3, shift=True), lambda n: n / 3 if n < 3 else 1 - (n - 3) / 8
    yield everstep.Warmup(native, 3), lambda n: n / 3 if n < 3 else 1 - n / 8
    yield 0.5 * everstep.AsSchedule(native), lambda n: 0.5 - n / 16
    yield native * HALVING, lambda n: (1 - n / 8) * 0.5**n
    yield HALVING - native, lambda n: 0.5**n - 1 + n / 8
    yield everstep.Hold(native, 2) + native, lambda n: 1 - min(n, 2) / 8 + 1 - n / 8


def line(way):
    return way.stock.schedules.PolynomialDecay(1.0, 8, 0.0)


@pytest.mark.parametrize("place, way", harness.each_in_turn(list(range(6)), NATIVE, 2), ids=ids)
def test_native_schedules_inside_ours(place, way):
    schedule, by_hand = list(with_native(line(way)))[place]
    as_rate, as_other = SGD(schedule), everstep.decoupled_weight_decay(SGD(1.0), schedule, times_rate=False)
    for definition in (as_rate, as_other):
        run, expected = runs.started(way, definition, START, {"w": harness.DENSE}), 0.0
        for updates in range(5):
            run.step(ONES)
            value = by_hand(updates)
            expected = expected - value if definition is as_rate else expected - value * expected - 1
            assert np.abs(run.weights()["w"] - expected).max() <= 1e-5, (schedule, updates)
        with run.inside():
            config = run.optimizer.get_config()
            again = type(run.optimizer).from_config(config)
        name = "learning_rate" if definition is as_rate else "decoupled/weight_decay"
        made = harness.bound(again).given(name)
        assert repr(made).split("<")[0] == repr(schedule).split("<")[0]
        assert harness.bound(again).given(name)._natives()[0].get_config() == schedule._natives()[0].get_config()


@pytest.mark.skipif(not NATIVE, reason="no Keras here has schedules")
def test_a_native_schedule_of_another_api():
    schedule = everstep.Warmup(line(NATIVE[0]), 3)
    for way in OTHERS:
        with pytest.raises(HyperTypeError, match="learning_rate has .* in it, a schedule of another API"):
            SGD(schedule).bind(way.module)
    with pytest.raises(ConfigError, match="cannot be written to a config"):
        SGD(schedule).get_config()
    assert "learning_rate" not in SGD(schedule).get_config(strict=False)  # half a schedule would be another one
    with pytest.raises(HyperTypeError, match="Clip.norm takes no native schedule"):
        everstep.clip(SGD(), norm=schedule)


@pytest.mark.parametrize("way", harness.one_of_each_target(NATIVE), ids=ids)
def test_the_present_rate_with_a_native_schedule(way):
    run = runs.started(way, SGD(0.5 * everstep.AsSchedule(line(way))), START, {"w": harness.DENSE})
    for _ in range(2):
        run.step(ONES)
    with run.inside():
        session = getattr(run, "session", None)
        assert abs(everstep.current_rate(run.optimizer, **({"session": session} if session else {})) - 0.375) < 1e-7


# Functions.


@pytest.mark.shared(False)
@pytest.mark.parametrize("function, found", [
    (lambda step: 1.0 if step > 3 else 0.5, "fails: RuleError: a rule cannot look at a number"),
    (lambda: 0.5, "fails: TypeError"),
    (lambda step: "a", "returns 'a'"),
])
def test_functions_that_are_no_schedules(function, found):
    with pytest.raises(HyperTypeError, match=found + "(.|\n)*write a subclass of everstep.Schedule"):
        SGD(everstep.Warmup(function, 4)).bind(np)


@pytest.mark.shared(False)
def test_functions_do_not_go_into_a_config():
    with pytest.raises(ConfigError, match="AsSchedule.of is <function"):
        SGD(everstep.AsSchedule(lambda step: step)).bind(np).get_config()


test_bad_input = runs.refused([
    (lambda: LINE + "a", TypeError, "unsupported operand"),
    (lambda: [1] * LINE, TypeError, "unsupported operand|can't multiply"),
    (lambda: everstep.Warmup(SGD, 3), HyperTypeError, "Warmup.of takes a number"),
    (lambda: everstep.OneCycle(1.0, steps=10, rise=10), HyperValueError, "leaves nothing of 10.0 steps to fall in"),
    (lambda: everstep.OneCycle(1.0, 10, 5, three_phases=True), HyperValueError, "the rise of 5.0 updates leaves"),
    (lambda: Combined("power", LINE, 2.0), HyperValueError, "Combined.operation must be one of"),
])


# Every number of every wrapper.


def scheduled_numbers():
    """Returns [(wrapper class, argument, (value, other value))] of what takes a schedule."""
    found = []
    for name in wrappers.__all__:
        made = getattr(wrappers, name)
        if not inspect.isclass(made):
            continue
        for argument in made.declared_order:
            declared = made.declarations[argument]
            if declared.kind == "hyper" or declared.kind == "option" and declared.schedule:
                if argument != "steps":  # of accumulate: tests/test_wrappers_accumulate.py
                    high = 0.75 if declared.maximum is None else 0.75 * declared.maximum
                    found.append((made, argument, (high / 4, high)))
    return found


NEEDED = {"SharpnessAware": {"adaptive": True}, "MovingAverage": {"overwrite_every": 1},
          "Lookahead": {"sync_period": 1}, "DecoupledWeightDecay": {"times_rate": False}}
NUMBERS = scheduled_numbers()


def test_no_number_is_forgotten():
    names = {(made.__name__, argument) for made, argument, _ in NUMBERS}
    assert {("Clip", "norm"), ("Clip", "global_norm"), ("Clip", "value"), ("Clip", "unit_norm"), ("Cautious", "xi"),
            ("SharpnessAware", "eta"), ("SharpnessAware", "rho"), ("RateDecay", "rate"), ("GradientNoise", "eta"),
            ("MovingAverage", "average_decay"), ("Lookahead", "slow_step_size")} <= names and len(names) >= 15


def trained(definition, way, values):
    """Returns the weights after each of some updates. `values` are those of a number that is set at each, or None."""
    start = {"w": np.array([[0.5, -1.0, 2.0], [1.5, -0.25, 0.75]], "float32")}
    run, weights = runs.started(way, definition, start, {"w": harness.DENSE}), []
    if definition.stages > 1:
        everstep.enable_multistage(run.optimizer)
    for place in range(4 * definition.stages):
        if values:
            setattr(run.optimizer, *values(place // definition.stages))
        grad = np.float32(4 / (1 + place)) * np.array([[1.0, -2.0, 0.5], [-0.25, 0.75, 1.0]], "float32")
        grad[1] *= (-1) ** place
        run.step({"w": grad})
        weights.append(run.weights()["w"])
    return weights


@pytest.mark.parametrize("case", NUMBERS, ids=lambda case: "{}-{}".format(case[0].__name__, case[1]))
def test_a_schedule_for_every_number(case):
    """NumPy's numbers of a schedule are those of the number itself, set at each update; and another API's are these."""
    made, argument, values = case
    numpy_way = next(way for way in WAYS if way.target == "arrays")
    schedule = everstep.PiecewiseConstantDecay((1,), values)
    settings = NEEDED.get(made.__name__, {})
    inner = SGD(0.125) if made.__name__ == "Clip" else SGD(0.125, momentum=0.9)
    ours = made(inner, **dict(settings, **{argument: schedule}))
    runs.check_config(ours)
    scheduled = trained(ours, numpy_way, None)
    present = [values[0]] * 2 + [values[1]] * 2
    if made.declarations[argument].kind == "hyper":
        bound_name = ours.prefix + "_" + argument
        one = made(inner, **dict(settings, **{argument: values[0]}))
        expected = trained(one, numpy_way, lambda place: (bound_name, present[place]))
    else:
        numbers = [made(inner, **dict(settings, **{argument: value})) for value in values]
        before, after = (trained(number, numpy_way, None) for number in numbers)
        half = len(before) // 2
        assert any((x != y).any() for x, y in zip(before, after)), "the number changes nothing here"
        expected, after_first = before[:half], scheduled[half:]
        assert any((x != y).any() for x, y in zip(after_first, before[half:]))
        scheduled = scheduled[:half]
    for ours_now, expected_now in zip(scheduled, expected):
        np.testing.assert_allclose(ours_now, expected_now, rtol=2e-6, atol=1e-7)
    for way in harness.share(ONE_EACH, 3):
        for here, there in zip(trained(ours, way, None), trained(ours, numpy_way, None)):
            np.testing.assert_allclose(here, there, rtol=2e-5, atol=1e-6)


# The schedules of PyTorch.


@pytest.mark.shared(False)
def test_the_schedules_of_torch():
    torch = pytest.importorskip("torch", reason="PyTorch is in one cell")
    of_torch = torch.optim.lr_scheduler

    def compare(ours, make, rate=0.1):
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=rate, momentum=0.9)
        theirs = make(optimizer)
        for updates in range(100):
            assert abs(optimizer.param_groups[0]["lr"] - ours(updates)) <= 1e-12, (ours, updates)
            optimizer.step()
            if updates < 99:
                theirs.step()

    compare(everstep.OneCycle(0.5, 99, 29), lambda of: of_torch.OneCycleLR(of, 0.5, 100))
    compare(everstep.OneCycle(0.5, 99, 29, shape="linear"),
            lambda of: of_torch.OneCycleLR(of, 0.5, 100, anneal_strategy="linear"))
    compare(everstep.OneCycle(0.5, 99, 29, 10.0, 1e3, three_phases=True),
            lambda of: of_torch.OneCycleLR(of, 0.5, 100, three_phase=True, div_factor=10.0, final_div_factor=1e3))
    for mode in ("triangular", "triangular2", "exp_range"):
        rate = 0.99 if mode == "exp_range" else 1.0
        compare(everstep.Cyclical(0.01, 0.5, 7, 11, mode, rate),
                lambda of: of_torch.CyclicLR(of, 0.01, 0.5, 7, 11, mode=mode, gamma=0.99))  # noqa: B023  # called now
    compare(0.1 * everstep.AsSchedule(lambda step: 0.97**step),
            lambda of: of_torch.LambdaLR(of, lambda step: 0.97**step))


@pytest.mark.shared(False)
def test_missed_updates_of_rows_with_a_schedule_of_parts():
    """Rows that miss updates catch up with what a schedule gave in between, though it is combined of others."""
    rate, ended = 0.5 * everstep.Warmup(lambda step: 0.5**step, 2) + 0.125, []
    for sparse in ("exact", "catch_up"):
        weights, optimizer = np.ones((4, 2), "float32"), Adam(rate, sparse=sparse).bind(np)
        for rows in ([0, 1], [2], [3], [0, 1, 2, 3]):
            grad = everstep.IndexedSlices(np.ones((len(rows), 2), "float32"), rows)
            optimizer.apply_gradients([(grad, weights)])
        ended.append(weights)
    np.testing.assert_allclose(*ended, rtol=1e-5)


def test_a_cycle_falls_in_more_than_no_time():
    assert [everstep.Cyclical(0.0, 1.0, 2, 1)(updates) for updates in range(4)] == [0.0, 0.5, 1.0, 0.0]
    with pytest.raises(HyperValueError, match="fall must be at least"):
        everstep.Cyclical(fall=0)
