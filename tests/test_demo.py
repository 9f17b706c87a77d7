"""The demo's words, table and verdict: what needs no downloads. tests/test_examples.py trains what it trains."""
from __future__ import absolute_import, division, print_function

import errno
import os
import signal
import subprocess
import sys
import time
from collections import OrderedDict

import numpy as np
import pytest

import block_setups

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(sys.version_info < (3, 8), reason="the demo is driven by Python 3.8 and newer"),
]
EXAMPLES = os.path.join(block_setups.ROOT, "examples")


@pytest.fixture
def demo(tmp_path, monkeypatch):
    """Returns a copy of the demo's driver, whose folder is empty."""
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setattr(sys, "dont_write_bytecode", sys.dont_write_bytecode)
    import demo

    monkeypatch.setattr(demo, "DEMO", tmp_path / ".demo")
    monkeypatch.setattr(demo, "screen", demo.Screen())
    return demo


@pytest.fixture
def report(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    import report

    return report


def last_run(demo):
    """Leaves what a run leaves. Returns it as {path: content}."""
    (demo.DEMO / "last" / "results").mkdir(parents=True)
    for path in ("last/results/py39-tf2.10.npz", "curves.png"):
        (demo.DEMO / path).write_text("results of the last run")
    return results_in(demo)


def results_in(demo):
    paths = list(demo.DEMO.glob("last/**/*.npz")) + list(demo.DEMO.glob("*.png"))
    return {str(path): path.read_text() for path in paths}


@pytest.mark.parametrize("words, code, said", [
    (["--help"], 0, "usage: demo.py [-h] [PYTHON ...]"),
    (["3.14"], 2, "'3.14' is not a Python of this demo; it has 2.7, 3.6, 3.7"),
    (["help"], 2, "'help' is not a Python of this demo"),
    (["--clean"], 2, "unrecognized arguments: --clean"),
])
def test_help_and_wrong_words_do_nothing_else(words, code, said, demo, capsys):
    with pytest.raises(SystemExit) as ended:
        demo.arguments(words)
    assert ended.value.code == code
    assert said in "".join(capsys.readouterr())
    assert not demo.DEMO.exists()


def test_pythons_that_are_named_are_taken(demo):
    assert demo.arguments([]) == [] and demo.arguments(["2.7", "3.13"]) == ["2.7", "3.13"]


def test_without_any_of_the_pythons_nothing_is_installed_or_deleted(demo, monkeypatch, capsys):
    monkeypatch.setattr(demo, "pythons", dict)
    before = last_run(demo)
    assert demo.main(["2.7"]) == 1
    assert results_in(demo) == before
    said = capsys.readouterr()[0]
    assert said.startswith("No: nothing was trained, because this machine has no Python 2.7. Install one")


def test_a_full_disk_is_said_before_anything_is_installed(demo, monkeypatch):
    monkeypatch.setattr(demo, "pythons", lambda: {"3.9": sys.executable})
    monkeypatch.setattr(demo, "NEEDED", 10**18)  # of a disk that has less, instead of filling one
    before = last_run(demo)
    with pytest.raises(demo.Hopeless, match=r"The disk of .*\.demo is full: .* GB are free.* Make room"):
        demo.main(["3.9"])
    assert results_in(demo) == before


def test_results_stay_if_the_tools_cannot_be_made(demo, monkeypatch):
    """The tools come first: whatever fails later finds the last run's results kept as well."""
    def offline(*command, **keywords):
        raise demo.Hopeless("The package index cannot be reached")

    monkeypatch.setattr(demo, "pythons", lambda: {"3.9": sys.executable})
    monkeypatch.setattr(demo, "NEEDED", 0)
    monkeypatch.setattr(demo, "run", offline)
    before = last_run(demo)
    with pytest.raises(demo.Hopeless):
        demo.main(["3.9"])
    assert results_in(demo) == before


@pytest.mark.parametrize("printed, free, said", [
    ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", 10**9, "is full"),
    ("", 10**6, "is full: 0.0 GB are free"),
    ("WARNING: Retrying ... NewConnectionError: Failed to establish a new connection: [Errno -3] Temporary failure in "
     "name resolution", 10**10, "The package index cannot be reached"),
    ("error: Failed to fetch: `https://...`\n  Caused by: dns error", 10**10, "The package index cannot be reached"),
    ("ERROR: No matching distribution found for tensorflow==2.15.1", 10**10, None),
])
def test_a_full_disk_and_a_missing_network_are_said_in_a_sentence(printed, free, said, demo):
    known = demo.known_cause(printed, free)
    assert known is None if said is None else said in known


def test_an_error_of_a_full_disk_is_a_sentence(demo):
    assert "is full" in demo.sentence(OSError(errno.ENOSPC, "No space left on device"))
    assert demo.sentence(OSError(errno.EACCES, "Permission denied")) == "[Errno 13] Permission denied"


def test_a_command_that_fails_without_network_stops_the_rest(demo):
    code = "import sys; sys.exit('Temporary failure in name resolution')"
    with pytest.raises(demo.Hopeless, match=r"cannot be reached.*The log is .*a\.log"):
        demo.run(demo.DEMO / "logs" / "a.log", sys.executable, "-c", code)
    with pytest.raises(RuntimeError, match="failed; see"):  # by its own output, not by what the log had before
        demo.run(demo.DEMO / "logs" / "a.log", sys.executable, "-c", "import sys; sys.exit('broken')")


INTERRUPTED = """
import pathlib, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell makes jobs in the background ignore it
sys.path.insert(0, {examples!r})
import demo
demo.DEMO, demo.NEEDED = pathlib.Path({folder!r}), 0
waits = "import os, time; print(os.getpid(), flush=True); time.sleep(100)"
demo.make_tools = lambda log: demo.run(log, sys.executable, "-c", waits)
sys.exit(demo.command([]))
"""


def test_ctrl_c_ends_in_a_sentence_and_leaves_no_process(tmp_path):
    """The driver waits for a child. Only the driver gets the signal, as from `kill -INT`."""
    code = INTERRUPTED.format(examples=EXAMPLES, folder=str(tmp_path / "demo"))
    process = subprocess.Popen([sys.executable, "-B", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    log = tmp_path / "demo" / "logs" / "tools.log"
    while process.poll() is None and not (log.exists() and log.read_text().strip()):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    errors = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 130
    assert errors.strip().startswith("Stopped. What was installed and the results of the last run are kept.")
    assert "Traceback" not in errors
    with pytest.raises(OSError):  # the child gets a moment to end
        for _ in range(100):
            os.kill(int(log.read_text()), 0)
            time.sleep(0.05)


def test_the_clock_moves_while_nothing_else_happens(demo, monkeypatch, capsys):
    shown, screen = [], demo.screen
    screen.live = True
    monkeypatch.setattr(demo.time, "sleep", lambda seconds: shown.append(capsys.readouterr()[0]) or (
        screen.end() if len(shown) == 3 else setattr(screen, "started", screen.started - 7)))
    screen.tick()
    assert [" ".join(text.replace("\r\033[K", "").split()) for text in shown] == ["0 s", "7 s", "14 s"]


def trained(report, run, api, framework, off=0.0, cell="here", python="3.13.0"):
    weights = {"w": np.array([1.0, 1.0 + off])}
    return report.Result(run, "digits", api, "update_step", framework, cell, python, 123.4, 1.0, np.ones(40), weights)


RUN = "words, AdagradDecay"


@pytest.fixture
def results(report):
    """The widest APIs and versions that the demo has."""
    oracle = {run: trained(report, run, "numpy", "numpy 2.4.6") for run in (report.ADAM, RUN)}
    wide = [("tf_keras.optimizers.legacy", "tf_keras 2.21.0, tensorflow 2.21.0"),
            ("tf.keras.optimizers.legacy", "tensorflow 2.15.1"),
            ("keras", "keras 3.15.1, torch 2.13.0+cpu"), ("keras", "keras 3.15.1, jax 0.12.0.1"),
            ("keras", "keras 2.3.1, tensorflow 1.15.5")]
    return oracle, OrderedDict((run, [trained(report, run, *each, off=1.2e-6) for each in wide]) for run in oracle)


def test_the_table_is_at_most_100_columns_wide(report, results):
    oracles, found = results
    own = {(each.cell, each.api): each for each in found[report.ADAM]}
    lines = report.table(oracles, found, own)
    assert len(lines) == 1 + 2 * (1 + 1 + 5) and max(map(len, lines)) <= 100
    assert lines[1].startswith("-- digits, Adam --") and "oracle" in lines[2]
    assert lines[3].split() == ["tf_keras.optimizers.legacy", "3.13", "tf_keras", "2.21", "123.4", "1.0000", "100.0%",
                                "1.2e-06", "1.2e-06"]


def test_one_line_says_yes_or_no(report, results):
    oracles, found = results
    yes, said = report.verdict(oracles, found, [])
    assert yes and said == ("Yes: each definition gave the same weights on 3 APIs of 1 Python, within 1.2e-06 "
                            "(allowed: 1e-05).")
    yes, said = report.verdict(oracles, found, ["py39-tf2.10"])
    assert not yes and said == "No: failed in part or whole: py39-tf2.10."
    found[RUN][2] = trained(report, RUN, "keras", "keras 3.15.1", off=float("nan"))
    yes, said = report.verdict(oracles, found, [])
    assert not yes and said == ("No: 1 of 10 results differ from the oracle by more than 1e-05: words, AdagradDecay of "
                                "here on keras.")
    assert report.verdict(oracles, dict.fromkeys(found, []), []) == (False, "No: nothing was trained.")
