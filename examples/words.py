# -*- coding: utf-8 -*-
# not run: worker.py trains it
"""Word vectors: skip-gram with negative sampling, with sparse gradients.

Two words that are near each other in the text should score high. The same word and a few random words should score
low. A batch touches only the rows of its words, many of them more than once.
"""
from __future__ import absolute_import, division, print_function

import gzip
import os
import re
from collections import Counter, OrderedDict

import numpy as np

import everstep

SIZE, WINDOW, NEGATIVES = 32, 5, 5
RAREST = 8  # a word seen less often gets no vector
COMMON = 1e-3  # words more frequent than this are thinned out
BATCH, STEPS, HELD_OUT = 512, 1200, 4096
SCORE = "unseen neighbours told from random words"
SHOWN = ["bread", "egypt", "silver", "three", "water"]


def prepare(random):
    """Returns initial vectors, and the data with all batches and their negatives drawn."""
    with gzip.open(os.path.join(os.path.dirname(__file__), "data", "bible.txt.gz")) as text:
        text = text.read().decode("utf-8").lower().replace(u"\u2019s", "")
    verses = [re.findall("[a-z]+", verse) for verse in text.split("\n")]
    counts = Counter(word for verse in verses for word in verse)
    words = sorted((word for word in counts if counts[word] >= RAREST), key=lambda word: (-counts[word], word))
    number = {word: i for i, word in enumerate(words)}
    counts = np.array([counts[word] for word in words], float)

    kept = np.minimum(1, np.sqrt(COMMON * counts.sum() / counts))
    pairs = []
    for verse in verses:
        verse = np.array([number[word] for word in verse if word in number], int)
        verse = verse[random.random_sample(len(verse)) < kept[verse]]
        for apart in range(1, min(WINDOW + 1, len(verse))):
            pairs += [np.stack([verse[:-apart], verse[apart:]], 1), np.stack([verse[apart:], verse[:-apart]], 1)]
    pairs = np.concatenate(pairs)
    pairs = pairs[random.permutation(len(pairs))[:BATCH * STEPS + HELD_OUT]].astype("int32")
    chance = np.cumsum(counts ** 0.75)
    negatives = np.searchsorted(chance, random.random_sample((len(pairs), NEGATIVES)) * chance[-1]).astype("int32")

    near = np.concatenate([pairs[:, 1:], negatives], 1)  # the true neighbour first
    weights = OrderedDict([
        ("center/vectors", random.uniform(-0.5, 0.5, (len(words), SIZE)) / 4),
        ("near/vectors", random.uniform(-0.5, 0.5, (len(words), SIZE)) / 4),
    ])
    trained = BATCH * STEPS
    return weights, {
        "center": pairs[:trained, :1].reshape(STEPS, BATCH, 1), "near": near[:trained].reshape(STEPS, BATCH, -1),
        "unseen_center": pairs[trained:, 0], "unseen_near": near[trained:, :2], "words": np.array(words),
    }


def steps(data):
    return len(data["center"])


def batch(data, step):
    """Returns inputs and target."""
    center, near = data["center"][step], data["near"][step]
    target = np.zeros(near.shape, "float32")
    target[:, 0] = 1
    return [center, near], target


def loss_and_gradients(weights, inputs, target):
    center, near = inputs
    center_rows, near_rows = weights["center/vectors"][center], weights["near/vectors"][near]
    scores = (center_rows * near_rows).sum(axis=2)
    loss = (np.logaddexp(0, scores) - scores * target).sum() / len(target)

    d_scores = ((1 / (1 + np.exp(-scores)) - target) / len(target))[:, :, None]
    d_center = (d_scores * near_rows).sum(axis=1)
    d_near = d_scores * center_rows
    return loss, {
        "center/vectors": everstep.IndexedSlices(d_center, center.ravel()),
        "near/vectors": everstep.IndexedSlices(d_near.reshape(-1, SIZE), near.ravel()),
    }


def graph_loss(tf, weights, inputs, target):
    center, near = inputs
    center_rows, near_rows = tf.gather(weights["center/vectors"], center), tf.gather(weights["near/vectors"], near)
    scores = tf.reduce_sum(center_rows * near_rows, axis=2)
    pairs = tf.nn.sigmoid_cross_entropy_with_logits(labels=target, logits=scores)
    return tf.reduce_mean(tf.reduce_sum(pairs, axis=1))


def graph_gradients(tf, variables, inputs, target):
    """Returns the gradients of `graph_loss`, derived by hand as in `loss_and_gradients`."""
    (center, near), (center_vectors, near_vectors) = inputs, variables
    center_rows, near_rows = tf.gather(center_vectors, center), tf.gather(near_vectors, near)
    scores = tf.reduce_sum(center_rows * near_rows, axis=2)
    d_scores = tf.expand_dims((tf.sigmoid(scores) - target) / tf.cast(tf.shape(target)[0], "float32"), 2)
    d_center, d_near = tf.reduce_sum(d_scores * near_rows, axis=1), tf.reshape(d_scores * center_rows, (-1, SIZE))
    return [
        tf.IndexedSlices(d_center, tf.reshape(center, (-1,)), tf.shape(center_vectors)),
        tf.IndexedSlices(d_near, tf.reshape(near, (-1,)), tf.shape(near_vectors)),
    ]


def keras_model(keras, weights):
    """Returns the model, and the loss of each example."""
    layers, count = keras.layers, len(weights["center/vectors"])
    center, near = layers.Input(shape=(1,), dtype="int32"), layers.Input(shape=(1 + NEGATIVES,), dtype="int32")
    center_rows = layers.Embedding(count, SIZE, name="center")(center)
    near_rows = layers.Embedding(count, SIZE, name="near")(near)
    scores = layers.Flatten()(layers.Dot(axes=2)([near_rows, center_rows]))
    ops = getattr(keras, "ops", None) or keras.backend  # Keras 3 moved its maths

    def loss(target, scores):
        return ops.sum(ops.binary_crossentropy(target, scores, from_logits=True), axis=-1)
    return keras.models.Model([center, near], scores), loss


def score(weights, data):
    center = weights["center/vectors"][data["unseen_center"]]
    true, random = (weights["near/vectors"][data["unseen_near"][:, i]] for i in (0, 1))
    return np.mean((center * true).sum(axis=1) > (center * random).sum(axis=1))


def nearest(weights, data, word, count=4):
    """Returns the words with the most similar vectors."""
    vectors = weights["center/vectors"] / np.linalg.norm(weights["center/vectors"], axis=1, keepdims=True)
    words = list(data["words"])
    return [words[i] for i in np.argsort(-vectors.dot(vectors[words.index(word)]))[1:count + 1]]
