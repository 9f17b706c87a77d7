"""Trains with packages of the index, so that their losses can be compared before and after `everstep scan --write`.

`python tests/scan_programs.py PROGRAM FOLDER` imports the package in FOLDER, trains for some steps, and prints its
losses as JSON; `compare FILE FILE` says how far two of them differ. docs/records/scan.md has the results.

A third argument says what is changed, to find why losses of TF 1's Adam differ. That keeps beta^t in float32 variables,
also for weights of float64, and 1 - 0.999^t loses three of their seven digits:
    float64         weights, data and losses are float64
    float64-powers  beta^t of stock's Adam too
    ulp             0.999^t of stock's Adam starts one float32 lower
"""
from __future__ import absolute_import, division, print_function

import json
import random
import sys
import types

import numpy as np

STEPS = 20
FLOAT = np.float32


def data():
    rng = np.random.RandomState(0)
    x = rng.normal(size=(64, 4)).astype(np.float32).astype(FLOAT)
    return x, np.eye(2, dtype=FLOAT)[(x.sum(axis=1) > 0).astype(int)]


def changed(what):
    """Changes what a program of TF 1 computes in, see above."""
    global FLOAT
    import tensorflow as tf

    if what != "ulp":
        FLOAT = np.float64
    for module in [tf] + ([tf.compat.v1] if hasattr(getattr(tf, "compat", None), "v1") else []):
        module.train.AdamOptimizer = {"ulp": lower, "float64": lambda stock: stock, "float64-powers": exact}[what](
            module.train.AdamOptimizer)


def lower(stock):
    """Returns stock's Adam whose variable of 0.999^t starts at the next lower float32."""
    class Lower(stock):
        def _create_slots(self, var_list):
            beta, self._beta2 = self._beta2, np.nextafter(np.float32(self._beta2), np.float32(0))
            super(Lower, self)._create_slots(var_list)
            self._beta2 = beta

    return Lower


def exact(stock):
    """Returns stock's Adam whose powers are float64: a variable has the dtype of its first value."""
    class Exact(stock):
        def __init__(self, *args, **kwargs):
            super(Exact, self).__init__(*args, **kwargs)
            self._beta1, self._beta2 = np.float64(np.float32(self._beta1)), np.float64(np.float32(self._beta2))

    return Exact


def tflearn(folder):
    """Each optimizer of tflearn.optimizers, on a net of two layers."""
    import tensorflow.compat.v1 as tf

    tf.float32 = tf.as_dtype(FLOAT)  # the dtype of its layers, which they take from here when they are imported
    import tflearn as library
    tf.float32 = tf.as_dtype(np.float32)

    x, y = data()
    losses = []
    for name in ("sgd", "rmsprop", "adam", "momentum", "adagrad", "ftrl", "adadelta", "nesterov"):
        tf.reset_default_graph()
        library.init_graph(seed=1)
        net = library.fully_connected(library.input_data([None, 4]), 8, activation="tanh")
        net = library.fully_connected(net, 2, activation="softmax")
        net = library.regression(net, optimizer=name, learning_rate=0.1, shuffle_batches=False)
        model = library.DNN(net, tensorboard_dir="/tmp")
        for _ in range(STEPS):
            model.fit(x, y, n_epoch=1, batch_size=16, shuffle=False, show_metric=False)
            p = np.array(model.predict(x))
            losses.append(float(-np.log((p * y).sum(axis=1)).mean()))
    return losses


def edward(folder):
    """Variational inference of a linear regression, with each optimizer by its name."""
    import edward as ed
    import tensorflow as tf
    from edward.models import Normal

    x, _ = data()
    y = x.dot([1.0, -2.0, 0.5, 3.0]).astype(FLOAT)
    losses = []
    for name in ("adam", "gradientdescent", "adadelta", "adagrad", "momentum", "ftrl", "rmsprop", None):
        tf.reset_default_graph()
        sys.modules["edward.util.graphs"]._ED_SESSION = None
        ed.set_seed(1)
        weights = Normal(loc=tf.zeros(4, FLOAT), scale=tf.ones(4, FLOAT))
        observed = Normal(loc=ed.dot(tf.constant(x), weights), scale=tf.ones(64, FLOAT))
        found = Normal(loc=tf.Variable(tf.zeros(4, FLOAT)),
                       scale=tf.nn.softplus(tf.Variable(tf.zeros(4, FLOAT))))
        tf.losses.add_loss(tf.zeros([], FLOAT), tf.GraphKeys.REGULARIZATION_LOSSES)  # a sum of none is float32
        inference = ed.KLqp({weights: found}, data={observed: y})
        inference.initialize(optimizer=name, n_iter=STEPS, n_samples=2)
        tf.global_variables_initializer().run()
        losses += [float(inference.update()["loss"]) for _ in range(STEPS)]
        ed.get_session().close()
    return losses


def cleverhans(folder):
    """cleverhans.train.train, whose optimizer is Adam."""
    import tensorflow as tf
    from cleverhans.loss import CrossEntropy
    from cleverhans.model import Model
    from cleverhans.train import train

    class Linear(Model):
        def fprop(self, x, **kwargs):
            with tf.variable_scope(self.scope, reuse=tf.AUTO_REUSE):
                return {self.O_LOGITS: tf.layers.dense(x, 2, name="dense"), self.O_FEATURES: x}

    x, y = data()
    tf.set_random_seed(1)
    model = Linear("linear", 2)
    model.fprop(tf.constant(x))
    logits = model.get_logits(tf.constant(x))
    losses = []

    def evaluate():  # tf.losses would round it to float32
        each = session.run(logits)
        losses.append(float((np.log(np.exp(each).sum(axis=1)) - (each * y).sum(axis=1)).mean()))

    with tf.Session() as session:
        train(session, CrossEntropy(model, smoothing=0.0), x, y, init_all=True, rng=np.random.RandomState(1),
              evaluate=evaluate, var_list=tf.trainable_variables(),
              args=dict(nb_epochs=STEPS, learning_rate=0.1, batch_size=16))
    return losses


def keras_rl(folder):
    """The package's own tests of its DQN agents, without a change: the squares of the weights after each fit."""
    import tensorflow as tf
    import tests.rl.agents.test_dqn as own
    from rl.agents.dqn import DQNAgent

    random.seed(1)
    tf.set_random_seed(1)
    losses, fit = [], DQNAgent.fit

    def recorded(agent, *args, **kwargs):
        fit(agent, *args, **dict(kwargs, nb_steps=10 * STEPS, verbose=0))
        losses.append(float(sum(np.square(each).sum() for each in agent.model.get_weights())))

    DQNAgent.fit = recorded
    for _ in range(4):
        own.test_single_dqn_input()
        own.test_multi_dqn_input()
    return losses


def seeded(number):
    """Sets the seed of tf.keras of TF 2; Keras 3 draws from Python's and NumPy's generators too."""
    import tensorflow as tf

    tf.random.set_seed(number)
    getattr(tf.keras.utils, "set_random_seed", tf.random.set_seed)(number)


def keras_gcn(folder):
    """The package's own tests: each fit, with the losses of its epochs."""
    import unittest

    from tensorflow import keras

    seeded(1)
    losses = []
    fit = keras.Model.fit

    def recorded(model, *args, **kwargs):
        history = fit(model, *args, **dict(kwargs, epochs=STEPS, callbacks=None, verbose=0))
        losses.extend(history.history["loss"])
        return history

    keras.Model.fit = recorded  # 20 epochs, after which the test of what was learned may fail
    unittest.TextTestRunner(sys.stderr).run(unittest.defaultTestLoader.discover(folder + "/tests"))
    return [float(each) for each in losses]


def textgenrnn(folder):
    """The package's model with the optimizer that it has by default."""
    package = types.ModuleType("textgenrnn")  # its __init__ imports what only drawing needs
    package.__path__ = [folder + "/textgenrnn"]
    sys.modules["textgenrnn"] = package
    from textgenrnn.model import textgenrnn_model

    seeded(1)
    config = dict(max_length=5, dim_embeddings=8, rnn_layers=1, rnn_size=8, rnn_bidirectional=False)
    model = textgenrnn_model(10, config)
    rng = np.random.RandomState(0)
    x = rng.randint(10, size=(32, 5))
    y = np.eye(10)[x[:, 0]]
    return [float(model.train_on_batch(x, y)) for _ in range(STEPS)]


def compare(first, second):
    """Prints how many losses two runs have, and how far they differ."""
    values = []
    for path in (first, second):
        with open(path) as file:
            values.append(np.array(json.load(file)))
    assert values[0].shape == values[1].shape and np.isfinite(values).all()
    print("losses: {}, largest difference, as a share of the first loss: {:.1e}".format(
        len(values[0]), np.abs((values[0] - values[1]) / values[0][0]).max()))


if __name__ == "__main__":
    if sys.argv[1] == "compare":
        compare(*sys.argv[2:])
    else:
        if sys.argv[3:]:
            changed(sys.argv[3])
        np.random.seed(1)
        sys.path.insert(0, sys.argv[2])
        print("\n" + json.dumps(globals()[sys.argv[1]](sys.argv[2])))
