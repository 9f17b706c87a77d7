"""Writes tox.ini, toxfile.py and constraints/*.txt. Run it after every change of cells.ini: python matrix/generate.py

What all projects need is in api/matrix_kit/tox_files.py; here is what ours has beside it.
"""
from __future__ import absolute_import, division, print_function

import os

import cells
import tox_files

ROOT = cells.ROOT
CONSTRAINTS = os.path.join(cells.HERE, "constraints")
EDIT = u"# Generated: do not edit. Edit api/matrix_kit/%s, then run python matrix/generate.py\n"

OWN_ENV = [u"EVERSTEP_CELL = {env_name}",
           u"# The battery's results, for matrix/report.py.",
           u"EVERSTEP_TABLE = {work_dir}/results/{env_name}.json"]
PASS_ENV = [u"# The tests read EVERSTEP_FULL and others.", u"pass_env = EVERSTEP_*"]
LINT = [u"ruff check --output-format concise", u"python matrix/link_farm.py", u"mypy", u"python tests/typing/check.py"]
# Of the cell that runs the notebooks. They are no pins of cells.ini, which other people's projects install.
NOTEBOOKS = [u"python {env:EVERSTEP_PIP:-m pip} install nbformat==5.11.1 nbclient==0.11.0 ipykernel==7.4.0"]
SITE = [u'python website/build.py --to "{env_dir}/site"', u'python website/browser_check.py "{env_dir}/site"']

BENCHMARKS = u"""
[testenv:benchmarks]
package = skip
# For the pictures.
deps = matplotlib
commands = python -m benchmarks --make {posargs}
"""


def generated():
    """Returns {path: text} of every generated file."""
    table = cells.read()
    quick, full, clients = ([cell.name for cell in table.values() if cell.group in groups]
                            for groups in (["quick"], ["quick", "full"], ["clients"]))
    labels = [u"full = " + u", ".join(full), u"clients = " + u", ".join(clients)]
    head = EDIT % u"cells.ini"
    lists = [tox_files.setting(u"env_list", quick), tox_files.setting(u"labels", labels)]
    rest = PASS_ENV + [tox_files.setting(u"commands", [tox_files.PYTEST + u" {posargs}"])]
    deps = [u"-r {tox_root}/matrix/constraints/{env_name}.txt"]
    tox = [tox_files.tox_ini(table.values(), head, u"matrix/run.py", lists, deps, rest, OWN_ENV)]
    files = {}
    for cell in table.values():
        commands = {"lint": LINT, "site": SITE}.get(cell.kind, [])
        if cell.tests:
            commands = [u"%s %s {posargs}" % (tox_files.PYTEST, cell.tests)]
        tox.append(tox_files.cell_section(cell, commands, before=NOTEBOOKS if cell.name == cells.NOTEBOOKS else [],
                                          more=[u"ignore_errors = true"] * (cell.kind == "lint")))
        files[os.path.join(CONSTRAINTS, cell.name + ".txt")] = tox_files.constraints(cell, head)
    tox.append(BENCHMARKS)
    files[os.path.join(ROOT, "tox.ini")] = u"".join(tox)
    files[os.path.join(ROOT, "toxfile.py")] = tox_files.script("toxfile.py", EDIT % u"toxfile.py")
    return files


def stale(files):
    """Returns the paths whose text is out of date, or that should not exist."""
    return tox_files.stale(files, CONSTRAINTS)


def main():
    files = generated()
    tox_files.write(files, stale(files), lambda what, path: print(what, os.path.relpath(path, ROOT)))


if __name__ == "__main__":
    main()
