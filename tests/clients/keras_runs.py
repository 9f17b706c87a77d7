"""Trains models of Keras in a graph, standalone or in TensorFlow 1.15: the same start gives the same numbers."""
from __future__ import absolute_import, division, print_function

import random

import numpy as np
import tensorflow as tf


def start(keras, seed=1):
    """Begins a graph and its session, with one thread: the order in which several add up is the largest noise."""
    keras.backend.clear_session()
    seeded(seed)
    tf.set_random_seed(seed)
    one = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    keras.backend.set_session(tf.Session(config=one))


def seeded(seed):
    random.seed(seed)
    np.random.seed(seed)


def fit(keras, model, x, y, epochs, seed=1, **others):
    """Trains by `model.fit`. Returns the loss of each batch."""
    losses = []
    seeded(seed)  # the order of the batches
    kept = keras.callbacks.LambdaCallback(on_batch_end=lambda batch, logs: losses.append(float(logs["loss"])))
    model.fit(x, y, epochs=epochs, verbose=0, callbacks=[kept], **others)
    return losses
