"""The README is correct: its support table matches the targets, and its links work. Its blocks: test_blocks.py."""
from __future__ import absolute_import, division, print_function

import io
import os
import re
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
with io.open(os.path.join(ROOT, "README.md"), encoding="utf-8") as readme:
    README = readme.read()
with io.open(os.path.join(ROOT, "docs", "architecture.md"), encoding="utf-8") as architecture:
    ARCHITECTURE = architecture.read()

def test_the_support_table_is_current():
    sys.path.insert(0, os.path.join(ROOT, "matrix"))
    try:
        import support
    finally:
        sys.path.pop(0)
    assert support.renewed(README) == README, "run python matrix/support.py"


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\]\(([\w/.]+)\)", README))))
def test_what_it_links_to_is_there(path):
    assert os.path.exists(os.path.join(ROOT, path))


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([a-z_]+/[a-z_0-9/.]*)`", ARCHITECTURE))))
def test_the_rooms_are_where_the_page_says(path):
    assert os.path.exists(os.path.join(ROOT, path))


@pytest.mark.skipif(sys.version_info < (3, 8), reason="a tool in modern Python")
def test_the_table_of_bytes_is_current():
    subprocess.check_call([sys.executable, os.path.join(ROOT, "benchmarks", "traffic.py"), "--check"])
