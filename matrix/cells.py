"""Reads the two tables of the matrix, api/matrix_kit/cells.ini and known_failures.ini.

Runs on any Python without dependencies. Puts api/matrix_kit on sys.path, for the other tools here too.
"""
from __future__ import absolute_import, division, print_function

import os
import sys
import zlib
from collections import namedtuple

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
KIT = os.path.join(ROOT, "api", "matrix_kit")
RECORD = os.path.join(HERE, "record")  # what runs wrote
sys.path.append(KIT)  # at the end: its names hide nobody's

# The tools and tests have these from here.
from cell_table import RawConfigParser, matches, read, sections  # noqa: E402, F401

NOTEBOOKS = "py313-tf2.21-tfk"  # the cell that runs the notebooks of notebooks.py

APIS = (  # the default one of TensorFlow, and the first version where it is
    ("keras3 on tensorflow", (2, 16)), ("update_step", (2, 11)), ("optimizer_v2", (1, 14)), ("get_updates", (1, 4)))

KnownFailure = namedtuple("KnownFailure", "name cells tests cause link")


def has_case(parts, target, number):
    """Returns whether a cell runs a case that is marked as shared.

    Args:
        parts: those of the cell.
        target: that of the case, or None.
        number: its `number_of`.
    """
    chosen, of = parts.get(target, parts[None])
    return number % of + 1 in chosen


def number_of(case):
    """Returns a number that belongs to a case, given as text: the same in all cells."""
    return zlib.crc32(case.encode("utf-8")) & 0xFFFFFFFF  # Python 2 has negative ones, too


def api(cell):
    """Returns the optimizer API that is the default one in a cell, and Keras 3's backend."""
    pins = cell.pins
    for backend in ("jax", "torch"):
        if "keras" in pins and backend in pins:
            return "keras3 on " + backend
    if "tensorflow" not in pins:
        return cell.kind
    tensorflow = tuple(int(part) for part in pins["tensorflow"].split(".")[:2])
    return next(name for name, first in APIS if tensorflow >= first)


def known_failures():
    return [KnownFailure(name=name, **values)
            for name, values in sections(os.path.join(HERE, "known_failures.ini"),
                                         required=("cells", "tests", "cause", "link"))]
