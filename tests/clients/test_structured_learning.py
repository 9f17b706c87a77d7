"""Neural Structured Learning 1.4 (TF 2.13): adversarial training, which compiles two models with one optimizer."""
from __future__ import absolute_import, division, print_function

import neural_structured_learning as nsl
import numpy as np
import pytest
import tensorflow as tf
from beside import same_numbers
from compare import one_thread

import everstep

NSL = "neural-structured-learning", "{}, TF {}".format(nsl.__version__, tf.__version__)
one_thread(tf)
HALF, BATCHES = 3, 4
STOCK = {
    "Adam": lambda: tf.keras.optimizers.Adam(1e-2),
    ".legacy's SGD with momentum": lambda: tf.keras.optimizers.legacy.SGD(0.05, momentum=0.9),
}


class Run(object):
    """A network that is also trained on inputs moved against it."""

    def __init__(self, optimizer):
        tf.keras.utils.set_random_seed(1)
        self.base = tf.keras.Sequential([
            tf.keras.layers.Dense(8, "relu", input_shape=(4,)), tf.keras.layers.Dense(1, "sigmoid")])
        self._compile(optimizer)
        assert self.base.optimizer is self.model.optimizer

    def _compile(self, optimizer):
        self.model = nsl.keras.AdversarialRegularization(
            self.base, adv_config=nsl.configs.make_adv_reg_config(multiplier=0.2, adv_step_size=0.1))
        self.model.compile(optimizer=optimizer, loss="binary_crossentropy")

    def train(self, epochs=HALF):
        x = np.random.RandomState(0).normal(size=(8 * BATCHES, 4)).astype("float32")
        data = dict(feature=x, label=(x[:, :1] + x[:, 1:2] > 0) * 1.0)
        return self.model.fit(data, batch_size=8, epochs=epochs, shuffle=False, verbose=0).history["loss"]

    def weights(self):
        return self.base.get_weights()

    def save(self, folder):
        """The base model, which people keep, has the trained optimizer too."""
        self.base.save(str(folder / "base.h5"))

    def load(self, folder):
        module = tf.keras.optimizers.legacy if hasattr(self.base.optimizer, "get_slot") else tf.keras
        self.base = tf.keras.models.load_model(str(folder / "base.h5"), everstep.custom_objects(module))
        optimizer, kind = self.base.optimizer, type(self.model.optimizer)
        assert type(optimizer) is kind
        self._compile(optimizer)


@pytest.mark.parametrize("name", sorted(STOCK))
def test_adversarial(name, tmp_path):
    module = tf.keras.optimizers.legacy if "legacy" in name else tf.keras
    same_numbers(
        NSL, "AdversarialRegularization, " + name, Run, STOCK[name],
        lambda: everstep.from_native(STOCK[name]()).bind(module), tmp_path, HALF, "HDF5 of the base model",
        each=BATCHES)
