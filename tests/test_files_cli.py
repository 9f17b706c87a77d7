"""`everstep inspect` and `everstep convert`, run from the command line on files of real frameworks."""
from __future__ import absolute_import, division, print_function

import json
import os
import re

import numpy as np
import pytest

import blocks
import everstep
from crafted_files import FORMATS, TENSORFLOW
from everstep import cli, terminal
from harness import assert_same_arrays
from test_cli import table
from test_files import BY_NAME

KERAS = BY_NAME["keras3.15-jax/momentum.keras"].path


def test_inspect_is_a_table_for_people(command):
    code, output, complaint = command("inspect", BY_NAME["keras2.1-tf1.4/amsgrad.h5"].path)
    assert code == 0, complaint
    facts = dict(table(output, "FIELD"))
    assert (facts["format"], facts["writer"], facts["api"]) == ("keras-h5", "Keras 2.1.6", "get_updates")
    assert (facts["optimizer"], facts["learning_rate"], facts["updates"]) == ("Adam", "0.1", "3")
    rows = table(output, "VARIABLE")
    assert ["embedding/embeddings", "v_hat", "(5, 3)", "float32"] in rows and len(rows) == 6


def test_inspect_is_json_for_programs(command):
    fixture = BY_NAME["keras3.15-jax/amsgrad.weights.h5"]
    code, output, _ = command("inspect", fixture.path, "--json")
    facts = json.loads(output)
    assert code == 0 and facts["updates"] is None and "--optimizer" in facts["missing"][0]
    code, output, _ = command("inspect", fixture.path, "--json", "--optimizer", "Adam(amsgrad=True)")
    facts = json.loads(output)
    assert code == 0 and facts["updates"] == 3 and not facts["missing"]
    assert ["embedding/0", "m", [5, 3], "float32"] in facts["slots"]


def test_convert_to_our_own_format(command, tmp_path):
    path = str(tmp_path / "run.npz")
    dry = command("convert", KERAS, path, "--to", "everstep", "--dry-run")
    assert dry[0] == 0 and "would be written" in dry[1] and not os.path.exists(path)
    code, output, complaint = command("convert", KERAS, path, "--to", "everstep", "--rename", r"(.*)/\w+=\1", "--json")
    assert code == 0, complaint
    facts = json.loads(output)
    assert facts["written"] and facts["updates"] == 3 and facts["bytes"] == 168
    matched = [row[:2] for row in facts["variables"]]
    assert matched == [["embedding", "embedding/embeddings"], ["output", "output/kernel"]]
    state, expected = everstep.State.load(path), everstep.read_checkpoint(KERAS)
    np.testing.assert_array_equal(
        np.asarray(state.slots["output"]["velocity"]), np.asarray(expected.slots["output/kernel"]["velocity"]))
    code, output, _ = command("inspect", path)
    assert code == 0 and dict(table(output, "FIELD"))["format"] == "everstep"


def test_convert_into_a_template(command, tmp_path):
    source, path = str(tmp_path / "run.npz"), str(tmp_path / "new.keras")
    everstep.read_checkpoint(BY_NAME["keras2.1-tf1.4/momentum.h5"].path).save(source)
    code, output, complaint = command("convert", source, path, "--to", "keras", "--template", KERAS)
    assert code == 0, complaint
    assert table(output, "VARIABLE") == [[name, name, "name"] for name in ("embedding/embeddings", "output/kernel")]
    assert_same_arrays(everstep.read_checkpoint(path), everstep.State.load(source))


@TENSORFLOW
def test_convert_rescales_momentum(command, tmp_path):
    fixture, path = BY_NAME["tf1.4/momentum.ckpt"], str(tmp_path / "new.keras")
    arguments = ["convert", fixture.path, path, "--to", "keras", "--template", KERAS, "--by-order", "--optimizer",
                 "Momentum(learning_rate=0.5, momentum=0.9)", "--learning-rate", "0.25"]
    code, _, complaint = command(*arguments)
    assert code == 0, complaint
    actual = everstep.read_checkpoint(path).slots["output/kernel"]["velocity"]
    expected = -0.25 * np.float32(fixture.slots["kernel"]["velocity"])
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=1e-6)


@pytest.mark.parametrize("arguments, word", [
    (["inspect", "nothing"], "there is no file"), (["convert", KERAS, "out.h5", "--to", "keras-h5"], "--template"),
    (["convert", KERAS, "out", "--to", "tf-object"], "everstep.restore"),
    (["convert", KERAS, "out.npz", "--to", "npz"], "there is no format"),
    (["convert", KERAS, "out.npz", "--to", "everstep", "--rename", "none=x"], "no variable is called")])
def test_what_makes_no_sense(arguments, word, command):
    code, output, complaint = command(*arguments)
    assert (code, output) == (2, "") and word in complaint and "Traceback" not in complaint
    assert not os.path.exists("out.npz")


def test_progress_is_told_on_large_files(capsys):
    with cli.progress(terminal.LARGE * 4) as moved:
        for _ in range(4):
            moved(terminal.LARGE)
    assert "256" in capsys.readouterr().err  # tqdm prints 256 MB or 256M
    with cli.progress(terminal.LARGE - 1) as moved:
        moved(5)
    assert capsys.readouterr().err == ""


# docs/files.md


def test_all_formats_are_shown():
    """tests/test_blocks.py compares what these commands print."""
    shown = "".join(block.code for block in blocks.blocks() if block.language == "console")
    for format in FORMATS:
        assert re.search(r"\nformat +{}\n".format(format), shown), format
    for format in cli.WRITTEN:
        assert re.search(r" --to {}\s".format(format), shown), format
