"""TensorFlow Recommenders 0.7 (TF 2.10 and tf_keras): fit of its retrieval model with sparse gradients, by ours too."""
from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_recommenders as tfrs
from compare import apart, one_thread, shown

import everstep
from everstep.optimizers import Adagrad, Adam

RECOMMENDERS = "tensorflow-recommenders", "{}, TF {}".format(tfrs.__version__.lstrip("v"), tf.__version__)
one_thread(tf)
USERS, ITEMS, BATCH, BATCHES, EPOCHS = 200, 100, 16, 6, 10
STEPS = BATCHES * EPOCHS


class TwoTowers(tfrs.Model):
    def __init__(self):
        super(TwoTowers, self).__init__()
        self.users = tf.keras.Sequential([tf.keras.layers.Embedding(USERS, 8), tf.keras.layers.Dense(8)])
        self.items = tf.keras.layers.Embedding(ITEMS, 8)
        self.retrieval = tfrs.tasks.Retrieval()

    def compute_loss(self, inputs, training=False):
        return self.retrieval(self.users(inputs["user"]), self.items(inputs["item"]), compute_metrics=not training)

    @property
    def tables(self):
        return [self.users.layers[0].embeddings, self.items.embeddings]


def composite(model, optimizers):
    """Returns TensorFlow Recommenders' own optimizer of several: one of tables, one of the rest."""
    tables, rest = optimizers
    return tfrs.experimental.optimizers.CompositeOptimizer([
        (tables, lambda: model.tables), (rest, lambda: model.users.layers[1].trainable_variables)])


def partitioned(model):
    return everstep.partition({"tables": ("embeddings", Adagrad(0.3))}, default=Adam(1e-2)).bind(tf.keras)


RUNS = {  # (the stock optimizer of a model, ours)
    "Adagrad": (lambda model: tf.keras.optimizers.Adagrad(0.3), lambda model: Adagrad(0.3).bind(tf.keras)),
    "Adam": (lambda model: tf.keras.optimizers.Adam(1e-2), lambda model: Adam(1e-2).bind(tf.keras)),
    "CompositeOptimizer": (
        lambda model: composite(model, [tf.keras.optimizers.Adagrad(0.3), tf.keras.optimizers.Adam(1e-2)]),
        lambda model: composite(model, [Adagrad(0.3).bind(tf.keras), Adam(1e-2).bind(tf.keras)]),
    ),
    "CompositeOptimizer, everstep.partition": (
        lambda model: composite(model, [tf.keras.optimizers.Adagrad(0.3), tf.keras.optimizers.Adam(1e-2)]),
        partitioned,
    ),
}


def data():
    random = np.random.RandomState(0)
    users = random.randint(0, USERS, BATCH * BATCHES)
    return tf.data.Dataset.from_tensor_slices(dict(user=users, item=users * 7 % ITEMS)).batch(BATCH)


def compiled(make):
    tf.keras.utils.set_random_seed(1)
    model = TwoTowers()
    for batch in data().take(1):
        model.compute_loss(batch, training=True)
    model.compile(make(model))
    return model


def fitted(model, epochs=EPOCHS):
    return model.fit(data(), epochs=epochs, verbose=0).history["total_loss"]


@pytest.mark.parametrize("name", sorted(RUNS))
def test_retrieval(name):
    own, again, ours = (compiled(make) for make in (RUNS[name][0], RUNS[name][0], RUNS[name][1]))
    start = own.get_weights()
    losses = [fitted(model) for model in (own, again, ours)]
    noise, difference = (apart(losses[0], each) for each in losses[1:])
    own_weights, weights = (apart(own.get_weights(), model.get_weights()) for model in (again, ours))
    shown(*RECOMMENDERS, "retrieval, " + name, STEPS, difference, noise, weights, own_weights)
    assert losses[0][-1] < 0.8 * losses[0][0] and apart(start, own.get_weights()) > 0.1
    assert difference < 1e-5 and weights < 1e-4


@pytest.mark.parametrize("name", ["Adagrad", "CompositeOptimizer"])
def test_resumed_from_its_weights(name, tmp_path):
    """TensorFlow's format, which has the optimizer too."""
    whole, first, second = (compiled(RUNS[name][1]) for _ in range(3))
    expected = fitted(whole)
    fitted(first, EPOCHS // 2)
    first.save_weights(str(tmp_path / "half"))
    second.load_weights(str(tmp_path / "half"))
    losses = fitted(second, EPOCHS - EPOCHS // 2)
    weights = apart(whole.get_weights(), second.get_weights())
    shown(*RECOMMENDERS, "retrieval resumed, " + name, STEPS, apart(expected[EPOCHS // 2:], losses), weights=weights,
          saved="save_weights")
    assert weights < 1e-6


def test_its_own_run_continued(tmp_path):
    """Trains with stock Adagrad, then with ours from its accumulators: the index ranks the same items."""
    stock = RUNS["Adagrad"][0]
    whole, first, second = (compiled(make) for make in (
        stock, stock, lambda model: everstep.from_native(stock(model)).bind(tf.keras)))
    fitted(whole)
    fitted(first, EPOCHS // 2)
    state = everstep.capture(first.optimizer, first.trainable_variables, weights=True)
    state.save(str(tmp_path / "half.npz"))
    everstep.restore(second.optimizer, everstep.State.load(str(tmp_path / "half.npz")), second.trainable_variables,
                     by_order=True, weights=True)
    fitted(second, EPOCHS - EPOCHS // 2)
    weights = apart(whole.get_weights(), second.get_weights())
    ranked = []
    for model in (whole, second):
        index = tfrs.layers.factorized_top_k.BruteForce(model.users, k=5).index(model.items(tf.range(ITEMS)))
        ranked.append(index(tf.range(20))[1].numpy())
    shown(*RECOMMENDERS, "retrieval, Adagrad continued by ours", STEPS, weights=weights, saved="everstep.State")
    assert weights < 1e-4 and np.mean(ranked[0] == ranked[1]) > 0.98


def test_a_rule_that_it_lacks():
    rule = everstep.accumulate(everstep.optimizers.DiffGrad(3e-2, sparse="rows"), 2)
    model = compiled(lambda model: rule.bind(tf.keras))
    losses = fitted(model)
    slots = everstep.capture(model.optimizer, model.trainable_variables).slots
    assert losses[-1] < 0.8 * losses[0] and all("previous_grad" in names for names in slots.values())
    assert int(model.optimizer.iterations) == STEPS // 2
    shown(*RECOMMENDERS, "retrieval, accumulate(DiffGrad, 2): loss {:.1f} to {:.1f}".format(losses[0], losses[-1]),
          STEPS)
