"""The tf_train target: what it promises beyond the numbers that the battery compares, on the TensorFlow here."""
from __future__ import absolute_import, division, print_function

import functools
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import threading

import numpy as np
import pytest

import chain
import everstep
import harness
import test_battery as battery
from everstep.errors import GradientError, HyperValueError, SlotError, StateError, UnsupportedError, VariableError
from everstep.optimizers import SGD, AdagradDA, AdagradDecay, Adam, ProximalGradientDescent, SophiaH, Yogi

tf = pytest.importorskip("tensorflow", reason="this cell has no TensorFlow")
v1 = getattr(getattr(tf, "compat", None), "v1", None) or tf
TF2 = not hasattr(tf, "global_variables_initializer")

# tf.train has it from TF 1.9 on, tf.contrib.eager in 1.7 and 1.8.
CHECKPOINT = getattr(v1.train, "Checkpoint", None)
CHECKPOINT = CHECKPOINT or getattr(getattr(getattr(tf, "contrib", None), "eager", None), "Checkpoint", None)
KINDS = ("ref", "resource")
ALL_KINDS = KINDS + ("parts",)
START = (np.arange(12).reshape(4, 3) / 10.0 + 1).astype(np.float32)
RANDOM = np.random.RandomState(0)
GRADS = RANDOM.randn(20, 4, 3).astype(np.float32)
IDS = RANDOM.randint(0, 4, (20, 5))  # five rows out of four, so one always repeats
VALUES = RANDOM.randn(20, 5, 3).astype(np.float32)


class Slow(everstep.Definition):
    """An average that starts at the variable's value, and a norm over all variables."""

    learning_rate = everstep.hyper(0.1)
    average = everstep.slot(init=everstep.VARIABLE)

    def measure(self, ops, grad, var, slots, hyper):
        return {"all_squares": everstep.total(ops.sum(grad * grad)), "own_squares": ops.sum(grad * grad)}

    def update(self, ops, grad, var, slots, hyper, t):
        change = hyper.learning_rate * grad / ops.sqrt(hyper.all_squares + hyper.own_squares)
        return change, {"average": 0.5 * slots.average + 0.5 * (var - change)}


class Seen(everstep.Definition):
    """Counts the updates of each row, in integers from 3 on."""

    learning_rate = everstep.hyper(0.1)
    seen = everstep.slot(init=3, shape="row", dtype="int64")

    def update(self, ops, grad, var, slots, hyper, t):
        return hyper.learning_rate * grad / ops.cast(slots.seen, grad.dtype), {"seen": slots.seen + 1}


class Whole(everstep.Definition):
    """A rule that needs whole variables."""

    locality = "variable"
    learning_rate = everstep.hyper(0.1)

    def update(self, ops, grad, var, slots, hyper, t):
        return hyper.learning_rate * grad / ops.mean(ops.abs(grad)), {}


class Graph(next(way.world for way in harness.all_ways() if way.target == "tf_train")):
    """A new graph with one variable W, its loss, and the placeholders that feed its gradient."""

    def __init__(self, kind="ref", sparse=False, value=START, parts=2, **more):
        super(Graph, self).__init__(v1.train)
        self.sparse = sparse
        with self.inside():
            self.weight = make_variable("W", kind, value, parts, **more)
            self.variables = list(self.weight) if kind == "parts" else [self.weight]
            dtype = self.variables[0].dtype.base_dtype
            whole = tf.concat(self.variables, 0) if kind == "parts" else self.weight
            if sparse:
                self.ids = v1.placeholder(tf.int32, [None])
                whole = v1.nn.embedding_lookup(self.weight, self.ids, partition_strategy="div")
            self.given = v1.placeholder(dtype, whole.shape)
            self.loss = tf.reduce_sum(whole * self.given)

    def feed(self, step):
        return {self.given: VALUES[step], self.ids: IDS[step]} if self.sparse else {self.given: GRADS[step]}

    def train(self, train_op, steps, more=()):
        for step in steps:
            feed = self.feed(step)
            feed.update(more)
            self.run(train_op, feed)

    def whole(self, variables=None):
        return np.concatenate([np.atleast_1d(self.read(part)) for part in variables or self.variables])


def make_variable(name, kind, value, parts=2, **more):
    if kind != "parts":
        return v1.get_variable(name, initializer=tf.constant(value), use_resource=kind == "resource", **more)

    def rows(shape, dtype=None, partition_info=None):
        at = partition_info.var_offset[0]
        return tf.constant(value[at : at + int(shape[0])], dtype)

    more.update(partitioner=v1.fixed_size_partitioner(parts), use_resource=False)
    return v1.get_variable(name, value.shape, value.dtype, initializer=rows, **more)


def expected(definition, steps, sparse=False, start=START, dtype=np.float64):
    """Returns the weights and the optimizer of the same run on NumPy."""
    weights = np.array(start, dtype)
    optimizer = definition.bind(np)
    for step in steps:
        values = VALUES[step].astype(dtype)
        grad = everstep.IndexedSlices(values, IDS[step]) if sparse else GRADS[step].astype(dtype)
        optimizer.apply_gradients([(grad, weights)])
    return weights, optimizer


def assert_same(actual, expected, bound=1e-5):
    assert np.max(np.abs(actual - expected)) <= bound * np.max(np.abs(expected))


DEFINITIONS = [SGD(0.1, 0.9, nesterov=True), Adam(0.1, amsgrad=True), Adam(0.1, sparse="rows"),
               AdagradDecay(0.1, decay_steps=3), everstep.accumulate(Adam(0.1), 3), Slow(0.1)]


def identify(definition):
    return "-".join(sorted({type(part).__name__ for part in (definition, definition.base)}) + [definition.sparse])


# Numbers.


@pytest.mark.shared
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("definition", DEFINITIONS, ids=identify)
def test_parts_of_a_variable_train_as_the_whole(definition, sparse):
    with Graph("parts", sparse, parts=3) as graph:
        optimizer = definition.bind(v1.train)
        train_op = optimizer.minimize(graph.loss)
        graph.train(train_op, range(12))
        reference, arrays = expected(definition, range(12), sparse)
        assert_same(graph.whole(), reference)
        for name in optimizer.get_slot_names():
            slots = [optimizer.get_slot(part, name) for part in graph.variables]
            known = next(iter(harness.bound(arrays).rules.values()))
            assert_same(graph.whole(slots), arrays.get_slot(known.variable, name))


def test_a_rule_of_whole_variables_refuses_parts():
    with Graph("parts") as graph:
        with pytest.raises(UnsupportedError, match="W.*whole"):
            Whole().bind(v1.train).minimize(graph.loss)
        assert len(v1.global_variables()) == len(graph.variables)


def test_a_partitioned_variable_is_given_by_its_parts():
    with Graph("parts") as graph:
        optimizer = SGD(1.0).bind(v1.train)
        with pytest.raises(VariableError, match="parts"):
            optimizer.apply_gradients([(tf.constant(GRADS[0]), graph.weight)])
        train_op = optimizer.minimize(graph.loss, var_list=[graph.weight])
        graph.train(train_op, range(2))
        assert_same(graph.whole(), START - GRADS[:2].sum(0))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("use_locking", [False, True])
def test_use_locking(kind, use_locking):
    with Graph(kind) as graph:
        train_op = Adam(0.1).bind(v1.train, use_locking=use_locking).minimize(graph.loss)
        kinds = ("Assign", "AssignSub", "ScatterUpdate", "ApplyAdam")
        assigns = [op for op in graph.graph.get_operations() if op.type in kinds]
        made_by_the_step = [op for op in assigns if op.name.startswith("Adam/") and "updates" not in op.inputs[0].name]
        assert bool(made_by_the_step) == (kind == "ref")
        assert all(op.get_attr("use_locking") == use_locking for op in made_by_the_step)
        graph.train(train_op, range(5))
        assert_same(graph.whole(), expected(Adam(0.1), range(5))[0])


AT_ONCE = ("AssignSub", "AssignSubVariableOp", "ScatterSub", "ResourceScatterSub", "ResourceScatterAdd")
# Rules that return the new value, and have no kernel for it: that of AdagradDA is a function of sums alone, and the
# proximal step of the others shrinks the moved variable. SophiaH goes to its second point and back.
BY_VALUE = (AdagradDA, ProximalGradientDescent, SophiaH, Yogi)


@pytest.mark.shared
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rule, sparse", [
    (rule, sparse) for rule in battery.definition_classes() for sparse in (None, "exact", "rows")
    if rule not in BY_VALUE and not (rule.refresh_methods and sparse == "rows")])
def test_use_locking_updates_each_variable_in_one_operation(rule, sparse, kind):
    """Asynchronous workers must not overwrite each other's updates, those of a large variable included."""
    with tf.Graph().as_default() as graph:
        weight = v1.get_variable("W", (2**12, 2**12), use_resource=kind == "resource",
                                 initializer=v1.zeros_initializer())
        grad = tf.ones(weight.shape)
        if sparse:
            grad = tf.IndexedSlices(v1.placeholder(tf.float32, [None, 2**12]), v1.placeholder(tf.int32, [None]))
        optimizer = battery.define(rule, dict(sparse=sparse or "exact")).bind(v1.train, use_locking=True)
        optimizer.apply_gradients([(grad, weight)])
        variable = getattr(weight, "handle", weight).op
        using = [op for op in graph.get_operations() if op.inputs and op.inputs[0].op is variable]
        writing = [op.type for op in using if any(word in op.type for word in ("Assign", "Apply", "Scatter"))]
        writing.remove(weight.initializer.type)
        assert writing and all(each in AT_ONCE or "Apply" in each for each in writing)


@pytest.mark.shared
@pytest.mark.parametrize("dtype, bound", [("float16", 2e-3), ("float64", 1e-7)])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_other_float_types_of_parts(sparse, dtype, bound):
    with Graph("parts", sparse, START.astype(dtype)) as graph:
        optimizer = Adam(0.1).bind(v1.train)
        train_op = optimizer.minimize(graph.loss)
        graph.train(train_op, range(10))
        assert graph.whole().dtype == dtype
        assert_same(graph.whole(), expected(Adam(0.1), range(10), sparse)[0], bound)
        slot = optimizer.get_slot(graph.variables[0], "m")
        assert slot.dtype.base_dtype.name == {"float16": "float32"}.get(dtype, dtype)


class ByStep(everstep.Schedule):
    def value(self, ops, updates):
        return 0.1 / (updates + 1)


@pytest.mark.parametrize("way", ["placeholder", "tensor of global_step"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_hyper_that_changes(kind, way):
    with Graph(kind) as graph:
        global_step = v1.train.get_or_create_global_step()
        rate = v1.placeholder(tf.float32, [])
        given = rate if way == "placeholder" else v1.train.inverse_time_decay(0.1, global_step, 1, 1.0)
        optimizer = Adam(given, epsilon=given).bind(v1.train)
        train_op = optimizer.minimize(graph.loss, global_step)
        for step in range(6):
            graph.train(train_op, [step], {rate: 0.1 / (step + 1)})
        assert_same(graph.whole(), expected(Adam(ByStep(), epsilon=ByStep()), range(6))[0])
        for attribute in ("learning_rate", "lr", "epsilon"):
            with pytest.raises(HyperValueError, match="constant of the graph"):
                setattr(optimizer, attribute, 0.5)


def test_a_tensor_of_another_graph_is_refused():
    with tf.Graph().as_default():
        optimizer = SGD(tf.constant(0.1)).bind(v1.train)
    with Graph() as graph:
        with pytest.raises(HyperValueError, match="learning_rate.*another graph"):
            optimizer.minimize(graph.loss)
        assert len(v1.global_variables()) == 1


# Arguments of minimize and apply_gradients.


@pytest.mark.shared
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gate", ["GATE_NONE", "GATE_OP", "GATE_GRAPH"])
def test_no_race_in_a_deep_chain(kind, gate):
    """With every gate, all gradients use the weights before the step and each t is right."""
    definition = Adam(0.01, epsilon=1e-5)
    with tf.Graph().as_default(), v1.Session() as session:
        fed = [v1.placeholder(tf.float32, [32, 8]) for _ in range(2)]
        variables = [make_variable("W%d" % layer, kind, chain.orthogonal(8, layer)) for layer in range(4)]
        loss = tf.reduce_mean(tf.square(functools.reduce(tf.matmul, variables, fed[0]) - fed[1]))
        train_op = definition.bind(v1.train).minimize(loss, gate_gradients=getattr(v1.train.Optimizer, gate))
        session.run(v1.global_variables_initializer())
        wrong, worst = chain.wrong_steps(lambda batch: session.run(train_op, dict(zip(fed, batch))),
                                         lambda: session.run(variables), definition, 100)
        assert wrong == 0, worst


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step_kind", KINDS)
def test_global_step_counts_calls(kind, step_kind):
    with Graph(kind) as graph:
        global_step = make_variable("global_step", step_kind, np.int64(0), trainable=False)
        optimizer = everstep.accumulate(Adam(0.1), 4).bind(v1.train)
        train_op = optimizer.minimize(graph.loss, global_step=global_step)
        graph.train(train_op, range(10))
        counter = harness.bound(optimizer).adapter.counter
        counters = [global_step] + [counter(name) for name in ("updates", "pending", "steps")]
        assert graph.run(counters) == [10, 2, 2, 10]


def test_the_train_op_is_called_as_in_stock():
    names = []
    for optimizer in (v1.train.AdamOptimizer(0.1), Adam(0.1).bind(v1.train)):
        with Graph() as graph:
            for name in (None, "train"):
                train_op = optimizer.minimize(graph.loss, v1.train.get_or_create_global_step(), name=name)
                names.append(getattr(train_op, "op", train_op).name)
                assert train_op in v1.get_collection(v1.GraphKeys.TRAIN_OP)
    assert names == ["Adam", "train"] * 2


@pytest.mark.parametrize("kind", KINDS)
def test_none_gradients(kind):
    with Graph(kind) as graph:
        other = make_variable("other", kind, START)
        optimizer = Adam(0.1).bind(v1.train)
        train_op = optimizer.apply_gradients([(None, other), (graph.given, graph.weight)])
        graph.train(train_op, range(3))
        assert_same(graph.whole(), expected(Adam(0.1), range(3))[0])
        assert_same(graph.whole([other]), START, 0)
        assert optimizer.get_slot(other, "m") is None  # as in stock
        with pytest.raises(GradientError, match="other"):
            optimizer.apply_gradients([(None, other)])
        with pytest.raises(GradientError, match="empty"):
            optimizer.apply_gradients([])


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("kind", KINDS)
def test_constraints(kind, sparse):
    with Graph(kind, sparse, constraint=lambda value: tf.clip_by_value(value, 0.9, 1.1)) as graph:
        train_op = SGD(1.0).bind(v1.train).minimize(graph.loss)
        graph.start()
        weights, arrays = START.copy(), SGD(1.0).bind(np)
        for step in range(5):
            graph.train(train_op, [step])
            grad = everstep.IndexedSlices(VALUES[step], IDS[step]) if sparse else GRADS[step]
            arrays.apply_gradients([(grad, weights)])
            weights = np.clip(weights, 0.9, 1.1)
        assert_same(graph.whole(), weights)


def test_two_graphs_with_one_optimizer():
    optimizer = Adam(0.1).bind(v1.train)
    for steps in (range(3), range(5, 10)):
        with Graph() as graph:
            graph.train(optimizer.minimize(graph.loss), steps)
            assert_same(graph.whole(), expected(Adam(0.1), steps)[0])
            assert sorted(v.op.name for v in optimizer.variables()) == ["Adam/updates", "W/Adam/m", "W/Adam/v"]


@pytest.mark.parametrize("kind", KINDS)
def test_step_wide_values_are_computed_once(kind):
    counts = []
    for number in (1, 10):
        with tf.Graph().as_default() as graph:
            variables = [make_variable("W%d" % place, kind, START) for place in range(number)]
            Adam(0.1).bind(v1.train).minimize(tf.add_n([tf.reduce_sum(variable) for variable in variables]))
            counts.append(sum(op.type == "Pow" for op in graph.get_operations()))
    assert counts == [2, 2]


# Slots and names.


@pytest.mark.parametrize("kind", KINDS)
def test_slots_live_with_their_variables(kind):
    with tf.Graph().as_default():
        with v1.device(v1.train.replica_device_setter(ps_tasks=3)):
            variables = [make_variable(name, kind, START) for name in ("A", "B", "C")]
            optimizer = everstep.accumulate(AdagradDecay(0.1), 2).bind(v1.train)
            optimizer.minimize(tf.add_n([tf.reduce_sum(variable) for variable in variables]))
        assert len({variable.device for variable in variables}) == 3
        for variable in variables:
            for name in optimizer.get_slot_names():
                slot = optimizer.get_slot(variable, name)
                assert slot.device == variable.device
                assert variable.op.name.encode() in b"".join(slot.op.colocation_groups())


def test_get_slot_and_its_names():
    with Graph() as graph:
        optimizer = everstep.accumulate(Adam(0.1, amsgrad=True), 2).bind(v1.train)
        assert optimizer.get_slot_names() == [] and optimizer.variables() == []
        with pytest.raises(SlotError, match="once minimize or apply_gradients has run"):
            optimizer.get_slot(graph.weight, "m")
        optimizer.minimize(graph.loss)
        assert optimizer.get_slot_names() == ["accumulate/sum", "m", "v", "v_hat"]
        assert optimizer.get_slot(graph.weight, "accumulate/sum").op.name == "W/Adam/accumulate/sum"
        with pytest.raises(SlotError, match="no slot 'momentum'"):
            optimizer.get_slot(graph.weight, "momentum")
        assert optimizer.get_slot(make_variable("other", "ref", START), "m") is None


def names_on_disk(definition, kind="ref", scope=None, instances=1, **native):
    with tf.Graph().as_default():
        variable = make_variable("W", kind, START)
        for _ in range(instances):
            optimizer = definition.bind(v1.train, **native)
            with scope() if scope else v1.name_scope(None):
                optimizer.minimize(tf.reduce_sum(tf.convert_to_tensor(variable)))
        slices = [(each, getattr(each, "_save_slice_info", None)) for each in v1.global_variables()]
        return sorted({info.full_name if info else each.op.name for each, info in slices} - {"W"})


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_names_on_disk(kind):
    names = functools.partial(names_on_disk, kind=kind)
    adam = ["Adam/updates", "W/Adam/m", "W/Adam/v"]
    assert names(Adam()) == adam
    assert names(Adam(), name="Mine") == ["Mine/updates", "W/Mine/m", "W/Mine/v"]
    assert names(everstep.accumulate(SGD(sparse="rows"), 2)) == [
        "SGD/pending", "SGD/steps", "SGD/updates", "W/SGD/accumulate/sum", "W/SGD/touched"
    ]  # fmt: skip
    assert names(AdagradDecay()) == ["AdagradDecay/updates", "W/AdagradDecay/accumulator", "W/AdagradDecay/decays"]
    assert names(Adam(), instances=2) == ["Adam/updates", "Adam/updates_1", "W/Adam/m", "W/Adam/m_1", "W/Adam/v",
                                          "W/Adam/v_1"]
    assert names(Adam(), scope=lambda: v1.variable_scope("train")) == ["train/" + name for name in adam]
    assert names(Adam(), scope=lambda: v1.name_scope("train")) == ["W/Adam/m", "W/Adam/v", "train/Adam/updates"]


# Saving and resuming.

RESUMED = [Adam(0.1, amsgrad=True), everstep.accumulate(AdagradDecay(0.1, decay_steps=2), 3), Slow(0.1)]


@pytest.mark.shared
@pytest.mark.parametrize("definition", RESUMED, ids=identify)
def test_saver_resumes_parts_bit_for_bit(definition, tmp_path):
    def run(steps, restore=None, save=None, parts=2):
        with Graph("parts", True, parts=parts) as graph:
            optimizer = definition.bind(v1.train)
            train_op = optimizer.minimize(graph.loss)
            saver = v1.train.Saver()
            graph.start()
            if restore:
                saver.restore(graph.session, restore)
            graph.train(train_op, steps)
            if save:
                saver.save(graph.session, save)
            slots = [optimizer.get_slot(part, name) for name in optimizer.get_slot_names() for part in graph.variables]
            return [graph.whole()] + [graph.whole([slot]) for slot in slots]

    path = str(tmp_path / "model")
    straight = run(range(20))
    run(range(10), save=path)
    for one, other in zip(straight, run(range(10, 20), restore=path)):
        np.testing.assert_array_equal(one, other)
    # The number of parts may change; a norm over all is then summed in another order.
    assert_same(run(range(10, 20), restore=path, parts=3)[0], straight[0], 1e-6)


def test_parts_are_saved_as_one(tmp_path):
    with Graph("parts") as graph:
        definition = everstep.accumulate(AdagradDecay(0.1, decay_steps=1), 2)
        optimizer = definition.bind(v1.train)
        train_op = optimizer.minimize(graph.loss)
        graph.train(train_op, range(6))
        reader = v1.train.NewCheckpointReader(v1.train.Saver().save(graph.session, str(tmp_path / "model")))
        shapes = reader.get_variable_to_shape_map()
        assert {name: tuple(shape) for name, shape in shapes.items()} == {
            "W": (4, 3), "W/AdagradDecay/accumulator": (4, 3), "W/AdagradDecay/decays": (4, 1),
            "W/AdagradDecay/accumulate/sum": (4, 3), "AdagradDecay/updates": (), "AdagradDecay/pending": (),
            "AdagradDecay/steps": ()
        }
        np.testing.assert_array_equal(reader.get_tensor("W/AdagradDecay/decays"), np.full((4, 1), 2.0))


def test_row_slots_of_column_parts_are_saved_with_each_part(tmp_path):
    """A slot with a number for each row, of a variable that is split by columns."""

    def build(columns):
        partitioner = v1.fixed_size_partitioner(columns, axis=1)
        variable = v1.get_variable("W", [4, 3], initializer=v1.ones_initializer(), partitioner=partitioner)
        optimizer = AdagradDecay(0.1, decay_steps=1).bind(v1.train)
        train_op = optimizer.minimize(tf.reduce_sum(tf.concat(list(variable), 1) * tf.constant(GRADS[0])))
        return train_op, v1.train.Saver(), v1.global_variables()

    with tf.Graph().as_default(), v1.Session() as session:
        train_op, saver, variables = build(2)
        session.run(v1.global_variables_initializer())
        for _ in range(3):
            session.run(train_op)
        values, path = session.run(variables), saver.save(session, str(tmp_path / "model"))
    shapes = v1.train.NewCheckpointReader(path).get_variable_to_shape_map()
    assert sorted(name for name in shapes if "decays" in name) == [
        "W/part_0/AdagradDecay/decays", "W/part_1/AdagradDecay/decays"
    ]  # fmt: skip
    assert shapes["W/AdagradDecay/accumulator"] == [4, 3]
    with tf.Graph().as_default(), v1.Session() as session:
        _, saver, variables = build(2)
        saver.restore(session, path)
        for actual, expected in zip(session.run(variables), values):
            np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_object_checkpoint_in_a_graph(kind, tmp_path):
    if CHECKPOINT is None:
        pytest.skip("this TensorFlow has no Checkpoint")

    def run(steps, restore=None, save=None):
        with Graph(kind) as graph:
            optimizer = everstep.accumulate(Adam(0.1), 3).bind(v1.train)
            train_op = optimizer.minimize(graph.loss)
            checkpoint = CHECKPOINT(optimizer=optimizer, weights=graph.weight)
            graph.start()
            if restore:
                checkpoint.restore(restore).assert_consumed().run_restore_ops()
            graph.train(train_op, steps)
            return graph.whole(), save and checkpoint.save(save)

    _, path = run(range(10), save=str(tmp_path / "model"))
    np.testing.assert_array_equal(run(range(20))[0], run(range(10, 20), restore=path)[0])


# Accumulation, and a definition applied twice.


def test_accumulation_takes_one_call_in_a_graph():
    optimizer = everstep.accumulate(Adam(0.1), 4).bind(v1.train)
    for _ in range(2):
        with Graph() as graph:
            optimizer.minimize(graph.loss)
            with pytest.raises(UnsupportedError, match="one call in a graph"):
                optimizer.minimize(graph.loss)


@pytest.mark.parametrize("kind", KINDS)
def test_applied_twice_counts_twice(kind):
    with Graph(kind) as graph:
        other = make_variable("other", kind, START)
        optimizer = Adam(0.1).bind(v1.train)
        first = optimizer.apply_gradients([(graph.given, graph.weight)])
        with tf.control_dependencies([first]):
            second = optimizer.apply_gradients([(graph.given, other)])
        graph.train(second, range(1))  # both: t is 1 for the first and 2 for the second
        assert graph.run(harness.bound(optimizer).adapter.counter("updates")) == 2
        assert_same(graph.whole(), expected(Adam(0.1), range(1))[0])
        moments = 0.1 * GRADS[0], 0.001 * GRADS[0] ** 2
        rate = 0.1 * np.sqrt(1 - 0.999**2) / (1 - 0.9**2)
        assert_same(graph.whole([other]), START - rate * moments[0] / (np.sqrt(moments[1]) + 1e-7))


# Control flow, wrapping optimizers, and tools that run sessions.


@pytest.mark.parametrize("definition", [Adam(0.1), everstep.accumulate(Adam(0.1), 2)], ids=identify)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", ["branch", "loop"])
def test_a_train_op_in_control_flow(where, kind, definition):
    with Graph(kind) as graph:
        optimizer, grads, given = definition.bind(v1.train), tf.constant(GRADS), v1.placeholder(tf.int32, [])
        outside = tf.reduce_sum(graph.weight * tf.gather(grads, given))

        def step(number):
            loss = outside if where == "branch" else tf.reduce_sum(graph.weight * tf.gather(grads, number))
            with tf.control_dependencies([optimizer.minimize(loss)]):
                return tf.identity(number + 1)

        def build():
            if where == "branch":
                return v1.cond(tf.not_equal(given % 3, 0), lambda: step(given), lambda: given + 1)
            return v1.while_loop(lambda number: number < 8, step, [given], parallel_iterations=1)

        if refuses_ref_in_functions(graph.variables[0]):
            with pytest.raises(VariableError, match="ref variable"):
                build()
            return
        trained = build()
        graph.start()
        for number in range(9) if where == "branch" else [0]:
            assert graph.run(trained, {given: number}) == (number + 1 if where == "branch" else 8)
        steps = [1, 2, 4, 5, 7, 8] if where == "branch" else range(8)
        assert_same(graph.whole(), expected(definition, steps)[0])


def refuses_ref_in_functions(variable):
    """Returns True if branches and loops are functions, as in TF 2: those cannot write a ref variable."""
    return "_ref" in variable.dtype.name and getattr(v1, "control_flow_v2_enabled", lambda: False)()


HOOKS = ["_create_slots", "_prepare", "_finish"]
HOOKS += ["_apply_dense", "_resource_apply_dense", "_apply_sparse", "_resource_apply_sparse"]


class Delegating(v1.train.Optimizer):
    """A typical wrapping optimizer: passes on one variable after the other."""

    def __init__(self, inner):
        super(Delegating, self).__init__(False, "Delegating")
        for hook in HOOKS:
            setattr(self, hook, getattr(inner, hook))


class Doubling(Adam.native_class(v1.train)):
    """A native class of ours, subclassed as users subclass stock classes."""

    def _apply_dense(self, grad, var):
        return super(Doubling, self)._apply_dense(2 * grad, var)

    def _resource_apply_dense(self, grad, handle):
        return super(Doubling, self)._resource_apply_dense(2 * grad, handle)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("kind", KINDS)
def test_hooks_called_by_a_wrapper(kind, sparse):
    with Graph(kind, sparse) as graph:
        inner = Adam(0.1).bind(v1.train)
        other = make_variable("other", kind, START)
        global_step = v1.train.get_or_create_global_step()
        train_op = Delegating(inner).minimize(graph.loss + tf.reduce_sum(other), global_step)
        graph.train(train_op, range(8))
        assert graph.run([harness.bound(inner).adapter.counter("updates"), global_step]) == [8, 8]
        assert_same(graph.whole(), expected(Adam(0.1), range(8), sparse)[0])
        with pytest.raises(UnsupportedError, match="one variable at a time"):
            Delegating(everstep.accumulate(Adam(0.1), 2).bind(v1.train)).minimize(graph.loss)


@pytest.mark.parametrize("kind", KINDS)
def test_hooks_of_a_subclass_are_called(kind):
    with Graph(kind) as graph:
        optimizer = Doubling(0.1, epsilon=1.0)
        train_op = optimizer.minimize(graph.loss)
        graph.train(train_op, range(8))
        weights, arrays = START.astype(np.float64), Adam(0.1, epsilon=1.0).bind(np)
        for step in range(8):
            arrays.apply_gradients([(2.0 * GRADS[step], weights)])
        assert_same(graph.whole(), weights)
        assert graph.run(harness.bound(optimizer).adapter.counter("updates")) == 8


def test_hooks_replaced_on_an_optimizer_are_called():
    """Wrappers that skip updates replace hooks this way."""
    with Graph() as graph:
        optimizer = SGD(1.0).bind(v1.train)
        optimizer._apply_dense = lambda grad, var: v1.assign_add(var, grad).op
        train_op = optimizer.minimize(graph.loss)
        graph.train(train_op, range(3))
        assert_same(graph.whole(), START + GRADS[:3].sum(0))


def test_several_replicas_are_refused():
    strategy = getattr(getattr(v1, "distribute", None), "MirroredStrategy", None)
    if strategy is None or not hasattr(v1.distribute, "has_strategy"):
        pytest.skip("this TensorFlow has no tf.distribute.has_strategy")
    with Graph("resource") as graph:
        with strategy(["/cpu:0", "/cpu:1"]).scope():
            with pytest.raises(UnsupportedError, match="replicas"):
                SGD(0.1).bind(v1.train).apply_gradients([(graph.given, graph.weight)])


@pytest.mark.parametrize("kind", KINDS)
def test_sync_replicas_optimizer(kind):
    with Graph(kind) as graph:
        global_step = v1.train.get_or_create_global_step()
        inner = Adam(0.1).bind(v1.train)
        optimizer = v1.train.SyncReplicasOptimizer(inner, replicas_to_aggregate=1, total_num_replicas=1)
        train_op = optimizer.minimize(graph.loss, global_step)
        update = optimizer.get_chief_queue_runner().enqueue_ops[0]
        graph.start()
        graph.run([v1.local_variables_initializer(), optimizer.chief_init_op])
        for step in range(6):  # the worker's step waits for the chief's update
            worker = threading.Thread(target=graph.train, args=(train_op, [step]))
            worker.start()
            graph.run(update)
            worker.join()
        assert graph.run([harness.bound(inner).adapter.counter("updates"), global_step]) == [6, 6]
        assert_same(graph.whole(), expected(Adam(0.1), range(6))[0])
        assert optimizer.get_slot(graph.weight, "m") is inner.get_slot(graph.weight, "m")


def test_monitored_session_resumes(tmp_path):
    def run(steps, stop):
        with Graph("parts") as graph:
            definition = everstep.accumulate(Adam(0.1), 3)
            global_step = v1.train.get_or_create_global_step()
            train_op = definition.bind(v1.train).minimize(graph.loss, global_step)
            hooks = [v1.train.StopAtStepHook(last_step=stop)]
            with v1.train.MonitoredTrainingSession(checkpoint_dir=str(tmp_path), hooks=hooks) as session:
                for step in steps:
                    _, at = session.run([train_op, global_step], graph.feed(step))
                assert session.should_stop()
            with v1.Session() as session:
                v1.train.Saver().restore(session, v1.train.latest_checkpoint(str(tmp_path)))
                return np.concatenate([session.run(part) for part in graph.variables])

    run(range(10), 10)
    assert_same(run(range(10, 20), 20), expected(everstep.accumulate(Adam(0.1), 3), range(20))[0])


ESTIMATOR = getattr(v1, "estimator", None)
needs_estimator = pytest.mark.skipif(not hasattr(ESTIMATOR, "Estimator"), reason="this TensorFlow has no tf.estimator")


def predict(features):
    return tf.matmul(features, v1.get_variable("kernel", [3, 2]))


def estimator(optimizer, directory, **more):
    """Returns an Estimator that fits one dense layer, on batches that never change."""

    def model_fn(features, labels, mode):
        loss = v1.losses.mean_squared_error(labels, predict(features))
        train_op = optimizer().minimize(loss, v1.train.get_or_create_global_step())
        return v1.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    config = v1.estimator.RunConfig(tf_random_seed=1)
    return v1.estimator.Estimator(model_fn, str(directory), config, **more)


def batches():
    data = v1.data.Dataset.from_tensors((GRADS[0], GRADS[1][:, :2])).repeat()
    return v1.data.make_one_shot_iterator(data).get_next() if hasattr(v1.data, "make_one_shot_iterator") else (
        data.make_one_shot_iterator().get_next()
    )  # fmt: skip


@pytest.mark.shared
@needs_estimator
def test_estimator_trains_and_resumes(tmp_path):
    def adam():
        return Adam(0.1).bind(v1.train)

    for name, parts in (("straight", [20]), ("resumed", [10, 10])):
        for steps in parts:
            estimator(adam, tmp_path / name).train(batches, steps=steps)
    straight, resumed = (estimator(adam, tmp_path / name) for name in ("straight", "resumed"))
    assert straight.get_variable_value("Adam/updates") == resumed.get_variable_value("Adam/updates") == 20
    for name in ("kernel", "kernel/Adam/v"):
        np.testing.assert_array_equal(straight.get_variable_value(name), resumed.get_variable_value(name))


# Warm starts from another optimizer's checkpoint.


def old_run(directory, kind="ref", extra=None):
    """Trains five steps with a stock optimizer. Returns the checkpoint's path and the weights."""
    with Graph(kind) as graph:
        if extra:
            make_variable(extra, kind, START)
        global_step = v1.train.get_or_create_global_step()
        train_op = v1.train.AdamOptimizer(0.1).minimize(graph.loss, global_step)
        graph.train(train_op, range(5))
        path = v1.train.Saver().save(graph.session, str(directory / "model"), global_step=global_step)
        return path, graph.whole()


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_warm_start_from_a_stock_optimizer(kind, tmp_path):
    path, weights = old_run(tmp_path, kind)
    with Graph(kind, parts=3) as graph:
        global_step = v1.train.get_or_create_global_step()
        other = make_variable("other", "ref", START)
        optimizer = Slow(0.1).bind(v1.train)
        train_op = optimizer.minimize(graph.loss + tf.reduce_sum(other), global_step)
        with pytest.raises(tf.errors.NotFoundError):
            v1.train.Saver().restore(graph.session, path)
        graph.start()
        start = everstep.warm_start(path)
        assert start.restored == ["W", "global_step"]
        assert sorted(start.new) == ["Slow/updates", "W/Slow/average", "other", "other/Slow/average"]
        assert set(start.new.values()) == {"not in the checkpoint"}
        assert "W/Slow/average: not in the checkpoint" in str(start)
        start.run(graph.session)
        slots = [optimizer.get_slot(part, "average") for part in graph.variables]
        np.testing.assert_array_equal(graph.whole(), weights)
        # Slots start at the variable's restored value, or at its initial value if branches cannot read a ref variable.
        expected = START if refuses_ref_in_functions(graph.variables[0]) else weights
        np.testing.assert_array_equal(graph.whole(slots), expected)
        assert graph.run([global_step, harness.bound(optimizer).adapter.counter("updates")]) == [5, 0]
        graph.train(train_op, range(3))
        assert graph.run([global_step, harness.bound(optimizer).adapter.counter("updates")]) == [8, 3]


def test_warm_start_in_a_scaffold_with_a_new_random_variable(tmp_path):
    """The slot starts at the variable's final value, though the session initialized both before."""
    path, weights = old_run(tmp_path)
    with Graph("resource") as graph:
        other = v1.get_variable("other", [4, 3], use_resource=True)
        optimizer = Slow(0.1).bind(v1.train)
        optimizer.minimize(graph.loss + tf.reduce_sum(other))
        scaffold = v1.train.Scaffold(init_fn=everstep.warm_start(path).init_fn)
        with v1.train.MonitoredSession(v1.train.ChiefSessionCreator(scaffold)) as session:
            for variable in (graph.weight, other):
                value, average = session.run([variable, optimizer.get_slot(variable, "average")])
                np.testing.assert_array_equal(value, average)
            np.testing.assert_array_equal(session.run(graph.weight), weights)


def test_warm_start_leaves_what_does_not_fit(tmp_path):
    path, _ = old_run(tmp_path, extra="E")
    with tf.Graph().as_default(), v1.Session() as session:
        make_variable("W", "resource", START)
        wider = make_variable("E", "ref", np.ones((4, 5), np.float32))
        v1.get_variable("global_step", initializer=np.int32(0), trainable=False)
        start = everstep.warm_start(path)
        assert start.restored == ["W"]
        assert start.new == {"E": "of shape (4, 3) in the checkpoint, (4, 5) here",
                             "global_step": "int64 in the checkpoint, int32 here"}
        start.run(session)
        np.testing.assert_array_equal(session.run(wider), np.ones((4, 5)))


def test_warm_start_gives_up_in_words(tmp_path):
    path, _ = old_run(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text(u"no checkpoint")
    with tf.Graph().as_default() as graph:
        v1.train.get_or_create_global_step()
        v1.get_variable("renamed", [4, 3])
        for wrong, words in [(path, "none of the trainable variables; it has W.* the graph renamed"),
                             (path + "0", "no checkpoint.*Saver.save returned"),
                             (str(tmp_path / "empty"), "directory without a checkpoint"),
                             (str(tmp_path / "text"), "not a checkpoint")]:
            with pytest.raises(StateError, match=words):
                everstep.warm_start(wrong)
        with pytest.raises(StateError, match="none of the variables"):
            everstep.warm_start(path, [variable for variable in v1.global_variables() if "renamed" in variable.op.name])
        graph.finalize()
        with pytest.raises(UnsupportedError, match="finalized"):
            everstep.warm_start(path)


@pytest.mark.shared
@pytest.mark.skipif(not hasattr(ESTIMATOR, "WarmStartSettings"), reason="no warm_start_from in this TensorFlow")
def test_estimators_own_warm_start(tmp_path):
    estimator(lambda: v1.train.AdamOptimizer(0.1), tmp_path / "old").train(batches, steps=5)
    warm = estimator(lambda: Adam(0.0).bind(v1.train), tmp_path / "new", warm_start_from=str(tmp_path / "old"))
    warm.train(batches, steps=2)
    old = estimator(lambda: None, tmp_path / "old").get_variable_value("kernel")
    np.testing.assert_array_equal(warm.get_variable_value("kernel"), old)
    assert warm.get_variable_value("Adam/updates") == warm.get_variable_value("global_step") == 2


# Eager code.


def eager_variable(value=START, name="W"):
    return tf.Variable(value, name=name) if TF2 else v1.get_variable(name, initializer=value)


def eager_steps():
    for definition in DEFINITIONS:
        (weights, rows), optimizer = (eager_variable(), eager_variable(name="rows")), definition.bind(v1.train)
        of_rows, global_step = definition.bind(v1.train), v1.train.get_or_create_global_step()
        before = global_step.numpy()
        for step in range(8):
            slices = tf.IndexedSlices(tf.constant(VALUES[step]), tf.constant(IDS[step]))
            of_rows.apply_gradients([(slices, rows)])
            loss = lambda weights=weights, step=step: tf.reduce_sum(weights * GRADS[step])  # noqa: E731
            assert optimizer.minimize(loss, global_step, [weights]) is None
        assert global_step.numpy() - before == 8
        assert_same(weights.numpy(), expected(definition, range(8))[0])
        assert_same(rows.numpy(), expected(definition, range(8), sparse=True)[0])
        assert {"m", "v"} <= set(optimizer.get_slot_names()) or "Adam" not in repr(definition)
        with pytest.raises(HyperValueError):
            optimizer.learning_rate = 0.5


def eager_function():
    falling = everstep.InverseTimeDecay(0.1, 0.5)
    for definition in (Adam(0.1), everstep.accumulate(Adam(0.1), 3), Slow(0.1), Adam(falling)):
        weights, optimizer = eager_variable(), definition.bind(v1.train)

        @tf.function
        def train(grad, weights=weights, optimizer=optimizer):
            optimizer.minimize(lambda: tf.reduce_sum(weights * grad), var_list=[weights])

        for step in range(8):
            train(tf.constant(GRADS[step]))
        assert_same(weights.numpy(), expected(definition, range(8))[0])
        updates = harness.bound(optimizer).adapter.counter("updates").numpy()
        assert updates == (2 if "Accumulate" in repr(definition) else 8)


def eager_same_names():
    """Two variables with the same name stay separate."""
    one, two, optimizer = eager_variable(), eager_variable(), Slow(0.1).bind(v1.train)
    optimizer.apply_gradients([(tf.constant(GRADS[0]), one), (tf.constant(GRADS[1]), two)])
    arrays, expected = Slow(0.1).bind(np), [START.astype(np.float64), START.astype(np.float64)]
    arrays.apply_gradients([(GRADS[0].astype(np.float64), expected[0]), (GRADS[1].astype(np.float64), expected[1])])
    assert_same(one.numpy(), expected[0])
    assert_same(two.numpy(), expected[1])


def eager_checkpoint():
    """Restores object-based checkpoints into an optimizer with slots, and into one that creates them later."""

    def step(optimizer, weights, steps):
        for number in steps:
            optimizer.apply_gradients([(tf.constant(GRADS[number]), weights)])

    def build(definition):
        optimizer, weights = definition.bind(v1.train), eager_variable()
        return optimizer, weights, CHECKPOINT(optimizer=optimizer, weights=weights)

    folder = tempfile.mkdtemp()
    try:
        # The others have a slot of one number for each row.
        for definition in (everstep.accumulate(Adam(0.1), 3), AdagradDecay(0.1, decay_steps=2), Seen()):
            optimizer, weights, checkpoint = build(definition)
            step(optimizer, weights, range(5))
            path = checkpoint.save(os.path.join(folder, "model"))
            step(optimizer, weights, range(5, 10))
            for steps_before in (range(0), range(1)):
                again, other, checkpoint = build(definition)
                step(again, other, steps_before)
                status = checkpoint.restore(path)
                step(again, other, range(5, 10))
                status.assert_consumed()
                np.testing.assert_array_equal(other.numpy(), weights.numpy())
    finally:
        shutil.rmtree(folder)


def eager_warm_start():
    with pytest.raises(UnsupportedError, match="eager"):
        everstep.warm_start("model")


EAGER = [eager_steps, eager_same_names, eager_warm_start]
EAGER += [eager_function] if hasattr(tf, "function") else []  # from TF 1.14 on
EAGER += [eager_checkpoint] if CHECKPOINT else []


@pytest.mark.shared
@pytest.mark.parametrize("checks", [[check] for check in EAGER] if TF2 else [EAGER], ids=lambda some: some[0].__name__)
def test_eager(checks):
    """In TF 1.x eager mode is set for a whole process, so the checks run in a new one."""
    if TF2:
        return checks[0]()
    if not hasattr(tf, "enable_eager_execution"):
        pytest.skip("this TensorFlow has no eager execution that can be enabled")
    program = """
        import warnings
        warnings.simplefilter("ignore")
        import tensorflow as tf
        tf.enable_eager_execution()
        import test_tf_train
        for check in test_tf_train.EAGER:
            check()
            print(check.__name__)
    """
    here = os.path.dirname(os.path.abspath(__file__))
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([here] + [path for path in sys.path if path]))
    command = [sys.executable, "-c", textwrap.dedent(program)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    output, errors = process.communicate()
    assert output.decode().split() == [check.__name__ for check in EAGER], errors.decode()[-3000:]
