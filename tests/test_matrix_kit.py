"""`everstep matrix`: versions that install together, and the files and runs of other people's projects."""
from __future__ import absolute_import, division, print_function

import argparse
import io
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

import cells
from everstep import cli
from everstep.matrix_kit import check_cell, environments, project, tox_runner, tox_screen
from harness import doctor

MODERN = doctor.can_drive_tox()
only_modern = pytest.mark.skipif(not MODERN, reason="everstep matrix needs Python 3.8")
pytestmark = pytest.mark.shared


def run(capsys, *arguments):
    """Returns (exit code, output, complaint) of `everstep matrix`."""
    code = cli.main(["matrix"] + list(arguments))
    output, complaint = capsys.readouterr()
    return code, output, complaint


@pytest.fixture
def folder(tmpdir, monkeypatch):
    """Returns the folder of an installable project, which is the working directory."""
    monkeypatch.chdir(tmpdir)
    tmpdir.join("setup.py").write("from setuptools import setup\nsetup(name='mylib', py_modules=['mylib'])\n")
    return tmpdir


def files(folder):
    """Returns {path: text} of all files in a folder."""
    return {each.relto(folder).replace(os.sep, "/"): each.read() for each in folder.visit() if each.isfile()}


WRITE = ("tox", "--package", "mylib", "--cells", "py27-tf1.15*", "py313-tf2.21-tfk")


@pytest.mark.shared(False)
@pytest.mark.skipif(MODERN, reason="this Python can drive tox")
def test_an_old_python_is_told_which_one_is_needed(capsys):
    code, _, complaint = run(capsys, "list")
    assert code == 2 and "needs Python 3.8 or newer" in complaint and sys.version.split()[0] in complaint


@pytest.mark.shared(False)
@pytest.mark.skipif(MODERN, reason="this Python can drive tox")
def test_matrix_run_tells_an_old_python_too():
    path = os.path.join(os.path.dirname(cells.__file__), "run.py")
    process = subprocess.Popen([sys.executable, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    output, complaint = process.communicate()
    assert process.returncode == 1 and not output
    assert complaint.decode().startswith("matrix/run.py needs Python 3.8 or newer to drive the matrix")
    assert len(complaint.decode().splitlines()) == 1


def test_the_tools_import_neither_everstep_nor_numpy():
    tools = "cells, generate" + (", run" if MODERN else "")
    code = "import sys; sys.path.insert(0, %r); import %s; print(sorted({'numpy', 'everstep'} & set(sys.modules)))" % (
        cells.HERE, tools)
    output = subprocess.check_output([sys.executable, "-E", "-c", code])
    assert output.decode().strip() == "[]"


@only_modern
def test_list_has_the_cells_that_are_for_all(capsys):
    code, output, _ = run(capsys, "list", "--json")
    rows = {row["cell"]: row for row in json.loads(output)}
    assert code == 0
    assert set(rows) == {name for name, cell in cells.read().items()
                         if cell.group != "clients" and cell.kind in ("numpy", "framework")}
    row = rows["py37-tf1.15-k2.3"]
    assert (row["python"], row["versions"]["tensorflow"], row["versions"]["keras"]) == ("3.7", "1.15.5", "2.3.1")
    assert row["proven"] and row["passed"] > 1000
    assert "py37-tf1.15-k2.3" in run(capsys, "list")[1]


@only_modern
def test_pins(capsys):
    code, output, _ = run(capsys, "pins", "tensorflow==2.4")
    lines = output.splitlines()
    assert code == 0 and lines[0].startswith("# py38-tf2.4: Python 3.8, proven 2")
    assert lines[1:4] == ["tensorflow-cpu==2.4.4", "protobuf==3.20.3", "numpy==1.19.5"]
    assert "h5py==" in lines[4] and "pytest" not in output
    assert run(capsys, "pins", "tensorflow==1.15.*", "python==3.7")[1].count("# py") == 1
    assert "--no-deps --extra-index-url" in run(capsys, "pins", "torch==2.13.0")[1]
    code, _, complaint = run(capsys, "pins", "tensorflow==2.4.9")
    assert code == 2 and "no cell has tensorflow==2.4.9" in complaint and "2.3.4, 2.4.4, 2.5.3" in complaint
    assert "is not like tensorflow==2.4" in run(capsys, "pins", "tensorflow>=2")[2]


@only_modern
def test_files_are_written_checked_and_renewed(folder, capsys):
    more = ("--requires", "mock==3.0.5", "six", "--tests", "a", "b", "--env", "TF_KERAS=1")
    code, output, _ = run(capsys, *(WRITE + more))
    assert code == 0 and "2 cells: py27-tf1.15-k2.3, py313-tf2.21-tfk" in output
    written = files(folder)
    assert set(written) == {"setup.py", "tox.ini", "toxfile.py", "tox_cells/check_cell.py",
                            "tox_cells/py27-tf1.15-k2.3.txt", "tox_cells/py313-tf2.21-tfk.txt"}
    assert written["tox_cells/py27-tf1.15-k2.3.txt"].splitlines()[1:3] == ["tensorflow-cpu==1.15.0", "keras==2.3.1"]
    parser = cells.RawConfigParser()
    parser.read("tox.ini")
    base = dict(parser.items("testenv"))
    assert parser.get("tox", "env_list").split() == ["py27-tf1.15-k2.3", "py313-tf2.21-tfk"]
    assert base["deps"].split("\n") == ["", "-r {tox_root}/tox_cells/{env_name}.txt", "mock==3.0.5", "six"]
    assert "TF_KERAS = 1" in base["set_env"] and "VIRTUALENV_PIP = embed" in base["set_env"]
    assert base["commands"].endswith("{posargs:a b}")
    assert parser.get("testenv:py27-tf1.15-k2.3", "package") == "sdist"
    install, check = parser.get("testenv:py313-tf2.21-tfk", "commands_pre").strip().split("\n")
    assert install.endswith("--no-deps tf_keras==2.21.0")
    assert "check_cell.py\" {env_name} mylib tensorflow-cpu==2.21.0" in check and "tf_keras==2.21.0" in check

    assert run(capsys, "tox", "--check") == (0, "all files are current\n", "")
    folder.join("tox_cells", "py313-tf2.21-tfk.txt").write(project.ONE_LINE + "numpy==1.0\n")
    folder.join("tox_cells", "notes.txt").write("mine\n")
    assert run(capsys, "tox", "--check")[:2] == (
        1, "not current: %s; run everstep matrix tox\n" % os.path.join("tox_cells", "py313-tf2.21-tfk.txt"))
    assert "is not current" in run(capsys, "run")[2]
    assert run(capsys, "tox")[0] == 0  # tox.ini remembers the arguments
    assert files(folder) == dict(written, **{"tox_cells/notes.txt": "mine\n"})

    run(capsys, "tox", "--package", "mylib", "--cells", "py313-tf2.21", "--full-tensorflow")
    assert "tensorflow==2.21.0\n" in files(folder)["tox_cells/py313-tf2.21.txt"]
    assert "tox_cells/py27-tf1.15-k2.3.txt" not in files(folder) and "tox_cells/notes.txt" in files(folder)
    assert "TF_KERAS" not in files(folder)["tox.ini"]
    assert "tox.ini has none of py27-*; it has py313-tf2.21" in run(capsys, "run", "--cells", "py27-*")[2]


@only_modern
def test_files_of_others_stay(folder, capsys):
    folder.join("tox.ini").write("[tox]\n")
    before = files(folder)
    code, _, complaint = run(capsys, *WRITE)
    assert code == 2 and "everstep did not write tox.ini" in complaint and "--force" in complaint
    assert files(folder) == before
    assert run(capsys, *(WRITE + ("--ini", "tox-matrix.ini")))[0] == 0
    assert files(folder)["tox.ini"] == "[tox]\n"
    assert run(capsys, "tox", "--check", "--ini", "tox-matrix.ini")[0] == 0
    assert run(capsys, *(WRITE + ("--force",)))[0] == 0
    assert files(folder)["tox.ini"].startswith(project.MARK)


@only_modern
@pytest.mark.parametrize("arguments, complaint", [
    (("tox",), "--package and --cells are needed: tox.ini does not remember them"),
    (("tox", "--package", "mylib", "--cells", "py26*"), "no cell matches 'py26*'"),
    (WRITE + ("--env", "TF_KERAS"), "--env takes NAME=VALUE"),
    (WRITE + ("--folder", ".."), "has no setup.py, setup.cfg or pyproject.toml"),
    (WRITE + ("--ini", "ci/tox.ini"), "--ini is the name of a file"),
])
def test_wrong_arguments_write_nothing(folder, capsys, arguments, complaint):
    code, _, said = run(capsys, *arguments)
    assert code == 2 and complaint in said
    assert set(files(folder)) == {"setup.py"}


def test_a_cell_checks_what_it_is(tmpdir, monkeypatch):
    here = "py%d%d-numpy" % sys.version_info[:2]
    numpy = sys.modules["numpy"].__version__
    assert list(check_cell.faults(here, "numpy", ["numpy==" + numpy])) == []
    assert list(check_cell.faults("py20-numpy", "numpy", [])) == ["this is " + here.split("-")[0]]
    assert list(check_cell.faults(here, "numpy", ["numpy==1.0", "no-such==2"])) == [
        "numpy is %s, should be 1.0" % numpy, "no-such is not installed, should be 2"]
    tmpdir.join("beside_the_tests.py").write("")
    monkeypatch.syspath_prepend(str(tmpdir))
    fault, = check_cell.faults(here, "beside_the_tests", [])
    assert "beside_the_tests is imported from" in fault and "not from the environment" in fault


OPTIONS = argparse.Namespace(jobs=1, strict=False, keep=10, limit=None, pytest=[])
JUNIT = u"<testsuites><testsuite tests='9' failures='1' errors='1' skipped='2'/></testsuites>"


@only_modern
def test_what_a_run_reports(tmpdir, capsys, monkeypatch):
    matrix = tox_runner.Matrix(str(tmpdir), OPTIONS, "mylib", tox_screen.Screen())
    old, new = cells.read()["py27-tf1.4-k2.1"], cells.read()["py39-tf2.10"]
    results, logs, packages = (tmpdir.join(".tox").ensure(name, dir=True)
                               for name in ("results", "logs", new.name + "/lib/python3.9/site-packages"))
    results.join(new.name + ".xml").write(JUNIT)
    logs.join("log").write("...\n")
    for name in ("tensorflow_cpu-2.10.1", "keras-2.10.0", "absl_py-1.0"):
        packages.ensure(name + ".dist-info", dir=True)
    result = matrix._result(new, False, str(logs.join("log")), 61.7)
    assert result == (new, tox_runner.FAILED, {"tensorflow": "2.10.1", "keras": "2.10.0"}, 5, 2, 2, 61.7)
    logs.join("log").write("py27-tf1.4-k2.1: skipped because could not find python interpreter with spec(s): py27\n")
    missing = matrix._result(old, True, str(logs.join("log")), 1)
    assert missing.status == tox_runner.MISSING
    logs.join("log").write("cell py27-tf1.4-k2.1: python 2.7.18, tensorflow 1.4.1\n")
    crashed = matrix._result(old, True, str(logs.join("log")), 1)  # no counts: pytest never ran
    assert (crashed.status, crashed.versions["python"]) == (tox_runner.FAILED, "2.7.18")

    assert matrix._report([old, new], [result, missing], 62) == 1
    output = capsys.readouterr()[0]
    assert [line.split() for line in output.splitlines()[1:4]] == [
        "cell python framework keras passed failed skipped seconds status".split(),
        "py39-tf2.10 3.9 tensorflow 2.10.1 2.10.0 5 2 2 61 FAILED".split(), []]
    assert "Not run: py27-tf1.4-k2.1. " in output and "pyenv install 2.7" in output and "Failed: py39-tf2.10." in output
    assert output.splitlines()[-2:] == ["ran 1 of 2 cells in 1 min 2 s", "5 passed, 2 failed, 2 skipped"]
    green = result._replace(status=tox_runner.OK)
    assert [matrix._report([old, new], results, 1) for results in ([green], [green, missing], [missing])] == [0, 0, 1]
    monkeypatch.setattr(OPTIONS, "strict", True)
    assert matrix._report([old, new], [green, missing], 1) == 1


@only_modern
def test_the_time_of_a_cell_follows_its_last_run(tmpdir, monkeypatch):
    matrix = tox_runner.Matrix(str(tmpdir), OPTIONS, "mylib", tox_screen.Screen())
    cell = cells.read()["py39-tf2.10"]
    assert matrix._limit(cell, 0)[0] == 1200
    monkeypatch.setattr(matrix, "usual", lambda cell: 100)
    assert matrix._limit(cell, 0) == (600, "5 and 3 times the 100 s that it should take; --limit gives it others")
    monkeypatch.setattr(matrix, "ends", lambda cell: 50.0)
    assert matrix._limit(cell, 20.0)[0] == 30.0
    monkeypatch.setattr(OPTIONS, "limit", 0.25)
    assert matrix._limit(cell, 20.0)[0] == 15.0


@only_modern
def test_a_python_counts_if_it_runs(tmpdir, monkeypatch):
    def python(folder, version, code):
        path = tmpdir.join(folder, "python" + version)
        path.write("#!/bin/sh\n%s\n" % code, ensure=True)
        path.chmod(0o755)

    python("shims", "2.7", "exit 127")  # of another version than the global one
    python("shims", "3.6", "exit 127")
    python("shims", "3", "printf 3.7")
    python("pyenv/versions/2.7.18/bin", "2.7", "printf 2.7")
    monkeypatch.setenv("PATH", str(tmpdir.join("shims")))
    monkeypatch.setenv("PYENV_ROOT", str(tmpdir.join("pyenv")))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmpdir.join("uv")))
    here = "%d.%d" % sys.version_info[:2]
    assert tox_runner.find_pythons({"2.7", "3.6", "3.7", here}) == {"2.7", "3.7", here}


LOG = u"""c: install_deps> python -I -m pip install numpy
c: commands_pre[0]> python -m pip install six
"""


@only_modern
def test_what_a_log_tells(tmpdir):
    path = tmpdir.join("log")
    assert tox_screen.stage(str(path)) == "waits"
    path.write(LOG)
    assert tox_screen.stage(str(path)) == "installs"
    path.write(u"c: commands[0]> pytest\n", mode="a")
    assert tox_screen.stage(str(path)) == "starts its tests"
    path.write(u"collected 90 items / 30 deselected / 60 selected\n\ntests/test_a.py ..s [  5%]\n....F [ 37%]\n..",
               mode="a")
    assert tox_screen.stage(str(path)) == "[#######.............]  37 % of 60 tests"
    path.write(LOG + u"c: commands[0]> pytest -q\n..... [100%]\n")
    assert tox_screen.stage(str(path)) == "[####################] 100 %"


class Terminal(io.StringIO):
    def isatty(self):
        return True


@only_modern
def test_bars_stand_below_all_lines(tmpdir, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    file, running = Terminal(), [("py39-numpy", str(tmpdir.join("log")), 0.0, 60)]
    screen = tox_screen.Screen(file)
    screen.show(running * 2)
    screen.write("said")
    screen.show(running)
    bar = r"py39-numpy         waits, \d+ s of about 60\n"
    assert re.match(bar * 2 + r"\033\[2F\033\[Jsaid\n" + bar + r"\Z", file.getvalue())

    monkeypatch.setattr(tox_screen, "EVERY", 0)
    file = io.StringIO()
    tox_screen.Screen(file).show(running)
    assert re.match(r"\d\d:\d\d:\d\d " + bar + r"\Z", file.getvalue())


INTERRUPTED = """
import argparse, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # what starts in the background ignores it
sys.path[:0] = {paths}
import cells, environments, tox_runner, tox_screen

class Matrix(tox_runner.Matrix):
    def _prepare(self):
        self._packages = dict(wheel="a.whl", sdist="a.tar.gz")
        self._installer = environments.Installer("no/python", "no settings")
        self._kept = environments.Kept(self.work, 10)

options = argparse.Namespace(jobs=1, strict=False, keep=10, limit=None, pytest=[])
here = [cells.read()["py39-numpy"]._replace(name=name, python="%d.%d" % sys.version_info[:2])
        for name in ("quick", "slow", "last")]
sys.exit(Matrix(".", options, "mylib", tox_screen.Screen()).run(here))
"""
TOX = """#!/bin/sh
shift 10
mkdir -p .tox/results .tox/$1
case $1 in
quick) echo "quick: commands[0]> pytest"; echo "{junit}" > .tox/results/quick.xml ;;
slow) kill -{number} $PPID; cat fifo ;;
esac
"""


def fake_tox(folder, number=0):
    tox = folder.join(".tox", ".tox", "bin", "python")
    tox.write(TOX.format(junit=JUNIT, number=int(number)), ensure=True)
    tox.chmod(0o755)
    folder.join(".tox").ensure("logs", dir=True)
    folder.join("tox.ini").write("[testenv]\ndeps = -r pins.txt\n")


@only_modern
def test_a_cell_that_has_to_end_starts_if_it_fits_in(tmpdir, monkeypatch):
    fake_tox(tmpdir)
    matrix = tox_runner.Matrix(str(tmpdir), OPTIONS, "mylib", tox_screen.Screen())
    matrix._packages = {"wheel": "a.whl"}
    matrix._installer = environments.Installer("no/python", "no settings")
    matrix._kept = environments.Kept(matrix.work, 10)
    cell = cells.read()["py39-numpy"]._replace(name="quick")
    monkeypatch.setattr(matrix, "ends", lambda cell: time.time() + 100)
    started = []
    for usual in (90, 70):
        monkeypatch.setattr(matrix, "usual", lambda cell, usual=usual: usual)
        matrix._cell(cell)
        started.append(len(matrix._ended))
    assert started == [0, 1] and matrix._ended[0].passed == 5


@only_modern
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_table_after_an_interrupt(tmpdir, number):
    fake_tox(tmpdir, number)
    os.mkfifo(str(tmpdir.join("fifo")))
    code = INTERRUPTED.format(paths=[cells.HERE, cells.KIT])
    process = subprocess.run([sys.executable, "-c", code], cwd=str(tmpdir), stdout=subprocess.PIPE, timeout=60)
    said = process.stdout.decode().splitlines()
    assert process.returncode == 1
    with pytest.raises(OSError):
        # no process of the cell is left that could read the file
        os.open(str(tmpdir.join("fifo")), os.O_WRONLY | os.O_NONBLOCK)
    rows = [line.split() for line in said if line.startswith(("quick", "slow", "last"))]
    assert [(row[0], row[4:7], row[-1]) for row in rows] == [
        ("quick", ["5", "2", "2"], "ok"), ("slow", ["-", "-", "-"], "stopped")]
    assert "Stopped: slow. Not run: last." in said
    assert said[-2].startswith("ran 1 of 3 cells in 0 min ") and said[-1] == "5 passed, 2 failed, 2 skipped"
    assert tmpdir.join(".tox", "quick").check() and not tmpdir.join(".tox", "slow").check()
