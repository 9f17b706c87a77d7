"""KerasCV 0.6 (TF 2.13): a classifier by fit, and its contrastive trainer, which has two optimizers."""
from __future__ import absolute_import, division, print_function

import keras_cv
import numpy as np
import pytest
import tensorflow as tf
from beside import InCheckpoint, same_numbers
from compare import one_thread
from keras_cv.src.training import ContrastiveTrainer  # keras_cv.training in its docs

import everstep

KERAS_CV = "keras-cv", "{}, TF {}".format(keras_cv.__version__, tf.__version__)
one_thread(tf)
HALF, BATCHES = 2, 3
IMAGES = np.random.RandomState(0).uniform(0, 255, (4 * BATCHES, 16, 16, 3)).astype("float32")
LABELS = (IMAGES[:, 0, 0, 0] > 128) * 1
STOCK = {
    "SGD with momentum, global_clipnorm": lambda: tf.keras.optimizers.SGD(0.01, momentum=0.9, global_clipnorm=10.0),
    "Adam": lambda: tf.keras.optimizers.Adam(1e-3),
}


def ours(name):
    stock = STOCK[name]()
    return everstep.from_native(stock).bind(tf.keras, global_clipnorm=stock.global_clipnorm)


class Classifier(InCheckpoint):
    """A small residual network.

    Its biases before a batch normalization have gradients that are rounding alone, which Adam would make large.
    """

    def __init__(self, optimizer):
        tf.keras.utils.set_random_seed(1)
        backbone = keras_cv.models.ResNetV2Backbone(
            stackwise_filters=[4], stackwise_blocks=[2], stackwise_strides=[1], input_shape=(16, 16, 3),
            include_rescaling=True)
        self.model = keras_cv.models.ImageClassifier(backbone, num_classes=2)
        self.model.compile(optimizer, keras_cv.losses.FocalLoss(from_logits=False))

    def train(self, epochs=HALF):
        data = IMAGES, np.eye(2, dtype="float32")[LABELS]
        return self.model.fit(*data, batch_size=4, epochs=epochs, shuffle=False, verbose=0).history["loss"]

    def weights(self):
        return [each.numpy() for each in self.model.trainable_variables]

    def checkpoint(self):
        return tf.train.Checkpoint(model=self.model, optimizer=self.model.optimizer)


class Contrastive(Classifier):
    """SimCLR: one optimizer for the encoder, one for the probe."""

    def __init__(self, optimizer):
        tf.keras.utils.set_random_seed(1)
        encoder = tf.keras.Sequential([
            tf.keras.layers.Rescaling(1 / 255, input_shape=(16, 16, 3)),
            tf.keras.layers.Conv2D(4, 3, 2, activation="relu"), tf.keras.layers.GlobalAveragePooling2D()])
        self.model = ContrastiveTrainer(
            encoder, augmenter=tf.keras.layers.Rescaling(1.0), projector=tf.keras.layers.Dense(4),
            probe=tf.keras.layers.Dense(2))
        self.model.compile(
            encoder_optimizer=optimizer, encoder_loss=keras_cv.losses.SimCLRLoss(temperature=0.5),
            probe_optimizer=type(optimizer).from_config(optimizer.get_config()),
            probe_loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        self.model.probe(self.model.projectors[0](encoder(IMAGES[:4])))

    def train(self, epochs=HALF):
        data = tf.data.Dataset.from_tensor_slices((IMAGES, LABELS)).batch(4)
        return self.model.fit(data, epochs=epochs, verbose=0).history["loss"]

    def checkpoint(self):
        return tf.train.Checkpoint(
            model=self.model, optimizer=self.model.optimizer, probe=self.model.probe_optimizer)


@pytest.mark.parametrize("name, run, text", [
    ("SGD with momentum, global_clipnorm", Classifier, "ImageClassifier"), ("Adam", Contrastive, "ContrastiveTrainer")])
def test_fit(name, run, text, tmp_path):
    same_numbers(
        KERAS_CV, "{}, {}".format(text, name), run, STOCK[name], lambda: ours(name), tmp_path, HALF,
        "tf.train.Checkpoint", each=BATCHES, within=1e-4)
