"""The commands `everstep matrix list`, `pins`, `tox` and `run`."""
from __future__ import absolute_import, division, print_function

import json
import os
import re
import sys

from everstep.compat.targets import doctor
from everstep.errors import ConfigError, UnsupportedError
from everstep.matrix_kit import project, tox_files, tox_runner, tox_screen
from everstep.terminal import print_json, print_table

PROVEN = os.path.join(tox_files.HERE, "proven.json")  # python matrix/proof.py writes it
NOT_PINS = ("packaging", "pytest", "python")  # of no use to who only wants a framework


def add_commands(parser):
    """Adds the commands to the parser of `everstep matrix`."""
    commands = parser.add_subparsers(dest="matrix_command", metavar="COMMAND")
    parser.set_defaults(run=lambda options: parser.print_help() or 0)
    each = commands.add_parser("list", help="list the cells: Python, pins, what each holds, when it was last proven")
    each.add_argument("--json", action="store_true", help="print JSON instead of a table")
    each.set_defaults(run=lambda options: _driven(list_cells, options))
    each = commands.add_parser("pins", help="print versions that install and work together, as requirements for pip")
    each.add_argument("requirements", nargs="+", metavar="NAME==VERSION",
                      help="of tensorflow, keras, jax, torch, numpy, python, ...; 2.4 is any 2.4")
    each.add_argument("--json", action="store_true", help="print JSON instead of requirements")
    each.set_defaults(run=lambda options: _driven(print_pins, options))
    each = commands.add_parser("tox", help="write tox.ini and constraint files for cells into your project")
    project.add_arguments(each)
    project.add_place(each)
    each.add_argument("--check", action="store_true", help="write nothing; fail if a file is not current")
    each.add_argument("--force", action="store_true", help="write over files that everstep did not write")
    each.set_defaults(run=lambda options: _driven(write_files, options))
    each = commands.add_parser("run", help="run your project's tests in its cells, with a table at the end",
                               epilog="Where pip finds no everstep, say where its wheel is: PIP_FIND_LINKS=FOLDER.")
    each.add_argument("--cells", dest="only", action="append", metavar="CELL",
                      help="these of them alone; * is any text; may be repeated")
    project.add_place(each)
    tox_runner.add_options(each)
    each.set_defaults(run=lambda options: _driven(run_cells, options))


def _driven(command, options):
    """Runs a command on a Python that can drive tox."""
    if not doctor.can_drive_tox():
        raise UnsupportedError("everstep matrix needs Python 3.8 or newer, because tox does; this is {}. Run it there: "
                               "it makes the environments of Python 2.7 too".format(sys.version.split()[0]))
    return command(options)


def proven():
    """Returns {cell: what it showed when it last ran}."""
    with open(PROVEN) as file:
        return json.load(file)


def facts():
    """Yields the facts about each cell."""
    shown = proven()
    for name, cell in project.cells().items():
        ran = shown.get(name, {})
        yield dict(
            cell=name, python=cell.python, packages=cell.packages, no_deps=cell.no_deps, index=cell.index,
            env=dict(cell.env), holds=cell.holds, quick=cell.group == "quick", proven=ran.get("when"),
            commit=ran.get("commit"), passed=ran.get("passed"), failed=ran.get("failed"),
            skipped=ran.get("skipped"), versions=dict(ran.get("versions", {}), **cell.pins))


def list_cells(options):
    """Prints the table of cells."""
    rows = list(facts())
    if options.json:
        print_json(rows)
        return 0
    print_table("CELL PYTHON PINS HOLDS PROVEN", [
        (row["cell"], row["python"], " ".join(pin for pin in row["packages"] + row["no_deps"] if _is_pin(pin)),
         row["holds"], _when(row)) for row in rows])
    print("\nPROVEN: when everstep's own tests last ran in the cell, in UTC.")
    return 0


def _is_pin(pin):
    return pin.split("==")[0] not in NOT_PINS


def _when(row):
    if row["proven"] is None:
        return "never"
    return row["proven"] + (", {} failed".format(row["failed"]) if row["failed"] else "")


def print_pins(options):
    """Prints the pins of each cell that has some versions."""
    every = list(facts())
    rows = [row for row in every if all(_has(row, *_split(text)) for text in options.requirements)]
    if not rows:
        names = {_split(text)[0] for text in options.requirements}
        known = {name: sorted({_version_of(row, name) for row in every if _version_of(row, name)}, key=_numbers)
                 for name in names}
        raise ConfigError("no cell has {}; cells have {}".format(" and ".join(options.requirements), "; ".join(
            "{} {}".format(name, ", ".join(known[name]) or "in no version") for name in sorted(known))))
    if options.json:
        print_json(rows)
        return 0
    for number, row in enumerate(rows):
        print("{}# {}: Python {}, {}".format("\n" if number else "", row["cell"], row["python"],
                                             "proven " + _when(row) if row["proven"] else "never run"))
        for pin in filter(_is_pin, row["packages"]):
            print(pin)
        if row["no_deps"]:
            print("# then, with --no-deps{}: {}".format(
                " --extra-index-url " + row["index"] if row["index"] else "", " ".join(row["no_deps"])))
        pinned = {pin.split("==")[0].replace("-cpu", "") for pin in row["packages"] + row["no_deps"]}
        rest = sorted(item for item in row["versions"].items() if item[0] not in pinned and item[0] not in NOT_PINS)
        if rest:
            print("# with these, pip took {}".format(" ".join("==".join(item) for item in rest)))
        if row["env"]:
            print("# in the environment: {}".format(" ".join("=".join(item) for item in sorted(row["env"].items()))))
    return 0


def _split(text):
    match = re.match(r"([\w.-]+)==?([\w.+]+?)(\.\*)?\Z", text)
    if match is None:
        raise ConfigError("{!r} is not like tensorflow==2.4".format(str(text)))
    return match.group(1).lower().replace("-cpu", "").replace("-", "_"), match.group(2)


def _version_of(row, name):
    return row["python"] if name == "python" else row["versions"].get(name)


def _has(row, name, version):
    return ((_version_of(row, name) or "").replace("+", ".") + ".").startswith(version.replace("+", ".") + ".")


def _numbers(version):
    return [int(number) for number in re.findall(r"\d+", version)]


def write_files(options):
    """Writes the files of a project, or says which are not current. Returns 1 for --check if there are any, else 0."""
    matrix = project.remembered(options)
    if options.check:
        paths = [os.path.relpath(path, matrix.folder) for path in matrix.stale()]
        print("not current: {}; run everstep matrix tox".format(", ".join(paths)) if paths else "all files are current")
        return 1 if paths else 0
    matrix.write(options.force, lambda what, path: print(what, path))
    print("{} cells: {}".format(len(matrix.cells), ", ".join(cell.name for cell in matrix.cells)))
    print("to run them: everstep matrix run, or tox" + ("" if matrix.ini == "tox.ini" else " -c " + matrix.ini))
    return 0


def run_cells(options):
    """Runs the cells of a project. Returns 1 if one fails."""
    matrix = project.remembered(options)
    if matrix.stale():
        raise ConfigError("{} is not current; run everstep matrix tox".format(
            ", ".join(os.path.relpath(path, matrix.folder) for path in matrix.stale())))
    names = {cell.name for cell in project.chosen(options.only)} if options.only else None
    cells = [cell for cell in matrix.cells if names is None or cell.name in names]
    if not cells:
        raise ConfigError("{} has none of {}; it has {}".format(
            matrix.ini, ", ".join(options.only), ", ".join(cell.name for cell in matrix.cells)))
    return tox_runner.Matrix(matrix.folder, options, options.package, tox_screen.Screen(), matrix.ini).run(cells)
