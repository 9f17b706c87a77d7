"""The model of tests/files: an embedding and a kernel, with fixed weights, batch and targets, in every Keras.

tests/make/files.py trains and saves it. Tests of files load it and train on. Runs on Python 2.7 and newer.
"""
from __future__ import absolute_import, division, print_function

import numpy as np

try:
    from tensorflow import __version__ as TENSORFLOW
except ImportError:
    TENSORFLOW = ""

# No row comes twice: stock Keras 3 treats the parts of a row one by one. Rows 2 and 4 have no gradient.
IDS = np.array([[0], [1], [3]])
TARGETS = np.array([[1.0, -1.0], [0.5, 2.0], [-1.5, 0.25]], np.float32)
EMBEDDINGS = np.linspace(-0.7, 0.8, 15).reshape(5, 3).astype(np.float32)
KERNEL = np.array([[0.5, -0.4], [0.3, 0.2], [-0.6, 0.1]], np.float32)


def gradients(embeddings, kernel):
    """Returns the gradients of mean((embeddings[ids] @ kernel - targets)^2)."""
    rows = embeddings[IDS[:, 0]]
    error = 2 * (rows.dot(kernel) - TARGETS) / TARGETS.size
    return {"values": error.dot(kernel.T), "indices": IDS[:, 0]}, rows.T.dot(error)


def build(keras, optimizer, eager=False):
    """Compiles the model and sets its start weights."""
    layers = keras.layers
    model = keras.models.Sequential()
    if keras_major(keras) >= 3:
        model.add(keras.Input((1,), dtype="int32"))
        model.add(layers.Embedding(5, 3, name="embedding"))
    else:
        model.add(layers.Embedding(5, 3, input_length=1, name="embedding"))
    model.add(layers.Flatten(name="flatten"))
    model.add(layers.Dense(2, use_bias=False, name="output"))
    model.compile(optimizer=optimizer, loss="mse", **({"run_eagerly": True} if eager else {}))
    model.set_weights([EMBEDDINGS, KERNEL])
    return model


def keras_major(keras):
    """Returns Keras's major version, also of the `tf.keras` of TF 2.16, which has no __version__."""
    return int(getattr(keras, "__version__", "3" if hasattr(keras, "ops") else "2").split(".")[0])


def save(model, path):
    """Saves a model, or the weights alone if that is what the path's end says."""
    if path.endswith(".weights.h5"):
        model.save_weights(path)
        return
    is_zip = path.endswith(".keras") and TENSORFLOW.startswith("2.12.")  # there it means HDF5, unless one says so
    model.save(path, **({"save_format": "keras_v3"} if is_zip else {}))


def stock_optimizer(optimizers, name, arguments):
    try:
        return getattr(optimizers, name)(**arguments)
    except (TypeError, ValueError):  # before Keras 2.3
        arguments = dict(arguments, lr=arguments["learning_rate"])
        return getattr(optimizers, name)(**{key: arguments[key] for key in arguments if key != "learning_rate"})


def api_of(optimizer):
    """Returns the target of an optimizer or its class, by the hooks that it has."""
    for name, hook in (("optimizer_v2", "add_slot"), ("keras3", "stateless_apply"), ("update_step", "update_step")):
        if hasattr(optimizer, hook):
            return name
    return "get_updates"
