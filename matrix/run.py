"""Runs the matrix: python3 matrix/run.py

Needs nothing but a Python 3.8 or newer with pip; all that it makes is under .tox/. Cells run through tox, a few at a
time, and each environment is deleted after its cell (all 56 together take some 40 GB). Logs stay: .tox/logs/<cell>.log.
"""
import argparse
import collections
import concurrent.futures
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree

import cells

ROOT = os.path.dirname(cells.HERE)
WORK = os.path.join(ROOT, ".tox")
RUNNER = os.path.join(WORK, "runner")  # the newest tox
PINNED = os.path.join(WORK, ".tox")  # the tox that tox.ini requires, where the newest one puts it: provision_tox_env

Result = collections.namedtuple("Result", "cell status versions passed failed skipped seconds")
OK, FAILED, MISSING = "ok", "FAILED", "no such Python"


def main():
    options = _options()
    chosen = _chosen(options)
    start = time.time()
    _say("%d of the matrix's cells, %d at a time" % (len(chosen), options.jobs))
    packages = _prepare()
    _say("tox is ready, the wheel and the sdist are built: %d s" % (time.time() - start))

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does: nothing goes on behind it
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        matrix = Matrix(packages, options)
        try:
            results = list(pool.map(matrix.run, _longest_first(chosen)))
        except KeyboardInterrupt:
            matrix.stop()
            raise SystemExit("\nstopped")
    names = [cell.name for cell in chosen]
    return _report(sorted(results, key=lambda result: names.index(result.cell.name)), options, time.time() - start)


def _options():
    parser = argparse.ArgumentParser(description="Test everstep with every Python, TensorFlow and Keras of the matrix.")
    parser.add_argument("--full", action="store_true", help="all cells of cells.ini, not only the quick ones")
    parser.add_argument("--cell", action="append", metavar="NAME",
                        help="this cell alone; * is any text; may be repeated")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), metavar="N",
                        help="cells at a time (%(default)s)")
    parser.add_argument("--strict", action="store_true", help="fail where a cell's Python is not found")
    parser.add_argument("--keep", action="store_true", help="keep the environments")
    parser.add_argument("--limit", type=float, default=20, metavar="MINUTES", help="for one cell (%(default)s)")
    parser.add_argument("pytest", nargs="*", metavar="-- ARGUMENT", help="for pytest, in every cell")
    return parser.parse_args()


def _chosen(options):
    table = cells.read()
    for pattern in options.cell or []:
        if not any(cells.matches(pattern, name) for name in table):
            sys.exit("there is no cell %s; matrix/cells.ini has %s" % (pattern, ", ".join(table)))
    if options.cell:
        return [cell for cell in table.values() if any(cells.matches(name, cell.name) for name in options.cell)]
    return [cell for cell in table.values() if options.full or cell.group == "quick"]


def _longest_first(chosen):
    """So that no long cell is left running alone at the end: newer frameworks have more APIs to test."""
    return sorted(reversed(chosen), key=lambda cell: cell.kind != "framework")


def _say(text):
    print(time.strftime("%H:%M:%S ") + text, flush=True)


# Before the first cell

def _prepare():
    """Installs tox, builds what the cells install: {"wheel": path, "sdist": path}."""
    if not _works([_python(RUNNER), "-c", "import build, tox"]):
        _step("make an environment for tox", _make_runner)
    dist = os.path.join(WORK, "dist")
    shutil.rmtree(dist, ignore_errors=True)
    # The wheel is built from the sdist, so that a file missing there is missed in every cell.
    _step("build everstep", lambda log: _call([_python(RUNNER), "-m", "build", "--outdir", dist, ROOT], log))
    # The cells are run by the pinned tox itself, because the newest holds a lock while it waits for that one.
    _step("set tox up", lambda log: _call([_python(RUNNER), "-m", "tox", "list"], log))
    packages = sorted(os.path.join(dist, name) for name in os.listdir(dist))
    return {"wheel" if name.endswith(".whl") else "sdist": name for name in packages}


def _python(environment):
    return os.path.join(environment, *(("Scripts", "python.exe") if os.name == "nt" else ("bin", "python")))


def _works(command):
    return os.path.exists(command[0]) and subprocess.call(command, stderr=subprocess.DEVNULL) == 0


def _make_runner(log):
    pip = [_python(RUNNER), "-m", "pip"]
    try:
        _call([sys.executable, "-m", "venv", "--clear", RUNNER], log)
    except subprocess.CalledProcessError:  # Debian's Python without python3-venv has no pip to put into it
        _call([sys.executable, "-m", "venv", "--clear", "--without-pip", RUNNER], log)
        pip = [sys.executable, "-m", "pip", "--python", _python(RUNNER)]
    _call(pip + ["install", "build", "tox"], log)


def _step(what, step):
    path = os.path.join(WORK, "logs", "%s.log" % what.replace(" ", "-"))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as log:
        try:
            step(log)
        except (OSError, subprocess.CalledProcessError) as error:
            log.flush()
            print(_tail(path))
            sys.exit("could not %s: %s" % (what, error))


def _call(command, log):
    subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, check=True)


# The cells

class Matrix:
    def __init__(self, packages, options):
        self.packages, self.options = packages, options
        self.processes, self.stopped, self.lock = set(), False, threading.Lock()
        self.sdist = threading.Lock()  # tox unpacks every sdist into the same folder

    def run(self, cell):
        log = os.path.join(WORK, "logs", cell.name + ".log")
        counts = os.path.join(WORK, "results", cell.name + ".xml")
        if os.path.exists(counts):
            os.remove(counts)  # of an earlier run, and not to be taken for this one's
        _say("%-18s starts: %s" % (cell.name, cell.holds))
        with self.sdist if cell.install == "sdist" else contextlib.nullcontext():
            start = time.time()
            passed = self._tox(cell, log)
        if self.stopped:
            return None
        result = _result(cell, passed, log, counts, time.time() - start)
        with self.lock:
            _say("%-18s %s, %d s%s" % (cell.name, result.status, result.seconds, "" if result.passed is None else
                                       ": %d passed, %d failed, %d skipped" % result[3:6]))
            if result.status == FAILED:
                print(_tail(log))
        if not self.options.keep:
            shutil.rmtree(os.path.join(WORK, cell.name), ignore_errors=True)
        return result

    def _tox(self, cell, log):
        command = [_python(PINNED), "-m", "tox", "run", "--colored", "no", "--skip-missing-interpreters", "true",
                   "-e", cell.name, "--installpkg", self.packages[cell.install]]
        if self.options.pytest:
            command += ["--"] + self.options.pytest
        with open(log, "w") as out:
            process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out,
                                       stderr=subprocess.STDOUT, start_new_session=True)
            with self.lock:
                self.processes.add(process)
                if self.stopped:
                    _kill(process)
            try:
                return process.wait(self.options.limit * 60) == 0
            except subprocess.TimeoutExpired:
                _kill(process)
                out.write("\nstopped: it took more than the %g minutes that --limit gives\n" % self.options.limit)
                return False
            finally:
                with self.lock:
                    self.processes.discard(process)

    def stop(self):
        with self.lock:
            self.stopped = True
            for process in self.processes:
                _kill(process)


def _kill(process):
    """Ends a tox with all that it started."""
    if os.name == "nt":
        process.kill()
    elif process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _result(cell, passed, log, counts, seconds):
    with open(log, errors="replace") as file:
        text = file.read()
    found = re.search(r"^cell %s: (.*)$" % re.escape(cell.name), text, re.M)
    versions = dict(item.split(" ", 1) for item in found.group(1).split(", ")) if found else {}
    if "could not find python interpreter" in text:
        return Result(cell, MISSING, versions, None, None, None, seconds)
    if not os.path.exists(counts):
        return Result(cell, OK if passed and cell.kind == "lint" else FAILED, versions, None, None, None, seconds)
    suites = list(xml.etree.ElementTree.parse(counts).getroot().iter("testsuite"))
    total, failures, errors, skipped = (sum(int(suite.get(key, 0)) for suite in suites)
                                        for key in ("tests", "failures", "errors", "skipped"))
    failed = failures + errors
    return Result(cell, OK if passed else FAILED, versions, total - failed - skipped, failed, skipped, seconds)


def _tail(path, lines=60):
    with open(path, errors="replace") as file:
        tail = collections.deque(file, lines)
    return "%s, its last lines:\n    %s" % (os.path.relpath(path, ROOT), "    ".join(tail))


# After the last

def _report(results, options, seconds):
    rows = [("cell", "python", "framework", "keras", "passed", "failed", "skipped", "seconds", "status")]
    for result in results:
        framework = [" ".join(item) for item in result.versions.items() if item[0] in ("tensorflow", "jax", "torch")]
        rows.append((result.cell.name, result.versions.get("python", result.cell.python),
                     ", ".join(framework) or "-", result.versions.get("keras", "-"),
                     *("-" if count is None else str(count) for count in result[3:6]),
                     "%d" % result.seconds, result.status))
    widths = [max(map(len, column)) for column in zip(*rows)]
    print()
    for row in rows:
        print("  ".join(text.rjust(width) if 4 <= place <= 7 else text.ljust(width)
                        for place, (text, width) in enumerate(zip(row, widths))).rstrip())

    missing = [result.cell for result in results if result.status == MISSING]
    if missing:
        pythons = sorted({cell.python for cell in missing}, key=lambda python: [int(n) for n in python.split(".")])
        print("\nNot run: %s. No Python %s on PATH, in pyenv or in uv; to get it: pyenv install %s"
              % (", ".join(cell.name for cell in missing), ", ".join(pythons), " ".join(pythons)))
    failed = [result.cell.name for result in results if result.status == FAILED]
    if failed:
        print("\nFailed: %s. What each said is in .tox/logs/." % ", ".join(failed))
    ran = len(results) - len(missing)
    print("\nran %d of %d cells in %d min %d s" % (ran, len(results), seconds // 60, seconds % 60))
    print("%d passed, %d failed, %d skipped" % tuple(sum(result[place] or 0 for result in results)
                                                   for place in (3, 4, 5)))
    return 1 if failed or (options.strict and missing) or not ran else 0


if __name__ == "__main__":
    if sys.version_info < (3, 8):
        sys.exit("matrix/run.py needs Python 3.8 or newer to drive the matrix; this is %s" % sys.version.split()[0])
    sys.exit(main())
