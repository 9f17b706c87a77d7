# runs in: py311-tf2.15
"""A recommender with a million rows, and lazy Adam that is exact.

Adam moves every row of a table at every step, because its moments decay: a step costs as much as the whole table, here
a million items. `LazyAdam` touches only the rows of the batch. That is fast, but it trains something else: a rare item
misses hundreds of small moves. With `sparse="catch_up"` a step also costs only what its rows cost, and a row takes the
moves that it missed when it is next read. At the end `flush` brings all rows up to date, before weights are saved or
compared.

The script trains the same model three times, on ratings whose items are as unequal as real ones (Zipf's law), and
prints the time of a step and how far the weights are from those of plain Adam.
"""
from __future__ import absolute_import, division, print_function

import time

import numpy as np
import tensorflow as tf

import everstep
from everstep.optimizers import Adam

ITEMS, USERS, SIZE, BATCH, STEPS = 1000000, 1000, 4, 256, 40
RANDOM = np.random.default_rng(0)
RATED = ((RANDOM.zipf(1.2, (STEPS, BATCH)) - 1) % ITEMS).astype("int32")
RATING = RANDOM.integers(0, USERS, (STEPS, BATCH), dtype="int32")
TASTE, STYLE = (RANDOM.standard_normal((count, 2), dtype="float32") for count in (USERS, ITEMS))
STARS = (TASTE[RATING] * STYLE[RATED]).sum(axis=2)
START = 0.3 * RANDOM.standard_normal((ITEMS + USERS, SIZE), dtype="float32")


def train(sparse):
    """Returns the losses, the seconds of a step, and the table of items."""
    item, user = tf.keras.Input((), dtype="int32"), tf.keras.Input((), dtype="int32")
    items, users = tf.keras.layers.Embedding(ITEMS, SIZE), tf.keras.layers.Embedding(USERS, SIZE)
    model = tf.keras.Model([item, user], tf.keras.layers.Dot(1)([items(item), users(user)]))
    model.set_weights([START[:ITEMS], START[ITEMS:]])
    optimizer = Adam(0.03, epsilon=1e-4, sparse=sparse).bind(tf.keras)
    model.compile(optimizer)
    optimizer.build(model.trainable_variables)
    if sparse == "catch_up":
        everstep.lazy_embeddings(model)    # rows are up to date whenever the model reads them

    @tf.function
    def step(rated, rating, stars):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model([rated, rating])[:, 0] - stars) ** 2)
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        return loss

    losses, seconds = [], []
    for batch in zip(RATED, RATING, STARS):
        batch = [tf.constant(values) for values in batch]
        start = time.time()
        losses.append(float(step(*batch)))
        seconds.append(time.time() - start)
    if sparse == "catch_up":
        optimizer.flush()
    return losses, np.median(seconds), model.get_weights()[0]


CURVES, AXES, results = {}, ("steps", "loss of a batch"), {}
for sparse in ("exact", "catch_up", "rows"):
    CURVES['Adam(sparse="%s")' % sparse], seconds, results[sparse] = train(sparse)
    differences = np.abs(results[sparse] - results["exact"])
    print("%-8s  %5.1f ms a step; largest difference from exact %.0e, in %d of %d rows more than 1e-5" % (
        sparse, 1000 * seconds, differences.max(), (differences.max(axis=1) > 1e-5).sum(), ITEMS))
    assert (differences.max() < 1e-4) == (sparse != "rows")
print("%d of the %d rows were ever in a batch" % (len(np.unique(RATED)), ITEMS))
