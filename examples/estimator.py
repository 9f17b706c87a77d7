# runs in: py37-tf1.15-k2.3
"""An old Estimator gets AdamW and accumulation.

A model function for TensorFlow 1.15 makes its `train_op` in one line. Put an everstep optimizer there, and an old
Estimator trains with AdamW, which `tf.train` never had, and takes batches of 64 in parts of 16 that fit into memory.
Checkpoints, hooks and `evaluate` stay as they are.

Both runs below see the same images of handwritten digits in the same order: one in batches of 64, one in batches of 16
with one update in four. `global_step` counts batches, so the second has four times as many. In the end the weights are
the same to rounding. `everstep.log_hook` draws the picture.
"""
from __future__ import absolute_import, division, print_function

import gzip
import os

import numpy as np
import tensorflow as tf

import everstep
from everstep.optimizers import AdamW

UPDATES = 60
with gzip.open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "digits.csv.gz")) as table:
    IMAGES = np.loadtxt(table, delimiter=",", dtype="float32")
PIXELS, DIGITS = IMAGES[:, :64] / 16, IMAGES[:, 64].astype("int32")


def model(features, labels, mode, params):
    hidden = tf.layers.dense(features, 64, tf.tanh, name="hidden")
    scores = tf.layers.dense(hidden, 10, name="scores")
    loss = tf.losses.sparse_softmax_cross_entropy(labels, scores)
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.EstimatorSpec(
            mode, loss=loss, eval_metric_ops={"right": tf.metrics.accuracy(labels, tf.argmax(scores, 1))})
    # It was: optimizer = tf.train.AdamOptimizer(1e-2)
    rule = AdamW(1e-2, weight_decay=0.01)
    optimizer = everstep.accumulate(rule, steps=params["parts"]).bind(tf.train)
    train_op = optimizer.minimize(loss, tf.train.get_global_step())
    params["hook"] = everstep.log_hook(tf.train, optimizer, every=params["parts"])
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, training_hooks=[params["hook"]])


def batches(size):
    return lambda: tf.data.Dataset.from_tensor_slices((PIXELS[:1408], DIGITS[:1408])).batch(size).repeat()


def test_images():
    return tf.data.Dataset.from_tensor_slices((PIXELS[1408:], DIGITS[1408:])).batch(400)


def train(size, parts):
    """Returns the results of the test, the weights, and the hook."""
    params = {"parts": parts}
    # A closure, because an Estimator copies its `params`.
    estimator = tf.estimator.Estimator(lambda features, labels, mode: model(features, labels, mode, params),
                                       "run_of_%d" % size, tf.estimator.RunConfig(tf_random_seed=1))
    estimator.train(batches(size), steps=UPDATES * parts)
    result = estimator.evaluate(test_images)
    print("batches of %d: global_step %d, loss %.4f, %.1f %% of the test images right" % (
        size, result["global_step"], result["loss"], 100 * result["right"]))
    names = "hidden/kernel", "hidden/bias", "scores/kernel", "scores/bias"
    return result, [estimator.get_variable_value(name) for name in names], params["hook"]


tf.logging.set_verbosity(tf.logging.ERROR)
_, one, hook = train(64, 1)
result, other, its_hook = train(16, 4)
difference = max(np.abs(values - others).max() / np.abs(values).max() for values, others in zip(one, other))
print("largest difference of a weight: %.0e of the largest weight" % difference)
assert difference < 1e-4 and result["right"] > 0.85
CURVES = {"batches of 64": [record["update_norm"] for record in hook.records],
          "batches of 16, four to an update": [record["update_norm"] for record in its_hook.records]}
AXES = ("updates", "norm of each update")
