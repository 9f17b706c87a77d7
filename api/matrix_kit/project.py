"""The matrix of somebody's project: the files that `everstep matrix tox` writes, and the command kept in them."""
from __future__ import absolute_import, division, print_function

import argparse
import io
import os
import re
import shlex
from collections import OrderedDict

try:
    from shlex import quote
except ImportError:  # Python 2
    from pipes import quote  # type: ignore[no-redef]

from everstep.errors import ConfigError
from everstep.matrix_kit import cell_table, tox_files

FOLDER = "tox_cells"  # in the project, with the constraint files
MARK = u"# Written by everstep matrix tox: do not edit"
HEAD = MARK + u""", but run this again with other arguments, in this folder:
#     everstep matrix tox %s
"""
ONE_LINE = MARK + u"; tox.ini says how.\n"


def cells():
    """Returns {name: Cell} of the cells for all projects."""
    return OrderedDict((name, cell) for name, cell in cell_table.read().items() if cell.is_for_all)


def chosen(patterns):
    """Returns the cells that match any of some patterns, in the order of the table.

    Raises:
        ConfigError: if one matches none.
    """
    table = cells()
    for pattern in patterns:
        if not any(cell_table.matches(pattern, name) for name in table):
            raise ConfigError("no cell matches {!r}; * is any text, and the cells are {}".format(
                str(pattern), ", ".join(table)))
    return [cell for name, cell in table.items() if any(cell_table.matches(each, name) for each in patterns)]


def add_arguments(parser):
    """Adds the arguments that a tox.ini remembers."""
    parser.add_argument("--package", metavar="NAME", help="the name under which your package is imported")
    parser.add_argument("--cells", nargs="+", metavar="CELL", help="names of everstep matrix list; * is any text")
    parser.add_argument("--tests", nargs="+", default=[], metavar="PATH", help="for pytest, if it needs to be told")
    parser.add_argument("--requires", nargs="+", default=[], metavar="REQUIREMENT", help="what the tests need too")
    parser.add_argument("--env", nargs="+", default=[], metavar="NAME=VALUE", help="variables that the tests need")
    own = "build a wheel once, or let each cell's Python build the sdist; default: a wheel, but an sdist for 2.7"
    parser.add_argument("--install", choices=("wheel", "sdist"), help=own)
    full = "pin tensorflow, not tensorflow-cpu, because your package requires it by this name"
    parser.add_argument("--full-tensorflow", action="store_true", help=full)


def add_place(parser):
    """Adds the arguments that say where the project is."""
    parser.add_argument("--folder", default=".", metavar="PATH", help="of your project (%(default)s)")
    parser.add_argument("--ini", default="tox.ini", metavar="NAME", help="the file for tox in it (%(default)s)")


def parsed(words):
    """Returns the options that a list of arguments gives."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    add_place(parser)
    return parser.parse_args(words)


class Project(object):
    """A project in whose folder tox makes cells.

    Args:
        options: what `add_arguments` and `add_place` add.

    Raises:
        ConfigError: if an argument is missing or wrong, or the folder cannot be installed.
    """

    def __init__(self, options):
        self.folder, self.ini, self.options = os.path.abspath(options.folder), options.ini, options
        if os.path.basename(self.ini) != self.ini:
            raise ConfigError("--ini is the name of a file in the project's folder; got {}".format(self.ini))
        if not any(os.path.exists(self._path(name)) for name in ("setup.py", "setup.cfg", "pyproject.toml")):
            raise ConfigError("{} has no setup.py, setup.cfg or pyproject.toml, so tox can install nothing from it; "
                              "give the project's folder as --folder".format(self.folder))
        if not options.package or not options.cells:
            raise ConfigError("--package and --cells are needed: {} does not remember them".format(self.ini))
        wrong = [pair for pair in options.env if not re.match(r"\w+=", pair)]
        if wrong:
            raise ConfigError("--env takes NAME=VALUE, such as TF_KERAS=1; got {}".format(wrong[0]))
        self.cells = [self._own(cell) for cell in chosen(options.cells)]

    def _path(self, *names):
        return os.path.join(self.folder, *names)

    def _own(self, cell):
        """Returns a cell as this project wants it."""
        packages = [pin.replace("tensorflow-cpu==", "tensorflow==") if self.options.full_tensorflow else pin
                    for pin in cell.packages]
        install = self.options.install or ("sdist" if cell.python == "2.7" else "wheel")
        return cell._replace(packages=packages, install=install)

    def command(self):
        """Returns the arguments that make these files again."""
        words = ["--ini", self.ini] if self.ini != "tox.ini" else []
        for name in "package cells tests requires env install".split():
            value = getattr(self.options, name)
            if value:
                words += ["--" + name] + ([value] if name in ("package", "install") else value)
        return " ".join(map(quote, words + ["--full-tensorflow"] * self.options.full_tensorflow))

    def files(self):
        """Returns {path: text}."""
        tests = u" ".join(self.options.tests)
        pytest = tox_files.PYTEST + (u" {posargs:%s}" % tests if tests else u" {posargs}")
        deps = [u"-r {tox_root}/%s/{env_name}.txt" % FOLDER] + self.options.requires
        tox = [tox_files.tox_ini(
            self.cells, HEAD % self.command(), u"everstep matrix run",
            [tox_files.setting(u"env_list", [cell.name for cell in self.cells])], deps,
            [tox_files.setting(u"commands", [pytest])], [pair.replace("=", " = ", 1) for pair in self.options.env])]
        files = {}
        for cell in self.cells:
            pins = cell.packages + cell.no_deps
            check = u'python "{tox_root}/%s/check_cell.py" {env_name} %s' % (FOLDER, self.options.package)
            tox.append(tox_files.cell_section(cell, before=[u" ".join([check] + pins)]))
            files[self._path(FOLDER, cell.name + ".txt")] = tox_files.constraints(cell, ONE_LINE)
        files[self._path(FOLDER, "check_cell.py")] = tox_files.script("check_cell.py", ONE_LINE)
        files[self._path("toxfile.py")] = tox_files.script("toxfile.py", ONE_LINE)
        files[self._path(self.ini)] = u"".join(tox)
        return files

    def stale(self):
        """Returns the paths that `write` writes or removes."""
        files = self.files()
        return [path for path in tox_files.stale(files, self._path(FOLDER))
                if path in files or _first_line(path).startswith(MARK)]

    def write(self, force, say):
        """Brings the files up to date.

        Args:
            force: whether to write over files of others.
            say: is called with what is done to each: "writing" or "removing", and the path.

        Raises:
            ConfigError: if a file is there that everstep did not write. Then nothing is written.
        """
        paths = self.stale()
        foreign = [path for path in paths if os.path.exists(path) and not _first_line(path).startswith(MARK)]
        if foreign and not force:
            raise ConfigError("everstep did not write {}: move it away, or add --force to write over it; for another "
                              "name than {} there is --ini".format(", ".join(
                                  os.path.relpath(each, self.folder) for each in foreign), self.ini))
        tox_files.write(self.files(), paths, lambda what, path: say(what, os.path.relpath(path, self.folder)))


def _first_line(path):
    if not os.path.isfile(path):
        return u""
    with io.open(path, encoding="utf-8", errors="replace") as file:
        return file.readline()


def remembered(options):
    """Returns the project of some options or, if they have none of `add_arguments`, of those in its file for tox.

    Raises:
        ConfigError: as `Project` does.
    """
    path, words = os.path.join(options.folder, options.ini), []
    if _first_line(path).startswith(MARK):
        with io.open(path, encoding="utf-8") as file:
            file.readline()
            words = shlex.split(str(file.readline().partition("everstep matrix tox ")[2]))
    kept = vars(parsed(words))
    names = set(kept) - {"folder", "ini"}  # the place is not remembered
    if not any(getattr(options, name, None) for name in names):
        vars(options).update((name, kept[name]) for name in names)
    return Project(options)
