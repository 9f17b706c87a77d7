"""`from_native`: what it makes of every stock optimizer here follows it, step by step, dense and sparse."""

from __future__ import absolute_import, division, print_function

import itertools
import json
import os
import warnings

import numpy as np
import pytest

import everstep
import harness
import oracle
from test_battery import KINDS, ids, make_batches, start_values

BOUND = 4e-6
KIND_OF = {"dense": "dense", "bias": "dense", "single": "dense", "unique": "unique", "duplicates": "duplicates"}
RESULTS = {}  # (stock and its arguments, way, kind of gradient) -> distance after 100 steps

# What is made of each stock class: its arguments beside the rate, on each kind of API. epsilon=1e-3 shows its place.
TRAIN = [
    ("GradientDescentOptimizer", 0.1, {}),
    ("MomentumOptimizer", 0.1, {"momentum": 0.9}),
    ("MomentumOptimizer", 0.1, {"momentum": 0.9, "use_nesterov": True}),
    ("RMSPropOptimizer", 0.1, {"epsilon": 1e-3}),
    ("RMSPropOptimizer", 0.1, {"momentum": 0.9, "centered": True, "epsilon": 1e-3}),
    ("AdagradOptimizer", 1.0, {}),
    ("AdadeltaOptimizer", 3.0, {"epsilon": 1e-3}),
    ("AdamOptimizer", 0.1, {"epsilon": 1e-3}),
    ("FtrlOptimizer", 1.0, {"l1_regularization_strength": 0.01, "l2_regularization_strength": 0.001}),
    ("FtrlOptimizer", 1.0, {"learning_rate_power": -0.4, "l2_shrinkage_regularization_strength": 0.001}),
]
CONTRIB = [
    ("LazyAdamOptimizer", 0.1, {"epsilon": 1e-3}),
    ("AdaMaxOptimizer", 0.1, {"epsilon": 1e-3}),
    ("NadamOptimizer", 0.1, {"epsilon": 1e-3}),
    ("AdamWOptimizer", 0.1, {"weight_decay": 0.001, "epsilon": 1e-3}),
    ("MomentumWOptimizer", 0.1, {"weight_decay": 0.001, "momentum": 0.9}),
]
KERAS = [
    ("SGD", 0.1, {}),
    ("SGD", 0.1, {"momentum": 0.9}),
    ("SGD", 0.1, {"momentum": 0.9, "nesterov": True}),
    ("RMSprop", 0.1, {"epsilon": 1e-3}),
    ("RMSprop", 0.1, {"epsilon": 1e-3, "centered": True}),
    ("RMSprop", 0.1, {"epsilon": 1e-3, "momentum": 0.9}),
    ("RMSprop", 0.1, {"epsilon": 1e-3, "momentum": 0.9, "centered": True}),
    ("Adagrad", 1.0, {"epsilon": 1e-3}),
    ("Adadelta", 3.0, {"epsilon": 1e-3}),
    ("Adam", 0.1, {"epsilon": 1e-3}),
    ("Adam", 0.1, {"amsgrad": True}),
    ("Adamax", 0.1, {"epsilon": 1e-3}),
    ("Nadam", 0.1, {"epsilon": 1e-3}),
    ("Ftrl", 1.0, {"l1_regularization_strength": 0.01, "l2_regularization_strength": 0.001, "beta": 0.1}),
    ("Ftrl", 1.0, {"learning_rate_power": -0.4, "l2_shrinkage_regularization_strength": 0.001}),
    ("AdamW", 0.1, {"weight_decay": 0.1, "epsilon": 1e-3}),
]



# What cannot be followed: (target, names of stock classes, or None for all that square gradients, kinds of gradients,
# how far, why).
RACE = "stock get_updates reads its counter before or after moving it, at random"
ROUNDING = "stock rounds 1 - beta from a double and beta^t from a float32, which for 0.999 are 1.3e-5 apart"
EXCEPTIONS = [
    ("get_updates", ("Adam", "Adamax", "Nadam"), ("dense", "unique", "duplicates"), 0.5, RACE),
    ("tf_train", ("AdamWOptimizer",), ("unique", "duplicates"), 0.1, "stock decays the rows present, but moves all"),
    ("update_step", ("Adam", "AdamW"), ("dense", "unique", "duplicates"), 1e-5, ROUNDING),
    ("keras3", ("Adam", "AdamW"), ("dense", "unique"), 1e-5, ROUNDING),
    ("keras3", None, ("duplicates",), 2.0, "stock Keras 3 on TensorFlow squares the parts of a row one by one"),
    (
        "update_step",
        ("Nadam",),
        ("dense", "unique", "duplicates"),
        0.1,
        "stock multiplies its momentum product once per variable in a compiled step",
    ),
]


# Of TF 1.4 alone. Its Nadam takes no sparse gradient at all.
FIRST = [
    ("tf_train", ("AdadeltaOptimizer",), ("dense", "unique", "duplicates"), 0.5, "it steps with the new average"),
    ("tf_train", ("FtrlOptimizer",), ("dense", "unique", "duplicates"), 0.5, "it accumulates the shrunk gradient"),
    ("tf_train", ("LazyAdamOptimizer",), ("unique", "duplicates"), 1.0, "it is dense for resource variables"),
]


def is_first(way):
    if way.target != "tf_train":
        return False
    import tensorflow as tf

    return tf.__version__.startswith("1.4.")


def allowed(way, name, kind):
    """How far a run may be from stock's, and why that is more than the bound."""
    kind = kind if way.sparse else "dense"
    for target, names, kinds, bound, cause in EXCEPTIONS + (FIRST if is_first(way) else []):
        if target == way.target and kind in kinds and (name in names if names else name != "SGD"):
            return bound, cause
    return BOUND, None


def stock_class(way, name):
    if name in [each[0] for each in CONTRIB]:
        import tensorflow as tf

        return getattr(getattr(getattr(tf, "contrib", None), "opt", None), name, None)
    return getattr(way.stock, name, None)


def made(way, name, rate, arguments):
    """A stock optimizer; None where this version has not an argument."""
    stock = stock_class(way, name)
    for rate_name in ("learning_rate", "lr"):  # Keras before 2.3
        try:
            return stock(**dict(arguments, **{rate_name: rate}))
        except (TypeError, ValueError):
            continue
    return None


def cases():
    for way in harness.here():
        for name, rate, arguments in TRAIN + CONTRIB if way.target == "tf_train" else KERAS:
            unusable = way.stock is None or is_first(way) and name == "NadamOptimizer"
            if not unusable and stock_class(way, name) is not None:
                yield way, name, rate, arguments


def run(way, make_optimizer, steps=100):
    trained = way.run(make_optimizer, start_values("float32"), KINDS)
    try:
        for batch in make_batches("float32", steps):
            trained.step(batch)
        return trained.weights()
    finally:
        trained.close()


def migrated(optimizer):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "stock ")  # the differences that EXCEPTIONS lists
        return everstep.from_native(optimizer)


def known_here(way, name, rate, arguments):
    """Whether this version of stock takes the arguments; making one needs the graph that it would be used in."""
    found = []

    def make():
        found.append(made(way, name, rate, arguments))
        return found[0] or everstep.optimizers.SGD(0.1).bind(way.module)

    way.run(make, start_values("float32"), KINDS).close()
    return found[0] is not None


@pytest.mark.filterwarnings("ignore:Converting sparse IndexedSlices:UserWarning")  # stock Keras 2 does, and TF says so
@pytest.mark.parametrize("way, name, rate, arguments", list(cases()), ids=ids)
def test_follows_stock(way, name, rate, arguments):
    if not known_here(way, name, rate, arguments):
        arguments = {key: value for key, value in arguments.items() if key in ("epsilon", "nesterov")}
    wanted = run(way, lambda: made(way, name, rate, arguments))
    found = run(way, lambda: migrated(made(way, name, rate, arguments)).bind(way.module))
    for variable, kind in KIND_OF.items():
        far = oracle.distance(found[variable], wanted[variable])
        key = " ".join([name] + ["{}={}".format(*item) for item in sorted(arguments.items())]), way.name, kind
        RESULTS[key] = max(far, RESULTS.get(key, 0.0))
        assert far <= allowed(way, name, kind)[0], (variable, far)


FIRST_WAYS = {way.target: way for way in reversed(harness.here())}


@pytest.mark.parametrize(
    "way, name, rate, arguments", [case for case in cases() if FIRST_WAYS[case[0].target] == case[0]], ids=ids
)
def test_the_way_back(way, name, rate, arguments):
    """The config that `to_native_config` gives makes a stock optimizer that comes to the same definition."""
    if not known_here(way, name, rate, arguments):
        return  # another version's argument
    found = []

    def make():
        found.append(migrated(made(way, name, rate, arguments)))
        config = found[0].to_native_config(way.module)
        found.append(migrated(stock_class(way, config["class_name"])(**config["config"])))
        return found[1].bind(way.module)

    way.run(make, start_values("float32"), KINDS).close()
    assert found[0] == found[1]


@pytest.mark.parametrize("way", [way for way in FIRST_WAYS.values() if way.stock is not None], ids=ids)
def test_no_way_back(way):
    for definition, word in (
        (everstep.optimizers.DiffGrad(), "no stock optimizer"),
        (everstep.optimizers.SGD(everstep.InverseTimeDecay(0.1)), "no number"),
        (everstep.optimizers.RMSprop(epsilon_in_root=way.target in ("optimizer_v2", "get_updates")), "epsilon_in_root"),
    ):
        with pytest.raises(everstep.errors.UnsupportedError, match=word):
            definition.to_native_config(way.module)


def test_what_is_no_stock_optimizer():
    class Own(object):
        pass

    for wrong in (Own(), everstep.optimizers.Adam(), "adam", None):
        with pytest.raises(everstep.errors.UnsupportedError):
            everstep.from_native(wrong)
    for wrong, api in (({"learning_rate": 0.1}, "keras3"), ({"class_name": "Adam", "config": {}}, "no API")):
        with pytest.raises(everstep.errors.ConfigError):
            everstep.from_native(wrong, api)
    with pytest.raises(everstep.errors.UnsupportedError, match="no stock optimizer Unknown"):
        everstep.from_native({"class_name": "Unknown", "config": {}}, "keras3")


def test_our_own_come_back():
    bound = everstep.accumulate(everstep.optimizers.Adam(0.1), 3).bind(np)
    bound.learning_rate = 0.5
    assert everstep.from_native(bound) == everstep.accumulate(everstep.optimizers.Adam(0.5), 3)


def keras_ways():
    return [way for way in harness.here() if way.target not in ("tf_train", "arrays")]


CLIPS = [{"clipvalue": 0.5}, {"clipnorm": 0.5}, {"global_clipnorm": 0.5}]


@pytest.mark.filterwarnings("ignore:Converting sparse IndexedSlices:UserWarning")
@pytest.mark.parametrize("way, clip", list(itertools.product(keras_ways(), CLIPS)), ids=ids)
def test_follows_clipping(way, clip):
    """Of dense gradients: stock clips equal rows of a sparse one apart, or makes it dense."""
    arguments = dict(clip, momentum=0.9)
    if not known_here(way, "SGD", 0.1, arguments):
        assert "global_clipnorm" in clip
        return
    alone = dict(KINDS, unique=harness.NONE, duplicates=harness.NONE)
    batches = [dict(batch, unique=None, duplicates=None) for batch in make_batches("float32", 20)]

    def ended(make):
        trained = way.run(make, start_values("float32"), alone)
        for batch in batches:
            trained.step(batch)
        weights = trained.weights()
        trained.close()
        return weights

    stock = ended(lambda: made(way, "SGD", 0.1, arguments))
    ours = ended(lambda: migrated(made(way, "SGD", 0.1, arguments)).bind(way.module))
    plain = ended(lambda: made(way, "SGD", 0.1, {"momentum": 0.9}))
    # OptimizerV2 before 2.4 leaves out clipping in apply_gradients; the definition means what the settings say.
    unclipped = all(np.array_equal(stock[name], plain[name]) for name in KINDS)
    assert not unclipped or way.target == "optimizer_v2"
    for name, kind in KIND_OF.items():
        far = oracle.distance(ours[name], stock[name])
        assert unclipped and far > 0.01 or far <= BOUND or kind != "dense", name


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


@pytest.mark.filterwarnings("ignore:Converting sparse IndexedSlices:UserWarning")
@pytest.mark.parametrize("way", SCHEDULED, ids=ids)
def test_follows_schedules(way):
    for schedule in schedules_of(way):
        wanted = run(way, lambda schedule=schedule: way.stock.SGD(schedule), 80)
        definition = migrated(way.stock.SGD(schedule))
        assert isinstance(definition.learning_rate, everstep.Schedule)
        got = run(way, lambda definition=definition: definition.bind(way.module), 80)
        for name in KIND_OF:
            assert oracle.distance(got[name], wanted[name]) <= BOUND, (schedule, name)


@pytest.mark.parametrize("way", keras_ways(), ids=ids)
def test_decay_is_a_schedule(way):
    if way.target in ("update_step", "keras3"):
        return  # they have none: tests/test_bad_input.py
    config = {"class_name": "SGD", "config": {"learning_rate": 0.1, "decay": 0.01, "momentum": 0.0, "nesterov": False}}
    assert everstep.from_native(config, way.target).learning_rate == everstep.InverseTimeDecay(0.1, rate=0.01)


def test_zz_results():
    """Prints how far each is from stock, and writes it where matrix/report.py looks."""
    rows = sorted(RESULTS.items())
    for (name, way, kind), far in rows:
        print("{:95} {:24} {:10} {:.1e}".format(name, way, kind, far))
    if os.environ.get("EVERSTEP_TABLE"):
        with open(os.environ["EVERSTEP_TABLE"].replace(".json", ".stock.json"), "w") as file:
            json.dump([list(key) + [far] for key, far in rows], file, indent=0)
