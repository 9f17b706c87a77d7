"""Fails if a cell is not what its name says: tox runs this in each cell before the tests.

    python check_cell.py CELL PACKAGE NAME==VERSION ...

CELL begins with its Python. The versions are those that the cell pins; pip may have changed them for the needs of
other packages. PACKAGE has to import, and from the environment: next to its source a forgotten file is not missed.
"""
from __future__ import absolute_import, division, print_function

import importlib
import os
import sys
import sysconfig


def normal(name):
    """Returns the one spelling of a distribution's name."""
    return name.lower().replace("-", "_").replace(".", "_")


def installed():
    """Returns {name: version} of the distributions in the environment, from the names of their folders."""
    names = [name for key in ("purelib", "platlib") for name in os.listdir(sysconfig.get_paths()[key])]
    pairs = [name[: -len(".dist-info")].split("-", 1) for name in names if name.endswith(".dist-info")]
    return {normal(name): version for name, version in pairs}


def faults(cell, package, pins):
    """Yields what is wrong here."""
    python = "py{}{}".format(*sys.version.split(".")[:2])
    if cell.split("-")[0] != python:
        yield "this is {}".format(python)
    versions = installed()
    for name, _, expected in (pin.partition("==") for pin in pins):
        if versions.get(normal(name)) != expected:
            yield "{} is {}, should be {}".format(name, versions.get(normal(name), "not installed"), expected)
    path = getattr(importlib.import_module(package), "__file__", None)
    if path is None or not os.path.realpath(path).startswith(os.path.realpath(sys.prefix) + os.sep):
        yield "{} is imported from {}, not from the environment".format(package, path or "a folder without __init__.py")


if __name__ == "__main__":
    wrong = list(faults(sys.argv[1], sys.argv[2], sys.argv[3:]))
    sys.exit("{} is not what it says: {}".format(sys.argv[1], "; ".join(wrong)) if wrong else 0)
