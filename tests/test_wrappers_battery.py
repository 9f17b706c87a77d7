"""Trains every wrapper, and stacks of three, on every target against the float64 oracle, and serializes each.

In a cell each wrapper runs with one inner rule in one way. Both rotate from cell to cell, so that over the matrix each
wrapper meets every kind of rule and every target. With EVERSTEP_FULL=1 every combination runs.
"""

from __future__ import absolute_import, division, print_function

import itertools
import json
import os

import numpy as np
import pytest

import everstep
import harness
import runs
from everstep.errors import DefinitionError, HyperTypeError, UnsupportedError
from everstep.optimizers import LAMB, SGD, Adam
from everstep.testing import checks, oracle
from everstep.testing.training import BOUNDS, KINDS
from test_battery import WAYS, ids
from test_multistage import KERAS

pytestmark = pytest.mark.shared
FIGURES = []  # [wrapper, way, "mixed", largest difference]: of one wrapper, with gradients of all kinds
SCALE = 8.0
RULES = [SGD(0.05, momentum=0.5), Adam(0.05), LAMB(0.05)]  # the last needs whole variables


def is_dense(variable):
    return tuple(variable.shape) == (4, 3)


WRAPPERS = {
    "accumulate": lambda rule, dense: everstep.accumulate(rule, 4),
    "accumulate sums": lambda rule, dense: everstep.accumulate(rule, 3, reduction="sum"),
    "cautious": lambda rule, dense: everstep.cautious(rule),
    "centralize": lambda rule, dense: everstep.centralize(rule),
    "clip by global norm": lambda rule, dense: everstep.clip(rule, global_norm=3.0),
    "clip by norm and value": lambda rule, dense: everstep.clip(rule, norm=2.0, value=0.75),
    "clip by percentile": lambda rule, dense: everstep.clip(rule, percentile=40),
    "clip by units": lambda rule, dense: everstep.clip(rule, unit_norm=0.5),
    "decay": lambda rule, dense: everstep.decoupled_weight_decay(rule, 0.01, l1=0.01),
    "decay by rule": lambda rule, dense: everstep.decoupled_weight_decay(rule, 0.01, times_rate=False, include=dense),
    "grokfast": lambda rule, dense: everstep.grokfast(rule, 0.9),
    "lookahead": lambda rule, dense: everstep.lookahead(rule, sync_period=7),
    "loss scale": lambda rule, dense: everstep.loss_scale(rule, SCALE, growth_interval=0),
    "master copies": lambda rule, dense: everstep.master_copies(rule),
    "moving average": lambda rule, dense: everstep.moving_average(rule, 0.9, warm_up="ramp"),
    "multipliers": lambda rule, dense: everstep.learning_rate_multipliers(rule, [(dense, 2.0)]),
    "multistage": lambda rule, dense: everstep.multistage(rule, "rk23"),
    "noise": lambda rule, dense: everstep.gradient_noise(rule, 0.01),
    "partition": lambda rule, dense: everstep.partition({"dense": (dense, rule)}, default=SGD(0.05)),
    "rate decay": lambda rule, dense: everstep.rate_decay(rule, 0.05),
    "restarts": lambda rule, dense: rule.replace(learning_rate=everstep.CosineDecayRestarts(0.1, 30, 2.0, alpha=0.1)),
    "sharpness aware": lambda rule, dense: everstep.sharpness_aware(rule, 0.1),
    "stochastic average": lambda rule, dense: everstep.stochastic_weight_averaging(rule, start=9, period=4),
    "warmup": lambda rule, dense: rule.replace(learning_rate=everstep.Warmup(0.1, 20)),
}
STACKS = {
    "accumulate(clip(centralize))": lambda rule, dense: everstep.accumulate(
        everstep.clip(everstep.centralize(rule), norm=0.5), 2),
    "accumulate(swa(lookahead))": lambda rule, dense: everstep.accumulate(
        everstep.stochastic_weight_averaging(everstep.lookahead(rule, 2), 1, 2), 2),
    "average(accumulate(lookahead))": lambda rule, dense: everstep.moving_average(
        everstep.accumulate(everstep.lookahead(rule, 3), 2), 0.9),
    "average(lookahead(decay))": lambda rule, dense: everstep.moving_average(
        everstep.lookahead(everstep.decoupled_weight_decay(rule, 0.1), 3, 0.4), 0.8),
    "average(multipliers(centralize))": lambda rule, dense: everstep.moving_average(
        everstep.learning_rate_multipliers(everstep.centralize(rule), (), 0.5), 0.8),
    "average(swa(accumulate))": lambda rule, dense: everstep.moving_average(
        everstep.stochastic_weight_averaging(everstep.accumulate(rule, 2), 1, 2), 0.7),
    "clip(noise(centralize))": lambda rule, dense: everstep.clip(
        everstep.gradient_noise(everstep.centralize(rule), 0.1), global_norm=1.0),
    "clip(partition(multipliers, centralize))": lambda rule, dense: everstep.clip(everstep.partition(
        {"dense": (dense, everstep.learning_rate_multipliers(rule, [(dense, 2.0)]))},
        default=everstep.centralize(SGD(0.05), minimum_rank=3)), value=1.5),
    "decay(accumulate(clip))": lambda rule, dense: everstep.decoupled_weight_decay(
        everstep.accumulate(everstep.clip(rule, global_norm=3.0), 3), 0.01),
    "decay(cautious(grokfast))": lambda rule, dense: everstep.decoupled_weight_decay(
        everstep.cautious(everstep.grokfast(rule)), 0.1),
    "lookahead(accumulate(noise))": lambda rule, dense: everstep.lookahead(
        everstep.accumulate(everstep.gradient_noise(rule, 0.1), 2), 2),
    "lookahead(average(clip))": lambda rule, dense: everstep.lookahead(
        everstep.moving_average(everstep.clip(rule, norm=2.0), 0.9, "ramp")),
    "lookahead(lookahead(average))": lambda rule, dense: everstep.lookahead(
        everstep.lookahead(everstep.moving_average(rule, 0.8, "zero_debias"), 2), 6, 0.3),
    "loss scale(accumulate(copies))": lambda rule, dense: everstep.loss_scale(
        everstep.accumulate(everstep.master_copies(rule), 4), SCALE, growth_interval=0),
    "multistage(decay(clip))": lambda rule, dense: everstep.multistage(
        everstep.decoupled_weight_decay(everstep.clip(rule, value=1.5), 0.01)),
    "noise(decay(lookahead))": lambda rule, dense: everstep.gradient_noise(
        everstep.decoupled_weight_decay(everstep.lookahead(rule), 0.1), 0.1),
}
MADE = dict(WRAPPERS, **STACKS)


def cases():
    """Returns [(name, way, rule)]."""
    if harness.FULL:
        return list(itertools.product(sorted(MADE), WAYS, RULES))
    return [(name, WAYS[place % len(WAYS)], RULES[place // len(WAYS) % len(RULES)])
            for place, name in enumerate(sorted(MADE), harness.TURN)]


def skip_noise_on_arrays(name, way):
    if "noise" in name and way.target == "arrays":
        pytest.skip("the noise goes by the variable's name, and arrays have none; see test_wrappers_gradient.py")


@pytest.mark.parametrize("name, way, rule", cases(), ids=ids)
def test_equals_oracle(name, way, rule):
    skip_noise_on_arrays(name, way)
    trial = runs.Trial(way, MADE[name](rule, is_dense))
    batches = scaled(trial.batches) if "loss scale" in name else trial.batches
    expected, slots = oracle.trajectory(trial.definition, trial.start, batches)
    if way.target != "get_updates":  # which scales the loss itself
        trial.batches = batches
    for variable, start in trial.start.items():
        if KINDS[variable] != harness.NONE and "centralize" not in name:
            assert np.abs(expected[variable] - start).max() >= 0.5 * np.abs(start).max(), variable
    worst = max(each.distance for each in trial.apart(trial.train(trial.run()), expected, slots))
    if name in WRAPPERS:
        FIGURES.append([type(trial.definition).__name__, ids(way), "mixed", worst])
    assert worst <= BOUNDS["float32"]


# Not of a scaled loss, whose optimizer has to be told of it again.
RESUMED = harness.each_in_turn([name for name in sorted(MADE) if "loss scale" not in name],
                               harness.one_of_each_target(WAYS), each_of=4)


@pytest.mark.parametrize("name, way", RESUMED, ids=ids)
def test_resumes_in_the_middle(name, way):
    """Interrupts a run in the middle of a cycle, a window, a period or an update; it goes on bit for bit."""
    assert checks.resumed_differs(runs.Trial(way, MADE[name](Adam(0.05), is_dense), steps=18), half=9) == []


def scaled(batches):
    def times(grad):
        if isinstance(grad, tuple):
            return times(grad[0]), grad[1]
        return None if grad is None else np.asarray(SCALE * grad, grad.dtype)

    return [{name: times(grad) for name, grad in batch.items()} for batch in batches]


@runs.numpy_cells
@pytest.mark.parametrize("name", sorted(MADE))
def test_config(name):
    runs.check_config(MADE[name](Adam(0.01), "dense"))


@pytest.mark.parametrize("name, module, keras", KERAS, ids=[name.replace(" ", "-") for name, _, _ in KERAS])
def test_config_through_the_serializer_of_the_api(name, module, keras):
    if hasattr(keras.backend, "clear_session"):
        harness.clear_session(keras)
    for wrapper in harness.share(sorted(MADE), 4):
        definition = MADE[wrapper](Adam(0.01), "dense")
        optimizer = definition.bind(module)
        config = json.loads(json.dumps(keras.optimizers.serialize(optimizer)))
        again = keras.optimizers.deserialize(config, custom_objects=everstep.custom_objects(module))
        assert type(again) is type(optimizer), wrapper
        assert again.definition == definition, wrapper


@pytest.mark.shared(False)
def test_zz_figures():
    """Writes what was measured, for matrix/record/proof.json. The name makes it run last."""
    assert all(far <= BOUNDS["float32"] for _, _, _, far in FIGURES)
    if os.environ.get("EVERSTEP_TABLE") and FIGURES:
        path = os.environ["EVERSTEP_TABLE"].replace(".json", ".wrappers.json")
        if not os.path.isdir(os.path.dirname(path)):
            os.makedirs(os.path.dirname(path))
        with open(path, "w") as file:
            json.dump(FIGURES, file, indent=0)


# What is no definition.


def givens():
    """Returns {label: (what people give instead of a definition, what the error says)}."""
    said = {"class": (Adam, r"it is the class: write Adam\(\)"),
            "bound": (Adam().bind(np), "it is bound already: wrap, then bind"),
            "native class": (Adam.native_class(np), r"everstep.from_native\(Adam\(...\)\)"),
            "text": ("adam", r"everstep.get\('adam'\)")}
    stock = next((way.stock for way in harness.framework_ways() if way.stock is not None), None)
    if stock is not None:
        name = next(name for name in ("SGD", "GradientDescentOptimizer") if hasattr(stock, name))
        said["stock"] = getattr(stock, name)(0.1), r"everstep.from_native\(optimizer\)"
        said["stock class"] = getattr(stock, name), r"everstep.from_native\({}\(...\)\)".format(name)
    return said


@pytest.mark.shared(False)
@pytest.mark.parametrize("wrapper", sorted(set(WRAPPERS) - {"restarts", "warmup"}))
def test_what_is_no_definition(wrapper):
    for label, (value, words) in sorted(givens().items()):
        with pytest.raises(HyperTypeError, match=words):
            pytest.fail("{} took the {}: {!r}".format(wrapper, label, WRAPPERS[wrapper](value, is_dense)))


@pytest.mark.shared(False)
@pytest.mark.parametrize("name, call", [
    ("bind", lambda: Adam.bind(np)), ("bind", lambda: Adam.bind(np, name="a")),
    ("replace", lambda: Adam.replace(beta_1=0.5)), ("to_native_config", lambda: Adam.to_native_config(np)),
    ("get_config", lambda: Adam.get_config()), ("get_config", lambda: Adam.get_config(strict=False)),
])
def test_a_class_where_an_instance_is_meant(name, call):
    with pytest.raises(DefinitionError, match=r"Adam is the class; write Adam\(\).{}\(...\)".format(name)):
        call()
    assert Adam.bind(Adam(), np).definition == Adam()  # as any method


@pytest.mark.shared(False)
def test_a_class_where_an_optimizer_is_meant():
    for native in (Adam, Adam.native_class(np)):
        with pytest.raises(UnsupportedError, match=r"is a class; give an optimizer"):
            everstep.from_native(native)
    with pytest.raises(HyperTypeError, match="takes a whole number"):
        everstep.accumulate(SGD(), everstep.Warmup)
