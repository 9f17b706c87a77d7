"""Gives damaged files to every reader, and kills every writer. A tool: tests/test_fuzz.py runs a little of it.

    PYTHONPATH=.dev python tests/fuzz.py --seed 1 --seconds 60                  # all formats that can be read here
    PYTHONPATH=.dev python tests/fuzz.py --seed 1 --files 2000 --format h5 --format keras --keep /tmp/kept
    PYTHONPATH=.dev python tests/fuzz.py --seed 1 --format h5 --number 123      # one file again, with its traceback
    PYTHONPATH=.dev python tests/fuzz.py some.h5                                # a file of your own
    PYTHONPATH=.dev python tests/fuzz.py --kill                                 # kill -9 and full disks

mutations.py makes the files. Worker processes read them, each file within limits of time and memory; a worker that
hangs or crashes is replaced, and its file is kept. The exit code is 1 if a reader raised what is not everstep's,
returned wrong numbers, took too much memory, or hung or crashed outside of HDF5 and TensorFlow.

When a fault is mended, its file goes to tests/files/faults, which tests/test_fuzz.py reads.
"""
from __future__ import absolute_import, division, print_function

import argparse
import contextlib
import ctypes
import io
import json
import multiprocessing
import os
import random
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter, OrderedDict

import numpy as np

import everstep
import mutations
from crafted_files import loaded_number, optional, read_bytes, tf1, write_bytes, writers
from everstep import cli
from everstep.errors import EverstepError, StateError
from everstep.optimizers.contract import Definition

faulthandler = optional("faulthandler")  # Python 2 does not have this module
MEGABYTE = 1 << 20
SCRATCH = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # because every saved file waits for its disk
LIMIT_SECONDS, LIMIT_BYTES = 20.0, 512 * MEGABYTE
GOOD, HARMLESS = ("read", "refused"), ("read", "refused", "crash in library", "hang in library")
KINDS = ("read", "refused", "foreign", "wrong", "memory", "hang", "crash in ours", "crash in library",
         "hang in library")


# What a worker does with a file


class Wrong(Exception):
    """A reader or writer did what it must not do."""


def same(first, second):
    """Returns True if two {name: array} hold the same bytes."""
    return list(first) == list(second) and all(
        first[name].dtype == second[name].dtype and first[name].shape == second[name].shape
        and first[name].tobytes() == second[name].tobytes() for name in first)


def command(*arguments):
    """Runs the command line. Only an error code may tell of a damaged file."""
    kept, text = (sys.stdout, sys.stderr), io.StringIO if str is not bytes else io.BytesIO
    sys.stdout, sys.stderr = text(), text()
    try:
        code, output = cli.main(list(arguments)), sys.stdout.getvalue()
    finally:
        sys.stdout, sys.stderr = kept
    if code not in (0, 1, 2):
        raise Wrong("{} returned {!r}".format(arguments, code))
    if "--json" in arguments and code == 0:
        json.loads(output)


def restored(state, arrays):
    """Restores a state into a live optimizer of NumPy, which then steps. A refusal must change nothing."""
    definition = Definition.from_config(state.definition)
    optimizer = definition.bind(np)
    weights = OrderedDict((name, np.full(next(iter(slots.values())).shape if slots else (2,), 0.5, np.float32))
                          for name, slots in state.slots.items())
    for name, handle in state.variables.items():
        weights[name] = np.full(handle.shape, 0.5, np.float32)
    try:
        everstep.restore(optimizer, state, weights)
    except EverstepError:
        if any(np.any(weight != 0.5) for weight in weights.values()):
            raise Wrong("a refused state changed the variables")
        raise
    pairs = [(np.ones_like(weight), weight) for weight in weights.values()]
    if pairs:
        optimizer.apply_gradients(pairs)


def saved(state, arrays, path):
    """Saves a state, and compares what is read then."""
    state.save(path)
    again, read = mutations.state_of(path, {})
    if set(arrays) == set(read):  # bfloat16 and big-endian numbers are saved in another form
        arrays = OrderedDict((name, array.astype(read[name].dtype)) for name, array in arrays.items())
    if not same(arrays, read) or again.updates != state.updates:
        raise Wrong("the state that was saved is not the one that was read")


def used_as_template(mutant, format, path):
    """Writes the whole file's state into a copy of the damaged one."""
    before, state = read_bytes(mutant.path), everstep.read_checkpoint(mutant.source, **mutant.how)
    try:
        everstep.write_checkpoint(state, path, format, template=mutant.path, learning_rate=0.1)
        mutations.state_of(path, mutant.how)
    finally:
        if read_bytes(mutant.path) != before:
            raise Wrong("the template was changed")


def warm_started(path, arrays):
    """Prepares a graph to start from a checkpoint."""
    with tf1.Graph().as_default():
        for name, array in arrays.items():
            if name[1] is None and array.ndim:
                tf1.get_variable(name[0].replace(" ", "_"), array.shape)
        tf1.get_variable("new", (2,))
        everstep.warm_start(path)


TEMPLATES = {"h5": "keras-h5", "weights.h5": "keras-weights-h5", "keras": "keras"}


def uses(format, mutant, folder, results, turn=None):
    """Yields (name, function) of all that is done with a file; in turn `turn`, only a third of what takes long.

    `results` collects the state that was read.
    """
    turns = (turn % 3,) if turn is not None else (0, 1, 2)

    def read():
        try:
            results["state"], results["arrays"] = mutations.state_of(mutant.path, mutant.how)
        finally:
            if os.path.exists(mutations.canary(os.path.dirname(mutant.path))):
                raise Wrong("a pickle in the file was run")
        if format == "none":
            raise Wrong("a file of no known format was read")
        if mutant.checked and mutant.source:
            state, arrays = mutations.state_of(mutant.source, mutant.how)
            if not same(arrays, results["arrays"]) or results["state"].updates != state.updates:
                raise Wrong("numbers that have checksums changed")

    yield "read", read
    yield "inspect", lambda: command("inspect", mutant.path, "--json")
    if 0 in turns:
        yield "inspect as text", lambda: command(
            "inspect", mutant.path, *(["--optimizer", mutant.how["optimizer"]] if "optimizer" in mutant.how else []))
    yield "verify", lambda: command("verify", mutant.path)
    if format in TEMPLATES and mutant.source and 1 in turns:
        yield "template", lambda: used_as_template(mutant, TEMPLATES[format], os.path.join(folder, "from_template"))
    state, arrays = results.get("state"), results.get("arrays")
    if state is not None:
        yield "save", lambda: saved(state, arrays, os.path.join(folder, "saved.npz"))
        yield "tf-saver", lambda: everstep.write_checkpoint(
            state, os.path.join(folder, "saved.ckpt"), "tf-saver", learning_rate=0.1, dry_run=True)
    if state is not None and state.definition is not None:
        yield "restore", lambda: restored(state, arrays)
    if state is not None and 2 in turns and format in ("tf-saver", "tf-v1", "folder"):
        yield "warm_start", lambda: warm_started(mutant.path, arrays)


def examine(format, mutant, folder, report=lambda name: None, turn=None):
    """Uses a file in every way, or in those of a turn. Returns (kind, what went wrong)."""
    kind, problem, results = None, "", {}
    for name, use in uses(format, mutant, folder, results, turn):
        report(name)
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                use()
            kind = kind or "read"
        except EverstepError as error:
            if "MemoryError" in str(error) or "allocate" in str(error):
                return "memory", "{}: {}".format(name, error)
            kind = kind or "refused"
        except Exception as error:
            if isinstance(error, Wrong):
                return "wrong", "{}: {}".format(name, error)
            return "foreign", "{}: {}".format(name, traceback.format_exc())
    return kind, problem


# Workers


def memory_status(name):
    """Returns a size in bytes from /proc/self/status; 0 where there is none."""
    try:
        with io.open("/proc/self/status") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))
    except (IOError, OSError, StopIteration):
        return 0


def forget_peak():
    try:
        with io.open("/proc/self/clear_refs", "w") as file:
            file.write(u"5")
    except (IOError, OSError):
        pass


def give_back_memory():
    """Returns what malloc keeps of freed memory to the system: a file that takes it would not be seen to take any."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only glibc has it
    if trim:
        trim(0)


class Worker(object):
    """A forked process that makes and reads files, one for each task that it gets."""

    def __init__(self, folder, seed):
        self.folder, self.task, self.stage, self.since = folder, None, None, None
        self.log = os.path.join(folder, "log")
        if not os.path.isdir(folder):
            os.mkdir(folder)
        self.pipe, theirs = multiprocessing.Pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python 3.12 and JAX warn of any fork of a process with threads
            self.process = os.fork()
        if not self.process:
            try:
                self.pipe.close()
                self._serve(seed, theirs)
            finally:
                os._exit(0)
        theirs.close()

    def _serve(self, seed, pipe):
        log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for number in (1, 2):
            os.dup2(log, number)
        sys.stdout = sys.stderr = os.fdopen(log, "w")
        if faulthandler is not None:
            faulthandler.enable(sys.stderr)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        give_back_memory()
        size = memory_status("VmSize:")
        if size:
            resource.setrlimit(resource.RLIMIT_AS, (size + 4 * LIMIT_BYTES,) * 2)
        for format, number in iter(pipe.recv, None):
            forget_peak()
            before = memory_status("VmRSS:")
            place = os.path.join(self.folder, "files")
            shutil.rmtree(place, ignore_errors=True)
            os.mkdir(place)
            pipe.send({"stage": "make"})
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # zipfile warns of equal names
                    mutant = mutations.mutate(format, seed, number, place)
                write_note(place, mutant, seed, format, number)
                kind, problem = examine(format, mutant, place, lambda name: pipe.send({"stage": name}), number)
            except Exception:
                kind, problem = "foreign", "make: " + traceback.format_exc()
            peak = max(0, memory_status("VmHWM:") - before)
            if kind in GOOD and peak > LIMIT_BYTES:
                kind, problem = "memory", "took {} MB".format(peak // MEGABYTE)
            pipe.send({"kind": kind, "problem": problem, "peak": peak})

    def give(self, format, number):
        self.task, self.stage, self.since = (format, number), "make", (time.time(), self._cpu_seconds())
        self.pipe.send((format, number))

    def answer(self):
        """Returns the answer to the task, or None if it is not there yet."""
        try:
            while self.pipe.poll():
                answer = self.pipe.recv()
                if "kind" in answer:
                    return answer
                self.stage = answer["stage"]
        except (EOFError, IOError, OSError):
            return self._crash()
        return None

    def _read_log(self):
        """Returns (the log, the first frame in it, which is where the process was)."""
        text = read_bytes(self.log).decode("utf-8", "replace")
        return text, next((line for line in text.splitlines() if line.startswith("  File ")), "")

    def _crash(self):
        """Returns the answer for a process that ended."""
        _, status = os.waitpid(self.process, 0)
        self.process = None
        text, frame = self._read_log()
        library = mutations.MUTATORS[self.task[0]][1]
        outside = ("json", "numpy", "npz", "restore", "arrays.py", "cli.py")
        ours = library is None or self.stage == "make" or any(word in frame for word in outside)
        return {"kind": "crash in ours" if ours else "crash in library", "peak": 0,
                "problem": "{}: status {}\n{}".format(self.stage, status, text[-3000:])}

    def overdue(self, limit):
        """Returns the answer for a process that takes too long, and kills it; None if it does not.

        What counts is the time of the processor, which other programs cannot use up; or 20 times as long on the clock.
        """
        clock, processor = time.time() - self.since[0], self._cpu_seconds() - self.since[1]
        if processor < limit and clock < 20 * limit:
            return None
        os.kill(self.process, signal.SIGABRT)  # faulthandler then writes where it is
        time.sleep(0.5)
        self.end()
        text, frame = self._read_log()
        inside = any(library in frame for library in ("h5py", "tensorflow"))
        return {"kind": "hang in library" if inside else "hang", "peak": 0, "problem": "{}: {:.0f} s\n{}".format(
            self.stage, processor, text[-3000:])}

    def _cpu_seconds(self):
        """Returns the time that the process has computed; 0 where there is no /proc."""
        try:
            with io.open("/proc/{}/stat".format(self.process)) as file:
                ticks = file.read().rpartition(")")[2].split()[11:13]
        except (IOError, OSError):
            return 0.0
        return sum(map(int, ticks)) / float(os.sysconf("SC_CLK_TCK"))

    def end(self):
        if self.process is not None:
            os.kill(self.process, signal.SIGKILL)
            os.waitpid(self.process, 0)
            self.process = None
        self.pipe.close()


def write_note(place, mutant, seed, format, number):
    with io.open(os.path.join(place, "note.txt"), "w", encoding="utf-8") as file:
        file.write(u"--seed {} --format {} --number {}\nfrom {} {!r}\n{}\n".format(
            seed, format, number, mutant.source and os.path.relpath(mutant.source, os.path.dirname(mutations.STATES)),
            mutant.how, mutant.what))


class Report(object):
    """Counts what became of the files, and keeps those that matter."""

    def __init__(self, keep):
        self.counts, self.peaks, self.seconds, self.problems, self.keep = {}, Counter(), Counter(), [], keep

    def add(self, format, number, answer, folder, seconds):
        self.counts.setdefault(format, Counter())[answer["kind"]] += 1
        self.seconds[format] += seconds
        self.peaks[format] = max(self.peaks[format], answer["peak"])
        if answer["kind"] in GOOD:
            return
        note = os.path.join(folder, "files", "note.txt")
        what = read_bytes(note).decode("utf-8") if os.path.exists(note) else ""
        self.problems.append((answer["kind"], format, number, what + answer["problem"]))
        if self.keep:
            kept = os.path.join(self.keep, "{}-{}-{}".format(answer["kind"].replace(" ", "-"), format, number))
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(os.path.join(folder, "files"), kept)
            write_bytes(os.path.join(kept, "problem.txt"), answer["problem"].encode("utf-8"))

    def failures(self):
        return [problem for problem in self.problems if problem[0] not in HARMLESS]

    def total(self):
        return sum(sum(counts.values()) for counts in self.counts.values())

    def print(self):
        rows = [("format", "files") + KINDS + ("peak MB", "seconds")]
        for format, counts in self.counts.items():
            rows.append((format, sum(counts.values())) + tuple(counts[kind] for kind in KINDS)
                        + (self.peaks[format] // MEGABYTE, int(self.seconds[format])))
        for row in rows:
            print("| {} |".format(" | ".join(map(str, row))))
            if row is rows[0]:
                print("|" + "---|" * len(row))
        for problem in self.problems[:50]:
            print(u"\n{} {} {}\n{}".format(*problem).encode("ascii", "backslashreplace").decode("ascii"))


def run(formats, seed, seconds=None, files=None, workers=1, limit=LIMIT_SECONDS, keep=None, tell=lambda report: None):
    """Makes and reads files until the time is over, or until there were so many files of each format.

    Returns:
        A `Report`.
    """
    folder, report, start, number = tempfile.mkdtemp(prefix="fuzz-", dir=SCRATCH), Report(keep), time.time(), 0
    total = files * len(formats) if files else None
    pool = []
    try:
        pool = [Worker(os.path.join(folder, str(place)), seed) for place in range(workers)]
        while True:
            done = number >= total if total is not None else time.time() - start > seconds
            for worker in pool:
                if worker.task is None and not done:
                    worker.give(formats[number % len(formats)], number // len(formats))
                    number += 1
                    done = total is not None and number >= total
            busy = [worker for worker in pool if worker.task is not None]
            if not busy:
                return report
            try:
                ready = select.select([worker.pipe for worker in busy], [], [], 0.5)[0]
            except select.error:  # a signal, on Python 2
                continue
            for worker in busy:
                answer = worker.answer() if worker.pipe in ready else worker.overdue(limit)
                if answer is None:
                    continue
                report.add(worker.task[0], worker.task[1], answer, worker.folder, time.time() - worker.since[0])
                tell(report)
                worker.task = None
                if worker.process is None:
                    if not answer["kind"].startswith("hang"):
                        worker.end()
                    pool[pool.index(worker)] = Worker(worker.folder, seed)
    except KeyboardInterrupt:
        return report
    finally:
        for worker in pool:
            worker.end()
        shutil.rmtree(folder, ignore_errors=True)


def progress(report):
    """Prints how far a run is, now and then."""
    if report.total() % 100 == 0:
        print("{} files, {} faults".format(report.total(), len(report.failures())), file=sys.stderr)


# Killing writers

TRACED = ("everstep", "compat", "shutil.py", "zipfile")


@contextlib.contextmanager
def lines_traced(action):
    """Calls action(number) before each line of everstep, shutil and zipfile."""
    count = [0]

    def trace(frame, event, argument):
        name = frame.f_code.co_filename
        if event == "call":
            return trace if any(part in name for part in TRACED) else None
        if event == "line":
            count[0] += 1
            action(count[0])
        return trace

    sys.settrace(trace)
    try:
        yield count
    finally:
        sys.settrace(None)


def in_child(work, seconds=None):
    """Runs a function in a forked process, which is killed after some seconds. Returns its status."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if not child:
        code = 1
        try:
            for number in (1, 2):
                os.dup2(os.open(os.devnull, os.O_WRONLY), number)
            code = work() or 0
        finally:
            os._exit(code)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def check_after(name, path, save, problems, why, allowed):
    """Compares a file with the old one and the new one, after its writer ended; then writes it once more."""
    folder = os.path.dirname(path)
    try:
        number = loaded_number(name, path)
    except StateError as error:
        number = "not to be read: {}".format(error)
    if number not in allowed:
        problems.append("{}, {}: the file is {!r}; it should be one of {}".format(name, why, number, allowed))
    if name == "tf-saver" and number is not None:
        return remove_all(folder)
    if in_child(lambda: save(path, 3)):
        problems.append("{}, {}: the next write failed".format(name, why))
    names = sorted(os.listdir(folder))
    expected = [os.path.basename(path)] if name != "tf-saver" else [
        os.path.basename(path) + end for end in (".data-00000-of-00001", ".index")]
    if loaded_number(name, path) != 3 or names != expected:
        problems.append("{}, {}: after the next write there are {}".format(name, why, names))
        remove_all(folder)
    if name == "tf-saver":
        remove_all(folder)


def remove_all(folder):
    shutil.rmtree(folder)
    os.mkdir(folder)


def kill_writers(names=None, moments=None, timed=0, seed=1):
    """Kills every writer at some moments, and lets it meet a full disk.

    Args:
        names: the writers; default: all that work here.
        moments: at how many lines of code to kill each; default: at every line.
        timed: how many times to kill each after a random time, also inside of a library.

    Returns:
        (rows [name, kills at lines, timed kills, full disks], [problem]).
    """
    root, rows, problems, chance = tempfile.mkdtemp(prefix="kill-", dir=SCRATCH), [], [], random.Random(seed)
    try:
        for name, path, save in writers(root):
            if names is not None and name not in names:
                continue
            folder = os.path.join(root, name)
            os.mkdir(folder)
            path = os.path.join(folder, os.path.basename(path))
            before = None if name == "tf-saver" else 1

            count_file = os.path.join(root, "count")

            def count_lines():
                with lines_traced(lambda number: None) as count:
                    save(path, 1)  # noqa: B023
                write_bytes(count_file, str(count[0]).encode("ascii"))  # noqa: B023

            start = time.time()
            assert not in_child(count_lines), name
            seconds, lines = time.time() - start, int(read_bytes(count_file))
            size = max(os.path.getsize(os.path.join(folder, each)) for each in os.listdir(folder))
            old = read_bytes(path) if before else None

            def prepare(path=path, old=old):
                write_bytes(path, old) if old is not None else None

            remove_all(folder)
            places = range(1, lines + 1) if moments is None else sorted(chance.sample(range(1, lines + 1), moments))
            for place in places:
                prepare()

                def killed(place=place):
                    with lines_traced(lambda at: os.kill(os.getpid(), signal.SIGKILL) if at == place else None):
                        save(path, 2)  # noqa: B023

                in_child(killed)
                check_after(name, path, save, problems, "killed at line {}".format(place), (before, 2))
            for _ in range(timed):
                prepare()
                wait = chance.uniform(0, seconds)
                in_child(lambda: save(path, 2), wait)  # noqa: B023
                check_after(name, path, save, problems, "killed after {:.4f} s".format(wait), (before, 2))
            limits = sorted({0, 1, 100, size // 4, size // 2, size - 1} | {
                chance.randrange(size) for _ in range(3 if moments else 20)})
            limits = limits[:: 3 if moments and not timed else 1]
            for limit in limits:
                prepare()
                full_disk(name, path, save, limit, before, problems)
            rows.append([name, len(places), timed, len(limits)])
            shutil.rmtree(folder)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return rows, problems


def full_disk(name, path, save, limit, before, problems):
    """Writes with a bound on the size of files, in place of a full disk."""
    def write():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        try:
            save(path, 2)
        except StateError as error:
            return 10 if "cannot be written" in str(error) and "damaged" not in str(error) else 11
        except Exception:
            return 12

    status, why = in_child(write), "a disk with {} bytes".format(limit)
    left = [each for each in os.listdir(os.path.dirname(path)) if each != os.path.basename(path)]
    if status >> 8 != 10 or status & 127 or left:
        problems.append("{}, {}: status {} (10: a StateError that says so); left were {}".format(
            name, why, status >> 8 if status >> 8 else "signal %d" % status, left))
    check_after(name, path, save, problems, why, (before,))


# The command line


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", metavar="FILE", help="read these files instead of making some")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--files", type=int, help="this many of each format, however long it takes")
    parser.add_argument("--format", action="append", help=", ".join(mutations.MUTATORS) + "; default: all that work")
    parser.add_argument("--number", type=int, help="make and read one file, the one of this number")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--limit", type=float, default=LIMIT_SECONDS, help="seconds of the processor for a file")
    parser.add_argument("--keep", help="a folder for the files that make trouble")
    parser.add_argument("--kill", action="store_true", help="kill writers, at every line or at some, and fill the disk")
    parser.add_argument("--moments", type=int, help="with --kill: at this many lines only")
    parser.add_argument("--writer", action="append", help="with --kill: one writer, such as npz or tf-saver")
    options = parser.parse_args()
    if options.kill:
        rows, problems = kill_writers(options.writer, options.moments, timed=100, seed=options.seed)
        for row in rows:
            print("{:18} killed at {} lines, {} times at random, {} full disks".format(*row))
        print("\n".join(problems) or "after each, the old or the new file was whole, and the next write left nothing")
        return 1 if problems else 0
    formats = options.format or mutations.formats()
    if options.keep and not os.path.isdir(options.keep):
        os.makedirs(options.keep)
    if options.paths or options.number is not None:
        folder = options.keep or tempfile.mkdtemp(prefix="fuzz-", dir=SCRATCH)
        mutants = [mutations.Mutant(path, {}, None, "", False) for path in options.paths] or [
            mutations.mutate(formats[0], options.seed, options.number, folder)]
        for mutant in mutants:
            kind, problem = examine(formats[0], mutant, folder, lambda name: print(name, end=", "))
            print("\n{}\nfrom {} {!r}\n{}\n{}\n{}".format(
                mutant.path, mutant.source, mutant.how, mutant.what, kind, problem))
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # both signals print what was found so far
    signal.signal(signal.SIGINT, signal.default_int_handler)
    report = run(formats, options.seed, options.seconds, options.files, options.workers, options.limit, options.keep,
                 progress)
    report.print()
    return 1 if report.failures() else 0


if __name__ == "__main__":
    sys.exit(main())
