"""CSBDeep 0.8 (tf_keras): a CARE network, trained with its callbacks, which lower the rate and keep weights."""
from __future__ import absolute_import, division, print_function

import csbdeep
import numpy as np
import pytest
import tensorflow as tf
from beside import InCheckpoint, same_numbers
from compare import one_thread
from csbdeep.models import CARE, Config

import everstep

CSBDEEP = "csbdeep", "{}, TF {}".format(csbdeep.__version__, tf.__version__)
one_thread(tf)
EPOCHS, BATCHES = 3, 4
STOCK = {
    "Adam": lambda: tf.keras.optimizers.Adam(4e-3),
    "RMSprop with momentum": lambda: tf.keras.optimizers.RMSprop(1e-3, momentum=0.5),
}


class Run(InCheckpoint):
    """Takes the noise out of images."""

    def __init__(self, optimizer, folder):
        tf.keras.utils.set_random_seed(1)
        config = Config(
            "YX", unet_n_depth=1, unet_n_first=4, train_batch_size=4, train_steps_per_epoch=BATCHES,
            train_tensorboard=False, train_reduce_lr=dict(factor=0.5, patience=0, min_delta=10.0))
        self.care = CARE(config, "care", str(folder))
        self.care.prepare_for_training(optimizer)
        random = np.random.RandomState(0)
        clean = random.rand(20, 1, 1, 1) * np.ones((20, 16, 16, 1))
        self.clean, self.noisy = clean.astype("float32"), (clean + 0.1 * random.randn(*clean.shape)).astype("float32")

    def train(self, epochs=EPOCHS):
        tf.keras.utils.set_random_seed(2)  # the order of the images
        history = self.care.train(
            self.noisy[:16], self.clean[:16], (self.noisy[16:], self.clean[16:]), epochs=epochs,
            steps_per_epoch=BATCHES).history
        rates = history.get("lr", history.get("learning_rate"))
        assert rates[-1] < 0.6 * rates[0]
        return history["loss"]

    def weights(self):
        return self.care.keras_model.get_weights()

    def checkpoint(self):
        """CSBDeep itself keeps only the best weights, not the optimizer."""
        return tf.train.Checkpoint(model=self.care.keras_model, optimizer=self.care.keras_model.optimizer)


@pytest.mark.parametrize("name", sorted(STOCK))
def test_care(name, tmp_path):
    folders = iter(str(tmp_path / "care {}".format(each)) for each in range(6))
    same_numbers(
        CSBDEEP, "CARE, ReduceLROnPlateau, " + name, lambda optimizer: Run(optimizer, next(folders)), STOCK[name],
        lambda: everstep.from_native(STOCK[name]()).bind(tf.keras), tmp_path, EPOCHS, "tf.train.Checkpoint",
        each=BATCHES)
