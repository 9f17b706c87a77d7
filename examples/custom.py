# runs in: py37-tf1.15-k2.3, py313-tf2.21-tfk
"""A custom optimizer is written once, and tested on five APIs.

`Calm` is momentum that brakes: if a gradient points against the velocity, the velocity is halved first. The class has
its rule and nothing else. The script trains a small classifier of handwritten digits with it, on NumPy and on each
optimizer API that is installed, with the same batches, and compares the weights. TF 1.15 has three APIs in one process:
`tf.train`, the `get_updates` classes of Keras 2.3, and the OptimizerV2 of `tf.keras`. TF 2.21 has four: `tf.train`
again, OptimizerV2 and new-style optimizers in `tf_keras`, and Keras 3. One class trains on all of them, and the weights
agree to rounding.

To write such a test for your own project, see [Test your own project](../docs/test_your_project.md).
"""
from __future__ import absolute_import, division, print_function

import gzip
import os

import numpy as np
import tensorflow as tf

import everstep


class Calm(everstep.Definition):
    """Momentum that is halved where the gradient points against it."""

    learning_rate = everstep.hyper(0.01)
    momentum = everstep.hyper(0.9, minimum=0, maximum=1)
    velocity = everstep.slot()

    def update(self, ops, grad, var, slots, hyper, t):
        against = ops.where(grad * slots.velocity < 0, 0.5, 1.0)
        velocity = hyper.momentum * against * slots.velocity + grad
        return hyper.learning_rate * velocity, {"velocity": velocity}


STEPS, BATCH, RATE = 60, 64, 0.1
with gzip.open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "digits.csv.gz")) as table:
    IMAGES = np.loadtxt(table, delimiter=",", dtype="float32")
PIXELS, ONE_HOT = IMAGES[:, :64] / 16, np.eye(10, dtype="float32")[IMAGES[:, 64].astype(int)]
BATCHES = [np.arange(step * BATCH, step * BATCH + BATCH) % len(IMAGES) for step in range(STEPS)]
START = np.random.RandomState(1).normal(0, 0.1, (64, 10)).astype("float32")


def on_numpy():
    """Returns the losses and the weights, with the gradient by hand, in float64."""
    optimizer, weights, losses = Calm(RATE).bind(np), START.astype("float64"), []
    for rows in BATCHES:
        scores = PIXELS[rows].dot(weights)
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        losses.append(-np.log((shares * ONE_HOT[rows]).sum(axis=1)).mean())
        optimizer.apply_gradients([(PIXELS[rows].T.dot(shares - ONE_HOT[rows]) / BATCH, weights)])
    return losses, weights


def in_a_session(tf1):
    with tf1.Graph().as_default(), tf1.Session() as session:
        pixels, one_hot = tf1.placeholder(tf.float32, [None, 64]), tf1.placeholder(tf.float32, [None, 10])
        weights = tf1.get_variable("weights", initializer=START)
        loss = tf1.losses.softmax_cross_entropy(one_hot, tf.matmul(pixels, weights))
        train_op = Calm(RATE).bind(tf1.train).minimize(loss)
        session.run(tf1.global_variables_initializer())
        losses = [session.run([loss, train_op], {pixels: PIXELS[rows], one_hot: ONE_HOT[rows]})[0] for rows in BATCHES]
        return losses, session.run(weights)


def in_keras(keras, module):
    inputs = keras.layers.Input((64,))
    layer = keras.layers.Dense(10, activation="softmax", use_bias=False)
    model = keras.models.Model(inputs, layer(inputs))
    model.set_weights([START])
    model.compile(Calm(RATE).bind(module), "categorical_crossentropy")
    return [float(model.train_on_batch(PIXELS[rows], ONE_HOT[rows])) for rows in BATCHES], model.get_weights()[0]


runs = [("tf.train", lambda: in_a_session(tf.compat.v1))]
if tf.__version__.startswith("1."):
    import keras
    runs += [("keras 2, get_updates", lambda: in_keras(keras, keras)),
             ("tf.keras, OptimizerV2", lambda: in_keras(tf.keras, tf.keras))]
else:
    import tf_keras
    runs += [("tf_keras, OptimizerV2", lambda: in_keras(tf_keras, tf_keras.optimizers.legacy)),
             ("tf_keras, new-style", lambda: in_keras(tf_keras, tf_keras)),
             ("Keras 3", lambda: in_keras(tf.keras, tf.keras))]
losses, oracle = on_numpy()
CURVES, AXES = {"NumPy, float64": losses}, ("steps", "loss of a batch")
for name, run in runs:
    losses, weights = run()
    difference = np.abs(weights - oracle).max() / np.abs(oracle).max()
    print("%-22s loss %.5f, largest difference from NumPy %.0e of the largest weight" % (name, losses[-1], difference))
    assert difference < 1e-5
    CURVES["%s, TF %s" % (name, tf.__version__)] = losses
