"""What each module speaks, in every environment; and that what `bind` gives is trained by that module's own models."""
from __future__ import absolute_import, division, print_function

import collections
import importlib

import numpy
import pytest
from packaging.version import Version

import everstep
from everstep.compat import targets
from everstep.errors import TargetError
from everstep.optimizers import SGD, Adam


def installed(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


tf, keras, tf_keras = installed("tensorflow"), installed("keras"), installed("tf_keras")


def version(module):
    return Version(module.__version__)


def part(module, path):
    for name in path.split("."):
        module = getattr(module, name, None)
    return module


def tensorflow_speaks():
    """(path, target or None) for TensorFlow's modules, by its version: what the hooks must come to."""
    if tf is None:
        return
    here = version(tf)
    yield "train", "tf_train" if here < Version("2") else None
    yield "compat.v1.train", "tf_train"
    if here < Version("1.14"):
        whole = "get_updates"
    elif here < Version("2.11"):
        whole = "optimizer_v2"
    else:
        whole = None  # new-style, then Keras 3
    yield "keras", whole
    yield "keras.optimizers", whole
    yield "optimizers", whole
    yield "keras.optimizers.legacy", "optimizer_v2" if here < Version("2.16") else None
    yield "compat.v1", None
    yield "contrib", None


def keras_speaks():
    if keras is None:
        return
    here = version(keras)
    if here < Version("2.4"):
        whole = "get_updates"
    elif here < Version("2.13"):
        # 2.4 hands on what tf.keras has; 2.11 and 2.12 export legacy classes beside the new ones of tf.keras.
        whole = "optimizer_v2"
    else:
        whole = None
    yield "keras", whole
    yield "keras.optimizers", whole
    # 2.9 to 2.12 have a folder of that name, without classes in it.
    yield "keras.optimizers.legacy", "optimizer_v2" if Version("2.13") <= here < Version("3") else None


def cases():
    for path, target in tensorflow_speaks():
        yield "tensorflow." + path, part(tf, path), target
    for path, target in keras_speaks():
        yield path, part(keras, path.partition(".")[2]) if "." in path else keras, target
    if tf_keras is not None:
        yield "tf_keras", tf_keras, None
        yield "tf_keras.optimizers", tf_keras.optimizers, None
        yield "tf_keras.optimizers.legacy", tf_keras.optimizers.legacy, "optimizer_v2"
    yield "numpy", numpy, "arrays"
    yield "collections", collections, None
    yield "everstep", everstep, None
    yield "everstep.optimizers", everstep.optimizers, None


CASES = [case for case in cases() if case[1] is not None]


@pytest.mark.parametrize("name, module, target", CASES, ids=[case[0] for case in CASES])
def test_what_a_module_speaks(name, module, target):
    if target is None:
        with pytest.raises(TargetError) as caught:
            targets.find(module)
        assert "What works today" in str(caught.value)
        return
    found = targets.find(module)
    assert found.target.name == target
    made = Adam(0.5).bind(module)
    assert isinstance(made, found.base) and type(made).__name__ == "Adam" and type(made) is Adam.native_class(module)
    objects = everstep.custom_objects(module)
    assert objects["Adam"] is objects["adam"] is type(made) and issubclass(objects["Accumulate"], found.base)


def test_the_base_is_that_of_the_modules_own_optimizers():
    """What `compile` and `isinstance` look at."""
    for name, module, target in CASES:
        if target in ("optimizer_v2", "get_updates"):
            holder = getattr(module, "optimizers", module)
            stock = getattr(holder, "SGD", None) or type(holder.get("sgd"))
            assert issubclass(stock, targets.find(module).base), name


NO_MODULES = ["tf.keras", u"tf.keras", None, 3, object(), Adam, Adam(), [], lambda: None]


@pytest.mark.parametrize("given", NO_MODULES, ids=[str(place) for place in range(len(NO_MODULES))])
def test_what_is_no_module(given):
    with pytest.raises(TargetError, match="What works today"):
        Adam().bind(given)


def test_classes_and_instances_of_optimizers():
    if part(tf, "keras.optimizers.SGD") is None:
        pytest.skip("no tf.keras is in this environment")
    stock = tf.keras.optimizers.SGD
    for given in (stock, stock(0.1)):
        with pytest.raises(TargetError, match="takes the module you train with"):
            Adam().bind(given)


def test_tensorflow_itself():
    """It has several optimizer APIs; in some versions one of them at the top too."""
    if tf is None:
        pytest.skip("no TensorFlow is in this environment")
    with pytest.raises(TargetError, match="Pass the part of it that you train with"):
        Adam().bind(tf)


def test_hints():
    if tf is None:
        pytest.skip("no TensorFlow is in this environment")
    if version(tf) >= Version("2"):
        with pytest.raises(TargetError, match="tf.compat.v1.train"):
            Adam().bind(tf.train)
    if part(tf, "keras.optimizers.legacy") and version(tf) >= Version("2.16"):
        with pytest.raises(TargetError, match="install tf_keras, pass tf_keras.optimizers.legacy"):
            Adam().bind(tf.keras.optimizers.legacy)
    if version(tf) >= Version("2.11"):
        with pytest.raises(TargetError, match="new-style optimizers"):
            Adam().bind(tf.keras)


def test_the_keras_package_trains_what_it_gave():
    """The keras package beside TensorFlow 2.4 and newer: its classes and models are not always tf.keras's."""
    if keras is None or dict((name, target) for name, _, target in CASES).get("keras") is None:
        pytest.skip("no keras package that speaks a known target is in this environment")
    models, layers = importlib.import_module("keras.models"), importlib.import_module("keras.layers")
    keras.backend.clear_session()
    model = models.Sequential([layers.Dense(1, use_bias=False, input_shape=(2,), kernel_initializer="zeros")])
    optimizer = SGD(0.5).bind(keras)
    model.compile(optimizer, "mse")
    model.fit(numpy.eye(2, dtype="float32"), numpy.ones((2, 1), "float32"), batch_size=2, verbose=0)
    assert model.get_weights()[0].tolist() == [[0.5], [0.5]]
    assert int(keras.backend.get_value(optimizer.iterations)) == 1


def test_known_modules_are_what_is_here():
    names = dict(targets.known_modules())
    assert names["numpy"] is numpy
    assert (names["tensorflow.keras"] is None) == (part(tf, "keras") is None)
    assert (names["tf_keras"] is None) == (tf_keras is None)
