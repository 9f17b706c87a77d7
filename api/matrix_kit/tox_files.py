"""Writes the files with which tox makes cells: tox.ini, a constraint file for each, and scripts beside them."""
from __future__ import absolute_import, division, print_function

import io
import os

HERE = os.path.dirname(os.path.abspath(__file__))

TOX = u"""\
{head}
[tox]
# The last tox and virtualenv that support both Python 2.7 and 3.13. A newer tox installs these and runs them. Newer
# ones skip 2.7 silently: https://virtualenv.pypa.io/en/latest/changelog.html (20.22.0).
requires =
    tox==4.5.1.1
    virtualenv==20.21.1
# tox skips and names missing Pythons; {runner} --strict makes them failures.
skip_missing_interpreters = true
{lists}

[testenv]
# Build once, with the Python that runs tox: old cells cannot install a current setuptools.
package = wheel
wheel_build_env = .pkg
{deps}
constrain_package_deps = true
# {runner} puts uv in the place of pip. Without it this is tox's own command.
install_command =
    py27: python -E {{env:EVERSTEP_PIP:-m pip}} install {{opts}} {{packages}}
    !py27: python -I {{env:EVERSTEP_PIP:-m pip}} install {{opts}} {{packages}}
set_env =
{own_env}    # Keeps the user's ~/.keras/keras.json from choosing the backend or the float type.
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
{cell_env}{rest}
"""
PYTEST = u'pytest -p no:cacheprovider --durations=5 "--junitxml={work_dir}/results/{env_name}.xml"'

NO_DEPS = u"python {{env:EVERSTEP_PIP:-m pip}} install {}"
SDISTS = u'python -m pip download --no-deps --no-binary :all: --dest "{{env_dir}}/sdists" {}'


def tox_ini(cells, head, runner, lists, deps, rest, own_env=()):
    """Returns the text of a tox.ini up to the sections of cells.

    Args:
        cells: the cells in it.
        head: comments for its first lines.
        runner: the command that runs cells and has --strict.
        lists: lines that end [tox]: env_list and others.
        deps: the arguments of pip in [testenv].
        rest: lines that end [testenv]: commands and others.
        own_env: lines that begin set_env.
    """
    env = [u"%s: %s = %s" % (cell.name, name, value) for cell in cells for name, value in cell.env.items()]
    env = [u"# env in cells.ini."] + env if env else []
    return TOX.format(head=head, runner=runner, lists=u"\n".join(lists), deps=setting(u"deps", deps),
                      own_env=_indented(own_env), cell_env=_indented(env), rest=u"\n".join(rest))


def setting(key, values):
    """Returns a setting as lines of tox.ini."""
    return u"%s =%s" % (key, u" " + values[0] if len(values) == 1 else u"\n" + _indented(values)[:-1])


def _indented(lines):
    return u"".join(u"    %s\n" % line for line in lines)


def cell_section(cell, commands=(), before=(), more=()):
    """Returns the section of a cell in tox.ini; nothing if it has no settings.

    Args:
        commands: what it runs in place of [testenv]'s commands.
        before: what it runs first, after it has installed what pip cannot resolve.
        more: other settings, as lines.
    """
    first = [NO_DEPS.format(u" ".join(cell.no_deps_arguments))] if cell.no_deps else []
    first += [SDISTS.format(u" ".join(cell.sdists))] if cell.sdists else []
    first += before
    lines = list(more) + [u"package = sdist"] * (cell.install == "sdist")
    lines += [setting(u"commands_pre", first)] if first else []
    lines += [setting(u"commands", commands)] if commands else []
    return u"\n[testenv:%s]\n%s\n" % (cell.name, u"\n".join(lines)) if lines else u""


def constraints(cell, head):
    """Returns the text of a cell's constraint file."""
    return head + u"".join(package + u"\n" for package in cell.packages)


def script(name, head):
    """Returns the text of a script of this folder that is copied: toxfile.py or check_cell.py."""
    return head + _read(os.path.join(HERE, name))


def stale(files, folder):
    """Returns the paths whose text is out of date, or that should not be in `folder`.

    Args:
        files: `{path: text}` of the generated files.
        folder: that of generated files only.
    """
    there = [os.path.join(folder, name) for name in os.listdir(folder)] if os.path.isdir(folder) else []
    return sorted(path for path in set(files).union(there) if _read(path) != files.get(path))


def _read(path):
    if not os.path.isfile(path):
        return None
    with io.open(path, encoding="utf-8") as file:
        return file.read()


def write(files, paths, say):
    """Writes or removes generated files.

    Args:
        files: `{path: text}`.
        paths: those to bring up to date.
        say: is called with what is done to each: "writing" or "removing", and the path.
    """
    for path in paths:
        say("writing" if path in files else "removing", path)
        if path not in files:
            os.remove(path)
            continue
        if not os.path.isdir(os.path.dirname(path)):
            os.makedirs(os.path.dirname(path))
        with io.open(path, "w", encoding="utf-8", newline="\n") as file:
            file.write(files[path])
