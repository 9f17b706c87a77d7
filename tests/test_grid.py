"""Continues runs of every API on every other: reads tests/states, written by tests/make/states.py, in every way here.

A writer left the output of `everstep.capture` after 50 of 100 steps, and the weights after 100 uninterrupted steps. The
distance of a continued run from those weights must be at most 1e-5, and at most twice the distance between the two
APIs' uninterrupted runs (or FLOOR, if that is larger). In the writer's own environment the result must be equal bit for
bit, if the first half is equal to the file. On an API with several ways, the slower ways take half of the definitions,
each with a part of the files.
"""

from __future__ import absolute_import, division, print_function

import collections
import importlib
import io
import json
import os
import sys

import numpy as np
import pytest

import everstep
import harness
from everstep.optimizers import SGD, Adam, DiffGrad, Ftrl, RMSprop
from everstep.testing import oracle
from everstep.testing.training import make_batches
from test_battery import ids, start_values

pytestmark = pytest.mark.shared
STATES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "states")
HALF, BOUND = 50, 1e-5
FLOOR = 2.5e-7  # two units in the last place: two APIs may agree by chance, and differ on another CPU
SHAPES = {"dense": (4, 3), "bias": (3,), "unique": (6, 3), "duplicates": (6, 3)}
KINDS = {"dense": harness.DENSE, "bias": harness.DENSE, "unique": harness.SPARSE, "duplicates": harness.SPARSE}
DEFINITIONS = {
    "sgd_momentum": SGD(0.1, momentum=0.9),
    "rmsprop_centered": RMSprop(0.1, epsilon=1e-3, centered=True),
    "adam_amsgrad": Adam(0.1, amsgrad=True),
    "ftrl": Ftrl(1.0, l1=0.01),
    "diffgrad": DiffGrad(0.1),
    "accumulate_adam": everstep.accumulate(Adam(0.2), 4),  # 50 steps are 12 windows and a half
}
BATCHES = make_batches("float32", 2 * HALF, SHAPES, KINDS)
RESULTS = []  # [writer, way, definition, distance continued, distance uninterrupted, is the writer]

Writer = collections.namedtuple("Writer", "name way versions weights")  # weights: {definition: {variable: list}}


def versions():
    """Returns the installed versions that results may depend on."""
    installed = {"python": "{}.{}".format(*sys.version_info)}
    for name in ("numpy", "tensorflow", "keras", "jax", "torch"):
        try:
            installed[name] = importlib.import_module(name).__version__
        except ImportError:
            pass
    return installed


def writers():
    for name in sorted(os.listdir(STATES)):
        path = os.path.join(STATES, name, "ends.json")
        if os.path.exists(path):
            with io.open(path, encoding="ascii") as file:
                yield Writer(name, **json.load(file))


def new_run(way, definition):
    return way.run(lambda **params: definition.bind(way.module, **params), start_values("float32", SHAPES), KINDS)


def halfway(run):
    """Trains the first half and returns the state."""
    for batch in BATCHES[:HALF]:
        run.step(batch)
    return everstep.capture(run.optimizer, run.variables, session=getattr(run, "session", None), weights=True)


def end(run):
    """Trains the second half and returns the weights."""
    for batch in BATCHES[HALF:]:
        run.step(batch)
    return run.weights()


def goes_on(way, written, name):
    """Returns how far a run is from the one that wrote a state of tests/states, after it went on from that state."""
    state = everstep.State.load(os.path.join(STATES, written.name, name + ".npz"))
    run = new_run(way, everstep.Definition.from_config(state.definition))
    run.restored(state, weights=True)
    return largest(end(run), {each: np.float32(values) for each, values in written.weights[name].items()})


def goes_on_elsewhere(way, other_way, name, path):
    """Returns how far a run is from one of another way, which goes on from its first half."""
    run = new_run(way, DEFINITIONS[name])
    for batch in BATCHES[:HALF]:
        run.step(batch)
    state = run.captured(weights=True, path=path)
    other, expected = new_run(other_way, DEFINITIONS[name]), end(run)
    other.restored(state, weights=True)
    distance = largest(end(other), expected)
    other.close()
    return distance


def arrays(state):
    values = {(name, slot): np.asarray(array) for name, slots in state.slots.items() for slot, array in slots.items()}
    values.update((name, np.asarray(array)) for name, array in state.variables.items())
    return values


def equal(actual, expected):
    return set(actual) == set(expected) and all(actual[key].tobytes() == expected[key].tobytes() for key in expected)


def largest(actual, expected):
    return max(oracle.distance(actual[name], expected[name]) for name in expected)


WRITERS = list(writers())
WAYS = harness.all_ways()


def cases():
    """Yields ((definition, way), writers whose files it reads)."""
    for place, way in enumerate(WAYS):
        for turn, name in enumerate(sorted(DEFINITIONS)):
            if way in harness.quickest() or way.name in [writer.way for writer in WRITERS]:
                yield (name, way), harness.share(WRITERS, 3, turn + harness.TURN)
            elif (place + turn) % 2:
                yield (name, way), WRITERS[turn // 2 :: 3]


READ = collections.OrderedDict(cases())


def test_there_are_all_writers():
    assert [writer.name for writer in WRITERS] == (
        "get_updates-keras2.1 get_updates-keras2.3 keras3-jax keras3-tf2.21 optimizer_v2-tf1.15 optimizer_v2-tf2.10 "
        "tf_train-tf1.15 tf_train-tf1.4 update_step-tf2.15").split()  # fmt: skip
    for writer in WRITERS:
        assert set(writer.weights) == set(DEFINITIONS)


@pytest.mark.parametrize("name, way", list(READ), ids=ids)
def test_continues_runs_of_other_apis(name, way):
    run = new_run(way, DEFINITIONS[name])
    own_half = halfway(run)
    own_end = end(run)
    run.close()
    run, bound_to = None, None
    for writer in READ[name, way]:
        state = everstep.State.load(os.path.join(STATES, writer.name, name + ".npz"))
        assert (state.updates, state.steps) == ((12, HALF) if name == "accumulate_adam" else (HALF, None))
        if state.definition != bound_to:  # equal for all writers
            assert bound_to is None
            bound_to, run = state.definition, new_run(way, everstep.Definition.from_config(state.definition))
        everstep.restore(run.optimizer, state, run.variables, session=getattr(run, "session", None), weights=True)
        actual = end(run)
        expected = {each: np.float32(values) for each, values in writer.weights[name].items()}
        far, apart = largest(actual, expected), largest(own_end, expected)
        wrote = writer.way == way.name and writer.versions == versions()
        RESULTS.append([writer.name, way.name, name, far, apart, wrote])
        assert far <= min(BOUND, max(2 * apart, FLOOR)), (writer.name, far, apart)
        if wrote and equal(arrays(own_half), arrays(state)):  # another CPU may round differently
            assert equal(own_end, expected) and equal(actual, expected), writer.name
    run.close()


@pytest.mark.shared(False)
def test_zz_results():
    """Prints the distances, and writes them for matrix/report.py."""
    shown = {}
    for writer, way, _, far, apart, wrote in RESULTS:
        known = shown.get((writer, way), (0, 0, wrote))
        shown[writer, way] = max(far, known[0]), max(apart, known[1]), wrote
    print("\n{:22} {:26} {:>9} {:>13}".format("writer", "reader", "continued", "uninterrupted"))
    for (writer, way), (far, apart, wrote) in sorted(shown.items()):
        print("{:22} {:26} {:9.1e} {:13.1e}{}".format(writer, way, far, apart, " its own" if wrote else ""))
    if os.environ.get("EVERSTEP_TABLE"):
        with open(os.environ["EVERSTEP_TABLE"].replace(".json", ".grid.json"), "w") as file:
            json.dump(RESULTS, file, indent=0)
