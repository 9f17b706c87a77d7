"""`everstep scan` finds in each snippet of tests/scan/ what is written beside it, and nothing else."""
from __future__ import absolute_import, division, print_function

import pytest

import scan_corpus
from everstep.scan import parsing

STYLES = scan_corpus.styles()


@pytest.mark.skipif(
    parsing.tree_sitter is None, reason="no tree-sitter here, see the extra [scan] in setup.cfg; Python 3.8 and newer")
@pytest.mark.parametrize("style", list(STYLES))
def test_what_is_found(style):
    for name, _, missed, wrong in scan_corpus.checked(STYLES[style]):
        assert (missed, wrong) == ([], []), name


def test_there_are_enough():
    assert len(STYLES) >= 30
    assert sum(len(snippets) for snippets in STYLES.values()) >= 200


def test_mistakes_are_seen():
    place, other = ("code.py", 1), ("code.py", 2)
    right, missed, wrong = scan_corpus.compared({place: ["a", "a"], other: ["b"]}, {place: ["a", "c"]})
    assert (right, missed, wrong) == ([place + ("a",)], [place + ("a",), other + ("b",)], [place + ("c",)])
