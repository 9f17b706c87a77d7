"""Changes one operator, constant or condition of shipped code at a time, and runs the tests that should see it.

    python3 tests/mutate.py --area engine --count 20 --seed 1

A change that no test sees is a hole in the tests, or makes no difference: tests/mutants.ini lists those of the second
kind, with the reason. Tests that run a line are found once for each environment, by coverage.py; of those, the fastest
run first, as long as --seconds allow. Needs the environments of the cells that AREAS names
(`python3 matrix/run.py --keep --cell NAME`), with `coverage` installed there, and Python 3.9 or newer for itself.
"""
import argparse
import ast
import collections
import concurrent.futures
import configparser
import hashlib
import itertools
import json
import os
import pathlib
import queue
import random
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = ROOT / ".tox" / "mutate"
EQUIVALENT = ROOT / "tests" / "mutants.ini"

# {area: (patterns of files, the cell whose tests should see a change)}. NumPy comes first where it can see anything.
AREAS = {
    "contract": (["optimizers/contract/*.py"], ["py313-numpy"]),
    "rules": (["optimizers/*.py"], ["py313-numpy"]),
    "wrappers": (["optimizers/wrappers/*.py"], ["py313-numpy", "py39-tf2.10"]),
    "schedules": (["optimizers/contract/schedules.py", "optimizers/contract/schedule*.py"], ["py313-numpy"]),
    "engine": (["compat/engine/*.py"], ["py313-numpy", "py37-tf1.15-k2.3", "py311-tf2.15"]),
    "backends": (["compat/backends/*.py"], ["py313-numpy", "py37-tf1.15-k2.3", "py311-tf2.15", "py313-k3jax"]),
    "state": (["compat/state/*.py", "api/*.py"], ["py313-numpy", "py311-tf2.15"]),
    "stock": (["compat/stock/*.py"], ["py37-tf1.15-k2.3", "py311-tf2.15"]),
    "arrays": (["compat/targets/arrays.py", "compat/targets/base.py", "compat/targets/[chs]*.py"], ["py313-numpy"]),
    "tf_train": (["compat/targets/tf_train.py", "compat/targets/global_step.py", "compat/targets/partitioned.py"],
                 ["py37-tf1.15-k2.3"]),
    "get_updates": (["compat/targets/get_updates.py"], ["py37-tf1.15-k2.3"]),
    "optimizer_v2": (["compat/targets/optimizer_v2.py", "compat/targets/since_v2.py"], ["py39-tf2.10"]),
    "update_step": (["compat/targets/update_step.py", "compat/targets/new_style.py"], ["py311-tf2.15"]),
    "keras3": (["compat/targets/keras3.py", "compat/targets/new_style.py"], ["py313-k3jax", "py312-tf2.16"]),
}
ENVIRONMENT = {"py313-k3jax": {"KERAS_BACKEND": "jax"}}
SWAPS = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"), ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"), ast.Pow: ("**", "*"), ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"), ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"), ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}

Mutant = collections.namedtuple("Mutant", "path line start end old new")
Outcome = collections.namedtuple("Outcome", "mutant status cell seen")
DIED, LIVED, UNSEEN, SAME = "died", "lived", "no test runs the line", "equivalent"


# Mutants

def mutants_of(path):
    """Returns the mutants of a file: one for each operator, number, flag and condition of its code."""
    text = (ROOT / path).read_text()
    starts = [0] + list(itertools.accumulate(len(line) for line in text.splitlines(True)))
    tree, found = ast.parse(text), []

    def place(line, column):
        return starts[line - 1] + column  # the sources are ASCII

    def add(start, end, new):
        found.append(Mutant(path, text.count("\n", 0, start) + 1, start, end, text[start:end], new))

    def between(left, right, operator):
        if type(operator) not in SWAPS:
            return
        old, new = SWAPS[type(operator)]
        start, end = place(left.end_lineno, left.end_col_offset), place(right.lineno, right.col_offset)
        match = re.search(r"\b%s\b" % old.replace(" ", r"\s+") if old[0].isalpha() else re.escape(old), text[start:end])
        if match:
            add(start + match.start(), start + match.end(), new)

    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp):
            between(node.left, node.right, node.op)
        elif isinstance(node, ast.Compare):
            for left, right, operator in zip([node.left] + node.comparators, node.comparators, node.ops):
                between(left, right, operator)
        elif isinstance(node, ast.BoolOp):
            for left, right in zip(node.values, node.values[1:]):
                between(left, right, node.op)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
            start = place(node.lineno, node.col_offset)
            add(start, place(node.operand.lineno, node.operand.col_offset), "")
        elif isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
            start, end = place(node.lineno, node.col_offset), place(node.end_lineno, node.end_col_offset)
            value = node.value
            new = not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else value * 2 or 1.0
            add(start, end, repr(new))
        others = (ast.Compare, ast.BoolOp, ast.UnaryOp)  # they have operators of their own
        if isinstance(node, (ast.If, ast.IfExp, ast.While)) and not isinstance(node.test, others):
            start, end = (place(node.test.lineno, node.test.col_offset),
                          place(node.test.end_lineno, node.test.end_col_offset))
            add(start, end, "(not %s)" % text[start:end])
    return [mutant for mutant in found if _compiles(text, mutant)]


def changed(text, mutant):
    return text[:mutant.start] + mutant.new + text[mutant.end:]


def _compiles(text, mutant):
    try:
        ast.parse(changed(text, mutant))
    except SyntaxError:
        return False
    return True


def source_line(mutant):
    return (ROOT / mutant.path).read_text().splitlines()[mutant.line - 1].strip()


def equivalents():
    """Returns {(path, source line, old, new): reason}."""
    parser = configparser.RawConfigParser(delimiters=("=",), comment_prefixes=("#",))
    parser.read(EQUIVALENT)
    return {(parser[name]["path"], parser[name]["line"], parser[name]["old"], parser[name]["new"]):
            parser[name]["reason"] for name in parser.sections()}


# Tests

class Cell:
    """The environment of a cell, and which of its tests run which line."""

    def __init__(self, name, folder):
        self.name, self.python = name, str(folder / name / "bin" / "python")
        if not os.path.exists(self.python):
            sys.exit("there is no environment %s: python3 matrix/run.py --keep --cell %s" % (folder / name, name))
        self.lines, self.seconds = self._map()

    def run(self, package, arguments, timeout, **more):
        """Returns the exit code of pytest with a copy of the package; None after the time."""
        env = dict(os.environ, PYTHONPATH=str(package), PYTHONDONTWRITEBYTECODE="1", CUDA_VISIBLE_DEVICES="",
                   TF_CPP_MIN_LOG_LEVEL="3", **ENVIRONMENT.get(self.name, {}))
        env.pop("EVERSTEP_CELL", None)
        command = [self.python] + arguments
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, start_new_session=True, **more)
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
            return None

    def _map(self):
        """Returns ({file: {line: {test}}}, {test: seconds}), measured once for each state of the files."""
        digest = hashlib.sha256()
        for path in sorted(ROOT.glob("tests/*.py")) + sorted((ROOT / ".dev" / "everstep").rglob("*.py")):
            digest.update(path.read_bytes())
        kept = WORK / ("%s-%s.json" % (self.name, digest.hexdigest()[:12]))
        if not kept.exists():
            WORK.mkdir(parents=True, exist_ok=True)
            print("%s: which test runs which line; this takes some minutes, once" % self.name, flush=True)
            data, settings, junit = (WORK / (self.name + ending) for ending in (".coverage", ".ini", ".xml"))
            settings.write_text("[run]\ndynamic_context = test_function\ndata_file = %s\ninclude = %s/*\n" % (
                data, "/*,".join(str(ROOT / room) for room in ("api", "compat", "optimizers"))))
            self.run(ROOT / ".dev", ["-m", "coverage", "run", "--rcfile", str(settings), "-m", "pytest", "-q", "-p",
                                     "no:cacheprovider", "--junitxml", str(junit), "tests"], 3600)
            kept.write_text(subprocess.run([self.python, "-c", READ_COVERAGE, str(data), str(junit), str(ROOT)],
                                           check=True, stdout=subprocess.PIPE, text=True).stdout)
        loaded = json.loads(kept.read_text())
        return loaded["lines"], loaded["seconds"]

    def tests_of(self, mutant, seconds):
        """Returns the tests that run a line, the fastest first, that together take no more than some seconds.

        A line that runs on import is seen by the tests that run any other line of its file.
        """
        lines = self.lines.get(mutant.path, {})
        found = lines.get(str(mutant.line), ())
        if found == []:
            found = set().union(*lines.values())
        chosen, total = [], 0.0
        for test in sorted(found, key=self._time):
            total += self._time(test)
            if chosen and total > seconds:
                break
            chosen.append(test)
        return chosen, total

    def _time(self, test):
        return self.seconds.get(test, 0.1)


READ_COVERAGE = """
import collections, json, os, sys, xml.etree.ElementTree
import coverage
data = coverage.CoverageData(sys.argv[1])
data.read()
lines = {}
for path in data.measured_files():
    found = {}
    for line, contexts in data.contexts_by_lineno(path).items():
        names = sorted({each.rsplit(".", 1)[-1] for each in contexts if each.rsplit(".", 1)[-1].startswith("test")})
        found[line] = names
    lines[os.path.relpath(os.path.realpath(path), sys.argv[3])] = found
seconds = collections.Counter()
for case in xml.etree.ElementTree.parse(sys.argv[2]).getroot().iter("testcase"):
    seconds[case.get("name").split("[")[0]] += float(case.get("time"))
print(json.dumps({"lines": lines, "seconds": seconds}))
"""


# Runs

def judge(mutant, cells, package, seconds, known):
    """Runs the tests that should see a mutant. Returns an Outcome."""
    text = (ROOT / mutant.path).read_text()
    room, _, rest = mutant.path.partition("/")
    file = package / "everstep" / (rest if room == "api" else mutant.path)
    file.write_text(changed(text, mutant))
    seen = None
    try:
        for cell in cells:
            tests, total = cell.tests_of(mutant, seconds)
            if not tests:
                continue
            seen = cell.name
            code = cell.run(package, ["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "tests", "-k",
                                      " or ".join(tests)], 60 + 4 * total)
            if code != 0:
                return Outcome(mutant, DIED, cell.name, len(tests))
    finally:
        file.write_text(text)
    if (mutant.path, source_line(mutant), mutant.old, mutant.new) in known:
        return Outcome(mutant, SAME, seen, 0)
    return Outcome(mutant, LIVED if seen else UNSEEN, seen, 0)


def copy_of_package(number):
    folder = WORK / ("package-%d" % number)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / ".dev" / "everstep", folder / "everstep", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def sample(area, count, seed):
    """Returns `count` mutants of an area, of other places with another seed."""
    paths = sorted({str(path.relative_to(ROOT)) for pattern in AREAS[area][0] for path in ROOT.glob(pattern)})
    every = [mutant for path in paths for mutant in mutants_of(path)]
    return random.Random("%s %s" % (area, seed)).sample(every, min(count, len(every)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--area", action="append", choices=sorted(AREAS), help="by default all; may be repeated")
    parser.add_argument("--count", type=int, default=12, help="of mutants in each area (%(default)s)")
    parser.add_argument("--seed", default="1", help="another one takes other places (%(default)s)")
    parser.add_argument("--seconds", type=float, default=60, help="of tests in each cell (%(default)s)")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--environments", type=pathlib.Path, default=ROOT / ".tox", metavar="FOLDER")
    options = parser.parse_args()
    subprocess.run([sys.executable, str(ROOT / "matrix" / "link_farm.py")], check=True)
    areas = options.area or sorted(AREAS)
    cells = {name: None for area in areas for name in AREAS[area][1]}
    cells = {name: Cell(name, options.environments) for name in cells}
    packages, known = queue.Queue(), equivalents()
    for number in range(options.jobs):
        packages.put(copy_of_package(number))

    def run(area, mutant):
        package = packages.get()
        try:
            return area, judge(mutant, [cells[name] for name in AREAS[area][1]], package, options.seconds, known)
        finally:
            packages.put(package)

    chosen = [(area, mutant) for area in areas for mutant in sample(area, options.count, options.seed)]
    outcomes, start = [], time.time()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for future in concurrent.futures.as_completed([pool.submit(run, *each) for each in chosen]):
            area, outcome = future.result()
            outcomes.append((area, outcome))
            mutant = outcome.mutant
            print("%3d of %d, %4d s  %-8s %s:%d  %s -> %s  (%s)" % (
                len(outcomes), len(chosen), time.time() - start, outcome.status, mutant.path, mutant.line,
                " ".join(mutant.old.split()), mutant.new or "nothing", outcome.cell), flush=True)
    return report(areas, outcomes)


def report(areas, outcomes):
    """Prints the table and the survivors. Returns the exit code: 1 if one lived."""
    print("\n%-14s %8s %6s %6s %10s %8s" % ("area", "mutants", "died", "lived", "equivalent", "not run"))
    counts = {area: collections.Counter(outcome.status for each, outcome in outcomes if each == area) for area in areas}
    counts["all"] = sum(counts.values(), collections.Counter())
    for area, count in counts.items():
        print("%-14s %8d %6d %6d %10d %8d" % (area, sum(count.values()), count[DIED], count[LIVED], count[SAME],
                                              count[UNSEEN]))
    survivors = [outcome.mutant for _, outcome in outcomes if outcome.status in (LIVED, UNSEEN)]
    for mutant in sorted(survivors):
        print("\n%s:%d\n  %s\n  %s -> %s" % (mutant.path, mutant.line, source_line(mutant), mutant.old,
                                             mutant.new or "nothing"))
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
