"""Writes the rows of stock optimizers into the docstrings of definitions, from the stock table.

    python tests/make/docstrings.py            # `--check` only names the stale files

Rows for other sources (Addons, torch, the authors' code) stay as they are, below them.
"""
from __future__ import absolute_import, division, print_function

import io
import os
import re
import sys
import textwrap
from collections import OrderedDict

from everstep.compat.stock.of_torch import TORCH
from everstep.compat.stock.table import STOCK
from everstep.optimizers.contract.declarations import REQUIRED

OPTIMIZERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir, "optimizers")
TABLE = re.compile(r"(    \| stock .*\n    \|-.*\n)((?:    \|.*\n)+)")
WIDTHS = 27, 75


def told(value):
    return repr(value).replace("'", '"') if isinstance(value, str) else repr(value)


def meaning(entry):
    """Returns the arguments that make the definition equal to the stock optimizer, in words."""
    declarations = entry.definition.declarations
    options = ["{}={}".format(name, told(value)) for name, value in sorted(entry.fixed.items())
               if value != declarations[name].default]
    by_momentum = entry.sparse({"momentum": 0.9}), entry.sparse({})
    if by_momentum[0] != by_momentum[1]:
        options.append('sparse="{}" with momentum'.format(by_momentum[0]))
    elif by_momentum[1] != "exact":
        options.append('sparse="{}"'.format(by_momentum[1]))
    defaults = ["{}={!r}".format(entry.names[theirs], value) for theirs, value in sorted(entry.defaults.items())
                if value is not REQUIRED and value != declarations[entry.names[theirs]].default]
    parts = [", ".join(options) or "the defaults"]
    parts += ["stock default: " + ", ".join(defaults)] if defaults else []
    alone = [each.differs for each in STOCK + TORCH if each.target == entry.target].count(entry.differs) == 1
    parts += [part for part in (entry.note, entry.differs if alone else None) if part]
    return "; ".join(parts)


def label(entry):
    if entry.target == "tf_train":
        return "{} {}".format(entry.home, entry.native.replace("Optimizer", ""))
    same = entry.native.lower() == entry.definition.__name__.lower()
    return entry.home if same else "{} {}".format(entry.home, entry.native)


def rows_of(definition):
    """Returns [(names of stock optimizers, arguments to pass)]. Optimizers with the same arguments share a row."""
    rows = OrderedDict()
    for entry in STOCK + TORCH:
        if entry.definition is definition:
            rows.setdefault(meaning(entry), []).append(label(entry))
    return [(", ".join(labels), text) for text, labels in rows.items()]


def renewed(text, definition):
    """Returns a module's text with its stock optimizers' rows taken from the table."""
    match = TABLE.search(text)
    homes = tuple({entry.home for entry in STOCK + TORCH if entry.definition is definition})
    kept, ours = [], True
    for line in match.group(2).splitlines():
        left = line.strip()[2:]
        ours = ours if left.startswith(" ") else left.startswith(homes)  # an indented row belongs to the one above it
        kept += [] if ours else [line]
    rows = []
    for left, right in rows_of(definition):
        lefts = textwrap.wrap(left, WIDTHS[0], subsequent_indent="  ", break_on_hyphens=False)
        rights = textwrap.wrap(right, WIDTHS[1])
        for place in range(max(len(lefts), len(rights))):
            pair = [part[place] if place < len(part) else "" for part in (lefts, rights)]
            rows.append("    | {} | {} |".format(pair[0].ljust(WIDTHS[0]), pair[1].ljust(WIDTHS[1])))
    return text[: match.start(2)] + "\n".join(rows + kept) + "\n" + text[match.end(2) :]


def stale():
    """Returns {path: new text} of the modules whose rows are stale."""
    stale_texts = {}
    for definition in {entry.definition for entry in STOCK + TORCH}:
        path = os.path.join(OPTIMIZERS, definition.__module__.rpartition(".")[2] + ".py")
        with io.open(path, encoding="ascii") as file:
            text = file.read()
        if renewed(text, definition) != text:
            stale_texts[os.path.normpath(path)] = renewed(text, definition)
    return stale_texts


if __name__ == "__main__":
    old = stale()
    if "--check" in sys.argv:
        sys.exit("old: {}; run python tests/make/docstrings.py".format(", ".join(sorted(old))) if old else 0)
    for path, text in old.items():
        with io.open(path, "w", encoding="ascii") as file:
            file.write(text)
        print(os.path.basename(path))
