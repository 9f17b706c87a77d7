"""DeepCTR 0.9.4 (TF 1.15): DeepFM under tf.keras, and as an estimator with two optimizers of tf.train in one step."""
from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import requests
import tensorflow as tf
from compare import apart, shown
from keras_runs import fit, start

import everstep

requests.get = None  # DeepCTR asks pypi.org for its newest version when it is imported, and says so if it cannot

import deepctr  # noqa: E402
from deepctr.estimator import DeepFMEstimator  # noqa: E402
from deepctr.feature_column import DenseFeat, SparseFeat  # noqa: E402
from deepctr.layers import custom_objects  # noqa: E402
from deepctr.models import DeepFM  # noqa: E402

DEEPCTR = "deepctr", "{}, TF {}".format(deepctr.__version__, tf.__version__)
SIZES = {"user": 60, "item": 40}
BATCH, STEPS = 16, 50
BY_HAND = {"Adam": dict(learning_rate=1e-2), "Adagrad": dict(learning_rate=5e-2)}


def data():
    random = np.random.RandomState(0)
    x = {name: random.randint(0, size, BATCH * STEPS) for name, size in SIZES.items()}
    x["age"] = random.normal(size=BATCH * STEPS).astype("float32")
    y = (x["user"] % 2 + x["item"] % 3 + x["age"] > 1.5).astype("float32")
    return x, y


# tf.keras

def trained(make):
    start(tf.keras)
    columns = [SparseFeat(name, size, embedding_dim=4) for name, size in sorted(SIZES.items())] + [DenseFeat("age", 1)]
    # Without a penalty the gradients of the embeddings are sparse.
    model = DeepFM(columns, columns, dnn_hidden_units=(8, 8), dnn_activation="tanh", l2_reg_embedding=0,
                   l2_reg_linear=0)
    model.compile(make(), "binary_crossentropy")
    losses = fit(tf.keras, model, *data(), epochs=2, batch_size=BATCH)
    return model, losses, model.get_weights()


def resumed_apart(model, path):
    """Returns how far a run that was saved and loaded is from one that was not."""
    model.save(path)
    expected = fit(tf.keras, model, *data(), epochs=1, seed=2, batch_size=BATCH)
    weights = model.get_weights()
    start(tf.keras, seed=3)
    model = tf.keras.models.load_model(path, custom_objects)
    assert hasattr(model.optimizer, "definition"), "it was not loaded with ours"
    return max(apart(expected, fit(tf.keras, model, *data(), epochs=1, seed=2, batch_size=BATCH)),
               apart(weights, model.get_weights()))


@pytest.mark.parametrize("name", sorted(BY_HAND))
def test_keras(name, tmp_path):
    def stock():
        return getattr(tf.keras.optimizers, name)(**BY_HAND[name])

    (_, losses, weights), (_, losses_again, weights_again) = trained(stock), trained(stock)
    model, our_losses, our_weights = trained(lambda: everstep.from_native(stock()).bind(tf.keras))
    resumed = resumed_apart(model, str(tmp_path / "model.h5"))
    shown(*DEEPCTR, "DeepFM, tf.keras, " + name, len(losses), apart(losses, our_losses), apart(losses, losses_again),
          apart(weights, our_weights), apart(weights, weights_again),
          "model.save, load_model: {:.1e}".format(resumed))
    assert np.mean(our_losses[-10:]) < 0.9 * np.mean(our_losses[:10])
    assert max(apart(losses, our_losses), apart(weights, our_weights)) < 1e-5
    assert resumed < 1e-6


def test_keras_another_rule(tmp_path):
    rule = everstep.accumulate(everstep.optimizers.DiffGrad(0.02), 2)
    model, losses, _ = trained(lambda: rule.bind(tf.keras))
    assert np.mean(losses[-10:]) < 0.9 * np.mean(losses[:10])
    assert resumed_apart(model, str(tmp_path / "model.h5")) < 1e-6


# Estimators

def estimator(folder, linear=None, dnn=None):
    """Returns DeepCTR's estimator with optimizers or their names; by default Ftrl and Adagrad, as DeepCTR's own."""
    columns = [tf.feature_column.categorical_column_with_identity(name, size) for name, size in sorted(SIZES.items())]
    embedded = [tf.feature_column.embedding_column(column, 4) for column in columns]
    age = tf.feature_column.numeric_column("age")
    one = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    config = tf.estimator.RunConfig(str(folder), tf_random_seed=1, session_config=one)
    return DeepFMEstimator(columns + [age], embedded + [age], dnn_hidden_units=(8, 8), dnn_activation="tanh",
                           config=config, linear_optimizer=linear or "Ftrl", dnn_optimizer=dnn or "Adagrad")


def batches():
    # Half of the rows, twice: a second call of train begins with the first row, and so does the run without one.
    return tf.data.Dataset.from_tensor_slices(data()).take(BATCH * STEPS // 2).repeat().batch(BATCH)


def weights_of(folder, parts, **optimizers):
    """Returns {variable: values} after training in `parts` calls, each of which goes on from the last checkpoint."""
    for _ in range(parts):  # a new estimator each time, as in a new process
        model = estimator(folder, **{name: make() for name, make in optimizers.items()})
        model.train(batches, steps=STEPS // parts)
    names = [name for name in model.get_variable_names() if not name.startswith("global_step")]
    return {name: model.get_variable_value(name) for name in names}, model.evaluate(batches, steps=STEPS)["loss"]


def common(own, others):
    """Returns the entries of `others` that are also in `own`: the weights, not the slots."""
    return {name: others[name] for name in own if name in others}


def test_estimator(tmp_path):
    def same_maths(name):
        stock_class = getattr(tf.train, name)
        return lambda *args, **kwargs: everstep.from_native(stock_class(*args, **kwargs))

    (own, loss), (again, _) = weights_of(tmp_path / "own", 1), weights_of(tmp_path / "again", 1)
    names = ("FtrlOptimizer", "AdagradOptimizer")
    with everstep.patched(tf.train, **{name: same_maths(name) for name in names}):
        ours, our_loss = weights_of(tmp_path / "ours", 1)
    weights = {name: value for name, value in own.items() if name in ours}
    assert any(name.endswith("/updates") for name in ours), "it did not train with ours"
    difference, noise = (apart(weights, common(weights, each)) for each in (ours, again))
    shown(*DEEPCTR, "DeepFMEstimator, FtrlOptimizer and AdagradOptimizer by name", STEPS, abs(loss - our_loss) / loss,
          "", difference, noise)
    assert difference < 1e-5


def test_estimator_resumed_with_another_rule(tmp_path):
    rules = dict(linear=lambda: everstep.optimizers.SGD(0.05, momentum=0.9).bind(tf.train, name="linear_rule"),
                 dnn=lambda: everstep.accumulate(everstep.optimizers.DiffGrad(0.02), 2).bind(tf.train, name="dnn_rule"))
    whole, loss = weights_of(tmp_path / "whole", 1, **rules)
    parts, _ = weights_of(tmp_path / "parts", 2, **rules)
    resumed = apart(whole, parts)
    shown(*DEEPCTR, "DeepFMEstimator, SGD and accumulate(DiffGrad) by ours", STEPS,
          saved="model_dir, a second train(): {:.1e}".format(resumed))
    assert loss < 0.69 * BATCH
    assert resumed < 1e-5
