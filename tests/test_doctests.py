"""Runs every example in a docstring, on every Python and NumPy."""
from __future__ import absolute_import, division, print_function

import doctest
import importlib
import os

import pytest

import everstep

ROOT = os.path.dirname(os.path.abspath(everstep.__file__))


def modules():
    """Returns the names of all modules of the package that have an example."""
    for path, _, names in os.walk(ROOT, followlinks=True):
        for name in sorted(names):
            if not name.endswith(".py"):
                continue
            with open(os.path.join(path, name)) as file:
                if ">>>" in file.read():
                    inside = os.path.relpath(os.path.join(path, name), os.path.dirname(ROOT))[: -len(".py")]
                    yield inside.replace(os.sep, ".").replace(".__init__", "")


FOUND = list(modules())


def test_there_are_examples():
    assert {"everstep", "everstep.optimizers.adam", "everstep.optimizers.contract.definition"}.issubset(FOUND)


@pytest.mark.parametrize("name", FOUND)
def test_examples(name):
    failed, tried = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert tried and not failed
