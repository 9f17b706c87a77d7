"""The proof of the matrix: what is kept of a cell, what a run goes on with, and which cells rotate in CI."""
from __future__ import absolute_import, division, print_function

import argparse
import json
import sys

import pytest

import cells

if sys.version_info < (3, 8):
    pytest.skip("matrix/run.py drives the matrix with Python 3.8 or newer", allow_module_level=True)

import parity_map  # noqa: E402
import proof  # noqa: E402
import run  # noqa: E402
import tox_runner  # noqa: E402

pytestmark = pytest.mark.shared
JUNIT = """<testsuites><testsuite tests="5" failures="0" errors="0" skipped="2">
<testcase><skipped message="no TensorFlow here"/></testcase><testcase><skipped message="no TensorFlow here"/></testcase>
</testsuite></testsuites>"""
CELLS = list(cells.read().values())


def options(**given):
    return argparse.Namespace(**dict(dict(cell=None, full=False, resume=False, shard=(1, 1), rotate=None), **given))


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
    assert len(text) < 150000, "it is read and compared at each commit: keep what cells share once"


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
    assert run._chosen(options(full=True, resume=True), shown) == CELLS[1:]
    monkeypatch.setattr(proof, "tree", lambda: "another")
    assert run._chosen(options(full=True, resume=True), shown) == CELLS


def test_shards_have_all_cells():
    parts = [run._chosen(options(full=True, shard=(part, 4)), {}) for part in (1, 2, 3, 4)]
    assert sorted(cell for part in parts for cell in part) == sorted(CELLS)
    assert run._shard("2/5") == (2, 5)
    for wrong in ("0/5", "6/5", "2", "a/b"):
        with pytest.raises(argparse.ArgumentTypeError):
            run._shard(wrong)


def test_ten_commits_in_a_row_rotate_all_cells(monkeypatch):
    quick = [cell for cell in CELLS if cell.group == "quick"]
    rotated = []
    for number in range(347, 357):
        monkeypatch.setattr(proof, "commits", lambda number=number: number)
        chosen = run._chosen(options(rotate=75.0), {})
        assert chosen[:len(quick)] == quick
        rotated += chosen[len(quick):]
        assert run._longest_first(chosen, {})[-1].group != "quick"
    assert sorted(rotated) == sorted(cell for cell in CELLS if cell not in quick)


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
