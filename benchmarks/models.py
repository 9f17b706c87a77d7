"""Whole training steps of small models, as `train_on_batch` and sessions take them: forward, backward and update."""
import time
from functools import partial

import numpy as np

import everstep
import stacks
from timing import Case, Run

WORDS, WIDTH, HEADS, LENGTH, BATCH = 5000, 128, 4, 32, 16


def models(api):
    """Measures an LSTM with Adam, and a transformer with BERT's stack. Half of their parameters are an embedding."""
    if api.model:
        yield Case("LSTM", stacks.ADAM, partial(_runs, api, "LSTM", api.adam, everstep.optimizers.Adam()))
        bert = stacks.stacks(api).get(stacks.BERT)
        if bert:
            yield Case("transformer", bert.beside, partial(_runs, api, "transformer", bert.make, bert.definition))


def _runs(api, name, make, definition):
    return api.compared(make, definition, name, run=lambda make, name: api.model(name, make))


class Fit(Run):
    """Steps of a Keras model."""

    def __init__(self, keras, name, make):
        start = time.process_time()
        self.model = network(keras, name)
        self.shapes = [tuple(map(int, weight.shape)) for weight in self.model.trainable_weights]
        self.model.compile(make(), "sparse_categorical_crossentropy")
        self.run(1)
        self.first = time.process_time() - start

    def run(self, steps):
        for _ in range(steps):
            self.model.train_on_batch(*data())

    def weights(self):
        return self.model.get_weights()


def data():
    """Returns (words, the word that follows)."""
    random = np.random.RandomState(0)
    return random.randint(0, WORDS, (BATCH, LENGTH)), random.randint(0, WORDS, (BATCH, 1))


def network(keras, name):
    layers = keras.layers
    words = layers.Input((LENGTH,), dtype="int32")
    values = layers.Embedding(WORDS, WIDTH)(words)
    if name == "LSTM":
        values = layers.LSTM(2 * WIDTH)(values)
    else:
        for _ in range(2):
            values = _block(layers, values)
        values = layers.GlobalAveragePooling1D()(values)
    return keras.models.Model(words, layers.Dense(WORDS, activation="softmax")(values))


def _block(layers, values):
    """Attention of several heads, then two dense layers. Of layers that every Keras since 2.0 has."""
    normalized = getattr(layers, "LayerNormalization", layers.BatchNormalization)  # Keras 2.3 has no LayerNormalization
    heads = []
    for _ in range(HEADS):
        query, key, value = (layers.Dense(WIDTH // HEADS)(values) for _ in range(3))
        attention = layers.Activation("softmax")(layers.Dot(axes=2)([query, key]))
        heads.append(layers.Dot(axes=(2, 1))([attention, value]))
    values = normalized()(layers.Add()([values, layers.Dense(WIDTH)(layers.Concatenate()(heads))]))
    wide = layers.Dense(4 * WIDTH, activation="relu")(values)
    return normalized()(layers.Add()([values, layers.Dense(WIDTH)(wide)]))
