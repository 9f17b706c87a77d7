"""Keras 2.3.1: its own tests of its optimizers, which only its sdist has, with our definitions in their place."""
from __future__ import absolute_import, division, print_function

import functools
import inspect
import os
import sys
import tarfile
import types

import keras
import numpy as np
import pytest
import tensorflow as tf
from compare import apart, shown
from keras_runs import fit, start

import everstep

KERAS = "Keras", "{}, TF {}".format(keras.__version__, tf.__version__)
SDIST = os.path.join(sys.prefix, "sdists", "Keras-{}.tar.gz".format(keras.__version__))
CASES = [
    ("SGD", dict(lr=0.01, momentum=0.9, nesterov=True)),
    ("SGD", dict(lr=0.01, momentum=0.9, clipnorm=0.5)),
    ("RMSprop", dict(decay=1e-3)),
    ("Adagrad", dict(decay=1e-3)),
    ("Adadelta", {}),
    ("Adam", {}),
    ("Adam", dict(amsgrad=True, decay=1e-3)),
    ("Adamax", {}),
    ("Nadam", {}),
]
NAMES = sorted({name for name, _ in CASES})


def its_module():
    """Returns Keras's tests/keras/optimizers_test.py as a module."""
    with tarfile.open(SDIST) as archive:
        path = "Keras-{}/tests/keras/optimizers_test.py".format(keras.__version__)
        source = archive.extractfile(path).read()
    module = types.ModuleType("optimizers_test")
    exec(compile(source, path, "exec"), vars(module))
    return module


ITS = its_module()
ITS_TESTS = sorted(name for name, value in vars(ITS).items() if name.startswith("test_") and inspect.isfunction(value))


def ours(stock, made):
    """Returns a function that makes ours of the arguments of a stock class.

    Keras's own tests want class names of its table back from a config. What `from_native` makes of `decay` is a
    RateDecay, which that table does not have; so the decay is a schedule here. CASES trains with RateDecay.
    """

    def make(*args, **kwargs):
        native = {name: kwargs.pop(name) for name in ("clipnorm", "clipvalue") if name in kwargs}
        definition = everstep.from_native(stock(*args, **kwargs))
        if isinstance(definition, everstep.optimizers.RateDecay):
            rate = everstep.InverseTimeDecay(definition.inner.learning_rate, rate=definition.rate)
            definition = definition.inner.replace(learning_rate=rate)
        module = keras if issubclass(stock, keras.optimizers.Optimizer) else tf.train
        made.append(definition.bind(module, **native))
        return made[-1]

    return make


@pytest.mark.parametrize("name", ITS_TESTS)
def test_its_own_test(name):
    made = []
    start(keras)
    with everstep.patched(keras, **{each: ours(getattr(keras.optimizers, each), made) for each in NAMES}):
        with everstep.patched(tf.train, AdamOptimizer=ours(tf.train.AdamOptimizer, made)):
            getattr(ITS, name)()
    assert made and all(isinstance(optimizer.definition, everstep.Definition) for optimizer in made)


def test_all_of_them():
    shown(*KERAS, "its own optimizers_test.py: {} tests with ours".format(len(ITS_TESTS)), 189)
    assert len(ITS_TESTS) >= 10


def compiled(optimizer):
    model = keras.models.Sequential([
        keras.layers.Dense(10, activation="tanh", input_shape=(10,)), keras.layers.Dense(2, activation="softmax"),
    ])
    model.compile(loss="categorical_crossentropy", optimizer=optimizer)
    return model


@pytest.fixture(scope="module")
def data():
    x, y = ITS.get_test_data()
    return x[:800], y[:800]


def trained(make, data):
    start(keras)
    model = compiled(make())
    losses = fit(keras, model, *data, epochs=1, batch_size=16)
    return losses, model.get_weights()


@pytest.mark.parametrize("name, arguments", CASES)
def test_training(name, arguments, data, tmp_path):
    stock = getattr(keras.optimizers, name)
    own, again = (trained(lambda: stock(**arguments), data) for _ in range(2))
    for updates in (0, 1):
        losses, weights = trained(functools.partial(begun, ours(stock, []), arguments, updates), data)
        if apart(own[0], losses) < 1e-5:
            break
    resumed = resumed_apart(lambda: ours(stock, [])(**arguments), data, str(tmp_path / "model.h5"))
    text = ", ".join("{}={}".format(*item) for item in sorted(arguments.items()))
    shown(*KERAS, "{}({}), a model of its tests".format(name, text), len(losses), apart(own[0], losses),
          apart(own[0], again[0]), apart(own[1], weights), apart(own[1], again[1]),
          "model.save, load_model: {:.1e}".format(resumed))
    assert np.mean(losses[-5:]) < np.mean(losses[:5])
    assert max(apart(own[0], losses), apart(own[1], weights)) < 1e-5
    assert resumed < 1e-6


def begun(make, arguments, updates):
    """Counts updates as done. Nothing orders Keras's reads of `iterations` before its update: they may be one ahead."""
    optimizer = make(**arguments)
    keras.backend.set_value(optimizer.iterations, updates)
    return optimizer


def resumed_apart(make, data, path):
    """Returns how far a run that was saved and loaded is from one that was not."""
    start(keras)
    model = compiled(make())
    fit(keras, model, *data, epochs=1, batch_size=32)
    model.save(path)
    expected = fit(keras, model, *data, epochs=1, seed=2, batch_size=32)
    weights = model.get_weights()
    start(keras, seed=3)
    model = keras.models.load_model(path)
    assert hasattr(model.optimizer, "definition"), "it was not loaded with ours"
    return max(apart(expected, fit(keras, model, *data, epochs=1, seed=2, batch_size=32)),
               apart(weights, model.get_weights()))


def test_another_rule(data, tmp_path):
    def make():
        return everstep.accumulate(everstep.optimizers.DiffGrad(0.02), 2).bind(keras)

    losses, _ = trained(make, data)
    assert np.mean(losses[-5:]) < 0.7 * np.mean(losses[:5])
    assert resumed_apart(make, data, str(tmp_path / "model.h5")) < 1e-6
