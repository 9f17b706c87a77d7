"""`moving_average`, `stochastic_weight_averaging`, `lookahead` and `averaged`, compared with loops in float64."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest

import everstep
import harness
import runs
from everstep.errors import HyperTypeError, HyperValueError, RuleError, StateError, UnsupportedError
from everstep.optimizers import SGD, Adam, ScheduleFreeAdamW
from everstep.testing import oracle, training
from runs import ONE_EACH, SPARSE_ONES, WAYS
from test_battery import ids
from test_catch_up import compare, train, zipf_batches

pytestmark = pytest.mark.shared
SHAPES = {"kernel": (4, 3), "table": (6, 3)}
KINDS = {"kernel": harness.DENSE, "table": harness.SPARSE}
START = {name: np.full(shape, 0.5, "float32") for name, shape in SHAPES.items()}
INNER = SGD(0.1, momentum=0.9)
STEPS = 11
BATCHES = training.make_batches("float32", STEPS, SHAPES, KINDS)


def ema(decay):
    """Returns a moving average with `decay(step)`; steps count from 1."""

    def average(step, value, kept):
        kept["average"] = decay(step) * kept["average"] + (1 - decay(step)) * value
        return value, kept["average"]

    return average


def debiased(step, value, kept):
    kept["biased"] = 0.9 * kept.get("biased", 0) + 0.1 * value
    return value, kept["biased"] / (1 - 0.9**step)


def overwritten(step, value, kept):
    kept["average"] = 0.9 * kept["average"] + 0.1 * value
    return kept["average"] if step in (3, 6, 9) else value, kept["average"]


def swa(step, value, kept):
    if step in (3, 6, 9):
        kept.setdefault("taken", []).append(value)
    return value, np.mean(kept["taken"], axis=0) if "taken" in kept else value


def looking_ahead(step, value, kept):
    if step in (4, 8):
        value = kept["average"] = kept["average"] + 0.25 * (value - kept["average"])
    return value, kept["average"]


# (definition, what a loop does after each step, True to run in every way, not just one of each target)
CASES = [
    (everstep.moving_average(INNER, 0.9), ema(lambda step: 0.9), False),
    (everstep.moving_average(INNER, 0.9, "ramp"), ema(lambda step: min(0.9, step / (9.0 + step))), True),
    (everstep.moving_average(INNER, 0.4, "ramp", start=2),
     ema(lambda step: min(0.4, (step - 2.0) / (7 + step)) if step > 2 else 0), False),
    (everstep.moving_average(INNER, 0.9, "zero_debias"), debiased, False),
    (everstep.moving_average(INNER, 0.9, overwrite_every=3), overwritten, False),
    (everstep.stochastic_weight_averaging(INNER, 2, 3), swa, True),
    (everstep.lookahead(INNER, 4, 0.25), looking_ahead, True),
]


def by_hand(after, by_rows=False):
    """Returns ({name: weights}, {name: averages}) of momentum followed by `after` at each step, in float64, by rows."""
    weights, averages = {}, {}
    for name, shape in SHAPES.items():
        rows = []
        for row in range(shape[0]):
            value = np.full(shape[1:], 0.5)
            velocity, kept, average = 0.0, {"average": value}, value
            for step, batch in enumerate(BATCHES, 1):
                if by_rows and isinstance(batch[name], tuple) and row not in batch[name][1]:
                    continue
                velocity = np.float32(0.9) * velocity - np.float32(0.1) * runs.whole(batch[name], shape)[row]
                value, average = after(step, value + velocity, kept)
            rows.append((value, average))
        weights[name], averages[name] = (np.array(part) for part in zip(*rows))
    return weights, averages


def trained(way, definition, count=STEPS):
    return runs.trained(way, definition, START, KINDS, BATCHES[:count])


def averages(run):
    """Returns the weights inside `everstep.averaged`."""
    with everstep.averaged(run.optimizer, run.variables, session=run.world.session):
        return run.weights()


@pytest.mark.parametrize("way, definition, after", [
    (way,) + case[:2] for case in CASES for way in (WAYS if case[2] else ONE_EACH)
], ids=lambda value: ids(value) if isinstance(value, harness.Way) else getattr(value, "__name__", "") or "")
def test_equals_the_formula(way, definition, after):
    run = trained(way, definition)
    weights = run.weights()
    assert runs.distance(weights, by_hand(after)[0]) <= 2e-6
    assert runs.distance(averages(run), by_hand(after)[1]) <= 2e-6
    assert runs.same(run.weights(), weights)


@pytest.mark.parametrize("way", SPARSE_ONES, ids=ids)
@pytest.mark.parametrize("definition, after", [CASES[1][:2], CASES[6][:2]], ids=["average", "lookahead"])
def test_rows_absent_are_left_as_they_are(way, definition, after):
    run = trained(way, definition.replace(sparse="rows"))
    weights, expected = by_hand(after, by_rows=True)
    assert runs.distance(run.weights(), weights) <= 2e-6
    assert runs.distance(averages(run), expected) <= 2e-6


def test_snapshots_of_rows_that_were_absent():
    """A row that misses a snapshot keeps its average, which counts for that snapshot too."""
    table = np.zeros((2, 1))
    definition = everstep.stochastic_weight_averaging(SGD(1.0, sparse="rows"), period=1)
    optimizer = runs.steps(definition, table, *[(-np.ones((len(rows), 1)), rows) for rows in ([0, 1], [0], [0, 1])])
    assert definition.replace(inner=SGD(1.0, momentum=0.5, sparse="rows")).zero_grad_is_noop is False
    assert table.tolist() == [[3.0], [2.0]]
    np.testing.assert_allclose(optimizer.get_slot(table, "swa/average"), [[2.0], [(1 + 1 + 2) / 3.0]])


# Averages in the variables


@pytest.mark.parametrize("way", WAYS, ids=ids)
def test_training_and_nesting_inside(way):
    run = trained(way, everstep.moving_average(Adam(0.05), 0.9), 3)
    everything, before, eager = (run.optimizer, run.variables), run.weights(), True
    session = run.world.session
    with everstep.averaged(*everything, session=session):
        with pytest.raises(StateError, match="in its variables already"):
            with everstep.averaged(*everything, session=session):
                pass
        with pytest.raises(StateError, match="inside of everstep.averaged"):
            everstep.assign_averages(*everything, session=session)
        state = run.captured(weights=True)
        with pytest.raises(StateError, match="nothing to restore"):
            run.restored(state)
    assert runs.same(run.weights(), before)
    for name, there in zip(sorted(SHAPES), sorted(state.slots)):
        slot = state.slots[there]["moving_average/average"]
        assert np.array_equal(slot, run.slot(name, "moving_average/average"))
        assert np.array_equal(slot, state.variables[there])
    with pytest.raises(StateError) as raised:
        with everstep.averaged(*everything, session=session):
            run.step(BATCHES[0])
            eager = False
    assert ("train outside of it" if eager else "has trained inside") in str(raised.value)
    assert runs.same(run.weights(), before)


@pytest.mark.parametrize("way", ONE_EACH, ids=ids)
def test_assign_averages(way):
    run = trained(way, everstep.moving_average(Adam(0.05), 0.9), 3)
    expected = averages(run)
    everstep.assign_averages(run.optimizer, run.variables, session=run.world.session)
    assert runs.same(run.weights(), expected)
    run.step(BATCHES[0])  # training continues from the averages


@pytest.mark.parametrize("way", WAYS, ids=ids)
def test_the_optimizer_knows_its_variables(way):
    """Before it does, an error says to give them."""
    definition = everstep.moving_average(Adam(0.05), 0.9)
    fresh = definition.bind(way.module)
    for use in (lambda: everstep.averaged(fresh).__enter__(), lambda: everstep.assign_averages(fresh)):
        with pytest.raises(StateError, match="does not know its variables yet: give them"):
            use()
    run = trained(way, definition, 3)
    session, before, expected = run.world.session, run.weights(), averages(run)
    with everstep.averaged(run.optimizer, session=session):
        assert runs.same(run.weights(), expected)
    assert runs.same(run.weights(), before) and not runs.same(before, expected)
    everstep.assign_averages(run.optimizer, session=session)
    assert runs.same(run.weights(), expected)


def test_an_error_inside_is_not_hidden():
    weights = np.ones(2)
    optimizer = runs.steps(everstep.lookahead(SGD(1.0)), weights, np.ones(2))
    with pytest.raises(ZeroDivisionError):
        with everstep.averaged(optimizer, [weights]):
            assert weights.tolist() == [1, 1]
            raise ZeroDivisionError
    assert weights.tolist() == [0, 0]


def test_what_cannot_be_averaged():
    weights, table = np.ones(2), np.ones((3, 2))
    plain = Adam().bind(np)
    with pytest.raises(StateError, match="keeps no averages"):
        everstep.averaged(plain, [weights]).__enter__()
    for variables in ([weights], None):
        with pytest.raises(UnsupportedError, match="stock optimizers too"):
            everstep.averaged(Adam(), variables).__enter__()
    late = runs.steps(everstep.moving_average(CATCH_UP), table, *[(np.ones((1, 2)), [row]) for row in (0, 1)])
    before = table.copy()
    with pytest.raises(StateError, match="flush"):
        everstep.averaged(late, [table]).__enter__()
    assert np.array_equal(table, before)
    late.flush()
    with everstep.averaged(late, [table]):
        assert not np.array_equal(table, before)


def test_schedule_free_is_averaged_too():
    weights = np.zeros(1)
    optimizer = runs.steps(ScheduleFreeAdamW(0.1, beta_1=0.5), weights, *[np.array([3.0])] * 2)
    with everstep.averaged(optimizer, [weights]):
        np.testing.assert_allclose(weights, [-0.15], rtol=1e-6)


def test_the_branches_of_a_partition_that_have_averages():
    is_bias = lambda variable: len(variable.shape) == 1  # noqa: E731
    definition = everstep.partition({"bias": (is_bias, everstep.moving_average(SGD(1.0), 0.5))}, default=SGD(1.0))
    bias, kernel = np.zeros(2), np.zeros((2, 2))
    optimizer = definition.bind(np)
    optimizer.apply_gradients([(np.ones(2), bias), (np.ones((2, 2)), kernel)])
    with everstep.averaged(optimizer, [bias, kernel]):
        assert bias.tolist() == [-0.5, -0.5] and (kernel == -1).all()
    assert (bias == -1).all()


# Sparse gradients


LATE = [lambda inner: everstep.moving_average(inner, 0.9, start=1), lambda inner: everstep.lookahead(inner, 5),
        lambda inner: everstep.moving_average(everstep.accumulate(inner, 3), 0.9),
        lambda inner: everstep.accumulate(everstep.lookahead(inner, 4), 2)]


@pytest.mark.parametrize("place, way", harness.each_in_turn(range(len(LATE)), SPARSE_ONES), ids=ids)
def test_missed_steps_are_taken(place, way):
    expected = train(way, LATE[place](Adam(0.05)), zipf_batches(42))
    actual = train(way, LATE[place](Adam(0.05, sparse="catch_up")), zipf_batches(42))
    assert max(compare(actual, expected)) <= 2e-6


@runs.numpy_cells
def test_long_gaps():
    """After more than 200 missed steps closed forms apply."""

    def gaps(definition):
        random = np.random.RandomState(7)
        table = np.full((3, 2), 0.5)
        rows = [np.arange(3) if step % 400 == 20 else np.zeros(1, int) for step in range(450)]
        optimizer = runs.steps(definition, table, *[(random.normal(0.1, 1, (len(each), 2)), each) for each in rows])
        if definition.sparse == "catch_up":
            optimizer.flush()
        return [table] + [optimizer.get_slot(table, name) for name in optimizer.get_slot_names()]

    for wrap, most in (
        (lambda inner: everstep.moving_average(inner, 0.99), 1e-7),
        (lambda inner: everstep.lookahead(inner, 7), 1e-7),
        (lambda inner: everstep.lookahead(everstep.decoupled_weight_decay(inner, 0.01), 7, 0.3), 2e-3),
    ):
        expected, actual = gaps(wrap(Adam(0.05))), gaps(wrap(Adam(0.05, sparse="catch_up")))
        assert max(map(oracle.distance, actual, expected)) <= most


# Nested, carried to another API. test_wrappers_battery.py has more stacks.


def test_a_stack_by_hand():
    """Nests three wrappers that halve: an average of a lookahead of a decay."""
    weights = np.full(1, 8.0)
    inner = everstep.lookahead(everstep.decoupled_weight_decay(SGD(0.5), 1.0), 2)
    optimizer = everstep.moving_average(inner, 0.5).bind(np)
    for expected, average in ((4.0, 6.0), (5.0, 5.5)):  # 8 -> 4; 4 -> 2, half the way back to 8
        optimizer.apply_gradients([(np.zeros(1), weights)])
        assert weights == expected and optimizer.get_slot(weights, "moving_average/average") == average


STACKS = [everstep.moving_average(everstep.lookahead(everstep.decoupled_weight_decay(SGD(0.1, 0.9), 0.1), 3, 0.4), 0.8),
          everstep.accumulate(everstep.stochastic_weight_averaging(everstep.lookahead(Adam(0.05), 2), 1, 2), 2)]


@pytest.mark.parametrize("definition, way", harness.each_in_turn(STACKS, ONE_EACH), ids=ids)
def test_state_moves_from_numpy(definition, way):
    """Trains the first half on NumPy in float32, the second half here; in the middle of a period and of a window."""
    state = trained(harness.NUMPY, definition, 5).captured(weights=True)
    run = runs.started(way, definition, START, KINDS)
    run.restored(state, weights=True)
    expected, slots = oracle.trajectory(definition, START, BATCHES)
    actual = runs.stepped(run, BATCHES[5:]).weights()
    assert runs.distance(actual, expected) <= 5e-6
    for name in SHAPES:
        assert runs.distance({slot: run.slot(name, slot) for slot in slots[name]}, slots[name]) <= 5e-6, name


def test_configs_of_each_setting():
    for definition, _, _ in CASES:
        runs.check_config(definition)


CATCH_UP, ROWS = Adam(sparse="catch_up"), Adam(sparse="variable_rows")
test_bad_input = runs.refused([
    (lambda: everstep.moving_average(CATCH_UP, overwrite_every=2), RuleError, 'cannot take sparse="catch_up"'),
    (lambda: everstep.stochastic_weight_averaging(CATCH_UP), RuleError, 'cannot take sparse="catch_up"'),
    (lambda: everstep.moving_average(ROWS), RuleError, '"variable_rows": absent rows never take the values'),
    (lambda: everstep.lookahead(ROWS), RuleError, 'cannot take sparse="variable_rows"'),
    (lambda: everstep.stochastic_weight_averaging(ROWS), RuleError, 'cannot take sparse="variable_rows"'),
    (lambda: everstep.moving_average(Adam(), 1.5), HyperValueError, "average_decay must be at most 1"),
    (lambda: everstep.moving_average(Adam(), warm_up="debias"), HyperValueError, "warm_up must be one of"),
    (lambda: everstep.moving_average(Adam(), start=-1), HyperValueError, "start must be at least 0"),
    (lambda: everstep.moving_average(Adam(), overwrite_every=1.5), HyperTypeError, "takes a whole number"),
    (lambda: everstep.moving_average(np.ones(2)), HyperTypeError, "takes an everstep definition"),
    (lambda: everstep.stochastic_weight_averaging(Adam(), period=0), HyperValueError, "period must be at least 1"),
    (lambda: everstep.lookahead(Adam(), sync_period=0), HyperValueError, "sync_period must be at least 1"),
    (lambda: everstep.lookahead(Adam(), slow_step_size=-0.5), HyperValueError, "slow_step_size must be at least 0"),
    (lambda: everstep.lookahead("adam"), HyperTypeError, "takes an everstep definition"),
])


# Compared with stock implementations


@pytest.mark.parametrize("way", [way for way in WAYS if way.target in ("update_step", "keras3")], ids=ids)
@pytest.mark.parametrize("frequency", [None, 3])
def test_equals_use_ema(way, frequency):
    """Keras 3 starts the average at the value after the first update, new-style Keras at the value before it."""
    start = 1 if way.target == "keras3" else 0
    native = dict(use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=frequency)
    stock = runs.stepped(harness.new_run(way, lambda: way.stock.SGD(0.1, **native), START, KINDS), BATCHES)
    ours = trained(way, everstep.moving_average(SGD(0.1), 0.9, start=start, overwrite_every=frequency or 0))
    assert runs.distance(ours.weights(), stock.weights()) <= 1e-6
    stock.optimizer.finalize_variable_values([stock.variables[name] for name in sorted(SHAPES)])
    everstep.assign_averages(ours.optimizer, ours.variables)
    assert runs.distance(ours.weights(), stock.weights()) <= 1e-6


@pytest.mark.parametrize("way", [way for way in WAYS if way.name == "tf_train resource"], ids=ids)
def test_equals_exponential_moving_average(way):
    """With num_updates, the global step, which is read before it is incremented."""

    class Averaged(way.stock.GradientDescentOptimizer):
        def apply_gradients(self, pairs):
            tf, pairs = harness.graph_mode_tensorflow(), list(pairs)
            step = tf.get_variable("step", initializer=tf.constant(0, tf.int64), trainable=False)
            self.averages = tf.train.ExponentialMovingAverage(0.3, num_updates=step)
            with tf.control_dependencies([super(Averaged, self).apply_gradients(pairs)]):
                average = self.averages.apply([variable for _, variable in pairs])
            with tf.control_dependencies([average]):
                return tf.assign_add(step, 1)

    stock = harness.new_run(way, lambda: Averaged(0.1), START, KINDS)
    runs.stepped(stock, BATCHES)
    actual = averages(trained(way, everstep.moving_average(SGD(0.1), 0.3, "ramp")))
    for name in SHAPES:
        expected = stock.world.read(stock.optimizer.averages.average(stock.variables[name]))
        assert oracle.distance(actual[name], expected) <= 1e-6


def test_equals_averaged_model_of_torch():
    torch = pytest.importorskip("torch")
    swa_utils = torch.optim.swa_utils

    def run(every, **options):
        module = torch.nn.Linear(3, 2).double()
        with torch.no_grad():
            module.weight.fill_(0.5)
        averaged = swa_utils.AveragedModel(module, **options)
        descent = torch.optim.SGD([module.weight], 0.1)
        for step, batch in enumerate(BATCHES, 1):
            module.weight.grad = torch.tensor(batch["kernel"][:2], dtype=torch.float64)
            descent.step()
            if step % every == 0:
                averaged.update_parameters(module)
        return averaged.module.weight.detach().numpy()

    def ours(definition):
        weights = np.full((2, 3), 0.5)
        optimizer = runs.steps(definition, weights, *[batch["kernel"][:2] for batch in BATCHES])
        everstep.assign_averages(optimizer, [weights])
        return weights

    swa = everstep.stochastic_weight_averaging(SGD(0.1), start=2, period=3)
    assert oracle.distance(ours(swa), run(3)) <= 1e-6
    average = everstep.moving_average(SGD(0.1), 0.9, start=1)
    assert oracle.distance(ours(average), run(1, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9))) <= 1e-6
