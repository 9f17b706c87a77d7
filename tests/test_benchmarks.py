"""The benchmarks measure what they say: both sides of a comparison train alike, and the pages hide no figure.

No test here measures time.
"""
from __future__ import absolute_import, division, print_function

import importlib
import os
import re
import sys
import zlib

import numpy as np
import pytest

from conftest import CELL, FULL

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDER = os.path.join(ROOT, "benchmarks")
TOOLS = {
    "__main__", "worker", "timing", "measures", "apis", "on_tensorflow", "on_keras3", "stacks", "report", "pictures",
}
SCRIPTS = {"beside_optax", "beside_torch", "cluster", "device", "large_capture", "large_state", "traffic"}  # commands
MODERN = sys.version_info >= (3, 7)
pytestmark = pytest.mark.skipif(not MODERN, reason="a tool in modern Python")

TF_1, TF_2, TF_2_15, KERAS_3 = "py37-tf1.15-k2.3", "py39-tf2.10", "py311-tf2.15", "py313-tf2.21-tfk"
JAX, TORCH = "py313-k3jax", "py311-k3torch"
STACKS = ("clip", "decay", "clip, decay", "moving average", "multipliers", "BERT's stack")
# {(measure, environment, API): {case, and a label other than "everstep": target}}: those that the project set itself
TARGETS = {
    ("wrappers", TF_1, "tf_train"): dict(dict.fromkeys(STACKS, 1.1), **{"BERT's own class": 0.4}),
    ("wrappers", TF_1, "tf_train, resource"): dict.fromkeys(STACKS, 1.1),
    ("wrappers", TF_2, "optimizer_v2"): {"BERT's stack": 1.05},
    ("wrappers", TF_2_15, "optimizer_v2"): {"clip": 1.05},
    ("wrappers", KERAS_3, "keras3"): {"clip, decay": 0.4},
    ("rules", TF_1, "tf_train"): {"SGD momentum, B": 1.6, "Nesterov momentum, B": 1.8, "Lion, B": 1.3},
    ("rules", TF_1, "tf_train, resource"): {"LAMB, B": 1.3},
    ("dense", TF_1, "tf_train"): {"B/DiffGrad": 1.3},
    ("eager", TF_2, "optimizer_v2"): {"100 variables": 0.5, "10 variables": 0.7},
    ("accumulate", TF_2, "optimizer_v2"): {"pending": 0.35},
    ("accumulate", KERAS_3, "keras3"): {"mean of four": 0.7},
    ("first_step", TF_2_15, "update_step"): {"accumulate, 100 variables": 1.5},
    ("sparse", TF_2, "optimizer_v2"): {"1000000/catch_up": 2.0},
    ("state", TF_1, "tf_train"): {"save, 500 MB": 1.5},
    ("dense", TORCH, "keras3, torch"): {"A": 0.15, "B": 0.15, "C": 0.8, "B/DiffGrad": 1.0},
    ("rules", TORCH, "keras3, torch"): {"SGD momentum, B": 1.0, "SGD momentum, C": 1.0, "AdaBelief, B": 1.0},
    ("dense", JAX, "keras3, jax"): {"B/DiffGrad": 1.6},
}
# [(measure, environment, API, case, label, target)]
GOALS = [place + (case.split("/")[0], (case + "/everstep").split("/")[1], target)
         for place, cases in sorted(TARGETS.items()) for case, target in sorted(cases.items())]


@pytest.fixture(autouse=True)
def folders(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    monkeypatch.syspath_prepend(FOLDER)


def result(measure, environment, api, case, label, ratio, base=None):
    """Returns a made-up result: `label` costs `ratio` times what everything else costs."""
    measures = importlib.import_module("benchmarks.measures")
    others = dict.fromkeys([base or measures.MEASURES[measure].base, "stock", "plain", "rows", "LazyAdam"], 1.0)
    figures = dict(others, **{label: ratio})
    parts = dict.fromkeys(("first", "nodes", "peak"), dict.fromkeys(figures))
    parts.update(kind=measure, cell=environment, target=api, case=case, beside="")
    return dict(parts, seconds=figures, ratios=figures)


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: " ".join(goal[:4]))
def test_targets_are_in_the_table(goal):
    limits = importlib.import_module("benchmarks.measures").limits(result(*goal[:5], ratio=3.0))
    assert limits[goal[4]][0].limit == goal[5] and limits[goal[4]][1] == 3.0


def test_every_file_is_a_tool_or_a_measure():
    measures = importlib.import_module("benchmarks.measures")
    modules = {measure.module for measure in measures.MEASURES.values()}
    files = {name[: -len(".py")] for name in os.listdir(FOLDER) if name.endswith(".py")}
    assert files - SCRIPTS == TOOLS | modules
    for name, measure in measures.MEASURES.items():
        assert callable(getattr(importlib.import_module(measure.module), name))


def rows(lines):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]


def test_the_overview_has_every_target_and_every_row_that_loses():
    report, measures = (importlib.import_module("benchmarks." + name) for name in ("report", "measures"))
    targets = [(name, target) for name, measure in measures.MEASURES.items() for target in measure.targets]
    empty = rows(report.overview([]))[2:]
    assert [[row[0], row[1], row[3], row[4], row[7]] for row in empty] == [
        [name] + ["`%s`" % pattern for pattern in (target.case, target.environment, target.api)] + ["not measured"]
        for name, target in targets
    ]

    losing = [result(*goal[:5], ratio=3.01 + number / 100) for number, goal in enumerate(GOALS)]
    losing.append(result("models", TF_2, "optimizer_v2", "LSTM", "everstep", 1.04))  # no target, slower than stock
    text = "\n".join(report.overview(losing))
    everything = "\n".join(report.tables(losing))
    for each in losing:
        label, ratio = max(each["ratios"].items(), key=lambda item: item[1])
        row = [row for row in rows(text.splitlines()) if row[-1] == "**{:.2f}**".format(ratio)]
        case = "{:,}".format(int(each["case"])) if each["case"].isdigit() else each["case"]
        assert [each["kind"], case, label, each["cell"], each["target"]] in [found[:5] for found in row]
        if each["kind"] != "sparse":  # in milliseconds
            assert "**{:.2f}**".format(ratio) in everything

    place = "wrappers", TF_2, "optimizer_v2"
    winning = [result(*place, case=case, label="everstep", ratio=ratio) for case, ratio in (("a", 0.5), ("b", 0.6))]
    [row] = [row for row in rows(report.overview(winning)) if row[3] == TF_2]
    assert row[1:] == ["b", "everstep", TF_2, "optimizer_v2", "1.05", "2 of 2", "0.60"]  # the target that is nearest


def test_what_users_read_in_short():
    report = importlib.import_module("benchmarks.report")
    assert [report.in_words(ratio) for ratio in (0.35, 0.954, 1.046, 1.93, None)] == [
        "65 % less", "the same", "the same", "93 % more", ""]
    found = rows(report.in_short([result("dense", TF_1, "tf_train", "B", "DiffGrad", 1.5)]))
    assert found[2] == ["`tf.train`, TF 1.15", "", "", "50 % more", ""]
    stored = {(each["cell"], each["target"], each["kind"], each["case"]) for each in report.baseline()}
    assert {case[0] for case in report.SHORT_CASES.values()} <= {known[2] for known in stored}
    for place in report.SHORT_APIS:
        assert place in {known[:2] for known in stored}


def test_pictures_name_apis_as_the_page_does():
    pictures, report = [importlib.import_module("benchmarks." + name) for name in ("pictures", "report")]
    assert {place: pictures.title(*place[::-1]) for place in report.SHORT_APIS} == {
        place: name.replace("`", "") for place, name in report.SHORT_APIS.items()}
    assert pictures.title("optimizer_v2", "py311-tf2.15") == "tf.keras.optimizers.legacy, TF 2.15"
    assert pictures.title("update_step", "py313-tf2.21-tfk") == "tf_keras, TF 2.21"
    assert pictures.title("tf_train, resource", TF_1) == "tf.train with resource variables, TF 1.15"


def test_targets_stand_beside_figures():
    report = importlib.import_module("benchmarks.report")
    found = report.tables([result("wrappers", TF_1, "tf_train", "clip", "everstep", 2.4)])
    assert rows(found)[2][:3] == [TF_1, "tf_train", "clip"] and "**2.40** (1.1)" in rows(found)[2]
    found = report.tables([result("sparse", TF_2, "optimizer_v2", "10000", "catch_up", 3.0)])
    assert any(cell.startswith("**3000.00** (3.00 of rows; 2)") for cell in rows(found)[2])


def test_tables_line_up():
    report = importlib.import_module("benchmarks.report")
    results = [result(*goal[:5], ratio=2.5) for goal in GOALS]
    for lines in (report.overview(results), report.tables(results)):
        for table in re.findall(r"(?:^\|.*\n)+", "\n".join(lines) + "\n", re.M):
            bars = {tuple(place for place, char in enumerate(line) if char == "|") for line in table.splitlines()}
            assert len(bars) == 1


def test_one_measure_is_asked_for():
    selected = importlib.import_module("benchmarks.measures").selected
    parts = "dense", "tf_train, resource", "A"
    assert selected([], *parts) and selected(["rules", "dense/A"], *parts) and selected(["tf_train, resource"], *parts)
    assert not selected(["dense/B"], *parts) and not selected(["dense/tf_train"], *parts)


def test_what_is_stored_of_results(monkeypatch, tmp_path):
    report = importlib.import_module("benchmarks.report")
    stored = report.baseline()
    with open(report.BASELINE) as file:
        text = file.read()
    assert len(text) < 100000, "it is compared at each commit: keep what the pages and the comparison need"
    monkeypatch.setattr(report, "BASELINE", str(tmp_path / "baseline.json"))
    report.store(stored)
    with open(report.BASELINE) as file:
        assert file.read() == text
    measured = result("first_step", TF_1, "tf_train", "300 variables", "everstep", 1 / 3.0)
    report.store([dict(measured, first={}, peak={}, nodes=dict(measured["nodes"], everstep=12.5))])
    [kept] = report.baseline()
    assert kept["ratios"]["everstep"] == kept["seconds"]["everstep"] == 0.3333333
    assert kept["nodes"] == dict(measured["nodes"], everstep=12.5) and "peak" not in kept
    assert {key: kept[key] for key in report.PLACE} == {key: measured[key] for key in report.PLACE}


def test_the_pages_show_the_stored_figures():
    report = importlib.import_module("benchmarks.report")
    results = report.baseline()
    for page, text in report.pages(results).items():
        with open(os.path.join(ROOT, "docs", page)) as file:
            assert file.read() == text, "run python benchmarks/report.py"
    measures = importlib.import_module("benchmarks.measures").MEASURES
    assert {each["kind"] for each in results} <= set(measures)
    for each in results:
        alone = each["kind"] == "first_step" or each["case"] == str(importlib.import_module("sparse").LARGE)
        assert alone or measures[each["kind"]].base in each["ratios"]


# With frameworks: every case runs, on small variables.

ENVIRONMENT = MODERN and CELL in (TF_1, TF_2, TF_2_15, KERAS_3, JAX, TORCH)
KINDS = ("wrappers", "rules", "eager", "accumulate", "first_step", "models", "dense", "strategies", "sparse", "forms",
         "flat", "state", "lazy", "peers")  # fmt: skip
# The two labels that compute the same, by measure.
ALIKE = {"sparse": ("stock", "exact"), "lazy": ("stock", "rows"), "strategies": ("without", "with")}
ALIKE.update(flat=(), forms=())
ANOTHER_RULE = "multipliers|BERT's own class|DiffGrad|^peers|^models"  # at the same price, or from another start


def alike(kind, api, case):
    """Returns the labels of a case whose weights are equal."""
    if api.name == "get_updates" and CELL == TF_1:
        return ()  # stock Adam of Keras 2.3 reads its count before or after it is raised, as TensorFlow happens to run
    other = kind == "rules" and case.beside == "Adam" or re.search(ANOTHER_RULE, "{} {}".format(kind, case.name))
    return () if other else ALIKE.get(kind, ("stock", "everstep"))


@pytest.fixture
def small(monkeypatch):
    """Makes all sizes small, and clips so much that Adam's epsilon shows it."""
    timing = importlib.import_module("timing")
    for case in timing.DENSE:
        monkeypatch.setitem(timing.DENSE, case, [(20,)] * 10)
    for place, value in [
        ("timing.BATCHES", 3), ("wrappers.TEN", [(3, 4)] * 10), ("accumulate.TEN", [(5,)] * 10),
        ("accumulate.TABLE", [(50, 2)]), ("sparse.COLUMNS", 1), ("sparse.LARGE", 2000000), ("first_step.MANY", 3),
        ("first_step.SOME", 3), ("state.MEGABYTES", 0.0024), ("models.WORDS", 30), ("models.WIDTH", 8),
        ("models.LENGTH", 4), ("models.BATCH", 2), ("stacks.NORM", 1e-7),
    ]:
        monkeypatch.setattr(place, value)
    if os.environ.get("KERAS_BACKEND", "tensorflow") == "tensorflow":
        monkeypatch.setattr(importlib.import_module("on_tensorflow"), "BATCHES", 3)


@pytest.mark.shared
@pytest.mark.skipif(not ENVIRONMENT, reason="an environment of the benchmarks")
@pytest.mark.filterwarnings("ignore")  # what stock optimizers of these versions warn of
@pytest.mark.parametrize("kind", KINDS)
def test_both_sides_train_alike(kind, small):
    measures = importlib.import_module("measures")
    assert set(KINDS) == set(measures.MEASURES)
    cases = [(api, case) for api in importlib.import_module("apis").apis() for case in measures.cases(kind, api)]
    if cases and not FULL:
        cases = [cases[zlib.crc32("{} {}".format(CELL, kind).encode()) % len(cases)]]
    for api, case in cases:
        name = "{} {} {}".format(kind, api.name, case.name)
        runs = case.runs()
        alone = kind == "first_step" or case.name == str(importlib.import_module("sparse").LARGE)
        assert alone or next(iter(runs)) == measures.MEASURES[kind].base, name
        for run in runs.values():
            run.run(3 if run.warm else 1)  # more steps, after the one that it has taken
        weights = {label: run.weights() for label, run in runs.items()}
        assert all(np.isfinite(value).all() for values in weights.values() for value in values), name
        compared = alike(kind, api, case)
        if set(compared) <= set(weights):
            for one, other in zip(*(weights[label] for label in compared)):
                np.testing.assert_allclose(one, other, rtol=0, atol=2e-5, err_msg=name)
