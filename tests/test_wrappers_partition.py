"""`everstep.partition`: several optimizers in one model, each equal to a run of its own on its variables."""

from __future__ import absolute_import, division, print_function

import json
import sys

import numpy as np
import pytest

import everstep
import harness
import runs
from everstep.errors import ConfigError, DefinitionError, EverstepError, HyperTypeError, HyperValueError, StateError
from everstep.optimizers import LAMB, SGD, Adagrad, Adam, Nadam
from everstep.optimizers.contract.trees import flat
from everstep.testing import oracle, training
from runs import ONE_EACH, WAYS, distance
from test_battery import ids
from test_catch_up import zipf_batches
from test_wrappers_accumulate import joined, windows

pytestmark = pytest.mark.shared
SHAPES = {"dense_kernel": (4, 3), "dense_bias": (3,), "embed": (6, 3), "head": (2, 2)}
KINDS = dict({name: harness.DENSE for name in SHAPES}, embed=harness.SPARSE)
START = {name: np.full(shape, 0.5, "float32") for name, shape in SHAPES.items()}


BATCHES = training.make_batches("float32", 20, SHAPES, KINDS)


def named(way, name):
    """Returns a rule that selects a variable: by name, or by shape on arrays, which have no names."""
    if way.target != "arrays":
        return name
    shape = [SHAPES[each] for each in SHAPES if name in each][0]
    return lambda variable: variable.shape == shape


def split(way, default=None):
    """Returns three definitions and a default for four variables: one has a wrapper and a total, one a scalar."""
    return everstep.partition({"table": (named(way, "embed"), Adagrad(0.3, sparse="rows", dense_ok=True)),
                               "biases": (named(way, "bias"), everstep.clip(SGD(0.1, momentum=0.9), global_norm=0.5)),
                               "top": (named(way, "head"), Nadam(0.02))}, default=default or Adam(0.05))


def trained(way, definition, count=20, names=START):
    start, kinds = {name: START[name] for name in names}, {name: KINDS[name] for name in names}
    return runs.trained(way, definition, start, kinds, BATCHES[:count])


@pytest.mark.parametrize("way", ONE_EACH, ids=ids)
def test_each_variable_is_trained_as_if_alone(way):
    definition = split(way)
    run = trained(way, definition)
    actual = run.weights()
    slots = {name: sorted(harness.bound(run.optimizer).slot_names(run.variables[name])) for name in START}
    assert slots["dense_kernel"] == ["default/m", "default/v"]
    assert slots["dense_bias"] == ["biases/velocity"]  # clip itself has no slots
    assert slots["embed"] == ["table/accumulator"] and slots["head"] == ["top/m", "top/v"]
    for branch, name in (("table", "embed"), ("biases", "dense_bias"), ("top", "head"), ("default", "dense_kernel")):
        expected = trained(way, definition.children()[branch], names=[name]).weights()[name]
        assert oracle.distance(actual[name], expected) <= 1e-6, name
        assert oracle.distance(expected, START[name]) > 0.02


@pytest.mark.parametrize("way", [way for way in ONE_EACH if way.target != "tf_train"], ids=ids)
def test_each_rate_is_set_by_itself(way):
    run = trained(way, split(way), 1)
    optimizer, before = run.optimizer, run.weights()
    with pytest.raises(HyperValueError, match="several learning rates: biases_learning_rate, .*default_learning_"):
        optimizer.learning_rate = 0.1
    with pytest.raises(HyperValueError, match="several learning rates"):
        optimizer.lr = 0.1
    if way.target in ("update_step", "optimizer_v2", "get_updates"):
        assert not hasattr(optimizer, "lr")  # Keras callbacks check this first
    rates = [name.replace("/", "_") for name in flat(optimizer.definition, "hyper") if name.endswith("learning_rate")]
    assert rates == [name + "_learning_rate" for name in ("biases", "table", "top", "default")]
    for name in rates:
        if name != "table_learning_rate":
            if isinstance(run, harness.GraphRun):
                run.world.set_hyper(optimizer, name, 0.0)
            else:
                setattr(optimizer, name, 0.0)
    after = runs.stepped(run, BATCHES[1:2]).weights()
    # Its velocity continues at a rate of 0.
    assert [name for name in sorted(START) if not np.array_equal(before[name], after[name])] == ["dense_bias", "embed"]


@pytest.mark.parametrize("way", ONE_EACH, ids=ids)
def test_saved_and_resumed(way):
    """Saves and loads with the API's own files in the middle of a window; the result is the same bit for bit."""
    definition = everstep.accumulate(split(way, default=SGD(0.1, momentum=0.9)), 3)
    run = runs.stepped(runs.resumed(trained(way, definition, 4)), BATCHES[4:9])
    assert runs.same(run.weights(), trained(way, definition, 9).weights())


@pytest.mark.parametrize("way", ONE_EACH, ids=ids)
def test_wrappers_around_and_inside(way):
    """Outside, a norm covers all variables and so does skipping. Inside, a norm covers the branch's variables."""
    inside = everstep.partition({"ours": (named(way, "dense_kernel"), everstep.clip(SGD(1.0), global_norm=0.1))},
                                default=everstep.clip(SGD(1.0), global_norm=0.2))
    around = everstep.partition({"ours": (named(way, "dense_kernel"), SGD(1.0))}, SGD(1.0))
    around = everstep.clip(around, global_norm=1)

    def moved(definition, feed):
        actual = runs.trained(way, definition, START, KINDS, feed).weights()
        return {name: START[name] - value for name, value in actual.items()}

    def norm(moved, names):
        return np.sqrt(sum((moved[name].astype("float64") ** 2).sum() for name in names))

    actual = moved(inside, BATCHES[:1])
    assert abs(norm(actual, ["dense_kernel"]) - 0.1) < 1e-6
    assert abs(norm(actual, set(START) - {"dense_kernel"}) - 0.2) < 1e-6
    assert abs(norm(moved(around, BATCHES[:1]), START) - 1.0) < 1e-6

    definition = split(way)
    joint = [all_joined(window) for window in windows(BATCHES[:8], [4, 4])]
    assert distance(moved(everstep.accumulate(definition, 4), BATCHES[:8]), moved(definition, joint)) <= 1e-5


def all_joined(window):
    means = {name: np.mean([batch[name] for batch in window], axis=0) for name in START if name != "embed"}
    both = [{"kernel": batch["dense_kernel"], "table": batch["embed"]} for batch in window]
    return dict(means, embed=joined(both)["table"])


@pytest.mark.parametrize("way", [way for way in ONE_EACH if way.sparse], ids=ids)
def test_each_branch_has_its_own_meaning_of_sparse(way):
    """In one model one table uses catch_up, one rows and one exact."""
    sizes = {"first": 40, "second": 39, "third": 38}
    start = {name: np.full((rows, 3), 0.5, "float32") for name, rows in sizes.items()}
    definition = everstep.partition({
        "first": (lambda variable: variable.shape[0] == 40, Adam(0.05, sparse="catch_up")),
        "second": (lambda variable: variable.shape[0] == 39, Adam(0.05, sparse="rows")),
    }, default=Adam(0.05))
    kinds = {name: harness.SPARSE for name in start}

    def train(definition, names):
        batches = [{name: batch["table"] for name in names} for batch in zipf_batches(60, rows=38)]
        run = runs.trained(way, definition, {name: start[name] for name in names}, kinds, batches)
        run.flush()
        return run.weights()

    actual = train(definition, sorted(start))
    exact, rows = train(Adam(0.05), ["first", "third"]), train(Adam(0.05, sparse="rows"), ["second"])
    for name, expected in (("first", exact), ("third", exact), ("second", rows)):
        assert oracle.distance(actual[name], expected[name]) <= 2e-6, name
    assert oracle.distance(actual["second"][:38], actual["third"]) > 1e-2


@pytest.mark.parametrize("way", ONE_EACH, ids=ids)
def test_mistakes_raise_before_any_change(way):
    if way.target == "arrays":
        return  # arrays have no names: see below
    cases = [
        (everstep.partition({"typo": Adam()}, SGD()), "branch typo of the partition .typo. takes no variable"),
        (everstep.partition({"collection:none": Adam()}, SGD()), "branch none .* takes no variable"),
        (everstep.partition({"dense": Adam(), "bias": SGD()}, SGD()), "belongs to the branches bias and dense"),
        (everstep.partition({"dense": Adam(), "embed": SGD()}), "head.* belongs to no branch"),
    ]
    for definition, message in cases:
        with pytest.raises(DefinitionError, match=message):
            trained(way, definition, 1)
    runs.started(way, split(way), START, KINDS)  # a function may match no variable


@pytest.mark.parametrize("way", [way for way in WAYS if way.target == "tf_train"][:1], ids=ids)
def test_collections(way):
    tf = harness.graph_mode_tensorflow()
    with tf.Graph().as_default(), tf.Session() as session:
        rows, others = (tf.get_variable(name, initializer=tf.ones(2)) for name in ("a", "b"))
        tf.add_to_collection("slow", rows)
        optimizer = everstep.partition({"collection:slow": SGD(0.1)}, default=Adam(0.5)).bind(way.module)
        train_op = optimizer.minimize(tf.reduce_sum(rows) + tf.reduce_sum(others))
        session.run(tf.global_variables_initializer())
        session.run(train_op)
        np.testing.assert_allclose(session.run([rows, others]), [[0.9, 0.9], [0.5, 0.5]], rtol=1e-5)
        names = {variable.op.name for variable in optimizer.variables()}
        assert names == {"Partition/updates", "b/Partition/default/m", "b/Partition/default/v"}


@pytest.mark.parametrize("way", [way for way in WAYS if way.target not in ("arrays", "tf_train")], ids=ids)
def test_config_through_the_api(way):
    rate = everstep.ExponentialDecay(0.1, 10, 0.5)
    deep = everstep.partition({"bias": SGD()}, Adam())
    embed = Adagrad(0.3, sparse="rows", dense_ok=True)
    definition = everstep.partition({"embed": embed, "deep": ("^dense", deep)}, default=Nadam(rate))
    definition = everstep.clip(definition, value=1.0)
    if way.target == "get_updates":
        harness.clear_session(way.module)
    optimizer = definition.bind(way.module)
    optimizer.embed_learning_rate = 0.25
    config = json.loads(json.dumps(optimizer.get_config(), default=float))
    other = type(optimizer).from_config(config)
    assert other.definition.inner.children()["embed"].learning_rate == 0.25
    again = other.definition.inner.replace(embed=definition.inner.children()["embed"])
    assert other.definition.replace(inner=again) == definition
    native = getattr(way.module, "optimizers", way.module)
    if not hasattr(native, "serialize"):  # a module of legacy classes: its package serializes
        native = sys.modules[native.__name__.rpartition(".")[0]]
    serialized = native.serialize(optimizer)
    loaded = native.deserialize(serialized, custom_objects=everstep.custom_objects(way.module))
    assert type(loaded) is type(optimizer) and loaded.definition == other.definition


@pytest.mark.parametrize("way", ONE_EACH, ids=ids)
def test_a_branch_that_is_ahead(way):
    """`starts`: what an optimizer that made 8 updates alone goes on with, beside one that begins."""
    old, ahead, late = ["dense_kernel", "embed"], Adam(0.05), Nadam(0.02)
    alone = trained(way, ahead, 8, names=old)
    early, values = alone.captured(), alone.weights()
    expected = runs.stepped(alone, [{name: batch[name] for name in old} for batch in BATCHES[8:14]]).weights()
    rules = {"late": (named(way, "bias"), late), "later": (named(way, "head"), late)}
    run = runs.started(way, everstep.partition(rules, ahead, starts={"default": 8}), dict(START, **values), KINDS)
    state = run.captured()
    for name in old:
        state.slots[name] = {"default/" + slot: value for slot, value in early.slots[name].items()}
    run.restored(state)
    actual = runs.stepped(run, BATCHES[8:14]).weights()
    for name in ("dense_bias", "head"):
        expected.update(runs.trained(way, late, {name: START[name]}, {name: KINDS[name]},
                                     [{name: batch[name]} for batch in BATCHES[8:14]]).weights())
    for name in START:
        assert oracle.distance(actual[name], expected[name]) <= 1e-6, name


def test_a_branch_that_is_ahead_catches_up():
    """Rows that missed steps take them with the count of their branch."""
    start = {"table": np.full((12, 3), 0.5)}
    batches = list(zipf_batches(60, rows=12, dtype="float64"))
    kinds, rule = {"table": harness.SPARSE}, Adam(0.05, beta_1=0.5, beta_2=0.9)
    ways = [everstep.partition({"table": (lambda variable: True, rule.replace(sparse=sparse))}, starts={"table": 3})
            for sparse in ("exact", "catch_up")]
    exact, caught_up = [runs.trained(harness.NUMPY, definition, start, kinds, batches) for definition in ways]
    caught_up.flush()
    assert oracle.distance(caught_up.weights()["table"], exact.weights()["table"]) <= 1e-9
    plain = runs.trained(harness.NUMPY, ways[0].replace(starts=()), start, kinds, batches)
    assert oracle.distance(plain.weights()["table"], exact.weights()["table"]) > 1e-3


def test_config_and_state():
    way = harness.NUMPY
    definition = split(way)
    with pytest.raises(ConfigError, match="a function chooses the variables of branch biases, table, top"):
        definition.get_config()
    run = trained(way, definition, 3)
    arrays, state = run.variables, run.captured()
    assert sorted(state.slots["dense_kernel"]) == ["default/m", "default/v"]
    assert list(state.scalars) == ["top/momentum_product"]
    other = split(way, default=Adam(0.01)).bind(np)
    everstep.restore(other, state, {name: value.copy() for name, value in arrays.items()})
    with pytest.raises(StateError, match="is of Adam, this optimizer is SGD"):
        everstep.restore(split(way, default=SGD()).bind(np), state, arrays)
    by_name = everstep.partition({"array_0": SGD(), "c": ("array_1|array_2", Adam(sparse="rows"))}, LAMB())
    assert everstep.Definition.from_config(json.loads(json.dumps(by_name.get_config()))) == by_name
    assert by_name.replace(c=SGD()).children()["c"] == SGD()
    assert by_name.replace(sparse="exact").children()["c"] == Adam()


test_bad_rules = runs.refused([
    (lambda: everstep.partition([("a", SGD())]), HyperTypeError, "takes {rule: definition}"),
    (lambda: everstep.partition({"a": "sgd"}), HyperTypeError, "takes an everstep definition"),
    (lambda: everstep.partition({"(": SGD()}), DefinitionError, "cannot name a branch"),
    (lambda: everstep.partition({"x": ("(", SGD())}), EverstepError, "regular expression"),
    (lambda: everstep.partition({"a": SGD()}, starts={"b": 3}), HyperValueError, "the branches a; got 'b': 3"),
    (lambda: everstep.partition({"a": SGD()}, starts={"a": -1}), HyperValueError, "counts from 0 on"),
    (lambda: everstep.partition({"a": SGD()}, starts=3), HyperTypeError, "the starts of a partition are"),
    (lambda: everstep.partition({"a": SGD(everstep.ExponentialDecay(0.1, 9))}, starts={"a": 1}), DefinitionError,
     "goes by the count of all branches"),
    (lambda: everstep.partition({"a": (3, SGD())}), HyperTypeError, "a rule is a regular expression"),
    (lambda: everstep.partition({"a/": SGD(), "/a": SGD()}), DefinitionError, "are called 'a'"),
    (lambda: everstep.partition({"sparse": SGD()}), DefinitionError, "'sparse' cannot name"),
    (lambda: everstep.partition({"rules": SGD()}), DefinitionError, "'rules' cannot name"),
    (lambda: everstep.partition({"scaled": SGD()}), DefinitionError, "'scaled' cannot name"),
    (lambda: everstep.partition({"default": SGD()}), DefinitionError, "'default' cannot name"),
    (lambda: everstep.partition({}, SGD()), DefinitionError, "a rule for each branch"),
    (lambda: everstep.partition({"a": everstep.accumulate(SGD(), 2)}), DefinitionError, "put it around"),
    (lambda: everstep.optimizers.Partition(3, a=SGD()), HyperTypeError, "rules of a partition"),
    (lambda: everstep.optimizers.Partition((("a", "a"),), b=SGD()), DefinitionError, "for a and the branches b"),
])


def test_settings_of_a_wrapper_reach_the_rules_inside():
    stack = everstep.accumulate(everstep.clip(Adam(sparse="rows"), norm=1.0), 2).replace(dense_ok=True)
    assert stack.dense_ok and stack.inner.dense_ok and stack.inner.inner == Adam(sparse="rows", dense_ok=True)
    branches = everstep.partition({"ours": ("x", Adam())}, SGD()).replace(sparse="rows").children()
    assert [branch.sparse for branch in branches.values()] == ["rows", "rows"]
    given = stack.replace(inner=Adam(), sparse="catch_up")
    assert (given.sparse, given.inner) == ("catch_up", Adam())
