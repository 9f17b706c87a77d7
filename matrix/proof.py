"""What every cell of the matrix showed when it last ran: proof.json, proof.md for people, and proof.svg, a map of it.

They are in matrix/record/. `matrix/run.py --full` renews all after each cell. To write the others again from
proof.json, also the short form that is installed, api/matrix_kit/proven.json: python matrix/proof.py. With a folder of
environments that runs kept, it adds versions of packages that cells do not pin: python matrix/proof.py .tox
"""
import collections
import hashlib
import itertools
import json
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree

import cells
import parity_map
import tox_runner

ROOT = cells.ROOT
JSON, PAGE, PICTURE = (os.path.join(cells.RECORD, "proof." + ending) for ending in ("json", "md", "svg"))
SHORT = os.path.join(cells.KIT, "proven.json")  # what `everstep matrix list` and `pins` print of it
UNIT, NONE = 1e-7, "-"  # of the figures in proof.json, most of which are then three characters; where there is none
IN_SHORT = ("when", "commit", "passed", "failed", "skipped", "versions")
GENERATED = ("matrix/record/", "api/matrix_kit/proven.json")  # these differ after a run, so no result depends on them
HEAD = """# The proof: what each cell showed when it last ran

Generated: do not edit; run `python3 matrix/run.py --full --resume`, which goes on where the last run ended.

A cell is green if nothing failed. The lines need not be of one commit: all cells together take hours. `proof.json` has
the same, and for each definition and kind of gradients the largest difference from the float64 oracle.
"""
ABOUT = ("Generated: do not edit; matrix/proof.py reads and writes it. skips: {number of tests: places in reasons}. "
         "clients: client, versions, and a row of client_columns for each training. worst: for each of definitions the "
         "largest difference of each of kinds from the oracle, in 1e-7.")
COLUMNS = ("cell", "versions as imported", "when (UTC)", "commit", "passed", "failed", "skipped", "min")
CLIENT_COLUMNS = ("client", "versions", "trained", "steps", "losses", "own losses", "weights", "own weights",
                  "saved and resumed")
CLIENT_FIELDS = ("client", "versions", "trained", "steps", "losses", "own_losses", "weights", "own_weights", "saved")
CLIENTS = """
## Other people's code

Programs that nobody here wrote, each trained with its own optimizer and with ours. Figures: the largest
`max|difference| / max|own|` between the client's own optimizer and ours; "own": between two runs of its own.
"""
SKIPS = """
## Why tests were skipped

| reason | cells | tests |
|---|---:|---:|
"""


def tree():
    """Returns a hash of all tracked files but the generated ones, as they are now."""
    digest = hashlib.sha256()
    for path in _git("ls-files", "-z").split("\0"):
        full = os.path.join(ROOT, path)
        if path and not path.startswith(GENERATED) and os.path.isfile(full):
            with open(full, "rb") as file:
                digest.update(("%s\0%s\0" % (path, hashlib.sha256(file.read()).hexdigest())).encode())
    return digest.hexdigest()[:16]


def commit():
    """Returns the commit that the tracked files are of; None if they were changed since."""
    changed = [line[3:] for line in _git("status", "--porcelain", "--untracked-files=no").splitlines()]
    return None if any(not path.startswith(GENERATED) for path in changed) else _git("rev-parse", "HEAD").strip()


def commits():
    """Returns how many commits there are."""
    return int(_git("rev-list", "--count", "HEAD"))


def _git(*arguments):
    return subprocess.run(("git",) + arguments, cwd=ROOT, check=True, stdout=subprocess.PIPE,
                          universal_newlines=True).stdout


def read():
    """Returns {cell: what it showed}, of cells that still are."""
    if not os.path.exists(JSON):
        return {}
    with open(JSON) as file:
        stored = json.load(file)
    return {name: _unpacked(stored, name) for name in cells.read() if name in stored["cells"]}


def _unpacked(stored, name):
    """Returns the `entry` of a cell in proof.json."""
    values = stored["cells"][name]
    skips = sorted((stored["reasons"][place], int(count)) for count, places in values["skips"].items()
                   for place in places)
    worst = {definition: {kind: float("%.1e" % (float(figure) * UNIT))
                          for kind, figure in zip(stored["kinds"], figures.split()) if figure != NONE}
             for definition, figures in zip(stored["definitions"], values["worst"]) if figures}
    clients = [dict(zip(stored["client_columns"], row), client=client, versions=versions)
               for client, versions, *rows in values["clients"] for row in rows]
    return dict(values, skips=dict(skips), clients=clients, worst=worst)


def is_green(values, tree):
    """Returns whether a cell showed no failure with the same files."""
    return values is not None and values["tree"] == tree and not values["failed"]


def entry(result, results, tree, commit):
    """Returns what a cell showed.

    Args:
        result: its `run.Result`.
        results: the folder of what its tests wrote.
    """
    path = os.path.join(results, result.cell.name)
    return collections.OrderedDict([
        ("commit", commit[:12]), ("tree", tree), ("when", time.strftime("%Y-%m-%d %H:%M", time.gmtime())),
        ("passed", result.passed), ("failed", result.failed or int(not result.is_green)), ("skipped", result.skipped),
        ("seconds", int(result.seconds)), ("versions", result.versions), ("skips", _skips(path + ".xml")),
        ("clients", _loaded(path + ".clients.json")), ("worst", _worst(path + ".json", path + ".wrappers.json")),
    ])


def _loaded(path):
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return json.load(file)


def _worst(*paths):
    """Returns {definition: {kind: the largest difference of any configuration and way}}."""
    worst = {}
    for label, _, kind, far in [row for path in paths for row in _loaded(path)]:
        row = worst.setdefault(label.split(" ")[0], {})
        row[kind] = max(float("%.1e" % far), row.get(kind, 0.0))
    return {name: worst[name] for name in sorted(worst)}


def _skips(path):
    """Returns {reason: number of tests}."""
    if not os.path.exists(path):
        return {}
    skipped = xml.etree.ElementTree.parse(path).getroot().iter("skipped")
    return dict(sorted(collections.Counter(_general(each.get("message", "")) for each in skipped).items()))


def _general(reason):
    """Returns a reason on one line, without what differs from run to run: the object's address, the place in a file."""
    reason = re.sub(r"\s+", " ", re.sub(r" at 0x[0-9a-f]+", "", reason.replace(ROOT + os.sep, ""))).strip()
    empty = re.match(r"(got empty parameter set) \[(.*?)\], function", reason)  # pytest 9 says it like this
    return "%s for (%s)" % (empty.group(1), empty.group(2).replace("'", "")) if empty else reason


def write(shown):
    """Writes proof.json and the files made of it."""
    shown = {name: shown[name] for name in cells.read() if name in shown}
    _replace(JSON, text(shown))
    _replace(PAGE, "\n".join(page(shown)) + "\n")
    _replace(PICTURE, parity_map.picture(shown))
    _replace(SHORT, short(shown))


def text(shown):
    """Returns proof.json: what cells share is in it once, and each definition and client has a line to compare."""
    reasons = sorted({reason for values in shown.values() for reason in values["skips"]})
    definitions = sorted({name for values in shown.values() for name in values["worst"]})
    kinds = sorted({kind for values in shown.values() for figures in values["worst"].values() for kind in figures},
                   key=lambda kind: ((parity_map.KINDS + (kind,)).index(kind), kind))
    shared = [("about", ABOUT), ("client_columns", CLIENT_FIELDS[2:]), ("kinds", kinds), ("definitions", definitions)]
    lines = ['"%s": %s,' % (key, json.dumps(value)) for key, value in shared]
    lines += ['"reasons": %s,' % _lines(reasons), '"cells": {']
    for place, (name, values) in enumerate(shown.items(), 1):
        skips = {}
        for reason, count in sorted(values["skips"].items(), key=lambda item: (item[1], item[0])):
            skips.setdefault(count, []).append(reasons.index(reason))
        clients = [[*named, *([row[key] for key in CLIENT_FIELDS[2:]] for row in rows)] for named, rows
                   in itertools.groupby(values["clients"], lambda row: (row["client"], row["versions"]))]
        worst = [_figures(values["worst"].get(definition, {}), kinds) for definition in definitions]
        one_line = {key: value for key, value in values.items() if key not in ("skips", "clients", "worst")}
        lines += ["%s: %s," % (json.dumps(name), _compact(one_line)[:-1]),
                  '"skips": %s,' % _compact(skips),
                  '"clients": %s,' % _compact(clients).replace('],["', '],\n["'),
                  '"worst": %s}%s' % (_lines(worst if any(worst) else []), "," * (place < len(shown)))]
    return "{\n%s\n}}\n" % "\n".join(lines)


def _figures(figures, kinds):
    """Returns the figures of these kinds in UNIT, as text; nothing after the last that is there."""
    known = ("%g" % float("%.2g" % (figures[kind] / UNIT)) if kind in figures else NONE for kind in kinds)
    return " ".join(known).rstrip(" " + NONE)


def _lines(rows):
    """Returns a JSON list, with a line for each row."""
    return "[\n%s]" % ",\n".join(map(_compact, rows)) if rows else "[]"


def _compact(value):
    return json.dumps(value, separators=(",", ":"))


def short(shown):
    """Returns the text of the short form: a line for each cell, without those of other people's code and of tools."""
    lines = [" %s: %s" % (json.dumps(name), json.dumps({key: shown[name][key] for key in IN_SHORT}, sort_keys=True))
             for name, cell in cells.read().items() if name in shown and cell.is_for_all]
    return "{\n%s\n}\n" % ",\n".join(lines)


def with_versions(shown, folder):
    """Returns `shown` with versions of kept environments, of cells whose imported versions are still the same."""
    for name, values in shown.items():
        kept = dict(tox_runner.installed(os.path.join(folder, name)))
        if all(values["versions"].get(package, version) == version for package, version in kept.items()):
            values["versions"].update(kept)
    return shown


def _replace(path, text):
    with open(path + ".new", "w") as file:
        file.write(text)
    os.replace(path + ".new", path)


def page(shown):
    """Yields the lines of proof.md."""
    yield HEAD
    table = cells.read()
    green = [name for name, values in shown.items() if not values["failed"]]
    yield "%d of %d cells have run, %d of them green: %d tests passed, %d failed, %d skipped, in %.1f hours.\n" % (
        len(shown), len(table), len(green), *(sum(each[key] or 0 for each in shown.values())
                                              for key in ("passed", "failed", "skipped")),
        sum(each["seconds"] for each in shown.values()) / 3600.0)
    yield from _table(COLUMNS, range(4, 8), [_row(name, shown.get(name)) for name in table])
    clients = [(name, row) for name in table if name in shown for row in shown[name].get("clients", ())]
    if clients:
        yield CLIENTS
        yield from _table(CLIENT_COLUMNS, range(3, 8), [
            tuple(str(row.get(key, "")) for key in CLIENT_FIELDS) for _, row in clients])
    reasons = {}
    for name, values in shown.items():
        for reason, count in values["skips"].items():
            reasons.setdefault(reason, []).append((name, count))
    yield SKIPS.rstrip("\n")
    for reason, found in sorted(reasons.items()):
        yield "| %s | %d | %d |" % (reason.replace("|", "\\|"), len({name for name, _ in found}),
                                    sum(count for _, count in found))


def _row(name, values):
    if values is None:
        return (name, "never run") + ("",) * 6
    versions = ", ".join("%s %s" % item for item in values["versions"].items()
                         if item[0] in ("python", "tensorflow", "keras", "tf_keras", "jax", "torch", "optax", "numpy"))
    counts = ["" if values[key] is None else str(values[key]) for key in ("passed", "failed", "skipped")]
    return (name, versions, values["when"], values["commit"][:9], *counts, "%.1f" % (values["seconds"] / 60.0))


def _table(columns, numbers, rows):
    """Yields the lines of a table. `numbers` are the places of the columns that are aligned to the right."""
    rows = [columns, *rows]
    widths = [max(len(row[place]) for row in rows) for place in range(len(columns))]
    for number, row in enumerate(rows):
        aligned = (text.rjust(width) if place in numbers and number else text.ljust(width)
                   for place, (text, width) in enumerate(zip(row, widths)))
        yield "| %s |" % " | ".join(aligned)
        if not number:
            yield "|%s|" % "|".join("-" * (width + 1) + (":" if place in numbers else "-")
                                    for place, width in enumerate(widths))


if __name__ == "__main__":
    write(with_versions(read(), sys.argv[1]) if sys.argv[1:] else read())
