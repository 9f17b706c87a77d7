# runs in: py311-k3torch
"""Each layer has its rate: a pre-trained layer is fine-tuned.

A network learns to read handwritten digits from a thousand images. Its first layer is then used for another question,
is the digit odd?, with a new last layer and only twenty images that have the answer. The new layer has everything to
learn and needs a high rate. At that rate the old layer forgets what it knew.

`learning_rate_multipliers` gives the old layer a tenth of the rate of the others, and the optimizer still has one
learning rate. `partition` gives the old layer its own optimizer, whose rate callbacks can set: here the layer is frozen
for ten epochs, and then trains at a tenth. If a partition trains it at a tenth from the start, the result is the same
as with the multipliers.
"""
from __future__ import absolute_import, division, print_function

import gzip
import os

import keras
import numpy as np

import everstep
from everstep.optimizers import Adam

EPOCHS, RATE = 30, 0.03
with gzip.open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "digits.csv.gz")) as table:
    IMAGES = np.loadtxt(table, delimiter=",", dtype="float32")
PIXELS, DIGITS = IMAGES[:, :64] / 16, IMAGES[:, 64].astype("int32")
TRAINING, TEST = ((PIXELS[rows], DIGITS[rows] % 2) for rows in (slice(1000, 1020), slice(1200, None)))


def network(scores):
    random = np.random.RandomState(1)
    layers = [keras.layers.Dense(64, "tanh", name="features"), keras.layers.Dense(scores, name="scores")]
    model = keras.Sequential([keras.Input((64,))] + layers)
    model.set_weights([random.normal(0, 0.1, value.shape) for value in model.get_weights()])
    return model


def train(model, rule, data, size, epochs, callbacks=()):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(rule.bind(keras), loss, metrics=["accuracy"])
    return model.fit(*data, validation_data=TEST, batch_size=size, epochs=epochs, shuffle=False, verbose=0,
                     callbacks=list(callbacks)).history


def unfreeze(epoch, logs):
    if epoch == 10:
        model.optimizer.features_learning_rate = RATE / 10


pretrained = network(10)
train(pretrained, Adam(0.003), (PIXELS[:1000], DIGITS[:1000]), 32, 15)
features = pretrained.get_layer("features").get_weights()
by_branch = everstep.partition({"features": ("features", Adam(RATE / 10))}, default=Adam(RATE))
frozen_first = everstep.partition({"features": ("features", Adam(0.0))}, default=Adam(RATE))
runs = [
    ("not pre-trained", Adam(RATE), ()),
    ("one rate", Adam(RATE), ()),
    ("a tenth, by multipliers", everstep.learning_rate_multipliers(Adam(RATE), [("features", 0.1)]), ()),
    ("a tenth, by partition", by_branch, ()),
    ("frozen, then a tenth", frozen_first, [keras.callbacks.LambdaCallback(on_epoch_begin=unfreeze)]),
]
CURVES, AXES, weights, right = {}, ("epochs", "loss of the test images"), {}, {}
for label, rule, callbacks in runs:
    model = network(2)
    if label != "not pre-trained":
        model.get_layer("features").set_weights(features)
    before = model.get_layer("features").get_weights()[0]
    history = train(model, rule, TRAINING, 20, EPOCHS, callbacks)
    weights[label], CURVES[label] = model.get_weights(), history["val_loss"]
    right[label] = history["val_accuracy"][-1]
    moved = np.linalg.norm(weights[label][0] - before) / np.linalg.norm(before)
    print("%-24s test loss %.3f, %.1f %% right; the first layer moved by %3.0f %%" % (
        label + ":", CURVES[label][-1], 100 * right[label], 100 * moved))
difference = max(np.abs(one - other).max() for one, other in zip(
    weights["a tenth, by multipliers"], weights["a tenth, by partition"]))
print("multipliers and partition: weights are %.0e apart" % difference)
assert difference < 1e-4
assert right["a tenth, by multipliers"] > right["one rate"] and right["one rate"] > right["not pre-trained"]
del CURVES["a tenth, by partition"]    # the same line
