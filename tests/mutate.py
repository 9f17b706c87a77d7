"""Changes one operator, constant or condition of shipped code at a time, and runs the tests that should see it.

    python3 tests/mutate.py --area engine --count 20 --seed 1

A change that no test sees is a hole in the tests, or makes no difference: tests/mutants.ini lists those of the second
kind, with the reason. coverage.py finds once which test of a cell runs which line (tests/which_lines.py); of those,
the fastest run, as long as --seconds allow, NumPy first. A crash and a timeout count as died. Tests that fail without
a change are left out, and those that saw one run again without it at the end.

Needs the environments of the cells that AREAS names (`python3 matrix/run.py --keep --cell NAME`), with `coverage`
installed there, and Python 3.9 or newer for itself.
"""
import argparse
import ast
import atexit
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

# (cell, the tests that should see a change): a cell with a framework takes many minutes for all of its tests.
NUMPY = ("py313-numpy", "test_*.py")
EVERY = ("py313-numpy EVERSTEP_FULL", "test_catch_up.py")  # cases that are shared out over all Pythons
TF_TRAIN = ("py37-tf1.15-k2.3", "test_tf_train.py test_tf1_idioms.py test_verbs.py test_gradients_by_hand.py "
            "test_capture.py")
GET_UPDATES = ("py37-tf1.15-k2.3", "test_get_updates.py test_verbs.py test_gradients_by_hand.py")
EAGER_TRAIN = ("py39-tf2.10", "test_tf_train.py")
OPTIMIZER_V2_OF_1 = ("py37-tf1.15-k2.3", "test_optimizer_v2.py test_copies.py")
OPTIMIZER_V2 = ("py39-tf2.10", "test_optimizer_v2.py test_verbs.py test_copies.py test_distribution.py")
NEW_STYLE = "test_verbs.py test_copies.py test_calls.py test_members.py"
UPDATE_STEP = ("py311-tf2.15", "test_update_step.py test_multistage.py " + NEW_STYLE)
KERAS_3 = ("py313-k3jax", "test_keras3.py test_keras3_backends.py test_capture.py test_periods.py " + NEW_STYLE)
KERAS_3_SPARSE = ("py312-tf2.16", "test_keras3.py")
BACKENDS = "test_backends.py test_lowering.py test_gradients_by_hand.py test_graph_order.py test_calls.py"
SPEED = "test_inner_kernel.py test_eager_steps.py test_lowering.py test_lazy_embeddings.py"
TORCH = ("py311-k3torch", "test_backends.py test_grouped.py test_lowering.py")
TRACED = ("py39-tf2.10", "test_optimizer_v2.py test_distribution.py")
NOISE = "test_wrappers_gradient.py test_periods.py"
FILES = "test_files_written.py test_state_of_tensorflow.py test_files_cli.py test_files_hostile.py test_stock_files.py"
STOCK = "test_from_native.py test_stock_table.py test_patched.py test_stock_files.py"

# {area: (patterns of files, [(cell, patterns of tests)])}
AREAS = {
    "contract": (["optimizers/contract/*.py"], [NUMPY, EVERY, UPDATE_STEP]),
    "rules": (["optimizers/*.py"], [NUMPY, EVERY]),
    "schedules": (["optimizers/contract/schedule.py"], [NUMPY]),
    "wrappers": (["optimizers/wrappers/*.py"], [NUMPY, EVERY, ("py39-tf2.10", "test_multistage.py")]),
    "engine": (["compat/engine/*.py"],
               [NUMPY, EVERY, ("py311-tf2.15", BACKENDS), TF_TRAIN, ("py37-tf1.15-k2.3", SPEED), ("py39-tf2.10", SPEED),
                TORCH, ("py313-k3jax", "test_grouped.py")]),
    "arrays": (["compat/backends/*arrays*.py", "compat/backends/on_numpy.py", "compat/backends/ops.py",
                "compat/targets/arrays.py"], [NUMPY]),
    "targets": (["compat/targets/[bcdhl]*.py", "compat/targets/signature.py", "compat/targets/st*.py"],
                [NUMPY, UPDATE_STEP, TF_TRAIN, ("py39-tf2.10", SPEED)]),
    "state": (["compat/state/*.py", "api/*.py"],
              [NUMPY, ("py311-tf2.15", "test_state.py test_capture.py test_files.py test_state_in_life.py " + FILES)]),
    "backends": (["compat/backends/base.py", "compat/backends/*tensorflow*.py", "compat/backends/gradient_values.py"],
                 [NUMPY, ("py311-tf2.15", BACKENDS), ("py37-tf1.15-k2.3", BACKENDS), TRACED]),
    "keras_ops": (["compat/backends/on_keras.py"],
                  [("py313-k3jax", BACKENDS + " test_grouped.py " + NOISE),
                   ("py311-k3torch", "test_backends.py test_grouped.py test_keras3_backends.py")]),
    "torch": (["compat/backends/on_torch.py"], [TORCH]),
    "stock": (["compat/stock/*.py"], [NUMPY, ("py311-tf2.15", STOCK), ("py37-tf1.15-k2.3", STOCK)]),
    "tf_train": (["compat/targets/tf_train.py", "compat/targets/global_step.py", "compat/targets/partitioned.py"],
                 [TF_TRAIN, EAGER_TRAIN]),
    "get_updates": (["compat/targets/get_updates.py", "compat/targets/native_clipping.py"],
                    [GET_UPDATES, OPTIMIZER_V2_OF_1]),
    "optimizer_v2": (["compat/targets/*_v2.py", "compat/targets/native_classes.py"],
                     [OPTIMIZER_V2, OPTIMIZER_V2_OF_1]),
    "update_step": (["compat/targets/update_step.py", "compat/targets/new_style.py", "compat/targets/fit*.py"],
                    [UPDATE_STEP]),
    "keras3": (["compat/targets/keras3.py", "compat/targets/new_style.py"],
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

# `lines` are those of the statement; None if it runs on import.
Mutant = collections.namedtuple("Mutant", "path line start end old new lines")
Outcome = collections.namedtuple("Outcome", "mutant status cell seen_by")
DIED, LIVED, UNSEEN, SAME = "died", "lived", "no test runs it", "equivalent"


# Mutants

def mutants_of(path):
    """Returns the mutants of a file: those of each operator, number, flag and condition of its code."""
    text = (ROOT / path).read_text()
    starts = [0] + list(itertools.accumulate(len(line) for line in text.splitlines(True)))
    found = []

    def place(line, column):
        return starts[line - 1] + column  # the sources are ASCII

    def span(node):
        return place(node.lineno, node.col_offset), place(node.end_lineno, node.end_col_offset)

    def visit(node, lines, in_function):
        if isinstance(node, ast.Raise) or isinstance(node, ast.Call) and _name(node.func) in WORDING:
            return
        if isinstance(node, ast.Assign) and _name(node.targets[0]) == "MYPY":  # code for type checkers alone
            return
        if isinstance(node, ast.stmt):
            last = max(node.lineno, node.body[0].lineno - 1) if hasattr(node, "body") else node.end_lineno
            lines = range(node.lineno, last + 1) if in_function else None
        for start, end, new in changes(node):
            mutant = Mutant(path, text.count("\n", 0, start) + 1, start, end, text[start:end], new, lines)
            if _compiles(changed(text, mutant)):
                found.append(mutant)
        body = node.body if isinstance(node, (ast.FunctionDef, ast.Lambda)) else None
        for child in ast.iter_child_nodes(node):
            inside = isinstance(body, list) and child in body
            visit(child, lines, in_function or inside)

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

    visit(ast.parse(text), None, False)
    return found


def _name(function):
    return getattr(function, "attr", getattr(function, "id", None))


def changed(text, mutant):
    return text[:mutant.start] + mutant.new + text[mutant.end:]


def _compiles(text):
    try:
        ast.parse(text)
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

    def __init__(self, name, folder, patterns):
        self.name, folder = name, folder / name.split()[0]
        self.python = str(folder / "bin" / "python")
        if not os.path.exists(self.python):
            sys.exit("there is no environment %s: python3 matrix/run.py --keep --cell %s" % (folder, folder.name))
        self.lines, self.seconds = collections.defaultdict(lambda: collections.defaultdict(set)), {}
        self._measure(sorted({path.name for pattern in patterns for path in ROOT.glob("tests/" + pattern)}))

    def pytest(self, package, tests, timeout, *options, **environment):
        """Runs tests with a copy of the package. Returns (exit code, or None after the time; the output)."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("EVERSTEP_")}
        env.update(PYTHONPATH=str(package), CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="3",
                   **environment, **ENVIRONMENT.get(self.name, {"EVERSTEP_CELL": self.name}))
        command = [self.python, "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider", *options, *tests]
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True)
        try:
            output = process.communicate(timeout=timeout)[0]
            return process.returncode, output
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.communicate()
            return None, ""

    def _measure(self, files):
        """Reads which tests run which line: measured once for each state of the code and of a file of tests."""
        shipped = [path for room in ("api", "compat", "optimizers") for path in sorted((ROOT / room).rglob("*.py"))]
        kept = {name: WORK / self.name / ("%s-%s.json" % (name, _digest(shipped + [ROOT / "tests" / name])))
                for name in files}
        missing = ["tests/" + name for name in files if not kept[name].exists()]
        if missing:
            print("%s: which test runs which line of %d files; this takes minutes, once" % (self.name, len(missing)),
                  flush=True)
            (WORK / self.name).mkdir(parents=True, exist_ok=True)
            result = WORK / self.name / "result.json"
            path = os.pathsep.join([str(ROOT / ".dev"), str(ROOT / "tests")])
            _, output = self.pytest(path, missing, 3600, "-p", "which_lines", WHICH_LINES=str(result),
                                    COVERAGE_CORE="ctrace")
            print(output.strip().splitlines()[-1], flush=True)
            measured = json.loads(result.read_text())
            for name in missing:
                kept[name[6:]].write_text(json.dumps(measured.get(name, {"seconds": {}, "lines": {}})))
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
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


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
            code, output, gone = 4, "", set()
            while code == 4 and tests and (gone or not output):
                tests = [test for test in tests if test not in gone]
                code, output = cell.pytest(package, tests, 60 + 4 * total, "-x", PYTHONDONTWRITEBYTECODE="1")
                # The change gave some tests other names, which no test sees.
                gone = set(re.findall(r"^ERROR: not found: %s/(.*)$" % re.escape(str(ROOT)), output, re.M))
            if code != 0:
                failed = re.search(r"^(?:FAILED|ERROR) (tests/.*?)(?: - |$)", output, re.M)
                return Outcome(mutant, DIED, cell.name, failed.group(1) if failed else "timeout" if code is None else
                               output.strip().splitlines()[-1])
    finally:
        file.write_text(text)
    if (mutant.path, source_line(mutant), mutant.old, mutant.new) in known:
        return Outcome(mutant, SAME, seen, "")
    return Outcome(mutant, LIVED if seen else UNSEEN, seen, "")


def copy_of_package(number):
    folder = WORK / ("package-%d-%d" % (os.getpid(), number))
    atexit.register(shutil.rmtree, folder)
    shutil.copytree(ROOT / ".dev" / "everstep", folder / "everstep", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def all_mutants(area):
    paths = sorted({str(path.relative_to(ROOT)) for pattern in AREAS[area][0] for path in ROOT.glob(pattern)})
    return [mutant for path in paths for mutant in mutants_of(path)]


def sample(area, count, seed):
    """Returns `count` mutants of an area, of other places with another seed."""
    every = all_mutants(area)
    return random.Random("%s %s" % (area, seed)).sample(every, min(count, len(every)))


def of_lines(area, lines):
    return [mutant for mutant in all_mutants(area) if "%s:%d" % (mutant.path, mutant.line) in lines]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--area", action="append", choices=sorted(AREAS), help="by default all; may be repeated")
    parser.add_argument("--cell", action="append", help="run no tests in others; may be repeated")
    parser.add_argument("--count", type=int, default=12, help="of mutants in each area (%(default)s)")
    parser.add_argument("--seed", default="1", help="another one takes other places (%(default)s)")
    parser.add_argument("--line", action="append", metavar="PATH:LINE", help="take all mutants of a line; repeatable")
    parser.add_argument("--tests", action="append", help="files, such as 'test_copies.py', in place of those of AREAS")
    parser.add_argument("--seconds", type=float, default=60, help="of tests in each cell (%(default)s)")
    parser.add_argument("--map", action="store_true", help="only find which test runs which line")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--environments", type=pathlib.Path, default=ROOT / ".tox", metavar="FOLDER")
    options = parser.parse_args()
    if not (ROOT / ".dev" / "everstep").exists():  # renewing it would disturb tests that run at the same time
        subprocess.run([sys.executable, str(ROOT / "matrix" / "link_farm.py")], check=True)
    areas, known = options.area or list(AREAS), equivalents()
    chosen = {}
    for area in areas:
        for mutant in of_lines(area, options.line) if options.line else sample(area, options.count, options.seed):
            chosen.setdefault(mutant, area)
    areas = [area for area in areas if area in chosen.values()]
    cells_of = {area: [cell for cell in AREAS[area][1] if cell[0] in (options.cell or cell)] for area in areas}
    patterns = collections.defaultdict(list)
    for name, tests in itertools.chain(*cells_of.values()):
        patterns[name] += options.tests or tests.split()
    cells = {name: Cell(name, options.environments, patterns[name]) for name in patterns}
    if options.map:
        return 0
    packages = queue.Queue()
    for number in range(options.jobs):
        packages.put(copy_of_package(number))

    def run(area, mutant):
        package = packages.get()
        try:
            return area, judge(mutant, [cells[name] for name, _ in cells_of[area]], package, options.seconds, known)
        finally:
            packages.put(package)

    outcomes, start = [], time.time()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        waiting = [pool.submit(run, area, mutant) for mutant, area in chosen.items()]
        for future in concurrent.futures.as_completed(waiting):
            area, outcome = future.result()
            outcomes.append((area, outcome))
            mutant = outcome.mutant
            print("%3d of %d, %4d s  %-8s %s:%d  %s -> %s  (%s %s)" % (
                len(outcomes), len(chosen), time.time() - start, outcome.status, mutant.path, mutant.line,
                " ".join(mutant.old.split()), mutant.new or "nothing", outcome.cell, outcome.seen_by[:100]), flush=True)
    return max(report(areas, outcomes), check_that_tests_pass(cells, outcomes))


def check_that_tests_pass(cells, outcomes):
    """Runs the tests that saw a change once more, without it. Returns the exit code: 1 if one fails."""
    result = 0
    for cell in cells.values():
        tests = {outcome.seen_by for _, outcome in outcomes if outcome.cell == cell.name}
        tests = sorted(test for test in tests if test in cell.seconds)
        if tests:
            code, output = cell.pytest(ROOT / ".dev", tests, 3600)
            print("\nwithout a change, the %d tests of %s that saw one: %s" % (
                len(tests), cell.name, "all pass" if code == 0 else output[-3000:]))
            result = max(result, int(code != 0))
    return result


def report(areas, outcomes):
    """Prints the table and the survivors. Returns the exit code: 1 if one lived."""
    print("\n%-14s %8s %6s %6s %10s %8s" % ("area", "mutants", "died", "lived", "equivalent", "not run"))
    counts = {area: collections.Counter(outcome.status for each, outcome in outcomes if each == area) for area in areas}
    counts["all"] = sum(counts.values(), collections.Counter())
    for area, count in counts.items():
        print("%-14s %8d %6d %6d %10d %8d" % (area, sum(count.values()), count[DIED], count[LIVED], count[SAME],
                                              count[UNSEEN]))
    survivors = [outcome.mutant for _, outcome in outcomes if outcome.status in (LIVED, UNSEEN)]
    for mutant in sorted(survivors, key=lambda mutant: mutant[:3]):
        print("\n%s:%d\n  %s\n  %s -> %s" % (mutant.path, mutant.line, source_line(mutant), mutant.old,
                                             mutant.new or "nothing"))
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
