"""The page of `everstep scan --html`, of the snippets in tests/scan and of a hostile file, in Chromium."""
from __future__ import absolute_import, division, print_function

import sys

import pytest

import scan_corpus
from everstep import cli
from everstep.scan import parsing

pytestmark = pytest.mark.skipif(
    parsing.tree_sitter is None, reason="no tree-sitter here, see the extra [scan] in setup.cfg; Python 3.8 and newer")
HOSTILE = "a<img src=x onerror=nonsense()>.py"  # no script of it runs
SHOWN = "[...document.querySelectorAll('#places tbody tr')].filter(row => row.offsetHeight > 0)"
ALL = "document.querySelectorAll('#places tbody tr').length"


@pytest.fixture(scope="module")
def report(tmpdir_factory):
    folder = tmpdir_factory.mktemp("page")
    folder.join(HOSTILE).write("import keras\nkeras.optimizers.Adam('</code><script>nonsense()</script>')\n")
    for style, snippets in scan_corpus.styles().items():
        for number, (_, files, _) in enumerate(snippets):
            scan_corpus.written(files, str(folder.join(style.replace(" ", "_"), str(number))))
    page = str(folder.join("page.html"))
    assert cli.main(["scan", "--html", page, str(folder)]) == 0
    return page


@pytest.fixture(scope="module")
def chromium():
    assert sys.version_info >= (3, 8), "the parser needs it"
    import browser

    if browser.CHROMIUM is None:
        pytest.skip(browser.NEEDED)
    with browser.Browser() as running:
        yield running


@pytest.mark.parametrize("width, dark", [(1280, False), (390, True)])
def test_it_fits_says_no_error_and_can_be_read(chromium, report, width, dark):
    import browser

    page = chromium.open(report, width=width, dark=dark)
    assert page.fits() and page.faults == []
    assert page.texts("#count") == [str(page.value(ALL))] and page.value(ALL) > 300
    assert any(HOSTILE in text for text in page.texts("#places td:first-child"))
    if browser.axe():
        page.write("#query", "newest")  # axe looks at what is shown, and takes long for many rows
        assert page.value(SHOWN + ".filter(row => row.querySelector('.broken')).length") > 3
        assert page.inaccessible() == []
    page.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_search_and_kinds(chromium, report, width):
    page = chromium.open(report, width=width)
    every = page.value(ALL)
    texts = [text.lower() for text in page.value("[...document.querySelectorAll('#places tbody tr')]"
                                                 ".map(row => row.textContent)")]
    for query in ("AdaM", "keras  SGD", "no such word"):
        page.write("#query", query)
        expected = [text for text in texts if all(word in text for word in query.lower().split())]
        assert page.value(SHOWN + ".map(row => row.textContent.toLowerCase())") == expected, query
        assert page.texts("#count") == [str(len(expected))]
        assert len(expected) < every
    page.write("#query", "")
    boxes = page.value("[...document.querySelectorAll('input[type=checkbox]')].map(each => each.value)")
    assert {"construction", "not understood", "state", "wrapper"} <= set(boxes)
    left = every
    for kind in boxes:
        label = [text for text in page.texts("label") if text.strip().startswith(kind + " (")]
        page.click("input[value='{}']".format(kind))
        left -= int(label[0].rpartition("(")[2][:-1])
        assert page.texts("#count") == [str(left)]
        assert page.value(SHOWN + ".filter(row => row.dataset.kind == '{}').length".format(kind)) == 0
    assert left == 0
    page.click("input[value='state']")
    page.write("#query", "saver")
    assert page.value(SHOWN + ".every(row => row.dataset.kind == 'state')") and page.texts("#count") != ["0"]
    assert page.faults == []
    page.close()


def test_faults_are_seen(chromium, tmpdir):
    """The tests above rely on this: the browser reports errors of the page."""
    import browser

    tmpdir.join("page.html").write(
        "<html lang=en><title>x</title><p style='width: 2000px; color: #ccc; background: #fff'>text"
        "<img src='http://localhost:9/x.png'><script>console.error('one'); nonsense()</script>")
    page = chromium.open(tmpdir.join("page.html"), width=390)
    assert not page.fits()
    faults = " ".join(page.faults)
    assert "['one']" in faults and "nonsense is not defined" in faults and "asks for http://localhost:9/x.png" in faults
    if browser.axe():
        found = " ".join(page.inaccessible())
        assert "alternative text" in found and "contrast" in found
    page.picture(str(tmpdir.join("page.png")))
    assert tmpdir.join("page.png").read_binary()[:8] == b"\x89PNG\r\n\x1a\n"
    page.close()
