"""`everstep.lazy_embeddings`: gradients depend on the rows that are read, and the run equals the dense one."""

from __future__ import absolute_import, division, print_function

import functools

import numpy as np
import pytest

import everstep
import harness
from everstep.errors import NotBoundError, UnsupportedError, VariableError
from everstep.optimizers import Adam
from everstep.testing import oracle

try:
    import tensorflow as tf
except ImportError:
    tf = None

pytestmark = pytest.mark.shared
GRAPHS = [way for way in harness.all_ways() if way.name in ("tf_train ref", "tf_train resource")]
KERAS = [way for way in harness.quickest() if way.target in ("optimizer_v2", "update_step", "keras3") and way.sparse]
CHANCES = 1 / np.arange(1.0, 21) ** 1.5


def batches(steps=40):
    random = np.random.RandomState(0)
    for _ in range(steps):
        yield [random.choice(20, size, p=CHANCES / CHANCES.sum()) for size in (3, 2)]


def start():
    return np.linspace(0.1, 1, 60).reshape(20, 3).astype("float32")


@pytest.mark.parametrize("way", GRAPHS, ids=[way.name for way in GRAPHS])
def test_in_graphs(way):
    """Two look-ups of one table with common rows, of which each row moves once."""
    def run(sparse, lazy):
        with way.world(way.module) as world:
            table = world.variable(start(), name="table")
            rows = [world.tf.placeholder(tf.int64, [size]) for size in (3, 2)]
            read = [tf.nn.embedding_lookup(table, each) for each in rows]
            loss = tf.reduce_sum(tf.square(read[0] - 0.3)) + tf.reduce_sum(tf.square(read[1]))
            optimizer = Adam(0.05, sparse=sparse).bind(way.module)
            step = optimizer.minimize(loss)
            if lazy:
                assert len(everstep.lazy_embeddings(optimizer)) == 2
            flush = world.tf.get_collection("everstep/flush")[0] if lazy else optimizer.flush()
            for batch in batches():
                world.run(step, dict(zip(rows, batch)))
            world.run(flush)
            return world.read(table)

    expected = run("exact", False)
    assert oracle.distance(run("catch_up", True), expected) <= 2e-6
    assert oracle.distance(run("catch_up", False), expected) > 1e-3


@pytest.mark.skipif(tf is None or not tf.__version__.startswith("1."), reason="an Estimator with a graph of TF 1")
def test_in_estimators(tmpdir):
    """A run in two calls of `train`, whose checkpoints are flushed by a listener, is the dense run."""
    rows = np.array([batch[0] for batch in batches(40)])

    class Flush(tf.train.CheckpointSaverListener):
        def begin(self):
            self.flush = tf.get_collection("everstep/flush")

        def before_save(self, session, global_step_value):
            session.run(self.flush)

    def train(sparse):
        def model_fn(features, labels, mode):
            table = tf.get_variable("table", initializer=start())
            read = tf.nn.embedding_lookup(table, features["rows"])
            loss = tf.reduce_sum(tf.square(read - 0.3)) + 0.1 * tf.reduce_sum(read)
            optimizer = Adam(0.05, sparse=sparse).bind(tf.train)
            train_op = optimizer.minimize(loss, global_step=tf.train.get_or_create_global_step())
            if sparse == "catch_up":
                everstep.lazy_embeddings(optimizer)
            return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

        def input_fn(first):
            dataset = tf.data.Dataset.from_tensor_slices(rows[first : first + 20])
            return {"rows": dataset.make_one_shot_iterator().get_next()}, None

        estimator = tf.estimator.Estimator(model_fn, model_dir=str(tmpdir.join(sparse)))
        for first in (0, 20):
            estimator.train(functools.partial(input_fn, first), saving_listeners=[Flush()])
        return estimator.get_variable_value("table")

    expected = train("exact")
    assert oracle.distance(train("catch_up"), expected) <= 2e-6
    assert oracle.distance(train("rows"), expected) > 1e-3


def model_of(keras, definition):
    class Sized(keras.layers.Layer):
        """Has an input_dim, as an Embedding, and no table."""

        input_dim = 3

        def call(self, inputs):
            return inputs

    inputs = keras.layers.Input((3,), dtype="int32")
    embedded = keras.layers.Flatten()(Sized()(keras.layers.Embedding(20, 3)(inputs)))
    model = keras.models.Model(inputs, keras.layers.Dense(1)(embedded))
    random = np.random.RandomState(1)
    model.set_weights([random.normal(0, 0.3, weight.shape) for weight in model.get_weights()])
    model.compile(definition.bind(keras), "mse")
    return model


@pytest.mark.parametrize("way", KERAS, ids=[way.name for way in KERAS])
def test_in_models(way):
    keras = way.module
    if not hasattr(keras, "layers"):
        pytest.skip("a module of optimizers alone")
    if not hasattr(keras.models.Model, "train_step"):
        pytest.skip("Keras of TF 2.0 and 2.1, and graphs of TF 1")
    x = np.array([batch[0] for batch in batches(120)])
    y = np.random.RandomState(2).normal(0, 1, (120, 1)).astype("float32")

    def run(sparse, lazy):
        model = model_of(keras, Adam(0.05, sparse=sparse))
        if lazy:
            assert len(everstep.lazy_embeddings(model)) == 1
            everstep.lazy_embeddings(model)  # again: the layer's own call is replaced, not the replacement
        model.fit(x, y, batch_size=3, shuffle=False, verbose=0)
        predicted = model.predict(np.arange(18).reshape(6, 3), verbose=0)  # rows that the last steps did not read
        model.optimizer.flush()
        return model.get_weights()[0], predicted

    (expected, predicted), (actual, also_predicted) = run("exact", False), run("catch_up", True)
    assert oracle.distance(actual, expected) <= 2e-6
    assert oracle.distance(also_predicted, predicted) <= 5e-6
    assert oracle.distance(run("catch_up", False)[0], expected) > 1e-3


def test_bad_calls():
    with pytest.raises(NotBoundError, match="everstep optimizer"):
        everstep.lazy_embeddings(3)
    with pytest.raises(UnsupportedError, match="catch_up"):
        everstep.lazy_embeddings(Adam().bind(np))
    with pytest.raises((UnsupportedError, VariableError)):
        everstep.lazy_embeddings(Adam(sparse="catch_up").bind(np))
