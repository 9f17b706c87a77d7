"""Runs the matrix: python3 matrix/run.py

Needs only Python 3.8 or newer with pip. api/matrix_kit/tox_runner.py runs the cells. It writes only below .tox/ and, so
that the next run knows how long each cell takes, into a file in the user's cache (history.py). With --full this writes
what each cell showed into matrix/record/ too, as soon as the cell ends.
"""
import argparse
import glob
import os
import re
import subprocess
import sys
import time
import zlib

if sys.version_info < (3, 8):  # here, because older Pythons cannot read what is imported next
    sys.exit("matrix/run.py needs Python 3.8 or newer to drive the matrix; this is %s" % sys.version.split()[0])

import cells  # noqa: E402
import history  # noqa: E402
import proof  # noqa: E402
import touched  # noqa: E402
import tox_runner  # noqa: E402
import tox_screen  # noqa: E402

USUAL = 600  # seconds of a cell that never ran
ENVIRONMENT = 60  # seconds of a cell before its tests, where its last run is not known


class OurMatrix(tox_runner.Matrix):
    """The cells of everstep.

    Args:
        seconds: {cell: those that it takes}.
        shown: what proof.json says.
        record: (hash of the tracked files, commit) of what the cells show; None to record nothing.
        start: when the run began, in seconds.
        files: {cell: its arguments for pytest} of --touched.
    """

    def __init__(self, options, seconds, shown, record, start, files=()):
        super().__init__(cells.ROOT, options, "everstep", tox_screen.Screen())
        self.seconds, self.shown, self.record, self.files = seconds, shown, record, dict(files)
        self.rotation_ends = start + options.rotate * 60 if options.rotate else None
        self.no_time = "the %g minutes that --rotate gives" % options.rotate if options.rotate else None
        if options.touched:
            self.good_codes = (0, 5)  # 5: none of these files has a test for this cell, or for its part

    def order(self, cells):
        asked = [cell for cell in cells if self.ends(cell) is None]
        return in_order(asked, self.usual) + [cell for cell in cells if self.ends(cell) is not None]

    def ends(self, cell):
        return self.rotation_ends if cell.group != "quick" else None

    def usual(self, cell):
        return self.seconds[cell.name]

    def arguments(self, cell):
        return self.files.get(cell.name, self.options.pytest)

    def ended(self, result):
        if self.record is None or proof.tree() != self.record[0]:
            return
        values = proof.entry(result, self.results, *self.record)
        history.write(result.cell.name, dict(
            {key: values[key] for key in ("when", "commit", "seconds", "passed", "failed")},
            files=history.seconds_of_files(os.path.join(self.results, result.cell.name + ".xml"))))
        if self.options.full:
            self.shown[result.cell.name] = values
            proof.write(self.shown)


def main():
    options = _options()
    start = time.time()
    shown, past = proof.read(), history.read()
    chosen = _chosen(options, shown, past)
    seconds = {name: history.seconds(name, past, shown) or (USUAL if cell.kind == "framework" else ENVIRONMENT)
               for name, cell in cells.read().items()}
    files = {}
    if not (options.full or options.cell or options.touched):
        os.environ["EVERSTEP_FIFTH"] = _fifth()
    if options.touched:
        since = touched.base() if options.touched is True else options.touched
        paths = touched.files(since)
        chosen = [cell for cell in chosen if _of_cell(cell, paths)]
        print("test files touched since %s (%d): %s" % (since[:12], len(paths), ", ".join(paths) or "nothing to run"))
        if not chosen:
            return 0
        for cell in chosen:
            if cell.group != "clients":  # they run whole
                files[cell.name] = options.pytest + _of_cell(cell, paths)
                seconds[cell.name] = _seconds_of(_of_cell(cell, paths), past.get(cell.name, {}), seconds[cell.name])
    return OurMatrix(options, seconds, shown, _record(options), start, files).run(chosen)


def _options():
    parser = argparse.ArgumentParser(description="Test everstep with every Python, TensorFlow and Keras of the matrix.")
    parser.add_argument("--full", action="store_true",
                        help="all cells of cells.ini, not only the quick ones; renews matrix/record/proof.json")
    parser.add_argument("--resume", action="store_true",
                        help="without the cells that matrix/record/proof.json shows as green for the same files")
    parser.add_argument("--shard", type=_shard, default=(1, 1), metavar="K/N", help="the Kth of N parts of the cells")
    parser.add_argument("--rotate", type=float, metavar="MINUTES",
                        help="then the other cells, the one that ran longest ago first, as long as all ends within "
                             "MINUTES; the number of commits chooses among those of one day")
    parser.add_argument("--cell", action="append", metavar="NAME",
                        help="this cell alone; * is any text; may be repeated")
    parser.add_argument("--touched", nargs="?", const=True, metavar="BASE",
                        help="only the test files that changed since the commit BASE, or import a helper that did, in "
                             "every cell that collects them, quick or not; BASE is by default where this branch left "
                             "origin/main, on origin/main itself the commit before")
    tox_runner.add_options(parser)
    options = parser.parse_args()
    if options.touched and (options.full or options.resume or options.rotate):
        parser.error("--touched goes with --cell and --shard, not with --full, --resume or --rotate")
    return options


def _fifth():
    """Returns which fifth of the shared cases the quick cells run: 0 to 4; nothing, which is all, outside of git."""
    try:
        return str(proof.commits() % 5)
    except (OSError, subprocess.CalledProcessError):
        return ""


def _record(options):
    """Returns (hash of the tracked files, commit) of what the cells show; None if nothing is recorded."""
    try:
        commit = proof.commit()
    except (OSError, subprocess.CalledProcessError):
        commit = None
    partly = options.pytest or options.touched
    if not partly and commit is not None:
        return proof.tree(), commit
    if options.full:
        print("matrix/record/proof.json stays as it is: "
              + ("pytest has arguments" if partly else "tracked files have changed since the last commit"))
    return None


def _shard(text):
    """Returns (2, 5) for "2/5"."""
    match = re.match(r"(\d+)/(\d+)\Z", text)
    shard = tuple(map(int, match.groups())) if match else (0, 0)
    if not 1 <= shard[0] <= shard[1]:
        raise argparse.ArgumentTypeError("%r is not like 2/5" % text)
    return shard


def _chosen(options, shown, past):
    """Returns the cells to run; those that --rotate adds come last."""
    table = cells.read()
    for pattern in options.cell or []:
        if not any(cells.matches(pattern, name) for name in table):
            sys.exit("there is no cell %s; api/matrix_kit/cells.ini has %s" % (pattern, ", ".join(table)))
    part, parts = options.shard
    if options.cell:
        chosen = [cell for cell in table.values() if any(cells.matches(name, cell.name) for name in options.cell)]
    else:
        chosen = [cell for cell in table.values() if options.full or options.touched or cell.group == "quick"]
    chosen = chosen[part - 1 :: parts]
    if options.resume:
        tree = proof.tree()
        chosen = [cell for cell in chosen if not proof.is_green(shown.get(cell.name), tree)]
    if options.rotate:
        others = [cell for cell in table.values() if cell.group != "quick" and cell not in chosen]
        chosen += by_age(others, shown, past, proof.commits())
    return chosen


def by_age(others, shown, past, commits):
    """Returns cells, the one whose proof is oldest first; the number of commits shuffles those of one day."""
    return sorted(others, key=lambda cell: (history.proven(cell.name, past, shown),
                                            zlib.crc32(b"%d %s" % (commits, cell.name.encode()))))


def in_order(chosen, seconds):
    """Returns the quickest cell of each API, the quickest first; then the others, the longest first.

    So results come soon, and no long cell runs alone at the end.

    Args:
        seconds: returns those that a cell takes.
    """
    first = {}
    for cell in sorted(chosen, key=seconds):
        if cell.group == "quick":
            first.setdefault(cells.api(cell), cell)
    first = list(first.values())
    return first + sorted((cell for cell in chosen if cell not in first), key=seconds, reverse=True)


def _of_cell(cell, paths):
    """Returns those of some test files that a cell collects."""
    if cell.runs_tools:
        return []
    return [path for path in paths
            if (path in cell.tests.split() if cell.group == "clients" else not path.startswith("tests/clients/"))]


def _seconds_of(paths, last, seconds):
    """Returns about how long some test files take in a cell.

    Args:
        last: what the history says of its last run, which knows the seconds of each file; or nothing.
        seconds: those of all its files and of its environment.
    """
    files = last.get("files")
    if not files:  # as if all files took as long
        return ENVIRONMENT + seconds * len(paths) // len(glob.glob(os.path.join(touched.TESTS, "test_*.py")))
    names = {os.path.basename(path)[: -len(".py")] for path in paths}
    return seconds - sum(value for name, value in files.items() if name not in names)


if __name__ == "__main__":
    sys.exit(main())
