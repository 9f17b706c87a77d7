"""Prints one table of what was done to find faults, and what became of it.

    python3 tests/fault_table.py --cell py313-numpy --cell py39-tf2.10
    python3 tests/fault_table.py --cell py312-tf2.16 --kind fuzz --kind kills --files 2000 --moments 30

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
one of the tests could not run. A line is printed as soon as it is known. Needs Python 3.8.
"""
import argparse
import os
import pathlib
import re
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
ROW = "%-12s %-22s %9s %9s %7s %8s  %s"
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
    """Returns (done, faults, what to say) of files that are damaged."""
    code, output = output_of(python, cell, "tests/fuzz.py", "--files", str(options.files))
    rows = [line.strip("| ").split(" | ") for line in output.splitlines() if line.startswith("| ")]
    if not rows:
        return 0, 1, last(output)
    names, counts = rows[0], rows[1:]
    kinds = {name: sum(int(row[place]) for row in counts) for place, name in enumerate(names)
             if name not in ("format", "peak MB")}
    done = kinds.pop("files")
    return done, int(code != 0), ", ".join("%d %s" % (count, kind) for kind, count in kinds.items() if count)


def killed(python, cell, options):
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cell", action="append", required=True, help="may be repeated")
    parser.add_argument("--kind", action="append", choices=KINDS, help="by default all; may be repeated")
    parser.add_argument("--files", type=int, default=200, help="damaged files of each format (%(default)s)")
    parser.add_argument("--moments", type=int, default=10, help="lines at which each writer is killed (%(default)s)")
    parser.add_argument("--environments", type=pathlib.Path, default=ROOT / ".tox", metavar="FOLDER")
    parser.add_argument("--outcomes", type=pathlib.Path, default=ROOT / ".tox" / "mutate", metavar="FOLDER",
                        help="of tests/mutate.py")
    options = parser.parse_args()
    kinds, totals, result = options.kind or KINDS, {}, 0

    def row(kind, cell, done, faults, start, say):
        print(ROW % (kind, cell, done, done - faults if done else "", faults,
                     "%.0f" % (time.time() - start) if start else "", say), flush=True)

    print(ROW % ("KIND", "CELL", "DONE", "HELD", "FAULTS", "SECONDS", ""))
    for kind in kinds:
        for cell in options.cell if kind != "mutants" else ["listed"]:
            python, start = str(options.environments / cell / "bin" / "python"), time.time()
            if kind == "mutants":
                found = judged(options.outcomes)
            elif not os.path.exists(python):
                found = 0, 1, "no environment %s" % python
            else:
                found = (fuzzed(python, cell, options) if kind == "fuzz" else
                         killed(python, cell, options) if kind == "kills" else tested(python, cell, kind))
            done, faults, say = found
            row(kind, cell, done, faults, start, say)
            total = totals.get(kind, (0, 0))
            totals[kind] = total[0] + done, total[1] + faults
            result = result or int(faults > 0)
    print()
    for kind, (done, faults) in totals.items():
        row(kind, "all cells", done, faults, None, "")
    return result


if __name__ == "__main__":
    sys.exit(main())
