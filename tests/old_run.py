"""The run of the files in tests/files/old.zip: its data, start and gradients. Imports no everstep."""
from __future__ import absolute_import, division, print_function

import numpy as np

INPUTS = np.linspace(-1, 1, 12).reshape(4, 3).astype("float32")
OUTPUTS = np.linspace(1, -1, 8).reshape(4, 2).astype("float32")
START = [np.linspace(-0.5, 0.5, 6).reshape(3, 2).astype("float32"), np.array([0.25, -0.75], np.float32)]
STEPS, MORE = 3, 3  # before the file was written, and after


def gradients(kernel, bias):
    """Returns those of the mean squared error of a dense layer."""
    error = 2 * (INPUTS.dot(kernel) + bias - OUTPUTS) / OUTPUTS.size
    return INPUTS.T.dot(error).astype("float32"), error.sum(0).astype("float32")


def train(optimizer, weights, count=MORE):
    """Trains arrays."""
    for _ in range(count):
        optimizer.apply_gradients(list(zip(gradients(*weights), weights)))


def train_in(session, step, fed, variables, count=MORE):
    """Trains variables of a graph whose gradients are fed. Returns their values."""
    for _ in range(count):
        session.run(step, dict(zip(fed, gradients(*session.run(variables)))))
    return session.run(variables)


def train_model(model, count=MORE):
    """Trains a model of Keras. Returns its weights."""
    for _ in range(count):
        model.train_on_batch(INPUTS, OUTPUTS)
    return model.get_weights()


def compiled(keras, optimizer):
    """Returns a model of Keras 2 or 3, before its first step."""
    layers, is_3 = keras.layers, hasattr(keras, "ops")
    dense = layers.Dense(2, name="dense", **({} if is_3 else {"input_shape": (3,)}))
    model = keras.Sequential(([layers.Input((3,))] if is_3 else []) + [dense])
    model.set_weights(START)
    model.compile(optimizer, keras.losses.MeanSquaredError() if is_3 else "mse")
    return model
