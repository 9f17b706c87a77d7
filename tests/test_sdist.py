"""The source distribution has all that its pages lead to, and the description on a package index leads nowhere."""
from __future__ import absolute_import, division, print_function

import json
import os
import subprocess
import tarfile

try:
    from urllib.request import url2pathname
except ImportError:  # Python 2
    from urllib import url2pathname  # type: ignore[attr-defined, no-redef]

import pytest

import blocks
import cells
import conftest
from test_docs import broken, links
from test_matrix import ROOT, dist_info

NOT_SHIPPED = (".ci/", ".github/", ".gitignore")


@pytest.fixture(scope="module")
def unpacked(tmpdir_factory):
    """Returns the folder of the sdist from which this cell's Python built everstep. Only pages have contents."""
    if not conftest.CELL or cells.read()[conftest.CELL].install != "sdist":
        pytest.skip("installed from a wheel; `install = sdist` in cells.ini names the cells that build one")
    path = url2pathname(json.loads(dist_info("direct_url.json"))["url"][len("file://"):])
    folder = str(tmpdir_factory.mktemp("sdist"))
    with tarfile.open(path, "r|gz") as archive:  # in one pass
        for member in archive:
            place = os.path.join(folder, member.name)
            if not os.path.isdir(os.path.dirname(place)):
                os.makedirs(os.path.dirname(place))
            if member.isfile():
                with open(place, "wb") as file:
                    file.write(archive.extractfile(member).read() if place.endswith(".md") else b"")
    name, = os.listdir(folder)
    return os.path.join(folder, name)


def test_every_page_and_what_it_links_to_is_there(unpacked):
    assert blocks.pages(unpacked) == blocks.pages(ROOT)
    assert {page: broken(unpacked, page) for page in blocks.pages(unpacked) if broken(unpacked, page)} == {}


def test_every_tracked_file_is_there(unpacked):
    try:
        tracked = subprocess.check_output(["git", "ls-files"], cwd=ROOT).decode("utf-8").splitlines()
        tracked = [path for path in tracked if not path.startswith(NOT_SHIPPED)]
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is no git checkout")
    lost = [path for path in tracked if not os.path.exists(os.path.join(unpacked, path))]
    assert [path for path in lost if os.path.exists(os.path.join(ROOT, path))] == []


def test_the_description_has_no_relative_links():
    """A package index shows it by itself, so these would lead nowhere."""
    description = dist_info("METADATA").split("\n\n", 1)[1]
    assert "# everstep" in description and "docs/swap_optimizer.md" in description
    assert [link for link in links(description) if not link.startswith("https://")] == []
    assert "<!--" not in description
