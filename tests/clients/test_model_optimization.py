"""TensorFlow Model Optimization 0.8 (tf_keras): pruned, clustered and quantization-aware models, stock and ours."""
from __future__ import absolute_import, division, print_function

import pytest
import tensorflow as tf
import tensorflow_model_optimization as tfmot
from beside import same_numbers
from compare import fitted, one_thread

import everstep

MOT = "tensorflow-model-optimization", "{}, TF {}".format(tfmot.__version__, tf.__version__)
one_thread(tf)
sparsity, clustering, quantization = tfmot.sparsity.keras, tfmot.clustering.keras, tfmot.quantization.keras
BATCH, BATCHES, EPOCHS = 16, 6, 4


def base():
    tf.keras.utils.set_random_seed(1)
    return tf.keras.Sequential([
        tf.keras.layers.Dense(8, "relu", input_shape=(4,)), tf.keras.layers.Dense(8, "relu"),
        tf.keras.layers.Dense(1, "sigmoid")])


def pruned(model):
    """Its callback asks the optimizer for `iterations`, and its masks change the weights before each step."""
    schedule = sparsity.PolynomialDecay(0.0, 0.5, begin_step=2, end_step=BATCHES * EPOCHS, frequency=3)
    return sparsity.prune_low_magnitude(model, schedule)


def clustered(model):
    return clustering.cluster_weights(
        model, number_of_clusters=4, cluster_centroids_init=clustering.CentroidInitialization.LINEAR)


WAYS = {
    "pruning": (pruned, sparsity.prune_scope),
    "clustering": (clustered, clustering.cluster_scope),
    "quantization-aware": (quantization.quantize_model, quantization.quantize_scope),
}
STOCK = {
    "Adam": lambda: tf.keras.optimizers.Adam(1e-2),
    "SGD with momentum": lambda: tf.keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    ".legacy's Adam": lambda: tf.keras.optimizers.legacy.Adam(1e-2),
}


class Run(object):
    """A model that the library rewrote, saved as HDF5 with its optimizer."""

    def __init__(self, way, optimizer, folder):
        rewrite, self.scope = WAYS[way]
        self.way, self.folder = way, folder
        self.model = rewrite(base())
        self.model.compile(optimizer, "binary_crossentropy")

    def train(self, epochs=EPOCHS // 2):
        callbacks = []
        if self.way == "pruning":
            callbacks = [sparsity.UpdatePruningStep(), sparsity.PruningSummaries(str(self.folder / "summaries"))]
        return fitted(self.model, epochs, BATCH, BATCHES, callbacks=callbacks)

    def weights(self):
        return self.model.get_weights()

    def save(self, folder):
        self.model.save(str(folder / "model.h5"))

    def load(self, folder):
        with self.scope(), tf.keras.utils.custom_object_scope(everstep.custom_objects(tf.keras)):
            kind, self.model = type(self.model.optimizer), tf.keras.models.load_model(str(folder / "model.h5"))
        assert type(self.model.optimizer) is kind


@pytest.mark.parametrize("way, name", [
    ("clustering", ".legacy's Adam"), ("clustering", "Adam"), ("pruning", "Adam"), ("pruning", "SGD with momentum"),
    ("quantization-aware", "Adam"),
])
def test_fit(way, name, tmp_path):
    module = tf.keras.optimizers.legacy if "legacy" in name else tf.keras
    same_numbers(
        MOT, "{}, {}".format(way, name), lambda optimizer: Run(way, optimizer, tmp_path), STOCK[name],
        lambda: everstep.from_native(STOCK[name]()).bind(module), tmp_path, EPOCHS // 2, "HDF5",
        each=BATCHES)
