"""Definitions that act at some steps only need workers that wait for one another.

test_distribution.py trains with two asynchronous workers.
"""
from __future__ import absolute_import, division, print_function

import numpy as np
import pytest

import everstep
import harness
from everstep.compat.engine.windows import has_windows
from everstep.optimizers import SGD, Adam
from test_battery import define, definition_classes, golden

RESTARTS = everstep.CosineDecayRestarts(0.1, 3)
WITH_WINDOWS = {
    "accumulate": everstep.accumulate(SGD(0.1), 2), "loss_scale": everstep.loss_scale(SGD(0.1)),
    "lookahead": everstep.lookahead(SGD(0.1), 2), "swa": everstep.stochastic_weight_averaging(SGD(0.1)),
    "lookahead inside": everstep.clip(everstep.lookahead(Adam(RESTARTS), 3), norm=1.0),
    "overwrites": everstep.moving_average(SGD(0.1), overwrite_every=2), "sam": everstep.sharpness_aware(SGD(0.1)),
}
WITHOUT = {
    "moving_average": everstep.moving_average(SGD(0.1)), "a schedule with a period": SGD(RESTARTS),
    "noise": everstep.gradient_noise(Adam(0.1), 0.1), "clip": everstep.clip(Adam(0.1), global_norm=1.0),
}


def windows_of(definition):
    variable = np.zeros((4, 3))
    return has_windows(harness.bound(definition.bind(np)), [variable])


@pytest.mark.parametrize("name", sorted(WITH_WINDOWS))
def test_windows_are_found(name):
    assert windows_of(WITH_WINDOWS[name])


@pytest.mark.parametrize("name", sorted(WITHOUT))
def test_what_has_no_window(name):
    assert not windows_of(WITHOUT[name])


def test_definitions_without_a_wrapper():
    found = [each.__name__ for each in definition_classes()
             if windows_of(define(each, dict((golden(each).CONFIGURATIONS or [{}])[0])))]
    expected = [each.__name__ for each in definition_classes() if each.stages > 1 or each.refresh_methods]
    assert found == expected and {"SophiaH", "Shampoo"} <= set(found)
