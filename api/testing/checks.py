"""The checks of `check_definition`. Each trains a definition in one way, and returns what differs from the oracle."""
from __future__ import absolute_import, division, print_function

import json
from collections import OrderedDict, namedtuple

import numpy as np

from everstep.compat.engine.fused import KERNELS
from everstep.compat.engine.lowering import STRATEGIES
from everstep.compat.engine.variable_view import LAST_WINDOW
from everstep.compat.ways.known import quickest
from everstep.compat.ways.runs import DENSE, NONE
from everstep.errors import CheckError, DefinitionError, RuleError
from everstep.optimizers.contract.definition import Definition
from everstep.optimizers.contract.kernel_names import kernel_of
from everstep.optimizers.contract.schedule import InverseTimeDecay
from everstep.optimizers.contract.verbs import overrides
from everstep.optimizers.wrappers.accumulate import accumulate
from everstep.testing.oracle import distance
from everstep.testing.training import MODEL, Difference, Trial

# bound: of the differences; trial: what was trained, None if it cannot be trained again step by step
Measured = namedtuple("Measured", "differences bound trial")
ACCUMULATED = 4
MOST_MISSED, FEW = 600, 25  # steps


def takes(definition, sparse):
    """Returns whether a definition can be made with "rows" or "catch_up", and then differs from "exact"."""
    try:
        return not definition.replace(sparse=sparse).zero_grad_is_noop
    except (DefinitionError, RuleError):
        return False


def _measured(trial):
    return Measured(trial.differences(), trial.bound, trial)


def gradients(way, definition, settings):
    """Trains on dense gradients, on those of some rows, and with rows that come twice."""
    return _measured(Trial(way, definition, **settings))


def rows(way, definition, settings):
    """The same with sparse="rows"."""
    if way.sparse and not definition.children() and takes(definition, "rows"):
        return _measured(Trial(way, definition.replace(sparse="rows"), **settings))
    return None


def catch_up(way, definition, settings):
    """The same with sparse="catch_up", where the rule has it."""
    if way.sparse and not definition.children() and takes(definition, "catch_up"):
        return _measured(Trial(way, definition.replace(sparse="catch_up"), **settings))
    return None


def fast_forward(way, definition, settings):
    """Rows miss many steps: at a constant rate, with a schedule and with rates that are set, where a rule has it."""
    if not (way.sparse and takes(definition, "catch_up") and overrides(definition, "fast_forward")):
        return None
    steps = max(settings["steps"], min(2 * definition.max_replay_steps, MOST_MISSED))
    late, settings = definition.replace(sparse="catch_up"), dict(settings, steps=steps, away=True)
    trials = [Trial(way, late, **settings)]
    if _has_rate(definition):
        rate = definition.learning_rate
        trials.append(Trial(way, late.replace(learning_rate=InverseTimeDecay(2 * rate, 0.01)), **settings))
        if way.target != "tf_train":
            trials.append(Trial(way, late, rates={steps // 3: 0.1 * rate, 2 * steps // 3: 2 * rate}, **settings))
    return max([_measured(trial) for trial in trials], key=lambda measured: max(
        [each.distance for each in measured.differences] or [0.0]))


def model(way, definition, settings):
    """Variables of several names and sizes, as models have them: see `everstep.testing.training.MODEL`."""
    low, high = settings["between"]  # so near 0 that few steps move them by their own size
    return _measured(Trial(way, definition, **dict(
        settings, shapes=MODEL, kinds=dict.fromkeys(MODEL, DENSE), steps=FEW, between=(0.1 * low, 0.1 * high))))


def accumulated(way, definition, settings):
    """Four steps make one update, like one step on their mean gradient."""
    settings = dict(settings, steps=2 * settings["steps"])
    whole = accumulate(definition, steps=ACCUMULATED)
    return _measured(Trial(way, whole, definition, accumulate=ACCUMULATED, **settings))


def _has_rate(definition):
    return definition.takes("learning_rate") and isinstance(definition.learning_rate, float)


def rate_set(way, definition, settings):
    """The learning rate is set on the native optimizer, twice. On tf.train it is a constant of the graph."""
    if way.target == "tf_train" or not _has_rate(definition):
        return None
    rate, steps = definition.learning_rate, settings["steps"]
    return _measured(Trial(way, definition, rates={steps // 2: 0.1 * rate, 4 * steps // 5: 2 * rate}, **settings))


def schedule(way, definition, settings):
    """The learning rate is a schedule."""
    if not _has_rate(definition):
        return None
    scheduled = definition.replace(learning_rate=InverseTimeDecay(2 * definition.learning_rate, 0.01))
    return _measured(Trial(way, scheduled, **settings))


def float64(way, definition, settings):
    """Variables of float64."""
    return _measured(Trial(way, definition, dtype="float64", **settings))


def float16(way, definition, settings):
    """Variables of float16."""
    return _measured(Trial(way, definition, dtype="float16", **settings))


def resumed(way, definition, settings):
    """Saved in the middle, in the middle of a window too, a run goes on as if it had not stopped: bit for bit."""
    wrong = resumed_differs(Trial(way, definition, **dict(settings, steps=30)))
    wrong = wrong or resumed_differs(Trial(way, accumulate(definition, ACCUMULATED), **dict(settings, steps=30)))
    return Measured(wrong, 0.0, None)


def resumed_differs(trial, half=14):
    """Returns [Difference] between a run that is saved and goes on, and one that does not stop."""
    def ended(run):
        values = {}
        for name in run.trained():
            slots = [slot for slot in run.bound.slot_names(run.variables[name]) if slot != LAST_WINDOW]
            values.update(((name, slot), run.slot(name, slot)) for slot in slots)
            values[name, None] = run.weights()[name]
        run.close()
        return values

    expected = ended(trial.train(trial.run()))
    first = trial.train(trial.run(), 0, half)
    actual = ended(trial.train(first.resumed(), half))
    first.close()
    if set(actual) != set(expected):
        raise CheckError("slots are {}, and were {} before".format(sorted(actual), sorted(expected)))
    return [Difference(name, slot, distance(actual[name, slot], value) or 1e-99)
            for (name, slot), value in sorted(expected.items(), key=str)
            if not np.array_equal(actual[name, slot], value)]


def config(way, definition, settings):
    """The definition comes back from its config, and the native optimizer from its own."""
    plain = json.loads(json.dumps(definition.get_config()))
    if Definition.from_config(plain) != definition:
        raise CheckError("{!r} comes back from its config as {!r}".format(definition, Definition.from_config(plain)))
    optimizer = definition.bind(way.module)
    if way.target not in ("tf_train", "arrays"):
        again = type(optimizer).from_config(optimizer.get_config())
        if again.definition != definition:
            raise CheckError("{!r} comes back from its native config as {!r}".format(definition, again.definition))
    return Measured([], 0.0, None)


def moved(way, definition, settings):
    """The state goes to each other API in the middle of the run, which ends there."""
    others = [other for other in quickest() if other.target != way.target]
    if not others:
        return None
    settings = dict(settings, kinds={name: kind for name, kind in settings["kinds"].items() if kind != NONE})
    settings["shapes"] = {name: settings["shapes"][name] for name in settings["kinds"]}
    trial, half = Trial(way, definition, **settings), settings["steps"] // 2
    expected, slots = trial.expected()
    run = trial.train(trial.run(), 0, half)
    state = run.captured(weights=True)
    for variables in (state.slots, state.variables):  # a handle reads from the run
        for name, values in variables.items():
            variables[name] = ({slot: np.array(each) for slot, each in values.items()} if isinstance(values, dict)
                               else np.array(values))
    run.close()
    differences = []
    for other in others:
        there = Trial(other, definition, **settings)
        run = there.run()
        run.restored(state, weights=True)
        differences += there.apart(there.train(run, half), expected, slots)
        run.close()
    return Measured(differences, trial.bound, None)


def plain(way, definition, settings):
    """Where the rule declares a kernel, `update` itself, without any fused operation."""
    kernel = kernel_of(definition)
    if way.target == "arrays" or not way.sparse or not (kernel and kernel.name in KERNELS):
        return None
    forbidden = {"lowering": dict.fromkeys(STRATEGIES, False)}
    return _measured(Trial(way, definition, native=forbidden, **settings))


# The first is made in every way.
CHECKS = OrderedDict((check.__name__, check) for check in (
    gradients, rows, catch_up, fast_forward, model, accumulated, rate_set, schedule, float64, float16, resumed, config,
    moved, plain))
