"""Runs cells through tox, a few at a time, and keeps their environments within a budget. Prints a table at the end.

Needs only Python 3.8 or newer with pip. Writes only below .tox/, where logs stay in logs/<cell>.log.
"""
from __future__ import absolute_import, division, print_function

import collections
import contextlib
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree

if __name__.startswith("everstep."):
    from everstep.matrix_kit import environments
else:  # matrix/ has this folder on sys.path
    import environments  # type: ignore[import-not-found, no-redef]
try:
    import concurrent.futures
except ImportError:  # Python 2 imports this file, but does not run cells
    pass

OK, FAILED, MISSING, NO_TIME = "ok", "FAILED", "no such Python", "no time left"
RECORDED = ("numpy", "h5py", "protobuf", "tensorflow", "keras", "tf_keras", "jax", "jaxlib", "torch")


class Result(collections.namedtuple("Result", "cell status versions passed failed skipped seconds")):
    """What a cell showed."""

    __slots__ = ()

    @property
    def is_green(self):
        """Whether all went well."""
        return self.status == OK


def add_options(parser):
    """Adds the arguments that every runner of cells has."""
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1) if hasattr(os, "cpu_count") else 1,
                        metavar="N", help="cells at a time (%(default)s)")
    parser.add_argument("--strict", action="store_true", help="fail where a cell's Python is not found")
    parser.add_argument("--keep", type=float, nargs="?", default=30, const=float("inf"), metavar="GB",
                        help="for environments that later runs use again, the oldest deleted first (%(default)g); "
                             "without a number no limit")
    parser.add_argument("--limit", type=float, default=20, metavar="MINUTES", help="for one cell (%(default)s)")
    parser.add_argument("pytest", nargs="*", metavar="-- ARGUMENT", help="for pytest, in every cell")


def say(text):
    """Prints a line with the time."""
    sys.stdout.write(time.strftime("%H:%M:%S ") + text + "\n")  # at once: print writes the end of a line by itself
    sys.stdout.flush()


class Matrix(object):
    """The cells of a project.

    Args:
        root: the folder of the project and of its file for tox.
        options: what `add_options` adds.
        name: the project.
        config: the name of its file for tox.

    Attributes:
        results: the folder of what tests write.
    """

    no_time = "the time that was left"

    def __init__(self, root, options, name, config="tox.ini"):
        self.root, self.options, self.name, self.config = root, options, name, os.path.join(root, config)
        self.work = os.path.join(root, ".tox")
        self.results = os.path.join(self.work, "results")
        self._newest = os.path.join(self.work, "runner")  # the newest tox
        self._pinned = os.path.join(self.work, ".tox")  # provision_tox_env: there it installs the one of tox.ini
        self._processes, self._stopped, self._lock = set(), False, threading.Lock()
        self._unpacks = threading.Lock()  # tox unpacks every sdist into the same folder

    def order(self, cells):
        """Returns cells in the order in which they start."""
        return list(cells)

    def ends(self, cell):
        """Returns when a cell has to have ended, in seconds since the epoch; None if it has time."""

    def usual(self, cell):
        """Returns the seconds that a cell takes."""
        return 0

    def ended(self, result):
        """Is called after each cell, by one thread at a time."""

    def run(self, cells):
        """Runs cells and prints the table. Returns the exit code."""
        start = time.time()
        say("%d of the matrix's cells, %d at a time" % (len(cells), self.options.jobs))
        self._prepare()
        self._kept = environments.Kept(self.work, self.options.keep)
        say("tox is ready, the wheel and the sdist are built: %d s" % (time.time() - start))
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends like Ctrl-C: no process stays behind
        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            try:
                results = list(pool.map(self._cell, self.order(cells)))
            except KeyboardInterrupt:
                self._stop()
                raise SystemExit("\nstopped")
        names = [cell.name for cell in cells]
        results.sort(key=lambda result: names.index(result.cell.name))
        return self._report(results, time.time() - start)

    # Preparation

    def _prepare(self):
        """Installs tox and builds the project."""
        if not _works([_python(self._newest), "-c", "import build, tox"]):
            self._step("make an environment for tox", self._make_runner)
        self._installer = environments.Installer(_python(self._newest), os.path.join(self.work, "uv.json"))
        dist = os.path.join(self.work, "dist")
        shutil.rmtree(dist, ignore_errors=True)
        # Build the wheel from the sdist, so that every cell misses a file that the sdist lacks.
        self._step("build " + self.name, lambda log: self._build(dist, log))
        # Run the cells with the pinned tox itself: the newest tox holds a lock while it waits for the pinned one.
        self._step("set tox up", lambda log: self._call(
            [_python(self._newest), "-m", "tox", "list", "--conf", self.config], log))
        packages = sorted(os.path.join(dist, name) for name in os.listdir(dist))
        self._packages = {"wheel" if name.endswith(".whl") else "sdist": name for name in packages}

    def _make_runner(self, log):
        pip = [_python(self._newest), "-m", "pip"]
        try:
            self._call([sys.executable, "-m", "venv", "--clear", self._newest], log)
        except subprocess.CalledProcessError:  # Debian's Python without python3-venv cannot install pip
            self._call([sys.executable, "-m", "venv", "--clear", "--without-pip", self._newest], log)
            pip = [sys.executable, "-m", "pip", "--python", _python(self._newest)]
        self._call(pip + ["install", "build", "tox"], log)
        subprocess.call(pip + environments.GET_UV, stdout=log, stderr=log)  # without uv, pip installs

    def _build(self, dist, log):
        command = [_python(self._newest), "-m", "build", "--outdir", dist, self.root]
        variables = self._installer.variables
        if variables is None or subprocess.call(
                command + ["--installer", "uv"], cwd=self.root, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, env=dict(os.environ, **variables)):
            self._call(command, log)

    def _step(self, what, step):
        path = os.path.join(self.work, "logs", "%s.log" % what.replace(" ", "-"))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as log:
            try:
                step(log)
            except (OSError, subprocess.CalledProcessError) as error:
                log.flush()
                print(self._tail(path))
                sys.exit("could not %s: %s" % (what, error))

    def _call(self, command, log):
        subprocess.run(command, cwd=self.root, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                       check=True)

    # The cells

    def _cell(self, cell):
        log = os.path.join(self.work, "logs", cell.name + ".log")
        ends = self.ends(cell)
        if ends is not None and time.time() + self.usual(cell) > ends:
            return Result(cell, NO_TIME, {}, None, None, None, 0)
        for name in os.listdir(self.results) if os.path.isdir(self.results) else ():
            if name.startswith(cell.name + "."):
                os.remove(os.path.join(self.results, name))  # left by an earlier run
        limit = self.options.limit * 60
        say("%-18s starts: %s" % (cell.name, cell.holds))
        with self._unpacks if cell.install == "sdist" else contextlib.nullcontext():
            start = time.time()
            if ends is not None:
                limit = max(1, min(limit, ends - start))
            pins = environments.pins(os.path.join(self.root, self.config), cell)
            self._kept.begin(cell.name, pins)
            passed = self._tox(cell, log, limit)
        result = None if self._stopped else self._result(cell, passed, log, time.time() - start)
        self._kept.end(cell.name, pins, log)
        if result is None:
            return None
        if ends is not None and not passed and time.time() >= ends:
            result = Result(cell, NO_TIME, {}, None, None, None, result.seconds)
        with self._lock:
            if result.status in (OK, FAILED):
                self.ended(result)
            say("%-18s %s, %d s%s" % (cell.name, result.status, result.seconds, "" if result.passed is None else
                                      ": %d passed, %d failed, %d skipped" % result[3:6]))
            if result.status == FAILED:
                print(self._tail(log))
        return result

    def _tox(self, cell, log, limit):
        command = [_python(self._pinned), "-m", "tox", "run", "--conf", self.config, "--colored", "no",
                   "--skip-missing-interpreters", "true", "-e", cell.name, "--installpkg",
                   self._packages[cell.install]]
        if self.options.pytest:
            command += ["--"] + self.options.pytest
        with open(log, "w") as out:
            process = subprocess.Popen(command, cwd=self.root, stdin=subprocess.DEVNULL, stdout=out,
                                       stderr=subprocess.STDOUT, start_new_session=True,
                                       env=dict(os.environ, EVERSTEP_PIP=self._installer.text))
            with self._lock:
                self._processes.add(process)
                if self._stopped:
                    _kill(process)
            try:
                return process.wait(limit) == 0
            except subprocess.TimeoutExpired:
                _kill(process)
                out.write("\nstopped: it took more than %g minutes\n" % (limit / 60))
                return False
            finally:
                with self._lock:
                    self._processes.discard(process)

    def _stop(self):
        with self._lock:
            self._stopped = True
            for process in self._processes:
                _kill(process)

    def _result(self, cell, passed, log, seconds):
        counts = os.path.join(self.results, cell.name + ".xml")
        with open(log, errors="replace") as file:
            text = file.read()
        match = re.search(r"^cell %s: (.*)$" % re.escape(cell.name), text, re.M)
        versions = dict(item.split(" ", 1) for item in match.group(1).split(", ")) if match else {}  # as imported
        for name, version in installed(os.path.join(self.work, cell.name)):
            versions.setdefault(name, version)
        if "could not find python interpreter" in text:
            return Result(cell, MISSING, versions, None, None, None, seconds)
        if not os.path.exists(counts):
            status = OK if passed and cell.runs_tools else FAILED
            return Result(cell, status, versions, None, None, None, seconds)
        suites = list(xml.etree.ElementTree.parse(counts).getroot().iter("testsuite"))
        total, failures, errors, skipped = (sum(int(suite.get(key, 0)) for suite in suites)
                                            for key in ("tests", "failures", "errors", "skipped"))
        failed = failures + errors
        return Result(cell, OK if passed else FAILED, versions, total - failed - skipped, failed, skipped, seconds)

    def _tail(self, path, lines=60):
        with open(path, errors="replace") as file:
            tail = collections.deque(file, lines)
        return "%s, its last lines:\n    %s" % (os.path.relpath(path, self.root), "    ".join(tail))

    # The report

    def _report(self, results, seconds):
        rows = ["cell python framework keras passed failed skipped seconds status".split()]
        for result in results:
            framework = [" ".join(item) for item in result.versions.items()
                         if item[0] in ("tensorflow", "jax", "torch")]
            counts = ["-" if count is None else str(count) for count in result[3:6]]
            rows.append([result.cell.name, result.versions.get("python", result.cell.python),
                         ", ".join(framework) or "-", result.versions.get("keras", "-")] + counts
                        + ["%d" % result.seconds, result.status])
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
            print("\nNot run in %s: %s." % (self.no_time, ", ".join(late)))
        failed = [result.cell.name for result in results if result.status == FAILED]
        if failed:
            print("\nFailed: %s. What each said is in .tox/logs/." % ", ".join(failed))
        ran = len(results) - len(missing) - len(late)
        print("\nran %d of %d cells in %d min %d s" % (ran, len(results), seconds // 60, seconds % 60))
        print("%d passed, %d failed, %d skipped" % tuple(sum(result[place] or 0 for result in results)
                                                       for place in (3, 4, 5)))
        return 1 if failed or (self.options.strict and missing) or not ran else 0


def installed(environment):
    """Yields (import name, version) of the `RECORDED` packages in an environment, from the names of their folders."""
    for path in sorted(glob.glob(os.path.join(environment, "lib", "python*", "site-packages", "*.dist-info"))):
        name, _, version = os.path.basename(path)[: -len(".dist-info")].partition("-")
        name = name.lower().replace("tensorflow_cpu", "tensorflow")
        if name in RECORDED:
            yield name, version


def _python(environment):
    return os.path.join(environment, *(("Scripts", "python.exe") if os.name == "nt" else ("bin", "python")))


def _works(command):
    return os.path.exists(command[0]) and subprocess.call(command, stderr=subprocess.DEVNULL) == 0


def _kill(process):
    """Kills a tox and all its child processes."""
    if os.name == "nt":
        process.kill()
    elif process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
