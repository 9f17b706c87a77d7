"""The notebooks of the tutorials run from top to bottom, and print what their pages say."""
from __future__ import absolute_import, division, print_function

import os

import pytest

import blocks
import cells
from conftest import CELL

if CELL == cells.NOTEBOOKS:
    import nbformat

    import notebooks
    TUTORIALS = notebooks.TUTORIALS
else:
    TUTORIALS = ("none",)
pytestmark = pytest.mark.skipif(CELL != cells.NOTEBOOKS, reason="only the cell %s has nbclient: matrix/generate.py"
                                % cells.NOTEBOOKS)


@pytest.mark.parametrize("page", TUTORIALS)
def test_runs(page, tmp_path):
    made = notebooks.notebook(page, str(tmp_path))
    nbformat.validate(nbformat.from_dict(made))
    assert made == notebooks.notebook(page, str(tmp_path))  # the same each time
    assert sources(made, "code") and made["cells"][0]["source"].startswith("# ")
    for link in notebooks.LINK.finditer("".join(sources(made, "markdown"))):
        assert os.path.exists(str(tmp_path.joinpath(link.group("address").partition("#")[0])))
    ran = notebooks.execute(made, str(tmp_path))
    assert all(cell.execution_count for cell in ran.cells if cell.cell_type == "code")


@pytest.mark.parametrize("page", TUTORIALS)
def test_a_download_has_the_same_code_and_no_link_that_leads_nowhere(page, tmp_path):
    made, placed = notebooks.notebook(page), notebooks.notebook(page, notebooks.blocks.ROOT)
    assert sources(made, "code")[1:] == sources(placed, "code")[1:]  # the first may say where data are
    assert not notebooks.LINK.search("".join(sources(made, "markdown")))
    assert notebooks.LINK.search("".join(sources(placed, "markdown")))
    path = str(tmp_path.joinpath("a.ipynb"))
    notebooks.write(made, path)
    nbformat.validate(nbformat.read(path, as_version=4))


def sources(made, kind):
    return [cell["source"] for cell in made["cells"] if cell["cell_type"] == kind]


def test_a_wrong_output_is_seen(tmp_path):
    code = notebooks._code("pycon", ">>> a = 1\n>>> a + 1\n3\n")
    made = dict(notebooks.notebook("docs/schedules.md"), cells=code)
    assert [cell["source"] for cell in code] == ["a = 1\na + 1"]
    with pytest.raises(ValueError, match="prints\n2\nnot\n3"):
        notebooks.execute(made, str(tmp_path))


def test_what_other_versions_run_stays_text(tmp_path):
    made = notebooks.notebook("docs/custom_loops.md", str(tmp_path))
    code, text = "".join(sources(made, "code")), "".join(sources(made, "markdown"))
    assert "GradientTape" in code and "import jax" in text and "import jax" not in code
    assert "runs in:" not in text and blocks.FENCE.search(text)
