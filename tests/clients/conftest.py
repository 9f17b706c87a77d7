"""Keeps what each client showed, for matrix/record/proof.md."""
from __future__ import absolute_import, division, print_function

import json
import os

import pytest
from compare import LINES


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    """Lets clients warn, at import and in threads: warning filters are not thread-safe, so none may be "error".

    https://docs.python.org/3/library/warnings.html#warnings.catch_warnings
    """
    config.getini("filterwarnings")[:] = ["ignore"]


def pytest_sessionfinish():
    table = os.environ.get("EVERSTEP_TABLE")
    if table and LINES:
        with open(table.replace(".json", ".clients.json"), "w") as file:
            json.dump(LINES, file)


def pytest_terminal_summary(terminalreporter):
    for line in LINES:
        terminalreporter.write_line("client: " + ", ".join("{} {}".format(*item) for item in sorted(line.items())))

