"""Tables in shards (`ShardedVariable`), on the APIs of Keras 2, beside stock optimizers and beside whole tables.

Here the shards are in one process; test_distribution.py has them on two parameter servers.
"""
from __future__ import absolute_import, division, print_function

import numpy as np
import pytest

import everstep
import harness
import keras_suite
from everstep.errors import SlotError, UnsupportedError, VariableError
from everstep.optimizers import SGD, Adam
from test_battery import define, definition_classes, golden

try:
    import tensorflow as tf
    from tensorflow.python.distribute.sharded_variable import ShardedVariable

    KNOWN = hasattr(ShardedVariable([tf.Variable([1.0])]).variables[0], "_sharded_container")
except (ImportError, TypeError, ValueError):  # sessions of TF 1 have no such variable
    KNOWN = False
if not KNOWN:
    pytest.skip("shards know their table in TF 2.9 and newer", allow_module_level=True)

APIS = {name: modules[0][1] for name, modules in sorted(keras_suite.available_modules().items())
        if name in ("optimizer_v2", "update_step")}
RANDOM = np.random.RandomState(0)
ROWS, WIDTH, STEPS = 7, 3, 4
TABLE = RANDOM.normal(size=(ROWS, WIDTH)).astype("float32")
GRADIENTS = RANDOM.normal(size=(STEPS, ROWS, WIDTH)).astype("float32")
BOUND = 1e-6


class Table(object):
    """A table in shards of some lengths, or whole, and its optimizer."""

    def __init__(self, optimizer, lengths=()):
        starts = np.cumsum((0,) + tuple(lengths))
        self.shards = [tf.Variable(TABLE[first : first + size], name="table/part_{}".format(index))
                       for index, (first, size) in enumerate(zip(starts, lengths))]
        self.table = ShardedVariable(self.shards, name="table") if lengths else tf.Variable(TABLE, name="table")
        self.slices = [slice(first, first + size) for first, size in zip(starts, lengths)] or [slice(0, ROWS)]
        self.variables, self.optimizer = self.shards or [self.table], optimizer
        if hasattr(optimizer, "build"):
            optimizer.build(self.variables)
        self.checkpoint = tf.train.Checkpoint(table=self.table, optimizer=optimizer)

    def train(self, steps):
        for step in steps:
            self.optimizer.apply_gradients([(tf.constant(GRADIENTS[step][rows]), variable)
                                            for rows, variable in zip(self.slices, self.variables)])
        return self

    def value(self):
        return np.concatenate([variable.numpy() for variable in self.variables])

    def differs_from(self, other):
        return float(np.abs(self.value() - other.value()).max())


each_api = pytest.mark.parametrize("api", sorted(APIS))


def cases():
    """Returns {name: definition} of all definitions and wrappers, of which a cell takes its share."""
    found = {each.__name__: define(each, dict((golden(each).CONFIGURATIONS or [{}])[0]))
             for each in definition_classes() if each.stages == 1}  # a table has one gradient here
    adam = Adam(0.1, epsilon=1e-3)
    found.update({"clip": everstep.clip(adam, norm=0.1), "clip in all": everstep.clip(adam, global_norm=0.1),
                  "centralize": everstep.centralize(adam), "noise": everstep.gradient_noise(adam, 0.1),
                  "accumulate": everstep.accumulate(adam, 2), "lookahead": everstep.lookahead(adam, 2)})
    names = sorted(found)
    return [pytest.param(found[name], id=name) for name in (names if harness.FULL else names[harness.TURN % 4 :: 4])]


@each_api
@pytest.mark.parametrize("definition", cases())
def test_shards_train_as_the_whole_or_are_refused(api, definition):
    whole = Table(definition.bind(APIS[api])).train(range(STEPS))
    sharded = Table(definition.bind(APIS[api]), (4, 3))
    if harness.bound(whole.optimizer).rule(whole.table).locality == "variable":
        with pytest.raises(UnsupportedError, match="needs table whole, but it is partitioned"):
            sharded.train(range(1))
        np.testing.assert_array_equal(sharded.value(), TABLE)
        return
    assert sharded.train(range(STEPS)).differs_from(whole) <= BOUND * np.abs(whole.value()).max()


@each_api
@pytest.mark.parametrize("name", ["LAMB", "Adafactor", "centralize", "clip"])
def test_norms_are_those_of_the_whole(api, name):
    make = {"centralize": lambda: everstep.centralize(SGD(0.1)), "clip": lambda: everstep.clip(SGD(0.1), norm=0.1)}
    definition = make.get(name, lambda: getattr(everstep.optimizers, name)(0.1))()
    try:
        sharded = Table(definition.bind(APIS[api]), (4, 3)).train(range(2))
    except UnsupportedError as error:
        assert name != "clip" and "partitioned" in str(error)
    else:
        assert sharded.differs_from(Table(definition.bind(APIS[api])).train(range(2))) <= BOUND


@each_api
def test_a_state_moves_between_shards_and_the_whole(api):
    definition = everstep.accumulate(everstep.moving_average(Adam(0.1, epsilon=1e-3)), 2)
    make = lambda *lengths: Table(definition.bind(APIS[api]), lengths)  # noqa: E731
    expected = make().train(range(STEPS))
    for first, second in (((4, 3), ()), ((), (4, 3)), ((4, 3), (3, 2, 2))):
        old, new = make(*first).train(range(3)), make(*second)
        everstep.restore(new.optimizer, everstep.capture(old.optimizer, [old.table], weights=True), [new.table])
        for rows, variable in zip(new.slices, new.variables):
            variable.assign(old.value()[rows])
        assert new.train(range(3, STEPS)).differs_from(expected) <= BOUND
    state = everstep.capture(old.optimizer, old.variables)  # the shards, as model.trainable_variables lists them
    assert list(state.slots) == ["table"] and np.shape(state.slots["table"]["m"]) == (ROWS, WIDTH)
    with pytest.raises(VariableError, match="only some parts of table are given"):
        everstep.capture(make(4, 3).optimizer, old.variables[:1])


def stock_adam(api):
    module = APIS[api]
    return getattr(module, "optimizers", module).Adam(0.1, epsilon=1e-3)


@each_api
def test_slots_of_a_table_are_sharded_as_stock_s_are(api):
    ours = Table(Adam(0.1, epsilon=1e-3).bind(APIS[api]), (4, 3)).train(range(2))
    slot = ours.optimizer.get_slot(ours.table, "m")
    assert type(slot) is ShardedVariable and slot.shape == ours.table.shape
    for part, shard in zip(slot.variables, ours.shards):
        assert part is ours.optimizer.get_slot(shard, "m")
    with pytest.raises(SlotError, match="has no slot 'momentum'"):
        ours.optimizer.get_slot(ours.table, "momentum")
    if api == "optimizer_v2":
        stock = Table(stock_adam(api), (4, 3)).train(range(2))
        expected = stock.optimizer.get_slot(stock.table, "m")
        assert type(expected) is type(slot)
        own, others = (np.concatenate([part.numpy() for part in each.variables]) for each in (slot, expected))
        np.testing.assert_allclose(own, others, rtol=1e-6)


@each_api
def test_checkpoints_are_those_of_stock(api, tmp_path):
    names, paths = [], []
    for number, optimizer in enumerate((stock_adam(api), Adam(0.1, epsilon=1e-3).bind(APIS[api]))):
        trained = Table(optimizer, (4, 3)).train(range(2))
        paths.append(trained.checkpoint.save(str(tmp_path / str(number))))
        names.append({name for name, _ in tf.train.list_variables(paths[-1]) if "table" in name})
    assert names[0] == names[1] and len(names[0]) == (3 if api == "optimizer_v2" else 1)
    trained.train(range(2, STEPS))
    for path in paths[api == "update_step" :]:  # those of update_step also have hypers
        for lengths in ((4, 3), (), (3, 2, 2)) if api == "optimizer_v2" else ((4, 3),):
            for trains_first in (False, True):
                new = Table(Adam(0.1, epsilon=1e-3).bind(APIS[api]), lengths)
                new = new.train(range(1)) if trains_first else new
                new.checkpoint.restore(path).expect_partial()  # stock has a hyper `decay`
                assert new.train(range(2, STEPS)).differs_from(trained) <= BOUND, (lengths, trains_first)


@each_api
def test_a_sharded_variable_is_given_as_its_shards(api):
    table = Table(Adam(0.1).bind(APIS[api]), (4, 3))
    with pytest.raises(VariableError, match="give its shards"):
        table.optimizer.apply_gradients([(tf.constant(GRADIENTS[0]), table.table)])
