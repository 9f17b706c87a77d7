"""TensorFlow 1 as people write it: global steps, strategies of one device, early init ops, stock checkpoints."""
from __future__ import absolute_import, division, print_function

import numpy as np
import pytest

import everstep
import harness
from everstep.errors import StateError, UnsupportedError, VariableError
from everstep.optimizers import SGD, Adam, DiffGrad

tf = pytest.importorskip("tensorflow", reason="this cell has no TensorFlow")
v1 = getattr(getattr(tf, "compat", None), "v1", None) or tf
pytestmark = pytest.mark.shared

START = (np.arange(12).reshape(4, 3) / 10.0 + 1).astype(np.float32)
IDS = np.array([[0, 1], [1, 1], [3, 0]])


def make_model(constraint=None):
    """Returns (weight, loss of two rows, global step) in the default graph."""
    more = {} if constraint is None else {"constraint": constraint}
    weight = v1.get_variable("W", initializer=START, use_resource=True, **more)
    loss = tf.reduce_sum(tf.square(tf.gather(weight, IDS[1])))
    return weight, loss, v1.train.get_or_create_global_step()


# global_step.


def plain(name="global_step", value=0, **more):
    return v1.get_variable(name, initializer=tf.constant(value), trainable=False, use_resource=False, **more)


def ref_tensor(value=0):
    plain(value=value)
    return v1.get_default_graph().get_tensor_by_name("global_step:0")


def of_the_graph():
    plain()
    return v1.train.get_global_step()


def imported(folder):
    with tf.Graph().as_default():
        plain()
        v1.train.export_meta_graph(str(folder / "graph.meta"))
    v1.train.import_meta_graph(str(folder / "graph.meta"))
    return v1.get_default_graph().get_tensor_by_name("global_step:0")


COUNTERS = {"ref tensor": lambda folder: ref_tensor(), "get_global_step": lambda folder: of_the_graph(),
            "of an imported graph": imported, "a float ref tensor": lambda folder: ref_tensor(0.0),
            "a float variable": lambda folder: plain(value=0.0),
            "an int64 resource": lambda folder: v1.get_variable("step", initializer=np.int64(0), use_resource=True),
            "a local variable": lambda folder: plain(collections=["local_variables"])}


@pytest.mark.parametrize("counter", sorted(COUNTERS))
def test_a_global_step_that_stock_takes(counter, tmp_path):
    with tf.Graph().as_default(), v1.Session() as session:
        weight = v1.get_variable("W", initializer=START)
        step = COUNTERS[counter](tmp_path)
        train_op = SGD(0.1).bind(v1.train).minimize(tf.reduce_sum(weight), step, [weight])
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        if counter == "of an imported graph":
            session.run("global_step/Assign")
        for _ in range(3):
            session.run(train_op)
        assert session.run(step) == 3


def other_graph(make):
    with tf.Graph().as_default():
        return make()


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: other_graph(plain), "belongs to another graph"),
        (lambda: other_graph(ref_tensor), "belongs to another graph"),
        (lambda: plain(value=False), "cannot count in"),
        (lambda: plain(value="a"), "cannot count in"),
        (lambda: plain(value=[0, 0]), "cannot count in"),
        (lambda: v1.get_variable("step", initializer=0, use_resource=True).handle, "the handle of a resource variable"),
        (lambda: tf.constant(0), "counts in TensorFlow variables"),
        (lambda: v1.get_variable("step", [2], partitioner=v1.fixed_size_partitioner(2)), "a partitioned variable"),
    ],
    ids="other-graph other-graph-ref bool text vector handle constant parts".split(),
)
def test_a_global_step_that_stock_cannot_count_in(make, message):
    with tf.Graph().as_default():
        weight = v1.get_variable("W", initializer=START)
        loss, step, optimizer = tf.reduce_sum(weight), make(), Adam(0.1).bind(v1.train)
        pairs = optimizer.compute_gradients(loss, [weight])
        before = len(v1.get_default_graph().get_operations())
        with pytest.raises(VariableError, match=message):
            optimizer.apply_gradients(pairs, step)
        assert len(v1.get_default_graph().get_operations()) == before and not optimizer.variables()


# Strategies.


def mirrored_strategy():
    """Returns MirroredStrategy, or None."""
    modules = [getattr(tf, "distribute", None), getattr(getattr(tf, "contrib", None), "distribute", None)]
    for module in modules:
        if hasattr(module, "MirroredStrategy") and hasattr(module.MirroredStrategy, "scope"):
            return module.MirroredStrategy
    return None


Mirrored = mirrored_strategy() if hasattr(tf, "init_scope") else None
needs_mirrored = pytest.mark.skipif(Mirrored is None or not hasattr(v1.train.Optimizer, "variables"),
                                    reason="no MirroredStrategy in this TensorFlow")
UNDER_ONE = [SGD(0.1), Adam(0.1), Adam(0.1, sparse="catch_up"), DiffGrad(0.1), everstep.accumulate(Adam(0.1), 2),
             everstep.moving_average(SGD(0.1)), everstep.clip(SGD(0.1, momentum=0.9), norm=0.1),
             everstep.loss_scale(SGD(0.1))]


def run_in(strategy, function):
    for name in ("call_for_each_replica", "call_for_each_tower"):
        for holder in (getattr(strategy, "extended", None), strategy):
            if hasattr(holder, name):
                return getattr(holder, name)(function)
    raise AssertionError("no way to run in {}".format(strategy))


def local(strategy, value):
    return (getattr(strategy, "experimental_local_results", None) or strategy.unwrap)(value)


def keeps_constraints():
    with tf.Graph().as_default():
        strategy = Mirrored(["/cpu:0"])
        with strategy.scope():
            weight = run_in(strategy, lambda: make_model(tf.abs)[0])
        return local(strategy, weight)[0].constraint is not None


def under(strategy, definition, constraint=None):
    """Returns (weights after four steps, global step, names of all variables)."""
    with tf.Graph().as_default() as graph:
        strategy = strategy and strategy()

        def build():
            _, loss, step = make_model(constraint)
            return definition.bind(v1.train).minimize(loss, step)

        if strategy is None:
            train_op = build()
        else:
            with strategy.scope():
                train_op = local(strategy, run_in(strategy, build))
        weight, step = v1.trainable_variables()[0], v1.train.get_global_step()
        with v1.Session(graph=graph) as session:
            session.run(v1.global_variables_initializer())
            for _ in range(4):
                session.run(train_op)
            return session.run(weight), session.run(step), sorted(each.name for each in v1.global_variables())


@needs_mirrored
@pytest.mark.parametrize("definition, is_bound", harness.share(
    [(definition, is_bound) for is_bound in (False, True) for definition in UNDER_ONE], 8
))
def test_mirrored_over_one_device(definition, is_bound):
    constraint = (lambda value: tf.clip_by_value(value, 1.05, 2.0)) if is_bound else None
    if is_bound and not keeps_constraints():
        pytest.skip("this TensorFlow makes mirrored variables without their constraints")
    expected = under(None, definition, constraint)
    mirrored = under(lambda: Mirrored(["/cpu:0"]), definition, constraint)
    np.testing.assert_array_equal(mirrored[0], expected[0])
    assert mirrored[1:] == expected[1:] and mirrored[1] == 4


@needs_mirrored
def test_mirrored_over_two_devices_is_refused():
    with tf.Graph().as_default(), pytest.raises(UnsupportedError, match="does not sum gradients over replicas"):
        under(lambda: Mirrored(["/cpu:0", "/cpu:1"]), Adam(0.1))


# Init ops, and stock checkpoints.


def test_an_init_op_that_was_made_before_minimize():
    with tf.Graph().as_default(), v1.Session() as session:
        weight, loss, step = make_model()
        init_op = v1.global_variables_initializer()
        train_op = SGD(0.1).bind(v1.train).minimize(loss, step)
        session.run(init_op)
        assert not session.run(v1.report_uninitialized_variables()).size
        session.run(train_op)
        assert session.run(step) == 1 and np.abs(session.run(weight) - START).max() > 0.1


def test_slots_and_powers_that_are_initialized_again():
    """Programs that begin anew without a new graph initialize Adam's slots and its two powers."""
    values = []
    for make in (v1.train.AdamOptimizer, lambda rate: Adam(rate, epsilon=1e-8).bind(v1.train)):
        with tf.Graph().as_default(), v1.Session() as session:
            weight, loss, _ = make_model()
            optimizer = make(0.1)
            train_op = optimizer.minimize(loss, var_list=[weight])
            slots = [optimizer.get_slot(weight, name) for name in optimizer.get_slot_names()]
            again = v1.variables_initializer(slots + list(optimizer._get_beta_accumulators()))
            session.run(v1.global_variables_initializer())
            for _ in range(3):
                session.run(train_op)
            session.run(again)
            powers = session.run(optimizer._get_beta_accumulators())
            np.testing.assert_allclose(powers, (0.9, 0.999), rtol=1e-6)
            for _ in range(2):
                session.run(train_op)
            values.append(session.run(weight))
    np.testing.assert_allclose(values[1], values[0], rtol=1e-5)


def test_plain_sgd_continues_a_stock_checkpoint(tmp_path):
    with tf.Graph().as_default(), v1.Session() as session:
        weight, loss, step = make_model()
        train_op = v1.train.GradientDescentOptimizer(0.1).minimize(loss, step)
        session.run(v1.global_variables_initializer())
        for _ in range(3):
            session.run(train_op)
        path = v1.train.Saver().save(session, str(tmp_path / "model"))
        session.run(train_op)
        expected = session.run(weight)
    with tf.Graph().as_default(), v1.Session() as session:
        weight, loss, step = make_model()
        optimizer = SGD(0.1).bind(v1.train)
        train_op = optimizer.minimize(loss, step)
        assert optimizer.variables() == []
        v1.train.Saver().restore(session, path)
        session.run(train_op)
        np.testing.assert_allclose(session.run(weight), expected, rtol=1e-6)
        # A state has the graph's global_step, so that a schedule goes on elsewhere.
        state = everstep.capture(optimizer, [weight], session)
        assert state.updates == 4
        everstep.restore(optimizer, state, [weight], session)
        assert session.run(step) == 4


@pytest.mark.parametrize(
    "definition, names",
    [
        (SGD(0.1), []),
        (SGD(0.1, momentum=0.9), ["SGD/updates", "W/SGD/velocity"]),
        (SGD(everstep.ExponentialDecay(0.1, 2, 0.5)), ["SGD/updates"]),
        (everstep.gradient_noise(SGD(0.1)), ["SGD/updates"]),
        (everstep.clip(SGD(0.1), norm=1.0), []),
    ],
    ids="plain momentum schedule noise clip".split(),
)
def test_only_what_reads_its_count_has_a_counter(definition, names):
    with tf.Graph().as_default():
        _, loss, step = make_model()
        optimizer = definition.bind(v1.train)
        optimizer.minimize(loss, step)
        assert sorted(each.op.name for each in optimizer.variables()) == names


# warm_start.

DECAY = everstep.PolynomialDecay(1.0, 100, 0.0)


@pytest.fixture(scope="module")
def sixty(tmp_path_factory):
    """Returns the checkpoint of stock after 60 steps of a linear decay over 100."""
    with tf.Graph().as_default(), v1.Session() as session:
        weight, _, step = make_model()
        rate = v1.train.polynomial_decay(1.0, step, 100, 0.0)
        train_op = v1.train.GradientDescentOptimizer(rate).minimize(tf.reduce_sum(weight), step)
        session.run(v1.global_variables_initializer())
        for _ in range(60):
            session.run(train_op)
        return v1.train.Saver().save(session, str(tmp_path_factory.mktemp("sixty") / "model"))


def change_after(path, definition, **more):
    """Returns (how far the first step after a warm start moves the weights, the WarmStart)."""
    with tf.Graph().as_default(), v1.Session() as session:
        weight, _, step = make_model()
        train_op = definition.bind(v1.train).minimize(tf.reduce_sum(weight), step)
        start = everstep.warm_start(path, **more)
        start.run(session)
        before = session.run(weight)
        session.run(train_op)
        assert session.run(step) == 61
        return (before - session.run(weight)).max(), start


@pytest.mark.parametrize(
    "definition",
    [SGD(DECAY), SGD(DECAY, momentum=0.5), everstep.clip(SGD(DECAY), norm=100.0), everstep.accumulate(SGD(DECAY), 1)],
    ids="plain momentum clip accumulate".split(),
)
def test_schedules_go_on_after_a_warm_start(sixty, definition):
    change, start = change_after(sixty, definition)
    assert abs(change - 0.4) < 1e-5
    assert start.counted["SGD/updates"] == 60 and "SGD/updates: not in the checkpoint; starts at 60" in repr(start)


def test_a_schedule_that_begins_anew_is_a_warning(sixty):
    with pytest.warns(UserWarning, match="Adam/updates starts at 0, so the schedule of learning_rate begins anew"):
        change, start = change_after(sixty, Adam(DECAY))
    assert abs(change - 1.0) < 1e-4 and not start.counted
    assert change_after(sixty, Adam(DECAY), updates=60)[1].counted == {"Adam/updates": 60}
    assert not change_after(sixty, Adam(DECAY), updates=0)[1].counted
    assert not change_after(sixty, Adam(0.1))[1].counted


@pytest.mark.parametrize("updates", [-1, 0.5, True, "60", 2**63])
def test_a_warm_start_takes_a_count(sixty, updates):
    with pytest.raises(StateError, match="updates is a count"):
        change_after(sixty, SGD(DECAY), updates=updates)
