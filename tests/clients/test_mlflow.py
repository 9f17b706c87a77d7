"""MLflow 3 (Keras 3): autologging of fit, which reads the optimizer's config and count of updates, and its models."""
from __future__ import absolute_import, division, print_function

import keras
import mlflow
import numpy as np
import pytest
from beside import same_numbers
from compare import fitted

import everstep

MLFLOW = "mlflow", "{}, Keras {} on {}".format(mlflow.__version__, keras.__version__, keras.config.backend())
HALF, BATCH, BATCHES = 2, 16, 4
STOCK = {
    "Adam": lambda: keras.optimizers.Adam(1e-2),
    "SGD, PiecewiseConstantDecay": lambda: keras.optimizers.SGD(
        keras.optimizers.schedules.PiecewiseConstantDecay([6], [0.2, 0.1]), momentum=0.9),
}


class Run(object):
    """A network whose training MLflow logs."""

    def __init__(self, optimizer):
        keras.utils.set_random_seed(1)
        self.model = keras.Sequential([
            keras.layers.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1, "sigmoid")])
        self.model.compile(optimizer, "binary_crossentropy")

    def train(self, epochs=HALF):
        optimizer = self.model.optimizer
        with mlflow.start_run() as run:
            losses = fitted(self.model, epochs, BATCH, BATCHES)
        parameters = mlflow.get_run(run.info.run_id).data.params
        assert {"optimizer_" + key for key in optimizer.get_config()} <= set(parameters)
        assert parameters["optimizer_name"] == optimizer.get_config()["name"]
        logged = {each.step: each.value for each in mlflow.MlflowClient().get_metric_history(run.info.run_id, "loss")}
        first = int(optimizer.iterations) - epochs * BATCHES
        assert sorted(logged) == [first + BATCHES * each for each in range(1, epochs + 1)]
        np.testing.assert_allclose([logged[step] for step in sorted(logged)], losses, 1e-6)
        return losses

    def weights(self):
        return self.model.get_weights()

    def save(self, folder):
        mlflow.keras.save_model(
            self.model, str(folder / "model"), save_exported_model=False,
            pip_requirements=[])  # else a process of its own looks for them

    def load(self, folder):
        kind = type(self.model.optimizer)
        self.model = mlflow.keras.load_model(
            str(folder / "model"), custom_objects=everstep.custom_objects(keras))
        assert type(self.model.optimizer) is kind


@pytest.fixture(scope="module", autouse=True)
def logged(tmp_path_factory):
    """One database: it takes seconds to make. The step of each figure is the optimizer's count of updates."""
    folder = tmp_path_factory.mktemp("mlflow")
    mlflow.set_tracking_uri("sqlite:///{}/runs.db".format(folder))
    mlflow.set_experiment(experiment_id=mlflow.create_experiment("clients", artifact_location=folder.as_uri()))
    mlflow.keras.autolog(log_models=False, log_every_epoch=False, log_every_n_steps=BATCHES)


@pytest.mark.parametrize("name", sorted(STOCK))
def test_autolog(name, tmp_path):
    same_numbers(
        MLFLOW, "fit with autolog, " + name, Run, STOCK[name],
        lambda: everstep.from_native(STOCK[name]()).bind(keras), tmp_path, HALF, "mlflow.keras.save_model",
        each=BATCHES, within=1e-4)
