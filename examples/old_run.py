# runs in: py27-tf1.4-k2.1, py313-tf2.21-tfk, py313-k3jax, py311-k3torch
"""A checkpoint of TF 1.4 goes on in Keras 3, on TensorFlow, JAX and torch.

A run that stock `tf.train.AdamOptimizer` began on TF 1.4 and Python 2.7 goes on in Keras 3 as if it had never stopped:
weights, moments and the count of updates come from its checkpoint. `everstep.read_checkpoint` needs some TensorFlow
from 1.4 on. To read the file that `state.save` writes you need only NumPy, so JAX and torch read it without TensorFlow.

The model reads handwritten digits as 64 words, one for each pixel and its shade of grey, and embeds them. So the
gradients of the table are sparse on TensorFlow: a batch has only some of the 1,088 rows. On JAX and torch they are
dense, with zeros for the other rows. The training is the same, because stock Adam of TF 1 also moves the rows that are
not in a batch, by their old moments. Some optimizers leave these rows where they are (`sparse="rows"`, such as Momentum
of `tf.train`). They refuse to run on JAX and torch unless `dense_ok=True` accepts the difference.

On TF 1.4 this script is the old program. It saves its checkpoint, and then goes on itself for comparison. On Keras 3 it
continues from the file that the old program saved, which is kept in [data](data/README.txt), and compares the weights.
"""
from __future__ import absolute_import, division, print_function

import gzip
import os

import numpy as np

import everstep

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
BEFORE, AFTER, BATCH, WORDS, SIZE = 100, 60, 32, 64 * 17, 4
with gzip.open(os.path.join(DATA, "digits.csv.gz")) as table:
    IMAGES = np.loadtxt(table, delimiter=",", dtype="int32")
PIXELS, DIGITS = IMAGES[:, :64] + 17 * np.arange(64), IMAGES[:, 64]
ROWS = [np.arange(step * BATCH, (step + 1) * BATCH) % len(IMAGES) for step in range(BEFORE + AFTER)]


def begin_on_tensorflow_1(tf):
    """Trains with stock Adam, saves a checkpoint, and goes on."""
    tf.set_random_seed(1)
    pixels, digits = tf.placeholder(tf.int32, [None, 64]), tf.placeholder(tf.int32, [None])
    embeddings = tf.get_variable("embeddings", [WORDS, SIZE], initializer=tf.random_normal_initializer(stddev=0.5))
    kernel = tf.get_variable("kernel", [SIZE, 10])
    bias = tf.get_variable("bias", [10], initializer=tf.zeros_initializer())
    scores = tf.matmul(tf.reduce_mean(tf.nn.embedding_lookup(embeddings, pixels), 1), kernel) + bias
    loss = tf.losses.sparse_softmax_cross_entropy(digits, scores)
    train_op = tf.train.AdamOptimizer(0.02).minimize(loss)
    losses = []
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for step, rows in enumerate(ROWS):
            if step == BEFORE:
                tf.train.Saver().save(session, "./model.ckpt")
            values = {pixels: PIXELS[rows], digits: DIGITS[rows]}
            losses.append(session.run([loss, train_op], values)[0])
        weights = session.run([embeddings, kernel, bias])
    state = everstep.read_checkpoint("model.ckpt", optimizer="AdamOptimizer(learning_rate=0.02)")
    state.save("old_run.npz")
    np.savez("old_run_goes_on.npz", losses=losses, embeddings=weights[0], kernel=weights[1], bias=weights[2])
    print("TF %s saved a checkpoint after %d updates, and went on to a loss of %.5f" % (
        tf.__version__, state.updates, losses[-1]))
    return losses


def go_on_in_keras_3(keras):
    """Continues from what the old program saved."""
    state = everstep.State.load(os.path.join(DATA, "old_run.npz"))
    layers = [keras.layers.Embedding(WORDS, SIZE), keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(10)]
    model = keras.Sequential([keras.Input((64,), dtype="int32")] + layers)
    rule = everstep.Definition.from_config(state.definition)
    model.compile(rule.bind(keras), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    names = dict(zip(("embeddings", "kernel", "bias"), model.trainable_variables))
    everstep.restore(model.optimizer, state, names, weights=True)
    losses = [float(model.train_on_batch(PIXELS[rows], DIGITS[rows])) for rows in ROWS[BEFORE:]]
    print("Keras %s on %s goes on from update %d to a loss of %.5f" % (
        keras.__version__, keras.backend.backend(), state.updates, losses[-1]))
    return losses, dict(zip(names, model.get_weights()))


try:
    import keras
    has_keras_3 = keras.__version__.startswith("3.")
except ImportError:
    has_keras_3 = False
if has_keras_3:
    losses, weights = go_on_in_keras_3(keras)
    with np.load(os.path.join(DATA, "old_run_goes_on.npz")) as old:
        difference = max(np.abs(weights[name] - old[name]).max() / np.abs(old[name]).max() for name in weights)
    print("largest difference from TF 1.4, %d updates later: %.0e of the largest weight" % (AFTER, difference))
    assert difference < 1e-5
    CURVES = {"Keras 3 on " + keras.backend.backend(): losses}
else:
    import tensorflow
    with tensorflow.Graph().as_default():
        losses = begin_on_tensorflow_1(tensorflow)
    CURVES = {"TF 1.4": losses[BEFORE:]}
    with np.load(os.path.join(DATA, "old_run_goes_on.npz")) as old:
        assert np.abs(old["losses"] - losses).max() < 1e-4
AXES = ("updates after the checkpoint", "loss of a batch")
