"""Reads the two tables of the matrix, cells.ini and known_failures.ini.

Runs on any Python without dependencies, so that tests in the oldest cell read the same tables as the newest tool.
"""
from __future__ import absolute_import, division, print_function

import os
import re
from collections import OrderedDict, namedtuple

try:
    from configparser import RawConfigParser
except ImportError:  # Python 2
    from ConfigParser import RawConfigParser

HERE = os.path.dirname(os.path.abspath(__file__))
KINDS = ("numpy", "lint")  # the kind of a cell without TensorFlow

Cell = namedtuple("Cell", "name python kind group holds packages no_deps index sdists env install parts tests")
KnownFailure = namedtuple("KnownFailure", "name cells tests cause link")


def read():
    """Returns {name: Cell}, in the order of the file. Packages are lists like ["tensorflow==1.4.1"]."""
    path = os.path.join(HERE, "cells.ini")
    cells = OrderedDict()
    for name, values in _sections(path, required=("group", "holds", "packages"),
                                  optional=("no_deps", "index", "sdists", "env", "install", "parts", "tests")):
        recipe = re.match(r"py(\d)(\d+)-(\w+)", name)
        if recipe is None:
            raise ValueError("%s: cell %r must start with its Python, like py37-tf1.15" % (path, name))
        for key, allowed in (("group", ("quick", "full", "clients")), ("install", ("wheel", "sdist"))):
            if values.setdefault(key, "wheel") not in allowed:
                raise ValueError("%s: cell %r has %s = %s; it is one of %s"
                                 % (path, name, key, values[key], ", ".join(allowed)))
        if (values["group"] == "clients") != ("tests" in values):
            raise ValueError("%s: cell %r: a cell of clients, and no other, has tests" % (path, name))
        kind = recipe.group(3) if recipe.group(3) in KINDS else "framework"
        cells[name] = Cell(name=name, python="%s.%s" % recipe.group(1, 2), kind=kind, group=values["group"],
                           holds=values["holds"], packages=values["packages"].split(),
                           no_deps=values.get("no_deps", "").split(), index=values.get("index"),
                           sdists=values.get("sdists", "").split(),
                           env=OrderedDict(pair.split("=", 1) for pair in values.get("env", "").split()),
                           install=values["install"], parts=_parts(path, name, values.get("parts", "1 of 1")),
                           tests=values.get("tests"))
    return cells


def _parts(path, name, text):
    """Returns ({1, 2}, 3) for "1 2 of 3"."""
    match = re.match(r"([\d ]+) of (\d+)\Z", text)
    parts, of = (set(map(int, match.group(1).split())), int(match.group(2))) if match else (set(), 0)
    if not parts or not parts.issubset(range(1, of + 1)):
        raise ValueError("%s: cell %r has parts = %s; needed is something like 1 2 of 3" % (path, name, text))
    return parts, of


def has_case(parts, number):
    """Returns whether a case that is marked as shared, given as any number of its own, is in some `parts` of a cell."""
    chosen, of = parts
    return number % of + 1 in chosen


def pins(cell):
    """Returns {import name: version} of the packages that a cell pins."""
    versions = dict(package.split("==") for package in cell.packages + cell.no_deps)
    if "tensorflow-cpu" in versions:
        versions["tensorflow"] = versions.pop("tensorflow-cpu")
    return versions


def no_deps_arguments(cell):
    """Returns the arguments of `pip install` for a cell's no_deps."""
    return ["--no-deps"] + (["--extra-index-url", cell.index] if cell.index else []) + cell.no_deps


def known_failures():
    return [KnownFailure(name=name, **values)
            for name, values in _sections(os.path.join(HERE, "known_failures.ini"),
                                          required=("cells", "tests", "cause", "link"))]


def matches(pattern, name):
    """Returns whether `name` fits `pattern`. Only * is special: pytest's test names contain the [] of fnmatch."""
    return re.match(re.escape(pattern).replace(r"\*", ".*") + r"\Z", name) is not None


def _sections(path, required, optional=()):
    parser = RawConfigParser()
    if not parser.read(path):
        raise IOError("%s is missing" % path)
    for name in parser.sections():
        values = dict(parser.items(name))
        wrong = [key for key in required if not values.get(key)] + sorted(set(values) - set(required + optional))
        if wrong:
            raise ValueError("%s: [%s] has %s missing or misspelled" % (path, name, ", ".join(wrong)))
        yield name, values
