"""`sparse="catch_up"`: rows take missed steps later, and the run equals the dense one.

tests/test_battery.py runs every definition with it, in every way, against the oracle. This file tests long gaps, rates
that change in between, `flush` and `catch_up`, and definitions that do not support it.
"""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest

import everstep
import harness
import runs
from everstep import optimizers as of
from everstep.errors import DefinitionError, GradientError, RuleError, SlotError, UnsupportedError
from everstep.optimizers import SGD, SGDW, AdaBound, AdagradDecay, Adam, AdamW, Lion, RMSprop
from everstep.optimizers.contract import flat
from everstep.testing import oracle
from test_battery import define, definition_classes, golden, ids, takes

pytestmark = pytest.mark.shared
WAYS = [way for way in harness.all_ways() if way.sparse]
# In eager mode a row that missed 200 steps takes a thousand small operations, so those runs are shorter.
QUICK = [way for way in WAYS if "eager" not in way.name]
SOME = harness.one_of_each_target(WAYS)
ROWS = 40
STEPS, JUMPS = (1500, (400, 1100)) if harness.FULL else (600, (100, 450))  # docs/sparse.md has the figures of all
RECORDED = "catch_up/updates", "catch_up/rows", "catch_up/history", "catch_up/sums"  # slots beside the rule's own


def zipf_batches(steps, rows=ROWS, dtype="float32", seed=3):
    """Returns batches in which rows have frequencies 1, 1/2, 1/3, ...: the last rows come hundreds of steps apart."""
    random = np.random.RandomState(seed)
    chances = 1 / np.arange(1.0, rows + 1) ** 2
    for _ in range(steps):
        indices = random.choice(rows, 4, p=chances / chances.sum()).astype(np.int64)
        yield {"table": (random.normal(0.1, 1, (4, 3)).astype(dtype), indices)}


def start(dtype="float32", rows=ROWS):
    return {"table": np.random.RandomState(4).uniform(0.2, 0.8, (rows, 3)).astype(dtype)}


def train(way, definition, batches, act=None, before=None):
    """Returns the table's (weights, slots) after a run. Calls `act[step](run)` before that step."""
    run = runs.started(way, definition, before or start(), {"table": harness.SPARSE})
    for step, batch in enumerate(batches):
        if act and step in act:
            act[step](run)
        run.step(batch)
    if definition.sparse == "catch_up":
        run.flush()
    names = [name for name in harness.bound(run.optimizer).slot_names(run.variables["table"]) if "catch_up" not in name]
    return run.weights()["table"], {name: run.slot("table", name) for name in names}


def compare(actual, expected):
    """Returns the largest differences (of the variable, of the slots)."""
    slots = [oracle.distance(actual[1][name], expected[1][name]) for name in expected[1]]
    return oracle.distance(actual[0], expected[0]), max(slots or [0])


RATE = everstep.PiecewiseConstantDecay(JUMPS, (0.02, 0.005, 0.01))


@pytest.mark.parametrize("way", QUICK[harness.TURN % len(QUICK) :][:1], ids=ids)
def test_adam_over_many_steps_is_the_dense_run(way):
    """Moments agree within 2e-5 and the variable within 2e-6, with a rate that changes in between."""
    expected = train(way, Adam(RATE), zipf_batches(STEPS))
    actual = train(way, Adam(RATE, sparse="catch_up"), zipf_batches(STEPS))
    variable, moments = compare(actual, expected)
    print("{}: variable {:.1e}, moments {:.1e}".format(way.name, variable, moments))
    assert variable <= 2e-6
    assert moments <= 2e-5
    # `rows` gives another result, so the test is not trivial.
    assert compare(train(way, Adam(RATE, sparse="rows"), zipf_batches(STEPS)), expected)[0] > 1e-2


FORMS = [  # every closed form, without and with its options
    Adam(RATE), Adam(RATE, amsgrad=True), Adam(RATE, beta_1=0.95, beta_2=0.99, epsilon=0.01), AdamW(RATE),
    of.Adamax(RATE), of.Nadam(RATE), of.NadamW(RATE, momentum_schedule=False), of.QHAdam(RATE, nu_1=0.7),
    of.DiffGrad(RATE), of.Tiger(RATE), of.Yogi(RATE), of.ScheduleFreeAdamW(RATE), of.Adadelta(RATE),
    of.Adan(RATE, beta_1=0.9, weight_decay=0.1), of.Adan(RATE, beta_1=0.9, weight_decay=0.1, proximal=False),
    of.ADOPT(RATE), of.ADOPT(RATE, weight_decay=0.1, clip=False),
    of.RAdam(RATE, weight_decay=0.1), of.RAdam(RATE, amsgrad=True, corrected_root=False), SGDW(RATE, momentum=0.9),
    SGD(RATE, momentum=0.9), SGD(RATE, momentum=0.9, nesterov=True, rate_in_velocity=False), of.AddSign(RATE),
    Lion(RATE, weight_decay=0.1), of.Ftrl(RATE, l1=0.1, l2=0.01), RMSprop(RATE, momentum=0.9, centered=True),
    AdagradDecay(RATE, decay_steps=7), of.PowerSign(RATE), of.ProximalAdagrad(RATE),
    everstep.moving_average(Adam(RATE), 0.99), everstep.moving_average(Adam(RATE), 0.99, "ramp"),
    everstep.moving_average(Adam(RATE), 0.9, "zero_debias", start=90), everstep.lookahead(Adam(RATE)),
    everstep.lookahead(SGD(RATE, momentum=0.9)),
    everstep.decoupled_weight_decay(Lion(RATE, weight_decay=0.1), 0.1, times_rate=False),
    everstep.moving_average(everstep.decoupled_weight_decay(SGD(RATE, momentum=0.9), 0.1), 0.95),
    everstep.learning_rate_multipliers(AdamW(RATE), {".": 2.0}),
    everstep.rate_decay(AdamW(RATE), 0.01),
]  # fmt: skip


@runs.numpy_cells
@pytest.mark.parametrize("dtype, bound", [("float64", 1e-8), ("float32", 4e-6)][: 2 if harness.FULL else 1])
@pytest.mark.parametrize("definition", FORMS + [of.Rprop(RATE)], ids=repr)  # one replayed step is all of Rprop's
def test_closed_forms_over_many_steps(definition, dtype, bound):
    """The closed form gives the dense run but for rounding; a row may be absent for the whole run."""
    steps = STEPS if harness.FULL else 150
    expected = train(harness.NUMPY, definition, zipf_batches(steps, dtype=dtype), before=start(dtype))
    definition = definition.replace(sparse="catch_up")
    actual = train(harness.NUMPY, definition, zipf_batches(steps, dtype=dtype), before=start(dtype))
    print("{}, {}: {:.1e} {:.1e}".format(*((definition._short(), dtype) + compare(actual, expected))))
    assert max(compare(actual, expected)) <= bound


def recorded(definition):
    """Returns which slots `catch_up` keeps beside the rule's own: a history where it replays steps."""
    table = start()["table"]
    optimizer = runs.steps(definition.replace(sparse="catch_up"), table, (np.ones((1, 3)), [0]))
    return [name for name in RECORDED if name in harness.bound(optimizer).slot_names(table)]


@runs.numpy_cells
def test_forms_need_no_replayed_steps():
    replaying = [form._short() for form in FORMS if "catch_up/history" in recorded(form)]
    assert len(replaying) == 1 and replaying[0].startswith("MovingAverage(inner=DecoupledWeightDecay"), replaying
    # Too steep for a table: beta_2 far below beta_1.
    assert "catch_up/history" in recorded(Adam(0.1, beta_2=0.5))


@runs.numpy_cells
def test_another_update_does_not_use_the_form():
    """A subclass with its own update replays that update: Adam's form does not know it."""

    class Halved(Adam):
        def update(self, ops, grad, var, slots, hyper, t):
            change, new = super(Halved, self).update(ops, grad, var, slots, hyper, t)
            return change / 2, new

    class Doubled(everstep.Wrapper):
        prefix = "doubled"

        def update(self, ops, grad, var, slots, hyper, t):
            change, new = super(Doubled, self).update(ops, grad, var, slots, hyper, t)
            return change * 2, new

    for definition in (Halved(0.05), Doubled(Adam(0.05))):
        expected = train(harness.NUMPY, definition, zipf_batches(150, dtype="float64"), before=start("float64"))
        definition = definition.replace(sparse="catch_up")
        actual = train(harness.NUMPY, definition, zipf_batches(150, dtype="float64"), before=start("float64"))
        assert max(compare(actual, expected)) <= 1e-9


@pytest.mark.parametrize("way", SOME, ids=ids)
def test_dense_gradients_cost_what_they_cost_in_exact(way):
    """A variable that only ever has dense gradients takes the strategy of `exact`, and nothing is recorded for it."""
    batches = [{"table": np.random.RandomState(seed).normal(0, 1, (ROWS, 3)).astype("float32")} for seed in range(3)]
    plans = []
    for sparse in ("exact", "catch_up"):
        run = runs.trained(way, Adam(0.05, sparse=sparse), start(), {"table": harness.DENSE}, batches)
        plans.append([plan._replace(why="") for plan in run.optimizer.everstep_plan()])
        if sparse == "catch_up" and way.target != "keras3":
            assert not run.slot("table", "catch_up/updates")
    assert plans[0] == plans[1]


@runs.numpy_cells
def test_states_of_an_everstep_with_a_history():
    """Such a state has no table of sums. It is computed from the history."""
    definition, batches = AdamW(RATE, sparse="catch_up"), list(zipf_batches(120, dtype="float64"))
    table = start("float64")["table"]
    optimizer = runs.steps(definition, table, *[batch["table"] for batch in batches[:80]])
    state = everstep.capture(optimizer, {"table": table}, weights=True)
    slots = state.slots["table"]
    names = list(flat(definition, "hyper")) + list(flat(definition, "scalar"))
    history = np.zeros((4096, 1 + len(names)))
    for update in range(80):
        numbers = dict(beta_1=0.9, beta_2=0.999, epsilon=1e-7, weight_decay=0.004)
        values = dict({name: float(np.float32(numbers[name])) for name in numbers}, learning_rate=0.02)
        history[update] = [update + 1] + [values[name] for name in names]
    old = dict(slots, **{"catch_up/history": history})
    del old["catch_up/sums"]
    resumed_table, resumed = np.array(table), definition.bind(np)
    everstep.restore(resumed, state.replace(slots={"table": old}), {"table": resumed_table})
    for batch in batches[80:]:
        optimizer.apply_gradients([(everstep.IndexedSlices(*batch["table"]), table)])
        resumed.apply_gradients([(everstep.IndexedSlices(*batch["table"]), resumed_table)])
    assert np.max(np.abs(np.asarray(slots["catch_up/rows"]) - 80)) > 0  # rows had missed steps
    for each in (optimizer, resumed):
        each.flush()
    assert oracle.distance(resumed_table, table) <= 1e-12
    del old["catch_up/history"]
    with pytest.raises(everstep.errors.StateError, match="flush"):
        everstep.restore(definition.bind(np), state.replace(slots={"table": old}), {"table": np.array(table)})


@pytest.mark.parametrize("way", [way for way in harness.quickest() if way.sparse and way.target != "tf_train"], ids=ids)
def test_missed_steps_are_taken_at_their_own_rate(way):
    """Changes the rate by setting it. On tf_train, where that is not possible, uses a schedule or a placeholder."""
    act = {15: lambda run: run.set_rate(0.001), 45: lambda run: run.set_rate(0.05)}
    for definition in (Adam(0.05), SGD(0.05, momentum=0.9, rate_in_velocity=False)):
        expected = train(way, definition, zipf_batches(60), act)
        actual = train(way, definition.replace(sparse="catch_up"), zipf_batches(60), act)
        assert max(compare(actual, expected)) <= 2e-6


@pytest.mark.parametrize("way", SOME, ids=ids)
def test_the_call_makes_reading_runs_the_dense_run(way):
    """Gradients depend on the rows that are read. With `catch_up` before each read, the run equals the dense one."""

    def train(definition, call):
        run = runs.started(way, definition, start(rows=9), {"table": harness.SPARSE})
        random = np.random.RandomState(5)
        for step in range(40):
            rows = random.choice(9, 3, p=np.array([20, 10, 5, 3, 2, 1, 1, 1, 1]) / 44)
            if call and step:  # before the first step no row has missed one
                run.catch_up("table", np.reshape(np.append(rows, rows[0]), (2, 2)))  # any shape, and repeated rows
            read = run.weights()["table"][rows]
            run.step({"table": ((read - 0.1).astype("float32"), rows.astype(np.int64))})
        if definition.sparse == "catch_up":
            run.flush()
        return run.weights()["table"]

    adam = Adam(0.05)
    expected = train(adam, False)
    assert oracle.distance(train(adam.replace(sparse="catch_up"), True), expected) <= 2e-6
    assert oracle.distance(train(adam.replace(sparse="catch_up"), False), expected) > 1e-3


# A graph has one kind of gradient; eager ways and functions of the same targets can change it.
CHANGING = [way for way in WAYS if not issubclass(way.run, harness.GraphRun) and way.target != "get_updates"]


@pytest.mark.parametrize("way", CHANGING, ids=ids)
def test_dense_and_missing_gradients_between(way):
    """A variable without any gradient takes no step in the dense run either. A dense gradient touches every row."""
    batches, other = list(zipf_batches(40, rows=9)), np.random.RandomState(6)
    for batch in batches:
        batch["other"] = other.normal(0, 1, 2).astype("float32")
    for step in range(5, 40, 7):
        batches[step]["table"] = None
    for step in range(9, 40, 11):
        batches[step]["table"] = other.normal(0, 1, (9, 3)).astype("float32")

    def train(sparse):
        before = dict(start(rows=9), other=np.ones(2, "float32"))
        kinds = {"table": harness.SPARSE, "other": harness.DENSE}
        run = runs.trained(way, Adam(0.05, sparse=sparse), before, kinds, batches)
        run.flush()
        return run.weights()

    assert runs.distance(train("catch_up"), train("exact")) <= 2e-6


@pytest.mark.parametrize("way", SOME, ids=ids)
def test_inside_wrappers(way):
    inner = Adam(0.05, sparse="catch_up")
    for wrap in (lambda inner: everstep.accumulate(inner, 3), lambda inner: everstep.clip(inner, global_norm=0.5),
                 lambda inner: everstep.decoupled_weight_decay(inner, 0.1)):
        # Whole windows only: a flush also applies an open window.
        expected = train(way, wrap(inner.replace(sparse="exact")), zipf_batches(30))
        assert max(compare(train(way, wrap(inner), zipf_batches(30)), expected)) <= 2e-6


@pytest.mark.parametrize("way", SOME, ids=ids)
def test_saved_and_resumed(way):
    """The state holds the steps that rows have missed."""
    definition, batches = Adam(0.05, sparse="catch_up"), list(zipf_batches(30))
    whole = runs.trained(way, definition, start(), {"table": harness.SPARSE}, batches)
    whole.flush()
    expected = whole.weights()  # before another run clears Keras's session
    half = runs.trained(way, definition, start(), {"table": harness.SPARSE}, batches[:16])
    rest = runs.stepped(runs.resumed(half), batches[16:])
    rest.flush()
    assert runs.same(rest.weights(), expected)


def gaps(dtype="float64"):
    """Row 0 comes at every step, the others 300 steps apart."""
    random = np.random.RandomState(7)
    for step in range(500):
        rows = np.arange(6) if step % 300 == 20 else np.zeros(1, int)
        yield {"table": (random.normal(0.1, 1, (len(rows), 3)).astype(dtype), rows)}


POLYNOMIAL = "a polynomial in an epsilon of 0.001, good to 3e-8 of a sum of 300 steps"
# Differences after more than 200 missed steps: (definition, argument, of the variable, of the slots, why).
INEXACT = [
    ("Ftrl", "l2_shrinkage", 1e-2, 2e-3, "the shrinkage goes on for ever, in no closed form"),
    ("Yogi", "l1", 4e-2, 1e-9, "the drawing to 0 goes on for ever, in no closed form"),
    ("ScheduleFreeAdamW", "", 1e-2, 5e-3, "the average goes on for ever, in no closed form"),
    ("Nadam", "epsilon", 5e-7, 1e-9, POLYNOMIAL),
    ("NadamW", "epsilon", 5e-7, 1e-9, POLYNOMIAL),
    ("QHAdam", "epsilon", 5e-7, 1e-9, POLYNOMIAL),
]


def allowed(definition_class, configuration):
    for name, argument, variable, slots, _ in INEXACT:
        if name == definition_class.__name__ and (not argument or argument in configuration):
            return variable, slots
    return getattr(golden(definition_class), "CATCH_UP", (1e-8, 1e-9))


LONG = [(each, configuration) for each in definition_classes()
        for configuration in golden(each).CONFIGURATIONS[-1:] or [{}] if takes(define(each, configuration), "catch_up")]


@runs.numpy_cells
@pytest.mark.parametrize("definition_class, configuration", LONG, ids=ids)
def test_long_gaps(definition_class, configuration):
    way, definition = harness.NUMPY, define(definition_class, configuration)
    with np.errstate(all="ignore"):  # epsilon may be 0
        expected = train(way, definition, gaps(), before=start("float64", 6))
        actual = train(way, definition.replace(sparse="catch_up"), gaps(), before=start("float64", 6))
    variable, slots = compare(actual, expected)
    print("{} {}: variable {:.1e}, slots {:.1e}".format(definition_class.__name__, configuration, variable, slots))
    most = allowed(definition_class, configuration)
    raised = "if the closed form cannot be closer, say so by CATCH_UP = (variable, slots) in its golden file"
    assert variable <= most[0], raised
    assert slots <= most[1], raised


def test_how_rows_catch_up():
    """A beta_2 far below beta_1 is too steep for a table, so that Adam replays: 200 updates, as docs/sparse.md says."""
    for beta_2, how in ((0.5, "up to 200 replayed updates"), (0.999, "a closed form")):
        optimizer, table = Adam(0.1, beta_2=beta_2, sparse="catch_up").bind(np), np.zeros((2, 1))
        optimizer.apply_gradients([(everstep.IndexedSlices(np.ones((1, 1)), [0]), table)])
        assert optimizer.everstep_plan()[0].why.endswith("rows catch up by " + how)


def test_closed_forms_by_hand():
    """Gradients 1 in updates 1 and 4 with momentum 0.5: those of updates 2 and 3 are taken by one sum."""
    for nesterov, expected in ((False, -2.875), (True, -3.4375)):
        table = np.zeros((2, 1))
        rule = SGD(1.0, momentum=0.5, nesterov=nesterov, rate_in_velocity=True, sparse="catch_up")
        assert rule.max_replay_steps == 0
        runs.steps(rule, table, *[(np.ones((1, 1)), [row]) for row in (0, 1, 1, 0)])
        assert table[0, 0] == expected


def test_missed_decays_of_adagrad_by_hand():
    """A row of gradients 4 and 1 in updates 1 and 4: its accumulator is 1 + 16, then 17 * 0.5^3 + 1."""
    table = np.zeros((2, 1))
    rule = AdagradDecay(0.5, decay_rate=0.5, decay_steps=1, initial_accumulator_value=1.0, sparse="rows")
    grads = ((0, 4.0), (1, 1.0), (1, 1.0), (0, 1.0))
    runs.steps(rule, table, *[(np.full((1, 1), grad), [row]) for row, grad in grads])
    assert abs(table[0, 0] + 2 / np.sqrt(17.0) + 0.5 / np.sqrt(3.125)) < 1e-12


@runs.numpy_cells
def test_longer_than_the_history(monkeypatch):
    """Constants and everstep schedules are known at any past step. A rate that was set is kept for LENGTH updates."""
    harness.shrink(monkeypatch, LENGTH=50)
    way, rule = harness.NUMPY, AdaBound(0.05)  # which replays steps
    for rate in (0.05, everstep.ExponentialDecay(0.05, 100, 0.5)):
        expected = train(way, rule.replace(learning_rate=rate), gaps(), before=start("float64", 6))
        actual = train(way, rule.replace(learning_rate=rate, sparse="catch_up"), gaps(), before=start("float64", 6))
        assert max(compare(actual, expected)) <= 1e-8
    act = {30: lambda run: run.set_rate(0.001), 280: lambda run: run.set_rate(0.05)}
    expected = train(way, rule, gaps(), act, start("float64", 6))
    assert compare(train(way, rule.replace(sparse="catch_up"), gaps(), act, start("float64", 6)), expected)[0] > 1e-4


@runs.numpy_cells
@pytest.mark.parametrize("reach", ["recent", "blocks", "gone"])
def test_longer_than_the_table(monkeypatch, reach):
    """Constant hypers are exact at any age, without a bias correction. Else as far as the table keeps the updates."""
    recent = 512 if reach == "recent" else 1  # at least 220, Adam's window
    harness.shrink(monkeypatch, RECENT=recent, BLOCK=4, FIRST=8, BLOCKS=128 if reach == "blocks" else 2)
    way = harness.NUMPY
    schedule = everstep.ExponentialDecay(0.05, 100, 0.5)
    bounds = {"recent": 1e-9, "blocks": 1e-3, "gone": 0.7}
    for rate, bound in ((0.05, 1e-9), (schedule, bounds[reach])):
        rules = [SGDW(rate, momentum=0.9, rate_in_velocity=False), Lion(rate, weight_decay=0.1)]
        for rule in rules + ([] if bound == 1e-9 and reach != "recent" else [AdamW(rate)]):
            expected = train(way, rule, gaps(), before=start("float64", 6))
            actual = train(way, rule.replace(sparse="catch_up"), gaps(), before=start("float64", 6))
            assert max(compare(actual, expected)) <= bound, rule


class Counted(np.ndarray):
    """An array that counts the elements that are read and written."""

    moved = 0

    def __getitem__(self, place):
        part = super(Counted, self).__getitem__(place)
        Counted.moved += np.size(part)
        return np.asarray(part)

    def __setitem__(self, place, value):
        Counted.moved += np.size(value)
        super(Counted, self).__setitem__(place, value)


def test_cost_is_flat_in_table_rows():
    """The elements read and written per step do not grow with the table. docs/sparse.md has the times."""
    moved = []
    for rows in (100, 10000):
        table = np.ones((rows, 3), "float32").view(Counted)
        optimizer = runs.steps(Adam(0.05, sparse="catch_up"), table, (np.ones((4, 3)), [1, 2, 3, 3]))
        Counted.moved = 0
        for batch in zipf_batches(20):
            optimizer.apply_gradients([(everstep.IndexedSlices(*batch["table"]), table)])
        moved.append(Counted.moved)
    assert moved[0] == moved[1] > 0


def test_definitions_that_refuse_catch_up():
    refused = set()
    for each in definition_classes():
        try:
            define(each, {}, sparse="catch_up")
        except (DefinitionError, RuleError) as error:
            only_exact = each.refresh_methods or each.stages > 1
            assert ('takes only sparse="exact"' if only_exact else 'Use sparse="exact" or "rows"') in str(error)
            refused.add(each.__name__)
    expected = {each.__name__ for each in definition_classes()
                if each.refresh_methods or each.stages > 1 or getattr(golden(each), "CATCH_UP", ()) is None}
    assert refused == expected and len(expected) >= 5

    class Counting(everstep.Definition):
        learning_rate = everstep.hyper(0.1)
        seen = everstep.slot(shape=())

        def update(self, ops, grad, var, slots, hyper, t):
            return hyper.learning_rate * grad, {"seen": slots.seen + 1}

    with pytest.raises(RuleError, match="its slot seen has no rows"):
        Counting(sparse="catch_up")


@pytest.mark.parametrize("way", WAYS, ids=ids)
def test_flush_and_catch_up_without_missed_steps(way):
    """Every optimizer has both calls, so that model code need not know the sparse mode."""
    run = runs.started(way, Adam(0.05), start(), {"table": harness.SPARSE})
    before = run.weights()
    run.flush()
    run.catch_up("table", [[0, 1]])
    assert runs.same(run.weights(), before)


def test_bad_calls():
    table, optimizer = start()["table"], Adam(0.05, sparse="catch_up").bind(np)
    with pytest.raises(SlotError, match="has no slot"):
        optimizer.catch_up(table, [0])
    optimizer.apply_gradients([(everstep.IndexedSlices(np.ones((1, 3)), [2]), table)])
    before = table.copy()
    for rows, message in (([1.5], "row numbers"), ([40], "no row 40"), ([-1], "no row -1")):
        with pytest.raises(GradientError, match=message):
            optimizer.catch_up(table, rows)
    assert np.array_equal(table, before)


@pytest.mark.parametrize("way", [way for way in harness.all_ways() if way.target in ("update_step", "keras3")], ids=ids)
def test_the_native_weight_decay_is_refused(way):
    definition = RMSprop(0.1, sparse="catch_up", dense_ok=True)
    with pytest.raises(UnsupportedError, match="decoupled_weight_decay"):
        definition.bind(way.module, weight_decay=0.1)


@pytest.mark.parametrize("way", [way for way in harness.all_ways() if not way.sparse], ids=ids)
def test_where_gradients_are_dense(way):
    with pytest.raises(UnsupportedError, match="dense_ok"):
        Adam(sparse="catch_up").bind(way.module)
    definition = Adam(0.1, sparse="catch_up", dense_ok=True)
    run = runs.trained(way, definition, start(), {"table": harness.SPARSE}, zipf_batches(3))
    assert run.optimizer.flush() is None
    assert not [name for name in harness.bound(run.optimizer).slot_names(run.variables["table"]) if "catch_up" in name]
