"""Runs the matrix: python3 matrix/run.py

Needs only Python 3.8 or newer with pip. api/matrix_kit/tox_runner.py runs the cells. It writes only below .tox/; with
--full this writes what each cell showed into matrix/proof.json and proof.md too, as soon as the cell ends.
"""
import argparse
import re
import sys
import time

import cells
import proof
import tox_runner

SHARDS = 10  # of the cells that are not quick: as many runs with --rotate have all of them
USUAL = 600  # seconds of a cell that never ran


class OurMatrix(tox_runner.Matrix):
    """The cells of everstep.

    Args:
        shown: what proof.json says.
        record: the hash of the tracked files and the commit to write there; None to write nothing.
        start: when the run began, in seconds.
    """

    def __init__(self, options, shown, record, start):
        super().__init__(cells.ROOT, options, "everstep")
        self.shown, self.record = shown, record
        self.rotation_ends = start + options.rotate * 60 if options.rotate else None
        self.no_time = "the %g minutes that --rotate gives" % options.rotate if options.rotate else None

    def order(self, cells):
        return _longest_first(cells, self.shown)

    def ends(self, cell):
        return self.rotation_ends if cell.group != "quick" else None

    def usual(self, cell):
        return _usual(cell, self.shown)

    def ended(self, result):
        if self.record and proof.tree() == self.record[0]:
            self.shown[result.cell.name] = proof.entry(result, self.results, *self.record)
            proof.write(self.shown)


def main():
    options = _options()
    start = time.time()
    shown = proof.read()
    chosen = _chosen(options, shown)
    record = _record(options)
    return OurMatrix(options, shown, record, start).run(chosen)


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
    tox_runner.add_options(parser)
    return parser.parse_args()


def _record(options):
    """Returns (hash of the tracked files, commit) to write into proof.json; None if nothing is written there."""
    if not options.full:
        return None
    commit = proof.commit()
    if options.pytest or commit is None:
        why = "pytest has arguments" if options.pytest else "tracked files have changed since the last commit"
        tox_runner.say("matrix/proof.json stays as it is: " + why)
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
            sys.exit("there is no cell %s; api/matrix_kit/cells.ini has %s" % (pattern, ", ".join(table)))
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


if __name__ == "__main__":
    if sys.version_info < (3, 8):
        sys.exit("matrix/run.py needs Python 3.8 or newer to drive the matrix; this is %s" % sys.version.split()[0])
    sys.exit(main())
