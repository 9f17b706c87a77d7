"""A small real model on every API: an embedding and a kernel, with fixed weights, batch and targets."""
from __future__ import absolute_import, division, print_function

from collections import namedtuple

import numpy as np

from everstep.compat.backends.on_numpy import IndexedSlices
from everstep.compat.targets import detect
from everstep.compat.ways.keras_worlds import clear_session
from everstep.compat.ways.worlds import graph_mode_tensorflow

# losses: the mean squared error before each step; weights: [embeddings, kernel] at the end
Trained = namedtuple("Trained", "losses weights optimizer")
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


def train(way, make, steps=20):
    """Trains the model on an API, with `fit` on Keras and `minimize` on tf.train.

    Args:
        way: of `everstep.compat.ways.known`.
        make: a function that returns the native optimizer.
        steps: number of steps.

    Returns:
        A `Trained`.
    """
    if way.target == "arrays":
        return _train_arrays(make(), steps)
    if way.target == "tf_train":
        return _train_graph(make, steps)
    keras = _keras_of(way)
    if way.target == "get_updates":
        clear_session(keras)
    model = build(keras, make())
    ids = IDS.astype(np.int32)  # JAX warns of int64
    history = model.fit(ids, TARGETS, batch_size=len(IDS), epochs=steps, shuffle=False, verbose=0).history
    return Trained([float(loss) for loss in history["loss"]], model.get_weights(), model.optimizer)


def _train_arrays(optimizer, steps):
    weights, losses = [EMBEDDINGS.copy(), KERNEL.copy()], []
    for _ in range(steps):
        losses.append(float(np.mean((weights[0][IDS[:, 0]].dot(weights[1]) - TARGETS) ** 2)))
        rows, kernel = gradients(*weights)
        optimizer.apply_gradients([(IndexedSlices(**rows), weights[0]), (kernel, weights[1])])
    return Trained(losses, weights, optimizer)


def _train_graph(make, steps):
    tf = graph_mode_tensorflow()
    with tf.Graph().as_default():
        weights = [tf.get_variable(name, initializer=tf.constant(value))
                   for name, value in (("embeddings", EMBEDDINGS), ("kernel", KERNEL))]
        outputs = tf.matmul(tf.nn.embedding_lookup(weights[0], IDS[:, 0]), weights[1])
        loss, optimizer = tf.reduce_mean(tf.square(outputs - TARGETS)), make()
        train_op = optimizer.minimize(loss)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            losses = []
            for _ in range(steps):
                losses.append(float(session.run(loss)))
                session.run(train_op)
            return Trained(losses, session.run(weights), optimizer)


def _keras_of(way):
    """Returns the Keras that a way's module is, or is the optimizers of."""
    modules = dict(detect.known_modules())
    for name, module in modules.items():
        if module is way.module:
            return modules[name.replace(".optimizers.legacy", "")]
    return way.module
