"""Which test files changed since a commit: those of matrix/run.py --touched."""
import ast
import glob
import os
import subprocess

import cells

TESTS = os.path.join(cells.ROOT, "tests")


def base():
    """Returns the commit of origin/main that this one comes from or, if it is that one, the one before."""
    here = _git("rev-parse", "HEAD")
    try:
        fork = _git("merge-base", "HEAD", "origin/main")
    except subprocess.CalledProcessError:
        fork = here
    return _git("rev-parse", "HEAD~1") if fork == here else fork


def files(since):
    """Returns the paths of the test files that changed since a commit, or import a helper that did.

    Files that are not committed count, too. What tests read without importing it, such as golden data, does not.
    """
    paths = _git("diff", "--name-only", "--diff-filter=d", since, "--", "tests").splitlines()
    paths += _git("ls-files", "--others", "--exclude-standard", "--", "tests").splitlines()
    return chosen({path for path in paths if path.endswith(".py")}, imports())


def imports():
    """Returns {path of a Python file of the tests: names of the modules that it imports}."""
    every = glob.glob(os.path.join(TESTS, "**", "*.py"), recursive=True)
    return {os.path.relpath(path, cells.ROOT).replace(os.sep, "/"): set(_imported(path)) for path in every}


def _imported(path):
    with open(path, encoding="utf-8") as file:
        for node in ast.walk(ast.parse(file.read())):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield node.module
    yield "conftest"


def chosen(changed, imports):
    """Returns the test files among some changed files, and those that import one of the others, also by another one."""
    reached, helpers = set(changed), {path for path in changed if not _is_test(path)}
    while helpers:
        names = {_module(path) for path in helpers}
        helpers = {path for path, needed in imports.items() if path not in reached and needed & names}
        reached |= helpers
        helpers = {path for path in helpers if not _is_test(path)}
    return sorted(filter(_is_test, reached))


def _is_test(path):
    return _module(path).startswith("test_")


def _module(path):
    return os.path.basename(path)[: -len(".py")]


def _git(*arguments):
    return subprocess.run(("git",) + arguments, cwd=cells.ROOT, check=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, universal_newlines=True).stdout.strip()
