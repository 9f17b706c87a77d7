"""Files of every stock optimizer of the table: everstep reads them, continues the run, and writes them for stock.

Stock trains a layer of a kernel and a bias for a few steps and saves it in each format of its API. The run then
continues in three ways: with stock itself; with ours, restored from the file; and with stock, restored from a file that
everstep wrote.
"""
from __future__ import absolute_import, division, print_function

from collections import namedtuple

import numpy as np
import pytest
from packaging.version import Version

import everstep
import harness
import stock
from crafted_files import TENSORFLOW, inspect, spelled, tensorflow
from crafted_files import tf1 as v1
from everstep.optimizers import SGD, Adafactor, AdagradDecay, Adam, AdamMini, ConditionalGradient, Muon, NovoGrad
from everstep.testing import oracle
from small_model import api_of, keras_major, save, stock_optimizer
from stock import STOCK, entry_for, entry_named, migrate
from test_battery import ids
from test_files_written import FORMAT, KERASES, extensions_of

pytestmark = [
    pytest.mark.shared, pytest.mark.filterwarnings("ignore:Skipping variable loading for optimizer:UserWarning")]
STEPS, AVERAGE = 5, "moving_average/average"
INPUTS = np.array([[0.5, -1.0, 0.3], [0.2, 0.4, -0.6], [-0.7, 0.1, 0.9], [1.0, 0.8, -0.2]], np.float32)
OUTPUTS = np.array([[1.0, -1.0], [0.5, 2.0], [-1.5, 0.25], [0.75, -0.5]], np.float32)
KERNEL = np.array([[0.5, -0.4], [0.3, 0.2], [-0.6, 0.1]], np.float32)
BIAS = np.array([0.1, -0.2], np.float32)
Way = namedtuple("Way", "name target sparse")  # the fields that stock.allowed needs
IN_GRAPHS = Way("tf_train ref", "tf_train", True)
# The cases of tests/stock.py, and some with stock's default arguments.
TRAIN = stock.TRAIN + stock.CONTRIB + [("AdamOptimizer", 0.1, {}), ("RMSPropOptimizer", 0.01, {"momentum": 0.5})]


def near(actual, expected, way, name):
    bound, cause = stock.allowed(way, name, "dense")
    if bound > 0.2:
        assert cause  # no definition follows it: see docs/from_native.md
        return
    # Relative to the whole layer, because its bias may come near 0.
    actual, expected = [np.concatenate([np.ravel(value) for value in values]) for values in (actual, expected)]
    assert oracle.distance(actual, expected) <= bound


# tf.train


class Session(object):
    """The layer in a graph, with an optimizer of tf.train or a definition. Restores a checkpoint if `path` is given."""

    def __init__(self, make, path=None):
        self.graph = v1.Graph()
        with self.graph.as_default():
            self.variables = [v1.get_variable("kernel", initializer=v1.constant(KERNEL)),
                              v1.get_variable("bias", initializer=v1.constant(BIAS))]
            # Gradients are fed: contrib's AdamW decays weights before or after the gradients read them, at random.
            self.grads = [v1.placeholder(v1.float32, value.shape) for value in (KERNEL, BIAS)]
            self.optimizer = make(v1.train) if callable(make) else make.bind(v1.train)
            self.step = self.optimizer.apply_gradients(list(zip(self.grads, self.variables)))
            self.saver, self.session = v1.train.Saver(), v1.Session()
            self.session.run(v1.global_variables_initializer())
            if path:
                self.saver.restore(self.session, path)
        harness.open_runs.append(self.session)

    def train(self):
        for _ in range(STEPS):
            kernel, bias = self.session.run(self.variables)
            error = 2 * (INPUTS.dot(kernel) + bias - OUTPUTS) / OUTPUTS.size
            self.session.run(self.step, dict(zip(self.grads, (INPUTS.T.dot(error), error.sum(0)))))
        return self.session.run(self.variables)

    def save(self, path):
        with self.graph.as_default():
            self.saver.save(self.session, path, write_meta_graph=False, write_state=False)

    def captured(self):
        return everstep.capture(self.optimizer, self.variables, session=self.session)

    def restored(self, state):
        with self.graph.as_default():
            everstep.restore(self.optimizer, state, self.variables, session=self.session, weights=True)
        return self


def train_cases():
    for name, rate, arguments in TRAIN if tensorflow is not None else ():
        if stock.stock_class(WAYS_OF_TRAIN, name) is not None and "skip_list" not in arguments:
            yield IN_GRAPHS, name, rate, arguments


WAYS_OF_TRAIN = namedtuple("Holder", "stock")(getattr(v1, "train", None))


@pytest.mark.parametrize("way, name, rate, arguments", list(train_cases()), ids=ids)
def test_saver(way, name, rate, arguments, tmp_path):
    def make(_):
        return stock.counted(stock.stock_class(WAYS_OF_TRAIN, name), **dict(arguments, learning_rate=rate))

    path, again = str(tmp_path / "model"), str(tmp_path / "again")
    first = Session(make)
    first.train()
    first.save(path)
    # Stock stores no count if its rule needs none.
    state = everstep.read_checkpoint(path, optimizer=spelled(name, dict(arguments, learning_rate=rate)))
    entry = entry_named("tf_train", name)
    assert state.updates == (STEPS if entry.head or name in stock.BY_GLOBAL_STEP else 0)
    assert set(state.slots) == {"kernel", "bias"}
    for variable in first.variables:
        for slot in entry.slots:
            if slot.name in state.slots[variable.op.name]:
                value = first.session.run(first.optimizer.get_slot(variable, slot.native))
                np.testing.assert_array_equal(np.asarray(state.slots[variable.op.name][slot.name]), value)
    expected = first.train()

    definition = everstep.Definition.from_config(state.definition)
    near(Session(definition).restored(state).train(), expected, way, name)

    everstep.write_checkpoint(state, again, "tf-saver")
    if entry_for("tf_train", definition) is entry:  # LazyAdam and Adam have the same slot names
        near(Session(make, again).train(), expected, way, name)


class WithAverages(object):
    """A stock optimizer and averages after each of its steps, as people's programs have them."""

    def __init__(self, optimizer, decay):
        self.optimizer, self.averages = optimizer, v1.train.ExponentialMovingAverage(decay)

    def apply_gradients(self, grads_and_vars):
        with v1.control_dependencies([self.optimizer.apply_gradients(grads_and_vars)]):
            return self.averages.apply([variable for _, variable in grads_and_vars])


AVERAGED = [("GradientDescentOptimizer", {}), ("MomentumOptimizer", {"momentum": 0.9}), ("AdamOptimizer", {})]


@pytest.mark.parametrize("name, arguments", AVERAGED if tensorflow is not None else [], ids=ids)
def test_saver_with_averages(name, arguments, tmp_path):
    def make(_):
        return WithAverages(getattr(v1.train, name)(0.1, **arguments), 0.5)

    def averages(run):
        averages = getattr(run.optimizer, "averages", None)
        averages = [averages.average(variable) if averages else run.optimizer.get_slot(variable, AVERAGE)
                    for variable in run.variables]
        return run.session.run(averages)

    path, again = str(tmp_path / "model"), str(tmp_path / "again")
    first = Session(make)
    definition = everstep.moving_average(migrate(first.optimizer.optimizer), 0.5)
    first.train()
    first.save(path)
    state = everstep.read_checkpoint(path, definition=definition, updates=STEPS)
    assert [variable.op.name for variable in first.variables] == sorted(state.slots, reverse=True)
    for variable, value in zip(first.variables, averages(first)):
        np.testing.assert_array_equal(np.asarray(state.slots[variable.op.name][AVERAGE]), value)
    without = inspect(path, definition=definition.inner, updates=STEPS)["notes"]
    assert "it has averages of tf.train.ExponentialMovingAverage" in without[0]
    assert not inspect(path, definition=definition, updates=STEPS)["notes"]
    everstep.write_checkpoint(state, again, "tf-saver")
    expected = [first.train(), averages(first)]
    for run in (Session(definition).restored(state), Session(make, again)):
        for actual, values in zip((run.train(), averages(run)), expected):
            near(actual, values, IN_GRAPHS, name)
    assert oracle.distance(*map(np.concatenate, [[np.ravel(each) for each in values] for values in expected])) > 1e-3


@TENSORFLOW
def test_saver_with_two_averages(tmp_path):
    """Which one is meant, only the user knows; a definition without averages needs none."""
    path = str(tmp_path / "model")
    run = Session(lambda _: WithAverages(WithAverages(v1.train.MomentumOptimizer(0.1, 0.9), 0.5), 0.9))
    run.train()
    run.save(path)
    rule = SGD(0.1, momentum=0.9, rate_in_velocity=False)
    assert sorted(everstep.read_checkpoint(path, definition=rule, updates=STEPS).slots["bias"]) == ["velocity"]
    with pytest.raises(everstep.errors.FileError, match="has 2 averages. Give slots="):
        everstep.read_checkpoint(path, definition=everstep.moving_average(rule, 0.5), updates=STEPS)


class Both(object):
    """An optimizer for the kernel and one for the bias, as Wide & Deep estimators and GANs have."""

    def __init__(self, of_kernel, of_bias):
        self.of_kernel, self.of_bias = of_kernel, of_bias

    def apply_gradients(self, grads_and_vars):
        return v1.group(self.of_kernel.apply_gradients(grads_and_vars[:1], v1.train.get_or_create_global_step()),
                        self.of_bias.apply_gradients(grads_and_vars[1:]))


PAIRS = [(("AdagradOptimizer", 0.1, {}), ("FtrlOptimizer", 0.1, {})),
         (("AdamOptimizer", 0.1, {"epsilon": 1e-3}), ("AdamOptimizer", 0.01, {"epsilon": 1e-3})),
         (("MomentumOptimizer", 0.1, {"momentum": 0.9}), ("GradientDescentOptimizer", 0.1, {}))]


@pytest.mark.parametrize("pair", PAIRS if tensorflow is not None else [], ids=ids)
def test_saver_of_two_optimizers(pair, tmp_path):
    def make(_):
        return Both(*[getattr(v1.train, name)(rate, **arguments) for name, rate, arguments in pair])

    path, first = str(tmp_path / "model"), Session(make)
    rules = [migrate(each) for each in (first.optimizer.of_kernel, first.optimizer.of_bias)]
    definition = everstep.partition({"kernels": ("kernel", rules[0])}, default=rules[1])
    first.train()
    first.save(path)
    state = everstep.read_checkpoint(path, definition=definition)
    expected = first.train()
    assert state.updates == STEPS
    near(Session(definition).restored(state).train(), expected, IN_GRAPHS, "AdagradOptimizer")


@TENSORFLOW
def test_saver_of_optimizers_that_counted_apart(tmp_path):
    """Slots that are not 0 beside powers of no update do not say whose these are. `slots=` goes by branch."""
    path, rule = str(tmp_path / "model"), everstep.optimizers.Adam(0.1)
    run = Session(lambda _: Both(v1.train.AdamOptimizer(0.1), v1.train.AdamOptimizer(0.1)))
    run.train()
    with run.graph.as_default():
        for variable in run.graph.get_collection(v1.GraphKeys.GLOBAL_VARIABLES):
            if variable.op.name.endswith("_power_1"):
                run.session.run(variable.assign(0.9 if "beta1" in variable.op.name else 0.999))
    run.save(path)
    definition = everstep.partition({"kernels": ("kernel", rule)}, default=rule)
    with pytest.raises(everstep.errors.FileError, match="updates the branch kernels has made: 5 by beta1_power, 0"):
        everstep.read_checkpoint(path, definition=definition)
    assert everstep.read_checkpoint(path, definition=definition, updates=3).updates == 3
    assert everstep.read_checkpoint(path, definition=rule, updates=3).updates == 3
    patterns = {"kernels/m": "{var}/Adam", "kernels/v": "{var}/Adam_1", "default/m": "{var}/Adam",
                "default/v": "{var}/Adam_1"}
    by_hand = everstep.read_checkpoint(path, definition=definition, updates=3, slots=patterns)
    assert {name: sorted(slots) for name, slots in by_hand.slots.items()} == {
        "kernel": ["kernels/m", "kernels/v"], "bias": ["default/m", "default/v"]}
    with pytest.raises(everstep.errors.FileError, match="the branch kernels of .* takes no variable with"):
        everstep.read_checkpoint(path, definition=everstep.partition({"kernels": ("table", rule)}, default=rule))


@TENSORFLOW
def test_saver_of_two_optimizers_with_another_velocity(tmp_path):
    """tf.train's velocity is not times the rate; a branch whose velocity is would take ten times too large steps."""
    path, rest = str(tmp_path / "model"), everstep.optimizers.Ftrl(0.1)
    run = Session(lambda _: Both(v1.train.MomentumOptimizer(0.1, 0.9), v1.train.FtrlOptimizer(0.1)))
    run.train()
    run.save(path)

    def read(rate_in_velocity):
        rule = SGD(0.1, momentum=0.9, rate_in_velocity=rate_in_velocity)
        return everstep.read_checkpoint(
            path, definition=everstep.partition({"kernels": ("kernel", rule)}, default=rest), updates=STEPS)

    with pytest.raises(everstep.errors.StateError, match="branch kernels .*: give that branch rate_in_velocity=False"):
        read(True)
    assert sorted(read(False).slots["kernel"]) == ["kernels/velocity"]


def loss_scalers():
    """Yields functions that put a loss scale of 8, doubled after three steps, around an optimizer."""
    experimental = getattr(v1.train, "experimental", None)
    if hasattr(experimental, "MixedPrecisionLossScaleOptimizer"):
        yield lambda optimizer: experimental.MixedPrecisionLossScaleOptimizer(
            optimizer, experimental.DynamicLossScale(8.0, 3))
    try:
        from tensorflow.contrib.mixed_precision import ExponentialUpdateLossScaleManager, LossScaleOptimizer
    except ImportError:  # before TF 1.10, and in TF 2
        return
    yield lambda optimizer: LossScaleOptimizer(optimizer, ExponentialUpdateLossScaleManager(8.0, 3))


@pytest.mark.parametrize("scaler", list(loss_scalers()) if tensorflow is not None else [])
def test_saver_with_a_loss_scale(scaler, tmp_path):
    path, again = str(tmp_path / "model"), str(tmp_path / "again")
    run = Session(lambda _: scaler(v1.train.AdamOptimizer(0.1)))
    definition = everstep.optimizers.Adam(0.1, epsilon=1e-8)
    run.train()
    run.save(path)
    scaled = everstep.read_checkpoint(path, definition=everstep.loss_scale(definition, initial_scale=8.0))
    assert scaled.scalars["loss_scale/factor"] == 2 and scaled.scalars["loss_scale/finite"] == 2
    everstep.write_checkpoint(scaled, again, "tf-saver")
    for state in (everstep.read_checkpoint(path, definition=definition),
                  everstep.read_checkpoint(again, definition=definition), run.captured()):
        assert state.loss_scale == {"scale": 16, "good_steps": 2} and state.updates == STEPS


# Keras


def build(module, optimizer, compiled=True):
    """Returns a compiled model. One with a stock optimizer runs eagerly, where it can: compiling takes seconds."""
    harness.clear_session(module)
    model = module.models.Sequential()
    if keras_major(module) >= 3:
        model.add(module.Input((3,)))
        model.add(module.layers.Dense(2, name="output"))
    else:
        model.add(module.layers.Dense(2, name="output", input_shape=(3,)))
    made = optimizer()
    can_be_eager = api_of(module.optimizers.Adam) in ("update_step", "keras3")
    on_jax = keras_major(module) >= 3 and module.backend.backend() == "jax"
    # Keras 3.0 cannot jit two of its own optimizers, see stock.stock_way.
    cannot_jit = on_jax and module.__version__.startswith("3.0.")
    eagerly = can_be_eager and (cannot_jit or not compiled or not hasattr(made, "everstep_plan"))
    model.compile(optimizer=made, loss="mse", **({"run_eagerly": True} if eagerly else {}))
    model.set_weights([KERNEL, BIAS])
    return model


def train(model):
    for _ in range(STEPS):
        model.train_on_batch(INPUTS, OUTPUTS)
    return model.get_weights()


def extensions_for_training(api):
    """Returns those of models and weights that stock loads for training. Keras 3 does not do it for `.h5`."""
    return [each for each in extensions_of(api) if (api, each) != ("keras3", ".h5")]


def keras_cases():
    for label, module in KERASES:
        api = api_of(module.optimizers.Adam)
        backend = module.backend.backend() if api == "keras3" else "function"
        way = Way(" ".join([api, backend]), api, True)
        for name, rate, arguments in stock.KERAS:
            # Ftrl of TF 1.14 cannot be saved: its get_config raises.
            no_config = name == "Ftrl" and tensorflow and tensorflow.__version__.startswith("1.14.")
            if stock.has_class(module.optimizers, name) and not no_config:
                for extension in extensions_for_training(api):
                    yield label, module, way, name, rate, arguments, extension


def made_by(module, name, rate, arguments):
    """Returns (a stock optimizer, its arguments): only the arguments that this version takes."""
    taken = getattr(module.optimizers, name)().get_config()
    known = {key: value for key, value in arguments.items() if key in taken}
    return stock_optimizer(module.optimizers, name, dict(known, learning_rate=rate)), known


@pytest.mark.parametrize(
    "label, module, way, name, rate, arguments, extension", harness.share(list(keras_cases()), 2), ids=ids)
def test_keras(label, module, way, name, rate, arguments, extension, tmp_path):
    path, template, again = [str(tmp_path / (kind + extension)) for kind in ("model", "template", "again")]
    harness.clear_session(module)
    known = made_by(module, name, rate, arguments)[1]

    def make():
        return made_by(module, name, rate, arguments)[0]

    def started():
        model = build(module, make)
        model.train_on_batch(INPUTS, OUTPUTS)
        return model

    model = build(module, make)
    train(model)
    save(model, path)
    expected = train(model)
    save(started(), template)
    how = {}
    if extension == ".weights.h5":
        known.pop("relative_step", None)
        how["optimizer"] = spelled(name, dict(known, learning_rate=rate))
    state = everstep.read_checkpoint(path, **how)
    saved = way.target != "get_updates" or state.updates  # Keras before 2.3 does not always save a count
    assert not saved or state.updates == STEPS
    definition = everstep.Definition.from_config(state.definition)
    ours = build(module, lambda: definition.bind(module))
    everstep.restore(ours.optimizer, state, ours.trainable_weights, by_order=True, weights=True)
    near(train(ours), expected, way, name)

    everstep.write_checkpoint(state, again, FORMAT[extension], template=template)
    if extension == ".weights.h5":
        model = started()
        model.load_weights(again)
    else:
        harness.clear_session(module)
        model = module.models.load_model(again)
    near(train(model), expected, way, name)


@pytest.mark.shared(False)
def test_every_entry_of_the_table_has_a_case():
    cases = {("tf_train", name) for name, _, _ in TRAIN}
    cases.update((entry.target, name) for name, _, _ in stock.KERAS for entry in STOCK if entry.native == name)
    assert {(entry.target, entry.native) for entry in STOCK} == cases


WITH_MUON = [pair for pair in KERASES if stock.has_class(pair[1].optimizers, "Muon")]


@pytest.mark.parametrize("extension", [".keras", ".weights.h5"])
@pytest.mark.parametrize("exclude", [[], ["last"]])
@pytest.mark.parametrize("whose", ["stock", "everstep"])
@pytest.mark.parametrize("label, module", WITH_MUON, ids=ids)
def test_slots_that_go_by_name(label, module, whose, exclude, extension, tmp_path):
    """In Muon an embedding has more slots than a kernel of its shape, and so have layers that it excludes."""
    path = str(tmp_path / ("model" + extension))
    optimizer = module.optimizers.Muon(0.1, exclude_layers=exclude)
    if whose == "everstep":
        optimizer = migrate(optimizer).replace(dense_ok=True).bind(module)
    model = module.models.Sequential([module.Input((1,), dtype="int32"), module.layers.Embedding(4, 4),
                                      module.layers.Flatten(), module.layers.Dense(4, name="hidden"),
                                      module.layers.Dense(3, name="last")])
    model.compile(optimizer, "mse")
    model.train_on_batch(np.arange(4)[:, None], np.ones((4, 3)))
    save(model, path)
    live = everstep.capture(optimizer, model.trainable_weights)
    assert [sorted(slots) for slots in live.slots.values()] == [
        ["m", "v"], ["m"], ["m", "v"], ["m", "v"] if exclude else ["m"], ["m", "v"]]
    how = {}
    if extension == ".weights.h5":  # it has neither a config nor the order of the layers
        how["variables"] = ["embedding/0", "dense/0", "dense/1", "dense_1/0", "dense_1/1"]
        how["optimizer"] = "Muon(learning_rate=0.1, exclude_layers={!r})".format(exclude)
        if whose == "everstep":
            how["definition"] = everstep.from_native(optimizer)
            del how["optimizer"]
    state = everstep.read_checkpoint(path, **how)
    check_slots(state, live)


EMA, WINDOW = {"use_ema": True, "ema_momentum": 0.5}, {"gradient_accumulation_steps": 2}


def argument_cases():
    for label, module in KERASES:
        api = api_of(module.optimizers.Adam)
        taken = module.optimizers.Adam().get_config() if api in ("update_step", "keras3") else {}
        has_checkpoints = api == "update_step" or api == "keras3" and module.backend.backend() == "tensorflow"
        # Before Keras 3.5, rules that need the count of updates get that of calls: see tests/test_from_native.py.
        counts_calls = api == "keras3" and Version(pytest.importorskip("keras").__version__) < Version("3.5")
        for native in (EMA, WINDOW, dict(EMA, **WINDOW)):
            for name in ("SGD", "Adafactor") if set(native) <= set(taken) else ():
                if stock.has_class(module.optimizers, name) and not (name == "Adafactor" and counts_calls):
                    for extension in extensions_for_training(api) + [".index"] * has_checkpoints:
                        yield label, module, name, native, extension


@pytest.mark.parametrize("label, module, name, native, extension", list(argument_cases()), ids=ids)
def test_arguments_of_every_class(label, module, name, native, extension, tmp_path):
    """Stock keeps averages and sums of gradients before the slots of its class, in an order that versions change."""
    path, template, again = [str(tmp_path / (kind + extension)) for kind in ("model", "template", "again")]
    arguments = dict({"momentum": 0.9} if name == "SGD" else {}, learning_rate=0.05)

    def make(beside=native):
        return stock_optimizer(module.optimizers, name, dict(arguments, **beside))

    model, has_both = build(module, make), len(native) == 3
    train(model)
    if extension == ".index":
        path = tensorflow.train.Checkpoint(model=model).write(path)
        if not any("optimizer" in key for key, _ in tensorflow.train.list_variables(path)):
            pytest.skip("Keras 3.0 leaves its optimizer out: https://github.com/keras-team/keras/issues/19321")
    else:
        save(model, path)
    if has_both:  # no definition averages at each call and updates at the second one: see docs/from_native.md
        definition = everstep.moving_average(everstep.accumulate(migrate(make({})), 2), 0.5)
    else:
        definition = migrate(make())
    state = everstep.read_checkpoint(path, definition=definition)
    counts = (2, 1) if "gradient_accumulation_steps" in native else (STEPS, 0)
    assert (state.updates, state.pending) == counts
    check_beside(state, model.optimizer)
    if extension != ".index" and not has_both:
        fresh = build(module, make)
        fresh.train_on_batch(INPUTS, OUTPUTS)
        save(fresh, template)
        everstep.write_checkpoint(state, again, FORMAT[extension], template=template)
        state = everstep.read_checkpoint(again, definition=definition)
        assert (state.updates, state.pending) == counts
        check_beside(state, model.optimizer)
    if not has_both:
        ours = build(module, lambda: definition.bind(module))
        everstep.restore(ours.optimizer, state, ours.trainable_weights, by_order=True, weights=True)
        expected, actual = train(model), train(ours)
        near(actual, expected, Way("keras3 function", "keras3", True), name)
        check_beside(everstep.capture(ours.optimizer, ours.trainable_weights), model.optimizer, 1e-5)


def check_beside(state, optimizer, bound=0.0):
    """Checks the averages and sums in a state by those that a stock optimizer holds."""
    held = {AVERAGE: getattr(optimizer, "_model_variables_moving_average", None),
            "accumulate/sum": getattr(optimizer, "_accumulated_gradients", None)}
    held = {slot: [value.numpy() for value in values] for slot, values in held.items() if values}
    assert held and set(held) <= set(next(iter(state.slots.values())))
    for slot, values in held.items():
        actual = [np.asarray(slots[slot]) for slots in state.slots.values()]
        values = sorted(values, key=lambda value: -value.ndim)  # a checkpoint by object has its own order
        actual = sorted(actual, key=lambda value: -value.ndim)
        assert oracle.distance(np.concatenate(list(map(np.ravel, actual))),
                               np.concatenate(list(map(np.ravel, values)))) <= bound, slot


# Optimizers that everstep bound, with slots of other shapes than the variable's, or with no slots.
OWN = [Adafactor(0.1, dense_ok=True), AdagradDecay(0.1), AdamMini(0.1), ConditionalGradient(0.9), NovoGrad(0.1)]
# Wrappers, whose slots come after those of a kernel or a bias, and branches, whose slots go by name.
OWN += [everstep.accumulate(Adafactor(0.1, dense_ok=True), 2), everstep.clip(AdamMini(0.1), percentile=30)]
OWN += [everstep.partition({"one": ("kernel", SGD(0.1, momentum=0.9))}, default=Adam(0.1)),
        everstep.accumulate(everstep.partition({"one": ("kernel", SGD(0.1))}, default=Adam(0.1)), 2)]
OWN += [everstep.moving_average(everstep.partition({"one": ("kernel", rule), "other": ("bias", NovoGrad(0.1))}))
        for rule in OWN[:2]]


def bound_cases():
    rules = {"SGD": SGD(0.05, momentum=0.9), "Adafactor": Adafactor(0.05, dense_ok=True),
             "Muon": Muon(0.05, dense_ok=True), "partition": OWN[-4]}
    for label, module in KERASES:
        api = api_of(module.optimizers.Adam)
        taken = module.optimizers.Adam().get_config() if api in ("update_step", "keras3") else {}
        for native in (EMA, WINDOW, dict(EMA, **WINDOW)):
            for name in sorted(rules) if set(native) <= set(taken) else ():
                for extension in extensions_for_training(api) + [".index"] * (api == "update_step"):
                    yield label, module, rules[name], native, extension


@pytest.mark.parametrize("label, module, rule, native, extension", list(bound_cases()), ids=ids)
def test_arguments_of_every_class_that_everstep_bound(label, module, rule, native, extension, tmp_path):
    """The base class keeps averages and sums for our optimizers too, between our counters and our slots."""
    path, has_both = str(tmp_path / ("model" + extension)), len(native) == 3
    model = build(module, lambda: rule.bind(module, **native), compiled=False)
    train(model)
    if extension == ".index":
        path = tensorflow.train.Checkpoint(model=model, optimizer=model.optimizer).write(path)
    else:
        save(model, path)
    definition = everstep.moving_average(everstep.accumulate(rule, 2), 0.5)
    if not has_both:
        definition = everstep.from_native(model.optimizer)
        assert definition != rule
    how = {"variables": ["output/kernel", "output/bias"]} if extension == ".weights.h5" else {}
    if extension in (".weights.h5", ".index"):  # nothing in them says which optimizer it is
        plain = "{}, give definition=everstep.{}".format(
            " and ".join(["use_ema=True"] * ("use_ema" in native) + sorted(WINDOW) * (set(WINDOW) <= set(native))),
            "moving_average" if "use_ema" in native else "accumulate")
        with pytest.raises((everstep.errors.FileError, everstep.errors.StateError), match=plain):
            everstep.read_checkpoint(path, definition=rule, **how)
        how["definition"] = definition
    elif has_both:
        with pytest.raises(everstep.errors.UnsupportedError, match="use_ema with gradient_acc.*Give definition="):
            everstep.read_checkpoint(path)
        how["definition"] = definition
    state = everstep.read_checkpoint(path, **how)
    assert everstep.Definition.from_config(state.definition) == definition
    assert (state.updates, state.pending) == ((2, 1) if "gradient_accumulation_steps" in native else (STEPS, 0))
    check_beside(state, model.optimizer)
    read = [np.asarray(value) for slots in state.slots.values() for slot, value in slots.items()
            if slot not in (AVERAGE, "accumulate/sum")]
    live = [value.numpy() for value in model.optimizer._variables][-len(read):]
    assert list(map(np.shape, read)) == list(map(np.shape, live)) and all(map(np.array_equal, read, live))
    if not has_both:
        ours = build(module, lambda: definition.bind(module), compiled=False)
        ours.set_weights(model.get_weights())
        everstep.restore(ours.optimizer, state, ours.trainable_weights, by_order=True)
        assert oracle.distance(*[np.concatenate(list(map(np.ravel, train(each)))) for each in (ours, model)]) <= 1e-5


def check_slots(state, live, order=list):
    """Compares the slots of two states whose variables have other names, in order."""
    assert len(state.slots) == len(live.slots)
    for (_, actual), (_, expected) in zip(order(state.slots.items()), order(live.slots.items())):
        harness.assert_same_arrays(everstep.State(slots={"": actual}), everstep.State(slots={"": expected}))


def own_cases():
    for label, module in KERASES:
        api = api_of(module.optimizers.Adam)
        for definition in OWN:
            for extension in extensions_for_training(api):
                yield label, module, definition, extension
            if api in ("optimizer_v2", "update_step") and tensorflow.executing_eagerly():
                yield label, module, definition, ".index"


@pytest.mark.parametrize("label, module, definition, extension", list(own_cases()), ids=ids)
def test_our_own_slots(label, module, definition, extension, tmp_path):
    """In Adafactor a kernel has rows and columns, its bias a whole second moment; a file by position has both."""
    path = str(tmp_path / ("model" + extension))
    model = build(module, lambda: definition.bind(module), compiled=False)
    train(model)
    if extension == ".index":
        path = tensorflow.train.Checkpoint(model=model, optimizer=model.optimizer).write(path)
    else:
        save(model, path)
    how = {"definition": definition} if extension in (".index", ".weights.h5") else {}
    if extension == ".weights.h5":
        how["variables"] = ["output/kernel", "output/bias"]
    state = everstep.read_checkpoint(path, **how)
    assert STEPS in (state.updates, state.steps)
    live = everstep.capture(model.optimizer, model.trainable_weights)
    check_slots(state, live, sorted if extension == ".index" else list)


@pytest.mark.parametrize("definition", OWN if tensorflow is not None else [], ids=ids)
def test_our_own_slots_in_saver(definition, tmp_path):
    run, path = Session(definition), str(tmp_path / "model")
    run.train()
    run.save(path)
    check_slots(everstep.read_checkpoint(path, definition=definition), run.captured(), sorted)
