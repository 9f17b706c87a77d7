"""Runs a part of fuzz.py, another one in each cell, and reads all damaged files that once made trouble.

tests/files/faults has those files, under names such as `tf-saver,name-of-an-axis`: the format of mutations.py, and what
is wrong. A checkpoint is a folder of that name.
"""
from __future__ import absolute_import, division, print_function

import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections import OrderedDict

import numpy as np
import pytest

pytest.importorskip("resource", reason="workers are forked, with limits")

import everstep  # noqa: E402
import fuzz  # noqa: E402
import mutations  # noqa: E402
from crafted_files import FILES, TENSORFLOW, read_bytes, write_bytes  # noqa: E402
from everstep.errors import FileError  # noqa: E402
from harness import FULL, TURN  # noqa: E402

FAULTS = os.path.join(FILES, "faults")
# tf-saver is for the tool: TensorFlow cannot run a session in a forked process if its parent ran one.
WRITERS = "npz keras-h5 keras keras-weights-h5".split() if "h5" in mutations.formats() else ["npz"]
WRITERS = WRITERS if FULL else WRITERS[TURN % len(WRITERS) :][:1]
TOOL = pytest.mark.skipif("h5" in mutations.formats() and not FULL, reason="the cells of NumPy test the tool itself")


def test_damaged_files_do_no_harm():
    formats, files = mutations.formats(), 300 if FULL else 4
    # Runs in a process of its own: workers are forked, and a fork would lack the threads that TensorFlow started here.
    command = [sys.executable, fuzz.__file__, "--seed", str(1000 + TURN), "--files", str(files)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    output, errors = (text.decode("utf-8") for text in process.communicate())
    assert process.returncode == 0, output + errors
    rows = [line.split(" | ") for line in output.splitlines() if line.startswith("| ")][1:]
    assert {row[0].lstrip("| "): int(row[1]) for row in rows} == dict.fromkeys(formats, files), output


@pytest.mark.parametrize("name", sorted(os.listdir(FAULTS)))
def test_files_that_once_made_trouble(name, tmp_path):
    format = name.partition(",")[0]
    if format not in mutations.formats():
        pytest.skip("nothing here reads {}".format(format))
    path = os.path.join(FAULTS, name)
    if os.path.isdir(path):
        shutil.copytree(path, str(tmp_path / "folder"))
        path = str(tmp_path / "folder")
        path = path if format == "folder" else os.path.join(path, mutations.MUTATORS[format][2])
    (tmp_path / "out").mkdir()
    for how in ({}, {"optimizer": "Adam(learning_rate=0.1)"}):
        mutant = mutations.Mutant(path, how, None, "", False)
        kind, problem = fuzz.examine(format, mutant, str(tmp_path / "out"))
        assert kind in fuzz.GOOD, problem


@TOOL
def test_what_a_file_does_is_seen(monkeypatch, tmp_path):
    """Tests the tool itself: each of these outcomes must be counted as what it is."""
    def refuse():
        raise FileError("no")

    faults = OrderedDict([
        ("read", lambda: None), ("refused", refuse), ("foreign", lambda: {}["x"]),
        ("wrong", lambda: fuzz.saved(everstep.State(), {("w", "m"): np.ones(1)}, str(tmp_path / "x.npz"))),
        ("memory", lambda: np.ones(5 << 20).sum()),  # 40 MB
        ("hang", lambda: all(itertools.count(1))), ("crash in ours", lambda: os.kill(os.getpid(), signal.SIGSEGV)),
    ])
    assert set(faults) == set(fuzz.KINDS) - {"crash in library", "hang in library"}
    kinds = list(faults)

    def mutate(format, seed, number, folder):
        return mutations.Mutant(os.path.join(folder, kinds[number]), {}, folder, "", False)

    monkeypatch.setattr(fuzz, "LIMIT_BYTES", 1 << 24)
    monkeypatch.setattr(mutations, "mutate", mutate)
    monkeypatch.setattr(fuzz, "uses", lambda format, mutant, folder, results, turn: [
        ("use", faults[os.path.basename(mutant.path)])])
    report = fuzz.run(["npz"], 1, files=len(kinds), limit=1.0)
    assert report.counts == {"npz": dict.fromkeys(kinds, 1)}
    assert [problem[0] for problem in report.failures()] == kinds[2:]


def test_killed_writers_leave_the_old_file_or_the_new_one():
    timed = 50 if WRITERS == ["npz"] else 20 * FULL
    rows, problems = fuzz.kill_writers(WRITERS, moments=None if FULL else 2, timed=timed, seed=TURN)
    assert problems == [] and [row[0] for row in rows] == WRITERS


@TOOL
def test_a_writer_that_is_not_safe_is_seen(monkeypatch):
    def save(path, number=1):
        text = read_bytes(os.path.join(mutations.STATES, "tf_train-tf1.4", "ftrl.npz"))
        write_bytes(path, text[:1000])
        write_bytes(path, text)

    monkeypatch.setattr(fuzz, "writers", lambda folder: [("npz", os.path.join(folder, "run.npz"), save)])
    monkeypatch.setattr(fuzz, "TRACED", ("crafted_files.py",))
    monkeypatch.setattr(fuzz, "loaded_number", lambda name, path: everstep.State.load(path).updates and 1)
    assert fuzz.kill_writers(timed=0)[1]


@TENSORFLOW
@pytest.mark.parametrize("text", [b"", b"\xff", b"model_checkpoint_path: 3", None], ids=repr)
def test_a_damaged_list_of_checkpoints(text, tmp_path):
    path = str(tmp_path / "checkpoint")
    os.mkdir(path) if text is None else write_bytes(path, text)
    with pytest.raises(FileError):
        everstep.read_checkpoint(str(tmp_path), optimizer="AdamOptimizer")
