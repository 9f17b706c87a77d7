"""capture and restore, on every target of this environment."""

from __future__ import absolute_import, division, print_function

import importlib
import sys

import numpy as np
import pytest

import everstep
import harness
import runs
import test_wrappers_average as averages
from crafted_files import optional
from crafted_files import tf1 as tf
from everstep import errors
from everstep.compat.checkpoints import live
from everstep.optimizers import SGD, Adam, AdamW, DiffGrad, Ftrl, Nadam, RMSprop
from everstep.testing import oracle
from everstep.testing.training import make_batches, start_values
from harness import in_graphs, ways_where
from small_model import IDS, TARGETS, build
from test_battery import ids

resource = optional("resource")

pytestmark = pytest.mark.shared
HALF = 22  # the run ends in the middle of a window of 4
SHAPES = {"dense": (4, 3), "bias": (3,), "single": (), "table": (6, 3)}
KINDS = dict({name: harness.DENSE for name in SHAPES}, table=harness.SPARSE)
DEFINITIONS = {
    "SGD momentum": SGD(0.05, momentum=0.9),
    "RMSprop centered": RMSprop(0.01, centered=True),
    "Adam amsgrad": Adam(0.02, amsgrad=True),
    "Ftrl": Ftrl(0.5, l1=0.01),
    "DiffGrad": DiffGrad(0.02),
    "accumulate(Adam)": everstep.accumulate(Adam(0.05), 4),
    "accumulate(SGD)": everstep.accumulate(SGD(0.2), 4),  # remembers rows
    "accumulate(Nadam)": everstep.accumulate(Nadam(0.05), 4),  # has a scalar
}


BATCHES = make_batches("float32", 2 * HALF, SHAPES, KINDS)


def new_run(way, definition, start=None, kinds=KINDS, batches=(), **native):
    start = start or start_values("float32", SHAPES)
    return harness.new_run(way, lambda: definition.bind(way.module, **native), start, kinds, batches)


def train(run, batches):
    for batch in batches:
        run.step(batch)


def values(run):
    """Returns every number of a run: those of a State with the weights."""
    state = run.captured(weights=True)
    return harness.arrays_of(state), (state.updates, state.steps, state.pending, state.scalars)


def check_equal(actual, expected):
    """Compares the values of two runs, bit by bit."""
    assert actual[1] == expected[1] and set(actual[0]) == set(expected[0])
    assert [key for key in actual[0] if actual[0][key].tobytes() != expected[0][key].tobytes()] == []


RUNS = {}


def uninterrupted(way, name):
    """Returns (state halfway, values at the end) of an uninterrupted run. Computes each way and definition once."""
    if (way.name, name) not in RUNS:
        run = trained(way, DEFINITIONS[name], HALF)
        state = run.captured(weights=True)
        train(run, BATCHES[HALF:])
        RUNS[way.name, name] = state, values(run)
    return RUNS[way.name, name]


def fresh(way, definition):
    """Returns a run that is built and has trained a little from other values."""
    return new_run(way, definition, start_values("float32", SHAPES, (1.2, 1.8)), batches=BATCHES[:3])


def trained(way, definition, steps=3, **native):
    return new_run(way, definition, batches=BATCHES[:steps], **native)


def unbuilt(way, definition):
    """Returns a run with a new optimizer that has no variables yet; `begin` completes it."""
    run = new_run(way, definition)
    run.optimizer = run.make()
    return run


def check_second_half(run, expected, exact):
    train(run, BATCHES[HALF:])
    actual, counts = values(run)
    if exact:
        check_equal((actual, counts), expected)
    assert counts[:3] == expected[1][:3] and set(actual) == set(expected[0])
    for key in actual:
        if "touched" not in str(key):  # without sparse gradients a backend cannot tell which rows were touched
            assert oracle.distance(actual[key], expected[0][key]) <= 1e-5, key


def cases():
    """Yields a third of the definitions for the fastest way of each target, and a sixth for the other ways."""
    for place, way in enumerate(harness.all_ways(), harness.TURN):
        for turn, name in enumerate(sorted(DEFINITIONS), place):
            if turn % 3 == 0 and (way in harness.quickest() or turn % 2 == 0):
                yield way, name


@pytest.mark.parametrize("way, name", list(cases()), ids=lambda given: getattr(given, "name", given))
def test_two_halves_on_two_apis_equal_the_whole_run(way, name, tmpdir):
    """On the same API the result is exact, bit for bit. From each other API the state goes through a file."""
    others = [other for other in harness.quickest() if other.target != way.target]
    others = others if way in harness.quickest() else []
    known = [(source, uninterrupted(source, name)) for source in [way] + others]  # Keras clears its session
    run = fresh(way, DEFINITIONS[name])
    for source, (state, expected) in known:
        state.save(str(tmpdir.join("state.npz")))
        run.restored(everstep.State.load(str(tmpdir.join("state.npz"))), weights=True)
        check_second_half(run, expected, exact=source is way)


@ways_where(lambda way: way.name not in ("tf_train ref", "tf_train resource"))
def test_a_restore_before_anything_is_built(way):
    state, expected = uninterrupted(way, "accumulate(Nadam)")
    run = unbuilt(way, DEFINITIONS["accumulate(Nadam)"])
    with run.inside():
        first = run.captured()
        assert (first.updates, first.pending) == (0, 0) and not np.any(first.slots["dense"]["m"])
        run.restored(state, weights=True)
        run.begin()
    check_second_half(run, expected, exact=True)


def quick(*targets):
    chosen = [way for way in harness.quickest() if not targets or way.target in targets]
    return pytest.mark.parametrize("way", chosen, ids=harness.way_name)


MISSING = Adam(0.05, sparse="catch_up")


def rows_that_come_and_go():
    """Returns gradients of the table's rows 0 and 1 for ten steps, then of rows 2 and 3, then of rows 4 and 5."""
    batches = [dict(batch) for batch in BATCHES[:30]]
    for step, batch in enumerate(batches):
        batch["table"] = batch["table"][0][:2], np.array([0, 1], "int64") + 2 * (step // 10)
    return batches


@quick()
def test_missed_steps_of_rows_are_part_of_the_state(way):
    """Runs 15 steps, in which rows miss some, then 15 here or on another target: equal to 30 steps, and to `exact`."""
    definition = MISSING if way.sparse else MISSING.replace(dense_ok=True)
    batches = rows_that_come_and_go()
    run = new_run(way, definition, batches=batches[:15])
    state = run.captured(weights=True)
    if way.sparse:
        assert state.slots["table"]["catch_up/rows"].ravel().tolist() == [10, 10, 15, 15, 0, 0]
    run.flush()
    flushed = run.captured(weights=True)
    train(run, batches[15:])
    run.flush()
    expected = run.weights()
    each = harness.quickest()
    for other in {way, each[each.index(way) - 1]}:
        ended = trained(other, definition.replace(dense_ok=not other.sparse), 0)
        if way.sparse and not other.sparse:
            with pytest.raises(errors.StateError, match="table: the state has rows .*flush"):
                ended.restored(state, weights=True)
        ended.restored(state if other.sparse else flushed, weights=True)
        if other is way:
            ended.flush()
        train(ended, batches[15:])
        ended.flush()
        weights = ended.weights()
        for name in SHAPES:
            assert oracle.distance(weights[name], expected[name]) <= (0 if other is way else 2e-6), (other.name, name)
    exact = new_run(way, Adam(0.05), batches=batches)
    assert all(oracle.distance(expected[name], value) <= 2e-6 for name, value in exact.weights().items())


@quick()
def test_catch_up_slots_are_not_needed_without_missed_steps(way):
    """Changes to `catch_up` and back. When no row has missed a step, its slots are not needed."""
    if not way.sparse:
        return  # gradients of this API have all rows
    run = trained(way, Adam(0.05), 12)
    expected = run.weights()
    run = trained(way, Adam(0.05))
    state = run.captured(weights=True)
    run = trained(way, MISSING, 5)
    run.restored(state, weights=True)
    train(run, BATCHES[3:9])
    run.flush()
    state = run.captured(weights=True)
    run = trained(way, Adam(0.05), 5)
    run.restored(state, weights=True)
    train(run, BATCHES[9:12])
    assert all(oracle.distance(value, expected[name]) <= 2e-6 for name, value in run.weights().items())
    state.slots["table"]["catch_up/rows"][2] -= 1
    with pytest.raises(errors.StateError, match="yet to take"):
        run.restored(state)


# Failures

BROKEN = {"a slot less": lambda state: state.slots["dense"].pop("v"),
          "another shape in the last variable": lambda state: state.slots["table"].update(v=np.zeros((6, 4))),
          "another variable": lambda state: state.slots.update(other=state.slots.pop("bias")),
          "a count less": lambda state: vars(state).update(steps=None),
          "numbers that float32 has not": lambda state: state.slots["table"].update(v=np.full((6, 3), 0.1)),
          "of another optimizer": lambda state: state.definition["inner"].update(definition="AdamW"),
          "no hypers": lambda state: state.definition["inner"].pop("beta_1"),
          "weights of another shape": lambda state: state.variables.update(table=np.zeros((5, 3)))}


@quick()
def test_a_restore_that_fails_changes_nothing(way):
    definition = everstep.accumulate(Adam(0.02), 4)
    other = trained(way, definition, 5)
    states = []
    hypers = way.target != "tf_train"  # on tf_train hypers cannot be set
    for name in sorted(BROKEN) if hypers else sorted(set(BROKEN) - {"no hypers"}):
        state = other.captured(weights=True)
        BROKEN[name](state)
        states.append(state)
    run = trained(way, definition)
    before = values(run)
    for state in states + ["no state"]:
        with pytest.raises(errors.StateError):
            run.restored(state, weights=True, hypers=hypers)
        check_equal(values(run), before)


@quick()
def test_a_damaged_file_changes_nothing(way, tmpdir):
    other = trained(way, Adam(0.02), 5)
    other.captured(weights=True).save(str(tmpdir.join("state")))
    content = bytearray(tmpdir.join("state").read_binary())
    content[-1500] ^= 1  # in the last array, which is read last
    tmpdir.join("state").write_binary(bytes(content))
    run = trained(way, Adam(0.02))
    before = values(run)
    with pytest.raises(errors.FileError, match="damaged"):
        run.restored(everstep.State.load(str(tmpdir.join("state"))), weights=True)
    check_equal(values(run), before)


@quick("update_step", "keras3")
def test_averages_are_not_lost_without_a_word(way):
    run = trained(way, Adam(0.02), use_ema=True)
    with pytest.raises(errors.StateError, match="use_ema keeps averages"):
        run.captured()


@quick("keras3")
def test_sums_of_keras_are_not_lost_without_a_word(way):
    run = trained(way, Adam(0.02), 1, gradient_accumulation_steps=2)
    with pytest.raises(errors.StateError, match="in the middle"):
        run.captured()
    run.step(BATCHES[1])
    state = run.captured(weights=True)
    assert (state.updates, state.steps) == (1, None)
    train(run, BATCHES[2:6])
    expected = values(run)
    assert expected[1][0] == 3
    other = trained(way, Adam(0.02), gradient_accumulation_steps=2)
    with pytest.raises(errors.StateError, match="in the middle"):
        other.restored(state)
    other.step(BATCHES[3])
    other.restored(state, weights=True)
    train(other, BATCHES[2:6])
    check_equal(values(other), expected)


def test_a_variable_that_is_not_given():
    for way in harness.quickest():
        run = trained(way, Adam(0.02))
        with pytest.raises(errors.StateError, match="has slots of .* too; give all variables"):
            everstep.capture(run.optimizer, {"dense": run.variables["dense"]}, session=getattr(run, "session", None))


# Hypers, names, variables


@quick()
def test_hypers_as_they_are_now(way):
    if way.target == "tf_train":
        run = trained(way, Adam(0.25))
        assert run.captured().definition["learning_rate"] == 0.25
        with pytest.raises(errors.StateError, match="cannot be set: on tf_train they are constants"):
            run.restored(run.captured(), hypers=True)
        return
    run = trained(way, Adam(0.02))
    run.set_rate(0.3)
    state = run.captured()
    assert everstep.Definition.from_config(state.definition) == Adam(0.3)
    other = trained(way, Adam(0.02, beta_1=0.8))
    other.restored(state)
    definition = other.captured().definition
    assert (definition["learning_rate"], definition["beta_1"]) == (0.02, 0.8)
    other.restored(state, hypers=True)
    definition = other.captured().definition
    assert (definition["learning_rate"], definition["beta_1"]) == (0.3, 0.9)


@quick()
def test_a_schedule_is_kept(way):
    definition = Adam(everstep.ExponentialDecay(0.1, decay_steps=10, rate=0.5))
    run = trained(way, definition)
    assert everstep.Definition.from_config(run.captured().definition) == definition


@quick()
def test_a_list_is_called_by_the_names_of_its_variables(way):
    run = trained(way, Adam(0.02))
    state = everstep.capture(run.optimizer, list(run.variables.values()), session=getattr(run, "session", None))
    if way.target == "arrays":
        assert list(state.slots) == ["0", "1", "2", "3"]
    else:
        assert set(state.slots) == set(SHAPES) or way.target == "get_updates"  # K.variable numbers repeated names
        assert not any(":" in name for name in state.slots)


@quick()
def test_a_variable_that_never_had_a_gradient(way):
    """tf.train creates slots only for variables with gradients, other APIs for all. The state is the same."""
    kinds = dict(KINDS, bias=harness.NONE)
    run = new_run(way, Adam(0.02), kinds=kinds, batches=[dict(batch, bias=None) for batch in BATCHES[:3]])
    state = run.captured()
    assert list(state.slots["bias"]) == ["m", "v"] and not np.any(state.slots["bias"]["m"])
    run.restored(state)
    if way.target == "tf_train":
        state.slots["bias"]["m"] = np.ones(3, "float32")
        with pytest.raises(errors.StateError, match="bias/m: Adam has no such slot yet"):
            run.restored(state)


def test_several_optimizers_of_one_model():
    for way in harness.quickest():
        if way.target in ("get_updates", "tf_train"):
            continue  # a run on those APIs has one train function
        run, other = trained(way, Adam(0.02)), trained(way, SGD(0.02, momentum=0.9))
        state = other.captured()
        assert list(state.slots["dense"]) == ["velocity"] and list(run.captured().slots["dense"]) == ["m", "v"]
        with pytest.raises(errors.StateError, match="is of SGD, this optimizer is Adam"):
            run.restored(state)
        with pytest.raises(errors.StateError, match="slots of .*; Adam needs m, v"):
            run.restored(state, other_definition=True)


@quick()
def test_a_state_of_another_definition_by_choice(way):
    run = trained(way, Adam(0.02), 5)
    state = run.captured()
    other = trained(way, AdamW(0.02))
    with pytest.raises(errors.StateError, match="is of Adam, this optimizer is AdamW"):
        other.restored(state)
    other.restored(state, other_definition=True)
    assert other.captured().updates == 5
    assert (other.captured().slots["dense"]["v"] == state.slots["dense"]["v"]).all()


def dtypes_of_ways():
    for way in harness.quickest():
        yield way, "float16"
        if "jax" not in way.name:  # JAX has float64 only when enabled
            yield way, "float64"
        if way.target in ("update_step", "keras3") and "torch" not in way.name:
            yield way, "bfloat16"


def numpy_dtype(name):
    if name != "bfloat16":
        return np.dtype(name)
    tf = sys.modules.get("tensorflow")  # TF 2.11 has its own; JAX and TF 2.15 use ml_dtypes
    return np.dtype(tf.bfloat16.as_numpy_dtype if tf else importlib.import_module("ml_dtypes").bfloat16)


@pytest.mark.parametrize("way, dtype", list(dtypes_of_ways()), ids=lambda given: getattr(given, "name", given))
def test_variables_of_other_dtypes(way, dtype, tmpdir):
    start = {"w": np.asarray([[1.5, -2.0], [0.25, 3.0]], numpy_dtype(dtype))}
    grad = np.asarray([[0.5, 1.0], [2.0, -4.0]], numpy_dtype(dtype))
    run = way.run(lambda: SGD(0.5, momentum=0.5).bind(way.module), start, {"w": harness.DENSE})
    run.step({"w": grad})
    state = run.captured(weights=True)
    assert state.slots["w"]["velocity"].dtype == ("float64" if dtype == "float64" else "float32")
    assert state.variables["w"].dtype == ("float32" if dtype == "bfloat16" else dtype)
    assert state.variables["w"].tolist() == [[1.25, -2.5], [-0.75, 5.0]]
    state.save(str(tmpdir.join("state")))
    run.step({"w": grad})
    run.restored(everstep.State.load(str(tmpdir.join("state"))), weights=True)
    again = run.captured(weights=True)
    assert (again.variables["w"] == state.variables["w"]).all()
    assert (again.slots["w"]["velocity"] == state.slots["w"]["velocity"]).all()
    if dtype == "bfloat16":
        state.variables["w"][0, 0] = 1.001
        with pytest.raises(errors.StateError, match="float32 values that bfloat16 does not hold"):
            run.restored(state, weights=True)


# Graphs


@ways_where(in_graphs)
def test_sessions(way):
    run = trained(way, Adam(0.02))
    optimizer, variables = run.optimizer, run.variables
    with pytest.raises(errors.StateError, match="give session="):
        everstep.capture(optimizer, variables)
    state = run.captured()
    with run.session.as_default():
        assert (everstep.capture(optimizer, variables).slots["dense"]["m"] == state.slots["dense"]["m"]).all()
        everstep.restore(optimizer, state, variables)
    with tf.Session(graph=tf.Graph()) as other, pytest.raises(errors.StateError, match="is not a session of the graph"):
        everstep.capture(optimizer, variables, session=other)
    with tf.Session(graph=run.graph) as other, pytest.raises(errors.StateError, match="has no value"):
        everstep.capture(optimizer, variables, session=other)
    operations = len(run.graph.get_operations())
    run.graph.finalize()
    run.captured(weights=True)
    run.restored(state)
    assert len(run.graph.get_operations()) == operations
    run.close()
    with pytest.raises(errors.StateError, match="has no value"):
        run.captured()


@quick("tf_train")
def test_tf_train_has_no_slots_before_minimize(way):
    run = trained(way, Adam(0.02))
    state = run.captured()
    run.optimizer = Adam(0.02).bind(way.module)
    assert run.captured().updates == 0 and not np.any(run.captured().slots["dense"]["v"])
    with pytest.raises(errors.StateError, match="call minimize or apply_gradients before"):
        run.restored(state)


@quick("tf_train")
def test_a_monitored_session(way):
    with tf.Graph().as_default():
        weights = tf.get_variable("w", initializer=tf.constant([1.0, 2.0]))
        optimizer = Adam(0.1).bind(way.module)
        step = tf.train.get_or_create_global_step()
        train_op = optimizer.minimize(tf.reduce_sum(weights * weights), step)
        with tf.train.MonitoredTrainingSession(hooks=[tf.train.StopAtStepHook(last_step=3)]) as session:
            session.run(train_op)
            session.run(train_op)
            state = everstep.capture(optimizer, [weights], session=session)
            everstep.restore(optimizer, state, [weights], session=session)
            assert state.updates == 2 and list(state.slots) == ["w"]
            session.run(train_op)
            assert session.should_stop()


@quick("tf_train")
def test_a_rule_that_counts_goes_by_its_own_count(way):
    for definition, expected in ((Adam(0.1), 2), (SGD(0.1), 7)):
        with tf.Graph().as_default(), tf.Session() as session:
            weights = tf.get_variable("w", initializer=tf.constant([1.0, 2.0]))
            optimizer, step = definition.bind(way.module), tf.train.get_or_create_global_step()
            train_op = optimizer.minimize(tf.reduce_sum(weights * weights))
            session.run(tf.global_variables_initializer())
            session.run([train_op, step.assign(7)])
            session.run(train_op)
            assert everstep.capture(optimizer, [weights], session=session).updates == expected


class Rows(Adam):
    """A rule with a slot of one number for each row, and one of one number for each variable."""

    locality = "row"
    rows = everstep.slot(shape="row")
    count = everstep.slot(shape=())

    def update(self, ops, grad, var, slots, hyper, t):
        change, new = super(Rows, self).update(ops, grad, var, slots, hyper, t)
        return change, dict(new, count=slots.count + 1, rows=slots.rows + ops.mean(grad * grad, 1, keepdims=True))


def partitioned(way, definition, parts, axis=0, steps=3):
    """Returns (optimizer, partitioned variable, or plain one without `parts`, session) after some steps."""
    graph, random = tf.Graph(), np.random.RandomState(4)
    with graph.as_default():
        partitioner = tf.fixed_size_partitioner(parts, axis) if parts else None
        start = tf.constant_initializer(0.5)
        with tf.variable_scope("net", partitioner=partitioner):
            variable = tf.get_variable("w", (5, 4), initializer=start)
        optimizer = definition.bind(way.module)
        aim = tf.placeholder("float32", (5, 4))
        loss = tf.reduce_sum((tf.convert_to_tensor(variable) - aim) ** 2)
        train_op = optimizer.minimize(loss)
        session = tf.Session(graph=graph)
        harness.open_runs.append(session)
        session.run(tf.global_variables_initializer())
        for _ in range(steps):
            session.run(train_op, {aim: random.randn(5, 4)})
    return optimizer, variable, session, lambda aims: [session.run(train_op, {aim: given}) for given in aims]


@pytest.mark.parametrize("axis", [0, 1])
@quick("tf_train")
def test_a_partitioned_variable_is_joined_and_cut_again(way, axis, tmpdir):
    definition, aims = Adam(0.1, amsgrad=True), np.random.RandomState(5).randn(3, 5, 4)
    states = []
    for parts in (3, None):
        optimizer, variable, session, _ = partitioned(way, definition, parts, axis)
        states.append(everstep.capture(optimizer, [variable], session=session, weights=True))
        if parts:
            other = everstep.capture(optimizer, list(variable), session=session, weights=True)
            named = everstep.capture(optimizer, {"net/w": list(variable)}, session=session, weights=True)
            assert other.variables["net/w"].tolist() == named.variables["net/w"].tolist()
            with pytest.raises(errors.VariableError, match="only some parts of net/w"):
                everstep.capture(optimizer, list(variable)[:2], session=session)
    joined, plain = states
    assert list(joined.slots) == ["net/w"] and joined.variables["net/w"].shape == (5, 4)
    for slot, array in plain.slots["net/w"].items():
        assert oracle.distance(joined.slots["net/w"][slot], array) <= 1e-6
    joined.save(str(tmpdir.join("state")))
    state, ends = everstep.State.load(str(tmpdir.join("state"))), []
    for parts in (3, 2, None):
        optimizer, variable, session, step = partitioned(way, definition, parts, axis, steps=1)
        everstep.restore(optimizer, state, [variable], session=session, weights=True)
        step(aims)
        ends.append(everstep.capture(optimizer, [variable], session=session, weights=True))
    for end in ends[1:]:
        assert oracle.distance(end.variables["net/w"], ends[0].variables["net/w"]) <= 1e-6
        assert oracle.distance(end.slots["net/w"]["v_hat"], ends[0].slots["net/w"]["v_hat"]) <= 1e-6


@quick("tf_train")
def test_slots_that_lie_otherwise_than_their_parts(way):
    optimizer, variable, session, _ = partitioned(way, Rows(0.1), 3)
    state = everstep.capture(optimizer, [variable], session=session)
    assert state.slots["net/w"]["rows"].shape[0] == 5 and state.slots["net/w"]["count"] == 3
    everstep.restore(optimizer, state, [variable], session=session)
    part = list(variable)[1]
    with session.graph.as_default():
        optimizer.get_slot(part, "count").load(7.0, session)
    with pytest.raises(errors.StateError, match="net/w/count: each part"):
        everstep.capture(optimizer, [variable], session=session)
    optimizer, variable, session, _ = partitioned(way, Rows(0.1), 2, axis=1)
    with pytest.raises(errors.StateError, match="net/w/rows: each part"):
        everstep.capture(optimizer, [variable], session=session)


# Models, functions, strategies


@pytest.mark.filterwarnings("ignore:Converting sparse IndexedSlices:UserWarning")
@quick("get_updates", "optimizer_v2", "update_step", "keras3")
@pytest.mark.parametrize("first", ["fresh", "trained"])
def test_a_keras_model_goes_on(way, first, tmpdir):
    keras, path = keras_of(way), str(tmpdir.join("state"))
    harness.clear_session(keras) if way.target == "get_updates" else None

    def fit(steps, model=None):
        model = model or build(keras, Adam(0.05).bind(way.module))
        for _ in range(steps):
            model.train_on_batch(IDS, TARGETS)
        return model

    def variables(model):
        return dict(zip(["embeddings", "kernel"], model.trainable_weights))

    model = fit(5)
    everstep.capture(model.optimizer, variables(model), weights=True).save(path)
    fit(5, model)
    other = fit(0 if first == "fresh" else 2)
    everstep.restore(other.optimizer, everstep.State.load(path), variables(other), weights=True)
    fit(5, other)
    for actual, weight in zip(other.get_weights(), model.get_weights()):
        assert actual.tobytes() == weight.tobytes()


def keras_of(way):
    if way.target == "keras3":
        return importlib.import_module("keras")
    if way.target == "optimizer_v2" and way.module.__name__.startswith("tf_keras"):
        return importlib.import_module("tf_keras")
    if way.target == "optimizer_v2" and "legacy" in way.module.__name__:
        return sys.modules["tensorflow"].keras
    return way.module


@quick("optimizer_v2", "update_step")
def test_inside_of_a_function(way):
    if in_graphs(way):
        pytest.skip("TF 1 has no functions: https://www.tensorflow.org/api_docs/python/tf/function")
    run = trained(way, Adam(0.02))
    with pytest.raises(errors.StateError, match="not inside of a tf.function"):
        run.tf.function(lambda: run.captured() and None, autograph=False)()


@pytest.mark.filterwarnings("ignore:unclosed running multiprocessing pool")
@quick("optimizer_v2", "update_step", "keras3")
def test_under_a_strategy_of_one_replica(way):
    if in_graphs(way) or "tensorflow" not in way.name and way.target == "keras3":
        pytest.skip("strategies are TensorFlow's, from 2.0 on: https://www.tensorflow.org/guide/distributed_training")
    import tensorflow as tf

    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    run = getattr(strategy, "run", None) or strategy.experimental_run_v2  # before TF 2.2
    grads = [np.random.RandomState(number).randn(3).astype("float32") for number in range(6)]

    def step(grad, variable, optimizer):
        optimizer.apply_gradients([(grad, variable)])

    def new(grads):
        """Returns (a variable, its optimizer) after these steps."""
        with strategy.scope():
            make = keras_of(way).Variable if way.target == "keras3" else tf.Variable
            variable, optimizer = make(np.ones(3, "float32"), name="w"), Adam(0.1).bind(way.module)
        return go_on(variable, optimizer, grads)

    def go_on(variable, optimizer, grads):
        for grad in grads:
            run(step, (tf.constant(grad), variable, optimizer))
        return variable, optimizer

    whole, _ = new(grads)
    variable, optimizer = new(grads[:3])
    state = everstep.capture(optimizer, {"w": variable}, weights=True)
    for steps in (0, 2):
        variable, optimizer = new(grads[:steps])
        with strategy.scope():
            everstep.restore(optimizer, state, {"w": variable}, weights=True)
        go_on(variable, optimizer, grads[3:])
        assert variable.numpy().tobytes() == whole.numpy().tobytes()


@pytest.mark.parametrize("way", runs.WAYS, ids=ids)
@pytest.mark.parametrize("definition", [Adam(0.05), everstep.accumulate(Adam(0.05), 2)], ids=ids)
def test_the_state_before_the_first_step_resets_an_optimizer(definition, way):
    """Then it trains as a new one on the same weights, docs/fine_tune.md. Settings stay as they are."""
    start, kinds, rate = averages.START, averages.KINDS, way.target != "tf_train"
    run = runs.started(way, definition, start, kinds)
    fresh = run.captured()
    runs.stepped(run, averages.BATCHES[:3])
    for change in [run.set_rate] if rate else []:
        change(0.01)
    weights = run.weights()
    run.restored(fresh)
    assert (run.captured().updates, run.captured().pending) == (0, 0) and runs.same(run.weights(), weights)
    runs.stepped(run, averages.BATCHES[3:6])
    ended = run.weights()
    other = runs.started(way, definition, weights, kinds)
    for change in [other.set_rate] if rate else []:
        change(0.01)
    assert runs.distance(ended, runs.stepped(other, averages.BATCHES[3:6]).weights()) < 1e-6


# Into a file, one array at a time


@pytest.mark.parametrize("way", runs.WAYS, ids=ids)
@pytest.mark.parametrize("steps", [0, 3])
def test_a_file_has_the_bytes_of_a_saved_state(way, steps, tmp_path):
    """Before the first step, too. The state that is returned is the file's."""
    first, path = tmp_path / "saved.npz", tmp_path / "captured.npz"
    path.write_bytes(b"an old file")
    definition = everstep.moving_average(everstep.accumulate(Adam(0.05), 2), 0.9)
    run = runs.stepped(runs.started(way, definition, averages.START, averages.KINDS), averages.BATCHES[:steps])
    for weights in (False, True):
        expected = run.captured(weights=weights)
        expected.save(str(first))
        state = run.captured(weights=weights, path=str(path))
        assert path.read_bytes() == first.read_bytes()
        harness.assert_same_arrays(state, expected)
        assert state.updates == steps // 2 and not isinstance(next(iter(state.slots.values()))["m"], np.ndarray)


def test_groups_of_values_that_are_read_ahead(tmp_path, monkeypatch):
    """However many are read at once."""
    variables = [np.full((3, number), number, "float32") for number in range(1, 6)]
    optimizer = Adam(0.1).bind(np)
    optimizer.apply_gradients([(variable, variable) for variable in variables])
    paths = []
    for size in (1, 14, 10000):
        monkeypatch.setattr(live, "GROUP_SIZE", size)
        paths.append(tmp_path / str(size))
        everstep.capture(optimizer, variables, weights=True, path=str(paths[-1]))
    assert len({path.read_bytes() for path in paths}) == 1
    state = everstep.State.load(str(paths[0]))
    for variable, name in zip(variables, state.variables):
        np.testing.assert_array_equal(np.asarray(state.variables[name]), variable)


def test_a_failure_leaves_the_old_file(tmp_path):
    path, variables = tmp_path / "run.npz", [np.ones(2), np.ones(3)]
    optimizer = Adam(0.1).bind(np)
    optimizer.apply_gradients([(np.ones(2), variables[0]), (np.ones(3), variables[1])])
    everstep.capture(optimizer, variables, path=str(path))
    before = path.read_bytes()
    with pytest.raises(errors.StateError, match="slots of"):
        everstep.capture(optimizer, variables[:1], path=str(path))
    with pytest.raises(errors.StateError, match="cannot be written"):
        everstep.capture(optimizer, variables, path=str(tmp_path))
    assert path.read_bytes() == before and [each.name for each in tmp_path.iterdir()] == ["run.npz"]


@pytest.mark.skipif(resource is None, reason="Windows does not say how much memory was used")
def test_a_file_takes_the_memory_of_one_array(tmp_path):
    variables = [np.ones((1000, 4000), "float32") for _ in range(6)]  # 16 MB each, with slots of 96 MB
    optimizer, grad = SGD(0.1, momentum=0.5).bind(np), np.ones((1000, 4000), "float32")
    optimizer.apply_gradients([(grad, variable) for variable in variables])
    del grad
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    everstep.capture(optimizer, variables, path=str(tmp_path / "run.npz"))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64000  # kB
