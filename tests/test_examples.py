"""What examples/demo.py trains in its environments agrees with its oracle: a few steps, on every API of this one."""
from __future__ import absolute_import, division, print_function

import json
import os
import sys
import warnings
from collections import OrderedDict

import numpy as np
import pytest

import block_setups
import blocks
import harness

sys.path.insert(0, os.path.join(block_setups.ROOT, "examples"))
try:
    import digits
    import page
    import words
    import worker
finally:
    sys.path.pop(0)

STEPS, WORDS, BATCH = 5, 60, 32
BOUND = 1e-5  # as in examples/report.py
OWN = "digits, the API's own Adam"  # nobody promises that these agree
RUNS = [run for run in worker.RUNS if run != OWN]
APIS = list(worker.apis())


def few_digits(random):
    data = {
        "pixels": random.uniform(0, 1, (digits.TRAINING + 20, digits.PIXELS)).astype("float32"),
        "one_hot": np.eye(digits.CLASSES, dtype="float32")[random.randint(0, 10, digits.TRAINING + 20)],
        "order": random.randint(0, digits.TRAINING, (STEPS, BATCH)),
    }
    shapes = [("hidden/kernel", (digits.PIXELS, digits.HIDDEN)), ("hidden/bias", (digits.HIDDEN,)),
              ("scores/kernel", (digits.HIDDEN, digits.CLASSES)), ("scores/bias", (digits.CLASSES,))]
    return shapes, data


def few_words(random):
    data = {
        "center": random.randint(0, WORDS, (STEPS, BATCH, 1)).astype("int32"),
        "near": random.randint(0, WORDS, (STEPS, BATCH, 1 + words.NEGATIVES)).astype("int32"),
        "unseen_center": np.arange(9, dtype="int32"), "unseen_near": np.arange(18, dtype="int32").reshape(9, 2),
        "words": np.array(["word"] * WORDS)}
    return [("center/vectors", (WORDS, words.SIZE)), ("near/vectors", (WORDS, words.SIZE))], data


@pytest.fixture(scope="module")
def oracle(tmpdir_factory):
    """Returns (folder, {run: {variable: array}}): what `prepare` and `oracle` of the worker leave, for random data."""
    folder = str(tmpdir_factory.mktemp("demo"))
    random = np.random.RandomState(1)
    for task, draw in ((digits, few_digits), (words, few_words)):
        shapes, data = draw(random)
        arrays = {"data/" + name: value for name, value in data.items()}
        for place, (name, shape) in enumerate(shapes):
            arrays["weights/%d/%s" % (place, name)] = random.normal(0, 0.1, shape).astype("float32")
        np.savez(os.path.join(folder, task.__name__ + ".npz"), **arrays)
    os.mkdir(os.path.join(folder, "results"))
    worker.train(folder, "oracle", [("numpy", np, None, worker.train_numpy)])
    return folder, results(folder, "oracle")


def results(folder, cell):
    with np.load(os.path.join(folder, "results", cell + ".npz")) as arrays:
        return OrderedDict(
            (result["run"], {name.split("/", 1)[1]: arrays[name] for name in arrays.files
                             if name.startswith("%d/" % number) and not name.endswith("/losses")})
            for number, result in enumerate(json.loads(arrays["results"].item())))


def test_the_oracle_trains_every_run(oracle):
    assert list(oracle[1]) == list(worker.RUNS)


@pytest.mark.parametrize("run, api", harness.share(harness.rotate(RUNS, APIS), 2),
                         ids=lambda value: value[0] if isinstance(value, tuple) else str(value))
def test_every_api_follows_the_oracle(run, api, oracle, monkeypatch, capsys):
    folder, expected = oracle
    monkeypatch.setattr(worker, "RUNS", {run: worker.RUNS[run]})
    if hasattr(api[2], "backend"):
        harness.clear_session(api[2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        worker.train(folder, "here", [api])
    assert "failed" not in capsys.readouterr()[0]
    trained = results(folder, "here")
    if not trained:
        assert run == "words, by hand"  # `train_loop` says where that is not possible
        return
    for name, value in expected[run].items():
        assert np.abs(trained[run][name] - value).max() <= BOUND * np.abs(value).max()


@pytest.mark.skipif(sys.version_info < (3, 8), reason="pages are made by newer Pythons")
@pytest.mark.parametrize("name", page.NAMES)
def test_pages_of_worked_examples_are_current(name):
    """`python examples/page.py` writes them; what the scripts printed is kept from the cells that run them."""
    for file, text in page.files_of(name).items():
        assert page.read(file) == text, "run python examples/page.py"
    assert page.gallery()["README.md"] == page.read("README.md"), "run python examples/page.py"
    claims = [claim for block in blocks.blocks() if block.page == os.path.join("examples", name + ".py")
              for claim in block.claims]
    assert claims and set(claims[0].cells) <= set(page.outputs(name)), "run it with --record CELL"
