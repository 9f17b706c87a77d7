"""Copies, pickles and registers bound optimizers on every API, and compares with stock optimizers."""
from __future__ import absolute_import, division, print_function

import base64
import copy
import functools
import json
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest

import everstep
import harness
import small_model
from crafted_files import tf1
from everstep.errors import StateError, StateWarning, UnsupportedError
from everstep.optimizers import SGD, Adam

NAMED = dict((name, module) for name, module in harness.known_modules() if module is not None)
KERASES = sorted(harness.kerases())
START = {"kernel": np.linspace(-1, 1, 6).reshape(2, 3).astype("float32"), "bias": np.float32([0.5, -0.5, 1.0])}
KINDS = {"kernel": harness.DENSE, "bias": harness.DENSE}
RULES = [Adam(0.1), SGD(0.1, momentum=0.9), everstep.accumulate(Adam(0.1), 2), everstep.moving_average(SGD(0.1))]

# Stock Keras 2 converts them, and TensorFlow says so.
pytestmark = [pytest.mark.shared, pytest.mark.filterwarnings("ignore:Converting sparse IndexedSlices:UserWarning")]
ways = pytest.mark.parametrize("way", harness.all_ways(), ids=lambda way: way.name)
kerases = pytest.mark.parametrize("name", KERASES)
rules = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule._short())


def started(name):
    """Returns a Keras with a new session."""
    harness.clear_session(NAMED[name])
    return NAMED[name]


def grads(step):
    random = np.random.RandomState(step)
    return {name: random.randn(*value.shape).astype("float32") for name, value in sorted(START.items())}


def pickled(optimizer):
    return pickle.loads(pickle.dumps(optimizer, 2))


def eager(way):
    if way.target == "get_updates":  # eager variables, though the step is a graph
        return getattr(pytest.importorskip("tensorflow"), "executing_eagerly", lambda: False)()
    return not issubclass(way.run, harness.GraphRun)


def trained(way, rule, steps=3):
    """Returns a run after some steps of a definition, or of the optimizer that a function makes."""
    return harness.new_run(way, rule, START, KINDS, map(grads, range(steps)))


def check_equal(actual, expected):
    for name, value in expected.items():
        assert np.array_equal(actual[name], value), name


# Optimizers that have not trained.


@ways
@rules
def test_fresh(way, rule):
    def make(duplicate):
        optimizer = rule.bind(way.module, name="mine")
        twin = duplicate(optimizer)
        assert type(twin) is type(optimizer) and twin is not optimizer
        assert twin.definition == rule and repr(twin) == repr(optimizer)
        return twin

    expected = trained(way, lambda: rule.bind(way.module, name="mine")).weights()
    for each in (copy.copy, copy.deepcopy, pickled):
        check_equal(trained(way, functools.partial(make, each)).weights(), expected)


@ways
def test_settings_come_along(way):
    if way.target == "tf_train":
        pytest.skip("tf.train takes neither a bound nor a new rate")
    if way.target == "get_updates":
        harness.clear_session(way.module)
    native = {} if way.target == "arrays" else {"clipnorm": 0.5}
    optimizer = Adam(0.1).bind(way.module, **native)
    optimizer.learning_rate = 0.025
    for duplicate in (copy.deepcopy, pickled):
        twin = duplicate(optimizer)
        assert harness.present_definition(harness.bound(twin)) == Adam(0.025)
        assert way.target == "arrays" or twin.clipnorm == 0.5
        assert "learning_rate=0.025" in repr(twin)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, pickled])
@pytest.mark.parametrize("way", harness.framework_ways(), ids=lambda way: getattr(way, "name", None))
def test_a_counter_that_was_set_comes_along(way, duplicate):
    """As with a deep copy of a stock optimizer of TF 2.10. A program that resumes at step 7 sets it."""
    if way.target == "tf_train" or not eager(way):
        pytest.skip("there is no counter before the first step, or it lives in a graph")

    def make():
        optimizer = Adam(0.1).bind(way.module)
        optimizer.iterations.assign(7)
        return optimizer

    after = []
    for each in (make, lambda: duplicate(make())):
        run = trained(way, each, 0)
        assert int(np.asarray(run.optimizer.iterations)) == 7
        run.step(grads(0))
        assert int(np.asarray(run.optimizer.iterations)) == 8
        after.append(run.weights())
    check_equal(*after)


# Optimizers that have trained: from here on two optimizers train the same variables, from the same values.


def resume(run, optimizer, state=None):
    """Trains the run's variables with another optimizer, from their current values; `state`: to restore it to."""
    before = run.weights()
    run.step(grads(10))
    run.step(grads(11))
    after = run.weights()
    twin = type(run)(lambda: optimizer, before, run.kinds)
    if state is not None:
        everstep.restore(optimizer, state, twin.variables)
    twin.step(grads(10))
    twin.step(grads(11))
    return after, twin.weights()


@ways
@rules
@pytest.mark.filterwarnings("ignore::everstep.StateWarning")
def test_trained(way, rule):
    """A copy or a pickle has the state and slots of its own; it goes on bit for bit, or restore replaces its state.

    In Keras 3 it begins anew, as stock's, and the line that its warning names gives it the state.
    """
    run = trained(way, rule, 0)
    variables = [run.variables[name] for name in run.names]
    fresh = everstep.capture(rule.bind(way.module), variables, run.world.session)
    for step in range(3):
        run.step(grads(step))
    if not eager(way):
        for duplicate in (copy.deepcopy, pickled):
            with pytest.raises(UnsupportedError, match="everstep.capture"):
                duplicate(run.optimizer)
        return
    state = everstep.capture(run.optimizer, variables)
    with_state = functools.partial(duplicated, way, variables)
    twin, copied = with_state(pickled, run.optimizer), with_state(copy.deepcopy, run.optimizer)
    if way.target != "tf_train":
        assert int(np.asarray(twin.iterations)) == int(np.asarray(run.optimizer.iterations)) > 0
    again = with_state(pickled, run.optimizer), with_state(copy.deepcopy, twin), with_state(pickled, twin)
    for each in (copied,) + again:
        assert_same_state(everstep.capture(each, variables), state)
    replaced = with_state(pickled, run.optimizer)
    everstep.restore(replaced, fresh, variables)
    assert_same_state(everstep.capture(replaced, variables), fresh)
    check_equal(*resume(run, pickled(run.optimizer), state if begins_anew(way) else None))
    assert_same_state(everstep.capture(copied, variables), state)


def duplicated(way, variables, duplicate, optimizer):
    """Returns a copy with the optimizer's state."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        twin = duplicate(optimizer)
    assert [each.category for each in caught if each.category is StateWarning] == [StateWarning] * begins_anew(way)
    if begins_anew(way):
        assert int(np.asarray(twin.iterations)) == 0
        everstep.restore(twin, everstep.capture(optimizer, variables), variables)
    return twin


def begins_anew(way):
    return way.target == "keras3"


def assert_same_state(state, expected):
    assert (state.updates, state.steps, state.pending) == (expected.updates, expected.steps, expected.pending)
    assert dict(state.scalars) == dict(expected.scalars)
    harness.assert_same_arrays(state, expected)


OTHER_SHAPES = {name: value.T.repeat(2, 0) for name, value in START.items()}


@ways
@pytest.mark.parametrize("start", [START, OTHER_SHAPES], ids=["same shapes", "other shapes"])
@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickled])
@pytest.mark.filterwarnings("ignore::everstep.StateWarning")
def test_a_copy_for_another_model(way, duplicate, start):
    """It begins anew there, and not one old slot gets into variables of other names, whatever their shapes are."""
    if not eager(way) or way.target in ("arrays", "tf_train"):
        pytest.skip("arrays have no names; optimizers in a graph cannot be copied, nor those of tf.train count")
    if duplicate is copy.copy and not begins_anew(way):
        pytest.skip("a shallow copy shares the slots and the count")
    optimizer, batch = trained(way, Adam(0.1)).optimizer, {"new_" + name: value * 0.1 for name, value in start.items()}
    start, kinds = ({"new_" + name: each for name, each in values.items()} for values in (start, KINDS))
    twin = duplicate(optimizer)
    run = harness.new_run(way, lambda: twin, start, kinds, [batch])
    goes_on = duplicate is copy.deepcopy and way.target in ("optimizer_v2", "get_updates")  # as stock
    assert int(np.asarray(run.optimizer.iterations)) == (4 if goes_on else 1)
    bound = harness.bound(run.optimizer)
    slots = [bound.adapter.unwrap(run.optimizer.get_slot(run.variables[name], "m")) for name in sorted(batch)]
    for name, moment in zip(sorted(batch), bound.backend.values(slots, None)):
        assert np.allclose(moment, 0.1 * batch[name], rtol=1e-5)
    if not goes_on:
        check_equal(run.weights(), harness.new_run(way, Adam(0.1), start, kinds, [batch]).weights())


@rules
def test_arrays_are_copied_with_what_trains_them(rule):
    run = trained(harness.NUMPY, rule)
    both = copy.deepcopy({"optimizer": run.optimizer, "variables": run.variables})
    twin = trained(harness.NUMPY, lambda: both["optimizer"], 0)
    twin.variables = both["variables"]
    twin.begin()
    for each in (run, twin):
        each.step(grads(10))
        each.step(grads(11))
    check_equal(twin.weights(), run.weights())
    assert not any(np.shares_memory(twin.variables[name], run.variables[name]) for name in START)


def test_a_pickle_refuses_other_variables():
    optimizer, weights = Adam(0.1).bind(np), np.zeros(3)
    optimizer.apply_gradients([(np.ones(3), weights)])
    twin, other = pickled(optimizer), np.zeros(4)
    with pytest.raises(StateError, match=r"shapes \[\(3,\)\]; got variables of shapes \[\(4,\)\]"):
        twin.apply_gradients([(np.ones(4), other)])
    assert not other.any()
    twin.apply_gradients([(np.ones(3), weights)])
    assert twin.iterations == 2


UNPICKLER = """
import base64, json, pickle, sys
sys.path[:0] = json.loads(sys.argv[1])
optimizer = pickle.loads(base64.b64decode(sys.argv[2]))
import everstep
print(type(optimizer).__module__, everstep.from_native(optimizer))
"""


@pytest.mark.parametrize("way", harness.one_of_each_target(harness.all_ways()), ids=harness.way_name)
def test_a_pickle_in_a_process_that_bound_nothing(way):
    keeps = eager(way) and not begins_anew(way)
    if way.target == "get_updates":
        harness.clear_session(way.module)  # otherwise its session may belong to another test's graph
    optimizer = trained(way, Adam(0.025)).optimizer if keeps else Adam(0.025).bind(way.module)
    data = base64.b64encode(pickle.dumps(optimizer, 2)).decode("ascii")
    command = [sys.executable, "-c", UNPICKLER, json.dumps(sys.path), data]
    output = subprocess.check_output(command, stderr=subprocess.STDOUT).decode("utf-8")
    assert "everstep.native." in output and "Adam(learning_rate=0.025," in output, output


CLASS_UNPICKLER = """
import base64, json, pickle, sys
sys.path[:0] = json.loads(sys.argv[1])
native = pickle.loads(base64.b64decode(sys.argv[2]))
assert pickle.loads(pickle.dumps(native)) is native
print("%s %s" % (native.__module__, native.definition_class.__name__))
missing = base64.b64decode(sys.argv[2]).replace(b"Adam", b"Mine")
try:
    pickle.loads(missing)
except AttributeError as error:
    print(error)
"""


@pytest.mark.parametrize("way", harness.one_of_each_target(harness.all_ways()), ids=harness.way_name)
def test_a_pickled_class_in_a_process_that_has_made_none(way):
    """skorch, Stable-Baselines3 and joblib take an optimizer as a class, and pickle it by its name."""
    native = Adam.native_class(way.module)
    data = base64.b64encode(pickle.dumps(native, 2)).decode("ascii")
    command = [sys.executable, "-c", CLASS_UNPICKLER, json.dumps(sys.path), data]
    output = subprocess.check_output(command, stderr=subprocess.STDOUT).decode("utf-8")
    assert native.__module__ + " Adam" in output and "Mine" in output, output
    assert sys.version_info[0] == 2 or "which has classes of imported definitions alone" in output, output


def own_class(base):
    """Returns a class with arguments of its own beside those of its base, and its own default of a rate."""
    class Louder(base):
        def __init__(self, learning_rate=0.5, loudness=2.0, **given):
            super(Louder, self).__init__(learning_rate=learning_rate, **given)
            self._loudness = loudness

        def get_config(self):
            return dict(super(Louder, self).get_config(), loudness=self._loudness)

    return Louder


@kerases
@pytest.mark.parametrize("duplicate", [copy.deepcopy, pickled, "from_config"])
def test_a_subclass_with_an_init_of_its_own(name, duplicate, monkeypatch):
    keras = started(name)
    stock = keras.optimizers.SGD
    if small_model.api_of(stock) != "get_updates":
        assert own_class(stock).from_config(own_class(stock)(0.25, 3.0).get_config())._loudness == 3.0
    cls = own_class(SGD.native_class(keras))
    monkeypatch.setitem(globals(), "Louder", cls)  # where pickle looks for it
    cls.__qualname__ = "Louder"
    optimizer = cls(0.25, 3.0)
    again = cls.from_config(optimizer.get_config()) if duplicate == "from_config" else duplicate(optimizer)
    assert type(again) is cls and again._loudness == 3.0
    assert again.definition.learning_rate == 0.25 and cls().definition.learning_rate == 0.5


class Named(Adam.native_class(np)):
    """A user's subclass of a native class, which pickles find by its name."""

    def label(self):
        return "mine"


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickled])
def test_a_subclass_of_a_native_class(duplicate):
    optimizer, weights = Named(0.1), np.zeros(2)
    optimizer.apply_gradients([(np.ones(2), weights)])
    twin = duplicate(optimizer)
    assert type(twin) is Named and twin.label() == "mine" and twin.iterations == 1
    assert twin.definition == Adam(0.1)


@ways
def test_a_config_is_taken_by_the_constructor(way):
    """A user's subclass or mixin may have the from_config of most of stock: `cls(**config)`."""
    if way.target == "tf_train":
        pytest.skip("optimizers of tf.train have no config")
    if way.target == "get_updates":
        harness.clear_session(way.module)
    optimizer = everstep.accumulate(SGD(0.1, momentum=0.9), 2).bind(way.module, name="mine")
    optimizer.learning_rate = 0.25
    twin = type(optimizer)(**optimizer.get_config())
    assert twin.definition == everstep.accumulate(SGD(0.25, momentum=0.9), 2)
    assert twin.get_config().get("name") == optimizer.get_config().get("name")


def test_a_shallow_copy_shares_its_slots():
    """A copy of a stock optimizer shares them, too."""
    optimizer, weights = SGD(0.1, momentum=0.9).bind(np), np.zeros(2)
    twin = copy.copy(optimizer)
    optimizer.apply_gradients([(np.ones(2), weights)])
    twin.apply_gradients([(np.ones(2), weights)])
    assert twin.get_slot(weights, "velocity") is optimizer.get_slot(weights, "velocity")
    assert optimizer.iterations == 2


def test_a_tensor_for_a_hyper_is_refused():
    pytest.importorskip("tensorflow")
    with tf1.Graph().as_default():
        optimizer = Adam(tf1.placeholder_with_default(0.1, ())).bind(tf1.train)
        for duplicate in (copy.deepcopy, pickled):
            with pytest.raises(UnsupportedError, match="Adam.learning_rate is a tensor"):
                duplicate(optimizer)
        repr(optimizer)


# Classes.


@ways
def test_a_class_is_found_again(way):
    native = type(Adam(0.1).bind(way.module))
    assert native.__name__ == "Adam" and native.__module__.startswith("everstep.native.")
    assert sys.modules[native.__module__].Adam is native
    assert pickled(native) is native
    assert repr(Adam(0.1).bind(way.module)).startswith("<Adam(learning_rate=0.1, ")


def keras_deserialized(keras, optimizer):
    return keras.optimizers.deserialize(json.loads(json.dumps(keras.optimizers.serialize(optimizer))))


@kerases
def test_two_definitions_of_one_name(name):
    """A config holds the module of its definition, whatever class Keras has under that name."""
    module = started(name)
    first, second = (type("Same", (SGD,), {"__module__": __name__ + place}) for place in (".one", ".two"))
    one, two = first(0.1).bind(module), second(0.2).bind(module)
    assert type(one) is not type(two)
    assert type(two).from_config(one.get_config()).definition == first(0.1)
    assert type(one).from_config(two.get_config()).definition == second(0.2)
    for each in (one, two):
        assert keras_deserialized(module, each).definition == each.definition


# Models.


def trained_model(keras, optimizer):
    harness.clear_session(keras)
    model = small_model.build(keras, optimizer())
    if small_model.keras_major(keras) >= 3:  # 3.15 cannot read the "mse" of its own HDF5 files
        model.compile(model.optimizer, keras.losses.MeanSquaredError())
    for _ in range(3):
        model.train_on_batch(small_model.IDS, small_model.TARGETS)
    return model


def described(model):
    """Returns (class of the optimizer, number of its variables)."""
    optimizer = model.optimizer
    if hasattr(optimizer, "get_weights"):
        return type(optimizer).__name__, len(optimizer.get_weights())
    variables = optimizer.variables() if callable(optimizer.variables) else optimizer.variables  # a method in TF 2.11
    return type(optimizer).__name__, len(variables)


def outcome(duplicate, model):
    try:
        twin = duplicate(model)
        return twin if getattr(twin, "optimizer", None) is not None else None
    except Exception as error:  # stock raises many types
        return error


DUPLICATES = {"deepcopy": copy.deepcopy, "pickle": pickled}


@kerases
@pytest.mark.parametrize("how", sorted(DUPLICATES) + ["clone_model"])
def test_models(name, how):
    """Models that can be copied with a stock optimizer can be copied with ours; with the state, if stock keeps it."""
    keras = started(name)
    if not hasattr(keras.models, "clone_model"):
        pytest.skip("tf.keras of TF 1.4 to 1.8 has no clone_model")
    duplicate = DUPLICATES.get(how, keras.models.clone_model)
    stock = trained_model(keras, lambda: keras.optimizers.Adam())
    of_stock = outcome(duplicate, stock)
    kept = None if of_stock is None or isinstance(of_stock, Exception) else described(of_stock) == described(stock)
    model = trained_model(keras, lambda: Adam(1e-3).bind(keras))
    twin = outcome(duplicate, model)
    if kept is None:
        assert twin is None or isinstance(twin, Exception) or type(twin.optimizer) is type(model.optimizer)
        return
    assert type(twin.optimizer) is type(model.optimizer), twin
    assert twin.optimizer.definition == model.optimizer.definition
    if kept and how != "clone_model":  # it creates a model with new weights
        assert described(twin) == described(model)
        for each in (model, twin):
            each.train_on_batch(small_model.IDS, small_model.TARGETS)
        for weight, value in zip(twin.get_weights(), model.get_weights()):
            assert np.allclose(weight, value, atol=1e-7)


# Stock names in custom objects.


def scopes(keras, objects):
    saving = getattr(keras, "saving", None)
    holder = saving if hasattr(saving, "custom_object_scope") else keras.utils
    return getattr(holder, "custom_object_scope", None) or holder.CustomObjectScope


@kerases
@pytest.mark.parametrize("spelled", ["adam", "sgd", "Adam", "RMSprop"])
def test_stock_names_inside_a_scope(name, spelled):
    keras = started(name)
    objects = everstep.custom_objects(keras)
    with scopes(keras, objects)(objects):
        optimizer = keras.optimizers.get(spelled)
        assert not hasattr(optimizer, "definition") and type(optimizer).__name__.lower() == spelled.lower()
        model = small_model.build(keras, spelled)
        assert not hasattr(model.optimizer, "definition")
        model.train_on_batch(small_model.IDS, small_model.TARGETS)


@kerases
def test_stock_files_inside_a_scope(name, tmpdir):
    keras = started(name)
    path = str(tmpdir.join("stock.h5"))
    model = trained_model(keras, lambda: keras.optimizers.Adam())
    model.save(path)
    objects = everstep.custom_objects(keras)
    harness.clear_session(keras)
    with scopes(keras, objects)(objects):
        loaded = keras.models.load_model(path)
    assert type(loaded.optimizer).__name__ == "Adam" and not hasattr(loaded.optimizer, "definition")
    loaded = keras.models.load_model(path, custom_objects=objects)
    assert not hasattr(loaded.optimizer, "definition")


# Files that another process loads.

LOADER = """
from __future__ import print_function
import json, sys, warnings
warnings.simplefilter("ignore")
sys.path[:0] = json.loads(sys.argv[1])
import everstep, {package}
module = {name}
for before in (None, everstep.optimizers.Adam(1.0)):
    if before is not None:
        before.bind(module)
    try:
        model = module.models.load_model({file!r})
    except Exception as error:
        print("REFUSED", type(error).__name__)
    else:
        print("LOADED", getattr(model.optimizer, "definition", None))
"""


@kerases
@pytest.mark.parametrize("suffix", [".h5", ".keras"])
def test_files_in_another_process(name, suffix, tmpdir):
    """After bind or register they load without custom objects. Without both they never load as a stock optimizer."""
    keras = started(name)
    if suffix == ".keras" and not hasattr(getattr(keras, "saving", None), "deserialize_keras_object"):
        pytest.skip("Keras 3, TF 2.12 to 2.15 and tf_keras write them")
    path = str(tmpdir.join("model" + suffix))
    trained_model(keras, lambda: Adam(0.025).bind(keras)).save(path)
    script = LOADER.format(package=name.partition(".")[0], name=name, file=path)
    output = subprocess.check_output([sys.executable, "-c", script, json.dumps(sys.path)], stderr=subprocess.STDOUT)
    said = [line for line in output.decode("utf-8").splitlines() if line.startswith(("LOADED", "REFUSED"))]
    assert [line.split()[0] for line in said] == ["REFUSED", "LOADED"], output
    assert "Adam(learning_rate=0.025," in said[-1]
    with harness.unregistered(keras):
        everstep.register(keras)
        assert keras.models.load_model(path).optimizer.definition == Adam(0.025)


@kerases
def test_register_survives_a_scope(name):
    """Old versions of Keras restore their table when a scope ends."""
    keras = started(name)
    with scopes(keras, {})({}):
        native = type(Adam(0.1).bind(keras))
    Adam(0.1).bind(keras)
    table = harness.native_classes.registry_of(native.native_base).get_custom_objects()
    assert any(each is native for each in table.values())


@pytest.mark.parametrize("name", [name for name in sorted(NAMED) if name.endswith("train")] + ["numpy"])
def test_register_where_there_is_nothing(name):
    try:
        harness.find(NAMED[name])
    except everstep.errors.TargetError:
        pytest.skip("this module speaks no optimizer API here")
    with pytest.raises(UnsupportedError, match="none of its files names an optimizer"):
        everstep.register(NAMED[name])
