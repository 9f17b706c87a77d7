"""State as people have it: of live stock optimizers, inside of others, of a part of a model, with other names."""
from __future__ import absolute_import, division, print_function

import contextlib
import copy
import pickle
from collections import OrderedDict

import numpy as np
import pytest

import everstep
import harness
import small_model
import stock
from crafted_files import tensorflow
from crafted_files import tf1 as v1
from everstep import errors
from everstep.testing import oracle
from everstep.testing.training import make_batches
from test_battery import ids, start_values
from test_files_written import KERASES, extensions_of
from test_state import match

pytestmark = [pytest.mark.shared, pytest.mark.filterwarnings("ignore:Converting sparse IndexedSlices:UserWarning")]
WAYS = harness.all_ways()
SHAPES = {"dense": (4, 3), "bias": (3,), "table": (6, 3)}
STEPS = 3
EMA = [("Adam", 0.1, {"use_ema": True, "ema_momentum": 0.9, "epsilon": 1e-3})]
ACCUMULATED = [("SGD", 0.1, {"momentum": 0.9, "gradient_accumulation_steps": 4})]


KINDS = dict.fromkeys(SHAPES, harness.DENSE)
BATCHES = list(make_batches("float32", 2 * STEPS, SHAPES, KINDS))


def trained(way, make, steps, start=None):
    """Returns a run after some steps of a definition, or of the optimizer that a function makes."""
    run = harness.new_run(way, make, start or start_values("float32", SHAPES), KINDS, BATCHES[:steps])
    run.variables = OrderedDict((name, run.variables[name]) for name in run.names)  # stock of Keras 2 goes by order
    return run


def train(run, batches):
    for batch in batches:
        run.step(batch)


def stock_cases():
    cases = [case for case in stock.cases() if stock.stock_way(case[0], case[1], case[3]) is case[0]]
    for way in WAYS:
        newer = EMA if way.target in ("update_step", "keras3") else []
        newer = newer + (ACCUMULATED if way.target == "keras3" and way.name.endswith("eager") else [])
        cases.extend((way,) + case for case in newer if stock.is_available(way, case[0]))
    return cases


def is_followed(way, name):
    bound, cause = stock.allowed(way, name, "dense")
    return cause is None or bound < 1e-4


@pytest.mark.parametrize("way, name, rate, arguments", harness.share(stock_cases(), 16), ids=ids)
def test_a_live_stock_optimizer_is_captured_and_continued(way, name, rate, arguments):
    if not stock.accepts_arguments(way, name, rate, arguments):
        return  # only other versions have the argument
    first = trained(way, lambda: stock.make_stock(way, name, rate, arguments), STEPS)
    state, weights = first.captured(weights=True), first.weights()
    harness.assert_same_arrays(dict(state.variables), weights)
    train(first, BATCHES[STEPS:])
    expected = first.weights()
    if not is_followed(way, name):
        return
    second = trained(way, everstep.Definition.from_config(state.definition), 0, weights)
    second.restored(state)
    train(second, BATCHES[STEPS:])
    for variable, value in second.weights().items():
        assert oracle.distance(value, expected[variable]) <= stock.allowed(way, name, "dense")[0]


TOLD = [case for case in stock_cases() if case[1] in ("GradientDescentOptimizer", "AdamOptimizer", "SGD")
        and not set(case[3]) & {"momentum", "gradient_accumulation_steps"}]


@pytest.mark.parametrize("way, name, rate, arguments", TOLD, ids=ids)
def test_a_live_stock_optimizer_is_told_its_count_if_it_keeps_none(way, name, rate, arguments):
    run = trained(way, lambda: stock.make_stock(way, name, rate, arguments), STEPS)
    if name == "GradientDescentOptimizer":
        before = run.captured().updates  # of global_step, which in eager code is that of the process, or 0
        train(run, BATCHES[:1])
        assert run.captured(updates=9).updates == 9 and run.captured().updates - before in (0, 1)
        return
    with pytest.raises(errors.StateError, match="counts its updates itself; leave out updates="):
        run.captured(updates=9)
    assert run.captured().updates == STEPS


# Files of models as people make them

ZIPS = [pair for pair in KERASES if ".keras" in extensions_of(small_model.api_of(pair[1].optimizers.Adam))]


@pytest.mark.parametrize("name, keras", ZIPS, ids=ids)
def test_a_file_of_a_model_in_a_model(name, keras, tmp_path):
    """Groups in it are `dense`, `dense_1`, ..., or in Keras 2.12 and 2.13 `dense`, `dense_2`, ..."""
    keras.backend.clear_session()
    layer, path = keras.layers.Dense, str(tmp_path / "run.keras")
    inner = keras.Sequential([keras.layers.Input((3,)), layer(4, name="first"), layer(5, name="second")], name="inner")
    norm = keras.layers.BatchNormalization(name="norm")
    model = keras.Sequential([keras.layers.Input((3,)), inner, layer(6, name="third"), norm, layer(2, name="last")])
    model.compile("adam", "mse")  # as most people do; some versions save no more than this name
    fit(model)
    small_model.save(model, path)
    state = everstep.read_checkpoint(path)
    weights = [name + "/" + weight for name in ("first", "second", "third", "norm", "last")
               for weight in (("gamma", "beta") if name == "norm" else ("kernel", "bias"))]
    assert sorted(state.slots) == sorted(weights) and state.updates == STEPS
    live = everstep.capture(model.optimizer, model.trainable_weights, weights=True)
    assert state.definition == live.definition
    trained = {weight: state.variables[weight] for weight in weights}
    harness.assert_same_arrays(state.replace(variables=trained), live.replace(
        slots=dict(zip(weights, live.slots.values())), variables=dict(zip(weights, live.variables.values()))))


# Mixed precision

INPUTS = np.random.RandomState(3).uniform(-1, 1, (8, 3)).astype("float32")
OUTPUTS = np.random.RandomState(4).uniform(-1, 1, (8, 2)).astype("float32")


@contextlib.contextmanager
def float16_policy(keras):
    """Makes new layers and models in the block use mixed precision."""
    mixed = keras.mixed_precision
    holders = [mixed, getattr(mixed, "experimental", None)]
    setters = [getattr(holder, name) for holder in holders for name in ("set_global_policy", "set_policy")
               if hasattr(holder, name)]
    setters[0]("mixed_float16")
    try:
        yield
    finally:
        setters[0]("float32")


def mixed_model(keras, make_optimizer):
    """Returns a compiled model of float16; Keras puts a LossScaleOptimizer around the optimizer."""
    with float16_policy(keras):
        shape = {} if hasattr(keras, "ops") else {"input_shape": (3,)}
        layers = [] if shape else [keras.layers.Input((3,))]
        layers.append(keras.layers.Dense(4, name="hidden", **shape))
        layers.append(keras.layers.Dense(2, name="output", dtype="float32"))
        model = keras.Sequential(layers)
        model.compile(make_optimizer(), "mse")
    random = np.random.RandomState(5)
    model.set_weights([random.uniform(-0.5, 0.5, value.shape).astype("float32") for value in model.get_weights()])
    return model


def fit(model, steps=STEPS):
    model.fit(INPUTS, OUTPUTS, batch_size=8, epochs=steps, verbose=0, shuffle=False)
    return model.get_weights()


def mixed_cases():
    for name, keras in KERASES:
        if hasattr(keras, "mixed_precision") and hasattr(keras, "Sequential") and has_loss_scale(keras):
            extensions = extensions_of(small_model.api_of(keras.optimizers.Adam))
            # Stock of TF 2.11 saves no LossScaleOptimizer, and loads no slots of one from .h5 from then on.
            if ".keras" in extensions or small_model.api_of(keras.optimizers.Adam) == "optimizer_v2":
                yield name, keras, ".keras" if ".keras" in extensions else ".h5"


def has_loss_scale(keras):
    if tensorflow is not None and tensorflow.__version__.startswith("1."):
        return False  # its LossScaleOptimizer cannot be saved
    mixed = keras.mixed_precision
    return any(hasattr(holder, "LossScaleOptimizer") for holder in (mixed, getattr(mixed, "experimental", None)))


RATES = {"learning_rate": 0.125, "momentum": 0.5}
MIXED = list(mixed_cases())


def largest(weights, others):
    return max(oracle.distance(value, other) for value, other in zip(weights, others))


@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")
@pytest.mark.filterwarnings("ignore:The dtype policy mixed_float16 may run slowly")
@pytest.mark.parametrize("name, keras, extension", harness.share(MIXED, max(1, len(MIXED))), ids=ids)
def test_mixed_precision_of_stock_continued_by_ours_and_back(name, keras, extension, tmp_path):
    first, second, third = [str(tmp_path / (each + extension)) for each in ("first", "second", "third")]
    stock_model = mixed_model(keras, lambda: small_model.stock_optimizer(keras.optimizers, "SGD", RATES))
    assert "LossScaleOptimizer" in type(stock_model.optimizer).__name__
    fit(stock_model)
    state = everstep.capture(stock_model.optimizer, stock_model.trainable_weights, weights=True)
    assert state.definition["definition"] == "SGD" and set(state.loss_scale) == {"scale", "good_steps"}
    small_model.save(stock_model, first)
    expected = fit(stock_model)

    from_file = everstep.read_checkpoint(first)
    assert from_file.updates == state.updates and sorted(from_file.scalars) == sorted(state.scalars)
    if hasattr(keras, "ops"):  # Keras 2 saves no scale in models
        assert from_file.loss_scale == state.loss_scale
    for source in (state, from_file):
        definition = everstep.Definition.from_config(source.definition)
        ours = mixed_model(keras, lambda definition=definition: definition.bind(keras))
        everstep.restore(ours.optimizer, source, ours.trainable_weights, weights=True)
        assert largest(fit(ours), expected) <= stock.BOUND
    small_model.save(ours, second)  # a file of ours in Keras's LossScaleOptimizer
    assert everstep.read_checkpoint(second).updates == 2 * STEPS

    again = everstep.capture(ours.optimizer, ours.trainable_weights, weights=True)
    everstep.write_checkpoint(again, third, {".h5": "keras-h5", ".keras": "keras"}[extension], template=first)
    with float16_policy(keras):  # which makes Keras 3 wrap the optimizer
        back = keras.models.load_model(third)
    assert "LossScaleOptimizer" in type(back.optimizer).__name__
    far = largest(back.get_weights(), ours.get_weights())
    if not (tensorflow and tensorflow.__version__.startswith("2.0.")):  # which loads layers without their policy
        far = max(far, largest(fit(back), fit(ours)))
    assert far <= stock.BOUND


@pytest.mark.filterwarnings("ignore:The dtype policy mixed_float16 may run slowly")
@pytest.mark.parametrize("name, keras, extension", MIXED[:1], ids=ids)
def test_a_loss_scale_is_taken_over(name, keras, extension, tmp_path):
    model = mixed_model(keras, lambda: everstep.optimizers.SGD(0.1, momentum=0.9).bind(keras))
    fit(model)
    state = everstep.capture(model.optimizer, model.trainable_weights)
    path = str(tmp_path / "run.npz")
    state.save(path)
    loaded = everstep.State.load(path)
    assert loaded.loss_scale == state.loss_scale and state.loss_scale["good_steps"] == STEPS
    definition = everstep.loss_scale(everstep.optimizers.SGD(0.1, momentum=0.9))
    arrays = OrderedDict((name, np.zeros(slots["velocity"].shape, "f")) for name, slots in state.slots.items())
    optimizer = definition.bind(np)
    everstep.restore(optimizer, loaded, arrays)
    assert optimizer.scale_loss(1.0) == state.loss_scale["scale"]
    scalars = everstep.capture(optimizer, arrays).scalars
    assert scalars["loss_scale/finite"] == state.loss_scale["good_steps"]
    other = mixed_model(keras, lambda: everstep.optimizers.SGD(0.1, momentum=0.9).bind(keras))
    fit(other, 1)
    everstep.restore(other.optimizer, state, other.trainable_weights, by_order=True)
    assert everstep.capture(other.optimizer, other.trainable_weights).loss_scale == state.loss_scale


# Horovod and tf.train's loss scale


def distributed(optimizer):
    """Does what horovod.keras.DistributedOptimizer does: makes a subclass of the same name."""
    methods = {"__module__": "horovod._keras", "get_gradients": lambda self, loss, params: self.super_gradients(loss)}
    subclass = type(type(optimizer).__name__, (type(optimizer),), methods)
    return subclass.from_config(optimizer.get_config())


KERAS_WAYS = [way for way in WAYS if way.target in ("optimizer_v2", "update_step", "keras3") and way.stock is not None]


@pytest.mark.parametrize("way", KERAS_WAYS[:1], ids=ids)
def test_a_subclass_of_horovod(way):
    run = trained(way, lambda: distributed(stock.make_stock(way, "SGD", 0.1, {"momentum": 0.9})), 2)
    state = run.captured()
    assert state.definition["definition"] == "SGD" and state.updates == 2
    own = type("SGD", (type(run.optimizer).__bases__[0],), {"__module__": "mine", "update_step": None, "build": None,
                                                            "_resource_apply_dense": None})
    with pytest.raises(errors.UnsupportedError, match="it has its own"):
        everstep.capture(own(**{"learning_rate": 0.1}), run.variables, run.world.session)


@pytest.mark.parametrize("way", [way for way in WAYS if way.name == "tf_train resource"], ids=ids)
def test_optimizers_around_one_of_tf_train(way):
    """horovod.tensorflow's, and TensorFlow's own for mixed precision."""
    class _DistributedOptimizer(v1.train.Optimizer):
        def __init__(self, optimizer):
            super(_DistributedOptimizer, self).__init__(False, "Distributed")
            self._optimizer = optimizer

        def compute_gradients(self, *args, **kwargs):
            return self._optimizer.compute_gradients(*args, **kwargs)

        def apply_gradients(self, *args, **kwargs):
            return self._optimizer.apply_gradients(*args, **kwargs)

    experimental = getattr(v1.train, "experimental", None)
    scaled = getattr(experimental, "MixedPrecisionLossScaleOptimizer", None)
    wrappers = [_DistributedOptimizer]
    if hasattr(experimental, "DynamicLossScale") and scaled is not None:
        wrappers.append(lambda optimizer: scaled(optimizer, experimental.DynamicLossScale()))
    for wrapper in wrappers:
        for make in (lambda: stock.make_stock(way, "AdamOptimizer", 0.1, {}),
                     lambda: everstep.optimizers.Adam(0.1, epsilon=1e-8).bind(way.module)):
            run = trained(way, lambda wrapper=wrapper, make=make: wrapper(make()), 2)
            with run.inside():
                state = run.captured()
            assert state.updates == 2 and sorted(state.slots["bias"]) == ["m", "v"]
            assert (state.loss_scale is None) == (wrapper is _DistributedOptimizer)


# Names


A, B, C = (3, 3), (3, 2), (2,)
LIKE = {
    "instance numbers": ([("sequential_5/dense_9/kernel", A), ("sequential_5/dense_9/bias", C)],
                         [("sequential_6/dense_12/kernel", A), ("sequential_6/dense_12/bias", C)]),
    "the same layers again": (
        [("dense/kernel", A), ("dense_1/kernel", A)], [("dense_2/kernel", A), ("dense_3/kernel", A)]),
    "numbers above nine": (
        [("dense_10/kernel", A), ("dense_9/kernel", A)], [("dense_12/kernel", A), ("dense_13/kernel", A)]),
    "a prefix dropped": ([("model/a/w", A), ("model/b/w", A)], [("a/w", A), ("b/w", A)]),
    "a prefix added": ([("a/w", A), ("b/w", A)], [("model/a/w", A), ("model/b/w", A)]),
    "another prefix": ([("model/a/w", A), ("model/b/w", A)], [("net/a/w", A), ("net/b/w", A)]),
    "shapes tell": ([("dense_5/kernel", A), ("dense_5/bias", C), ("dense_1/kernel", B), ("dense_1/bias", C)],
                    [("dense_2/kernel", A), ("dense_2/bias", C), ("dense_3/kernel", B), ("dense_3/bias", C)]),
    "others keep their names": (
        [("dense_4/kernel", A), ("output/kernel", A)], [("dense_7/kernel", A), ("output/kernel", A)]),
}
TRUE_PAIRS = {"numbers above nine": [("dense_12/kernel", "dense_9/kernel"), ("dense_13/kernel", "dense_10/kernel")]}


@pytest.mark.parametrize("case", sorted(LIKE))
def test_names_that_differ_by_a_prefix_or_numbers(case):
    olds, news = LIKE[case]
    pairs = TRUE_PAIRS.get(case, [(new, old) for (new, _), (old, _) in zip(news, olds)])
    for ordered in (True, False):
        matching = match(olds, news[::-1], ordered=ordered)
        assert sorted(matching.names.items()) == sorted(pairs), matching
        assert not matching.missing and not matching.unused


UNLIKE = {
    "one name stays and may be another layer": (
        [("dense/kernel", A), ("dense_1/kernel", A)], [("dense_1/kernel", A), ("dense_2/kernel", A)]),
    "the same, downwards": (
        [("dense_1/kernel", A), ("dense_2/kernel", A)], [("dense/kernel", A), ("dense_1/kernel", A)]),
    "no constant shift": (
        [("dense_1/kernel", A), ("dense_5/kernel", A)], [("dense_2/kernel", A), ("dense_3/kernel", A)]),
    "another layer": ([("encoder/kernel", A)], [("head/kernel", A)]),
    "another shape": ([("dense_1/kernel", A)], [("dense_2/kernel", B)]),
    "names of parts": ([("query", A), ("key", A)], [("q", A), ("k", A)]),
}


@pytest.mark.parametrize("case", sorted(UNLIKE))
def test_names_that_leave_two_ways_are_listed(case):
    olds, news = UNLIKE[case]
    with pytest.raises(errors.StateError, match="Not matched: .* with "):
        match(olds, news)
    if case.startswith(("one name", "the same")):
        with pytest.raises(errors.StateError, match="may be another layer"):
            match(olds, news, by_order=True)


def test_no_order_where_a_state_has_none():
    """tf.train.Saver stores names alphabetically: query, key, value come as key, query, value."""
    saved = [("key", A), ("query", A), ("value", A)]
    given = [("q", A), ("k", A), ("v", A)]
    assert match(saved, given, by_order=True).names == {"q": "key", "k": "query", "v": "value"}
    with pytest.raises(errors.StateError, match="key with q or k or v.*by_order cannot help") as raised:
        match(saved, given, by_order=True, ordered=False)
    with pytest.raises(errors.StateError) as advised:
        match(saved, given, ordered=False)
    assert "by_order=True" not in str(advised.value) + str(raised.value)
    assert match([("a", A), ("b", B)], [("x", B), ("y", A)], by_order=True, ordered=False).names == {"x": "b", "y": "a"}


# A part of a model


def adam_state(tmp_path=None, **shape_of):
    arrays = OrderedDict((name, np.ones(shape_of[name], "f")) for name in sorted(shape_of))
    optimizer = everstep.optimizers.Adam(0.1).bind(np)
    for _ in range(3):
        optimizer.apply_gradients([(np.full(array.shape, 0.5, "f"), array) for array in arrays.values()])
    return everstep.capture(optimizer, arrays, weights=True)


def test_a_part_is_restored_and_the_rest_is_named():
    state = adam_state(body=(3, 2), head=(2, 5), gone=(4,))
    arrays = OrderedDict([("body", np.zeros((3, 2), "f")), ("head", np.zeros((2, 7), "f")), ("new", np.zeros(3, "f"))])
    optimizer = everstep.optimizers.Adam(0.1).bind(np)
    with pytest.raises(errors.StateError, match="left unmatched: gone, new|Not matched|needed is"):
        everstep.restore(optimizer, state, arrays)
    report = everstep.restore(optimizer, state, arrays, partial=True, weights=True)
    assert report.restored == ["body"] and list(report.missing) == ["head", "new"]
    assert list(report.unused) == ["gone", "head"] and "(2, 5)" in report.missing["head"]
    assert repr(report).count("not restored") == 2 and repr(report).count("not used") == 2
    after = everstep.capture(optimizer, arrays)
    assert after.updates == 3
    np.testing.assert_array_equal(after.slots["body"]["m"], state.slots["body"]["m"])
    np.testing.assert_array_equal(arrays["body"], state.variables["body"])
    assert not after.slots["head"]["m"].any() and not after.slots["new"]["v"].any()


@pytest.mark.parametrize("way", harness.one_of_each_target(harness.framework_ways()), ids=ids)
def test_a_part_on_every_target(way):
    run = trained(way, everstep.optimizers.SGD(0.1, momentum=0.9), 1)
    state = run.captured()
    run.step(BATCHES[1])
    before, first = run.captured(), run.names[0]
    state.slots["old"] = state.slots.pop(first)
    report = run.restored(state, partial=True)
    assert list(report.missing) == [first] and list(report.unused) == ["old"]
    assert run.captured().updates == 1
    expected = {name: (before if name == first else state).slots[name] for name in run.names}
    harness.assert_same_arrays(run.captured(), everstep.State(slots=expected))


def test_a_part_with_nothing_in_common_is_an_error():
    state, arrays = adam_state(body=(3, 2)), {"head": np.zeros((3, 2), "f")}
    optimizer = everstep.optimizers.Adam(0.1).bind(np)
    for options in ({}, {"by_order": True}):
        with pytest.raises(errors.StateError, match="nothing to restore|exclude each other"):
            everstep.restore(optimizer, state, arrays, partial=True, **options)
    # A head that was replaced: `dense_2` is not `dense_1`, but a prefix of all is undone.
    matching = match([("m/body/w", A), ("m/dense_1/w", A)], [("body/w", A), ("dense_2/w", A)], partial=True)
    assert matching.names == {"body/w": "m/body/w"}
    with pytest.raises(errors.StateError, match="nothing to restore"):
        match([("encoder/dense/w", A)], [("head/dense/w", A)], partial=True)


# Copies, paths


def test_a_state_of_a_file_is_copied_and_pickled(tmp_path):
    path = tmp_path / "run.npz"
    state = adam_state(body=(3, 2)).replace(ordered=False)
    state.save(str(path))
    for given in (path, str(path), str(path).encode("ascii")):
        loaded = everstep.State.load(given)
        assert not loaded.ordered
        loaded = everstep.read_checkpoint(given)
        for other in (copy.copy(loaded), copy.deepcopy(loaded), pickle.loads(pickle.dumps(loaded, 2))):
            assert repr(other) == repr(state) and other.scalars == state.scalars and not other.ordered
            assert other.definition == loaded.definition
            harness.assert_same_arrays(other, state)
        # A pickle from before State had its present module.
        old = pickle.dumps(loaded, 0).replace(b"everstep.compat.checkpoints.state", b"everstep.compat.state.state")
        assert repr(pickle.loads(old)) == repr(state)
