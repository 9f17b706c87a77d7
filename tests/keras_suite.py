"""The tests that every Keras target must pass, and `Api`: a Keras under test with a small model.

A test module creates an `Api` for its Keras and inherits the tests:

    class TestShared(keras_suite.SharedTests, keras_suite.Keras2Tests):
        api = API
"""
from __future__ import absolute_import, division, print_function

import copy
import importlib
import json
import os
import pickle
import sys
import warnings

import numpy as np
import pytest

import everstep
import harness
from everstep import errors
from everstep.optimizers import LAMB, SGD, AdagradDecay, Adam, AdamW, QHAdam
from everstep.optimizers.contract import flat, with_hypers
from harness import detect


def available_modules(*names):
    """Returns {target: [(name, module)]} of this environment, each native base class once; `names` selects modules."""
    modules, bases = {}, set()
    for name, module in detect.known_modules():
        try:
            api = detect.find(module) if module is not None and name in (names or (name,)) else None
        except errors.TargetError:
            continue
        if api and api.base not in bases:
            bases.add(api.base)
            modules.setdefault(api.target.name, []).append((name, module))
    return modules


def package_of(name, module):
    """Returns the package with the layers of a module, which `name` names as detect.known_modules does."""
    if detect.find(module).target.name == "keras3":
        return module
    return importlib.import_module("tf_keras") if name.startswith("tf_keras") else sys.modules["tensorflow"].keras


def difference(some, others):
    assert len(some) == len(others)
    return max(float(abs(a - b).max()) for a, b in zip(some, others))


def same(some, others):
    return len(some) == len(others) and all(np.array_equal(a, b) for a, b in zip(some, others))


class Api(object):
    """A Keras under test. Subclasses convert values and build the model.

    Args:
        module: the module that `bind` gets.
        keras: the package that has its layers.
    """

    BOUND = 2e-6  # the largest difference from stock that is allowed
    ADAM_RATE = 0.01
    compile_options = {}  # extra arguments of `compile` in comparisons with stock
    native = {}  # keywords of `bind` that the config keeps, beside those that every Keras has
    formats = {}  # {name: (ending of the file, method of the model that saves it, its keywords)}
    legacy = {}  # keywords of optimizers.serialize and deserialize
    dtypes = ("float16", "float64")
    initial_epoch = {}  # arguments that `fit` needs after BackupAndRestore

    def __init__(self, module, keras):
        api = detect.find(module)
        self.module, self.keras, self.target, self.base = module, keras, api.target.name, api.base

    def stock(self, name, *arguments, **more):
        """Creates a native optimizer. The keras packages 2.6 to 2.8 do not export its class."""
        optimizers = getattr(self.module, "optimizers", self.module)
        if self.target == "update_step" and not hasattr(optimizers, name):
            optimizers = optimizers.experimental  # AdamW in TF 2.11
        return (getattr(optimizers, name, None) or type(optimizers.get(name.lower())))(*arguments, **more)

    def ours_and_stock(self, rule, **native):
        """Returns our optimizer and stock's, for one of RULES."""
        definition, arguments = RULES[rule][0], dict({"learning_rate": self.ADAM_RATE}, **RULES[rule][1])
        leaves_rows = self.target == "optimizer_v2" and "momentum" in arguments  # as stock does
        ours = definition(sparse="rows" if leaves_rows else "exact", **arguments)
        return ours.bind(self.module, **native), self.stock(definition.__name__, **dict(arguments, **native))

    def schedule(self, rate=0.8, decay=1.0, steps=1):
        return self.keras.optimizers.schedules.InverseTimeDecay(rate, decay_steps=steps, decay_rate=decay)

    def number(self, value):
        return float(np.asarray(self.array(value)).item())

    def step(self, optimizer, grad, weight):
        self.stepper(optimizer, [(self.tensor(grad), weight)])()

    def compiled(self, optimizer, dense=False, traced=True, **more):
        """Returns a compiled model, the same each time. `traced=False` is faster where graphs do not matter."""
        model = set_start_weights(self.build(dense))
        self.compile(model, optimizer, traced, **more)
        return model

    def fit(self, model, batch=8, **more):
        return model.fit(self.inputs(model), self.OUTPUTS, batch_size=batch, shuffle=False, verbose=0, **more)

    def train_on_batches(self, model, count=10):
        for _ in range(count):
            model.train_on_batch(self.inputs(model)[:8], self.OUTPUTS[:8])

    def check_windows(self, optimizer):
        """Asserts that `fit` updates with this optimizer at each fourth batch, as with the joined batches."""
        model, whole = self.compiled(optimizer), self.compiled(Adam(0.05).bind(self.module))
        seen = [model.get_weights()]
        self.fit(model, 4, callbacks=[self.at_batch(lambda batch: seen.append(model.get_weights()))])
        self.fit(whole, 16)
        assert [place for place in range(16) if not same(seen[place], seen[place + 1])] == [3, 7, 11, 15]
        assert difference(whole.get_weights(), seen[0]) > 0.05
        assert difference(whole.get_weights(), seen[-1]) <= self.BOUND

    def at_batch(self, act):
        """Returns a callback that calls a function at the end of each batch, with JAX's state in the model."""
        callback = self.keras.callbacks.Callback()

        def end(batch, logs=None):
            getattr(callback.model, "jax_state_sync", lambda: None)()
            act(batch)

        callback.on_train_batch_end = end
        return callback

    def scope(self):
        return (self.keras.saving if self.target == "keras3" else self.keras.utils).custom_object_scope(
            everstep.custom_objects(self.module))

    def saved(self, kind):
        """Returns the optimizer of one of SAVED."""
        return SAVED[kind](self).bind(self.module, **(self.native if kind == "native keywords" else {}))

    def names_of_formats(self):
        return sorted(self.formats, reverse=True)  # h5 last: Keras 3 then forgets which optimizer the model has

    def save(self, model, name, folder):
        """Saves a model in a format. Returns the path."""
        ending, method, keywords = self.formats[name]
        path = str(folder.join("saved")) + ending  # not "model": Keras 3.4 unpacks a .keras file to model.weights.h5
        getattr(model, method)(path, **keywords)
        return path

    def round_trip(self, optimizer):
        """Serializes an optimizer to JSON and back."""
        data = json.loads(json.dumps(self.keras.optimizers.serialize(optimizer, **self.legacy)))
        objects = everstep.custom_objects(self.module)
        return self.keras.optimizers.deserialize(data, custom_objects=objects, **self.legacy)


def set_start_weights(model):
    """Sets fixed start weights and returns the model."""
    random = np.random.RandomState(1)
    model.set_weights([random.randn(*weight.shape).astype("float32") * 0.5 for weight in model.get_weights()])
    return model


class Keras2(Api):
    """tf.keras and tf_keras, with an OptimizerV2 or a new-style optimizer.

    Args:
        name: the module's name in detect.known_modules.
    """

    RANDOM = np.random.RandomState(0)
    ROWS, SIZE = 6, 4
    INPUTS = RANDOM.randint(0, ROWS, (64, 3))  # rows repeat within a sample and from batch to batch
    OUTPUTS = RANDOM.randn(64, 2).astype("float32")

    def __init__(self, name, module):
        self.tf = importlib.import_module("tensorflow")
        super(Keras2, self).__init__(module, package_of(name, module))
        self.K, self.eager = self.keras.backend, self.tf.executing_eagerly()

    def build(self, dense=False, **output):
        layers = self.keras.layers
        first = [] if dense else [layers.Embedding(self.ROWS, self.SIZE, input_length=3)]
        return self.keras.Sequential(first + [layers.Flatten(input_shape=(3,)), layers.Dense(2, **output)])

    def compile(self, model, optimizer, traced=True):
        model.compile(optimizer, "mse", **({"run_eagerly": True} if self.eager and not traced else {}))

    def load(self, path):
        with self.scope():
            model = self.keras.models.load_model(path)
        if os.path.isdir(path):
            model.load_weights(os.path.join(path, "variables", "variables"))
            # TensorFlow's own loader does not know our class, and creates each slot with its variable's shape.
            served = self.tf.saved_model.load(path)  # its variables live as long as it does
            outputs = served.signatures["serving_default"](self.tf.constant(self.INPUTS, "float32"))
            np.testing.assert_allclose(list(outputs.values())[0], model.predict(self.inputs(model)), rtol=1e-5)
        return model

    def inputs(self, model):
        # A model that TF 2.0 loads from a SavedModel takes no other dtype than that of its placeholder.
        return self.INPUTS.astype("float32") if self.tf.__version__.startswith("2.0.") else self.INPUTS

    def variable(self, value, dtype="float32", **more):
        return self.K.variable(self._array(value, dtype), dtype=dtype, **more)

    def tensor(self, value, dtype="float32"):
        return self.tf.constant(self._array(value, dtype))

    def _array(self, value, dtype):
        return np.asarray(value, self.tf.as_dtype(dtype).as_numpy_dtype)  # JAX brings another bfloat16

    def slices(self, values, rows, shape):
        return self.tf.IndexedSlices(self.tensor(values), self.tf.constant(rows), self.tf.constant(shape))

    def array(self, value):
        return self.K.get_value(value)

    def set_value(self, hyper, value):
        self.K.set_value(hyper, value)

    def optimizer_values(self, optimizer):
        """Returns the values of the optimizer's variables."""
        if self.target == "optimizer_v2":
            return optimizer.get_weights()
        return [each.numpy() for each in optimizer._variables]  # `variables` is a method in some versions

    def stepper(self, optimizer, pairs):
        """Returns a function that applies these pairs once per call."""

        def step():
            return optimizer.apply_gradients(pairs)

        if self.eager:
            return self.tf.function(step) if self.target == "update_step" else step
        train_op = step()
        return lambda: self.K.get_session().run(train_op)


RULES = {"amsgrad": (Adam, {"amsgrad": True}),
         "nesterov": (SGD, {"learning_rate": 0.1, "momentum": 0.9, "nesterov": True}),
         "plain": (SGD, {"learning_rate": 0.1})}
RATES = {  # all of them 0.8 / (1 + t), where t counts updates from 0
    "everstep": lambda api: everstep.InverseTimeDecay(0.8, rate=1.0),
    "native": lambda api: api.schedule(),
    "piecewise": lambda api: api.keras.optimizers.schedules.PiecewiseConstantDecay(
        [0.0, 1.0, 2.0] if api.target == "optimizer_v2" else [0, 1, 2], [0.8, 0.4, 0.8 / 3, 0.2]
    ),
}
DEFINITIONS = {"plain": lambda api: Adam(0.001, beta_1=0.8), "wrapper": lambda api: everstep.accumulate(SGD(0.1), 2),
               "everstep schedule": lambda api: everstep.accumulate(Adam(everstep.InverseTimeDecay(0.1, rate=0.5)), 3),
               "native schedule": lambda api: everstep.accumulate(Adam(api.schedule(0.5, 0.25, 2)), 3),
               "schedule as another hyper": lambda api: SGD(0.1, momentum=api.schedule(0.5, 0.25, 2))}
SAVED = {  # slots of other shapes and dtypes, counters, touched rows of an open window, schedules, keywords of Keras
    "slots": lambda api: everstep.accumulate(AdagradDecay(0.1, decay_steps=1, sparse="rows", dense_ok=True), 4),
    "everstep schedule": lambda api: everstep.accumulate(Adam(everstep.InverseTimeDecay(0.1, rate=0.3)), 4),
    "native schedule": lambda api: Adam(api.schedule(0.1, 0.3), beta_1=api.schedule(0.9, 0.1)),
    "native keywords": lambda api: SGD(0.1, 0.9),
}
HYPER_FORMS = {"tensor": lambda api: api.tensor(0.5), "variable": lambda api: api.variable(0.5),
               "callable": lambda api: lambda: 0.5, "callable of a tensor": lambda api: lambda: api.tensor(0.5),
               "everstep schedule": lambda api: everstep.InverseTimeDecay(0.5, rate=0.0),
               "native schedule": lambda api: api.schedule(0.5, 0.0)}
BAD_NUMBERS = [float("nan"), float("inf"), "0.1", None, [0.1], True, lambda: 0.1, everstep.InverseTimeDecay(0.1)]


class Follower(everstep.Definition):
    """Has a scalar, and a slot of each kind."""

    learning_rate = everstep.hyper(0.5)
    norms = everstep.scalar(1.0)
    slow = everstep.slot(init=everstep.VARIABLE)
    seen = everstep.slot(shape="row", dtype="float32", init=2.0)
    count = everstep.slot(shape=(), dtype="int64")
    locality = "variable"

    def advance(self, ops, scalars, hyper, t):
        return {"norms": scalars.norms * 2}

    def update(self, ops, grad, var, slots, hyper, t):
        new = {"slow": slots.slow, "seen": slots.seen + hyper.norms, "count": slots.count + 1}
        return hyper.learning_rate * grad, new


class Interruption(Exception):
    """Raised where a real process would end."""


class SharedTests(object):
    api = None

    @pytest.mark.parametrize("rule", sorted(RULES))
    def test_fit_and_train_on_batch_as_stock(self, rule):
        """The model has an embedding and a dense layer."""
        api, weights = self.api, []
        for optimizer in api.ours_and_stock(rule):
            model = api.compiled(optimizer, **api.compile_options)
            start = model.get_weights()
            api.fit(model)
            api.train_on_batches(model)
            weights.append(model.get_weights())
            assert isinstance(optimizer, api.base) and api.number(optimizer.iterations) == 18
        assert difference(weights[0], start) > 0.05
        assert difference(*weights) <= api.BOUND

    # Hypers.

    def test_hypers_are_live(self):
        api = self.api
        weight, optimizer = api.variable([0.0]), Adam(0.5).bind(api.module)
        assert api.number(optimizer.learning_rate) == api.number(optimizer.lr) == 0.5
        optimizer.learning_rate = 1.0  # before the first step
        assert api.number(optimizer.learning_rate) == api.number(optimizer.lr) == 1.0
        step = api.stepper(optimizer, [(api.tensor([1.0]), weight)])

        def change():
            before = api.number(weight)
            step()
            return before - api.number(weight)

        # With equal gradients Adam's step is the learning rate, except for epsilon.
        assert change() == pytest.approx(1.0, rel=1e-4)
        optimizer.lr = 0.25
        assert change() == pytest.approx(0.25, rel=1e-4)
        api.set_value(optimizer.lr, 0.125)
        assert change() == pytest.approx(0.125, rel=1e-4)
        optimizer.learning_rate = np.float32(0.5)
        assert change() == pytest.approx(0.5, rel=1e-4)
        optimizer.epsilon = 1.0  # sqrt(v_hat) + epsilon / sqrt(1 - 0.999^5) in the denominator
        assert change() == pytest.approx(0.5 / (1 + 1 / np.sqrt(1 - 0.999**5)), rel=1e-4)
        optimizer.beta_1 = 0.0
        assert api.number(optimizer.beta_1) == 0.0
        assert optimizer.get_config()["beta_1"] == 0.0
        if api.target == "update_step":  # the first step creates its variables outside of the function
            assert step.experimental_get_tracing_count() == 1

    @pytest.mark.parametrize("bad", BAD_NUMBERS)
    def test_wrong_values_change_nothing(self, bad):
        optimizer = SGD(0.5).bind(self.api.module)
        for name in ("learning_rate", "lr", "momentum"):  # the first read creates the rate's variable
            with pytest.raises((errors.HyperTypeError, errors.HyperValueError)):
                setattr(optimizer, name, bad)
            assert self.api.number(optimizer.lr) == 0.5
        assert self.api.number(optimizer.momentum) == 0.0
        assert optimizer.get_config()["learning_rate"] == 0.5

    @pytest.mark.shared
    @pytest.mark.parametrize("rate", sorted(RATES))
    @pytest.mark.parametrize("accumulated", [1, 2])
    def test_schedules_see_the_number_of_updates(self, rate, accumulated):
        """The count starts at 0, as in stock."""
        api, definition = self.api, SGD(RATES[rate](self.api))
        definition = definition if accumulated == 1 else everstep.accumulate(definition, accumulated)
        optimizer, weight = definition.bind(api.module), api.variable([0.0])
        step, values = api.stepper(optimizer, [(api.tensor([1.0]), weight)]), [0.0]
        for _ in range(3):
            for _ in range(accumulated):
                step()
            values.append(api.number(weight))
        np.testing.assert_allclose(-np.diff(values), [0.8, 0.4, 0.8 / 3], rtol=1e-6)
        if api.target != "optimizer_v2":  # as in stock: Keras 3 shows the next step's rate, others the last one's
            assert api.number(optimizer.learning_rate) == pytest.approx(0.2 if api.target == "keras3" else 0.8 / 3)

    def test_a_schedule_of_another_api(self):
        class Schedule(object):
            def __call__(self, step):
                return 0.1

            def get_config(self):
                return {}

        with pytest.raises(errors.HyperTypeError, match="another API"):
            SGD(Schedule()).bind(self.api.module)

    def test_momentum_given_as_0_cannot_be_set(self):
        optimizer = SGD(0.1).bind(self.api.module)
        with pytest.raises(errors.HyperValueError, match="velocity"):
            optimizer.momentum = 0.9
        assert self.api.number(optimizer.momentum) == 0.0
        optimizer = SGD(0.1, momentum=0.9).bind(self.api.module)
        optimizer.momentum = 0.0
        assert self.api.number(optimizer.momentum) == 0.0

    @pytest.mark.shared
    @pytest.mark.parametrize("given", sorted(HYPER_FORMS))
    @pytest.mark.parametrize("name", ["learning_rate", "momentum"])
    def test_hypers_that_are_no_numbers(self, name, given):
        """A variable is set, and so is an eager tensor, which is a number, where stock takes it as the rate."""
        api, hyper, weight = self.api, HYPER_FORMS[given](self.api), self.api.variable([0.0])
        optimizer = SGD(**dict({"learning_rate": 0.5, "momentum": 0.5}, **{name: hyper})).bind(api.module)
        step = api.stepper(optimizer, [(api.tensor([1.0]), weight)])
        step()
        step()
        assert api.array(weight).tolist() == [-1.25]  # 0.5, then 0.25 + 0.5
        is_number = given == "tensor" and hasattr(hyper, "numpy") and api.target in ("optimizer_v2", "update_step")
        can_be_set = given == "variable" or is_number and name == "learning_rate"
        for alias in (name,) + (("lr",) if name == "learning_rate" else ()):
            if can_be_set:
                setattr(optimizer, alias, 0.25)
                assert api.number(hyper if given == "variable" else getattr(optimizer, alias)) == 0.25
                continue
            with pytest.raises(errors.HyperValueError, match="cannot be set"):
                setattr(optimizer, alias, 0.1)
        assert optimizer.learning_rate is not None and optimizer.momentum is not None
        if given == "variable":
            api.set_value(hyper, 0.0)
            step()
            assert api.array(weight).tolist() == [-1.625 if name == "learning_rate" else -1.75]
        if "schedule" not in given:
            expected = 0.0 if given == "variable" else 0.25 if can_be_set else 0.5
            assert optimizer.get_config()[name] == expected
            assert name == "momentum" or api.number(optimizer.learning_rate) == expected
        elif name == "momentum" or api.target == "optimizer_v2":
            assert getattr(optimizer, name) == hyper
        else:
            assert api.number(optimizer.learning_rate) == 0.5  # as in stock

    def test_a_rate_that_becomes_a_native_schedule(self):
        """It does what stock does, in `fit`, in the config and in the list of variables."""
        api, weights = self.api, []
        ours, stock = api.ours_and_stock("nesterov")
        for optimizer in (stock, ours):
            model = api.compiled(optimizer, dense=True)
            for rate in (None, api.schedule(0.1, 0.5, 4)):
                if rate is not None:
                    optimizer.learning_rate = rate
                    api.compile(model, optimizer)
                api.fit(model, batch=16)
            weights.append(model.get_weights())
        assert difference(*weights) <= api.BOUND
        copy = api.round_trip(ours)
        assert ours.definition.learning_rate is rate or ours.definition.learning_rate.get_config() == rate.get_config()
        assert copy.get_config()["learning_rate"] == ours.get_config()["learning_rate"]
        api.fit(api.compiled(copy, dense=True), batch=16)
        shapes = [[value.shape for value in api.optimizer_values(each)] for each in (ours, copy)]
        assert shapes[0] == shapes[1]
        ours.learning_rate = api.schedule(0.2, 0.5, 4)
        if api.target == "optimizer_v2":  # stock takes a number again; the others refuse it, as ours do
            ours.learning_rate = 0.25
            assert api.number(ours.learning_rate) == ours.get_config()["learning_rate"] == 0.25
            with pytest.raises(errors.HyperValueError):
                ours.lr = float("nan")
        else:
            with pytest.raises(errors.HyperValueError, match="a native schedule"):
                ours.learning_rate = 0.25

    def test_a_hyper_that_cannot_become_a_schedule(self):
        api = self.api
        for definition in (SGD(lambda: 0.1), SGD(everstep.InverseTimeDecay(0.1))):
            with pytest.raises(errors.HyperValueError, match="cannot be set"):
                definition.bind(api.module).learning_rate = api.schedule()
        with pytest.raises(errors.HyperValueError):
            SGD(0.1).bind(api.module).momentum = api.schedule()  # no slot, or no schedules but for the rate

    def test_errors_are_value_errors(self):
        """They are of the class that stock raises, since people catch that."""
        if self.api.target == "keras3":
            with pytest.raises(ValueError, match="clipnorm"):
                SGD().bind(self.api.module, clipnorm=1.0, global_clipnorm=1.0)
        if self.api.target != "keras3":  # that keeps the weights for `build`
            with pytest.raises(ValueError, match="build|first step"):
                Adam().bind(self.api.module).set_weights([np.ones(3)])

    # Config.

    def test_config_is_exact(self):
        definition, native = Adam(0.001, beta_1=0.8, amsgrad=True), dict(self.api.native, clipnorm=1.5, name="mine")
        optimizer, weight = definition.bind(self.api.module, **native), self.api.variable([1.0])
        expected = dict(native, learning_rate=0.001, beta_1=0.8, beta_2=0.999)
        for _ in range(2):  # before and after the first step, which creates the variables
            config = optimizer.get_config()
            assert {name: config[name] for name in expected} == expected
            copy = type(optimizer).from_config(json.loads(json.dumps(config)))
            assert copy.definition == definition and copy.get_config() == config
            assert type(copy) is Adam.native_class(self.api.module)
            self.api.step(optimizer, [1.0], weight)
        optimizer.lr = 0.002
        assert optimizer.get_config()["learning_rate"] == 0.002
        assert type(optimizer).from_config(optimizer.get_config()).definition.learning_rate == 0.002

    def test_a_config_loads_under_its_name(self):
        """larq and ampligraph write such a config."""
        # From Keras 2.11 on one table has the classes of two APIs, so that stock's names stay stock's.
        in_one_table = self.api.target in ("update_step", "keras3") or "update_step" in available_modules()
        for definition in (QHAdam(0.25), Adam(0.25)):
            config = definition.bind(self.api.module).get_config()
            if config["name"] != "Adam" or not in_one_table:
                loaded = self.api.keras.optimizers.deserialize({"class_name": config["name"], "config": config})
                assert loaded.definition == definition and isinstance(loaded, self.api.base)

    def test_configs_that_are_not_ours(self):
        stock = Adam.native_class(self.api.module).from_config({"name": "Adam", "learning_rate": 0.1})
        assert type(stock).__name__ == "Adam" and not hasattr(stock, "definition")
        with pytest.raises(errors.ConfigError, match="everstep"):
            QHAdam.native_class(self.api.module).from_config({"name": "QHAdam", "learning_rate": 0.1})
        with pytest.raises(errors.ConfigError, match="learning_rate"):
            SGD(lambda: "fast").bind(self.api.module).get_config()

    def test_native_class_takes_the_definitions_arguments(self):
        optimizer = Adam.native_class(self.api.module)(0.5, amsgrad=True, name="mine")
        assert optimizer.definition == Adam(0.5, amsgrad=True)
        assert isinstance(optimizer, self.api.base) and type(optimizer).__name__ == "Adam"
        for native, words in [({"decay": 0.1}, "decay"), ({"lr": 1}, "learning_rate")]:
            with pytest.raises(errors.DefinitionError, match=words):
                Adam().bind(self.api.module, **native)

    def test_custom_objects(self):
        objects = everstep.custom_objects(self.api.module)
        assert objects["Adam"] is objects["adam"] is Adam.native_class(self.api.module)
        assert objects["Accumulate"] is type(everstep.accumulate(SGD(), 2).bind(self.api.module))

    @pytest.mark.shared
    @pytest.mark.parametrize("accumulated", [False, True])
    def test_backup_and_restore(self, tmpdir, accumulated):
        api, callbacks = self.api, self.api.keras.callbacks
        if not hasattr(callbacks, "BackupAndRestore"):
            pytest.skip("this Keras has no BackupAndRestore")

        def run(*more, **how):
            definition = Adam(everstep.InverseTimeDecay(0.05, rate=0.5))
            definition = everstep.accumulate(definition, 3) if accumulated else definition
            model = api.compiled(definition.bind(api.module), dense=True, traced=accumulated)
            models.append(model)
            backup = [callbacks.BackupAndRestore(str(tmpdir.join("backup")))] if len(models) > 1 else []
            api.fit(model, 16, epochs=4, callbacks=backup + list(more), **how)

        def interrupt(epoch, logs=None):
            if epoch == 2:
                raise Interruption()

        models = []
        run()
        with pytest.raises(Interruption):
            run(callbacks.LambdaCallback(on_epoch_begin=interrupt))
        run(**api.initial_epoch)
        whole, half, resumed = models
        assert same(resumed.get_weights(), whole.get_weights())
        assert same(api.optimizer_values(resumed.optimizer), api.optimizer_values(whole.optimizer))
        assert not same(half.get_weights(), whole.get_weights())

    # Config and files.

    @pytest.mark.parametrize("kind", sorted(DEFINITIONS))
    def test_serialize_and_deserialize(self, kind):
        api, optimizers = self.api, self.api.keras.optimizers
        optimizer = DEFINITIONS[kind](api).bind(api.module)
        data = json.dumps(optimizers.serialize(optimizer, **api.legacy))
        copies = [optimizers.deserialize(json.loads(data), **api.legacy), api.round_trip(optimizer)]
        with api.scope():
            copies.append(optimizers.get(json.loads(data)) if not api.legacy else copies[0])
        for each in copies:
            assert type(each) is type(optimizer) and each.get_config() == optimizer.get_config()
        with harness.unregistered(api.module):
            try:
                unknown = optimizers.deserialize(json.loads(data), **api.legacy)
            except (TypeError, ValueError):
                unknown = None
        assert unknown is None or "Accumulate" in unknown  # Keras 2.12 returns the name of an unknown class

    @pytest.mark.shared
    @pytest.mark.parametrize("kind", harness.share(sorted(SAVED), 2))
    def test_files_resume_bit_for_bit(self, kind, tmpdir):
        """In each format, saving and loading after 5 of 10 steps changes nothing."""
        api = self.api
        model = api.compiled(api.saved(kind), traced=False)
        api.train_on_batches(model, 5)
        paths = {name: api.save(model, name, tmpdir) for name in api.names_of_formats()
                 if (api.target, name) != ("optimizer_v2", "keras")}  # which has no state of a legacy optimizer
        api.train_on_batches(model, 5)
        config, expected = model.optimizer.get_config(), model.get_weights() + api.optimizer_values(model.optimizer)
        # Weights go into a model whose slots do not exist yet, and into one that has trained.
        for name, steps in [(name, 0) for name in sorted(paths)] + [(name, 1) for name in paths if "weights" in name]:
            harness.clear_session(api.keras)
            if "weights" in name:
                loaded = api.compiled(api.saved(kind), traced=False)
                api.train_on_batches(loaded, steps)
                loaded.load_weights(paths[name])
            else:
                loaded = api.load(paths[name])
                api.compile(loaded, loaded.optimizer, traced=False)
            assert loaded.optimizer.get_config() == config, name
            api.train_on_batches(loaded, 5)
            assert same(loaded.get_weights() + api.optimizer_values(loaded.optimizer), expected), (name, steps)

    @pytest.mark.shared
    def test_files_are_not_silently_loaded_as_stock(self, tmpdir):
        """Stock loaders look up lower-case names and would find their own Adam first. Our config makes them raise."""
        api, words = self.api, None if self.api.target == "keras3" else "everstep"
        model = api.compiled(Adam(0.01).bind(api.module), traced=False)
        api.train_on_batches(model, 1)
        for name in api.names_of_formats():
            if "weights" in name:
                continue
            path = api.save(model, name, tmpdir)
            with harness.unregistered(api.module), pytest.raises((TypeError, ValueError), match=words):
                api.keras.models.load_model(path)
            assert api.load(path).optimizer.definition == Adam(0.01)

    @pytest.mark.parametrize("given", [False, True], ids=["plain", "custom objects"])
    @pytest.mark.parametrize("is_stock", [True, False], ids=["stock", "ours"])
    def test_a_subclass_made_at_run_time(self, is_stock, given, tmpdir):
        """Horovod makes such classes. The file loads as the class of that name, or as what `custom_objects` has."""
        api = self.api
        optimizer = api.stock("Adam", 0.01) if is_stock else Adam(0.01).bind(api.module)
        made = type("Adam", (type(optimizer),), {})
        model = api.compiled(made.from_config(optimizer.get_config()), traced=False)
        api.train_on_batches(model, 1)
        for name in api.names_of_formats():
            if "weights" in name or (name, is_stock) == ("keras", True) or (name, given) == ("saved model", True):
                continue  # stock could not locate its class; TF 2.0 to 2.3 pass no custom objects to a SavedModel's
            if given and name == "h5" and getattr(api.keras, "__version__", "").startswith("3.0."):
                continue  # nor does Keras 3.0 to the optimizer of an HDF5 file
            path = api.save(model, name, tmpdir)
            objects = {"adam" if is_stock else "Adam": made} if given else None  # loaders look up stock names so
            loaded = api.keras.models.load_model(path, custom_objects=objects)
            assert type(loaded.optimizer) is (made if given else type(optimizer)), name
            assert is_stock or loaded.optimizer.definition == Adam(0.01)

    # Slots and windows.

    def test_slots_of_other_dtypes_and_shapes(self):
        api = self.api
        for dtype in api.dtypes:
            weight, optimizer = api.variable(np.full((3, 2), 1.5), dtype), Follower().bind(api.module)
            with pytest.raises(errors.SlotError, match="slow"):
                optimizer.get_slot(weight, "slow")
            step = api.stepper(optimizer, [(api.tensor(np.ones((3, 2)), dtype), weight)])
            step()
            step()
            assert api.array(weight).tolist() == [[0.5, 0.5]] * 3
            slow, seen, count = [api.array(optimizer.get_slot(weight, name)) for name in ("slow", "seen", "count")]
            assert slow.tolist() == [[1.5, 1.5]] * 3 and slow.dtype == ("float64" if dtype == "float64" else "float32")
            assert seen.tolist() == [[8.0]] * 3 and seen.dtype == "float32"  # 2 + 2 + 4
            assert count == 2 and count.dtype.kind == "i"
            with pytest.raises(errors.SlotError, match="momentum"):
                optimizer.get_slot(weight, "momentum")

    @pytest.mark.shared
    def test_accumulation_in_fit(self):
        optimizer = everstep.accumulate(Adam(0.05), 4).bind(self.api.module)
        self.api.check_windows(optimizer)
        assert self.api.number(optimizer.iterations) == 4

    # Arguments of a step.

    @pytest.mark.parametrize("bad", [-1.0, "1", True, float("nan")])
    @pytest.mark.parametrize("name", ["clipnorm", "weight_decay"])
    def test_wrong_bounds(self, name, bad):
        known = name == "clipnorm" or self.api.target != "optimizer_v2"
        wrong = (errors.HyperTypeError, errors.HyperValueError) if known else errors.DefinitionError
        with pytest.raises(wrong, match=name):
            SGD().bind(self.api.module, **{name: bad})

    def test_nothing_to_train(self):
        """An empty list is allowed: a model may have no trainable variables."""
        optimizer = SGD(0.1).bind(self.api.module)
        optimizer.apply_gradients([])
        if self.api.target == "keras3":
            optimizer.apply([], [])
        assert self.api.number(optimizer.iterations) == 0


class FrameSpy(everstep.Definition):
    """Records the names of the functions on the stack when its rule runs."""

    learning_rate = everstep.hyper(0.1)
    seen = []

    def update(self, ops, grad, var, slots, hyper, t):
        frame, names = sys._getframe(), []
        while frame:
            names.append(frame.f_code.co_name)
            frame = frame.f_back
        self.seen.append(names)
        return hyper.learning_rate * grad, {}




class Keras2Tests(object):
    """Tests for tf.keras and tf_keras, before Keras 3."""

    def needs_eager(self):
        if not self.api.eager:
            pytest.skip("graphs alone: https://www.tensorflow.org/api_docs/python/tf/executing_eagerly")

    @pytest.mark.parametrize("way", ["eager", "function", "minimize", "minimize in a function", "minimize with a tape"])
    def test_custom_loop_as_stock(self, way):
        self.needs_eager()
        if "tape" in way and "tape" not in harness.arguments_of(self.api.base.minimize):
            pytest.skip("minimize takes no tape before TF 2.4")
        api, tf, weights = self.api, self.api.tf, []
        for optimizer in (Adam(0.05).bind(api.module), api.stock("Adam", 0.05)):
            model = api.compiled(optimizer)

            def loss(model=model):
                return tf.reduce_mean(tf.square(model(tf.constant(api.INPUTS[:8])) - api.OUTPUTS[:8]))

            def step(model=model, optimizer=optimizer, loss=loss):
                trained = model.trainable_variables
                if way.startswith("minimize") and "tape" not in way:
                    optimizer.minimize(loss, (lambda: trained) if api.target == "optimizer_v2" else trained)
                    return
                with tf.GradientTape() as tape:
                    value = loss()
                if "tape" in way:
                    optimizer.minimize(value, trained, tape=tape)
                    return
                optimizer.apply_gradients(zip(tape.gradient(value, trained), trained))

            step = tf.function(step) if "function" in way else step
            for _ in range(5):
                step()
            weights.append(model.get_weights())
            assert api.number(optimizer.iterations) == 5
        assert difference(*weights) <= api.BOUND

    def test_autograph_leaves_the_engine_alone(self):
        """Autograph renames what it rewrites to tf__something. It must rewrite the user's function alone."""
        self.needs_eager()
        weight, optimizer = self.api.variable([1.0]), FrameSpy().bind(self.api.module)
        grad = self.api.tensor([1.0])

        def step():
            optimizer.apply_gradients([(grad, weight)])

        with harness.tensorflow_log() as said:
            self.api.tf.function(step)()
        assert [name for name in FrameSpy.seen[-1] if name.startswith("tf__")] == ["tf__step"]
        assert not said

    @pytest.mark.shared
    def test_under_a_strategy_of_one_replica(self):
        self.needs_eager()
        api = self.api
        with api.tf.distribute.MirroredStrategy(["/cpu:0"]).scope():
            models = [api.compiled(everstep.accumulate(Adam(0.05), 2).bind(api.module))]
            models.append(api.compiled(api.stock("Adam", 0.05)))
        models.append(api.compiled(Adam(0.05).bind(api.module), traced=False))
        for model, batch in zip(models, (16, 32, 32)):
            api.fit(model, batch)
            assert api.number(model.optimizer.iterations) == 2
        weights = [model.get_weights() for model in models]
        assert difference(weights[0], weights[1]) <= 1e-5
        assert difference(weights[0], weights[2]) <= 2e-6


class OwnDecay(everstep.Definition):
    """A rule with its own weight decay, which the learning rate does not scale."""

    learning_rate = everstep.hyper(0.1)
    weight_decay = everstep.hyper(0.25)

    def update(self, ops, grad, var, slots, hyper, t):
        return hyper.learning_rate * grad + hyper.weight_decay * var, {}


DECAYING = [  # they declare a weight decay; the factors leave enough decay to see
    getattr(everstep.optimizers, name)(0.1, weight_decay=0.5)
    for name in "AdamW LAMB Lion NadamW NovoGrad RAdam SGDW ScheduleFreeAdamW".split()
] + [
    everstep.optimizers.LARS(0.1, weight_decay=0.5, trust_coefficient=0.1),
    everstep.decoupled_weight_decay(SGD(0.1), 0.5),
    everstep.accumulate(everstep.clip(everstep.decoupled_weight_decay(Adam(0.1), 0.5), norm=1.0), 1),
]


def without_decay(definition):
    return with_hypers(definition, {name: 0.0 for name in flat(definition, "hyper") if "weight_decay" in name})


class HalvedAdamW(AdamW):
    """A user's own form of AdamW, in one class."""

    def update(self, ops, grad, var, slots, hyper, t):
        change, new = super(HalvedAdamW, self).update(ops, grad, var, slots, hyper, t)
        return 0.5 * change, new


class NewKerasTests(object):
    """Tests for new-style optimizers and Keras 3."""

    def test_weight_decay_of_a_definition(self):
        api = self.api
        optimizer, weight = OwnDecay().bind(api.module), api.variable([1.0])
        step = api.stepper(optimizer, [(api.tensor([0.0]), weight)])
        step()
        assert api.number(weight) == 0.75
        assert api.number(optimizer.weight_decay) == 0.25
        optimizer.weight_decay = 0.5
        step()
        assert api.number(weight) == 0.375
        api.step(optimizer, [1.0], weight)
        np.testing.assert_allclose(api.number(weight), 0.1875 - 0.1, rtol=1e-6)
        copy = api.round_trip(optimizer)
        assert copy.definition == OwnDecay(weight_decay=0.5)
        assert api.number(copy.weight_decay) == 0.5
        api.step(copy, [0.0], weight)
        np.testing.assert_allclose(api.number(weight), 0.04375, rtol=1e-6)
        for definition in (OwnDecay(), everstep.accumulate(OwnDecay(), 2)):
            with pytest.raises(errors.DefinitionError, match="already has a weight_decay"):
                definition.bind(api.module, weight_decay=0.1)

    def excluding(self, optimizer, by, duplicate=lambda optimizer: optimizer, first=0):
        """Returns a kernel and a bias after three steps without decay of the bias, from `first` on by a duplicate."""
        api = self.api
        kernel, bias = api.variable([[1.0, 2.0]], name="kernel"), api.variable([2.0, 1.0], name="bias")
        optimizer.exclude_from_weight_decay(**({"var_list": [bias]} if by == "list" else {"var_names": ["bia"]}))
        for step in range(3):
            if step == first:
                copied, optimizer = optimizer, duplicate(optimizer)
            if step == first and first and api.target == "keras3":  # a copy begins anew, as stock's
                everstep.restore(optimizer, everstep.capture(copied, [kernel, bias]), [kernel, bias])
            optimizer.apply_gradients([(api.tensor([[1.0, -1.0]]), kernel), (api.tensor([0.5, 1.0]), bias)])
        return [api.array(kernel), api.array(bias)]

    @pytest.mark.parametrize("by", ["list", "names"])
    @pytest.mark.parametrize("name", ["Adam", "AdamW"])
    def test_exclude_from_weight_decay_as_stock(self, name, by):
        api, arguments, migrated = self.api, {"learning_rate": 0.1, "weight_decay": 0.5}, []

        def migrate(stock):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # equal rows, see docs/from_native.md
                migrated.append(everstep.from_native(stock))
            return migrated[0].bind(api.module)

        expected = self.excluding(api.stock(name, **arguments), by)
        ours = getattr(everstep.optimizers, name).native_class(api.module)(**arguments)
        assert difference(self.excluding(ours, by), expected) <= 1e-5
        assert difference(self.excluding(api.stock(name, **arguments), by, migrate), expected) <= 1e-5
        if by == "names":
            assert everstep.Definition.from_config(migrated[0].get_config()) == migrated[0]

    def test_weight_decay_only_at_updates(self):
        api, seen = self.api, []
        optimizer = everstep.accumulate(SGD(0.5), 2).bind(api.module, weight_decay=0.5)
        weight = api.variable([1.0])
        for _ in range(4):
            api.step(optimizer, [0.0], weight)
            seen.append(api.number(weight))
        assert seen == [1.0, 0.75, 0.75, 0.5625]

    @pytest.mark.shared
    @pytest.mark.parametrize("definition", DECAYING, ids=lambda each: type(each).__name__)
    def test_exclude_from_a_definitions_own_decay(self, definition):
        if definition not in harness.share(DECAYING, 4):
            return
        both = definition, without_decay(definition)
        results = [self.excluding(each.bind(self.api.module), "names") for each in both]
        assert same(results[0][1:], results[1][1:])
        assert difference(results[0][:1], results[1][:1]) > 1e-3

    @pytest.mark.shared
    @pytest.mark.parametrize("by", ["list", "names"])
    @pytest.mark.parametrize("way", ["deep copy", "pickle", "from_native"])
    @pytest.mark.filterwarnings("ignore::everstep.StateWarning")
    def test_copies_keep_what_has_no_weight_decay(self, way, by):
        api = self.api
        duplicate = {"deep copy": copy.deepcopy, "pickle": lambda optimizer: pickle.loads(pickle.dumps(optimizer, 2)),
                     "from_native": lambda optimizer: everstep.from_native(optimizer).bind(api.module)}[way]
        definitions = [(AdamW(0.1, weight_decay=0.5), {}), (Adam(0.1), {"weight_decay": 0.5}), (DECAYING[-2], {})]
        for definition, native in harness.share(definitions, 2):
            for first in (0, 2) if way != "from_native" else (0,):  # before the first step and after it
                expected = self.excluding(definition.bind(api.module, **native), by)
                optimizer = definition.bind(api.module, **native)
                if way == "pickle" and by == "list" and not first:
                    with pytest.raises(errors.UnsupportedError, match="exclude them by var_names"):
                        self.excluding(optimizer, by, duplicate, first)
                    continue
                assert difference(self.excluding(optimizer, by, duplicate, first), expected) <= 1e-6

    def test_from_native_of_a_bound_optimizer_keeps_keywords(self):
        api, native = self.api, {"weight_decay": 0.5, "clipnorm": 0.25, "use_ema": True, "ema_momentum": 0.5}
        optimizer = Adam(0.1).bind(api.module, **native)
        optimizer.learning_rate = 0.2
        inner = everstep.decoupled_weight_decay(Adam(0.2), 0.5)
        average = everstep.moving_average(inner, 0.5, start=1 if api.target == "keras3" else 0)
        assert everstep.from_native(optimizer) == everstep.clip(average, norm=0.25)
        for definition in (LAMB(0.1, weight_decay=0.5), HalvedAdamW(0.1, weight_decay=0.5)):
            optimizer = definition.bind(api.module)
            optimizer.exclude_from_weight_decay(var_names=["bias"])
            with pytest.raises(errors.UnsupportedError, match="everstep.partition"):
                everstep.from_native(optimizer)

    def test_an_excluded_variable_has_no_l1_decay(self):
        results = []
        for definition in (everstep.decoupled_weight_decay(SGD(0.1), 0.5, l1=0.25), SGD(0.1)):
            results.append(self.excluding(everstep.accumulate(definition, 1).bind(self.api.module), "names"))
        assert same(results[0][1:], results[1][1:]) and not same(results[0][:1], results[1][:1])
