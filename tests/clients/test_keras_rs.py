"""KerasRS 0.4 (Keras 3): its embedding layer, whose tables name optimizers too, and feature crosses, trained by fit."""
from __future__ import absolute_import, division, print_function

import keras
import keras_rs
import numpy as np
import pytest
from beside import same_numbers

import everstep

KERAS_RS = "keras-rs", "{}, Keras {} on {}".format(keras_rs.__version__, keras.__version__, keras.config.backend())
HALF, BATCH, BATCHES, ROWS = 2, 8, 4, 16
STOCK = {
    "Adagrad": lambda: keras.optimizers.Adagrad(0.1),
    "Adam, CosineDecay, global_clipnorm": lambda: keras.optimizers.Adam(
        keras.optimizers.schedules.CosineDecay(2e-2, 40), global_clipnorm=0.5),
}


def ours(name):
    stock = STOCK[name]()
    return everstep.from_native(stock).bind(keras, global_clipnorm=stock.global_clipnorm)


class Run(object):
    """A deep and cross network that ranks, from sparse gradients of two tables.

    No row comes twice in a batch: stock Keras 3 on TensorFlow applies equal rows one by one.
    """

    def __init__(self, optimizer):
        keras.utils.set_random_seed(1)
        # Of a TPU's tables these would be the optimizers; here the model's trains them.
        features = {name: keras_rs.layers.FeatureConfig(
            name, keras_rs.layers.TableConfig(name, ROWS, 4, optimizer=type(optimizer).from_config(
                optimizer.get_config())), (BATCH,), (BATCH, 4)) for name in ("user", "film")}
        inputs = {name: keras.layers.Input((), BATCH, "int32", name=name) for name in features}
        rows = keras_rs.layers.DistributedEmbedding(features, name="tables")(inputs)
        joined = keras.layers.Concatenate()([rows["user"], rows["film"]])
        crossed = keras_rs.layers.FeatureCross(projection_dim=4)(joined, keras_rs.layers.FeatureCross()(joined))
        self.model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Dense(8, "relu")(crossed)))
        self.model.compile(optimizer, "mse")

    def train(self, epochs=HALF):
        random = np.random.RandomState(0)
        ids = {name: np.concatenate([random.permutation(ROWS)[:BATCH] for _ in range(BATCHES)]).astype("int32")
               for name in ("user", "film")}
        score = (ids["user"] % 3 - ids["film"] % 2).astype("float32")[:, None]
        return self.model.fit(ids, score, BATCH, epochs, shuffle=False, verbose=0).history["loss"]

    def weights(self):
        return self.model.get_weights()

    def save(self, folder):
        self.model.save(str(folder / "half.keras"))

    def load(self, folder):
        """Gives back the model with its optimizer, and the optimizers that its tables name."""
        kind = type(self.model.optimizer)
        with keras.saving.custom_object_scope(everstep.custom_objects(keras)):
            self.model = keras.models.load_model(str(folder / "half.keras"))
            tables = self.model.get_layer("tables").get_config()["tables"]
            optimizers = [self.model.optimizer] + [
                keras_rs.layers.TableConfig.from_config(each).optimizer for each in tables]
        assert len(optimizers) == 3 and {type(each) for each in optimizers} == {kind}


@pytest.mark.parametrize("name", sorted(STOCK))
def test_ranking(name, tmp_path):
    same_numbers(
        KERAS_RS, "DistributedEmbedding and FeatureCross, " + name, Run, STOCK[name], lambda: ours(name), tmp_path,
        HALF, ".keras", each=BATCHES, within=1e-4)  # Adam makes much of rounding, which differs by threads
