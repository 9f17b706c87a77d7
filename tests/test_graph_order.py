"""The order of reads and writes in a session graph.

Of two variables, each is the other's gradient. A step that reads one after it was written is wrong. The value of a ref
variable is its memory, and TensorFlow's graph optimizer merges operations, and forgets what they waited for.

And in the graph that a session runs, no read of a resource variable may be free to come before or after its writes.
"""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict

import numpy as np
import pytest

import everstep
import harness
from everstep.optimizers import SGD, Adam
from everstep.testing import oracle
from test_battery import SPARSE_CONFIGURED, define, label, trial

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


READS = ("ReadVariableOp", "_ReadVariablesOp", "ResourceGather")
WRITES = ("Assign", "ResourceScatter", "ResourceApply", "ResourceSparseApply")
FORMS = [lambda rule: rule, lambda rule: everstep.moving_average(rule, 0.9), lambda rule: everstep.accumulate(rule, 2)]
RESOURCES = [way for way in WAYS if way.name != "tf_train ref"]


def optimized_graph(run, train):
    """Returns {name: node} of the largest graph that the session of a run runs in `train`, as TensorFlow optimized it.

    Functions that the graph calls, such as branches from TF 2.0 on, are not looked into.
    """
    tf, session, graphs, native = run.tf, run.session, [], run.session.run

    def traced(fetches, feed_dict=None):
        options, metadata = tf.RunOptions(output_partition_graphs=True), tf.RunMetadata()
        values = native(fetches, feed_dict, options=options, run_metadata=metadata)
        graphs.append({node.name: node for graph in metadata.partition_graphs for node in graph.node})
        return values

    session.run = traced
    try:
        train()
    finally:
        del session.run
    return max(graphs, key=len)


def unordered(graph):
    """Returns (variable, write, read) of each read in a graph that is free to come before or after a write."""
    def node_of(edge):
        return edge.lstrip("^").split(":")[0]

    def variable_of(name):
        handle = node_of(graph[name].input[0])
        return variable_of(handle) if graph[handle].op in ("Identity", "Switch", "Enter") else handle

    def before(name):
        """Returns the names of the nodes that come before a node, and (predicate, side) of the branches it is in."""
        found, branches, left = set(), set(), [name]
        while left:
            for edge in graph[left.pop()].input:
                each = node_of(edge)
                if graph[each].op == "Switch":
                    branches.add((graph[each].input[1], edge.endswith(":1")))
                if each not in found:
                    found.add(each)
                    left.append(each)
        return found, branches

    reads, writes = ({name: before(name) for name, node in graph.items() if node.op.startswith(ops)}
                     for ops in (READS, WRITES))
    assert writes
    pairs = [(write, read) for write in writes for read in reads if variable_of(write) == variable_of(read)]
    return sorted((variable_of(write), write, read) for write, read in pairs
                  if write not in reads[read][0] and read not in writes[write][0]
                  and not any((predicate, not side) in reads[read][1] for predicate, side in writes[write][1]))


def cases():
    """Returns [(way, definition)]: this cell's part of the definitions, each in one way and form by rotation."""
    for place, configured in enumerate(SPARSE_CONFIGURED[harness.TURN % 16 :: 16] if RESOURCES else [], harness.TURN):
        rule = define(*configured)
        form = FORMS[place % len(FORMS) if rule.stages == 1 else 0]
        yield pytest.param(RESOURCES[place % len(RESOURCES)], form(rule), id=label(*configured).replace(" ", "-"))


@pytest.mark.shared
@pytest.mark.parametrize("way, definition", list(cases()))
def test_no_read_is_free_to_come_before_or_after_a_write(way, definition):
    of_definition = trial(way, definition)
    run = of_definition.run()
    try:
        assert unordered(optimized_graph(run, lambda: of_definition.train(run, 0, 2))) == []
    finally:
        run.close()
