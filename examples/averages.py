# runs in: py310-tf2.11
"""Moving averages and stochastic weight averaging, saved and evaluated.

At a high rate and with small batches, the weights move around the minimum, and their average is near it. Two wrappers
average while training goes on: `moving_average` forgets old weights (EMA), and `stochastic_weight_averaging` counts all
weights from some update on (SWA). Here both start from the same run of SGD on handwritten digits. After every epoch the
script computes two test losses: that of the weights as they train, and, inside of `with everstep.averaged(...)`, that
of the averages.

`everstep.average_checkpoint` saves the averages, as AverageModelCheckpoint of TensorFlow Addons did, and
`everstep.log_training` adds the learning rate and norms to the history.
"""
from __future__ import absolute_import, division, print_function

import gzip
import os

import numpy as np
import tensorflow as tf

import everstep
from everstep.optimizers import SGD

keras = tf.keras
EPOCHS, BATCH, UPDATES = 8, 32, 44
with gzip.open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "digits.csv.gz")) as table:
    IMAGES = np.loadtxt(table, delimiter=",", dtype="float32")
PIXELS, DIGITS = IMAGES[:, :64] / 16, IMAGES[:, 64].astype("int32")
TRAINING, TEST = (PIXELS[:1408], DIGITS[:1408]), (PIXELS[1408:], DIGITS[1408:])


class TestLosses(keras.callbacks.Callback):
    """Evaluates the weights and their averages after each epoch."""

    def on_train_begin(self, logs=None):
        self.of_weights, self.of_averages = [], []

    def on_epoch_end(self, epoch, logs=None):
        optimizer, variables = self.model.optimizer, self.model.trainable_variables
        self.of_weights.append(self.model.test_on_batch(*TEST))
        with everstep.averaged(optimizer, variables):
            self.of_averages.append(self.model.test_on_batch(*TEST))


def train(rule, name):
    """Returns (test losses of the weights, those of the averages), and checks the file with the averages."""
    layers = [keras.layers.Dense(64, "tanh"), keras.layers.Dense(10)]
    model = keras.Sequential([keras.Input((64,))] + layers)
    random = np.random.RandomState(1)
    model.set_weights([random.normal(0, 0.1, value.shape) for value in model.get_weights()])
    model.compile(rule.bind(keras), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    losses, path = TestLosses(), name + ".weights.h5"
    callbacks = [losses, everstep.log_training(keras), everstep.average_checkpoint(keras, path, save_weights_only=True)]
    history = model.fit(
        *TRAINING, batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0, callbacks=callbacks).history
    print("%s: test loss %.4f, of the averages %.4f; rate %.1f, the last epoch moved the weights by %.1f %%" % (
        name, losses.of_weights[-1], losses.of_averages[-1], history["learning_rate"][-1],
        100 * history["update_norm"][-1] / history["weight_norm"][-1]))
    model.load_weights(path)
    assert abs(model.test_on_batch(*TEST) - losses.of_averages[-1]) < 1e-5
    return losses.of_weights, losses.of_averages


plain, ema = train(everstep.moving_average(SGD(1.0), 0.98), "EMA")
same, swa = train(everstep.stochastic_weight_averaging(SGD(1.0), start=4 * UPDATES, period=1), "SWA")
assert np.abs(np.subtract(plain, same)).max() < 1e-3    # averages do not change how the weights train
assert ema[-1] < plain[-1] and swa[-1] < plain[-1]
CURVES = {"weights": plain, "EMA, decay 0.98": ema, "SWA from the fifth epoch on": swa}
AXES = ("epochs", "test loss")
