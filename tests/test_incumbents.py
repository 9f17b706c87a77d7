"""Compares wrappers with the libraries that people use for the same, where those are right.

tests/make/incumbents.py recorded the libraries' results in tests/golden/incumbents_*.json: TensorFlow Addons on TF 2.10
and 2.15, Hugging Face's create_optimizer on TF 2.10, keras-adamw on Keras 2.3 and TF 1.15.
"""

from __future__ import absolute_import, division, print_function

import glob
import io
import json
import math
import os
from collections import OrderedDict

import numpy as np
import pytest

import everstep
import harness
from everstep.optimizers import SGD, Adam, RAdam
from everstep.testing import oracle
from test_battery import ids

STEPS = 30
START = OrderedDict((name, np.random.RandomState(3).uniform(0.5, 1, shape).astype("float32"))
                    for name, shape in [("bias", (3,)), ("kernel", (4, 3))])
KINDS = {name: harness.DENSE for name in START}
ADDONS, ADAMW, TRANSFORMERS = "tensorflow_addons", "keras_adamw", "transformers"
LIBRARIES = ADDONS, ADAMW, TRANSFORMERS
TOTAL = 12  # the length of keras-adamw's cosine, in updates


def batches():
    random = np.random.RandomState(2)
    for _ in range(STEPS):
        yield {name: random.normal(0.3, 1, value.shape).astype("float32") for name, value in START.items()}


class Annealed(everstep.Schedule):
    """keras-adamw's eta_t: a cosine that reaches its minimum at its last update, then restarts."""

    value_at_first = everstep.option(1.0)
    total = everstep.option(TOTAL)

    def value(self, ops, updates):
        done = updates - self.total * ops.floor(updates / self.total)
        return self.value_at_first * 0.5 * (1 + ops.cos(math.pi * done / (self.total - 1)))


def adamw(rule, layer, **settings):
    """Returns keras-adamw's decay for each layer: as documented, normalized by the root of the number of updates."""
    norm = math.sqrt(1.0 / TOTAL)
    decays = [(layer("kernel"), 0.2 * norm), (layer("bias"), 0.05 * norm)]
    return everstep.decoupled_weight_decay(rule, decays, beside=True, **settings)


# {case: (library, its optimizer, our definition, the role of the slot to compare)}
CASES = {
    "moving average": (
        ADDONS, lambda tfa, tf: tfa.optimizers.MovingAverage(tf.keras.optimizers.legacy.SGD(0.1), average_decay=0.9),
        lambda layer: everstep.moving_average(SGD(0.1), 0.9), "average"),
    "moving average, start and dynamic decay": (
        ADDONS, lambda tfa, tf: tfa.optimizers.MovingAverage(
            tf.keras.optimizers.legacy.Adam(0.05, epsilon=1e-3), 0.9, start_step=5, dynamic_decay=True),
        lambda layer: everstep.moving_average(Adam(0.05, epsilon=1e-3), 0.9, warm_up="ramp", start=5), "average"),
    "stochastic average": (
        ADDONS, lambda tfa, tf: tfa.optimizers.SWA(
            tf.keras.optimizers.legacy.Adam(0.05, epsilon=1e-3), start_averaging=4, average_period=3),
        lambda layer: everstep.stochastic_weight_averaging(Adam(0.05, epsilon=1e-3), start=4, period=3), "average"),
    "lookahead": (ADDONS, lambda tfa, tf: tfa.optimizers.Lookahead(tf.keras.optimizers.legacy.SGD(0.1, 0.9), 5, 0.4),
                  lambda layer: everstep.lookahead(SGD(0.1, momentum=0.9), 5, 0.4), "slow"),
    "warm-up of the rate": (
        ADDONS, lambda tfa, tf: tfa.optimizers.RectifiedAdam(0.05, total_steps=24, warmup_proportion=0.25, min_lr=1e-3),
        lambda layer: RAdam(everstep.Warmup(
            everstep.PolynomialDecay(0.05, decay_steps=24 - 6, end=1e-3), 6 - 1, start=0.05 / 6, shift=True)), None),
    "create_optimizer": (
        TRANSFORMERS,
        lambda module, tf: module.create_optimizer(0.05, 24, 6, min_lr_ratio=0.1, power=2.0, weight_decay_rate=0.1)[0],
        lambda layer: everstep.decoupled_weight_decay(Adam(everstep.Warmup(
            everstep.PolynomialDecay(0.05, decay_steps=24 - 6, end=0.005, power=2.0), 6, shift=True), epsilon=1e-8),
            0.1, exclude=[layer("bias")]), None),
    "decay of each layer": (
        ADAMW, lambda module: module.AdamW(
            0.05, epsilon=1e-3, weight_decays={"kernel:0": (0, 0.2), "bias:0": (0, 0.05)}, total_iterations=TOTAL),
        lambda layer: adamw(Adam(0.05, epsilon=1e-3), layer, times_rate=False), None),
    "decay of each layer, annealed, with restarts": (
        ADAMW, lambda module: module.AdamW(
            0.05, epsilon=1e-3, weight_decays={"kernel:0": (0, 0.2), "bias:0": (0, 0.05)}, total_iterations=TOTAL,
            use_cosine_annealing=True),
        lambda layer: adamw(Adam(Annealed(0.05), epsilon=1e-3), layer, base_rate=0.05), None),
    "the rate of a layer": (
        ADAMW, lambda module: module.AdamW(0.05, epsilon=1e-3, lr_multipliers={"kernel": 0.25}),
        lambda layer: everstep.learning_rate_multipliers(Adam(0.05, epsilon=1e-3), [(layer("kernel"), 0.25)]), None),
}


def recorded():
    """Returns [(case, writer, results)] of all files."""
    records, here = [], os.path.dirname(os.path.abspath(__file__))
    for path in sorted(glob.glob(os.path.join(here, "golden", "incumbents_*.json"))):
        with io.open(path, encoding="ascii") as file:
            content = json.load(file)
        writer = " ".join(str(content["written by"][name]) for name in LIBRARIES if name in content["written by"])
        records.extend((name, writer, content["cases"][name]) for name in sorted(content["cases"]))
    return records


RECORDED = recorded()


def test_every_case_is_recorded():
    assert {name for name, _, _ in RECORDED} == set(CASES)


@pytest.mark.shared
@pytest.mark.parametrize(
    "name, writer, left", RECORDED, ids=["{}, {}".format(*each[:2]).replace(" ", "-") for each in RECORDED])
@pytest.mark.parametrize("way", harness.quickest(), ids=ids)
def test_follows(way, name, writer, left):
    def layer(layer_name):  # arrays have no names
        return layer_name if way.target != "arrays" else lambda variable: variable.shape == START[layer_name].shape

    run = harness.new_run(way, CASES[name][2](layer), START, KINDS, batches())
    weights = run.weights()
    for variable in START:
        assert oracle.distance(weights[variable], np.array(left["weights"][variable])) <= 4e-6
        if "slots" in left:
            slots = harness.bound(run.optimizer).slot_names(run.variables[variable])
            slot = next(each for each in slots if each.endswith("/" + CASES[name][3]))
            assert oracle.distance(run.slot(variable, slot), np.array(left["slots"][variable])) <= 4e-6
