"""Writes matrix/record/battery.md, stock.md and grid.md from the measurements of a run in .tox/results/.

Run it after `python matrix/run.py` (or with EVERSTEP_FULL=1 for every combination): python matrix/report.py
"""
import json
import os

import cells

ROOT = os.path.dirname(cells.HERE)
RESULTS = os.path.join(ROOT, ".tox", "results")
CASES = (
    ["dense", "unique", "duplicates", "accumulated"]
    + ["rate set", "schedule", "float64", "float16", "1M elements"]
)
HEAD = """# Results of the battery

Generated: do not edit; run the matrix, then `python matrix/report.py`. Largest `max|difference| / max|expected|` of any
variable or slot from the float64 oracle, after 100 steps; bounds in docs/numbers.md. Empty: no cell ran it. proof.svg
draws them by cell.
"""
KINDS = ("dense", "unique", "duplicates")
APART = ("stock, apart", "migrated, apart")
STOCK = """# Differences between `from_native` and stock

Generated: do not edit; run the matrix, then `python matrix/report.py`. Largest `max|difference| / max|expected|` of any
variable after 100 steps, over all cells: `everstep.from_native(stock)`, bound to the same API, compared with the stock
optimizer itself. Every difference above 4e-6 is stock's own fault; docs/from_native.md explains each.
"""
GRID = """# Differences of runs that one API began and another continued

Generated: do not edit; run the matrix, then `python matrix/report.py`. Rows: the API that trained 50 steps and wrote
`everstep.capture`'s state. Columns: the way that trained the other 50. Largest `max|difference| / max|expected|` of any
variable, definition and cell, from 100 uninterrupted steps of the writer; 0 is bit for bit. tests/test_grid.py limits
each to 1e-5, and to twice the difference between the two APIs' uninterrupted runs.
"""
GRID_COLUMNS = ("continued", "uninterrupted")
MIGRATED = "largest of any cell, on another API: the stock optimizer of that name, and the migrated definition"


def measured():
    """Returns {cell: {(way, definition): {case: value}}} of the cells that have run."""
    rows = {}
    for cell in cells.read():
        path = os.path.join(RESULTS, cell + ".json")
        if os.path.exists(path):
            with open(path) as file:
                for definition, way, case, value in json.load(file):
                    rows.setdefault(cell, {}).setdefault((way, definition), {})[case] = value
    return rows


def distances():
    """Returns {(way, stock optimizer): {kind of gradients: largest of any cell}}."""
    rows = {}
    for cell in cells.read():
        path = os.path.join(RESULTS, cell + ".stock.json")
        if os.path.exists(path):
            with open(path) as file:
                for name, way, kind, far in json.load(file):
                    row = rows.setdefault((way, name), {})
                    row[kind] = max(far, row.get(kind, 0))
    return rows


def migrations():
    """Returns {(from, to, stock optimizer): {"stock, apart" or "migrated, apart": largest of any cell}}."""
    rows = {}
    for cell in cells.read():
        path = os.path.join(RESULTS, cell + ".migration.json")
        if os.path.exists(path):
            with open(path) as file:
                for name, first, second, apart, far in json.load(file):
                    row = rows.setdefault((first, second, name), {})
                    for column, value in zip(APART, (apart, far)):
                        if value is not None:
                            row[column] = max(value, row.get(column, 0))
    return rows


def continued():
    """Returns ({writer: {way: largest}}, {definition: {column: largest}}) of the runs of tests/test_grid.py."""
    grid, definitions = {}, {}
    for cell in cells.read():
        path = os.path.join(RESULTS, cell + ".grid.json")
        if os.path.exists(path):
            with open(path) as file:
                for writer, way, definition, far, apart, _ in json.load(file):
                    row = grid.setdefault((writer,), {})
                    row[way] = max(far, row.get(way, 0))
                    row = definitions.setdefault((definition,), {})
                    for column, value in zip(GRID_COLUMNS, (far, apart)):
                        row[column] = max(value, row.get(column, 0))
    return grid, definitions


def largest(results, column):
    """Returns {(way or definition, number of cells): {case: value}}, the largest of any cell; column 0 is the way."""
    rows = {}
    for cell, measurements in results.items():
        for key, values in measurements.items():
            row, ran = rows.setdefault(key[column], ({}, set()))
            ran.add(cell)
            for case, value in values.items():
                row[case] = max(value, row.get(case, 0))
    return {(key, str(len(ran))): row for key, (row, ran) in rows.items()}


def tables(results):
    yield from table("largest of any definition", ("way", "cells"), largest(results, 0))
    yield from table("largest of any way", ("definition", "cells"), largest(results, 1))


def table(title, keys, rows, columns=CASES):
    yield "\n## {}\n".format(title)
    yield "| {} |".format(" | ".join(keys + tuple(columns)))
    yield "|{}{}".format(" --- |" * len(keys), " ---: |" * len(columns))
    for key, values in sorted(rows.items()):
        shown = ("{:.1e}".format(values[case]) if case in values else "" for case in columns)
        yield "| {} |".format(" | ".join(key + tuple(shown))).replace("0.0e+00", "0")


if __name__ == "__main__":
    with open(os.path.join(cells.RECORD, "battery.md"), "w") as file:
        file.write("\n".join([HEAD] + list(tables(measured()))) + "\n")
    with open(os.path.join(cells.RECORD, "stock.md"), "w") as file:
        rows = list(table("largest of any cell", ("way", "stock optimizer"), distances(), KINDS))
        rows.extend(table(MIGRATED, ("from", "to", "stock optimizer"), migrations(), APART))
        file.write("\n".join([STOCK] + rows) + "\n")
    with open(os.path.join(cells.RECORD, "grid.md"), "w") as file:
        grid, definitions = continued()
        ways = sorted({way for row in grid.values() for way in row})
        rows = list(table("largest of any definition and cell", ("writer",), grid, ways))
        rows.extend(table("largest of any writer, reader and cell", ("definition",), definitions, GRID_COLUMNS))
        file.write("\n".join([GRID] + rows) + "\n")
