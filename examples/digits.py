# -*- coding: utf-8 -*-
# not run: worker.py trains it
"""Handwritten digits: a small classifier with dense gradients.

A task defines the same model three times: in NumPy with the gradient derived by hand (the oracle), as a TensorFlow
graph, and in Keras layers. Weights are named "layer/weight", in the order of Keras.
"""
from __future__ import absolute_import, division, print_function

import gzip
import os
from collections import OrderedDict

import numpy as np

PIXELS, HIDDEN, CLASSES = 64, 64, 10
BATCH, EPOCHS, TRAINING = 64, 20, 1437  # the other 360 images are the test
SCORE = "test images read right"


def prepare(random):
    """Returns initial weights, and the data with all batches drawn."""
    with gzip.open(os.path.join(os.path.dirname(__file__), "data", "digits.csv.gz")) as table:
        images = np.loadtxt(table, delimiter=",")
    images = images[random.permutation(len(images))]
    weights = OrderedDict([
        ("hidden/kernel", random.normal(0, PIXELS ** -0.5, (PIXELS, HIDDEN))),
        ("hidden/bias", np.zeros(HIDDEN)),
        ("scores/kernel", random.normal(0, HIDDEN ** -0.5, (HIDDEN, CLASSES))),
        ("scores/bias", np.zeros(CLASSES)),
    ])
    steps = TRAINING // BATCH
    data = {
        "pixels": (images[:, :PIXELS] / 16).astype("float32"),
        "one_hot": np.eye(CLASSES, dtype="float32")[images[:, PIXELS].astype(int)],
        "order": np.concatenate([random.permutation(TRAINING)[:steps * BATCH].reshape(steps, BATCH)
                                 for _ in range(EPOCHS)]),
    }
    return weights, data


def steps(data):
    return len(data["order"])


def batch(data, step):
    """Returns inputs and target."""
    rows = data["order"][step]
    return [data["pixels"][rows]], data["one_hot"][rows]


def loss_and_gradients(weights, inputs, target):
    pixels, = inputs
    hidden = np.tanh(pixels.dot(weights["hidden/kernel"]) + weights["hidden/bias"])
    scores = hidden.dot(weights["scores/kernel"]) + weights["scores/bias"]
    scores -= scores.max(axis=1, keepdims=True)
    log_sum = np.log(np.exp(scores).sum(axis=1, keepdims=True))
    loss = -((scores - log_sum) * target).sum() / len(target)

    d_scores = (np.exp(scores - log_sum) - target) / len(target)
    d_hidden = d_scores.dot(weights["scores/kernel"].T) * (1 - hidden * hidden)
    return loss, {
        "hidden/kernel": pixels.T.dot(d_hidden), "hidden/bias": d_hidden.sum(axis=0),
        "scores/kernel": hidden.T.dot(d_scores), "scores/bias": d_scores.sum(axis=0),
    }


def graph_loss(tf, weights, inputs, target):
    pixels, = inputs
    hidden = tf.tanh(tf.matmul(pixels, weights["hidden/kernel"]) + weights["hidden/bias"])
    scores = tf.matmul(hidden, weights["scores/kernel"]) + weights["scores/bias"]
    return -tf.reduce_mean(tf.reduce_sum(target * tf.nn.log_softmax(scores), axis=1))


def keras_model(keras, weights):
    """Returns the model, and the loss of each example."""
    pixels = keras.layers.Input(shape=(PIXELS,))
    hidden = keras.layers.Dense(HIDDEN, activation="tanh", name="hidden")(pixels)
    scores = keras.layers.Dense(CLASSES, name="scores")(hidden)
    ops = getattr(keras, "ops", None) or keras.backend  # Keras 3 moved its maths

    def loss(target, scores):
        return ops.categorical_crossentropy(target, scores, from_logits=True)
    return keras.models.Model(pixels, scores), loss


def score(weights, data):
    pixels, digits = data["pixels"][TRAINING:], data["one_hot"][TRAINING:].argmax(axis=1)
    hidden = np.tanh(pixels.dot(weights["hidden/kernel"]) + weights["hidden/bias"])
    scores = hidden.dot(weights["scores/kernel"]) + weights["scores/bias"]
    return np.mean(scores.argmax(axis=1) == digits)
