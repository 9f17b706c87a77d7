"""The documentation holds together: every link and anchor resolves, the index has every page, tables are current."""
from __future__ import absolute_import, division, print_function

import os
import re
import subprocess
import sys

import pytest

from blocks import ROOT, pages, read

INDEX = os.path.join("docs", "README.md")
SHELVES = ("docs", os.path.join("docs", "records"))  # for users; for the record
FENCE = re.compile(r"^( *)```.*?^\1```$", re.S | re.M)


def links(text):
    """Returns the targets of all links and images outside of code."""
    text = re.sub(r"`[^`]*`", "code", FENCE.sub("", text))
    return re.findall(r"\]\(([^()\s]+)\)", text)


def anchors(text):
    """Returns the anchors that GitHub gives the headings: lower case, no punctuation, hyphens for spaces."""
    found = []
    for heading in re.findall(r"^#{1,6} +(.*?) *$", FENCE.sub("", text), re.M):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", heading.lower(), flags=re.U).replace(" ", "-")
        repeated = len([each for each in found if re.match(re.escape(anchor) + r"(-\d+)?$", each)])
        found.append("{}-{}".format(anchor, repeated) if repeated else anchor)
    return found


def broken(root, page):
    """Returns the links of a page that lead nowhere."""
    lost = []
    for link in links(read(os.path.join(root, page))):
        if re.match(r"[a-z]+:", link):  # https:, mailto:
            continue
        path, _, anchor = link.partition("#")
        target = os.path.normpath(os.path.join(root, os.path.dirname(page), path)) if path else os.path.join(root, page)
        if not os.path.exists(target):
            lost.append(link)
        elif anchor and (not target.endswith(".md") or anchor not in anchors(read(target))):
            lost.append(link)
    return lost


def not_in_index(root):
    """Returns the pages of both shelves that the shelf's index does not link to."""
    lost = []
    for page in pages(root):
        shelf, name = os.path.split(page)
        if shelf in SHELVES and name != "README.md":
            linked = {link.partition("#")[0] for link in links(read(os.path.join(root, shelf, "README.md")))}
            lost += [] if name in linked else [name]
    return lost


def straight_to_records(root):
    """Returns the links of the index that lead to the record, other than to its own index."""
    return [link for link in links(read(os.path.join(root, INDEX)))
            if re.search(r"records?/", link) and link != "records/README.md"]


@pytest.mark.shared
@pytest.mark.parametrize("page", pages(ROOT))
def test_links_and_anchors_resolve(page):
    assert broken(ROOT, page) == []


def test_every_page_is_in_the_index_of_its_shelf():
    assert not_in_index(ROOT) == []


def test_the_index_for_users_links_to_the_record_once():
    assert links(read(os.path.join(ROOT, INDEX))).count("records/README.md") == 1
    assert straight_to_records(ROOT) == []


def test_the_pages_are_found():
    assert {"README.md", "CONTRIBUTING.md", INDEX, os.path.join("matrix", "README.md")}.issubset(pages(ROOT))


def test_mistakes_are_seen(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text(
        u"# One\n## Two: *words*\n## Two: *words*\n[a](docs/page.md) [b](docs/lost.md) [c](#two-words-1) [d](#three)\n"
        u"[e](docs/page.md#part-a_b) [f](docs/page.md#lost) [g](https://example.org/lost) `[h](lost)`\n"
        u"```\n# not-a-heading\n[i](lost)\n```\n[j](#not-a-heading) ![k](lost.png) [l](docs)\n"
    )
    (tmp_path / "docs" / "page.md").write_text(u"# Part `a_b`\n[up](../README.md#one) [lost](README.mdx)\n")
    (tmp_path / "docs" / "README.md").write_text(u"# Index\n[page](page.md#part-a_b) [f](records/figures.md)\n")
    (tmp_path / "docs" / "forgotten.md").write_text(u"no link leads here\n")
    (tmp_path / "docs" / "records").mkdir()
    (tmp_path / "docs" / "records" / "README.md").write_text(u"# Record\n")
    (tmp_path / "docs" / "records" / "figures.md").write_text(u"# Figures\n")
    root = str(tmp_path)
    shelf = [os.path.join("docs", name) for name in ("README.md", "forgotten.md", "page.md")]
    shelf += [os.path.join("docs", "records", name) for name in ("README.md", "figures.md")]
    assert pages(root) == ["README.md"] + shelf
    assert broken(root, "README.md") == ["docs/lost.md", "#three", "docs/page.md#lost", "#not-a-heading", "lost.png"]
    assert broken(root, os.path.join("docs", "page.md")) == ["README.mdx"]
    assert not_in_index(root) == ["forgotten.md", "figures.md"]
    assert straight_to_records(root) == ["records/figures.md"]


@pytest.mark.skipif(sys.version_info < (3, 8), reason="a tool in modern Python")
@pytest.mark.parametrize("script", ["loaders.py", "optimizer_table.py", "slot_table.py"])
def test_a_generated_table_is_current(script):
    subprocess.check_call([sys.executable, os.path.join(ROOT, "tests", "make", script), "--check"])
