"""aeon 1.6 (Keras 3): classifiers of time series that are cloned with their optimizer, and lower its learning rate."""
from __future__ import absolute_import, division, print_function

import pathlib
import tempfile

import aeon
import keras
import numpy as np
import pytest
from aeon.classification.deep_learning import FCNClassifier
from beside import same_numbers
from sklearn.base import clone

import everstep

AEON = "aeon", "{}, Keras {} on {}".format(aeon.__version__, keras.__version__, keras.config.backend())
HALF, BATCH, BATCHES = 3, 8, 4
STOCK = {
    "Adam, ReduceLROnPlateau": lambda: keras.optimizers.Adam(1e-2),
    "SGD with momentum, clipnorm": lambda: keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True, clipnorm=1.0),
}


def ours(name):
    stock = STOCK[name]()
    return everstep.from_native(stock).bind(keras, clipnorm=stock.clipnorm)


class Run(object):
    """A convolutional network that tells rising series from falling ones. The first half is trained by aeon's fit."""

    def __init__(self, optimizer, folder, plateau):
        keras.utils.set_random_seed(1)
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=str(folder)))
        # It halves the learning rate after each epoch but the first, until it reaches min_lr.
        callbacks = [keras.callbacks.ReduceLROnPlateau("loss", 0.5, 1, min_delta=1e9, min_lr=2e-3)] * plateau
        # As grid searches do, which copies the optimizer.
        self.series = clone(FCNClassifier(
            n_layers=1, n_filters=4, kernel_size=3, use_bias=False, n_epochs=HALF, batch_size=BATCH,
            use_mini_batch_size=False, callbacks=callbacks, random_state=1, optimizer=optimizer,
            save_best_model=True, file_path=str(self.folder) + "/"))
        assert self.series.optimizer is not optimizer and type(self.series.optimizer) is type(optimizer)
        self.model = None
        self.kind, self.callbacks = type(optimizer), callbacks
        random = np.random.RandomState(0)
        self.y = np.arange(BATCH * BATCHES) % 2
        self.x = random.normal(size=(len(self.y), 1, 12)) + np.linspace(-1, 1, 12) * (2 * self.y[:, None, None] - 1)

    def train(self, epochs=HALF):
        keras.utils.set_random_seed(2)  # the order of the data
        if self.model is None:
            self.series.fit(self.x, self.y)
            self.model = self.series.training_model_
            return self.series.history.history["loss"]
        return self.model.fit(
            self.x.transpose(0, 2, 1), np.eye(2)[self.y], BATCH, epochs, callbacks=self.callbacks,
            verbose=0).history["loss"]

    def weights(self):
        model = self.model or self.series.build_model((12, 1), 2)
        return model.get_weights()

    def save(self, folder):
        """Keeps the file of the best epoch, which is the last one, by a callback of aeon."""
        (self.folder / "best_model.keras").rename(folder / "best_model.keras")

    def load(self, folder):
        with keras.saving.custom_object_scope(everstep.custom_objects(keras)):
            self.series.load_model(str(folder / "best_model.keras"), np.arange(2))
        self.model = self.series.model_
        assert type(self.model.optimizer) is self.kind


@pytest.mark.parametrize("name", sorted(STOCK))
def test_classifier(name, tmp_path):
    same_numbers(
        AEON, "FCNClassifier, " + name, lambda optimizer: Run(optimizer, tmp_path, "Plateau" in name), STOCK[name],
        lambda: ours(name), tmp_path, HALF, "its best_model.keras", each=BATCHES, within=1e-4)
