"""Gradients in a session graph that are the value of another variable: the order of reads and writes shows in them.

Of two variables, each is the other's gradient. A step that reads one after it was written is wrong. The value of a ref
variable is its memory, and TensorFlow's graph optimizer merges operations, and forgets what they waited for.
"""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict

import numpy as np
import pytest

import everstep
import harness
from everstep.optimizers import SGD, Adam
from everstep.testing import oracle

WAYS = [way for way in harness.all_ways() if issubclass(way.run, harness.GraphRun)]
SIZE = 20000  # elements; more than what the engine updates together with other variables
STEPS = 12

# {kind: (gradient from TensorFlow and a variable, the same from its value)}
GRADIENTS = OrderedDict([
    ("value", (lambda tf, other: other.read_value(), lambda value: value)),
    ("reshaped", (lambda tf, other: tf.reshape(tf.reshape(other.read_value(), [-1, 2]), [-1]), lambda value: value)),
    ("negative", (lambda tf, other: tf.negative(tf.negative(other.read_value())), lambda value: value)),
    ("one", (lambda tf, other: tf.ones([SIZE]) * other, lambda value: value)),
    ("scaled", (lambda tf, other: 0.5 * other, lambda value: 0.5 * value)),
    ("unscaled", (lambda tf, other: other * 1.5 / 1.5, lambda value: value)),
    ("summed", (lambda tf, other: 0.5 * other + other.read_value(), lambda value: 1.5 * value)),
    ("rows", (
        lambda tf, other: tf.IndexedSlices(other.read_value(), tf.range(SIZE), tf.constant([SIZE])),
        lambda value: everstep.IndexedSlices(value, np.arange(SIZE)),
    )),
])  # fmt: skip
NO_KERNEL = {"kernel": False}
CASES = OrderedDict([
    ("SGD", (SGD(0.1), None)),
    ("SGD, no kernel", (SGD(0.1), NO_KERNEL)),
    ("SGD, rows", (SGD(0.1, momentum=0.5, sparse="rows"), NO_KERNEL)),
    ("Adam", (Adam(0.01, epsilon=1e-4), None)),
])  # fmt: skip


def other_of(name):
    return name[:-1] + {"v": "w", "w": "v"}[name[-1]]


def start_values(kinds):
    ramp = np.arange(1.0, 1 + SIZE, dtype="float32") / SIZE
    return OrderedDict((kind + "_" + name, sign * ramp) for kind in kinds for name, sign in (("v", 1), ("w", -1)))


def trained(way, definition, start, **native):
    """Returns the weights of a run in which each variable is the gradient of another."""
    with way.world(way.module) as world:
        variables = {name: world.variable(value, name) for name, value in start.items()}
        pairs = [(GRADIENTS[name[:-2]][0](world.tf, variables[other_of(name)]), variables[name]) for name in start]
        operation = definition.bind(way.module, **native).apply_gradients(pairs)
        for _ in range(STEPS):
            world.run(operation)
        return world.read(variables)


def expected(definition, start, steps):
    weights = OrderedDict((name, value.astype("float64")) for name, value in start.items())
    optimizer = definition.bind(np)
    for _ in range(steps):
        values = {name: value.copy() for name, value in weights.items()}
        pairs = [(GRADIENTS[name[:-2]][1](values[other_of(name)]), weights[name]) for name in weights]
        optimizer.apply_gradients(pairs)
    return weights


@pytest.mark.parametrize("name, way", harness.rotate(list(CASES), WAYS), ids=lambda case: getattr(case, "name", case))
def test_gradients_that_are_other_variables(name, way):
    (definition, lowering), start = CASES[name], start_values(GRADIENTS)
    weights = trained(way, definition, start, lowering=lowering)
    for name, value in expected(definition, start, STEPS).items():
        assert oracle.distance(weights[name], value) <= 1e-5, name
