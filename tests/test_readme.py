"""The README is correct: its example runs, its support table matches the targets, and its links work."""
from __future__ import absolute_import, division, print_function

import importlib
import io
import os
import re
import subprocess
import sys

import pytest

import harness
from everstep.optimizers import Adam

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
with io.open(os.path.join(ROOT, "README.md"), encoding="utf-8") as readme:
    README = readme.read()
with io.open(os.path.join(ROOT, "docs", "architecture.md"), encoding="utf-8") as architecture:
    ARCHITECTURE = architecture.read()

TRAINING = """
import numpy
from everstep.optimizers.diffgrad import DiffGrad as Shipped
ended = []
for definition in (DiffGrad(0.1), Shipped(0.1)):
    weights = numpy.ones(3)
    optimizer = definition.bind(numpy)
    for grad in (1.0, -2.0, 0.5):
        optimizer.apply_gradients([(numpy.full(3, grad), weights)])
    ended.append(weights)
assert (ended[0] == ended[1]).all() and (ended[0] != 1).all(), ended
"""


def test_the_example_is_the_shipped_optimizer():
    block = re.search(r"```python\n(import everstep\n\nclass DiffGrad.*?)```", README, re.S).group(1)
    block = block.split("DiffGrad(1e-3).bind(tf.train)")[0]
    subprocess.check_call([sys.executable, "-c", block + TRAINING])


def module_of(name):
    """Returns the module that an example calls `name`, or None if it is missing here or has no optimizers."""
    first, rest = name.split(".")[0], name.split(".")[1:]
    try:
        module = importlib.import_module({"tf": "tensorflow"}.get(first, first))
    except ImportError:
        return None
    for part in rest:
        module = getattr(module, part, None)
    if name.endswith(".train"):
        return module if hasattr(module, "Optimizer") else None
    if name.endswith(".legacy"):  # from TF 2.16 on its classes are one class, which only warns
        return module if getattr(getattr(module, "Adam", None), "__name__", "") == "Adam" else None
    return module


@pytest.mark.parametrize("name", sorted(set(re.findall(r"Adam\(1e-3\)\.bind\(([\w.]+)\)", README))))
def test_what_it_binds_to(name):
    module = module_of(name)
    if module is None:
        pytest.skip("no %s with optimizers here" % name)
    assert isinstance(Adam(1e-3).bind(module), Adam.native_class(module))


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


def test_the_first_example_trains(capsys):
    block = re.search(r"```python\n(import numpy\nimport tensorflow.*?)```", README, re.S).group(1)
    tensorflow = pytest.importorskip("tensorflow")
    harness.clear_session(tensorflow.keras)  # in TF 1 an earlier test's session may be of another graph
    names = {}
    exec(block, names)
    assert isinstance(names["model"].optimizer, Adam.native_class(tensorflow.keras))
    losses = re.findall(r"loss: ([0-9.e-]+)", capsys.readouterr().out)
    assert len(losses) == 5 and float(losses[-1]) < float(losses[0])
