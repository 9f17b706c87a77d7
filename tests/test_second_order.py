"""Rules that work on both sides of a matrix, on variables whose first gradients have unique eigenvectors."""
from __future__ import absolute_import, division, print_function

import numpy as np
import pytest

import everstep
import harness
import runs
from everstep.testing import oracle
from test_battery import trial

pytestmark = pytest.mark.shared
# The first gradient leaves at most one eigenvalue of each side at 0.
SHAPES = {"square": (5, 5), "wide": (3, 4), "kernel": (2, 2, 3)}
KINDS = dict.fromkeys(SHAPES, "dense")
RULES = [everstep.optimizers.SOAP(0.05, period=3), everstep.optimizers.Shampoo(1.0, period=1),
         everstep.optimizers.GaLoreAdamW(0.3, rank=2, period=3),
         everstep.optimizers.APOLLO(0.3, rank=2, period=3),
         everstep.accumulate(everstep.optimizers.SOAP(0.05, period=1), 2)]


@pytest.mark.parametrize("rule, way", harness.each_in_turn(RULES, harness.one_of_each_target(runs.WAYS)),
                         ids=lambda each: getattr(each, "name", type(each).__name__))
def test_both_sides(rule, way):
    attempt = trial(way, rule, shapes=SHAPES, kinds=KINDS, steps=40)
    expected, slots = oracle.trajectory(rule, attempt.start, attempt.batches)
    worst = max(attempt.apart(attempt.train(attempt.run()), expected, slots), key=lambda each: each.distance)
    assert worst.distance <= 1e-5, worst


@runs.numpy_cells
def test_the_first_gradient_of_a_variable_comes_late():
    first, second, grad = np.ones((3, 2)), np.ones((3, 2)), np.array([[1.0, 0.5], [-1.0, 0.0], [0.5, 2.0]])
    optimizer = everstep.optimizers.SOAP(0.1, period=2, weight_decay=0.0).bind(np)
    for update in range(1, 6):
        optimizer.apply_gradients([(grad, first)] + [(grad, second)][: update > 1])
        assert np.array_equal(second, np.ones((3, 2))) == (update < 4)  # then the power method starts, at the identity
    basis = optimizer.get_slot(second, "left_basis")
    assert np.abs(basis.T.dot(basis) - np.eye(3)).max() < 1e-12
