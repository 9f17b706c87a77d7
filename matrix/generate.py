"""Writes tox.ini and constraints/*.txt from cells.ini. Run it after every change there: python matrix/generate.py"""
from __future__ import absolute_import, division, print_function

import io
import os

import cells

ROOT = os.path.dirname(cells.HERE)
HEAD = u"# Generated: do not edit. Edit matrix/cells.ini (or matrix/generate.py), then run python matrix/generate.py\n"

TOX = HEAD + u"""
[tox]
# The last tox and virtualenv that make a Python 2.7 as well as a 3.13; a newer tox installs these for itself and hands
# over. Newer ones skip 2.7 without a word: https://virtualenv.pypa.io/en/latest/changelog.html (20.22.0).
requires =
    tox==4.5.1.1
    virtualenv==20.21.1
# Skipped and named; matrix/run.py --strict makes a missing one a failure.
skip_missing_interpreters = true
env_list =
    {quick}
labels =
    full = {all}

[testenv]
# Built once, by the Python that runs tox: a build environment per cell could not have a current setuptools.
package = wheel
wheel_build_env = .pkg
deps = -r {{tox_root}}/matrix/constraints/{{env_name}}.txt
constrain_package_deps = true
set_env =
    EVERSTEP_CELL = {{env_name}}
    # What the battery measures, for matrix/report.py.
    EVERSTEP_TABLE = {{work_dir}}/results/{{env_name}}.json
    # No ~/.keras/keras.json of the user's decides the backend or the float type.
    KERAS_HOME = {{env_tmp_dir}}
    # The seeds that virtualenv carries: a newer virtualenv on the same machine may have cached ones that are too new.
    VIRTUALENV_PIP = embed
    VIRTUALENV_SETUPTOOLS = embed
    VIRTUALENV_WHEEL = embed
    VIRTUALENV_NO_PERIODIC_UPDATE = 1
    # Building grpcio from source takes a quarter of an hour.
    PIP_PREFER_BINARY = 1
    # Cells run side by side in one checkout.
    PYTHONDONTWRITEBYTECODE = 1
    # pip for 2.7 and 3.6 takes packages that are too new for it from an extra index that does not publish what Python
    # they require, so configuration files are not read there. PIP_INDEX_URL in the environment still is.
    py27,py36: PIP_CONFIG_FILE = /dev/null
    # What cells.ini sets.
    {env}
# EVERSTEP_FULL and its like, which the tests read.
pass_env = EVERSTEP_*
commands = pytest -p no:cacheprovider --durations=5 --junitxml={{work_dir}}/results/{{env_name}}.xml {{posargs}}
"""

SDIST = u"""
[testenv:{name}]
package = sdist
"""

NO_DEPS = u"""
[testenv:{name}]
commands_pre = python -m pip install {arguments}
"""

LINT = u"""
[testenv:{name}]
ignore_errors = true
commands =
    ruff check --output-format concise
    python matrix/link_farm.py
    mypy
    python tests/typing/check.py
"""

BENCHMARKS = u"""
[testenv:benchmarks]
package = skip
# For the pictures.
deps = matplotlib
commands = python -m benchmarks --make {posargs}
"""


def generated():
    """{path: text} of every file that this writes."""
    table = cells.read()
    quick = [cell.name for cell in table.values() if cell.group == "quick"]
    env = [u"%s: %s = %s" % (cell.name, name, value) for cell in table.values() for name, value in cell.env.items()]
    tox = [TOX.format(quick=u"\n    ".join(quick), all=u", ".join(table), env=u"\n    ".join(env))]
    files = {}
    for cell in table.values():
        if cell.install == "sdist":
            tox.append(SDIST.format(name=cell.name))
        if cell.no_deps:
            tox.append(NO_DEPS.format(name=cell.name, arguments=u" ".join(cells.no_deps_arguments(cell))))
        if cell.kind == "lint":
            tox.append(LINT.format(name=cell.name))
        path = os.path.join(cells.HERE, "constraints", cell.name + ".txt")
        files[path] = HEAD + u"".join(package + u"\n" for package in cell.packages)
    tox.append(BENCHMARKS)
    files[os.path.join(ROOT, "tox.ini")] = u"".join(tox)
    return files


def stale(files):
    """Paths whose text on disk is not what it should be, or that should not be there at all."""
    folder = os.path.join(cells.HERE, "constraints")
    there = [os.path.join(folder, name) for name in os.listdir(folder)] if os.path.isdir(folder) else []
    return sorted(path for path in set(files).union(there) if _read(path) != files.get(path))


def _read(path):
    if not os.path.exists(path):
        return None
    with io.open(path, encoding="utf-8") as file:
        return file.read()


def main():
    files = generated()
    for path in stale(files):
        print("writing" if path in files else "removing", os.path.relpath(path, ROOT))
        if path not in files:
            os.remove(path)
            continue
        if not os.path.isdir(os.path.dirname(path)):
            os.makedirs(os.path.dirname(path))
        with io.open(path, "w", encoding="utf-8", newline="\n") as file:
            file.write(files[path])


if __name__ == "__main__":
    main()
