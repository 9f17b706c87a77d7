"""Trains every definition in every way of this environment, and compares it with the float64 oracle.

By default a cell runs a share of the cases, and the matrix as a whole runs all of them. Every definition meets every
target, on a mix of dense, sparse and missing gradients, in one of the cells of each API. Configurations, the ways of a
target, and the variables of a graph rotate from definition to definition and from cell to cell. Every other test takes
a part of the definitions in each cell. NumPy is tested only where no framework is installed. With EVERSTEP_FULL=1
every combination runs.

Prints the largest differences as a table at the end; EVERSTEP_TABLE=FILE also writes them as JSON.
"""

from __future__ import absolute_import, division, print_function

import argparse
import importlib
import itertools
import json
import os
import sys

import pytest

import everstep
import harness
from everstep.compat.ways.torch_world import torch_ways
from everstep.optimizers.contract.composite import Composite
from everstep.optimizers.contract.definition import Definition
from everstep.testing import checks, training
from everstep.testing.checks import takes
from everstep.testing.definitions import check_golden
from everstep.testing.training import BOUNDS, SHAPES, STEPS

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden")
sys.path.insert(0, GOLDEN)
# one test fails if it is missing; the others run with defaults
NO_DATA = argparse.Namespace(CONFIGURATIONS=[], GOLDEN=[])

pytestmark = pytest.mark.shared
WAYS = harness.framework_ways() + torch_ways() or [harness.NUMPY]
RESULTS = {}  # (definition, way, case) -> largest difference


def golden(definition_class):
    """Returns the test data of a definition: the module in tests/golden with the same name."""
    name = definition_class.__module__.rsplit(".", 1)[-1]
    return importlib.import_module(name) if os.path.exists(os.path.join(GOLDEN, name + ".py")) else NO_DATA


def definition_classes():
    return [each for each in Definition.registered() if each.__module__.startswith("everstep.optimizers.")
            and not issubclass(each, Composite) and each is not Definition]


def configurations(definition_class):
    return training.configurations(definition_class, golden(definition_class).CONFIGURATIONS)


def define(definition_class, configuration, **more):
    arguments = dict({"learning_rate": 0.1}, **getattr(golden(definition_class), "BASE", {}))
    arguments.update(configuration)
    arguments.update(more)
    return definition_class(**arguments)


def label(definition_class, configuration):
    return " ".join([definition_class.__name__] + ["{}={}".format(*item) for item in sorted(configuration.items())])


CONFIGURED = [(each, settings) for each in definition_classes() for settings in configurations(each)]
# One for each meaning of a sparse gradient. With zero_grad_is_noop there is only one.
SPARSE_CONFIGURED = CONFIGURED + [
    (each, dict(settings, sparse="rows")) for each, settings in CONFIGURED
    if each.stages == 1 and (
        takes(define(each, settings), "rows") or harness.FULL and define(each, settings).zero_grad_is_noop)]
SPARSE_CONFIGURED += [
    (each, dict(settings, sparse="catch_up")) for each, settings in CONFIGURED
    if takes(define(each, settings), "catch_up")
]


def sparse_cases():
    """Returns (way, configured) for this cell's part of the pairs of definition and target, each in one form.

    On NumPy it returns a sixth of the forms, by the Python's minor version: the nine NumPy cells cover all of them.
    """
    if WAYS == [harness.NUMPY] and not harness.FULL:
        return [(WAYS[0], configured) for configured in SPARSE_CONFIGURED[sys.version_info[1] % 6 :: 6]]
    pairs = []
    for place, each in enumerate(definition_classes(), harness.TURN):
        for turn, way in enumerate(WAYS if harness.FULL else harness.one_of_each_target(WAYS, place), place):
            # A target without sparse gradients refuses "rows" (tests/test_keras3_backends.py).
            known = SPARSE_CONFIGURED if way.sparse else CONFIGURED
            forms = [configured for configured in known if configured[0] is each]
            if harness.is_mine("{} {}".format(each.__name__, way.target), way.target):
                pairs += [(way, configured) for configured in (forms if harness.FULL else [forms[turn % len(forms)]])]
    return pairs


def cases(ways, each_of=2):
    """Returns [(way, configured)]: part of the definitions, each in one way and configuration, or every combination."""
    if harness.FULL:
        return list(itertools.product(ways, CONFIGURED))
    pairs = []
    for place, each in enumerate(harness.share(list(definition_classes()), each_of), harness.TURN):
        forms = [configured for configured in CONFIGURED if configured[0] is each]
        pairs.append((ways[place % len(ways)], forms[place % len(forms)]))
    # each cell runs two thirds, and other cells run other thirds
    return [pair for place, pair in enumerate(pairs, harness.TURN) if place % 3]


# `accumulate` refuses a definition that takes several gradients of each batch.
ACCUMULATED = harness.share([case for case in sparse_cases() if case[1][0].stages == 1], 4)

def start_range(definition):
    """Returns the lowest and highest start value of a definition's variables.

    A multiplicative step never changes a variable's sign, so such rules start where gradients drive them away from 0.
    """
    rule = definition and definition.base
    return training.START if isinstance(rule, (type(None), Composite)) else getattr(
        golden(type(rule)), "START", training.START)


def start_values(dtype, shapes=SHAPES, definition=None):
    return training.start_values(dtype, shapes, start_range(definition))


# Not all variables of training.SHAPES, so that graphs are half as large.
SOME = ("dense", "single", "duplicates", "missing"), ("dense", "bias", "unique", "missing")


def trial(way, definition, inner=None, **settings):
    """Returns a Trial: on a framework with some of the variables, which rotate; on NumPy with all."""
    ops = [] if isinstance(definition.base, Composite) else getattr(golden(type(definition.base)), "OPS", [])
    if way.target == "torch_optim":  # torch has all of them, and its optimizers need parameters
        ops = []
    if ops and not set(ops).issubset(harness.bound(definition.bind(way.module)).backend.ops):
        pytest.skip("Keras 3.0 has no eigh: https://github.com/keras-team/keras/issues/19062")
    trial = training.Trial(way, definition, inner, **dict({"between": start_range(definition)}, **settings))
    if way.target != "arrays" and not harness.FULL and "shapes" not in settings:
        names = SOME[(harness.TURN + len(repr(definition))) % 2]
        keep = lambda values: {name: values[name] for name in names}  # noqa: E731
        trial.start, trial.kinds, trial.batches = keep(trial.start), keep(trial.kinds), list(map(keep, trial.batches))
    return trial


def run_and_compare(way, definition, inner=None, **settings):
    """Trains, and returns {variable: largest difference of it and its slots} from the oracle's run of `inner`."""
    return training.of_variables(trial(way, definition, inner, **settings).differences())


def note(definition_label, way, case, value):
    key = (definition_label, way.name, case)
    RESULTS[key] = max(value, RESULTS.get(key, 0.0))


def check(definition_label, way, differences, dtype="float32", case=None, bound=None):
    for name, difference in sorted(differences.items()):
        kind = case or (name if name in ("unique", "duplicates") else "dense")
        note(definition_label, way, kind, difference)
    worst = max(differences, key=differences.get)
    assert differences[worst] <= (bound or BOUNDS[dtype]), (worst, differences[worst])


def ids(value):
    if isinstance(value, harness.Way):
        return value.name.replace(" ", "-")
    if isinstance(value, Definition):
        return type(value).__name__
    if isinstance(value, tuple) and isinstance(value[0], type):
        return label(*value).replace(" ", "-")
    return value.__class__.__name__ if isinstance(value, (tuple, everstep.Schedule)) else str(value).replace(" ", "")


@pytest.mark.shared(False)  # `sparse_cases` trains with this option
@pytest.mark.parametrize("way, configured", sparse_cases(), ids=ids)
def test_equals_oracle(way, configured):
    check(label(*configured), way, run_and_compare(way, define(*configured)))


@pytest.mark.parametrize("way, configured", ACCUMULATED, ids=ids)
def test_accumulated_equals_joined_batches(way, configured):
    inner = define(*configured)
    steps = 4 * STEPS if harness.FULL else 2 * STEPS
    differences = run_and_compare(way, everstep.accumulate(inner, steps=4), inner, accumulate=4, steps=steps)
    check(label(*configured), way, differences, case="accumulated")


@pytest.mark.parametrize("dtype, way, configured",
                         [(dtype,) + case for dtype in ("float64", "float16") for case in cases(WAYS)], ids=ids)
def test_other_dtypes(dtype, way, configured):
    check(label(*configured), way, run_and_compare(way, define(*configured), dtype=dtype), dtype, dtype)


# On tf_train hypers are constants of the graph, by design. test_tf_train.py changes them by a placeholder.
SETTABLE = [way for way in WAYS if way.target != "tf_train"]


@pytest.mark.parametrize("way, configured", cases(SETTABLE), ids=ids)
def test_changed_learning_rate(way, configured):
    rate = define(*configured).learning_rate
    rates = {50: rate * 0.1, 80: rate * 2}
    check(label(*configured), way, run_and_compare(way, define(*configured), rates=rates), case="rate set")


class Steps(everstep.Schedule):
    """A schedule with a third of the rate from the 40th update on."""

    first = everstep.option(0.1)

    def value(self, ops, updates):
        return ops.where(updates < 40, self.first, self.first / 3)


SCALE = {everstep.InverseTimeDecay: "initial", Steps: "first"}  # the argument that scales all values of a schedule


SCHEDULES = [everstep.InverseTimeDecay(0.2, 0.01), Steps(0.2)]


@pytest.mark.parametrize("way, configured, schedule",
                         [case + (SCHEDULES[place % 2],) for place, case in enumerate(cases(WAYS))], ids=ids)
def test_schedule(way, configured, schedule):
    schedule = schedule.replace(**{SCALE[type(schedule)]: 2 * define(*configured).learning_rate})
    definition = define(*configured, learning_rate=schedule)
    check(label(*configured), way, run_and_compare(way, definition), case="schedule")


def large(definition_class, steps=None):
    """Returns the settings of a trial with a million elements."""
    numbers = golden(definition_class)
    return {"shapes": {"large": getattr(numbers, "LARGE", (1031, 1024))}, "kinds": {"large": harness.DENSE},
            "steps": steps or getattr(numbers, "LARGE_STEPS", 30)}


@pytest.mark.parametrize("way, configured", cases(WAYS, each_of=16), ids=ids)
def test_a_million_elements(way, configured):
    settings = large(configured[0], STEPS if harness.FULL else None)
    # TF 1.4 to 1.8 add up a million squares inexactly: see docs/strategies.md.
    version = getattr(sys.modules.get("tensorflow"), "__version__", "").split(".")[:2]
    bound = 3e-5 if version in [["1", minor] for minor in "45678"] else None
    differences = run_and_compare(way, define(*configured), **settings)
    check(label(*configured), way, differences, case="1M elements", bound=bound)


if WAYS == [harness.NUMPY] and harness.FULL:
    # With EVERSTEP_FULL=1 a cell runs longer, and without it few of the cases. So the oracle alone shows here that each
    # short run can tell something: a sixth of them in each of the nine cells.
    @pytest.mark.shared(False)
    @pytest.mark.parametrize("configured", CONFIGURED[sys.version_info[1] % 6 :: 6], ids=ids)
    def test_short_runs_move_enough(configured):
        definition = define(*configured)
        trial(WAYS[0], definition, **large(configured[0])).expected()
        if definition.stages == 1:
            trial(WAYS[0], everstep.accumulate(definition, 4), definition, accumulate=4, steps=2 * STEPS).expected()


@pytest.mark.parametrize("way, configured", cases(WAYS), ids=ids)
def test_save_and_resume_is_exact(way, configured):
    """Tests the definition itself in one cell; in the next, inside of `accumulate` in the middle of a window."""
    plain = define(*configured)
    both = [plain, everstep.accumulate(plain, 4) if plain.stages == 1 else plain]
    for definition in both if harness.FULL else [both[(harness.TURN + len(repr(plain))) % 2]]:
        assert checks.resumed_differs(trial(way, definition, steps=20)) == []


@pytest.mark.parametrize("definition_class, settings, start, grads, expected",
                         [(each,) + row for each in definition_classes() for row in golden(each).GOLDEN],
                         ids=lambda value: value.__name__ if isinstance(value, type) else "")
def test_numbers_worked_by_hand(definition_class, settings, start, grads, expected):
    assert check_golden(definition_class, 1e-7, settings, start, grads, expected).failure is None


def no_golden_numbers(definition_class):
    """Returns what to do about a definition without golden numbers; "" if it has some."""
    if golden(definition_class).GOLDEN:
        return ""
    form = "{} has no golden numbers: write tests/golden/{}.py with GOLDEN. CONTRIBUTING.md says how"
    return form.format(definition_class.__name__, definition_class.__module__.rsplit(".", 1)[-1])


@pytest.mark.parametrize("definition_class", definition_classes(), ids=lambda value: value.__name__)
def test_every_definition_has_golden_numbers(definition_class):
    assert no_golden_numbers(definition_class) == ""


def test_a_definition_without_golden_data_is_named(monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "GOLDEN", os.path.join(GOLDEN, "empty"))
    said = no_golden_numbers(everstep.optimizers.AdaBelief)
    assert said.startswith("AdaBelief has no golden numbers: write tests/golden/adabelief.py with GOLDEN")
    assert configurations(everstep.optimizers.AdaBelief) and define(everstep.optimizers.AdaBelief, {})


@pytest.mark.shared(False)
def test_zz_table():
    """Prints the table of results. The name makes it run last."""
    assert RESULTS, "no case has run"
    cases = [
        "dense", "unique", "duplicates", "accumulated", "rate set", "schedule", "float64", "float16", "1M elements",
    ]
    rows = sorted({key[:2] for key in RESULTS}, key=lambda key: (key[1], key[0]))
    wide = max(len(row[0]) for row in rows)
    print("\nlargest difference, max|d| / max|w|")
    print("{:{}}  {:22} {}".format("definition", wide, "way", " ".join("{:>11}".format(case) for case in cases)))
    for row in rows:
        cells = [RESULTS.get(row + (case,)) for case in cases]
        shown = " ".join("{:>11}".format("" if cell is None else "{:.1e}".format(cell)) for cell in cells)
        print("{:{}}  {:22} {}".format(row[0], wide, row[1], shown))
    if os.environ.get("EVERSTEP_TABLE"):
        folder = os.path.dirname(os.environ["EVERSTEP_TABLE"])
        if not os.path.isdir(folder):
            os.makedirs(folder)
        with open(os.environ["EVERSTEP_TABLE"], "w") as file:
            json.dump([list(key) + [value] for key, value in sorted(RESULTS.items())], file, indent=0)
