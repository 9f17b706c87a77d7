"""Changes one operator, constant or condition of shipped code at a time, and runs the tests that should see it.

    python3 tests/mutate.py --area engine --count 20 --seed 1
    python3 tests/mutate.py --list --compare before.jsonl

The second judges the fixed changes of tests/mutants.list, and tells what died before and lives now. A change there is
found by its function's name and its line's text, wherever they are now, or reported as gone.

A change that no test sees is a hole in the tests, or makes no difference: tests/mutants.ini lists those of the second
kind, with the reason. coverage.py finds once which test of a cell runs which line (tests/which_lines.py); of those,
the fastest run, as long as --seconds allow, NumPy first. A crash and a timeout count as died. Tests that fail without
a change are left out, and those that saw one run again without it at the end. Outcomes are kept in .tox/mutate: a run
that was stopped goes on where it was, as long as neither code nor tests change.

Needs the environments of the cells that AREAS names (`python3 matrix/run.py --keep --cell NAME`), with `coverage`
installed there, and Python 3.9 or newer for itself.
"""
import argparse
import ast
import atexit
import collections
import concurrent.futures
import configparser
import functools
import hashlib
import itertools
import json
import os
import pathlib
import queue
import random
import re
import resource
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = ROOT / ".tox" / "mutate"
EQUIVALENT = ROOT / "tests" / "mutants.ini"
LIST = ROOT / "tests" / "mutants.list"

# (cell, the tests that should see a change): a cell with a framework takes many minutes for all of its tests.
NUMPY = ("py313-numpy", "test_*.py")
EVERY = ("py313-numpy EVERSTEP_FULL", "test_catch_up.py")  # cases that are shared out over all Pythons
CALLS = " test_calls.py test_wrappers_accumulate.py"
TF_TRAIN = ("py37-tf1.15-k2.3", "test_tf_train.py test_tf1_idioms.py test_verbs.py test_gradients_by_hand.py "
            "test_capture.py" + CALLS)
GET_UPDATES = ("py37-tf1.15-k2.3", "test_get_updates.py test_verbs.py test_gradients_by_hand.py "
               "test_callbacks.py" + CALLS)
EAGER_TRAIN = ("py39-tf2.10", "test_tf_train.py")
OPTIMIZER_V2_OF_1 = ("py37-tf1.15-k2.3", "test_optimizer_v2.py test_copies.py" + CALLS)
OPTIMIZER_V2 = ("py39-tf2.10", "test_optimizer_v2.py test_verbs.py test_copies.py test_distribution.py "
                "test_callbacks.py test_sharded.py" + CALLS)
NEW_STYLE = "test_verbs.py test_copies.py test_members.py test_callbacks.py" + CALLS
UPDATE_STEP = ("py311-tf2.15", "test_update_step.py test_multistage.py test_sharded.py " + NEW_STYLE)
KERAS_3 = ("py313-k3jax", "test_keras3.py test_keras3_backends.py test_float8.py test_capture.py test_periods.py " +
           NEW_STYLE)
KERAS_3_SPARSE = ("py312-tf2.16", "test_keras3.py")
BACKENDS = "test_backends.py test_lowering.py test_gradients_by_hand.py test_graph_order.py test_calls.py"
SPEED = "test_inner_kernel.py test_eager_steps.py test_lowering.py test_lazy_embeddings.py"
TORCH = ("py311-k3torch", "test_backends.py test_grouped.py test_on_lists.py test_repeated_steps.py test_lowering.py "
         "test_torch_optim.py test_torch_calls.py test_torch_gradients.py")
TRACED = ("py39-tf2.10", "test_optimizer_v2.py test_distribution.py")
NOISE = "test_wrappers_gradient.py test_periods.py"
FILES = ("test_files_written.py test_state_of_tensorflow.py test_files_cli.py test_files_hostile.py "
         "test_stock_files.py test_files_foreign.py")
WORLDS = "test_testing.py test_verbs.py test_gradients_by_hand.py"
STOCK = "test_from_native.py test_stock_table.py test_patched.py test_stock_files.py"

# {area: (patterns of files, [(cell, patterns of tests)])}. A file of several areas counts for the first one, and the
# tests of all of them should see its changes.
AREAS = {
    "schedules": (["optimizers/contract/schedule*.py"], [NUMPY]),
    "contract": (["optimizers/contract/*.py"], [NUMPY, EVERY, UPDATE_STEP]),
    "rules": (["optimizers/*.py"], [NUMPY, EVERY]),
    "wrappers": (["optimizers/wrappers/*.py"], [NUMPY, EVERY, ("py39-tf2.10", "test_multistage.py")]),
    "engine": (["compat/engine/*.py", "compat/rules/*.py"],
               [NUMPY, EVERY, ("py311-tf2.15", BACKENDS), TF_TRAIN, ("py37-tf1.15-k2.3", SPEED), ("py39-tf2.10", SPEED),
                TORCH, ("py313-k3jax", "test_grouped.py")]),
    "arrays": (["compat/backends/*arrays*.py", "compat/backends/on_numpy.py", "compat/backends/ops_table.py",
                "compat/targets/arrays.py"],
               [NUMPY, ("py37-tf1.15-k2.3", "test_schedules.py"), ("py39-tf2.10", "test_schedules.py")]),
    "torch": (["compat/backends/*torch*.py", "compat/targets/repeated_steps.py", "compat/targets/torch_*.py"], [TORCH]),
    "targets": (["compat/targets/[abcdhlr]*.py", "compat/targets/flushing.py", "compat/targets/native.py",
                 "compat/targets/signature.py", "compat/targets/st*.py"],
                [NUMPY, UPDATE_STEP, TF_TRAIN, ("py39-tf2.10", SPEED)]),
    "tools": (["api/*.py", "api/matrix_kit/*.py", "api/scan/*.py"], [NUMPY]),
    "state": (["compat/files/*.py", "compat/checkpoints/*.py", "compat/extras/*.py"],
              [NUMPY, ("py311-tf2.15", "test_state.py test_capture.py test_files.py test_state_in_life.py " + FILES)]),
    "backends": (["compat/backends/base.py", "compat/backends/*tensorflow*.py", "compat/backends/gradient_values.py"],
                 [NUMPY, ("py311-tf2.15", BACKENDS), ("py37-tf1.15-k2.3", BACKENDS), TRACED]),
    "keras_ops": (["compat/backends/on_keras.py"],
                  [("py313-k3jax", BACKENDS + " test_grouped.py " + NOISE),
                   ("py311-k3torch", "test_backends.py test_grouped.py test_keras3_backends.py")]),
    "optax": (["compat/backends/on_jax.py", "compat/targets/optax*.py", "compat/checkpoints/in_trees.py"],
              [("py313-k3jax", "test_optax.py")]),
    "stock": (["compat/stock/*.py"], [NUMPY, ("py311-tf2.15", STOCK), ("py37-tf1.15-k2.3", STOCK)]),
    "port": (["compat/port/*.py"], [NUMPY, ("py311-tf2.15", "test_port*.py"), ("py37-tf1.15-k2.3", "test_port*.py")]),
    "testing": (["api/testing/*.py", "compat/ways/*.py"],
                [NUMPY, ("py37-tf1.15-k2.3", WORLDS), ("py39-tf2.10", WORLDS)]),
    "tf_train": (["compat/targets/tf_train*.py", "compat/targets/global_step.py", "compat/targets/partitioned.py"],
                 [TF_TRAIN, EAGER_TRAIN]),
    "get_updates": (["compat/targets/get_updates.py", "compat/targets/native_clipping.py"],
                    [GET_UPDATES, OPTIMIZER_V2_OF_1]),
    "optimizer_v2": (["compat/targets/*_v2*.py", "compat/targets/native_classes.py", "compat/targets/sharded.py"],
                     [OPTIMIZER_V2, OPTIMIZER_V2_OF_1]),
    "update_step": (["compat/targets/update_step.py", "compat/targets/new_style.py", "compat/targets/fit*.py"],
                    [UPDATE_STEP]),
    "keras3": (["compat/targets/keras3*.py", "compat/targets/new_style.py"],
               [KERAS_3, KERAS_3_SPARSE]),
}
# Each of the cells with a framework runs its part of the tests, as in CI, and the one with NumPy all of them.
ENVIRONMENT = {"py313-numpy": {}, "py313-numpy EVERSTEP_FULL": {"EVERSTEP_FULL": "1"},
               "py313-k3jax": {"EVERSTEP_CELL": "py313-k3jax", "KERAS_BACKEND": "jax"},
               "py311-k3torch": {"EVERSTEP_CELL": "py311-k3torch", "KERAS_BACKEND": "torch", "OMP_NUM_THREADS": "1"}}
SWAPS = {
    ast.Add: "+ -", ast.Sub: "- +", ast.Mult: "* / +", ast.Div: "/ *", ast.FloorDiv: "// *", ast.Mod: "% *",
    ast.Pow: "** *", ast.Lt: "< <= >", ast.LtE: "<= < >=", ast.Gt: "> >= <", ast.GtE: ">= > <=", ast.Eq: "== !=",
    ast.NotEq: "!= ==", ast.Is: "is is_not", ast.IsNot: "is_not is", ast.In: "in not_in", ast.NotIn: "not_in in",
    ast.And: "and or", ast.Or: "or and",
}
HAS_OPERATORS = (ast.Compare, ast.BoolOp, ast.UnaryOp)
WORDING = ("format", "warn", "refusal")  # calls that make messages

# `function` is a qualified name, `text` that of the line, and `number` tells equal changes of a function apart: these
# find a change again (`name_of`). `lines` are those of the statement; None if it runs on import.
Mutant = collections.namedtuple("Mutant", "path function text old new number line start end lines")
DIED, LIVED, UNSEEN, SAME, GONE = "died", "lived", "no test runs it", "equivalent", "gone"


# Mutants

def mutants_of(path):
    """Returns the mutants of a file: those of each operator, number, flag and condition of its code."""
    text = (ROOT / path).read_text()
    texts = text.splitlines(True)
    starts = [0] + list(itertools.accumulate(map(len, texts)))
    found = []

    def place(line, column):
        return starts[line - 1] + column  # the sources are ASCII

    def span(node):
        return place(node.lineno, node.col_offset), place(node.end_lineno, node.end_col_offset)

    def visit(node, lines, in_function, scope):
        if isinstance(node, ast.Raise) or isinstance(node, ast.Call) and _name(node.func) in WORDING:
            return
        if isinstance(node, ast.Assign) and _name(node.targets[0]) == "MYPY":  # code for type checkers alone
            return
        if isinstance(node, ast.stmt):
            last = max(node.lineno, node.body[0].lineno - 1) if hasattr(node, "body") else node.end_lineno
            lines = range(node.lineno, last + 1) if in_function else None
        for start, end, new in changes(node):
            found.append((start, end, new, scope, lines))
        body = node.body if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else ()
        for child in ast.iter_child_nodes(node):
            inside = child in body
            visit(child, lines, in_function or inside and isinstance(node, ast.FunctionDef),
                  ("%s.%s" % (scope, node.name)).lstrip(".") if inside else scope)

    def changes(node):
        if isinstance(node, ast.BinOp) and not isinstance(getattr(node.left, "value", None), str):
            yield from swaps(node.left, node.right, node.op)
        elif isinstance(node, ast.Compare):
            for left, right, operator in zip([node.left] + node.comparators, node.comparators, node.ops):
                yield from swaps(left, right, operator)
        elif isinstance(node, ast.BoolOp):
            for left, right in zip(node.values, node.values[1:]):
                yield from swaps(left, right, node.op)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
            yield span(node)[0], span(node.operand)[0], ""
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield span(node) + (repr(not node.value),)
        elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            is_tiny = abs(node.value) < 1e-20  # a bound that stands for "above 0"
            yield span(node) + (repr(node.value + 1 if isinstance(node.value, int) else
                                     float(not node.value) if is_tiny else node.value * 2),)
        conditions = ([node.test] if isinstance(node, (ast.If, ast.IfExp, ast.While)) else
                      node.values if isinstance(node, ast.BoolOp) else getattr(node, "ifs", ()))
        for condition in conditions:
            if not isinstance(condition, HAS_OPERATORS + (ast.Constant,)):
                start, end = span(condition)
                yield start, end, "(not %s)" % text[start:end]

    def swaps(left, right, operator):
        old, *others = [each.replace("_", " ") for each in SWAPS.get(type(operator), "none").split()]
        start, end = span(left)[1], span(right)[0]
        match = re.search(r"\b%s\b" % old if old[0].isalpha() else re.escape(old), text[start:end])
        for new in others if match else ():
            yield start + match.start(), start + match.end(), new

    visit(ast.parse(text), None, False, "")
    mutants, counts = [], collections.Counter()
    for start, end, new, scope, lines in sorted(found, key=lambda change: change[:3]):
        line = text.count("\n", 0, start) + 1
        change = path, scope, texts[line - 1].strip(), text[start:end], new
        counts[change] += 1
        mutants.append(Mutant(*change, counts[change], line, start, end, lines))
    return mutants


def _name(function):
    return getattr(function, "attr", getattr(function, "id", None))


def changed(text, mutant):
    return text[:mutant.start] + mutant.new + text[mutant.end:]


def compiles(mutant):
    try:
        ast.parse(changed((ROOT / mutant.path).read_text(), mutant))
    except SyntaxError:
        return False
    return True


def shipped():
    return [str(path.relative_to(ROOT)) for room in ("api", "compat", "optimizers")
            for path in sorted((ROOT / room).rglob("*.py"))]


def name_of(mutant):
    return mutant[:6]


class Finder:
    """Finds changes by name in all shipped code, wherever their function is now."""

    def __init__(self):
        self.files = collections.defaultdict(lambda: collections.defaultdict(list))
        for mutant in itertools.chain.from_iterable(map(mutants_of, shipped())):
            self.files[mutant[1:5]][mutant.path].append(mutant)

    def all(self, path, *change):
        """Returns the mutants of a function, a line's text, and what is changed there: those of the file, or of the
        only one that has them now."""
        files = self.files.get(change, {})
        return files.get(path) or (list(files.values())[0] if len(files) == 1 else [])

    def one(self, name):
        """Returns the mutant of a name, or None if it is gone."""
        *where, number = name
        return (self.all(*where)[number - 1:] or [None])[0]

    def equivalents(self):
        """Returns {mutant: reason}, and the titles of entries whose code is gone."""
        parser = configparser.RawConfigParser(delimiters=("=",), comment_prefixes=("#",))
        parser.read(EQUIVALENT)
        found, gone = {}, []
        for title in parser.sections():
            mutants = self.all(*(parser[title][key] for key in "path function line old new".split()))
            found.update(dict.fromkeys(mutants, parser[title]["reason"]))
            gone += [] if mutants else [title]
        return found, gone


def areas_of(path):
    path = pathlib.PurePath(path)
    return [area for area, (patterns, _) in AREAS.items() if any(path.match(pattern) for pattern in patterns)]


def area_of(name, mutant):
    """Returns the area of a mutant, or of the file where it was; None if no area has that file."""
    return next(iter(areas_of(mutant.path if mutant else name[0])), None)


def cells_of(path):
    """Returns {cell: patterns of the tests that should see a change of a file}."""
    cells = collections.defaultdict(list)
    for area in areas_of(path):
        for cell, patterns in AREAS[area][1]:
            cells[cell] += patterns.split()
    return cells


def all_mutants(area):
    return [mutant for path in shipped() if areas_of(path)[:1] == [area] for mutant in mutants_of(path)]


def sample(area, count, seed, without=()):
    """Returns `count` mutants of an area, of other places with another seed."""
    every = [mutant for mutant in all_mutants(area) if mutant not in without]
    random.Random("%s %s" % (area, seed)).shuffle(every)
    return list(itertools.islice(filter(compiles, every), count))


def draw(count, seed):
    """Writes the fixed list: `count` mutants of each area."""
    known, _ = Finder().equivalents()
    lines = ["# Changes for python3 tests/mutate.py --list: [file, function, line, old, new, which of equal ones].\n"
             "# Drawn by --draw --count %d --seed %s. Do not edit: another list cannot be compared.\n" % (count, seed)]
    lines += [json.dumps(name_of(mutant)) + "\n" for area in AREAS for mutant in sample(area, count, seed, known)]
    LIST.write_text("".join(lines))


def read_list():
    return [tuple(json.loads(line)) for line in LIST.read_text().splitlines() if not line.startswith("#")]


# Tests

class Cell:
    """The environment of a cell, and which of its tests run which line."""

    def __init__(self, name, folder, patterns):
        self.name, folder = name, folder / name.split()[0]
        self.python = str(folder / "bin" / "python")
        if not os.path.exists(self.python):
            sys.exit("there is no environment %s: python3 matrix/run.py --keep --cell %s" % (folder, folder.name))
        self.lines, self.seconds = collections.defaultdict(lambda: collections.defaultdict(set)), {}
        self._measure(sorted({path.name for pattern in patterns for path in ROOT.glob("tests/" + pattern)}))

    def pytest(self, package, tests, seconds, *options, **environment):
        """Runs tests with a copy of the package, for some seconds of the processor at most.

        Returns (exit code, or None after 10 times these seconds; the output).
        """
        env = {name: value for name, value in os.environ.items() if not name.startswith("EVERSTEP_")}
        env.update(PYTHONPATH=str(package), CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="3",
                   **environment, **ENVIRONMENT.get(self.name, {"EVERSTEP_CELL": self.name}))
        command = [self.python, "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider", *options, *tests]
        limit = int(seconds)
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
                                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1)))
        try:
            output = process.communicate(timeout=10 * seconds)[0]
            return process.returncode, output
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.communicate()
            return None, ""

    def _measure(self, files):
        """Reads which tests run which line: measured once for each state of the code and of a file of tests."""
        kept = {name: WORK / self.name / ("%s-%s.json" % (name, _digest(shipped() + ["tests/" + name])))
                for name in files}
        missing = [name for name in files if not kept[name].exists()]
        (WORK / self.name).mkdir(parents=True, exist_ok=True)
        result = WORK / self.name / "result.json"
        path = os.pathsep.join([str(ROOT / ".dev"), str(ROOT / "tests")])
        for number, name in enumerate(missing, 1):
            _, output = self.pytest(path, ["tests/" + name], 3600, "-p", "which_lines", WHICH_LINES=str(result),
                                    COVERAGE_CORE="ctrace")
            measured = json.loads(result.read_text())
            kept[name].write_text(json.dumps(measured.get("tests/" + name, {"seconds": {}, "lines": {}})))
            result.unlink()
            print("%s: measured, once, which test runs which line: file %d of %d, %s: %s" % (
                self.name, number, len(missing), name, output.strip().splitlines()[-1]), flush=True)
        for name in files:
            found = json.loads(kept[name].read_text())
            self.seconds.update(found["seconds"])
            for path, lines in found["lines"].items():
                for line, tests in lines.items():
                    self.lines[path][int(line)].update(tests)

    def tests_of(self, mutant, seconds):
        """Returns the tests that run a mutant, and their seconds: one of each function, then a second one of each, ...

        One that runs on import or once is seen by the tests that run another line of its file, or by any other.
        """
        lines = self.lines[mutant.path]
        found = set().union(*(lines[line] for line in mutant.lines or ()))
        any_test = not found and bool(lines)
        if any_test:
            found = set().union(*lines.values())
        functions = collections.defaultdict(list)
        for test in sorted(self.seconds if any_test else found, key=self.seconds.get):
            functions[test.split("[")[0]].append(test)
        rounds = sorted((place, self.seconds[test], test) for tests in functions.values()
                        for place, test in enumerate(tests) if not place or test in found)
        chosen, total = [], 0.0
        for _, duration, test in rounds:
            if total + duration <= seconds or not chosen:
                chosen.append(test)
                total += duration
        return chosen, total


def _digest(paths):
    digest = hashlib.sha256()
    for path in paths:
        digest.update((ROOT / path).read_bytes())
    return digest.hexdigest()[:12]


# Runs

def judge(mutant, cell, package, seconds):
    """Runs the tests of a cell that should see a mutant. Returns its status and what saw it."""
    tests, total = cell.tests_of(mutant, seconds)
    if not tests:
        return UNSEEN, ""
    text = (ROOT / mutant.path).read_text()
    room, _, rest = mutant.path.partition("/")
    file = package / "everstep" / (rest if room == "api" else mutant.path)
    file.write_text(changed(text, mutant))
    pytest = functools.partial(cell.pytest, package, PYTHONDONTWRITEBYTECODE="1")
    try:
        while tests:
            code, output = pytest(tests, 60 + 4 * total, "-x")
            found = re.search(r"^(?:FAILED|ERROR) (tests/.*?)(?: - |$)", output, re.M)
            failed, left = found and found.group(1), tests
            if code == 0:
                break
            if code == 4 and not failed:  # the change gave some cases other names, which no test sees
                code, names = pytest(sorted({test.split("::")[0] for test in tests}), 600, "--collect-only")
                left = tests if code else [test for test in tests if test in names.splitlines()]
            # it fails because of files that other runs left
            elif failed in tests[1:] and pytest([failed], 60 + 4 * total)[0] == 0:
                left = [test for test in tests if test != failed]
            if left == tests:
                return DIED, failed or ("timeout" if code is None else " ".join(output.split()[-9:]))
            tests = left
    finally:
        file.write_text(text)
    return LIVED, ""


def copy_of_package(number):
    folder = WORK / ("package-%d-%d" % (os.getpid(), number))
    atexit.register(shutil.rmtree, folder)
    shutil.copytree(ROOT / ".dev" / "everstep", folder / "everstep", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


class Outcomes:
    """A file of outcomes, one line of JSON for each mutant in each cell; those of other code or tests do not count."""

    def __init__(self, file, state=None):
        self.file, self.found = file, collections.defaultdict(dict)
        records = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        self.state = state or records[-1]["state"]
        for record in records:
            if record["state"] == self.state:
                self.found[tuple(record["mutant"])][record["cell"]] = record

    def add(self, name, cell, seconds, status, seen_by):
        record = {"mutant": name, "cell": cell, "status": status, "seen_by": seen_by, "seconds": seconds,
                  "state": self.state}
        self.found[name][cell] = record
        with self.file.open("a") as file:
            file.write(json.dumps(record) + "\n")

    def is_open(self, name, cell, seconds):
        """Returns whether a cell has still to judge a mutant, with tests of so many seconds."""
        known = self.found[name].get(cell)
        return self.status(name) != DIED and not (known and known["seconds"] >= seconds)

    def status(self, name):
        found = {record["status"] for record in self.found[name].values()}
        return next((status for status in (DIED, LIVED, UNSEEN) if status in found), None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--area", action="append", choices=sorted(AREAS), help="by default all; may be repeated")
    parser.add_argument("--cell", action="append", help="run no tests in others; may be repeated")
    parser.add_argument("--count", type=int, default=12, help="of mutants in each area (%(default)s)")
    parser.add_argument("--seed", default="1", help="another one takes other places (%(default)s)")
    parser.add_argument("--list", action="store_true", help="take the fixed mutants of tests/mutants.list")
    parser.add_argument("--draw", action="store_true", help="only write that list, with --count and --seed")
    parser.add_argument("--compare", type=pathlib.Path, metavar="FILE", help="with outcomes kept from an earlier run")
    parser.add_argument("--line", action="append", metavar="PATH:LINE", help="take all mutants of a line; repeatable")
    parser.add_argument("--tests", action="append", help="files, such as 'test_copies.py', in place of those of AREAS")
    parser.add_argument("--seconds", type=float, default=60, help="of tests in each cell (%(default)s)")
    parser.add_argument("--map", action="store_true", help="only find which test runs which line")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--environments", type=pathlib.Path, default=ROOT / ".tox", metavar="FOLDER")
    options = parser.parse_args()
    if options.compare and not options.compare.exists():
        parser.error("there is no file %s; outcomes are kept in %s" % (options.compare, WORK / "outcomes.jsonl"))
    if options.draw:
        return draw(options.count, options.seed)
    if not (ROOT / ".dev" / "everstep").exists():  # renewing it would disturb tests that run at the same time
        subprocess.run([sys.executable, str(ROOT / "matrix" / "link_farm.py")], check=True)
    finder = Finder()
    chosen = choose(options, finder)
    cells = [cell for cell in dict.fromkeys(cell for _, tests in AREAS.values() for cell, _ in tests)
             if cell.split()[0] in (options.cell or cell)]
    WORK.mkdir(parents=True, exist_ok=True)
    state = [_digest(shipped() + sorted(ROOT.glob("tests/*.py")))] + (options.tests or [])
    outcomes = Outcomes(WORK / "outcomes.jsonl", " ".join(state))
    packages = queue.Queue()
    for number in range(options.jobs):
        packages.put(copy_of_package(number))
    result = 0
    for name in cells:
        open_ = {key: mutant for key, mutant in chosen.items() if mutant and name in cells_of(mutant.path)
                 and (options.map or outcomes.is_open(key, name, options.seconds))}
        if open_:
            patterns = options.tests or {each for mutant in open_.values() for each in cells_of(mutant.path)[name]}
            cell = Cell(name, options.environments, patterns)
            if not options.map:
                run(cell, open_, packages, options.seconds, outcomes)
                result = max(result, check_that_tests_pass(cell, outcomes, open_))
    if options.map:
        return result
    if options.compare:
        result = max(result, compare(Outcomes(options.compare), outcomes, chosen))
    return max(result, report(chosen, outcomes, finder))


def choose(options, finder):
    """Returns {name: mutant}; one of the list that is gone is None."""
    if options.list:
        chosen = {name: finder.one(name) for name in read_list()}
        return {name: mutant for name, mutant in chosen.items()
                if not options.area or area_of(name, mutant) in options.area}
    areas = options.area or AREAS
    mutants = ([mutant for area in areas for mutant in all_mutants(area)
                if "%s:%d" % (mutant.path, mutant.line) in options.line and compiles(mutant)] if options.line else
               [mutant for area in areas for mutant in sample(area, options.count, options.seed)])
    return {name_of(mutant): mutant for mutant in mutants}


def run(cell, chosen, packages, seconds, outcomes):
    """Judges mutants in a cell, as many at a time as there are copies of the package."""
    start = time.time()

    def one(mutant):
        package = packages.get()
        try:
            return judge(mutant, cell, package, seconds)
        finally:
            packages.put(package)

    with concurrent.futures.ThreadPoolExecutor(packages.qsize()) as pool:
        waiting = {pool.submit(one, mutant): name for name, mutant in chosen.items()}
        for number, future in enumerate(concurrent.futures.as_completed(waiting), 1):
            name = waiting[future]
            status, seen_by = future.result()
            outcomes.add(name, cell.name, seconds, status, seen_by)
            mutant = chosen[name]
            print("%3d of %d, %4d s  %-8s %s:%d  %s -> %s  (%s %s)" % (
                number, len(chosen), time.time() - start, status, mutant.path, mutant.line,
                " ".join(mutant.old.split()), mutant.new or "nothing", cell.name, seen_by[:100]), flush=True)


def check_that_tests_pass(cell, outcomes, names):
    """Runs the tests that saw a change once more, without it. Returns the exit code: 1 if one fails."""
    tests = sorted({outcomes.found[name][cell.name]["seen_by"] for name in names} & set(cell.seconds))
    if not tests:
        return 0
    code, output = cell.pytest(ROOT / ".dev", tests, 3600)
    print("\nwithout a change, the %d tests of %s that saw one: %s\n" % (
        len(tests), cell.name, "all pass" if code == 0 else output[-3000:]), flush=True)
    return int(code != 0)


def compare(before, after, names):
    """Prints what became of mutants since an earlier run. Returns the exit code: 1 if one died then and lives now."""
    gone = {name for name, mutant in names.items() if not mutant}
    pairs = {name: (before.status(name), GONE if name in gone else after.status(name)) for name in names}
    print("\n%-16s %-16s %8s" % ("before", "now", "mutants"))
    for (then, now), count in collections.Counter(pairs.values()).most_common():
        print("%-16s %-16s %8d" % (then or "not judged", now or "not judged", count))
    worse = [name for name, (then, now) in pairs.items() if then == DIED and now in (LIVED, UNSEEN)]
    for name in worse:
        print("\ndied before, now %s:\n%s" % (after.status(name), description(name)))
    return 1 if worse else 0


def report(chosen, outcomes, finder):
    """Prints the table and the survivors. Returns the exit code: 1 if one lived."""
    known, gone_entries = finder.equivalents()
    status_of = {name: GONE if mutant is None else SAME if outcomes.status(name) in (LIVED, UNSEEN) and mutant in known
                 else outcomes.status(name) for name, mutant in chosen.items()}
    columns = [DIED, LIVED, SAME, UNSEEN, GONE, None]
    counts = {area: collections.Counter() for area in [*AREAS, None]}
    for name, mutant in chosen.items():
        counts[area_of(name, mutant)][status_of[name]] += 1
    counts["all"] = sum(counts.values(), collections.Counter())
    print("\n%-14s %8s" % ("area", "mutants"), *["%15s" % (column or "not judged") for column in columns])
    for area, count in counts.items():
        if count:
            print("%-14s %8d" % (area or "no area", sum(count.values())),
                  *["%15d" % count[column] for column in columns])
    for status in (LIVED, UNSEEN, GONE):
        for name in sorted(name for name in chosen if status_of[name] == status):
            print("\n%s: %s" % (status, description(name, chosen[name])))
    for title in gone_entries:
        print("\n%s has an entry for code that is gone: %s" % (EQUIVALENT.name, title))
    return 1 if {LIVED, UNSEEN} & set(status_of.values()) else 0


def description(name, mutant=None):
    path, function, text, old, new, _ = name
    place = "%s:%d" % (mutant.path, mutant.line) if mutant else path
    return "%s  %s\n  %s\n  %s -> %s" % (place, function, text, old, new or "nothing")


if __name__ == "__main__":
    sys.exit(main())
