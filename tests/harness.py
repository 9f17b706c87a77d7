"""What tests need besides everstep.testing: each cell's share of the cases, and tools for sessions and registries."""

from __future__ import absolute_import, division, print_function

import contextlib
import inspect
import json
import logging
import os
import sys

import numpy as np
import pytest

import cells
from crafted_files import arrays_of, handles_of  # noqa: F401
from everstep.compat.engine import fast_forward, lowering, missed_sums
from everstep.compat.stock import registry  # noqa: F401
from everstep.compat.stock.lookup import entries_of  # noqa: F401
from everstep.compat.targets import detect, doctor, hypers, native_classes  # noqa: F401
from everstep.compat.targets.copying import present_definition  # noqa: F401
from everstep.compat.ways import small_model  # noqa: F401
from everstep.compat.ways.keras_worlds import clear_session  # noqa: F401
from everstep.compat.ways.known import ByGet, Way, all_ways, quickest  # noqa: F401
from everstep.compat.ways.runs import (  # noqa: F401
    DENSE,
    NONE,
    SPARSE,
    ArraysRun,
    EagerRun,
    FunctionRun,
    GetUpdatesRun,
    GraphRun,
    KerasJitRun,
    TrainRefRun,
    TrainResourceRun,
    V2SessionRun,
)
from everstep.compat.ways.worlds import graph_mode_tensorflow  # noqa: F401

FULL = bool(os.environ.get("EVERSTEP_FULL"))  # run every case, not only this cell's share
# Rotates ways and cases from cell to cell, so that the matrix as a whole covers all of them.
CELL = os.environ.get("EVERSTEP_CELL", "")
TURN = sum(map(ord, CELL))


def bound(optimizer):
    """Returns the `Bound` of an optimizer: all of ours that belongs to it, and its adapter."""
    return optimizer._bound


def framework_ways():
    return [way for way in all_ways() if way.target != "arrays"]


def in_graphs(way):
    return issubclass(way.run, GraphRun)


def ways_where(condition=lambda way: True):
    """Parametrizes `way` with the ways for which a condition holds; there may be none."""
    return pytest.mark.parametrize("way", list(filter(condition, all_ways())), ids=way_name)


def way_name(way):
    """Returns a way's name, for a test's `ids`. A test without any way gets another object here."""
    return getattr(way, "name", None)


def arguments_of(function):
    """Returns the names of a function's arguments, those that are by keyword alone last.

    Where it can, it looks through decorators: TF 2.10 and Keras 3 wrap Model.compile.
    """
    if hasattr(inspect, "signature"):
        kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        return [name for name, each in inspect.signature(function).parameters.items() if each.kind not in kinds]
    return list(inspect.getargspec(function).args)  # Python 2.7


@contextlib.contextmanager
def unregistered(module):
    """Hides our classes from the API's loaders, as in a process that has not bound any definition."""
    table = native_classes.registry_of(detect.find(module).base).get_custom_objects()
    classes = {name: value for name, value in table.items() if hasattr(value, "definition_class")}
    modules = {name: value for name, value in sys.modules.items() if name.startswith("everstep.native")}
    for known, names in ((table, classes), (sys.modules, modules)):
        for name in names:
            del known[name]
    try:
        yield
    finally:
        table.update(classes)
        sys.modules.update(modules)


def base_of(module):
    """Returns the native base class of the API that a module speaks."""
    return detect.find(module).base


def names_its_optimizers(module):
    """Returns False for the `keras` beside TF 2.5, for one: it exports no classes, so that programs do not use it."""
    return hasattr(getattr(module, "optimizers", module), "Adam")


def kerases():
    """Returns {name: module} of each Keras once: from 2.4 on, `keras` and `tf.keras` are the same."""
    modules = [(name, module) for name, module in detect.known_modules() if hasattr(module, "models")]
    once = {detect.find(module).base: (name, module) for name, module in sorted(modules, key=lambda pair: pair[0])
            if names_its_optimizers(module)}
    return dict(once.values())


def one_of_each_target(ways, turn=TURN):
    """Picks one way of each target, by rotation."""
    targets_here = []
    for way in ways:
        if way.target not in targets_here:
            targets_here.append(way.target)
    grouped = [[way for way in ways if way.target == target] for target in targets_here]
    return [group[turn % len(group)] for group in grouped]


@contextlib.contextmanager
def tensorflow_log():
    """Yields a list of what TensorFlow's Python code logs in the block."""
    said, handler = [], logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    logging.getLogger("tensorflow").addHandler(handler)
    try:
        yield said
    finally:
        logging.getLogger("tensorflow").removeHandler(handler)


def share(cases, each_of, turn=TURN):
    """Returns every n-th of some cases, this cell's share; all of them with EVERSTEP_FULL=1."""
    return cases if FULL else cases[turn % each_of :: each_of]


def rotate(cases, ways):
    """Pairs each way with one of some cases, by rotation: over the matrix every case meets every way."""
    if FULL:
        return [(case, way) for case in cases for way in ways]
    return [(cases[place % len(cases)], way) for place, way in enumerate(ways, TURN)]


def is_mine(case, target=None):
    """Returns whether a case, given as a text that is the same in all cells, is in this cell's `parts` of cells.ini."""
    parts = cells.read()[CELL].parts if CELL and not FULL else {None: ({1}, 1)}
    return cells.has_case(parts, target, cells.number_of(case))


def each_in_turn(cases, ways, each_of=1):
    """Returns [(case, way)]: a share of the cases, each in one way by rotation; every pair with EVERSTEP_FULL=1."""
    if FULL:
        return [(case, way) for case in cases for way in ways]
    return [(case, ways[place % len(ways)]) for place, case in enumerate(share(cases, each_of), TURN)] if ways else []


def shrink(monkeypatch, **sizes):
    """Sets sizes of the engine, so that small variables and short runs reach what otherwise large ones do."""
    for name, size in sizes.items():
        module, = [each for each in (fast_forward, lowering, missed_sums) if hasattr(each, name)]
        monkeypatch.setattr(module, name, size)


NUMPY = next(way for way in all_ways() if way.target == "arrays")
find, known_modules, TARGETS = detect.find, detect.known_modules, detect.TARGETS
open_runs = []  # closed by conftest.py at the end of each test


def opened(run):
    """Returns a run, which is closed at the end of the test."""
    open_runs.append(run)
    return run


def new_run(way, make, start, kinds, batches=()):
    """Returns a run after some steps, closed at the end of the test; `make` is a function or a definition."""
    bind = make if callable(make) else lambda **params: make.bind(way.module, **params)
    run = opened(way.run(bind, start, kinds))
    for batch in batches:
        run.step(batch)
    return run


def assert_same_arrays(actual, expected):
    """Compares {key: array}, or all arrays of two states."""
    actual, expected = (each if isinstance(each, dict) else arrays_of(each) for each in (actual, expected))
    assert set(actual) == set(expected)
    for key in expected:
        np.testing.assert_array_equal(actual[key], expected[key], err_msg=str(key))


def in_graph(way):
    """Returns whether calls build operations that run later."""
    return issubclass(way.run, (GraphRun, GetUpdatesRun))


def write_table(kind, rows):
    """Prints rows, and writes them for matrix/report.py."""
    print("\n".join(map(str, rows)))
    if os.environ.get("EVERSTEP_TABLE"):
        with open(os.environ["EVERSTEP_TABLE"].replace(".json", ".{}.json".format(kind)), "w") as file:
            json.dump(rows, file, indent=0)
