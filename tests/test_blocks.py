"""Every code block of the pages runs, in the cells that the comment above it names: `python matrix/blocks.py`."""
from __future__ import absolute_import, division, print_function

import doctest
import os
import runpy
import shlex
import warnings

import pytest

import block_setups
import blocks
import cells
import conftest
import harness
import recipe_setups  # noqa: F401  # adds its set-ups to SETUPS
from everstep import cli

CHAINS = blocks.chains(blocks.blocks())
HERE = conftest.cells_like_this()  # empty, so that no block runs, if no cell has these versions


def runs_here(chain):
    """Returns whether this cell runs a chain. Outside of cells, whether any cell with the same frameworks may."""
    return bool(set(HERE).intersection(blocks.cells_of(chain, harness.FULL or not conftest.CELL)))


def name_of(chain):
    block, claim = chain.steps[0]
    return "%s-%d%s" % (block.page.replace(os.sep, "/"), block.line, "-" + claim.setup if claim.setup else "")


class Run(object):
    """One run of a chain.

    Attributes:
        names: the namespace of its blocks.
    """

    def __init__(self, capsys):
        self.names, self._capsys, self._printed = {"__name__": "__main__"}, capsys, ""

    def step(self, block, claim):
        """Runs a block within its set-up."""
        self._again = lambda: RUNNERS[block.language](self, block, blocks.source(block, claim))
        self._printed = ""
        with block_setups.SETUPS.get(claim.setup, block_setups.nothing)(self):
            self._again()

    def again(self):
        """Runs the present block once more."""
        self._again()

    def printed(self):
        """Returns what the present block has printed."""
        self._printed += self._capsys.readouterr()[0]
        return self._printed


def run_python(run, block, code):
    # Lines in front, so that a traceback shows the line of the page.
    path = os.path.join(blocks.ROOT, block.page)
    exec(compile("\n" * (block.line - 1) + code, path, "exec", dont_inherit=True), run.names)


def run_pycon(run, block, code):
    test = doctest.DocTestParser().get_doctest(code, run.names, block.page, block.page, block.line - 1)
    failed, tried = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, clear_globs=False)
    assert tried and not failed, run.printed()
    run.names.update(test.globs)


def run_console(run, block, code):
    for command, expected in blocks.commands(code):
        run.printed()
        before = run._printed
        assert cli.main(shlex.split(str(command))[1:]) == 0, command
        output = run.printed()[len(before):]
        assert expected is None or output.strip() == expected.strip(), command


def run_script(run, block, code):
    runpy.run_path(os.path.join(blocks.ROOT, block.page), run_name="__main__")


RUNNERS = {"python": run_python, "pycon": run_pycon, "console": run_console, "sh": run_console, "script": run_script}


@pytest.mark.parametrize("chain", [chain for chain in CHAINS if runs_here(chain)], ids=name_of)
def test_runs(chain, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for keras in block_setups.every_keras():
        harness.clear_session(keras)  # in TF 1 an earlier test's session may be of another graph
    run = Run(capsys)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # users see them, and go on
        for block, claim in chain.steps:
            run.step(block, claim)


def test_every_block_has_a_place():
    assert blocks.faults(setups=block_setups.SETUPS) == []


def test_every_setup_is_used():
    used = {claim.setup for block in blocks.blocks() for claim in block.claims}
    assert set(block_setups.SETUPS) == used - {None}


# The map itself


def page(tmp_path, text):
    (tmp_path / "README.md").write_text(text)
    return str(tmp_path)


def test_mistakes_are_seen(tmp_path):
    root = page(tmp_path, (
        u"```python\n1\n```\n"
        u"<!-- runs in: py1-tf* -->\n```python\n1\n```\n"
        u"<!-- runs in: py36-tf1.6-* -->\n```python\n1\n```\n"
        u"<!-- runs in: py36-tf1.6-*; because: it is of a version -->\n```python\n1\n```\n"
        u"<!-- runs in: *-numpy; setup: nobody -->\n```python\n1\n```\n"
        u"<!-- runs in: *-numpy; lines: 1 3-5 -->\n```python\n1\n2\n\n4\n```\n"
        u"<!-- not run: no -->\n```sh\nrm\n```\n"
        u"<!-- runs after: previous -->\n```python\n1\n```\n"
        u"<!-- runs in: *-numpy -->\n```sh\npip install everstep\n```\n"
        u"<!-- runs in: *-numpy -->\n```\n1\n```\n"
        u"```text\n1\n```\n\n"
        u"    indented\n"
    ))  # fmt: skip
    assert [fault.replace("README.md:", "") for fault in blocks.faults(root, {"known"})] == [
        "2: no comment says where the block runs, such as <!-- runs in: py313-numpy -->",
        "6: py1-tf* is none of the cells in api/matrix_kit/cells.ini",
        "6: no quick cell runs it; add one, or the reason: `because: ...`",
        "10: no quick cell runs it; add one, or the reason: `because: ...`",
        "18: there is no set-up nobody in tests/block_setups.py",
        "22: the block has 4 lines, not 5",
        "23: no comment claims this line",
        "33: it runs after the block above it, which does not run",
        "37: only everstep's commands run, not: pip install everstep",
        "41: the language of a block is one of python, pycon, console, sh, text, mermaid; this has none",
        " this is indented as code; put it between ``` lines: indented",
    ]


@pytest.mark.parametrize("comment", ["runs on: py313-numpy", "runs in:", "runs after: next", "runs in: a; set-up: b"])
def test_a_comment_that_is_no_claim_is_an_error(comment, tmp_path):
    root = page(tmp_path, u"<!-- %s -->\n```python\n1\n```\n" % comment)
    with pytest.raises(ValueError, match="README.md:3: "):
        blocks.blocks(root)


def test_chains(tmp_path):
    root = page(tmp_path, (
        u"<!-- runs in: py313-numpy -->\n<!-- runs in one of: *-k3* -->\n```python\na\nb\n```\n"
        u"<!-- runs after: previous -->\n<!-- runs in: py27-numpy; lines: 2 -->\n```python\nc\nd\n```\n"
        u"<!-- runs after: previous -->\n```python\ne\n```\n"
    ))
    chains = {chain.cells: "|".join(blocks.source(*step).strip() for step in chain.steps)
              for chain in blocks.chains(blocks.blocks(root))}
    assert chains == {("py313-numpy",): "a\nb|c\nd|e", ("*-k3*",): "a\nb|c\nd|e", ("py27-numpy",): "d|e"}
    by_rotation = next(chain for chain in blocks.chains(blocks.blocks(root)) if chain.how == "one of")
    picked, every = blocks.cells_of(by_rotation), blocks.cells_of(by_rotation, full=True)
    quick = [name for name in picked if cells.read()[name].group == "quick"]
    assert len(quick) == 1 and set(picked) < set(every)


def test_commands():
    code = "$ everstep list \\\n    --json\na\nb\n\n$ everstep doctor\n"
    assert list(blocks.commands(code)) == [("everstep list     --json", "a\nb\n\n"), ("everstep doctor", "")]
    commands = list(blocks.commands("everstep a \\\n  b\n\neverstep c\n"))
    assert commands == [("everstep a   b", None), ("everstep c", None)]
