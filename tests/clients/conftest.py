"""Tests of code that nobody here wrote. They are collected only where the client that they are of is installed."""
from __future__ import absolute_import, division, print_function

import importlib

CLIENTS = {"test_bert.py": "bert", "test_stable_baselines.py": "stable_baselines"}


def _is_installed(package):
    try:
        importlib.import_module(package)
        return True
    except ImportError:
        return False


collect_ignore = [name for name, package in CLIENTS.items() if not _is_installed(package)]
