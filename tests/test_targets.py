"""`bind` finds the right target for every module here, and the module's own models train with the result."""
from __future__ import absolute_import, division, print_function

import ast
import collections
import gc
import glob
import importlib
import inspect
import os
import re
import sys
import types
import weakref

import numpy
import pytest
from packaging.version import Version

import everstep
import harness
from everstep.compat.targets import adapter, detect
from everstep.errors import EverstepError, TargetError
from everstep.optimizers import SGD, Adam
from harness import all_ways, clear_session


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
    """Yields (path, target or None) of TensorFlow's modules by version: detection by hooks must give the same."""
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
    # In 2.9 and 2.10 it exists with another design than in 2.11; from 2.16 on it does not exist.
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
        # 2.4 forwards tf.keras; 2.11 and 2.12 export legacy classes beside the new ones of tf.keras.
        whole = "optimizer_v2"
    elif here < Version("3"):
        whole = "update_step"
    else:
        whole = "keras3"
    yield "keras", whole
    yield "keras.optimizers", whole
    # 2.9 to 2.12 have a folder of that name without classes; Keras 3 has classes without hooks.
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
    api = detect.find(module)
    assert api.target.name == target
    optimizer = Adam(0.5).bind(module)
    assert isinstance(optimizer, api.base) and type(optimizer).__name__ == "Adam"
    assert type(optimizer) is Adam.native_class(module)
    objects = everstep.custom_objects(module)
    assert objects["Adam"] is objects["adam"] is type(optimizer) and issubclass(objects["Accumulate"], api.base)


def test_the_base_is_a_base_of_the_modules_own_optimizers():
    """`compile` and `isinstance` check for this class."""
    for name, module, target in CASES:
        if target not in (None, "tf_train", "arrays"):
            holder = getattr(module, "optimizers", module)
            stock = getattr(holder, "SGD", None) or type(holder.get("sgd"))
            assert issubclass(stock, detect.find(module).base), name


def test_classes_and_instances_of_optimizers():
    if part(tf, "keras.optimizers.SGD") is None:
        pytest.skip("no tf.keras is in this environment")
    stock = tf.keras.optimizers.SGD
    for given in (stock, stock(0.1)):
        with pytest.raises(TargetError, match="takes the module you train with"):
            Adam().bind(given)


def test_tensorflow_itself():
    """TensorFlow has several optimizer APIs, in some versions one of them at the top level too."""
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


@pytest.mark.parametrize("name, hint", [
    ("tensorflow.train", "In TF 2 these optimizers are in tf.compat.v1.train."),
    ("keras.optimizers.experimental", "are too unlike those of 2.11: pass tf.keras."),
    ("keras.optimizers.legacy", "install tf_keras, pass tf_keras.optimizers.legacy."),
    ("somebody", "that everstep knows. Looked for:"),
])  # fmt: skip
def test_the_name_of_a_module_without_optimizers_gives_the_hint(name, hint):
    with pytest.raises(TargetError) as caught:
        Adam().bind(types.ModuleType(name))
    hints = ("In TF 2 these", "The experimental", "Pass ")
    assert hint in str(caught.value) and sum(each in str(caught.value) for each in hints) == (name != "somebody")


def trains(whole, holder):
    """Trains a model of a Keras with an optimizer that is bound to one of its modules."""
    models, layers = (importlib.import_module(whole.__name__ + part) for part in (".models", ".layers"))
    clear_session(whole)
    model = models.Sequential([layers.Dense(1, use_bias=False, input_shape=(2,), kernel_initializer="zeros")])
    optimizer = SGD(0.5).bind(holder)
    model.compile(optimizer, "mse")
    # Keras 2.0 takes 10 epochs by default.
    model.fit(numpy.eye(2, dtype="float32"), numpy.ones((2, 1), "float32"), batch_size=2, epochs=1, verbose=0)
    assert model.get_weights()[0].tolist() == [[0.5], [0.5]]
    value = getattr(whole.backend, "get_value", None) or whole.ops.convert_to_numpy
    assert int(value(optimizer.iterations)) == 1


SPEAKING = [(name, module) for name, module, target in CASES if target and name.split(".")[0] in ("keras", "tf_keras")]


@pytest.mark.parametrize("name, holder", SPEAKING, ids=[name for name, _ in SPEAKING])
def test_keras_packages_train_with_their_own_classes(name, holder):
    """From TensorFlow 2.4 on, the keras package's classes and models are not always those of tf.keras."""
    trains(keras if name.startswith("keras") else tf_keras, holder)


def test_a_class_speaks_one_target_alone():
    """An OptimizerV2 has get_updates too, and new-style and Keras 3 optimizers share most names."""
    for name, module, target in CASES:
        if target not in (None, "arrays"):
            base = detect.find(module).base
            assert [each.name for each in detect.TARGETS if each.speaks(base)] == [target], name


def test_a_misleading_optimizer_class_is_ignored():
    """In some versions `keras.optimizers.Optimizer` is not a base of the module's own Adam."""
    if keras is None or not Version("2.9") <= version(keras) < Version("2.13"):
        pytest.skip("the keras package that misleads is that of 2.9 to 2.12")
    named, api = keras.optimizers.Optimizer, detect.find(keras)
    assert not issubclass(keras.optimizers.SGD, named) and api.base is not named
    assert isinstance(Adam().bind(keras), api.base) and api.target.name == "optimizer_v2"


@pytest.mark.skipif(tf is not None or keras is None, reason="TensorFlow is in this environment, or no Keras")
def test_keras_without_tensorflow():
    assert keras.backend.backend() in ("jax", "torch")
    optimizer = Adam().bind(keras)
    optimizer.build([keras.Variable(numpy.ones(2))])
    assert installed("tensorflow") is None and "tensorflow" not in sys.modules


def test_known_modules_are_what_is_here():
    names = dict(detect.known_modules())
    assert names["numpy"] is numpy
    assert (names["tensorflow.keras"] is None) == (part(tf, "keras") is None)
    assert (names["tf_keras"] is None) == (tf_keras is None)


# Members: an adapter has all that compat/targets/adapter.py requires, in its order. No class of ours overrides one
# of another.

CLASSES = [detect.load(api) for api in detect.TARGETS + (detect.ARRAYS,)]


def is_required(member):
    return getattr(getattr(member, "__func__", member), "is_required", False)


REQUIRED = re.findall(r"@required\n    def (\w+)", inspect.getsource(adapter))


def missing(adapter_class):
    return [name for name in REQUIRED if is_required(getattr(adapter_class, name))]


@pytest.mark.parametrize("adapter_class", CLASSES, ids=[each.__name__ for each in CLASSES])
def test_an_adapter_defines_what_is_required(adapter_class):
    assert missing(adapter_class) == []


def test_a_forgotten_member_is_named():
    class Unfinished(adapter.Adapter):
        target = "nothing"
        start = make_state = None

    assert set(REQUIRED) - set(missing(Unfinished)) == {"start", "make_state"}
    with pytest.raises(NotImplementedError, match="the adapter of nothing has no find_slot"):
        Unfinished(harness.bound(Adam().bind(numpy))).find_slot(None, "m")


def functions(cls):
    kinds = (types.FunctionType, classmethod, staticmethod, property)
    return [name for name, member in vars(cls).items() if isinstance(member, kinds)]


def ours(cls):
    return [each for each in cls.__mro__ if each.__module__.startswith("everstep.")]


def overridden(cls):
    """Returns the concrete members of a class of ours that another one of ours replaces."""
    classes = ours(cls)
    pairs = [(each, base) for place, each in enumerate(classes) for base in classes[place + 1 :]]
    return [(each.__name__, name) for each, base in pairs for name in functions(each)
            if name in functions(base) and not is_required(vars(base)[name])]


@pytest.mark.parametrize("adapter_class", CLASSES, ids=[each.__name__ for each in CLASSES])
def test_no_class_overrides_a_member_of_ours(adapter_class):
    assert overridden(adapter_class) == overridden(adapter_class.native_class) == []
    assert len(ours(adapter_class.native_class)) == 2
    assert not any(hasattr(base, "_apply_dense") or hasattr(base, "get_config") for base in adapter_class.__bases__)


def test_an_override_is_noticed():
    class Changed(detect.load(detect.ARRAYS)):
        def unwrap(self, variable):
            return variable

    Changed.__module__ = "everstep.changed"
    assert overridden(Changed) == [("Changed", "unwrap")]


def members(source):
    """Yields (class, names of its functions) for the adapters of a module."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and node.name.endswith("Adapter"):
            yield node.name, [each.name for each in node.body if isinstance(each, ast.FunctionDef)]


def test_members_stand_in_the_order_of_the_contract():
    modules = {sys.modules[each.__module__] for target in CLASSES for each in target.__mro__ if "Adapter" in str(each)}
    checked = 0
    for module in modules - {adapter}:
        for name, found in members(inspect.getsource(module)):
            shared = [member for member in found if member in REQUIRED]
            assert shared == sorted(shared, key=REQUIRED.index), name
            checked += 1
    assert checked == len(CLASSES) + 1


def test_what_the_rooms_above_and_below_ask_is_there():
    compat = os.path.dirname(os.path.dirname(inspect.getsourcefile(adapter)))
    asked = {"host": set(), "bound": set(), "adapter": set()}
    for room in ("engine", "checkpoints", "extras"):
        for path in glob.glob(os.path.join(compat, room, "*.py")):
            with open(path) as file:
                tree = ast.parse(file.read())
            for node in ast.walk(tree):
                of = getattr(node, "value", None) if isinstance(node, ast.Attribute) else None
                asked.get(getattr(of, "id", getattr(of, "attr", None)), set()).add(node.attr if of else None)
    bound = harness.bound(Adam().bind(numpy))
    assert {"rule", "slot"} <= asked["host"] and {"unwrap", "counter"} <= asked["adapter"]
    assert [name for name in asked["host"] | asked["bound"] if not hasattr(bound, name)] == []
    assert [name for name in asked["adapter"] if not hasattr(adapter.Adapter, name)] == []


# Everything that a target declares as unsupported raises.

MODULES = {target: module for name, module, target in reversed(CASES) if target}
UNSUPPORTED = [(each.target, item) for each in CLASSES if each.target in MODULES for item in each.unsupported]


def v1():
    return part(tf, "compat.v1") if part(tf, "compat.v1.Graph") else tf


def by_keyword(name):
    return lambda module: Adam(0.1).bind(module, **{name: 0.5})


def by_step(make):
    """Returns a trigger that trains the variable of `make`."""

    def trigger(module):
        optimizer, variable = Adam(0.1).bind(module), make(module)
        if hasattr(optimizer, "get_updates") and not hasattr(optimizer, "apply_gradients"):
            optimizer.get_updates(v1().constant(1.0), [variable])
        else:
            optimizer.apply_gradients([(numpy.ones((4, 2), "float32"), variable)])

    return trigger


def partitioned(module):
    if module is numpy or tf is None:
        return [numpy.ones((2, 2)), numpy.ones((2, 2))]
    with v1().Graph().as_default():
        return v1().get_variable("W", [4, 2], partitioner=v1().fixed_size_partitioner(2))


def ref(module):
    with v1().Graph().as_default():
        return v1().get_variable("W", [4, 2], use_resource=False)


def on_complex(module):
    way = next(way for way in all_ways() if way.target == detect.find(module).target.name)
    zeros = numpy.zeros((4, 2), "complex64")
    with way.world(way.module) as world:
        try:
            variable = world.variable(zeros)
        except ValueError as error:
            pytest.skip("this Keras itself has no complex variables: {}".format(error))
        optimizer = Adam(0.1).bind(way.module)
        if way.target == "get_updates":  # of a real loss
            world.updates(optimizer, lambda: v1().reduce_sum(v1().abs(variable)), [variable])
        else:
            world.apply(optimizer, [(world.tensor(zeros), variable)])


def constrained(module):
    class Constrained(numpy.ndarray):
        constraint = abs

    return numpy.ones((4, 2)).view(Constrained)


def set_rate(module):
    Adam(0.1).bind(module).learning_rate = 0.2


def on_replicas(module):
    if part(tf, "compat.v1.distribute.has_strategy") is None:
        pytest.skip("this TensorFlow has no tf.distribute.has_strategy")
    with v1().Graph().as_default():
        variable = v1().get_variable("W", [4, 2], use_resource=True)
        with v1().distribute.MirroredStrategy(["/cpu:0", "/cpu:1"]).scope():
            Adam(0.1).bind(module).apply_gradients([(v1().ones([4, 2]), variable)])


def in_graph(module):
    if tf is None:
        pytest.skip("no TensorFlow is in this environment")
    with v1().Graph().as_default():
        Adam(0.1).bind(module)


TRIGGERS = {
    "clipnorm": by_keyword("clipnorm"), "global_clipnorm": by_keyword("global_clipnorm"), "decay": by_keyword("decay"),
    "DTensor meshes": by_keyword("mesh"), "partitioned variables": by_step(partitioned), "ref variables": by_step(ref),
    "complex variables": on_complex, "constraints": by_step(constrained), "changing rates after bind": set_rate,
    "tf.distribute over several replicas": on_replicas, "graphs of TF 1": in_graph,
}


@pytest.mark.parametrize("target, item", UNSUPPORTED, ids=[name + " " + item.what for name, item in UNSUPPORTED])
def test_what_is_unsupported_raises(target, item):
    module = MODULES[target]
    if issubclass(item.error, AttributeError):
        optimizer = Adam(0.1).bind(module)
        assert not hasattr(optimizer, item.what)
        with pytest.raises(item.error, match=target) as caught:
            getattr(optimizer, item.what)
    else:
        with pytest.raises(item.error) as caught:
            TRIGGERS[item.what](module)
    assert isinstance(caught.value, EverstepError)
    assert all(piece in str(caught.value) for piece in re.split(r"{.*?}", item.text)), caught.value


HERE = sorted(((name, module) for name, module, target in CASES if target), key=lambda case: case[0])


@pytest.mark.parametrize("name, module", HERE, ids=[name for name, _ in HERE])
def test_hypers_are_listed(name, module):
    assert {"learning_rate", "lr", "beta_1", "epsilon"} <= set(dir(Adam().bind(module)))


@pytest.mark.shared
@pytest.mark.parametrize("name, module", HERE, ids=[name for name, _ in HERE])
def test_redefined_definitions_are_collected(name, module):
    """A notebook defines the same class again and again. Only the last one is known to loaders."""
    kept = []
    for _ in range(4):

        class Redefined(everstep.Definition):
            learning_rate = everstep.hyper(0.1)

            def update(self, ops, grad, var, slots, hyper, t):
                return hyper.learning_rate * grad, {}

        optimizer = Redefined().bind(module)
        kept.append((weakref.ref(Redefined), weakref.ref(type(optimizer))))
        assert Redefined.native_class(module) is type(optimizer)
        del Redefined, optimizer
    gc.collect()
    assert [[reference() is not None for reference in references] for references in kept[:-1]] == [[False, False]] * 3
