"""The areas of mutate.py are those of the code and the tests, and it finds listed changes where they are now."""
from __future__ import absolute_import, division, print_function

import sys

import pytest

import cells
import harness

if sys.version_info < (3, 9):
    pytest.skip("mutate.py is a tool in modern Python", allow_module_level=True)
pytest.importorskip("resource", reason="mutate.py limits the time of tests")
if harness.framework_ways():
    pytest.skip("the same everywhere: the cells of NumPy run it", allow_module_level=True)

import mutate  # noqa: E402

RULE = "class Rule:\n    def step(self, grad):\n        return 1 + grad + 1\n"


def names(where, change="+ -"):
    """Returns the entries of the list for the two sums of RULE."""
    old, new = change.split()
    return [(where, "Rule.step", "return 1 + grad + 1", old, new, number) for number in (1, 2)]


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Writes files of a package in place of ours, and returns a finder of changes there."""
    def write(**files):
        for name, text in files.items():
            (tmp_path / "compat").mkdir(exist_ok=True)
            (tmp_path / "compat" / (name + ".py")).write_text(text)
        return mutate.Finder()

    monkeypatch.setattr(mutate, "ROOT", tmp_path)
    return write


def changed_line(mutant):
    text = mutate.changed((mutate.ROOT / mutant.path).read_text(), mutant)
    return text.splitlines()[mutant.line - 1].strip()


# Areas

def test_each_pattern_of_an_area_has_files():
    files, tests = {}, {}
    for area, (patterns, cells_with_tests) in mutate.AREAS.items():
        files.update({(area, each): list(mutate.ROOT.glob(each)) for each in patterns})
        tests.update({(area, cell, each): list(mutate.ROOT.glob("tests/" + each))
                      for cell, names in cells_with_tests for each in names.split()})
    assert [pattern for pattern, found in list(files.items()) + list(tests.items()) if not found] == []


def test_the_cells_of_areas_exist():
    named = {cell.split()[0] for _, tests in mutate.AREAS.values() for cell, _ in tests}
    assert named - set(cells.read()) == set()


def test_all_code_belongs_to_an_area():
    missing = [path for path in mutate.shipped() if not mutate.areas_of(path) and mutate.mutants_of(path)]
    assert missing == [], "AREAS of tests/mutate.py must say which tests should see changes there"


# The list, and changes that make no difference

def test_the_list_has_260_changes_of_all_areas_of_its_time():
    listed = mutate.read_list()
    assert len(set(listed)) == len(listed) == 260
    assert {name[0].split("/")[0] for name in listed} == {"api", "compat", "optimizers"}


def test_changes_that_make_no_difference_are_still_there():
    _, gone = mutate.Finder().equivalents()
    assert gone == [], "remove these from tests/mutants.ini, or give their new lines"


# A change is found again

def test_a_change_is_found_where_it_was(package):
    finder = package(here=RULE)
    first, second = map(finder.one, names("compat/here.py"))
    assert (changed_line(first), changed_line(second)) == ("return 1 - grad + 1", "return 1 + grad - 1")


def test_a_change_follows_its_function_to_another_file_and_line(package):
    finder = package(here="", there="import os\n\n\n" + RULE.replace("return", "grad = 2 * grad\n        return"))
    second = finder.one(names("compat/here.py")[1])
    assert (second.path, second.line) == ("compat/there.py", 7)
    assert changed_line(second) == "return 1 + grad - 1"


def test_a_change_stays_with_its_file_if_others_have_it_too(package):
    finder = package(here=RULE, there=RULE)
    assert finder.one(names("compat/there.py")[0]).path == "compat/there.py"


@pytest.mark.parametrize("files", [
    {"here": RULE.replace("1 + grad + 1", "grad + 2")},
    {"here": RULE.replace("step", "apply")},
    {"here": "", "there": RULE, "elsewhere": RULE},
], ids="another-line another-name two-copies".split())
def test_a_change_that_is_not_there_is_gone(package, files):
    assert [package(**files).one(name) for name in names("compat/here.py")] == [None, None]


# What the tests of a cell say

class FakeCell:
    """Answers as pytest does: each test is right, or wrong, or its cases are gone, or it fails after others."""

    def __init__(self, tests):
        self.tests = {"tests/test_a.py::" + name: what for name, what in tests.items()}

    def tests_of(self, mutant, seconds):
        return list(self.tests), 1.0

    def pytest(self, package, tests, seconds, *options, **environment):
        if "--collect-only" in options:
            return 0, "\n".join(test for test, what in self.tests.items() if what != "gone")
        if any(self.tests[test] == "gone" for test in tests):
            return 4, "ERROR: not found: tests/test_a.py::test_of_many_cases"
        for test in tests:
            if self.tests[test] == "wrong" or self.tests[test] == "after others" and len(tests) > 1:
                return 1, "FAILED %s - assert" % test
        return 0, "passed"


@pytest.mark.parametrize("tests, expected", [
    ({"a": "right", "b": "right"}, (mutate.LIVED, "")),
    ({"a": "right", "b": "wrong"}, (mutate.DIED, "tests/test_a.py::b")),
    ({"a": "wrong"}, (mutate.DIED, "tests/test_a.py::a")),
    ({"a": "gone", "b": "right"}, (mutate.LIVED, "")),
    ({"a": "gone", "b": "wrong"}, (mutate.DIED, "tests/test_a.py::b")),
    ({"a": "right", "b": "after others", "c": "right"}, (mutate.LIVED, "")),
    ({"a": "right", "b": "after others", "c": "wrong"}, (mutate.DIED, "tests/test_a.py::c")),
    ({"a": "gone"}, (mutate.LIVED, "")),
    ({}, (mutate.UNSEEN, "")),
], ids=str)
def test_what_tests_say_of_a_change(package, tmp_path, tests, expected):
    mutant = package(here=RULE).one(names("compat/here.py")[0])
    copy = tmp_path / "copy"
    (copy / "everstep" / "compat").mkdir(parents=True)
    assert mutate.judge(mutant, FakeCell(tests), copy, 20) == expected
    assert tests == {} or (copy / "everstep" / "compat" / "here.py").read_text() == RULE, "the change is taken back"


# What is kept of a run

def test_outcomes_are_kept_and_those_of_other_code_do_not_count(tmp_path):
    file, (first, second) = tmp_path / "outcomes.jsonl", names("compat/here.py")
    kept = mutate.Outcomes(file, "code")
    kept.add(first, "numpy", 20, mutate.DIED, "tests/test_a.py::test")
    kept.add(second, "numpy", 20, mutate.LIVED, "")
    again = mutate.Outcomes(file, "code")
    assert [again.status(name) for name in (first, second)] == [mutate.DIED, mutate.LIVED]
    assert not again.is_open(first, "tensorflow", 60), "one that died needs no other cell"
    assert not again.is_open(second, "numpy", 20)
    assert again.is_open(second, "numpy", 60) and again.is_open(second, "tensorflow", 20)
    assert mutate.Outcomes(file, "other code").is_open(first, "numpy", 20)


def test_a_change_that_died_before_and_lives_now_fails_the_comparison(tmp_path, capsys):
    first, second = names("compat/here.py")
    runs = []
    for status in (mutate.DIED, mutate.LIVED):
        runs.append(mutate.Outcomes(tmp_path / (status + ".jsonl"), status))
        runs[-1].add(first, "numpy", 20, status, "")
        runs[-1].add(second, "numpy", 20, mutate.DIED, "")
    assert mutate.compare(*runs, names={first: "found", second: "found"}) == 1
    assert "died before, now lived:\ncompat/here.py  Rule.step\n" in capsys.readouterr().out
    assert mutate.compare(runs[1], runs[0], names={first: "found", second: None}) == 0
    assert "died             gone                    1" in capsys.readouterr().out
