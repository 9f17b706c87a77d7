"""BayesFlow 2 (Keras 3): a workflow that keeps its optimizer, or makes one of a class, and its checkpoints."""
from __future__ import absolute_import, division, print_function

import bayesflow
import keras
import numpy as np
import pytest
from beside import same_numbers

import everstep

BAYESFLOW = "bayesflow", "{}, Keras {} on {}".format(
    bayesflow.__version__, keras.__version__, keras.config.backend())
HALF, BATCHES = 2, 4
STOCK = {
    "Adam": lambda: keras.optimizers.Adam(1e-3, clipnorm=1.5),
    "AdamW, CosineDecay": lambda: keras.optimizers.AdamW(
        keras.optimizers.schedules.CosineDecay(2e-3, 20), weight_decay=5e-3),
}


def ours(name):
    stock = STOCK[name]()
    return everstep.from_native(stock).bind(keras, clipnorm=stock.clipnorm)


class Run(object):
    """A posterior of a mean, by a coupling flow on data simulated once."""

    def __init__(self, optimizer, folder):
        keras.utils.set_random_seed(1)
        random = np.random.RandomState(0)
        mean = random.normal(size=(8 * BATCHES, 2)).astype("float32")
        self.data = dict(mean=mean, seen=mean + 0.1 * random.normal(size=mean.shape).astype("float32"))
        self.path = str(folder / "checkpoints {}".format(id(self)))
        self.workflow = bayesflow.BasicWorkflow(
            inference_variables="mean", inference_conditions="seen", optimizer=optimizer,
            checkpoint_filepath=self.path, standardize=None, inference_network=bayesflow.networks.CouplingFlow(
                depth=2, subnet_kwargs=dict(widths=(8, 8), dropout=0.0)))

    @property
    def model(self):
        return self.workflow.approximator

    def train(self, epochs=HALF):
        keras.utils.set_random_seed(2)  # the order of the data
        return self.workflow.fit_offline(
            self.data, epochs=epochs, batch_size=8, keep_optimizer=True, verbose=0).history["loss"]

    def weights(self):
        if not self.model.built:
            self.model.build_from_data(self.workflow.adapter({name: each[:8] for name, each in self.data.items()}))
        return [np.array(keras.ops.convert_to_numpy(each)) for each in self.model.trainable_variables]

    def save(self, folder):
        self.model.save(str(folder / "half.keras"))

    def load(self, folder):
        kind = type(self.workflow.optimizer)
        self.workflow.approximator = keras.models.load_model(
            str(folder / "half.keras"), everstep.custom_objects(keras))
        self.workflow.optimizer, self.workflow._needs_compile = self.model.optimizer, False
        assert type(self.model.optimizer) is kind


@pytest.mark.parametrize("name", sorted(STOCK))
def test_workflow(name, tmp_path):
    same_numbers(
        BAYESFLOW, "BasicWorkflow, " + name, lambda optimizer: Run(optimizer, tmp_path), STOCK[name],
        lambda: ours(name), tmp_path, HALF, ".keras", each=BATCHES, within=1e-4)


def test_a_class(tmp_path):
    """The workflow makes an optimizer of a class that it is given."""
    optimizer = Run(everstep.optimizers.Adam.native_class(keras), tmp_path).workflow.optimizer
    assert abs(float(optimizer.learning_rate) - 5e-4) < 1e-9
