"""Prints one table of what was done to find faults, and what became of it.

    python3 tests/fault_table.py --cell py313-numpy --cell py39-tf2.10
    python3 tests/fault_table.py --cell py312-tf2.16 --kind fuzz --kind kills --files 2000 --moments 30
    python3 tests/fault_table.py --cell py39-tf2.10 --page docs/records/faults.md

    kind         one of them is                                                      its fault is
    fuzz         a damaged file that a reader gets (tests/fuzz.py)                   not our error, a hang, a crash
    kills        a writer that is killed, or meets a full disk                       a file neither old nor new
    threads      a test of threads, forked processes and workers                     a failed test
    wrong calls  a call with wrong arguments, and the next step after it             a failed test
    members      a member of a native optimizer, beside stock's                      a failed test
    hooks        a hook that a subclass replaces, beside stock's                     a failed test
    files        a file of other people, of stock, or of an older everstep           a failed test
    mutants      a changed line of shipped code, as tests/mutate.py judged it        a change that no test sees

Cells run one after another in the environments that `python3 matrix/run.py --keep --cell NAME` made. Mutants are only
read, for they take hours: run `python3 tests/mutate.py --list` first. The exit code is 1 if a kind has a fault, or if
one of the tests could not run. Lines are printed as soon as they are known. `--page` writes them to a page, too. There
they replace those of the same kind and cell. The others stay, so several runs make one page. Needs Python 3.8.
"""
import argparse
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TESTS = {  # {kind: (files of tests, pytest's -k)}
    "threads": ("test_files_hostile.py test_periods.py test_tf_train.py test_distribution.py test_asynchronous.py",
                "thread or fork or worker or asynchronous or concurrent"),
    "wrong calls": ("test_calls.py test_failed_calls.py test_torch_calls.py test_on_lists.py", ""),
    "members": ("test_members.py", ""),
    "hooks": ("test_hooks.py", ""),
    "files": ("test_people_files.py test_real_files.py test_real_checkpoints.py test_stock_files.py "
              "test_old_files.py", ""),
}
KINDS = ("fuzz", "kills") + tuple(TESTS) + ("mutants",)
ROW = "%-16s %-22s %9s %9s %7s %8s  %s"
COLUMNS = ("kind", "cell", "done", "held", "faults", "seconds", "what")
PAGE = """# What was done to find faults

Damaged files, killed writers, threads, wrong calls, members, hooks, and files of other people, in cells of the test
matrix. These commands made the page; [its file](../../tests/fault_table.py) says what each kind is, and what counts as
its fault:

<!-- not run: it takes an hour and more -->
```sh
{commands}
```

Of a damaged file, *held* means that reading it gave an error of everstep, or the right values, within 512 MB and 20
seconds of the processor. A crash or hang inside of the HDF5 library is counted as held and named:
[no Python code can prevent it](../files.md#what-a-file-does-not-say). `fuzz none` are files of no known format, such as
pickles: all have to be refused, and none may run.

| kind | cell | done | held | faults | seconds | |
| --- | --- | ---: | ---: | ---: | ---: | --- |
{rows}

| kind, in all cells | done | faults |
| --- | ---: | ---: |
{totals}
"""
NO_TESTS = 5  # pytest's exit code


def environment_of(cell):
    """Returns the environment variables of a cell, without those of the user that choose tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EVERSTEP_")}
    backend = next((each for each in ("jax", "torch") if each in cell), "tensorflow")
    return dict(kept, EVERSTEP_CELL=cell, EVERSTEP_FULL="1", KERAS_BACKEND=backend, TF_CPP_MIN_LOG_LEVEL="3",
                PYTHONPATH=str(ROOT / ".dev"), **{name: os.environ[name] for name in ("EVERSTEP_REAL_FILES",)
                                                  if name in os.environ})


def output_of(python, cell, *arguments):
    """Returns (exit code, output) of a Python in a cell."""
    process = subprocess.run([python, *arguments], cwd=ROOT, env=environment_of(cell), text=True, errors="replace",
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return process.returncode, process.stdout


def fuzzed(python, cell, options):
    """Yields (kind, done, faults, what to say, seconds) of the damaged files of each format."""
    code, output = output_of(python, cell, "tests/fuzz.py", "--seed", str(options.seed), "--files", str(options.files),
                             "--workers", str(options.workers), *(["--keep", options.keep] if options.keep else []))
    rows = [line.strip("| ").split(" | ") for line in output.splitlines() if line.startswith("| ")]
    if not rows:
        yield "fuzz", 0, 1, last(output), 0
    for row in rows[1:]:
        counts = dict(zip(rows[0][1:], map(int, row[1:])))
        done, peak, seconds = counts.pop("files"), counts.pop("peak MB"), counts.pop("seconds")
        held = sum(counts.get(kind, 0) for kind in ("read", "refused", "crash in library", "hang in library"))
        said = ", ".join("%d %s" % (count, kind) for kind, count in counts.items() if count)
        yield "fuzz " + row[0], done, done - held, "%s; at most %d MB" % (said, peak), seconds
    if code not in (0, 1):
        yield "fuzz", 0, 1, last(output), 0


def killed(python, cell, options):
    """Returns (done, faults, what to say) of writers that are killed."""
    code, output = output_of(python, cell, "tests/fuzz.py", "--kill", "--moments", str(options.moments))
    rows = re.findall(r"^(\S+) +killed at (\d+) lines, (\d+) times at random, (\d+) full disks", output, re.M)
    done = sum(int(count) for row in rows for count in row[1:])
    lines = output.strip().splitlines()
    return done, 0 if code == 0 else max(len(lines) - len(rows), 1), "writers: " + ", ".join(row[0] for row in rows)


def tested(python, cell, kind):
    """Returns (done, faults, what to say) of tests."""
    files, chosen = TESTS[kind]
    code, output = output_of(python, cell, "-m", "pytest", "-q", "-p", "no:cacheprovider",
                             *["tests/" + name for name in files.split()], *(["-k", chosen] if chosen else []))
    counts = {what: int(number) for number, what in re.findall(r"(\d+) (passed|failed|errors?|skipped)", last(output))}
    faults = sum(counts.get(what, 0) for what in ("failed", "error", "errors"))
    done = counts.get("passed", 0) + faults
    left_out = "%d left out: not of this cell" % counts["skipped"] if counts.get("skipped") else ""
    return done, faults or int(code not in (0, NO_TESTS)), left_out if code in (0, NO_TESTS) else last(output)


def judged(folder):
    """Returns (done, faults, what to say) of the mutants that tests/mutate.py judged in the last state of the code."""
    sys.path.insert(0, str(ROOT / "tests"))
    import mutate

    if not (folder / "outcomes.jsonl").exists():
        return 0, 0, "none judged here: python3 tests/mutate.py --list"
    outcomes, (known, _) = mutate.Outcomes(folder / "outcomes.jsonl"), mutate.Finder().equivalents()
    same = {mutate.name_of(mutant) for mutant in known}
    status = [mutate.SAME if name in same and outcomes.status(name) != mutate.DIED else outcomes.status(name)
              for name in outcomes.found]
    counts = {each: status.count(each) for each in dict.fromkeys(status)}
    said = ", ".join("%d %s" % (count, name) for name, count in counts.items())
    return len(status), counts.get(mutate.LIVED, 0), said


def last(output):
    """Returns pytest's last line with counts, or else the last line."""
    lines = [line for line in output.strip().splitlines() if line.strip()] or ["no output"]
    return next((line.strip() for line in reversed(lines) if re.search(r"\d+ (passed|failed|skipped|error)", line)),
                lines[-1].strip())


def read_page(path):
    """Returns ([command], {(kind, cell): row}) of a page."""
    text = path.read_text(encoding="utf-8") if path and path.exists() else ""
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")]
    rows = [[each.strip() for each in row] for row in rows if len(row) == len(COLUMNS)]
    commands = [line for line in text.splitlines() if line.startswith("python3 tests/fault_table.py")]
    return commands, {tuple(row[:2]): row for row in rows if row[2].isdigit()}


def write_page(path, commands, rows):
    order = {kind: number for number, kind in enumerate(KINDS)}
    rows = sorted(rows.values(), key=lambda row: next(order[kind] for kind in KINDS if row[0].startswith(kind)))
    lines = ["| %s |" % " | ".join(row) for row in rows]
    totals = ["| %s | %d | %d |" % total for total in totals_of(rows)]
    path.write_text(PAGE.format(commands="\n".join(commands), rows="\n".join(lines), totals="\n".join(totals)),
                    encoding="utf-8")


def totals_of(rows):
    """Returns [(kind, done, faults)] of all cells; the formats of damaged files are one kind."""
    totals = {}
    for kind, _, done, _, faults in (row[:5] for row in rows):
        kind = next(each for each in KINDS if kind.startswith(each))
        before = totals.get(kind, (0, 0))
        totals[kind] = before[0] + int(done), before[1] + int(faults)
    return [(kind,) + each for kind, each in totals.items()]


def found_in(kind, cell, options):
    """Yields (kind, done, faults, what to say, seconds) of a cell."""
    python, start = str(options.environments / cell / "bin" / "python"), time.time()
    if kind == "fuzz" and os.path.exists(python):
        yield from fuzzed(python, cell, options)
        return
    if kind == "mutants":
        found = judged(options.outcomes)
    elif not os.path.exists(python):
        found = 0, 1, "no environment %s" % python
    else:
        found = killed(python, cell, options) if kind == "kills" else tested(python, cell, kind)
    yield (kind,) + found + (time.time() - start,)


def command_of(options):
    """Returns the command that makes the same rows; where the environments are is of no interest."""
    words = ["python3 tests/fault_table.py"]
    for name in ("cell", "kind", "seed", "files", "moments"):
        given = getattr(options, name)
        words += ["--%s %s" % (name, shlex.quote(str(each))) for each in (given if isinstance(given, list) else [given])
                  if each is not None]
    return " ".join(words)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cell", action="append", required=True, help="may be repeated")
    parser.add_argument("--kind", action="append", choices=KINDS, help="by default all; may be repeated")
    parser.add_argument("--files", type=int, default=200, help="damaged files of each format (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the damaged files (%(default)s)")
    parser.add_argument("--workers", type=int, default=1, help="processes that read damaged files (%(default)s)")
    parser.add_argument("--keep", metavar="FOLDER", help="for the damaged files that make trouble")
    parser.add_argument("--moments", type=int, default=10, help="lines at which each writer is killed (%(default)s)")
    parser.add_argument("--environments", type=pathlib.Path, default=ROOT / ".tox", metavar="FOLDER")
    parser.add_argument("--outcomes", type=pathlib.Path, default=ROOT / ".tox" / "mutate", metavar="FOLDER",
                        help="of tests/mutate.py")
    parser.add_argument("--page", type=pathlib.Path, metavar="FILE", help="write the table to this page, too")
    options = parser.parse_args()
    commands, kept = read_page(options.page)
    commands, rows = list(dict.fromkeys(commands + [command_of(options)])), []

    print(ROW % tuple(each.upper() for each in COLUMNS))
    for kind in options.kind or KINDS:
        for cell in options.cell if kind != "mutants" else ["listed"]:
            for name, done, faults, said, seconds in found_in(kind, cell, options):
                rows.append([name, cell, str(done), str(done - faults if done else 0), str(faults),
                             "%.0f" % seconds, said])
                print(ROW % tuple(rows[-1]), flush=True)
                kept[name, cell] = rows[-1]
            if options.page:
                write_page(options.page, commands, kept)
    print()
    totals = totals_of(rows)
    for kind, done, faults in totals:
        print(ROW % (kind, "all cells", done, done - faults if done else 0, faults, "", ""))
    return int(any(faults for _, _, faults in totals))


if __name__ == "__main__":
    sys.exit(main())
