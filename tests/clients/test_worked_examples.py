"""The scripts of examples/ that need what only a cell of other people's code has: `python matrix/blocks.py CELL`."""
from __future__ import absolute_import, division, print_function

import os
import runpy

import pytest

import blocks

CELL = os.environ.get("EVERSTEP_CELL")
SCRIPTS = [block.page for block in blocks.blocks()
           if block.language == "script" and any(CELL in claim.cells for claim in block.claims)]


@pytest.mark.parametrize("script", SCRIPTS)
def test_runs(script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(os.path.join(blocks.ROOT, script), run_name="__main__")
