"""Installs packages into environments with uv, in seconds, and keeps environments within a budget of disk.

Where uv is missing or fails, pip installs as ever. tox and the demo run this file in an environment, in place of
`-m pip`; SETTINGS is the file that `Installer` writes:

    python environments.py SETTINGS install ARGUMENT ...
"""
from __future__ import absolute_import, division, print_function

import argparse
import ast
import compileall
import hashlib
import io
import json
import os
import py_compile
import re
import shutil
import subprocess
import sys
import sysconfig
import threading

try:
    from configparser import RawConfigParser
except ImportError:  # Python 2
    from ConfigParser import RawConfigParser  # type: ignore[import-not-found, no-redef]
try:
    from shlex import quote
except ImportError:  # Python 2
    from pipes import quote  # type: ignore[no-redef]

GET_UV = ["install", "--only-binary", "uv", "uv"]  # for pip; there are machines without a wheel
# {option of pip: (variable of uv, what separates its values)}
NAMES = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "no-index": ("UV_NO_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "constraint": ("UV_CONSTRAINT", " "),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "cert": ("SSL_CERT_FILE", " "),
    "proxy": ("ALL_PROXY", " "),
    "timeout": ("UV_HTTP_TIMEOUT", " "),
    "default-timeout": ("UV_HTTP_TIMEOUT", " "),
}
LIKE_PIP = {
    "UV_NO_CONFIG": "1",  # the pyproject.toml of a project could say otherwise than pip does
    "UV_INDEX_STRATEGY": "unsafe-best-match",  # the best version of all indexes
    "UV_NO_PROGRESS": "1",
}


class Installer(object):
    """What installs packages into environments.

    Args:
        python: that of an environment which has uv, or has not.
        settings: the path of the file for the script; it may hold passwords of indexes.

    Attributes:
        arguments: for an environment's Python, as a list, in place of `-m pip`.
        variables: with which uv installs what pip would; None without uv.
    """

    def __init__(self, python, settings):
        uv = os.path.join(os.path.dirname(python), "uv.exe" if os.name == "nt" else "uv")
        self.arguments, self.variables = ["-m", "pip"], None
        try:
            subprocess.check_output([uv, "--version"], stderr=subprocess.STDOUT)
            self.variables = dict(LIKE_PIP, **translated(_configured([sys.executable, "-m", "pip", "config", "list"])))
        except (OSError, subprocess.CalledProcessError):  # no uv for this machine, or a pip before 10
            return
        self.variables.update(item for item in os.environ.items() if item[0].startswith("UV_"))
        self.arguments = [os.path.abspath(__file__), settings]
        with os.fdopen(os.open(settings, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump([uv, self.variables], file)

    @property
    def text(self):
        """The arguments, quoted for tox."""
        return " ".join(map(quote, self.arguments))


def _configured(command):
    return subprocess.check_output(command, stderr=subprocess.STDOUT, universal_newlines=True)


def translated(configuration):
    """Returns the variables that tell uv what pip is told.

    Args:
        configuration: what `pip config list` prints.
    """
    variables = {}
    for scope in ("global.", "install.", ":env:."):  # the last one wins, as in pip
        for line in configuration.splitlines():
            option, _, value = line[len(scope):].partition("=")
            if line.startswith(scope) and option in NAMES:
                name, separator = NAMES[option]
                variables[name] = separator.join(ast.literal_eval(value).split())
    return variables


def install(settings, arguments):
    """Installs what `pip install` with some arguments would. Returns the exit code."""
    with open(settings) as file:
        uv, variables = json.load(file)
    parser = argparse.ArgumentParser()
    parser.add_argument("--extra-index-url", action="append", default=[])
    more, rest = parser.parse_known_args(arguments)
    indexes = variables.get("UV_INDEX", "").split() + more.extra_index_url
    # Cells write no bytecode, so that each process would compile TensorFlow anew. uv cannot compile for Python 3.6.
    compiles = hasattr(py_compile, "PycInvalidationMode")
    command = [uv, "pip", "install", "--python", sys.executable] + ["--compile-bytecode"] * compiles + rest
    while True:
        process = subprocess.Popen(command, stderr=subprocess.PIPE, universal_newlines=True,
                                   env=dict(os.environ, **dict(variables, UV_INDEX=" ".join(indexes))))
        said = process.communicate()[1]
        sys.stderr.write(said)
        if process.returncode == 0:
            if not compiles:
                compileall.compile_dir(sysconfig.get_paths()["purelib"], quiet=2)
            return 0
        silent = [index for index in indexes if re.search("Failed to fetch: `?" + re.escape(index), said)]
        if not silent:
            sys.stderr.write("uv cannot, so pip installs this\n")  # it cannot for Python 2.7 at all
            break
        sys.stderr.write("like pip, going on without %s\n" % " ".join(silent))
        indexes = [index for index in indexes if index not in silent]
    isolated = "-I" if getattr(sys.flags, "isolated", 0) else "-E"
    return subprocess.call([sys.executable, isolated, "-m", "pip", "install"] + arguments)


def pins(config, cell):
    """Returns a digest of what decides the packages of a cell.

    Args:
        config: the path of the file for tox.
        cell: the cell, as that file has it.
    """
    parser = RawConfigParser()
    parser.read(config)
    section = "testenv:" + cell.name
    before = parser.get(section, "commands_pre") if parser.has_option(section, "commands_pre") else ""
    text = json.dumps([cell.python, cell.packages, parser.get("testenv", "deps"), before])
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


class Kept(object):
    """The environments in a folder, each kept while its pins stay the same.

    A record beside them has the pins and the size of each, and is as old as its last use. It is empty while the
    environment is made or used: after a crash such a one is deleted. A size is the sum of all files, also of those that
    uv shares with its cache by hard links.

    Args:
        folder: that of the environments.
        gigabytes: the budget.
    """

    def __init__(self, folder, gigabytes):
        self.folder, self.budget = folder, gigabytes * 1e9
        self._records, self._lock = os.path.join(folder, "kept"), threading.Lock()
        if not os.path.isdir(self._records):
            os.makedirs(self._records)
        for name in os.listdir(self._records):
            if not self._record(name):
                self._delete(name)

    def begin(self, name, pins):
        """Deletes an environment that has other pins, or is not known."""
        with self._lock:
            if self._record(name).get("pins") != pins:
                self._delete(name)
            self._write(name, "")

    def end(self, name, pins, log):
        """Keeps an environment if tox's log shows that all was installed; then drops the oldest above the budget."""
        with io.open(log, encoding="utf-8", errors="replace") as file:
            is_whole = u" commands[0]> " in file.read()
        files = (os.path.join(path, each) for path, _, names in os.walk(os.path.join(self.folder, name))
                 for each in names)
        size = sum(os.lstat(path).st_size for path in files) if is_whole else 0
        with self._lock:
            if is_whole:
                self._write(name, json.dumps({"pins": pins, "bytes": size}))
            else:
                self._delete(name)
            sizes = {each: self._record(each).get("bytes") for each in os.listdir(self._records)}
            whole = [each for each in sizes if sizes[each] is not None]
            whole.sort(key=lambda each: os.path.getmtime(os.path.join(self._records, each)))
            while whole and sum(sizes[each] for each in whole) > self.budget:
                self._delete(whole.pop(0))

    def _record(self, name):
        path = os.path.join(self._records, name)
        if not os.path.exists(path):
            return {}
        with open(path) as file:
            text = file.read()
        return json.loads(text) if text else {}

    def _write(self, name, text):
        with open(os.path.join(self._records, name), "w") as file:
            file.write(text)

    def _delete(self, name):
        self._write(name, "")  # first: a deletion can be interrupted too
        shutil.rmtree(os.path.join(self.folder, name), ignore_errors=True)
        os.remove(os.path.join(self._records, name))


if __name__ == "__main__":
    sys.exit(install(sys.argv[1], sys.argv[3:]))
