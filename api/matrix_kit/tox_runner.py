"""Runs cells through tox, a few at a time, and keeps their environments within a budget.

Says first which cells can run, and prints a table at the end, whatever ended the run.

Needs only Python 3.8 or newer with pip. Writes only below .tox/, where logs stay in logs/<cell>.log.
"""
from __future__ import absolute_import, division, print_function

import collections
import contextlib
import glob
import os
import re
import runpy
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

HERE = os.path.dirname(os.path.abspath(__file__))
OK, FAILED, MISSING, NO_TIME, STOPPED = "ok", "FAILED", "no such Python", "no time left", "stopped"
RESERVE = 1.25  # times its usual seconds has to be left for a cell that ends in time
RECORDED = ("numpy", "h5py", "protobuf", "tensorflow", "keras", "tf_keras", "jax", "jaxlib", "torch", "optax")


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
    parser.add_argument("--keep", type=float, nargs="?", default=10, const=float("inf"), metavar="GB",
                        help="for environments that later runs use again, the oldest deleted first (%(default)g); "
                             "without a number no limit")
    parser.add_argument("--limit", type=float, metavar="MINUTES",
                        help="for one cell (5 and 3 times what it took when it last ran; 20 if that is unknown)")
    parser.add_argument("pytest", nargs="*", metavar="-- ARGUMENT", help="for pytest, in every cell")


class Matrix(object):
    """The cells of a project.

    Args:
        root: the folder of the project and of its file for tox.
        options: what `add_options` adds.
        name: the project.
        screen: where it prints, a `tox_screen.Screen`.
        config: the name of its file for tox.

    Attributes:
        results: the folder of what tests write.
    """

    no_time = "the time that was left"
    good_codes = (0,)  # exit codes of a cell that went well

    def __init__(self, root, options, name, screen, config="tox.ini"):
        self.root, self.options, self.name, self.screen = root, options, name, screen
        self.config = os.path.join(root, config)
        self.work = os.path.join(root, ".tox")
        self.results = os.path.join(self.work, "results")
        self._newest = os.path.join(self.work, "runner")  # the newest tox
        self._pinned = os.path.join(self.work, ".tox")  # provision_tox_env: there it installs the one of tox.ini
        self._processes, self._stopped, self._lock = set(), False, threading.Lock()
        self._running, self._ended, self._left = [], [], []  # (cell, when it began), results, environments to remove
        self._unpacks = threading.Lock()  # tox unpacks every sdist into the same folder

    def order(self, cells):
        """Returns cells in the order in which they start."""
        return list(cells)

    def ends(self, cell):
        """Returns when a cell has to have ended, in seconds since the epoch; None if it has time."""

    def usual(self, cell):
        """Returns the seconds that a cell takes. None if that is unknown, which it is not where `ends` gives a time."""

    def arguments(self, cell):
        """Returns the arguments for pytest."""
        return self.options.pytest

    def ended(self, result):
        """Is called after each cell, by one thread at a time."""

    def run(self, cells):
        """Runs cells and prints the table, whatever ends the run. Returns the exit code.

        A cell that `ends` gives a time runs if it fits in: it is none of those that are asked for.
        """
        start = time.time()
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends like Ctrl-C: no process stays behind
        asked = [cell for cell in cells if self.ends(cell) is None]
        try:
            able = self._foretell(cells, asked)
            with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
                try:
                    self._follow([pool.submit(self._prepare)] if able else [])
                    self._follow([pool.submit(self._cell, cell) for cell in self.order(able)])
                except BaseException:  # Ctrl-C, or what a thread raised
                    self._stop()
                    raise
        except KeyboardInterrupt:
            pass  # the table says what ran
        finally:
            code = self._report(asked, self._ended, time.time() - start)
            for each in self._left:
                self._kept.end(*each)
        return code

    def _foretell(self, cells, asked):
        """Says which cells can run and how long that takes. Returns them."""
        found = find_pythons({cell.python for cell in cells})
        able = [cell for cell in asked if cell.python in found]
        missing = [cell for cell in asked if cell.python not in found]
        self.screen.say("Python %s found; %d of %d cells can run: %s" % (
            _joined(found) or "of these cells not", len(able), len(asked), _names(able) or "none"))
        if missing:
            self.screen.say("%d cannot, for there is no Python %s: %s" % (
                len(missing), _joined({cell.python for cell in missing}), _names(missing)))
        seconds = [self.usual(cell) for cell in able]
        if able and None not in seconds:
            self.screen.say("%d at a time, by what they took last: about %d min" % (
                self.options.jobs, max(max(seconds), sum(seconds) / self.options.jobs) // 60 + 1))
        if len(cells) > len(asked):
            self.screen.say("then those of %d others that fit in %s" % (len(cells) - len(asked), self.no_time))
        self._ended = [Result(cell, MISSING, {}, None, None, None, 0) for cell in missing]
        return [cell for cell in cells if cell.python in found]

    def _follow(self, tasks):
        """Shows what is running until some tasks have ended."""
        while tasks:
            done, tasks = concurrent.futures.wait(tasks, 1, concurrent.futures.FIRST_COMPLETED)
            for task in done:
                task.result()
            with self._lock:
                running = list(self._running)
            self.screen.show([(cell.name, self._log(cell.name), start, self.usual(cell)) for cell, start in running])

    def _log(self, name):
        return os.path.join(self.work, "logs", name + ".log")

    # Preparation

    def _prepare(self):
        """Installs tox and builds the project."""
        start = time.time()
        if not _works([_python(self._newest), "-c", "import build, tox"]):
            self._step("make an environment for tox", self._make_runner, self._newest)
        self._installer = environments.Installer(_python(self._newest), os.path.join(self.work, "uv.json"))
        dist = os.path.join(self.work, "dist")
        shutil.rmtree(dist, ignore_errors=True)
        # Build the wheel from the sdist, so that every cell misses a file that the sdist lacks.
        self._step("build " + self.name, lambda log: self._build(dist, log))
        # Run the cells with the pinned tox itself: the newest tox holds a lock while it waits for the pinned one.
        self._step("set tox up", lambda log: self._call(
            [_python(self._newest), "-m", "tox", "list", "--conf", self.config], log), self._pinned)
        packages = sorted(os.path.join(dist, name) for name in os.listdir(dist))
        self._packages = {"wheel" if name.endswith(".whl") else "sdist": name for name in packages}
        self._kept = environments.Kept(self.work, self.options.keep)
        self.screen.say("tox is ready, the wheel and the sdist are built: %d s" % (time.time() - start))

    def _make_runner(self, log):
        pip = [_python(self._newest), "-m", "pip"]
        try:
            self._call([sys.executable, "-m", "venv", "--clear", self._newest], log)
        except subprocess.CalledProcessError:  # Debian's Python without python3-venv cannot install pip
            self._call([sys.executable, "-m", "venv", "--clear", "--without-pip", self._newest], log)
            pip = [sys.executable, "-m", "pip", "--python", _python(self._newest)]
        self._call(pip + ["install", "build", "tox"], log)
        self._wait(pip + environments.GET_UV, log)  # without uv, pip installs

    def _build(self, dist, log):
        command = [_python(self._newest), "-m", "build", "--outdir", dist, self.root]
        variables = self._installer.variables
        if variables is None or self._wait(command + ["--installer", "uv"], log, **variables):
            self._call(command, log)

    def _step(self, what, step, makes=None):
        """Takes a step, or ends all without the folder that it `makes`."""
        path = self._log(what.replace(" ", "-"))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as log:
            try:
                step(log)
            except (OSError, subprocess.CalledProcessError) as error:
                if makes:
                    shutil.rmtree(makes, ignore_errors=True)
                if not self._stopped:
                    log.flush()
                    self.screen.write(self._tail(path))
                sys.exit("could not %s: %s" % (what, error))

    def _call(self, command, log):
        code = self._wait(command, log)
        if code:
            raise subprocess.CalledProcessError(code, command)

    def _wait(self, command, log, limit=None, **variables):
        """Returns the exit code of a command, which gets `variables` of the environment.

        Raises:
            subprocess.TimeoutExpired: after `limit` seconds. Its child processes are killed, too.
        """
        process = subprocess.Popen(command, cwd=self.root, stdin=subprocess.DEVNULL, stdout=log,
                                   stderr=subprocess.STDOUT, start_new_session=True,
                                   env=dict(os.environ, **variables))
        with self._lock:
            self._processes.add(process)
            if self._stopped:
                _kill(process)
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            _kill(process)
            raise
        finally:
            with self._lock:
                self._processes.discard(process)

    # The cells

    def _cell(self, cell):
        ends = self.ends(cell)
        if self._stopped or ends is not None and time.time() + RESERVE * self.usual(cell) > ends:
            return
        for name in os.listdir(self.results) if os.path.isdir(self.results) else ():
            if name.startswith(cell.name + "."):
                os.remove(os.path.join(self.results, name))  # left by an earlier run
        log = self._log(cell.name)
        with self._unpacks if cell.install == "sdist" else contextlib.nullcontext():
            self.screen.say("%-18s starts: %s" % (cell.name, cell.holds))
            start = time.time()
            with self._lock:
                self._running.append((cell, start))
            pins = environments.pins(self.config, cell)
            self._kept.begin(cell.name, pins)
            code = self._tox(cell, log, self._limit(cell, start))
        seconds, is_cut = time.time() - start, ends is not None and time.time() >= ends
        if code not in self.good_codes and (self._stopped or is_cut):
            result = Result(cell, STOPPED if self._stopped else NO_TIME, {}, None, None, None, seconds)
        else:
            result = self._result(cell, code in self.good_codes, log, seconds)
        with self._lock:
            self._running.remove((cell, start))
            self._ended.append(result)
            if result.status in (OK, FAILED):
                self.ended(result)
        self.screen.say("%-18s %s, %d s%s" % (cell.name, result.status, seconds, "" if result.passed is None else
                                              ": %d passed, %d failed, %d skipped" % result[3:6]))
        if result.status == FAILED:
            self.screen.write(self._tail(log))
        if self._stopped:
            self._left.append((cell.name, pins, log))  # the table comes first: a deletion can take a minute
        else:
            self._kept.end(cell.name, pins, log)

    def _limit(self, cell, start):
        """Returns the seconds that a cell may take, and why."""
        usual, ends = self.usual(cell), self.ends(cell)
        if self.options.limit:
            limit, why = self.options.limit * 60, "the --limit"
        elif usual:
            limit, why = 300 + 3 * usual, "5 and 3 times the %d s that it should take; --limit gives it others" % usual
        else:
            limit, why = 1200, "the limit of a cell that never ran; --limit gives it others"
        if ends is not None and ends - start < limit:
            limit, why = max(1, ends - start), self.no_time
        return limit, why

    def _tox(self, cell, log, limit):
        """Returns the exit code of a cell's tox; None if it took longer than `limit`, (seconds, why)."""
        command = [_python(self._pinned), "-m", "tox", "run", "--conf", self.config, "--colored", "no",
                   "--skip-missing-interpreters", "true", "-e", cell.name, "--installpkg",
                   self._packages[cell.install]]
        arguments = self.arguments(cell)
        if arguments:
            command += ["--"] + arguments
        with open(log, "w") as out:
            try:
                return self._wait(command, out, limit[0], EVERSTEP_PIP=self._installer.text)
            except subprocess.TimeoutExpired:
                out.write("\nstopped: it took more than %d minutes, %s\n" % (limit[0] // 60, limit[1]))
                return None

    def _stop(self):
        """Kills what is running. No signal disturbs the removal of what is half made."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        self.screen.say("stopping: what is half made is removed")
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

    def _tail(self, path):
        with open(path, errors="replace") as file:
            tail = collections.deque(file, 60)
        return "%s, its last lines:\n    %s" % (os.path.relpath(path, self.root), "    ".join(tail))

    # The report

    def _report(self, asked, results, seconds):
        cells = asked + [result.cell for result in results if result.cell not in asked]  # these fitted in
        results = sorted(results, key=lambda result: cells.index(result.cell))
        missing, late, failed, stopped = ([result.cell for result in results if result.status == status]
                                          for status in (MISSING, NO_TIME, FAILED, STOPPED))
        shown = [result.cell for result in results]
        never = [cell for cell in cells if cell not in shown]
        lines = [""] + list(_table(result for result in results if result.status != MISSING))
        if missing:
            pythons = {cell.python for cell in missing}
            lines.append("\nNot run: %s. No Python %s on PATH, in pyenv or in uv; to get it: pyenv install %s"
                         % (_names(missing), _joined(pythons), _joined(pythons, " ")))
        if late:
            lines.append("\nNot finished in %s: %s." % (self.no_time, _names(late)))
        if stopped or never:
            lines.append("\nStopped: %s. Not run: %s." % (_names(stopped) or "none", _names(never) or "none"))
        if failed:
            lines.append("\nFailed: %s. What each said is in .tox/logs/." % _names(failed))
            if "PIP_FIND_LINKS" not in os.environ and not all(result.versions for result in results):
                lines.append("Where pip finds no everstep, say where its wheel is: PIP_FIND_LINKS=FOLDER.")
        ran = len(results) - len(missing) - len(late) - len(stopped)
        lines.append("\nran %d of %d cells in %d min %d s" % (
            ran, len(cells), seconds // 60, seconds % 60))
        lines.append("%d passed, %d failed, %d skipped" % tuple(sum(result[place] or 0 for result in results)
                                                                for place in (3, 4, 5)))
        self.screen.write("\n".join(lines))
        return 1 if failed or self._stopped or (self.options.strict and missing) or not ran else 0


def _table(results):
    """Yields the lines of the table."""
    rows = ["cell python framework keras passed failed skipped seconds status".split()]
    for result in results:
        framework = [" ".join(item) for item in result.versions.items() if item[0] in ("tensorflow", "jax", "torch")]
        counts = ["-" if count is None else str(count) for count in result[3:6]]
        rows.append([result.cell.name, result.versions.get("python", result.cell.python), ", ".join(framework) or "-",
                     result.versions.get("keras", "-")] + counts + ["%d" % result.seconds, result.status])
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows if rows[1:] else ():
        yield "  ".join(text.rjust(width) if 4 <= place <= 7 else text.ljust(width)
                        for place, (text, width) in enumerate(zip(row, widths))).rstrip()


def find_pythons(versions):
    """Returns those of some versions, such as "3.7", that tox finds: on PATH, in pyenv and in uv."""
    if os.name == "nt":
        return set(versions)  # tox asks the registry, too
    runpy.run_path(os.path.join(HERE, "toxfile.py"))  # puts on PATH what it puts there for tox
    names = ["python", "python2", "python3"] + ["python" + version for version in versions]
    paths = {shutil.which(name, path=folder) for folder in os.environ["PATH"].split(os.pathsep) for name in names}
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = set(pool.map(_version, {os.path.realpath(path) for path in paths | {sys.executable} if path}))
    return found.intersection(versions)


def _version(path):
    """Returns the version of a Python; None if it does not run, as pyenv's shims for all versions but one do."""
    code = "import sys; sys.stdout.write('%d.%d' % sys.version_info[:2])"
    try:
        return subprocess.check_output([path, "-ESc", code], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                       timeout=30).decode()
    except (OSError, subprocess.SubprocessError):
        return None


def _names(cells):
    return ", ".join(cell.name for cell in cells)


def _joined(versions, by=", "):
    """Returns versions as text, the oldest first."""
    return by.join(sorted(versions, key=lambda version: [int(number) for number in version.split(".")]))


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
