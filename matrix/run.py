"""Runs the matrix: python3 matrix/run.py

Needs only Python 3.8 or newer with pip. Runs cells through tox, a few at a time, and deletes each environment after its
cell (all together take some 50 GB). Writes only below .tox/, where logs stay in logs/<cell>.log; with --full it writes
what each cell showed into matrix/proof.json and proof.md too, as soon as the cell ends.
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
import proof

ROOT = os.path.dirname(cells.HERE)
WORK = os.path.join(ROOT, ".tox")
RUNNER = os.path.join(WORK, "runner")  # the newest tox
RESULTS = os.path.join(WORK, "results")  # what the tests write
PINNED = os.path.join(WORK, ".tox")  # where the newest tox installs the one of tox.ini: provision_tox_env

OK, FAILED, MISSING, NO_TIME = "ok", "FAILED", "no such Python", "no time left"
SHARDS = 10  # of the cells that are not quick: as many runs with --rotate have all of them
USUAL = 600  # seconds of a cell that never ran


class Result(collections.namedtuple("Result", "cell status versions passed failed skipped seconds")):
    @property
    def is_green(self):
        return self.status == OK


def main():
    options = _options()
    start = time.time()
    shown = proof.read()
    chosen = _chosen(options, shown)
    record = _record(options)
    _say("%d of the matrix's cells, %d at a time" % (len(chosen), options.jobs))
    packages = _prepare()
    _say("tox is ready, the wheel and the sdist are built: %d s" % (time.time() - start))

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends like Ctrl-C: no process stays behind
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        matrix = Matrix(packages, options, shown, record, start)
        try:
            results = list(pool.map(matrix.run, _longest_first(chosen, shown)))
        except KeyboardInterrupt:
            matrix.stop()
            raise SystemExit("\nstopped")
    names = [cell.name for cell in chosen]
    return _report(sorted(results, key=lambda result: names.index(result.cell.name)), options, time.time() - start)


def _options():
    parser = argparse.ArgumentParser(description="Test everstep with every Python, TensorFlow and Keras of the matrix.")
    parser.add_argument("--full", action="store_true",
                        help="all cells of cells.ini, not only the quick ones; renews matrix/proof.json and proof.md")
    parser.add_argument("--resume", action="store_true",
                        help="without the cells that matrix/proof.json shows as green for the same files")
    parser.add_argument("--shard", type=_shard, default=(1, 1), metavar="K/N", help="the Kth of N parts of the cells")
    parser.add_argument("--rotate", type=float, metavar="MINUTES",
                        help="then a tenth of the other cells, as long as all takes less than MINUTES; the number of "
                             "commits says which tenth, so that ten runs have all")
    parser.add_argument("--cell", action="append", metavar="NAME",
                        help="this cell alone; * is any text; may be repeated")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), metavar="N",
                        help="cells at a time (%(default)s)")
    parser.add_argument("--strict", action="store_true", help="fail where a cell's Python is not found")
    parser.add_argument("--keep", action="store_true", help="keep the environments")
    parser.add_argument("--limit", type=float, default=20, metavar="MINUTES", help="for one cell (%(default)s)")
    parser.add_argument("pytest", nargs="*", metavar="-- ARGUMENT", help="for pytest, in every cell")
    return parser.parse_args()


def _record(options):
    """Returns (hash of the tracked files, commit) to write into proof.json; None if nothing is written there."""
    if not options.full:
        return None
    commit = proof.commit()
    if options.pytest or commit is None:
        _say("matrix/proof.json stays as it is: %s" % ("pytest has arguments" if options.pytest else
                                                       "tracked files have changed since the last commit"))
        return None
    return proof.tree(), commit


def _shard(text):
    """Returns (2, 5) for "2/5"."""
    match = re.match(r"(\d+)/(\d+)\Z", text)
    shard = tuple(map(int, match.groups())) if match else (0, 0)
    if not 1 <= shard[0] <= shard[1]:
        raise argparse.ArgumentTypeError("%r is not like 2/5" % text)
    return shard


def _chosen(options, shown):
    """Returns the cells to run; those that --rotate adds come last."""
    table = cells.read()
    for pattern in options.cell or []:
        if not any(cells.matches(pattern, name) for name in table):
            sys.exit("there is no cell %s; matrix/cells.ini has %s" % (pattern, ", ".join(table)))
    part, parts = options.shard
    if options.cell:
        chosen = [cell for cell in table.values() if any(cells.matches(name, cell.name) for name in options.cell)]
    else:
        chosen = [cell for cell in table.values() if options.full or cell.group == "quick"]
    chosen = chosen[part - 1 :: parts]
    if options.resume:
        tree = proof.tree()
        chosen = [cell for cell in chosen if not proof.is_green(shown.get(cell.name), tree)]
    if options.rotate:
        others = [cell for cell in table.values() if cell.group != "quick"]
        chosen += [cell for cell in others[proof.commits() % SHARDS :: SHARDS] if cell not in chosen]
    return chosen


def _longest_first(chosen, shown):
    """Starts long cells first, so that none runs alone at the end, and cells that are not quick after the others.

    Newer frameworks, which have more APIs, stand last in cells.ini and come first here, while no time of them is known.
    """
    return sorted(reversed(chosen), key=lambda cell: (cell.group != "quick", -_usual(cell, shown)))


def _usual(cell, shown):
    """Returns the seconds that a cell took when it last ran."""
    return shown.get(cell.name, {}).get("seconds", USUAL if cell.kind == "framework" else 0)


def _say(text):
    print(time.strftime("%H:%M:%S ") + text, flush=True)


# Preparation

def _prepare():
    """Installs tox and builds everstep. Returns {"wheel": path, "sdist": path}."""
    if not _works([_python(RUNNER), "-c", "import build, tox"]):
        _step("make an environment for tox", _make_runner)
    dist = os.path.join(WORK, "dist")
    shutil.rmtree(dist, ignore_errors=True)
    # Build the wheel from the sdist, so that every cell misses a file that the sdist lacks.
    _step("build everstep", lambda log: _call([_python(RUNNER), "-m", "build", "--outdir", dist, ROOT], log))
    # Run the cells with the pinned tox itself: the newest tox holds a lock while it waits for the pinned one.
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
    except subprocess.CalledProcessError:  # Debian's Python without python3-venv cannot install pip
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
    """Runs cells.

    Args:
        shown: what proof.json says.
        record: the hash of the tracked files and the commit to write there; None to write nothing.
        start: when the run began, in seconds.
    """

    def __init__(self, packages, options, shown, record, start):
        self.packages, self.options, self.shown, self.record = packages, options, shown, record
        self.ends = start + options.rotate * 60 if options.rotate else None
        self.processes, self.stopped, self.lock = set(), False, threading.Lock()
        self.sdist = threading.Lock()  # tox unpacks every sdist into the same folder

    def run(self, cell):
        log = os.path.join(WORK, "logs", cell.name + ".log")
        rotates = self.ends is not None and cell.group != "quick"
        if rotates and time.time() + _usual(cell, self.shown) > self.ends:
            return Result(cell, NO_TIME, {}, None, None, None, 0)
        for name in os.listdir(RESULTS) if os.path.isdir(RESULTS) else ():
            if name.startswith(cell.name + "."):
                os.remove(os.path.join(RESULTS, name))  # left by an earlier run
        limit = self.options.limit * 60
        _say("%-18s starts: %s" % (cell.name, cell.holds))
        with self.sdist if cell.install == "sdist" else contextlib.nullcontext():
            start = time.time()
            if rotates:
                limit = max(1, min(limit, self.ends - start))
            passed = self._tox(cell, log, limit)
        if self.stopped:
            return None
        result = _result(cell, passed, log, time.time() - start)
        if rotates and not passed and time.time() >= self.ends:
            result = Result(cell, NO_TIME, {}, None, None, None, result.seconds)
        with self.lock:
            if self.record and result.status in (OK, FAILED) and proof.tree() == self.record[0]:
                self.shown[cell.name] = proof.entry(result, RESULTS, *self.record)
                proof.write(self.shown)
            _say("%-18s %s, %d s%s" % (cell.name, result.status, result.seconds, "" if result.passed is None else
                                       ": %d passed, %d failed, %d skipped" % result[3:6]))
            if result.status == FAILED:
                print(_tail(log))
        if not self.options.keep:
            shutil.rmtree(os.path.join(WORK, cell.name), ignore_errors=True)
        return result

    def _tox(self, cell, log, limit):
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
                return process.wait(limit) == 0
            except subprocess.TimeoutExpired:
                _kill(process)
                out.write("\nstopped: it took more than %g minutes\n" % (limit / 60))
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
    """Kills a tox and all its child processes."""
    if os.name == "nt":
        process.kill()
    elif process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _result(cell, passed, log, seconds):
    counts = os.path.join(RESULTS, cell.name + ".xml")
    with open(log, errors="replace") as file:
        text = file.read()
    match = re.search(r"^cell %s: (.*)$" % re.escape(cell.name), text, re.M)
    versions = dict(item.split(" ", 1) for item in match.group(1).split(", ")) if match else {}
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


# The report

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
    late = [result.cell.name for result in results if result.status == NO_TIME]
    if late:
        print("\nNot run in the %g minutes that --rotate gives: %s." % (options.rotate, ", ".join(late)))
    failed = [result.cell.name for result in results if result.status == FAILED]
    if failed:
        print("\nFailed: %s. What each said is in .tox/logs/." % ", ".join(failed))
    ran = len(results) - len(missing) - len(late)
    print("\nran %d of %d cells in %d min %d s" % (ran, len(results), seconds // 60, seconds % 60))
    print("%d passed, %d failed, %d skipped" % tuple(sum(result[place] or 0 for result in results)
                                                   for place in (3, 4, 5)))
    return 1 if failed or (options.strict and missing) or not ran else 0


if __name__ == "__main__":
    if sys.version_info < (3, 8):
        sys.exit("matrix/run.py needs Python 3.8 or newer to drive the matrix; this is %s" % sys.version.split()[0])
    sys.exit(main())
