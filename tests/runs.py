"""Trains definitions in a way: starts runs, which end with their test, compares them, and reads and sets counters."""
from __future__ import absolute_import, division, print_function

import json

import numpy as np
import pytest

import everstep
import harness
from everstep.optimizers.contract.verbs import defines
from everstep.testing import oracle, training

WAYS = harness.all_ways()
ONE_EACH = harness.one_of_each_target(WAYS)
SPARSE_ONES = harness.one_of_each_target([way for way in WAYS if way.sparse])
numpy_cells = pytest.mark.skipif(len(WAYS) > 1, reason="the same everywhere: the NumPy cells run it")


def bound(way, definition, **native):
    """Returns an optimizer that is passed every gradient of a batch, and gradients of the loss before it is scaled."""
    optimizer = training.bound(definition, way.module, **native)
    if defines(definition, "loss_scale") and issubclass(way.run, harness.GraphRun):
        optimizer.scale_loss(1.0)
    return optimizer


def started(way, definition, start, kinds, **native):
    """Returns a new run."""
    run = harness.new_run(way, lambda **params: bound(way, definition, **dict(native, **params)), start, kinds)
    if defines(definition, "loss_scale") and not isinstance(run, (harness.GraphRun, harness.GetUpdatesRun)):
        run.optimizer.scale_loss(1.0)
    return run


def stepped(run, batches):
    """Returns a run that has taken a step on each batch."""
    for batch in batches:
        run.step(batch)
    return run


def trained(way, definition, start, kinds, batches, **native):
    return stepped(started(way, definition, start, kinds, **native), batches)


def resumed(run):
    """Returns a new run that goes on from a run's files."""
    return harness.opened(run.resumed())


class Trial(training.Trial):
    """One whose runs are made by `started`."""

    def run(self):
        return started(self.way, self.definition, self.start, self.kinds, **self.native)


def steps(definition, variable, *grads):
    """Returns the optimizer after one step on an array for each gradient."""
    optimizer = definition.bind(np)
    for grad in grads:
        optimizer.apply_gradients([(everstep.IndexedSlices(*grad) if isinstance(grad, tuple) else grad, variable)])
    return optimizer


def distance(actual, expected):
    """Returns the largest distance of some arrays, by name."""
    return max(oracle.distance(actual[name], expected[name]) for name in expected)


def same(actual, expected):
    """Returns whether all arrays are equal, bit for bit."""
    return set(actual) == set(expected) and all(np.array_equal(actual[name], expected[name]) for name in expected)


def moved(seen):
    """Returns the steps at which anything changed, of the weights before and after each step."""
    return [step for step, pair in enumerate(zip(seen, seen[1:])) if not same(*pair)]


def whole(grad, shape):
    """Returns a gradient as a dense array of float64."""
    if not isinstance(grad, tuple):
        return np.asarray(grad, np.float64)
    dense = np.zeros(shape)
    np.add.at(dense, grad[1], grad[0].astype("float64"))
    return dense


def read(run, find):
    """Returns the values of variables of the optimizer, which `find(optimizer)` returns; None if it has none."""
    with run.inside():
        variables, backend = find(run.optimizer), harness.bound(run.optimizer).backend
        return backend.values(variables, run.world.session) if variables[0] is not None else None


def counted(run):
    """Returns the optimizer's counters (updates, steps); None for plain SGD on tf.train, which has none."""
    counts = read(run, lambda optimizer: [harness.bound(optimizer).adapter.counter("updates"), optimizer.steps])
    return counts and tuple(map(int, counts))


def scalar(run, name):
    return float(read(run, lambda optimizer: [harness.bound(optimizer).adapter.scalar(name)])[0])


def put(run, find, value):
    """Sets a variable of the optimizer, which `find(optimizer)` returns."""
    with run.inside():
        bound = harness.bound(run.optimizer)
        variable = bound.adapter.unwrap(find(run.optimizer))
        bound.backend.put([(variable, np.asarray(value), False)], run.world.session)


def check_config(definition):
    """Asserts that a definition comes back from its config, and from that of its optimizer of each API."""
    assert everstep.Definition.from_config(json.loads(json.dumps(definition.get_config()))) == definition
    for way in harness.quickest():
        if way.target != "tf_train":  # whose optimizers have no config
            with way.world(way.module):
                optimizer = definition.bind(way.module)
                config = json.loads(json.dumps(optimizer.get_config()))
                assert type(optimizer).from_config(config).definition == definition


def refused(calls):
    """Returns a test of (call, error, what the error says)."""
    @pytest.mark.parametrize("call, error, needle", calls, ids=[needle for _, _, needle in calls])
    def test(call, error, needle):
        with pytest.raises(error, match=needle):
            call()

    return test
