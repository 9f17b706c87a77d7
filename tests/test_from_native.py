"""`from_native` follows every stock optimizer of this environment, step by step, on dense and sparse gradients."""

from __future__ import absolute_import, division, print_function

import functools
import itertools
import re
import warnings
from collections import OrderedDict

import numpy as np
import pytest
from packaging.version import Version

import everstep
import harness
import stock
from crafted_files import tensorflow as tf
from everstep.errors import UnsupportedError
from everstep.testing import oracle
from everstep.testing.training import KINDS, make_batches
from stock import BOUND, KIND_OF, accepts_arguments, allowed, cases, kinds_for, make_stock, migrate, run, stock_class
from test_battery import ids, start_values

# Stock Keras 2 converts them, and TensorFlow says so.
pytestmark = [pytest.mark.shared, pytest.mark.filterwarnings("ignore:Converting sparse IndexedSlices:UserWarning")]
HALVED = {"class_name": "ExponentialDecay",
          "config": {"initial_learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.5, "staircase": False}}
RESULTS = {}  # (stock optimizer and arguments, way, kind of gradient) -> distance after 100 steps


@pytest.mark.parametrize("way, name, rate, arguments", harness.share(list(cases()), 2), ids=ids)
def test_follows_stock(way, name, rate, arguments):
    if not accepts_arguments(way, name, rate, arguments):
        arguments = {key: value for key, value in arguments.items() if key in ("epsilon", "nesterov")}
    kinds = kinds_for(way, name)
    expected = run(stock.stock_way(way, name, arguments), lambda: make_stock(way, name, rate, arguments), kinds=kinds)
    weights = run(way, lambda: migrate(make_stock(way, name, rate, arguments)).bind(way.module), kinds=kinds)
    for variable, kind in KIND_OF.items():
        if kinds[variable] == harness.NONE:
            continue
        far = oracle.distance(weights[variable], expected[variable])
        key = " ".join([name] + ["{}={}".format(*item) for item in sorted(arguments.items())]), way.name, kind
        RESULTS[key] = max(far, RESULTS.get(key, 0.0))
        assert far <= allowed(way, name, kind)[0], (variable, far)


ASCENDING = re.compile(
    "(Adadelta|Adagrad|Ada[mM]ax|Adam|AddSign|GradientDescent|Momentum|Nadam|PowerSign|RMS[pP]rop|SGD)(Optimizer)?$")
FIRST_CASES = OrderedDict()  # the first arguments of each class, in one way for each API
for case in cases():
    if ASCENDING.match(case[1]):
        FIRST_CASES.setdefault((case[0].target, case[1]), case)


@pytest.mark.parametrize("way, name, rate, arguments", list(FIRST_CASES.values()), ids=ids)
def test_follows_stock_that_ascends(way, name, rate, arguments):
    """Programs of reinforcement learning give AdamOptimizer(-rate) the policy's gradients."""
    kinds = kinds_for(way, name)
    expected, got = stock_and_ours(way, lambda: make_stock(way, name, -0.1 * rate, arguments), 5, kinds)
    for variable, kind in KIND_OF.items():
        assert oracle.distance(got[variable], expected[variable]) <= allowed(way, name, kind)[0], variable


DENSE_ONLY = {
    (way.name, name): (way, name, rate, more) for way, name, rate, more in cases() if not stock.takes_sparse(way, name)}


@pytest.mark.parametrize("way, name, rate, arguments", list(DENSE_ONLY.values()), ids=ids)
def test_stock_fails_on_sparse_gradients(way, name, rate, arguments):
    """Whatever is compared on dense gradients alone does fail on sparse ones. The definition takes them."""
    with pytest.raises((AttributeError, NotImplementedError, tf.errors.InvalidArgumentError)):
        run(way, lambda: make_stock(way, name, rate, arguments), steps=1)
    for values in run(way, lambda: migrate(make_stock(way, name, rate, arguments)).bind(way.module), steps=1).values():
        assert np.isfinite(values).all()


FIRST_WAYS = {way.target: way for way in reversed(harness.all_ways())}
# A list of name parts becomes a regular expression, which cannot be converted back.
THERE_AND_BACK = [case for case in cases() if "skip_list" not in case[3]]


@pytest.mark.shared
@pytest.mark.parametrize("way, name, rate, arguments", THERE_AND_BACK, ids=ids)
def test_to_native_config_round_trip(way, name, rate, arguments):
    """The config of `to_native_config` creates a stock optimizer that converts to the same definition."""
    if not accepts_arguments(way, name, rate, arguments):
        return  # only other versions have the argument
    with way.world(way.module):
        definition = migrate(make_stock(way, name, rate, arguments))
        config = definition.to_native_config(way.module)
        again = migrate(stock.counted(stock_class(way, config["class_name"]), **config["config"]))
        assert again == definition and again.bind(way.module).definition == definition


@pytest.mark.parametrize("way", [way for way in FIRST_WAYS.values() if way.stock is not None], ids=ids)
def test_no_way_back(way):
    for definition, word in (
        (everstep.optimizers.DiffGrad(), "no stock optimizer"),
        (everstep.optimizers.SGD(everstep.InverseTimeDecay(0.1)), "no number"),
        (everstep.optimizers.RMSprop(epsilon_in_root=way.target in ("optimizer_v2", "get_updates")), "epsilon_in_root"),
    ):
        with pytest.raises(UnsupportedError, match=word):
            definition.to_native_config(way.module)


def test_what_is_no_stock_optimizer():
    class Own(object):
        pass

    for wrong in (Own(), everstep.optimizers.Adam(), "adam", None):
        with pytest.raises(UnsupportedError):
            everstep.from_native(wrong)
    for wrong, api in (({"learning_rate": 0.1}, "keras3"), ({"class_name": "Adam", "config": {}}, "no API")):
        with pytest.raises(everstep.errors.ConfigError):
            everstep.from_native(wrong, api)
    with pytest.raises(UnsupportedError, match="no stock optimizer Unknown"):
        everstep.from_native({"class_name": "Unknown", "config": {}}, "keras3")


@pytest.mark.parametrize("config, words", [
    ({"use_ema": True, "ema_momentum": 0.9, "gradient_accumulation_steps": 4}, "use_ema with gradient_accumulation_st"),
    ({"gradient_accumulation_steps": 4, "learning_rate": HALVED}, "gradient_accumulation_steps with a schedule"),
    ({"adaptive_epsilon": True}, "adaptive_epsilon: epsilon is then times")])
def test_what_cannot_be_said(config, words):
    with pytest.raises(UnsupportedError, match=words):
        migrate({"class_name": "Adam", "config": dict({"learning_rate": 0.1}, **config)}, "update_step")


CONTRIB_WAYS = [way for way in FIRST_WAYS.values() if way.target == "tf_train" and stock_class(way, "AddSignOptimizer")]


@pytest.mark.parametrize("way", CONTRIB_WAYS, ids=ids)
def test_a_function_of_global_step(way):
    optimizer = stock_class(way, "AddSignOptimizer")(sign_decay_fn=max)
    with pytest.raises(UnsupportedError, match="sign_decay_fn: it is a function"):
        everstep.from_native(optimizer)


@pytest.mark.parametrize("way", CONTRIB_WAYS, ids=ids)
def test_the_moving_average_of_contrib(way):
    def trained(make):
        with tf.Graph().as_default(), tf.Session() as session:
            variable = tf.get_variable("variable", initializer=[1.0, -2.0])
            grad = tf.placeholder(tf.float32, [2])
            optimizer = make()
            step = optimizer.apply_gradients([(grad, variable)])
            average = getattr(optimizer, "_ema", None)
            average = average.average(variable) if average else optimizer.get_slot(variable, "moving_average/average")
            session.run(tf.global_variables_initializer())
            for number in range(10):
                session.run(step, {grad: [1.0, number - 4.0]})
            state = everstep.capture(optimizer, [variable], session=session)
            captured = state.slots["variable"]["moving_average/average"]
            return np.concatenate(session.run([variable, average]) + [captured, state.slots["variable"]["velocity"]])

    def stock_average():
        return tf.contrib.opt.MovingAverageOptimizer(tf.train.MomentumOptimizer(0.1, 0.9), 0.8)

    with pytest.warns(UserWarning, match="stock averages all rows"):
        definition = everstep.from_native(stock_average())
    expected = trained(stock_average)
    np.testing.assert_allclose(trained(lambda: definition.bind(way.module)), expected, rtol=BOUND)
    assert np.abs(expected[:2] - expected[2:4]).min() > 0.01 and (expected[2:4] == expected[4:6]).all()


EXTENDED = [("AdagradOptimizer", {}), ("RMSPropOptimizer", {"epsilon": 1e-3}), ("MomentumOptimizer", {"momentum": 0.9})]


@pytest.mark.parametrize("name, arguments", EXTENDED, ids=ids)
@pytest.mark.parametrize("way", [way for way in CONTRIB_WAYS if stock_class(way, "AdamWOptimizer")], ids=ids)
def test_follows_the_weight_decay_of_contrib(way, name, arguments):
    """It decays the rows present of a sparse gradient, of a ref variable each as often as it occurs there."""
    extended = tf.contrib.opt.extend_with_decoupled_weight_decay(getattr(tf.train, name))
    kinds = dict(kinds_for(way, "MomentumWOptimizer"), duplicates=harness.DENSE)  # its decay is this one

    def make():
        return extended(0.01, learning_rate=0.1, **arguments)

    expected, weights = stock_and_ours(way, make, 100, kinds)
    plain = run(way, lambda: getattr(tf.train, name)(0.1, **arguments), kinds=kinds)
    for variable in kinds:
        if kinds[variable] != harness.NONE:
            assert oracle.distance(weights[variable], expected[variable]) <= BOUND, variable
            assert oracle.distance(weights[variable], plain[variable]) > 1e-3, variable


def test_arguments_that_are_not_given_are_stock_s_own():
    """In Keras 2, Adagrad has another learning rate than in any other API, and its accumulator starts at 0."""
    definition = migrate({"class_name": "Adagrad", "config": {}}, "get_updates")
    assert definition == everstep.optimizers.Adagrad(0.01, epsilon=1e-7, initial_accumulator_value=0.0)


def test_warns_once(monkeypatch):
    monkeypatch.setattr(stock.from_native_room, "_warned", set())
    for target, name, words in (
        ("update_step", "Nadam", "momentum product"), ("keras3", "Adam", "equal rows"),
        ("keras3", "ScheduleFreeAdamW", "except on JAX"), ("get_updates", "Adam", "at random"),
        ("tf_train", "LARSOptimizer", "before TF 1.15 its ratio is outside of the velocity")):
        config = {"class_name": name, "config": {"learning_rate": 0.1}}
        with pytest.warns(UserWarning, match=words):
            first = everstep.from_native(config, target)
        assert everstep.from_native(config, target) == first  # a second warning would be an error


WRAPPED = [everstep.clip(everstep.optimizers.Lion(0.1), norm=0.5),
           everstep.clip(everstep.decoupled_weight_decay(everstep.optimizers.SGD(0.1), 0.01), global_norm=0.5),
           everstep.decoupled_weight_decay(everstep.optimizers.Adafactor(0.1), 0.01),
           everstep.accumulate(everstep.decoupled_weight_decay(everstep.optimizers.Ftrl(0.1), 0.01), 4),
           everstep.accumulate(everstep.clip(everstep.optimizers.Adam(0.1), norm=0.5), 4)]


@pytest.mark.parametrize("way", [way for way in FIRST_WAYS.values() if way.stock is not None], ids=ids)
@pytest.mark.parametrize("definition", WRAPPED, ids=lambda value: value._short()[:40])
def test_wrappers_round_trip(way, definition):
    """The arguments that new-style Keras and Keras 3 have for wrappers convert back to the same definition."""
    if way.target not in ("update_step", "keras3") or "Accumulate" in str(definition) and way.target != "keras3":
        with pytest.raises(UnsupportedError, match="no stock optimizer"):
            definition.to_native_config(way.module)
        return
    config = definition.to_native_config(way.module)
    assert migrate(config, way.module) == definition


def test_two_wrappers_cannot_share_one_argument():
    """Two wrappers that map to the same argument of the stock optimizer."""
    keras_3 = FIRST_WAYS.get("keras3")
    if keras_3 is None:
        return
    twice = everstep.decoupled_weight_decay(everstep.optimizers.AdamW(0.1), 0.01)
    bounds = everstep.clip(everstep.optimizers.SGD(0.1), norm=0.5, value=0.5)
    for definition in (twice, bounds):
        with pytest.raises(UnsupportedError):
            definition.to_native_config(keras_3.module)


@pytest.mark.parametrize("way", [way for way in FIRST_WAYS.values() if way.target == "tf_train"], ids=ids)
def test_stock_without_a_definition_is_refused(way):
    refused = type(str("SGLDOptimizer"), (way.stock.Optimizer,), {"__module__": "tensorflow.contrib.opt"})
    with pytest.raises(UnsupportedError, match="no definition for .*SGLDOptimizer: its noise"):
        everstep.from_native(refused(False, "name"))


@pytest.mark.filterwarnings("ignore:stock Keras 3 on TensorFlow applies equal rows:UserWarning")
def test_an_older_muon_is_refused():
    """The Muon of Keras 3.10 to 3.13 has no rms_rate and is another rule under the same name."""
    config = {"learning_rate": 0.1, "adam_lr_ratio": 0.1, "ns_steps": 6, "weight_decay": 0.1}
    with pytest.raises(UnsupportedError, match="no definition for Muon without rms_rate: .* 3.14 or newer"):
        everstep.from_native({"class_name": "Muon", "config": config}, "keras3")
    newer = everstep.from_native({"class_name": "Muon", "config": dict(config, rms_rate=0.2)}, "keras3")
    assert newer == everstep.optimizers.Muon(0.1, adam_rate_ratio=0.1, ns_steps=6, weight_decay=0.1)
    for way in keras_ways():
        if hasattr(way.stock, "Muon") and not stock.has_class(way.stock, "Muon"):
            with pytest.raises(UnsupportedError, match="Muon without rms_rate"):
                everstep.from_native(way.stock.Muon())


def test_everstep_optimizers_return_their_definition():
    bound = everstep.accumulate(everstep.optimizers.Adam(0.1), 3).bind(np)
    bound.learning_rate = 0.5
    assert everstep.from_native(bound) == everstep.accumulate(everstep.optimizers.Adam(0.5), 3)
    decayed = everstep.optimizers.LAMB(0.1, weight_decay=0.5)  # its own decay, of which nothing is excluded
    assert everstep.from_native(decayed.bind(np)) == decayed


def stock_and_ours(way, make, steps=20, kinds=KINDS):
    """Returns the weights after training with a stock optimizer, and with what from_native makes of it."""
    return run(way, make, steps, kinds), run(way, lambda: migrate(make()).bind(way.module), steps, kinds)


KERAS_WAYS = [way for name, way in sorted(FIRST_WAYS.items()) if name not in ("arrays", "tf_train")]


@pytest.mark.parametrize("way", KERAS_WAYS, ids=ids)
def test_bound_optimizers_with_keywords_return_wrappers(way):
    if way.target == "get_updates":
        harness.clear_session(way.module)
    bound = everstep.optimizers.SGD(0.1).bind(way.module, clipvalue=0.5)
    assert everstep.from_native(bound) == everstep.clip(everstep.optimizers.SGD(0.1), value=0.5)


def keras_ways():
    return [way for way in harness.all_ways() if way.target not in ("tf_train", "arrays")]


@pytest.mark.parametrize("way", [way for way in keras_ways() if way.target in ("update_step", "keras3")], ids=ids)
def test_follows_use_ema(way):
    """The variables become their averages at each third update, so averages that differ would show in them."""
    arguments = {"momentum": 0.9, "use_ema": True, "ema_momentum": 0.8, "ema_overwrite_frequency": 3}
    kinds = dict.fromkeys(KINDS, harness.DENSE)  # in TF 2.11 stock mixes up averages if a variable has no gradient
    definition = migrate(make_stock(way, "SGD", 0.1, arguments))
    assert (definition.average_decay, definition.overwrite_every) == (0.8, 3)
    assert migrate(definition.to_native_config(way.module), way.module) == definition
    stock, ours = stock_and_ours(way, lambda: make_stock(way, "SGD", 0.1, arguments), 20, kinds)
    plain = run(way, lambda: make_stock(way, "SGD", 0.1, {"momentum": 0.9}), 20, kinds)
    for name in KINDS:
        assert oracle.distance(ours[name], stock[name]) <= BOUND, name
        assert oracle.distance(plain[name], stock[name]) > 0.01, name


DENSE = {name: kind if kind == harness.DENSE else harness.NONE for name, kind in KINDS.items()}


@pytest.mark.parametrize("name, arguments", [("SGD", {"momentum": 0.9}), ("Adamax", {})])
@pytest.mark.parametrize("way", [way for way in keras_ways() if way.target == "keras3"], ids=ids)
def test_follows_accumulation(way, name, arguments):
    import keras

    arguments = dict(arguments, gradient_accumulation_steps=2)
    counts_calls = name == "Adamax" and Version(keras.__version__) < Version("3.5")  # a fault of stock
    with warnings.catch_warnings(record=True) as warned:
        warnings.filterwarnings("ignore", ".* equal rows")
        warnings.filterwarnings("always", ".* counts calls")
        definition = everstep.from_native(make_stock(way, name, 0.1, arguments))
    assert [each.filename for each in warned] == [__file__] * counts_calls, warned
    kinds = dict.fromkeys(KINDS, harness.DENSE)  # Keras 3.0 mixes up sums if a variable has no gradient
    stock = run(way, lambda: make_stock(way, name, 0.1, arguments), 20, kinds)
    ours = run(way, lambda: definition.bind(way.module), 20, kinds)
    apart = [oracle.distance(ours[variable], stock[variable]) for variable in kinds]
    assert min(apart) > 1e-3 if counts_calls else max(apart) <= BOUND, apart


@pytest.mark.parametrize("name", ["Adam", "AdamW", "Muon"])
@pytest.mark.parametrize("way", keras_ways(), ids=ids)
def test_follows_what_has_no_weight_decay(way, name):
    def make(excluded=True):
        optimizer = make_stock(way, name, 0.1, arguments)
        if excluded:
            optimizer.exclude_from_weight_decay(var_names=["bias"])
        return optimizer

    arguments = {"weight_decay": 0.1, "epsilon": 1e-3}
    arguments.update({"adam_weight_decay": 0.1} if name == "Muon" else {})
    if not accepts_arguments(way, name, 0.1, arguments) or not hasattr(make(False), "exclude_from_weight_decay"):
        return  # only newer Kerases have it
    (stock, ours), decayed = stock_and_ours(way, make, 20, DENSE), run(way, lambda: make(False), 20, DENSE)
    for each in ("dense", "bias", "single"):
        assert oracle.distance(ours[each], stock[each]) <= 5e-5, each  # stock rounds 1 - beta_2^t to float32
    assert oracle.distance(decayed["bias"], stock["bias"]) > 0.01


CLIPS = [{"clipvalue": 0.5}, {"clipnorm": 0.5}, {"global_clipnorm": 0.5}]


@pytest.mark.parametrize("way, clip", list(itertools.product(keras_ways(), CLIPS)), ids=ids)
def test_follows_clipping(way, clip):
    """On dense gradients and unique rows: stock clips equal rows separately, which changes the global norm too."""
    arguments = dict(clip, momentum=0.9)
    if not accepts_arguments(way, "SGD", 0.1, arguments):
        assert "global_clipnorm" in clip
        return
    kinds = dict(KINDS, duplicates=harness.NONE)
    stock, ours = stock_and_ours(way, lambda: make_stock(way, "SGD", 0.1, arguments), 20, kinds)
    plain = run(way, lambda: make_stock(way, "SGD", 0.1, {"momentum": 0.9}), 20, kinds)
    # OptimizerV2 before 2.4 does not clip in apply_gradients. The definition follows the arguments.
    unclipped = all(np.array_equal(stock[name], plain[name]) for name in KINDS)
    assert not unclipped or way.target == "optimizer_v2"
    for name in KIND_OF:
        far = oracle.distance(ours[name], stock[name])
        assert (far > 0.01 if unclipped else far <= BOUND) or kinds[name] == harness.NONE, name


@pytest.mark.parametrize("way", [way for way in FIRST_WAYS.values() if way in keras_ways() and way.sparse], ids=ids)
def test_clips_the_sum_of_equal_rows(way):
    """Stock clips each part of a row (see docs/from_native.md). everstep clips the sum.

    tf.keras up to TF 1.13 clips the sum too, because it makes the gradient dense first.
    """
    kinds = dict(KINDS, unique=harness.NONE)
    stock, ours = stock_and_ours(way, lambda: make_stock(way, "SGD", 0.1, {"clipvalue": 0.5}), 20, kinds)
    expected = start_values("float32")["duplicates"].astype("float64")
    for batch in make_batches("float32", 20, kinds=kinds):
        values, rows = batch["duplicates"]
        whole = np.zeros_like(expected)
        np.add.at(whole, rows, values)
        expected -= np.float32(0.1) * np.clip(whole, -0.5, 0.5)
    assert oracle.distance(ours["duplicates"], expected) <= BOUND
    far, made_dense = oracle.distance(stock["duplicates"], expected), way.name == "get_updates tf.keras"
    assert far <= BOUND if made_dense else far > 0.01


def schedules_of(way):
    holder = way.stock.schedules
    yield holder.ExponentialDecay(0.2, 30, 0.5)
    yield holder.ExponentialDecay(0.2, 30, 0.5, staircase=True)
    yield holder.InverseTimeDecay(0.2, 30, 0.5)
    yield holder.PolynomialDecay(0.2, 40, 0.05, power=2.0, cycle=True)
    yield holder.PolynomialDecay(0.2, 40, 0.05)
    yield holder.PiecewiseConstantDecay([20, 50], [0.2, 0.1, 0.05])
    if hasattr(holder, "CosineDecay"):
        yield holder.CosineDecay(0.2, 70, alpha=0.1)


SCHEDULED = [way for way in keras_ways() if hasattr(way.stock, "schedules") and not way.name.endswith("session")]


@pytest.mark.parametrize("way", SCHEDULED, ids=ids)
def test_follows_schedules(way):
    for schedule in schedules_of(way):
        expected, got = stock_and_ours(way, functools.partial(way.stock.SGD, schedule), 80)
        assert isinstance(migrate(way.stock.SGD(schedule)).learning_rate, everstep.Schedule)
        for name in KIND_OF:
            assert oracle.distance(got[name], expected[name]) <= BOUND, (schedule, name)


@pytest.mark.parametrize("has_config", [True, False])
@pytest.mark.parametrize("way", harness.one_of_each_target(SCHEDULED), ids=ids)
def test_a_schedule_of_a_users_own_stays_on_its_api(way, has_config):
    class Own(way.stock.schedules.LearningRateSchedule):
        def __call__(self, step):
            return 0.25

        if has_config:
            def get_config(self):
                return {}

    optimizer = way.stock.SGD(Own())
    definition = migrate(optimizer)
    assert isinstance(definition.learning_rate, Own)
    got, expected = [run(way, lambda rule=rule: rule.bind(way.module), 3) for rule in
                     (definition, everstep.optimizers.SGD(0.25))]
    for name in KIND_OF:
        assert oracle.distance(got[name], expected[name]) <= BOUND, name
    if not has_config:  # as many schedules on the web; Keras needs it to save one
        with pytest.raises(NotImplementedError):
            optimizer.get_config()
        return
    with pytest.raises(UnsupportedError, match="no schedule .*Own; give the optimizer itself"):
        migrate({"class_name": "SGD", "config": optimizer.get_config()}, way.target)


@pytest.mark.parametrize("target", ["get_updates", "optimizer_v2"])  # the others have no `decay`
def test_decay_is_a_wrapper(target):
    config = {"class_name": "SGD", "config": {"learning_rate": 0.1, "decay": 0.01, "momentum": 0.0, "nesterov": False}}
    definition = migrate(config, target)
    without = dict(config, config=dict(config["config"], decay=0.0))
    assert definition == everstep.rate_decay(migrate(without, target), 0.01)


@pytest.mark.parametrize("way", [way for way in SCHEDULED if way.target == "optimizer_v2"], ids=ids)
def test_follows_the_decay_of_a_schedule(way):
    schedule = next(schedules_of(way))
    expected, got = stock_and_ours(way, functools.partial(way.stock.SGD, schedule, decay=0.1), 20)
    for name in KIND_OF:
        assert oracle.distance(got[name], expected[name]) <= BOUND, name


DECAYING = [way for way in FIRST_WAYS.values() if way.target in ("get_updates", "optimizer_v2")]


@pytest.mark.parametrize("way", DECAYING, ids=ids)
def test_decay_there_and_back(way):
    optimizer = way.stock.SGD(0.1, decay=1e-6, momentum=0.9, nesterov=True)
    config = migrate(optimizer).to_native_config(way.module)
    assert config["config"]["decay"] == 1e-6
    assert migrate(config, way.module) == migrate(optimizer)


@pytest.mark.parametrize("way", DECAYING, ids=ids)
def test_follows_decay_with_a_rate_that_is_set(way):
    """The line of Keras's manual, and a rate that a callback sets. Stock get_updates reads its count early or late."""
    def trained(way, make):
        batches = make_batches("float32", 8)
        each = harness.new_run(way, make, start_values("float32"), KINDS, batches[:4])
        with each.inside():
            each.world.set_hyper(each.optimizer, "lr", 0.05)
        for batch in batches[4:]:
            each.step(batch)
        return each

    def optimizer():
        return way.stock.SGD(0.1, decay=0.1, momentum=0.9, nesterov=True)

    ours = trained(way, lambda: migrate(optimizer()).bind(way.module))
    races = way.target == "get_updates"
    expected = trained(FIRST_WAYS["arrays"], migrate(optimizer())) if races else trained(way, optimizer)
    expected = expected.weights()
    for name, values in ours.weights().items():
        assert oracle.distance(values, expected[name]) <= BOUND, name
    with ours.inside():
        read = [ours.world.read(getattr(ours.optimizer, name)) for name in ("lr", "learning_rate", "decay")]
        now = everstep.current_rate(ours.optimizer, session=ours.world.session)
    assert [round(float(value), 6) for value in read] == [0.05, 0.05, 0.1]
    assert now == pytest.approx(0.05 / 1.8)


@pytest.mark.shared(False)
def test_zz_results():
    """Prints each distance from stock, and writes them for matrix/report.py."""
    harness.write_table("stock", [list(key) + [far] for key, far in sorted(RESULTS.items())])


FUNCTIONS = {  # arguments of which OptimizerV2 takes functions; its config holds their present number
    "momentum 0": ("RMSprop", lambda: {"momentum": lambda: 0.0}),
    "momentum": ("SGD", lambda: {"momentum": lambda: 0.5}),
    "rate": ("SGD", lambda: {"learning_rate": halving()}),
    "beta": ("Adam", lambda: {"beta_1": lambda: 0.5}),
}


def halving():
    """Returns a function that gives 0.1, and 0.05 once `late` is set."""

    def rate():
        return 0.05 if rate.late else 0.1

    rate.late = False
    return rate


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
@pytest.mark.parametrize("way", [way for way in keras_ways() if way.name == "optimizer_v2 eager"], ids=ids)
def test_follows_functions(way, name):
    """Stock RMSprop takes epsilon into the root for any callable momentum, 0 too."""
    stock, make = FUNCTIONS[name]
    results = []
    for migrated in (False, True):
        arguments = dict({"learning_rate": 0.1}, **make())
        optimizer = make_stock(way, stock, arguments.pop("learning_rate"), dict(arguments, epsilon=0.5)
                               if stock != "SGD" else arguments)
        functions = [value for value in optimizer._hyper.values() if hasattr(value, "late")]
        optimizer = migrate(optimizer).bind(way.module) if migrated else optimizer
        weight = tf.Variable([1.0, 2.0])
        for step in range(5):
            for function in functions:
                function.late = step > 2
            optimizer.apply_gradients([(tf.constant([0.5, -0.25]), weight)])
        results.append(weight.numpy())
    assert abs(results[0] - results[1]).max() <= 1e-6


@pytest.mark.parametrize("way", [way for way in keras_ways() if way.name in (
    "optimizer_v2 eager", "update_step eager")], ids=ids)
def test_follows_a_variable(way):
    """An OptimizerV2 reads a variable that is its rate at each step; new-style ones, and TF 1.14, copy its number."""
    results = []
    for migrated in (False, True):
        rate, weight = tf.Variable(0.1), tf.Variable([1.0, 2.0])
        optimizer = way.stock.SGD(rate)
        optimizer = migrate(optimizer).bind(way.module) if migrated else optimizer
        for value in (0.1, 0.5):
            rate.assign(value)
            optimizer.apply_gradients([(tf.constant([0.5, -0.25]), weight)])
        results.append(weight.numpy())
    assert abs(results[0] - results[1]).max() <= 1e-6


@pytest.mark.parametrize("way", [way for way in FIRST_WAYS.values() if way.target == "update_step"], ids=ids)
def test_compiled_stock_nadam_multiplies_its_product_once_for_each_variable(way):
    """Run eagerly, or with one variable, stock does what the definition does."""
    def trained(optimizer, count, compiled, steps=3):
        variables = [tf.Variable([float(number + 1)]) for number in range(count)]
        optimizer.build(variables)

        def step():
            optimizer.apply_gradients([(variable * variable, variable) for variable in variables])

        step = tf.function(step) if compiled else step
        for _ in range(steps):
            step()
        return np.concatenate([variable.numpy() for variable in variables])

    product = {}
    for count in (1, 3):
        eager, compiled = (way.stock.Nadam(0.1) for _ in range(2))
        weights = trained(eager, count, False), trained(compiled, count, True)
        product[count] = eager._u_product.numpy(), compiled._u_product.numpy()
        own = [trained(migrate(way.stock.Nadam(0.1)).bind(way.module), count, each) for each in (False, True)]
        assert max(oracle.distance(each, weights[0]) for each in own) <= BOUND
        assert (oracle.distance(weights[1], weights[0]) <= BOUND) == (count == 1)
    assert product[1][0] == product[1][1] == product[3][0] > 10 * product[3][1]


def test_a_rate_that_is_a_function_on_keras_3():
    way = FIRST_WAYS.get("keras3")
    if way is not None:
        rate = halving()
        assert migrate(way.stock.SGD(rate)).learning_rate is rate
