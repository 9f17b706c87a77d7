"""How the packages of cells are installed, and which environments are kept."""
from __future__ import absolute_import, division, print_function

import argparse
import json
import os
import re
import shutil
import sys
import threading

import pytest

import cells
import generate
from everstep.matrix_kit import environments, project

pytestmark = pytest.mark.shared

CONFIGURATION = """\
:env:.find-links='/wheels'
:env:.default-timeout='180'
global.cert='/certificates.pem'
global.extra-index-url='\\nhttps://a/simple\\nhttps://b/simple'
global.find-links='/older'
global.index-url='https://old/simple'
global.quiet='1'
install.index-url='https://new/simple'
install.constraint='/one.txt /two.txt'
freeze.find-links='/not-for-install'
"""


def test_uv_is_told_what_pip_is():
    assert environments.translated(CONFIGURATION) == {
        "UV_DEFAULT_INDEX": "https://new/simple", "UV_INDEX": "https://a/simple https://b/simple",
        "UV_FIND_LINKS": "/wheels", "UV_CONSTRAINT": "/one.txt /two.txt", "SSL_CERT_FILE": "/certificates.pem",
        "UV_HTTP_TIMEOUT": "180"}


# `uv pip install` is here `python pip install`: this file.
UV = """
import json, os, sys
indexes = os.environ["UV_INDEX"]
with open("calls", "a") as file:
    file.write(json.dumps([sys.argv[1:], indexes]) + "\\n")
if "silent" in indexes:
    sys.exit("error: Request failed\\n  cause: Failed to fetch: `https://silent/simple/torch/`")
sys.exit("no such package" if "broken" in sys.argv else 0)
"""


@pytest.mark.parametrize("package, indexes", [
    ("torch", ["https://a https://silent/simple", "https://a"]),
    ("broken", ["https://a https://silent/simple", "https://a", "pip"]),
])
def test_an_index_that_is_silent_is_left_out_and_pip_is_the_last_resort(tmpdir, monkeypatch, package, indexes):
    monkeypatch.chdir(tmpdir)
    tmpdir.join("pip").write(UV)
    tmpdir.join("settings").write(json.dumps([sys.executable, {"UV_INDEX": "https://a"}]))
    by_pip = []
    monkeypatch.setattr(environments.compileall, "compile_dir", lambda folder, quiet: None)
    monkeypatch.setattr(environments.subprocess, "call", lambda command: by_pip.append(command) or 3)
    arguments = ["--no-deps", "--extra-index-url", "https://silent/simple", package]
    code = environments.install("settings", arguments)
    calls = [json.loads(line) for line in tmpdir.join("calls").readlines()]
    assert [each[1] for each in calls] + ["pip"] * len(by_pip) == indexes
    assert all(each[0][:3] + each[0][-2:] == ["install", "--python", sys.executable, "--no-deps", package]
               for each in calls)
    assert code == (3 if by_pip else 0)
    assert all(command[2:] == ["-m", "pip", "install"] + arguments for command in by_pip)


@pytest.mark.parametrize("uv_can", [True, False])
def test_what_uv_cannot_compile_is_compiled(tmpdir, monkeypatch, uv_can):
    monkeypatch.chdir(tmpdir)
    tmpdir.join("pip").write(UV)
    tmpdir.join("settings").write(json.dumps([sys.executable, {}]))
    folders = []
    monkeypatch.setattr(environments, "py_compile", argparse.Namespace(**{"PycInvalidationMode": 1} if uv_can else {}))
    monkeypatch.setattr(environments.compileall, "compile_dir", lambda folder, quiet: folders.append(folder))
    assert environments.install("settings", ["six"]) == 0
    arguments, _ = json.loads(tmpdir.join("calls").read())
    assert arguments[3:] == ["--compile-bytecode"] * uv_can + ["six"]
    assert folders == [environments.sysconfig.get_paths()["purelib"]] * (not uv_can)


def test_without_uv_pip_installs(tmpdir):
    installer = environments.Installer(str(tmpdir.join("python")), str(tmpdir.join("settings")))
    assert (installer.text, installer.variables) == ("-m pip", None)
    assert tmpdir.listdir() == []


def test_an_environment_is_kept_while_it_is_whole_and_its_pins_stay(tmpdir):
    log = tmpdir.join("logs", "a.log").ensure()

    def made(name, kilobytes=4, is_whole=True, pins="1"):
        """Returns whether it had to be made."""
        kept.begin(name, pins)
        path = tmpdir.join(name, "file")
        is_new = not path.check()
        path.write("x" * 1000 * kilobytes, ensure=True)
        log.write("a: install_deps> uv\n" + "a: commands[0]> pytest\n" * is_whole)
        kept.end(name, pins, str(log))
        return is_new

    def there():
        return sorted(path.basename for path in tmpdir.listdir() if path.basename not in ("kept", "logs"))

    kept = environments.Kept(str(tmpdir), 1e-5)  # 10 kB
    tmpdir.join("a", "file").write("of who knows", ensure=True)
    kept.begin("a", "1")
    assert there() == []
    assert (made("a"), made("b"), made("a"), made("b", pins="2"), made("b", pins="2")) == (
        True, True, False, True, False)
    assert not made("b", is_whole=False, pins="2") and there() == ["a"]

    made("b")
    for name, age in (("a", 100), ("b", 200)):
        record = tmpdir.join("kept", name)
        record.setmtime(record.mtime() - age)
    made("c")
    assert there() == ["a", "c"]  # b was the oldest

    kept.begin("a", "1")  # simulates a power failure at this point
    kept = environments.Kept(str(tmpdir), 0)
    assert there() == ["c"]
    assert made("d") and there() == []


def test_a_cell_begins_while_another_one_drops_its_environment(tmpdir, monkeypatch):
    """Deleting gigabytes takes seconds, in which another job may begin with what is being deleted."""
    log = tmpdir.join("log")
    log.write("a: commands[0]> pytest")
    kept = environments.Kept(str(tmpdir), 1e-6)  # 1 kB
    for number, name in enumerate("abc"):
        tmpdir.join(name, "file").write("x" * 600, ensure=True)
        kept._write(name, json.dumps({"pins": "1", "bytes": 600}))
        tmpdir.join("kept", name).setmtime(number)
    delete, begun = shutil.rmtree, []

    def slowly(path, **options):
        if not begun:
            begun.append(threading.Thread(target=kept.begin, args=("b", "1")))
            begun[0].start()
            begun[0].join(0.5)
        delete(path, **options)

    monkeypatch.setattr(environments.shutil, "rmtree", slowly)
    kept.begin("c", "1")
    kept.end("c", "1", str(log))
    begun[0].join()
    assert not tmpdir.join("a").exists() and kept._record("b") == {}  # b is in use: made anew, or as it was
    kept.end("b", "1", str(log))
    assert kept._record("b").get("pins") == "1"


def test_all_that_decides_the_packages_is_among_the_pins(tmpdir):
    cell, path = cells.read()["py312-tf2.16-tfk"], tmpdir.join("tox.ini")

    def pins(deps="-r x.txt", before="python -m pip install a", cell=cell):
        path.write("[testenv]\ndeps = %s\n[testenv:%s]\ncommands_pre = %s\n" % (deps, cell.name, before))
        return environments.pins(str(path), cell)

    assert pins() == pins()
    assert len({pins(), pins(deps="six"), pins(before="no"), pins(cell=cell._replace(packages=["a==1"])),
                pins(cell=cell._replace(python="3.9"))}) == 5


def test_a_path_with_a_space_stays_one_argument(tmpdir):
    tmpdir.join("setup.py").write("")
    theirs = project.Project(project.parsed(["--folder", str(tmpdir), "--package", "a", "--cells", "*"])).files()
    for folder, files in ((str(tmpdir), theirs), (cells.ROOT, generate.generated())):
        text = files[os.path.join(folder, "tox.ini")]
        commands = re.findall(r"^(?:commands.* =|    (?:python|pytest)) .*$", text, re.M)
        paths = re.compile("{(?:tox_root|work_dir|env_dir)}")
        assert len(list(filter(paths.search, commands))) > 1
        assert [line for line in commands if paths.search(re.sub('"[^"]*"', "", line))] == []
