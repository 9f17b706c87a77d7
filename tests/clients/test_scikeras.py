"""SciKeras on Keras 2 (0.12) and Keras 3 (0.13): fitted estimators cloned, searched and scored, here and in processes.

SciKeras copies every optimizer of Keras from its config, so that a clone begins anew.
"""
from __future__ import absolute_import, division, print_function

import pickle
import subprocess
import sys

import joblib
import keras
import numpy as np
import pytest
import scikeras
from compare import apart, shown
from scikeras.wrappers import KerasClassifier
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score

import everstep
from everstep.optimizers import SGD, Adam

SCIKERAS = "scikeras", "{}, Keras {}".format(scikeras.__version__, keras.__version__)
EPOCHS, BATCH, ROWS = 3, 20, 120
STEPS = EPOCHS * ROWS // BATCH
X = np.random.RandomState(0).randn(ROWS, 4).astype("float32")
Y = (X[:, 0] + X[:, 1] > 0).astype(int)


def decaying(rate):
    """A schedule shows whether a clone counts from 0, even without slots."""
    return keras.optimizers.schedules.InverseTimeDecay(rate, 5, 1.0)


OPTIMIZERS = {
    "Adam": (lambda: keras.optimizers.Adam(0.02), lambda: Adam(0.02).bind(keras)),
    "SGD": (lambda: keras.optimizers.SGD(decaying(0.5)), lambda: SGD(decaying(0.5)).bind(keras)),
}
both = pytest.mark.parametrize("name", sorted(OPTIMIZERS))


def build():
    keras.utils.set_random_seed(3)
    return keras.Sequential([
        keras.layers.Input((4,)), keras.layers.Dense(6, "tanh"), keras.layers.Dense(1, "sigmoid"),
    ])


def estimator(optimizer):
    return KerasClassifier(build, optimizer=optimizer, loss="binary_crossentropy", epochs=EPOCHS, batch_size=BATCH,
                           verbose=0, random_state=1)


def of_a_model(optimizer):
    model = build()
    model.compile(optimizer, "binary_crossentropy")
    return KerasClassifier(model, epochs=EPOCHS, batch_size=BATCH, verbose=0, random_state=1)


def compared(what, name, run, make=estimator, bound=1e-6):
    """Runs with an estimator fitted with stock, with stock again, and with ours. Asserts that ours differs no more."""
    stock, ours = OPTIMIZERS[name]
    own, again, scores = (run(make(each()).fit(X, Y)) for each in (stock, stock, ours))
    shown(*SCIKERAS, "{} with {}".format(what, name), STEPS, apart(own, scores), apart(own, again))
    assert apart(own, scores) <= max(apart(own, again), bound), (own, scores)


@both
def test_a_clone_of_a_fitted_estimator(name):
    """The clone trains as if the first estimator had never been fitted: it gets the same weights."""

    def weights(fitted):
        again = clone(fitted).fit(X, Y)
        assert int(np.asarray(again.model_.optimizer.iterations)) == STEPS
        assert apart(fitted.model_.get_weights(), again.model_.get_weights()) < 1e-6
        return again.model_.get_weights()

    compared("clone(fitted).fit: weights", name, weights, bound=1e-4)


@both
@pytest.mark.parametrize("jobs", [1, 2])
def test_cross_validation(name, jobs):
    compared("cross_val_score(fitted, n_jobs={})".format(jobs), name,
             lambda fitted: cross_val_score(fitted, X, Y, cv=3, error_score="raise", n_jobs=jobs))


@pytest.mark.parametrize("name, jobs", [("Adam", 2), ("SGD", 1)])
def test_grid_search(name, jobs):
    """The best estimator is cloned and fitted at the end."""

    def scores(fitted):
        grid = {"epochs": [1, EPOCHS], "batch_size": [BATCH, 2 * BATCH]}
        search = GridSearchCV(fitted, grid, cv=2, error_score="raise", n_jobs=jobs).fit(X, Y)
        return list(search.cv_results_["mean_test_score"]) + [search.best_estimator_.score(X, Y)]

    compared("GridSearchCV(fitted, n_jobs={})".format(jobs), name, scores)


def start():
    """What each worker runs first, where a compiled model is sent to it."""
    everstep.register(keras)


def test_compiled_models_in_processes():
    """A pickled model is a file, which Keras loads without custom objects."""

    def scores(fitted):
        with joblib.parallel_config("loky", n_jobs=2, initializer=start):
            return cross_val_score(fitted, X, Y, cv=3, error_score="raise")

    compared("cross_val_score of a compiled model, n_jobs=2", "Adam", scores, of_a_model)


@both
def test_a_fitted_estimator_that_is_pickled_trains_on(name):
    """The model keeps its state, as with stock."""

    def weights(fitted):
        twin = pickle.loads(pickle.dumps(fitted))
        for each in (fitted, twin):
            each.partial_fit(X, Y)
            assert int(np.asarray(each.model_.optimizer.iterations)) == STEPS + ROWS // BATCH
        return twin.model_.get_weights()

    compared("pickled, partial_fit: weights", name, weights, bound=1e-4)


LOADER = """
import pickle, sys
import keras, scikeras
with open(sys.argv[1], "rb") as file:
    optimizer, model = pickle.load(file)
print("LOADED", type(optimizer).__name__, type(model.optimizer).__module__)
"""


def test_a_model_loads_after_its_optimizer(tmp_path):
    """An unpickled optimizer registers its class, as `bind` does."""
    optimizer = Adam(0.02).bind(keras)
    fitted = estimator(optimizer).fit(X, Y)
    path = tmp_path / "both.pkl"
    path.write_bytes(pickle.dumps((optimizer, fitted.model_)))
    output = subprocess.check_output([sys.executable, "-c", LOADER, str(path)], stderr=subprocess.STDOUT)
    assert b"LOADED Adam everstep.native." in output, output
