"""A framework's own loaders: what arrives, of ours beside stock's, and what is said where something does not arrive.

`tests/make/loaders.py` writes the table of docs/loaders.md with the functions of this file.
"""
from __future__ import absolute_import, division, print_function

import importlib
import io
import json
import os
import sys
import warnings

import numpy as np
import pytest

import everstep
import keras_suite
from everstep.optimizers import SGD, Adam

HERE = keras_suite.available_modules()
APIS = [(target, module) for target in ("optimizer_v2", "update_step", "keras3", "get_updates")
        for module in HERE.get(target, ())[:1]]
if not APIS:
    pytest.skip("no Keras is in this environment", allow_module_level=True)

INPUTS = np.linspace(-1, 1, 12).reshape(4, 3).astype("float32")
OUTPUTS = np.linspace(1, -1, 8).reshape(4, 2).astype("float32")
FILE = dict(learning_rate=0.125, momentum=0.75)  # the settings of the file
NEW = dict(learning_rate=0.0625, momentum=0.5)  # the settings of the program that loads the file
CASES = {
    "same optimizer": dict(new=FILE),
    "other settings": {},
    "other rule": dict(new_rule=Adam, new={"learning_rate": 0.0625}),
    "a layer frozen since": dict(new=FILE, frozen=True),
    "stock's file": dict(new=FILE, file_of_stock=True),
}

RECORD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "loaders.json")
BY_ORDER = ("Checkpoint", "load_weights, TF format")


class World(object):
    """One API, with a model of two layers."""

    def __init__(self, target, named):
        name, self.module = named
        is_alone = self.module.__name__ == "keras"
        self.target, self.keras = target, self.module if is_alone else keras_suite.package_of(name, self.module)
        self.on_tensorflow = target != "keras3" or self.keras.backend.backend() == "tensorflow"
        self.tf = importlib.import_module("tensorflow") if self.on_tensorflow else None
        self.eager = self.tf is None or getattr(self.tf, "executing_eagerly", bool)()  # TF 1.4 has no such function

    def optimizer(self, rule, settings, is_stock):
        if not is_stock:
            return rule(**settings).bind(self.module)
        optimizers = getattr(self.module, "optimizers", self.module)
        names = {"learning_rate": "lr"} if self.target == "get_updates" else {}
        return getattr(optimizers, rule.__name__)(**{names.get(name, name): settings[name] for name in settings})

    def model(self, optimizer, frozen=False):
        layers = self.keras.layers
        model = self.keras.Sequential([layers.Dense(3, input_shape=(3,), name="first"), layers.Dense(2, name="second")])
        model.layers[0].trainable = not frozen
        model.compile(optimizer, self.keras.losses.MeanSquaredError() if self.target == "keras3" else "mse")
        return model

    def loaders(self):
        """Returns {name: (ending, save, load)}; `load` takes a path and a compiled model, which it may ignore."""
        keras, found = self.keras, {}

        def load_model(path, model):
            return keras.models.load_model(path)

        def load_weights(path, model):
            model.load_weights(path)
            return model

        def checkpoint(path, model):
            self.tf.train.Checkpoint(model=model, optimizer=model.optimizer).restore(path)
            return model

        found["load_model, .h5"] = ".h5", lambda model, path: model.save(path), load_model
        zipped = hasattr(getattr(keras, "saving", None), "deserialize_keras_object") or self.target == "keras3"
        if zipped and self.target != "optimizer_v2":  # which has no state of a legacy optimizer
            found["load_model, .keras"] = ".keras", lambda model, path: model.save(path), load_model
            found["load_weights, .weights.h5"] = (
                ".weights.h5", lambda model, path: model.save_weights(path), load_weights)
        if self.target in ("optimizer_v2", "update_step") and self.eager:
            found["load_model, SavedModel"] = "", lambda model, path: model.save(path, save_format="tf"), load_model
            found["load_weights, TF format"] = (
                ".weights", lambda model, path: model.save_weights(path, save_format="tf"), load_weights)
            found["Checkpoint"] = (".checkpoint", lambda model, path: self.tf.train.Checkpoint(
                model=model, optimizer=model.optimizer).write(path), checkpoint)
        return found

    def settle(self, model):
        """Makes the slots, which the first step would."""
        optimizer, weights = model.optimizer, model.trainable_weights
        if self.target in ("update_step", "keras3"):
            optimizer.build(weights)
        elif self.target == "get_updates":
            getattr(model, "_make_train_function", lambda: None)()
        elif hasattr(optimizer, "_create_all_weights"):
            optimizer._create_all_weights(weights)
        else:
            optimizer.iterations  # noqa: B018  # it is made when it is read
            optimizer._create_hypers()
            optimizer._create_slots(weights)

    def slots(self, model):
        """Returns the arrays of the optimizer's slots."""
        optimizer = model.optimizer
        if self.target in ("get_updates", "optimizer_v2"):
            arrays = optimizer.get_weights()
        else:
            variables = optimizer.variables
            arrays = [np.asarray(each) if self.tf is None else each.numpy()
                      for each in (variables() if callable(variables) else variables)]
        return [np.asarray(array) for array in arrays if np.ndim(array)]

    def number(self, value):
        if self.target == "keras3":
            return float(self.keras.ops.convert_to_numpy(value))
        return float(value.numpy() if self.eager else self.keras.backend.get_value(value))

    def run(self, loader, is_stock, folder, new_rule=SGD, new=NEW, frozen=False, file_of_stock=False):
        """Loads a file of a trained model. Returns {what: what became of it}."""
        ending, save, load = self.loaders()[loader]
        self.keras.backend.clear_session()
        old = self.model(self.optimizer(SGD, FILE, is_stock or file_of_stock))
        for _ in range(3):
            old.train_on_batch(INPUTS, OUTPUTS)
        if frozen and loader.startswith("load_model"):
            old.layers[0].trainable = False
        path = str(folder.join("saved" + ("s" if is_stock else "o"))) + ending
        save(old, path)
        saved = self.slots(old)
        model = None if loader.startswith("load_model") else self.model(
            self.optimizer(new_rule, new, is_stock), frozen)
        loaded = load(path, model)
        optimizer, found = loaded.optimizer, {}
        self.settle(loaded)
        arrays = self.slots(loaded)
        arrived = [any(np.array_equal(array, each) and np.any(array) for each in saved) for array in arrays]
        found["slots"] = "all" if arrived and all(arrived) else "some" if any(arrived) else "none"
        found["count"] = int(self.number(optimizer.iterations))
        rate = optimizer.lr if self.target == "get_updates" else optimizer.learning_rate
        found["rate"] = self.number(rate)
        if "momentum" in new and new_rule is not Adam:
            momentum = optimizer.momentum if hasattr(optimizer, "momentum") else optimizer._get_hyper("momentum")
            found["momentum"] = momentum if isinstance(momentum, float) else self.number(momentum)
        loaded.train_on_batch(INPUTS, OUTPUTS)
        return found


class TrainWorld(object):
    """The API of tf.train, in graphs, with two variables."""

    target = "tf_train"

    def __init__(self, named):
        self.module = named[1]
        self.tf = importlib.import_module("tensorflow")
        self.v1 = getattr(self.tf.compat, "v1", self.tf)

    def loaders(self):
        return ["Saver"]

    def optimizer(self, rule, settings, is_stock):
        name = {SGD: "Momentum", Adam: "Adam"}[rule]  # of the operations and of the slots on disk
        if is_stock:
            return getattr(self.module, name + "Optimizer")(**settings)
        return rule(**settings).bind(self.module, name=name)

    def run(self, loader, is_stock, folder, new_rule=SGD, new=NEW, frozen=False, file_of_stock=False):
        path = str(folder.join("saved" + ("s" if is_stock else "o")))
        old = self.optimizer(SGD, FILE, is_stock or file_of_stock)
        saved, _ = self._train(old, lambda saver, session: None, 3, lambda saver, session: saver.save(session, path))
        optimizer = self.optimizer(new_rule, new, is_stock)
        arrays, count = self._train(optimizer, lambda saver, session: saver.restore(session, path), 0,
                                    lambda saver, session: None, frozen)
        arrived = [any(np.array_equal(array, each) and np.any(array) for each in saved) for array in arrays]
        return {"slots": "all" if all(arrived) else "some" if any(arrived) else "none", "count": count}

    def _train(self, optimizer, before, steps, after, frozen=False):
        """Returns the slots' arrays and the count of a graph, with things to do before and after some steps."""
        v1 = self.v1
        with v1.Graph().as_default(), v1.Session() as session:
            variables = [v1.get_variable(name, initializer=np.ones(3, "float32")) for name in ("first", "second")]
            step = v1.train.get_or_create_global_step()
            loss = sum(v1.reduce_sum((each - 2.0) ** 2) for each in variables)
            trained = variables[frozen:]
            train_op = optimizer.minimize(loss, step, trained)
            saver = v1.train.Saver()
            session.run(v1.global_variables_initializer())
            before(saver, session)
            for _ in range(steps):
                session.run(train_op)
            after(saver, session)
            slots = [optimizer.get_slot(each, name) for each in trained for name in optimizer.get_slot_names()]
            return session.run(slots), int(session.run(step))


def outcome(world, loader, case, is_stock, folder):
    """Returns {what: what became of it} after a file of a trained model was loaded in one case."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = world.run(loader, is_stock, folder, **CASES[case])
        except Exception as error:
            result = {"raises": type(error).__name__}
    told = [each for each in caught if issubclass(each.category, everstep.StateWarning)]
    if told:
        result["warns"] = len(told)
        assert "read_checkpoint" in str(told[0].message)
    return result


def possible(world):
    """Yields the (loader, case) that there are: a whole model brings its own optimizer."""
    for loader in sorted(world.loaders()):
        for case in sorted(CASES):
            if not loader.startswith("load_model") or case in ("same optimizer", "a layer frozen since"):
                yield loader, case


def both(target, loader, case, folder):
    """Returns the outcomes of stock and of ours."""
    return [outcome(WORLDS[target], loader, case, is_stock, folder) for is_stock in (True, False)]


def version(world):
    """Returns the version of what a world's Keras comes with."""
    package = sys.modules.get("keras", world.tf) if world.target in ("get_updates", "keras3") else world.tf
    number = ".".join(package.__version__.split(".")[:2])
    return "{} {}".format("TensorFlow" if package is world.tf else "Keras", number)


def recorded():
    with io.open(RECORD, encoding="utf-8") as file:
        return json.load(file)


WORLDS = {target: World(target, named) for target, named in APIS}
if HERE.get("tf_train"):
    WORLDS["tf_train"] = TrainWorld(HERE["tf_train"][0])
PARAMETERS = [(target, loader, case) for target in sorted(WORLDS) for loader, case in possible(WORLDS[target])]


@pytest.mark.shared
@pytest.mark.parametrize("target, loader, case", PARAMETERS, ids=["-".join(each) for each in PARAMETERS])
@pytest.mark.filterwarnings("ignore")
def test_never_worse_than_stock_and_said(target, loader, case, tmpdir):
    stock, ours = both(target, loader, case, tmpdir)
    record = recorded()[target]
    if version(WORLDS[target]) == record["version"]:
        assert record["outcomes"]["{}: {}".format(loader, case)] == [stock, ours]
    if target == "tf_train":  # a Saver finds variables by their names, and ours are not those of stock
        assert ours == ({"raises": "NotFoundError"} if case == "stock's file" else stock)
        return
    if "raises" in stock:
        return
    assert "raises" not in ours
    if target == "update_step" and loader in BY_ORDER:  # TensorFlow restores by order what is of other variables, too
        assert ours == stock
    elif ours["slots"] == "all":
        assert ours["count"] == 3
    else:
        assert ours["warns"] == 1
        assert stock["slots"] != "all"
    assert {name: ours[name] for name in ("rate", "momentum") if name in ours} == {
        name: stock[name] for name in ("rate", "momentum") if name in stock}


WAITING = [(target, loader) for target, loader, case in PARAMETERS if case == "other settings" and target != "tf_train"]


def set_after_load(world, loader, is_stock, folder):
    """Sets the hypers of a new optimizer right after a load, before its first step. Returns what became of them."""
    ending, save, load = world.loaders()[loader]
    world.keras.backend.clear_session()
    old = world.model(world.optimizer(SGD, FILE, is_stock))
    for _ in range(3):
        old.train_on_batch(INPUTS, OUTPUTS)
    slots, path, found = world.slots(old), str(folder.join("1")) + ending, []
    save(old, path)
    for _ in range(1 if loader in BY_ORDER else 2):  # the second time from a file that was written before the step
        model = load(path, world.model(world.optimizer(SGD, NEW, is_stock)))
        optimizer = model.optimizer
        optimizer.learning_rate = 0.25
        if not is_stock:
            assert world.number(optimizer.iterations) == 3
            optimizer.momentum = 0.375
            assert loader in BY_ORDER or everstep.capture(optimizer, model.trainable_weights).updates == 3
        if loader not in BY_ORDER:
            path = str(folder.join("2")) + ending
            late = load(str(folder.join("1")) + ending, world.model(world.optimizer(SGD, NEW, is_stock)))
            save(late, path)
        world.settle(model)
        found.append(world.number(optimizer.learning_rate))
        if not is_stock:
            assert all(np.array_equal(*pair) for pair in zip(world.slots(model), slots))
            # TensorFlow restores the hypers of an OptimizerV2 when they are made, of stock's too.
            assert world.number(optimizer.momentum) == (0.375 if world.target != "optimizer_v2" else 0.75)
    return found


@pytest.mark.parametrize("target, loader", WAITING, ids=["-".join(each) for each in WAITING])
@pytest.mark.filterwarnings("ignore:Skipping variable loading:UserWarning")  # stock's
def test_what_is_set_after_a_load_stays(target, loader, tmpdir):
    """Before the first step too, when slots may have yet to come: the count is seen, and files have all of it."""
    ours, stock = [set_after_load(WORLDS[target], loader, is_stock, tmpdir) for is_stock in (False, True)]
    assert ours == stock
    if target != "optimizer_v2":
        assert set(ours) == {0.25}
