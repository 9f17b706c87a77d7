"""KerasTuner 1.3 (TF 2.10): searches for settings of stock optimizers and of ours, saved and loaded."""
from __future__ import absolute_import, division, print_function

import keras_tuner
import numpy as np
import pytest
import tensorflow as tf
from compare import apart, one_thread, shown

import everstep
from everstep.optimizers import SGD, Adam, DiffGrad

TUNER = "keras-tuner", "{}, TF {}".format(keras_tuner.__version__, tf.__version__)
one_thread(tf)
EPOCHS, TRIALS = 10, 4
STEPS = 5 * EPOCHS
X = np.random.RandomState(0).rand(160, 4).astype("float32")
Y = (X.sum(1, keepdims=True) > 2) * 1.0


def hypermodel(optimizers):
    """Returns a function of hyperparameters that compiles a model. `optimizers` are functions of (rate, momentum)."""

    def build(hp):
        tf.keras.utils.set_random_seed(1)
        model = tf.keras.Sequential([
            tf.keras.layers.Dense(hp.Int("units", 4, 8, 4), "tanh", input_shape=(4,)),
            tf.keras.layers.Dense(1, "sigmoid"),
        ])
        rate, name = hp.Float("rate", 1e-2, 1e-1, sampling="log"), hp.Choice("optimizer", sorted(optimizers))
        model.compile(optimizers[name](rate), "binary_crossentropy")
        return model

    return build


def stock():
    return {"adam": tf.keras.optimizers.Adam, "sgd": lambda rate: tf.keras.optimizers.SGD(rate, 0.9)}


def ours():
    return {"adam": lambda rate: Adam(rate).bind(tf.keras), "sgd": lambda rate: SGD(rate, momentum=0.9).bind(tf.keras)}


def searched(optimizers, path, make=keras_tuner.RandomSearch, **arguments):
    """Returns a tuner, and {values of the hyperparameters: score}."""
    tuner = make(hypermodel(optimizers), "val_loss", directory=str(path), seed=1, project_name="search", **arguments)
    tuner.search(X, Y, batch_size=32, epochs=EPOCHS, shuffle=False, validation_data=(X, Y), verbose=0)
    trials = tuner.oracle.trials.values()
    return tuner, {str(sorted(trial.hyperparameters.values.items())): trial.score for trial in trials}


@pytest.mark.parametrize("make", ["RandomSearch", "Hyperband"])
def test_search(make, tmp_path):
    limit = dict(max_trials=TRIALS) if make == "RandomSearch" else dict(max_epochs=4, factor=4)
    searches = [searched(optimizers(), tmp_path / name, getattr(keras_tuner, make), **limit)
                for name, optimizers in (("own", stock), ("again", stock), ("ours", ours))]
    (own, scores), (_, again), (tuner, our_scores) = searches
    best = [each.get_best_models(1)[0].get_weights() for each in (own, tuner)]
    shown(*TUNER, make + " over Adam and SGD: scores, best weights", STEPS, apart(scores, our_scores),
          apart(scores, again), apart(*best), saved="get_best_models")
    assert sorted(scores) == sorted(our_scores) and apart(scores, our_scores) < 1e-5 and apart(*best) < 1e-4


def test_the_best_model_goes_on(tmp_path):
    """The tuner saves its best epoch, with the optimizer; a second tuner of the same folder loads it."""
    searched(ours(), tmp_path, max_trials=TRIALS)
    loaded, _ = searched(ours(), tmp_path, max_trials=TRIALS)  # finds the old trials and adds none
    assert len(loaded.oracle.trials) == TRIALS
    settings = loaded.get_best_hyperparameters()[0]
    model, whole = loaded.get_best_models(1)[0], loaded.hypermodel.build(settings)
    step = loaded.oracle.get_best_trials(1)[0].best_step
    whole.fit(X, Y, 32, step + 1, shuffle=False, verbose=0)
    expected, losses = (each.fit(X, Y, 32, EPOCHS, shuffle=False, verbose=0).history["loss"] for each in (whole, model))
    weights = apart(whole.get_weights(), model.get_weights())
    shown(*TUNER, "the best trial trains on", STEPS, apart(expected, losses), weights=weights, saved="its checkpoint")
    assert int(model.optimizer.iterations) == (step + 1 + EPOCHS) * 5 and weights < 1e-6


def test_a_rule_that_it_lacks(tmp_path):
    def make(rate):
        return everstep.accumulate(DiffGrad(rate), 2).bind(tf.keras)

    tuner, scores = searched({"diffgrad": make}, tmp_path, max_trials=TRIALS)
    model = tuner.get_best_models(1)[0]
    model.fit(X, Y, 32, 1, verbose=0)
    assert "previous_grad" in model.optimizer.get_slot_names() and min(scores.values()) < 0.6
    shown(*TUNER, "RandomSearch over accumulate(DiffGrad, 2): best {:.2f}".format(min(scores.values())), STEPS)
