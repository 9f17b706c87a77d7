"""The proof of the matrix: what is kept of a cell, what a run goes on with, what it takes up, and in which order."""
from __future__ import absolute_import, division, print_function

import argparse
import json
import sys

import pytest

import cells

if sys.version_info < (3, 8):
    pytest.skip("matrix/run.py drives the matrix with Python 3.8 or newer", allow_module_level=True)

import history  # noqa: E402
import parity_map  # noqa: E402
import proof  # noqa: E402
import run  # noqa: E402
import touched  # noqa: E402
import tox_runner  # noqa: E402

pytestmark = pytest.mark.shared
JUNIT = """<testsuites><testsuite tests="5" failures="0" errors="0" skipped="2">
<testcase><skipped message="no TensorFlow here"/></testcase><testcase><skipped message="no TensorFlow here"/></testcase>
</testsuite></testsuites>"""
CELLS = list(cells.read().values())


def options(**given):
    none = dict(cell=None, full=False, resume=False, shard=(1, 1), rotate=None, touched=None)
    return argparse.Namespace(**dict(none, **given))


@pytest.fixture
def shown(tmp_path, monkeypatch):
    """Returns what proof.json says after one cell, the first, has run."""
    monkeypatch.setattr(proof, "JSON", str(tmp_path / "proof.json"))
    monkeypatch.setattr(proof, "PAGE", str(tmp_path / "proof.md"))
    monkeypatch.setattr(proof, "PICTURE", str(tmp_path / "proof.svg"))
    monkeypatch.setattr(proof, "SHORT", str(tmp_path / "proven.json"))
    cell = CELLS[0]
    (tmp_path / (cell.name + ".xml")).write_text(JUNIT)
    (tmp_path / (cell.name + ".json")).write_text(json.dumps([
        ["Adam", "keras3 eager", "dense", 1.234e-7], ["Adam amsgrad=True", "keras3 eager", "dense", 5.678e-7],
    ]))
    (tmp_path / (cell.name + ".wrappers.json")).write_text(json.dumps([["Clip", "keras3 eager", "mixed", 2e-7]]))
    result = tox_runner.Result(cell, tox_runner.OK, {"python": "3.13.0", "numpy": "2.5.5"}, 3, 0, 2, 61.5)
    proof.write({cell.name: proof.entry(result, str(tmp_path), "hash", "abcdef0123456789")})
    return proof.read()


def test_what_is_kept_of_a_cell(shown, tmp_path):
    values = shown[CELLS[0].name]
    assert values["worst"] == {"Adam": {"dense": 5.7e-7}, "Clip": {"mixed": 2e-7}}
    assert values["skips"] == {"no TensorFlow here": 2}
    assert [values[key] for key in ("passed", "failed", "skipped", "seconds")] == [3, 0, 2, 61]
    text = (tmp_path / "proof.md").read_text()
    assert "| never run " in text and "python 3.13.0, numpy 2.5.5" in text and "| no TensorFlow here | 1 | 2 |" in text


@pytest.mark.usefixtures("shown")
def test_what_is_written_is_what_is_read():
    """Figures far apart, kinds that only one cell has, reasons that cells share, several clients of a cell."""
    row = dict.fromkeys(proof.CLIENT_FIELDS, "")
    clients = [dict(row, client="keras", versions="2.3.1", trained="fit"),
               dict(row, client="keras", versions="2.3.1", trained="resumed", steps=6, saved="2.0, 3.0"),
               dict(row, client="bert", versions="1.0.4", weights="0.0e+00")]
    values = dict(commit="abc", tree="hash", when="2026-11-25 19:21", passed=None, failed=1, skipped=None, seconds=8,
                  versions={"numpy": "2.5.5"})
    shown = {
        CELLS[0].name: dict(values, skips={"both": 1, "one": 12}, clients=clients, worst={
            "Adam": {"dense": 5.7e-7, "float64": 2.2e-16, "a new kind": 8.3e-3}, "SGD": {"float16": 1.3e3}}),
        CELLS[1].name: dict(values, skips={"another": 2, "both": 1}, clients=[], worst={"SGD": {"dense": 0.0}}),
        CELLS[2].name: dict(values, skips={}, clients=[], worst={}),
    }
    proof.write(shown)
    assert proof.read() == shown
    with open(proof.JSON) as file:
        text = file.read()
    assert text == proof.text(proof.read()) and text.count("both") == 1 and '"5.7 2.2e-09 - 83000"' in text


def test_reasons_without_what_differs_from_run_to_run():
    assert proof._general("an <object at 0x7f01>\n  of {}/tests".format(proof.ROOT)) == "an <object> of tests"
    old = "got empty parameter set ['name', 'way'], function test_x at {}/tests/test_y.py:12".format(proof.ROOT)
    assert proof._general(old) == "got empty parameter set for (name, way)"


def test_the_proof_is_current_and_short():
    with open(proof.JSON) as file:
        text = file.read()
    assert text == proof.text(proof.read()), "run python matrix/proof.py"
    assert len(text) < 2000 * len(proof.read()), "it is read and compared at each commit: keep what cells share once"


def test_the_map_is_current():
    with open(proof.PICTURE) as file:
        assert file.read() == parity_map.picture(proof.read()), "run python matrix/proof.py"


def test_what_the_map_shows(shown, tmp_path):
    picture = (tmp_path / "proof.svg").read_text()
    assert ">Adam</text>" in picture and ">{}</text>".format(CELLS[0].name) in picture
    assert parity_map.rows(shown) == ["Adam", "Clip"]
    assert [name for name, _ in parity_map.columns(shown)] == [CELLS[0].name]
    assert parity_map.share({"dense": 5e-6, "float64": 1e-7, "float16": 2e-2}) == 1.0  # each relative to its bound
    assert parity_map.share({"dense": 5e-6}, "float64") is None
    assert [parity_map.colour(part) for part in (None, 0, 1, 1.01)] == [
        parity_map.UNKNOWN, parity_map.LEVELS[0][1], parity_map.LEVELS[-1][1], parity_map.BEYOND]
    assert parity_map.colour(0.057) in picture  # 5.7e-7 is 6 % of 1e-5
    assert "Largest: 6 %" in picture


def test_a_crash_is_a_failure(tmp_path):
    result = tox_runner.Result(CELLS[0], tox_runner.FAILED, {}, None, None, None, 5.0)
    values = proof.entry(result, str(tmp_path), "hash", "abcdef0123456789")
    assert values["failed"] == 1 and not proof.is_green(values, "hash")


def test_a_run_goes_on_with_what_is_not_green_for_these_files(shown, monkeypatch):
    monkeypatch.setattr(proof, "tree", lambda: "hash")
    assert run._chosen(options(full=True, resume=True), shown, {}) == CELLS[1:]
    monkeypatch.setattr(proof, "tree", lambda: "another")
    assert run._chosen(options(full=True, resume=True), shown, {}) == CELLS


def test_shards_have_all_cells():
    parts = [run._chosen(options(full=True, shard=(part, 4)), {}, {}) for part in (1, 2, 3, 4)]
    assert sorted(cell for part in parts for cell in part) == sorted(CELLS)
    assert run._shard("2/5") == (2, 5)
    for wrong in ("0/5", "6/5", "2", "a/b"):
        with pytest.raises(argparse.ArgumentTypeError):
            run._shard(wrong)


QUICK = [cell for cell in CELLS if cell.group == "quick"]
OTHERS = [cell for cell in CELLS if cell.group != "quick"]


def test_the_oldest_proof_rotates_first(monkeypatch):
    monkeypatch.setattr(proof, "commits", lambda: 347)
    shown = {cell.name: {"when": "2026-11-%02d 10:00" % day, "failed": 0} for day, cell in enumerate(OTHERS[2:], 1)}
    past = {OTHERS[2].name: {"when": "2026-12-30 10:00", "failed": 0},  # it ran here after that
            OTHERS[3].name: {"when": "2026-12-31 10:00", "failed": 1},  # no proof
            OTHERS[4].name: {"when": "2026-10-01 10:00", "failed": 0}}  # older than what is committed
    chosen = run._chosen(options(rotate=58.0), shown, past)
    assert chosen[:len(QUICK)] == QUICK
    rotated = chosen[len(QUICK):]
    assert sorted(rotated[:3]) == sorted([OTHERS[0], OTHERS[1], OTHERS[3]])
    assert rotated[3:] == OTHERS[4:] + [OTHERS[2]]


def test_the_number_of_commits_chooses_among_equally_old_ones():
    shown = {cell.name: {"when": "2026-11-26 %02d:00" % (number % 24), "failed": 0}
             for number, cell in enumerate(OTHERS)}
    first = {run.by_age(OTHERS, shown, {}, commits)[0].name for commits in range(40)}
    assert len(first) > 20
    assert run.by_age(OTHERS, shown, {}, 7) == run.by_age(OTHERS, shown, {}, 7)


def test_one_cell_of_each_api_starts_first():
    seconds = {cell.name: 10 * number % 97 for number, cell in enumerate(CELLS)}
    order = run.in_order(CELLS, lambda cell: seconds[cell.name])
    assert sorted(order) == sorted(CELLS)
    apis = [cells.api(cell) for cell in order]
    count = len({cells.api(cell) for cell in QUICK})
    assert len(set(apis[:count])) == count == 8 and all(cell.group == "quick" for cell in order[:count])
    taken = [seconds[cell.name] for cell in order]
    assert taken[:count] == sorted(taken[:count]) and taken[count:] == sorted(taken[count:], reverse=True)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Returns the path of an empty history."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    return tmp_path / "everstep" / "matrix.json"


def test_the_next_run_reads_what_this_one_recorded(cache, shown, tmp_path, monkeypatch):
    monkeypatch.setattr(proof, "tree", lambda: "hash")
    first, second = CELLS[:2]
    (tmp_path / (first.name + ".xml")).write_text(
        """<testsuite tests="3"><testcase classname="tests.test_a" time="1.4"/>
        <testcase classname="tests.test_a.TestB" time="1.4"/><testcase classname="test_c" time="0.1"/></testsuite>""")
    given = argparse.Namespace(rotate=None, touched=None, full=False, pytest=[])
    matrix = run.OurMatrix(given, {}, {}, ("hash", "abcdef0123456789"), 0)
    matrix.results = str(tmp_path)
    for cell, status in ((first, tox_runner.OK), (second, tox_runner.FAILED)):
        matrix.ended(tox_runner.Result(cell, status, {}, 3, 0, 2, 70.5))
    past = history.read()
    assert set(past) == {first.name, second.name}
    assert past[first.name] == dict(commit="abcdef012345", seconds=70, passed=3, failed=0,
                                    files={"test_a": 3}, when=past[first.name]["when"])
    assert (history.seconds(first.name, past, shown), history.seconds(first.name, {}, shown)) == (70, 61)
    assert history.seconds(second.name, past, shown) is None and history.proven(second.name, past, shown) == ""
    assert history.proven(first.name, past, {}) == past[first.name]["when"][:10]
    monkeypatch.setattr(proof, "tree", lambda: "changed meanwhile")
    matrix.ended(tox_runner.Result(CELLS[2], tox_runner.OK, {}, 3, 0, 2, 70.5))
    assert history.read() == past


@pytest.mark.parametrize("text", ["", "{", "[]", '{"py39-numpy": 3}', '{"py39-numpy": {"when": 3, "failed": 0}}'])
def test_a_damaged_history_is_none(cache, text):
    cache.parent.mkdir()
    cache.write_text(text)
    assert history.read() == {}
    values = {"when": "2026-11-26 10:00", "failed": 0, "seconds": 60, "files": {}}
    history.write("py39-numpy", values)
    assert history.read() == {"py39-numpy": values}


def test_a_history_that_cannot_be_written_is_no_error(cache):
    cache.parent.write_text("a file where the folder should be")
    history.write("py39-numpy", {"when": "2026-11-26 10:00", "failed": 0, "seconds": 60})
    assert history.read() == {}


def test_touched_files_are_tests_and_what_imports_touched_helpers():
    imports = {"tests/test_a.py": {"helper"}, "tests/test_b.py": {"other"}, "tests/test_c.py": {"numpy", "test_a"},
               "tests/helper.py": {"deep"}, "tests/deep.py": set(), "tests/other.py": {"helper"},
               "tests/clients/test_d.py": {"compare"}, "tests/clients/compare.py": set()}
    assert touched.chosen({"tests/test_a.py"}, imports) == ["tests/test_a.py"]
    assert touched.chosen({"tests/deep.py"}, imports) == ["tests/test_a.py", "tests/test_b.py"]
    assert touched.chosen({"tests/clients/compare.py", "tests/golden/adam.py"}, imports) == ["tests/clients/test_d.py"]
    real = touched.imports()
    assert "tests/test_proof.py" in touched.chosen({"matrix/conftest.py"}, real)  # all tests use it
    assert "tests/test_battery.py" in touched.chosen({"tests/harness.py"}, real)


def test_touched_files_run_where_they_are_collected():
    table = cells.read()
    client = next(cell for cell in CELLS if cell.group == "clients")
    paths = ["tests/test_proof.py", client.tests.split()[0]]
    assert run._of_cell(table["py39-tf2.10"], paths) == ["tests/test_proof.py"]
    assert run._of_cell(client, paths) == paths[1:] and run._of_cell(table["py313-lint"], paths) == []
    last = {"files": {"test_proof": 7, "test_battery": 90}}
    assert run._seconds_of(paths[:1], last, 130) == 40
    assert 60 < run._seconds_of(paths[:1], {}, 6000) < 660


def test_the_hash_of_the_files_leaves_out_the_proof():
    tree = proof.tree()
    assert tree == proof.tree() and len(tree) == 16


def test_the_page_is_current():
    with open(proof.PAGE) as file:
        assert file.read() == "\n".join(proof.page(proof.read())) + "\n", "run python matrix/proof.py"


def test_the_short_form_is_current():
    with open(proof.SHORT) as file:
        assert file.read() == proof.short(proof.read()), "run python matrix/proof.py"


def test_kept_environments_add_versions_where_nothing_else_changed(tmp_path):
    packages = tmp_path / "cell" / "lib" / "python3.9" / "site-packages"
    packages.mkdir(parents=True)
    for name in ("numpy-1.23.5", "h5py-3.14.0", "six-1.17.0"):
        (packages / (name + ".dist-info")).mkdir()
    added = proof.with_versions({"cell": {"versions": {"numpy": "1.23.5"}}}, str(tmp_path))
    assert added["cell"]["versions"] == {"numpy": "1.23.5", "h5py": "3.14.0"}
    other = proof.with_versions({"cell": {"versions": {"numpy": "1.24.0"}}}, str(tmp_path))
    assert other["cell"]["versions"] == {"numpy": "1.24.0"}
