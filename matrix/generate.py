"""Writes tox.ini and constraints/*.txt from cells.ini. Run it after every change there: python matrix/generate.py"""
from __future__ import absolute_import, division, print_function

import io
import os

import cells

ROOT = os.path.dirname(cells.HERE)
HEAD = u"# Generated: do not edit. Edit matrix/cells.ini (or matrix/generate.py), then run python matrix/generate.py\n"

TOX = HEAD + u"""
[tox]
# The last tox and virtualenv that support both Python 2.7 and 3.13. A newer tox installs these and runs them. Newer
# ones skip 2.7 silently: https://virtualenv.pypa.io/en/latest/changelog.html (20.22.0).
requires =
    tox==4.5.1.1
    virtualenv==20.21.1
# tox skips and names missing Pythons; matrix/run.py --strict makes them failures.
skip_missing_interpreters = true
env_list =
    {quick}
labels =
    full = {full}
    clients = {clients}

[testenv]
# Build once, with the Python that runs tox: old cells cannot install a current setuptools.
package = wheel
wheel_build_env = .pkg
deps = -r {{tox_root}}/matrix/constraints/{{env_name}}.txt
constrain_package_deps = true
set_env =
    EVERSTEP_CELL = {{env_name}}
    # The battery's results, for matrix/report.py.
    EVERSTEP_TABLE = {{work_dir}}/results/{{env_name}}.json
    # Keeps the user's ~/.keras/keras.json from choosing the backend or the float type.
    KERAS_HOME = {{env_tmp_dir}}
    # Use virtualenv's bundled pip and setuptools: a newer virtualenv may have cached versions that are too new.
    VIRTUALENV_PIP = embed
    VIRTUALENV_SETUPTOOLS = embed
    VIRTUALENV_WHEEL = embed
    VIRTUALENV_NO_PERIODIC_UPDATE = 1
    # Building grpcio from source takes a quarter of an hour.
    PIP_PREFER_BINARY = 1
    # Cells run side by side in one checkout.
    PYTHONDONTWRITEBYTECODE = 1
    # pip for 2.7 and 3.6 installs packages that are too new from an extra index that does not publish the required
    # Python, so it reads no configuration files there. It still reads PIP_INDEX_URL.
    py27,py36: PIP_CONFIG_FILE = /dev/null
    # env in cells.ini.
    {env}
# The tests read EVERSTEP_FULL and others.
pass_env = EVERSTEP_*
commands = {pytest} {{posargs}}
"""
PYTEST = u"pytest -p no:cacheprovider --durations=5 --junitxml={work_dir}/results/{env_name}.xml"

SDIST = u"""
[testenv:{name}]
package = sdist
"""

NO_DEPS = u"python -m pip install {arguments}"
SDISTS = u"python -m pip download --no-deps --no-binary :all: --dest {{env_dir}}/sdists {packages}"

CLIENT = u"""
[testenv:{name}]
{before}commands = {pytest} {tests} {{posargs}}
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
    """Returns {path: text} of every generated file."""
    table = cells.read()
    quick, full, clients = ([cell.name for cell in table.values() if cell.group in groups]
                            for groups in (["quick"], ["quick", "full"], ["clients"]))
    env = [u"%s: %s = %s" % (cell.name, name, value) for cell in table.values() for name, value in cell.env.items()]
    tox = [TOX.format(quick=u"\n    ".join(quick), full=u", ".join(full), clients=u", ".join(clients),
                      env=u"\n    ".join(env), pytest=PYTEST)]
    files = {}
    for cell in table.values():
        if cell.install == "sdist":
            tox.append(SDIST.format(name=cell.name))
        commands = [NO_DEPS.format(arguments=u" ".join(cells.no_deps_arguments(cell)))] if cell.no_deps else []
        commands += [SDISTS.format(packages=u" ".join(cell.sdists))] if cell.sdists else []
        before = u"commands_pre = %s\n" % u"\n    ".join(commands) if commands else u""
        if cell.tests:
            tox.append(CLIENT.format(name=cell.name, before=before, pytest=PYTEST, tests=cell.tests))
        elif before:
            tox.append(u"\n[testenv:{}]\n{}".format(cell.name, before))
        if cell.kind == "lint":
            tox.append(LINT.format(name=cell.name))
        path = os.path.join(cells.HERE, "constraints", cell.name + ".txt")
        files[path] = HEAD + u"".join(package + u"\n" for package in cell.packages)
    tox.append(BENCHMARKS)
    files[os.path.join(ROOT, "tox.ini")] = u"".join(tox)
    return files


def stale(files):
    """Returns the paths whose text is out of date, or that should not exist."""
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
