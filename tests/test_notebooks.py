"""The notebooks of the tutorials run from top to bottom, and print what their pages say."""
from __future__ import absolute_import, division, print_function

import os

import pytest

import blocks
import cells
from conftest import CELL

if CELL == cells.NOTEBOOKS:
    import notebooks
    TUTORIALS = notebooks.TUTORIALS
else:
    TUTORIALS = ("none",)
pytestmark = pytest.mark.skipif(CELL != cells.NOTEBOOKS, reason="only the cell %s has nbclient: matrix/generate.py"
                                % cells.NOTEBOOKS)


@pytest.mark.parametrize("page", TUTORIALS)
def test_runs(page, tmp_path):
    made = notebooks.notebook(page, str(tmp_path))
    notebooks.nbformat.validate(made)
    assert made == notebooks.notebook(page, str(tmp_path))  # the same each time
    code = [cell for cell in made.cells if cell.cell_type == "code"]
    assert code and made.cells[0].source.startswith("# ")
    for link in notebooks.LINK.findall("".join(cell.source for cell in made.cells if cell.cell_type == "markdown")):
        assert os.path.exists(str(tmp_path.joinpath(link.partition("#")[0])))
    notebooks.execute(made, str(tmp_path))
    assert all(cell.execution_count for cell in code)


def test_a_wrong_output_is_seen(tmp_path):
    code = notebooks._code("pycon", ">>> a = 1\n>>> a + 1\n3\n")
    made = notebooks.nbformat.v4.new_notebook(cells=code)
    assert [cell.source for cell in code] == ["a = 1\na + 1"]
    with pytest.raises(ValueError, match="prints\n2\nnot\n3"):
        notebooks.execute(made, str(tmp_path))


def test_what_other_versions_run_stays_text(tmp_path):
    made = notebooks.notebook("docs/custom_loops.md", str(tmp_path))
    code = "".join(cell.source for cell in made.cells if cell.cell_type == "code")
    text = "".join(cell.source for cell in made.cells if cell.cell_type == "markdown")
    assert "GradientTape" in code and "import jax" in text and "import jax" not in code
    assert "runs in:" not in text and blocks.FENCE.search(text)
