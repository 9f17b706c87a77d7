"""What each module speaks, in every environment; and that what `bind` gives is trained by that module's own models."""
from __future__ import absolute_import, division, print_function

import collections
import importlib
import sys

import numpy
import pytest
from packaging.version import Version

import everstep
from everstep.compat.targets import detect
from everstep.errors import TargetError
from everstep.optimizers import SGD, Adam
from harness import start_anew


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
    elif here < Version("2.16"):
        whole = "update_step"
    else:
        whole = "keras3"
    yield "keras", whole
    yield "keras.optimizers", whole
    yield "optimizers", whole
    yield "keras.optimizers.legacy", "optimizer_v2" if here < Version("2.16") else None
    # In 2.9 and 2.10 it is there, with another design than that of 2.11; from 2.16 on it is gone.
    yield "keras.optimizers.experimental", "update_step" if Version("2.11") <= here < Version("2.16") else None
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
    elif here < Version("3"):
        whole = "update_step"
    else:
        whole = "keras3"
    yield "keras", whole
    yield "keras.optimizers", whole
    # 2.9 to 2.12 have a folder of that name, without classes in it; Keras 3 has classes without hooks.
    yield "keras.optimizers.legacy", "optimizer_v2" if Version("2.13") <= here < Version("3") else None


def cases():
    for path, target in tensorflow_speaks():
        yield "tensorflow." + path, part(tf, path), target
    for path, target in keras_speaks():
        yield path, part(keras, path.partition(".")[2]) if "." in path else keras, target
    if tf_keras is not None:
        yield "tf_keras", tf_keras, "update_step"
        yield "tf_keras.optimizers", tf_keras.optimizers, "update_step"
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
            detect.find(module)
        assert "What works" in str(caught.value)
        return
    found = detect.find(module)
    assert found.target.name == target
    made = Adam(0.5).bind(module)
    assert isinstance(made, found.base) and type(made).__name__ == "Adam" and type(made) is Adam.native_class(module)
    objects = everstep.custom_objects(module)
    assert objects["Adam"] is objects["adam"] is type(made) and issubclass(objects["Accumulate"], found.base)


def test_the_base_is_that_of_the_modules_own_optimizers():
    """What `compile` and `isinstance` look at."""
    for name, module, target in CASES:
        if target not in (None, "tf_train", "arrays"):
            holder = getattr(module, "optimizers", module)
            stock = getattr(holder, "SGD", None) or type(holder.get("sgd"))
            assert issubclass(stock, detect.find(module).base), name


NO_MODULES = ["tf.keras", u"tf.keras", None, 3, object(), Adam, Adam(), [], lambda: None]


@pytest.mark.parametrize("given", NO_MODULES, ids=[str(place) for place in range(len(NO_MODULES))])
def test_what_is_no_module(given):
    with pytest.raises(TargetError, match="What works"):
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
    if part(tf, "keras.optimizers.experimental") and version(tf) < Version("2.11"):
        with pytest.raises(TargetError, match="pass tf.keras"):
            Adam().bind(tf.keras.optimizers.experimental)
    if part(tf, "keras.optimizers.legacy") and version(tf) >= Version("2.16"):
        with pytest.raises(TargetError, match="install tf_keras, pass tf_keras.optimizers.legacy"):
            Adam().bind(tf.keras.optimizers.legacy)


def trains(whole, holder):
    """Whether the models of a Keras train with what is bound to one of its modules."""
    models, layers = (importlib.import_module(whole.__name__ + part) for part in (".models", ".layers"))
    start_anew(whole)
    model = models.Sequential([layers.Dense(1, use_bias=False, input_shape=(2,), kernel_initializer="zeros")])
    optimizer = SGD(0.5).bind(holder)
    model.compile(optimizer, "mse")
    model.fit(numpy.eye(2, dtype="float32"), numpy.ones((2, 1), "float32"), batch_size=2, verbose=0)
    assert model.get_weights()[0].tolist() == [[0.5], [0.5]]
    value = getattr(whole.backend, "get_value", None) or whole.ops.convert_to_numpy
    assert int(value(optimizer.iterations)) == 1


SPEAKING = [(name, module) for name, module, target in CASES if target and name.split(".")[0] in ("keras", "tf_keras")]


@pytest.mark.parametrize("name, holder", SPEAKING, ids=[name for name, _ in SPEAKING])
def test_the_keras_packages_train_what_they_gave(name, holder):
    """The keras package beside TensorFlow 2.4 and newer: its classes and models are not always tf.keras's."""
    trains(keras if name.startswith("keras") else tf_keras, holder)


def test_a_class_speaks_one_target_alone():
    """Though an OptimizerV2 has get_updates, and new-style and Keras 3 optimizers share most of their names."""
    for name, module, target in CASES:
        if target not in (None, "arrays"):
            base = detect.find(module).base
            assert [each.name for each in detect.TARGETS if each.speaks(base)] == [target], name


def test_the_optimizer_class_that_misleads_is_not_asked():
    """`keras.optimizers.Optimizer` is in some versions no base of what the module's own Adam is."""
    if keras is None or not Version("2.9") <= version(keras) < Version("2.13"):
        pytest.skip("the keras package that misleads is that of 2.9 to 2.12")
    named, found = keras.optimizers.Optimizer, detect.find(keras)
    assert not issubclass(keras.optimizers.SGD, named) and found.base is not named
    assert isinstance(Adam().bind(keras), found.base) and found.target.name == "optimizer_v2"


@pytest.mark.skipif(tf is not None or keras is None, reason="TensorFlow is in this environment, or no Keras")
def test_keras_without_tensorflow():
    assert keras.backend.backend() in ("jax", "torch")
    made = Adam().bind(keras)
    made.build([keras.Variable(numpy.ones(2))])
    assert installed("tensorflow") is None and "tensorflow" not in sys.modules


def test_known_modules_are_what_is_here():
    names = dict(detect.known_modules())
    assert names["numpy"] is numpy
    assert (names["tensorflow.keras"] is None) == (part(tf, "keras") is None)
    assert (names["tf_keras"] is None) == (tf_keras is None)
