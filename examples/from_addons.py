# runs in: py312-tf2.16
"""A project on TensorFlow Addons moves to TF 2.16.

TensorFlow Addons ended with TF 2.15, and its optimizers do not work with Keras 3. The function `with_addons` has the
old program, for TF 2.10: Addons' AdamW inside its MovingAverage, and an AverageModelCheckpoint. `with_everstep` has the
new one. Its lines run on any Keras from TF 1.4 on: here on TF 2.16 and Keras 3.

The script runs the old program if Addons is installed, and otherwise the new one. The numbers of the old program are
kept in [data](data/README.txt), and the new program compares its own with them. The losses, the weights and the
averaged weights in the file are the same to rounding. The [recipes](../api/recipes.md#replace-tensorflow-addons) list
the other names of Addons.
"""
from __future__ import absolute_import, division, print_function

import gzip
import os

import numpy as np
import tensorflow as tf

import everstep
from everstep.optimizers import AdamW

try:
    import tensorflow_addons as tfa
except ImportError:
    tfa = None

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
with gzip.open(os.path.join(DATA, "digits.csv.gz")) as table:
    IMAGES = np.loadtxt(table, delimiter=",", dtype="float32")
PIXELS, DIGITS = IMAGES[:1408, :64] / 16, IMAGES[:1408, 64].astype("int32")


def with_addons():
    rule = tfa.optimizers.AdamW(weight_decay=1e-3, learning_rate=1e-2)
    optimizer = tfa.optimizers.MovingAverage(rule, average_decay=0.9)
    return optimizer, tfa.callbacks.AverageModelCheckpoint(False, "averages.weights.h5", save_weights_only=True)


def with_everstep():
    rule = AdamW(1e-2, weight_decay=1e-3, decay_times_rate=False)
    optimizer = everstep.moving_average(rule, 0.9).bind(tf.keras)
    return optimizer, everstep.average_checkpoint(tf.keras, "averages.weights.h5", save_weights_only=True)


def train(optimizer, save):
    """Returns the losses of the epochs, the weights, and the weights in the file."""
    layers = [tf.keras.layers.Dense(64, "tanh"), tf.keras.layers.Dense(10)]
    model = tf.keras.Sequential([tf.keras.Input((64,))] + layers)
    random = np.random.RandomState(1)
    model.set_weights([random.normal(0, 0.1, value.shape) for value in model.get_weights()])
    model.compile(optimizer, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    history = model.fit(PIXELS, DIGITS, batch_size=64, epochs=8, shuffle=False, verbose=0, callbacks=[save])
    weights = model.get_weights()
    model.load_weights("averages.weights.h5")
    return history.history["loss"], weights, model.get_weights()


if tfa is not None:
    losses, weights, averages = train(*with_addons())
    np.savez("from_addons.npz", *([losses] + weights + averages))
    CURVES = {"TensorFlow Addons on TF 2.10": losses}
    print("TensorFlow Addons %s on TF %s: a loss of %.5f" % (tfa.__version__, tf.__version__, losses[-1]))
else:
    losses, weights, averages = train(*with_everstep())
    with np.load(os.path.join(DATA, "from_addons.npz")) as old:
        old = [old["arr_%d" % number] for number in range(9)]
    differences = [max(np.abs(mine - theirs).max() / np.abs(theirs).max() for mine, theirs in zip(*pair))
                   for pair in ((losses, old[0]), (weights, old[1:5]), (averages, old[5:]))]
    print("everstep on TF %s: a loss of %.5f" % (tf.__version__, losses[-1]))
    print("largest difference from Addons: losses %.0e, weights %.0e, averages in the file %.0e of the largest"
          % tuple(differences))
    CURVES = {"everstep on TF 2.16": losses}
    assert max(differences) < 1e-4
AXES = ("epochs", "loss")
