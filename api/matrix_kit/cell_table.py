"""Reads cells.ini, the table of environments that install and work.

Runs on any Python without dependencies, so that tests in the oldest cell read the same table as the newest tool.
"""
from __future__ import absolute_import, division, print_function

import os
import re
from collections import OrderedDict, namedtuple

try:
    from configparser import RawConfigParser
except ImportError:  # Python 2
    from ConfigParser import RawConfigParser  # type: ignore[import-not-found, no-redef]

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cells.ini")
KINDS = ("numpy", "lint", "site")  # the kind of a cell without TensorFlow


class Cell(namedtuple("Cell", "name python kind group holds packages no_deps index sdists env install parts tests")):
    """A row of the table."""

    __slots__ = ()

    @property
    def pins(self):
        """{import name: version} of the packages that it pins."""
        versions = dict(package.split("==") for package in self.packages + self.no_deps)
        if "tensorflow-cpu" in versions:
            versions["tensorflow"] = versions.pop("tensorflow-cpu")
        return versions

    @property
    def is_for_all(self):
        """Whether it is of use to other projects: it holds no code of others, and is not for everstep's tools."""
        return self.group != "clients" and not self.runs_tools

    @property
    def runs_tools(self):
        """Whether it runs tools in place of the tests."""
        return self.kind in ("lint", "site")

    @property
    def no_deps_arguments(self):
        """The arguments of `pip install` for its no_deps."""
        return ["--no-deps"] + (["--extra-index-url", self.index] if self.index else []) + self.no_deps


def read(path=PATH):
    """Returns {name: Cell}, in the order of the file. Packages are lists like ["tensorflow==1.4.1"]."""
    cells = OrderedDict()
    for name, values in sections(path, required=("group", "holds", "packages"),
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
    """Returns {None: ({1, 2}, 3), "tf_train": ({4}, 5)} for "1 2 of 3, tf_train 4 of 5"."""
    found = {}
    for each in text.split(", "):
        match = re.match(r"(?:([a-z]\w+) )?([\d ]+) of (\d+)\Z", each)
        parts, of = (set(map(int, match.group(2).split())), int(match.group(3))) if match else (set(), 0)
        if not parts or not parts.issubset(range(1, of + 1)):
            raise ValueError("%s: cell %r has parts = %s; needed is something like 1 2 of 3, tf_train 4 of 5"
                             % (path, name, text))
        found[match.group(1)] = parts, of
    return found


def sections(path, required, optional=()):
    """Yields (name, {key: value}) of each section of a table, whose keys are known."""
    parser = RawConfigParser()
    if not parser.read(path):
        raise IOError("%s is missing" % path)
    for name in parser.sections():
        values = dict(parser.items(name))
        wrong = [key for key in required if not values.get(key)] + sorted(set(values) - set(required + optional))
        if wrong:
            raise ValueError("%s: [%s] has %s missing or misspelled" % (path, name, ", ".join(wrong)))
        yield name, values


def matches(pattern, name):
    """Returns whether `name` fits `pattern`. Only * is special: pytest's test names contain the [] of fnmatch."""
    return re.match(re.escape(pattern).replace(r"\*", ".*") + r"\Z", name) is not None
