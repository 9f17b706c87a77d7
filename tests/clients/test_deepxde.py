"""DeepXDE 1.15 (tf_keras): a network that solves a differential equation, trained by optimizers of tf.keras."""
from __future__ import absolute_import, division, print_function

import os

import numpy as np
import pytest
import tensorflow as tf
from beside import InCheckpoint, same_numbers
from compare import one_thread

import everstep

os.environ["DDE_BACKEND"] = "tensorflow"
import deepxde  # noqa: E402

DEEPXDE = "deepxde", "{}, TF {}".format(deepxde.__version__, tf.__version__)
one_thread(tf)
HALF = 30
STOCK = {
    "Adam": lambda: tf.keras.optimizers.Adam(1e-2),
}


class Run(InCheckpoint):
    """A differential equation, some values of its solution, and a factor in it that is trained with the network."""

    def __init__(self, optimizer):
        deepxde.config.set_random_seed(1)
        interval = deepxde.geometry.Interval(-1, 1)
        self.factor = deepxde.Variable(0.5)

        def equation(x, u):
            second = deepxde.grad.hessian(u, x)
            return -second - self.factor * np.pi ** 2 * tf.sin(np.pi * x)

        ends = deepxde.icbc.DirichletBC(interval, lambda x: 0, lambda _, on_boundary: on_boundary)
        inside = np.linspace(-0.9, 0.9, 7)[:, None]
        known = deepxde.icbc.PointSetBC(inside, np.sin(np.pi * inside))
        data = deepxde.data.PDE(
            interval, equation, [ends, known], num_domain=16, num_boundary=2, anchors=inside,
            train_distribution="uniform")
        self.model = deepxde.Model(data, deepxde.nn.FNN([1, 16, 16, 1], "tanh", "Glorot uniform"))
        self.model.compile(optimizer, external_trainable_variables=self.factor)
        self.model.predict(inside)  # builds the network
        self.optimizer = optimizer

    def train(self, steps=HALF):
        return [np.sum(self.model.train(iterations=5, display_every=5, verbose=0)[0].loss_train[-1])
                for _ in range(steps // 5)]

    def weights(self):
        return self.model.net.get_weights() + [self.factor.numpy()]

    def checkpoint(self):
        return tf.train.Checkpoint(net=self.model.net, factor=self.factor, optimizer=self.optimizer)


@pytest.mark.parametrize("name", sorted(STOCK))
def test_equation(name, tmp_path):
    same_numbers(
        DEEPXDE, "PDE with a trained factor, " + name, Run, STOCK[name],
        lambda: everstep.from_native(STOCK[name]()).bind(tf.keras), tmp_path, HALF, "tf.train.Checkpoint",
        within=1e-3)  # second derivatives make much of rounding
