"""everstep.testing: finds planted mistakes, compares optimizers, and gives pytest its fixtures.

tests/test_battery.py and others train on the same ways, oracle and checks.
"""
from __future__ import absolute_import, division, print_function

import functools
import os
import subprocess
import sys
from collections import OrderedDict

import numpy as np
import pytest

import everstep
import harness
import small_model
from everstep import cli, new
from everstep.errors import CheckError, DefinitionError, TargetError
from everstep.optimizers import SGD, Adam
from everstep.testing import check_definition, compare
from everstep.testing.oracle import distance
from runs import numpy_cells

pytestmark = pytest.mark.shared
GOLDEN = [({"beta_1": 0.5, "beta_2": 0.75}, 1.0, [1.0, 2.0], [0.9, 0.7988371702])]


class Rule(everstep.Definition):
    """Adam, with an epsilon that no number below shows; start 1, gradients 1 and 2, rate 0.1, beta_1 0.5, beta_2 0.75:

    t=1: m = 0.5, v = 0.25; 1 - 0.1 * (0.5 / 0.5) / sqrt(0.25 / 0.25) = 0.9
    t=2: m = 1.25, v = 1.1875; 0.9 - 0.1 * (1.25 / 0.75) / sqrt(1.1875 / 0.4375) = 0.7988371702
    """

    learning_rate = everstep.hyper(0.1)
    beta_1 = everstep.hyper(0.9)
    beta_2 = everstep.hyper(0.999)
    m = everstep.slot()
    v = everstep.slot()

    def direction(self, ops, m, v, hyper, t):
        return m / (1 - hyper.beta_1**t) / (ops.sqrt(v / (1 - hyper.beta_2**t)) + 1e-8)

    def update(self, ops, grad, var, slots, hyper, t):
        m = hyper.beta_1 * slots.m + (1 - hyper.beta_1) * grad
        v = hyper.beta_2 * slots.v + (1 - hyper.beta_2) * grad * grad
        return self.changed(ops, grad, m, v, hyper, t)

    def changed(self, ops, grad, m, v, hyper, t):
        return hyper.learning_rate * self.direction(ops, m, v, hyper, t), {"m": m, "v": v}


def wrong(name, direction=None, **members):
    """Returns a rule that makes one mistake: in `direction`, of (self, ops, m, v, hyper, t), or in another member."""
    members.update({"direction": direction} if direction else {}, __module__=__name__)
    return type(str(name), (Rule,), members)


class RateFromSelf(Rule):
    def changed(self, ops, grad, m, v, hyper, t):
        return self.learning_rate * self.direction(ops, m, v, hyper, t), {"m": m, "v": v}


class CountsItself(Rule):
    """Counts the steps of a variable in the object; run by run and API by API these are others."""

    counted = [0]

    def direction(self, ops, m, v, hyper, t):
        self.counted[0] += 1
        return m / (ops.sqrt(v) + 1e-8) * (2 if self.counted[0] % 7 else 1)


SlotNotReturned = wrong("SlotNotReturned", changed=lambda self, ops, grad, m, v, hyper, t: (grad, {"m": m}))
SlotsInAnotherOrder = wrong("SlotsInAnotherOrder", changed=lambda self, ops, grad, m, v, hyper, t: (
    hyper.learning_rate * self.direction(ops, m, v, hyper, t), {"v": m, "m": v}))
WrongCorrection = wrong("WrongCorrection", lambda self, ops, m, v, hyper, t: (
    m / (1 - hyper.beta_2**t) / (ops.sqrt(v / (1 - hyper.beta_2**t)) + 1e-8)))
ConstantOfFloat64 = wrong("ConstantOfFloat64", lambda self, ops, m, v, *more: m / ops.sqrt(v) * np.array([1.0, 2.0]))
CountsFromZero = wrong("CountsFromZero", lambda self, *more: Rule.direction(self, *(more[:-1] + (more[-1] + 1,))))
# The number of elements in the gradient is another one if rows come twice.
CountsRows = wrong("CountsRows", lambda self, ops, m, v, hyper, t: m / (ops.sqrt(v) + 1e-8) * (20 / hyper.count),
                   measure=lambda self, ops, grad, *more: {"count": ops.sum(ops.ones_like(grad))})
BY_HAND = r" beta_1=0.5 beta_2=0.75 on numpy, golden numbers: {} after step {}, and {}"
MISTAKES = [
    (SlotNotReturned, r"RuleError: SlotNotReturned declares the slot v, which neither update nor collect returns"),
    (RateFromSelf, r"RateFromSelf.learning_rate was read through `self` .* \(.*test_testing.py, line \d+\)"),
    (WrongCorrection, "WrongCorrection" + BY_HAND.format("0.79999.*", 1, 0.9)),
    (CountsItself, r"CountsItself on numpy, \w+: \de.\d+ .*, the variable.*; rounding is at most 1e-05"),
    (SlotsInAnotherOrder, "SlotsInAnotherOrder" + BY_HAND.format(".*", 2, 0.79)),
    (ConstantOfFloat64, r"ops.multiply got array\(\[1., 2.\]\); a rule computes with the values it is given"),
    (CountsRows, r"CountsRows on numpy, duplicates: \de.\d+ from step \d+ on, the variable; rounding is at most 1e-05"),
    (CountsFromZero, "CountsFromZero" + BY_HAND.format(".*", 1, 0.9)),
]


@numpy_cells
@pytest.mark.parametrize("rule, message", MISTAKES, ids=[rule.__name__ for rule, _ in MISTAKES])
@pytest.mark.filterwarnings("ignore:invalid value")  # the square root of a slot in the other's place
def test_planted_mistakes_are_found(rule, message):
    with pytest.raises(CheckError, match=message) as raised:
        check_definition(rule, golden=GOLDEN, checks=["gradients"], targets=["arrays"], echo=None)
    assert isinstance(raised.value, AssertionError)


@numpy_cells
def test_a_right_rule_passes_and_says_what_was_not_checked():
    said = []
    report = check_definition(Rule, [{"sparse": "variable_rows"}], checks=["gradients", "resumed", "config"],
                              targets=["arrays"], echo=said.append)
    assert len(report.results) == 4 and not report.failures
    header, row = said[0].splitlines()
    assert header.split() == "way dense unique duplicates resumed config".split()
    assert row.split()[0] == "numpy" and row.split()[-1] == "same"
    assert 0 < max(far for result in report.results for far in result.distances.values()) < 1e-6
    assert said[1].startswith("note: no golden numbers") and said[2] == "4 checks passed"


@numpy_cells
def test_the_rate_is_raised_until_variables_move():
    class Slow(SGD):
        def update(self, ops, grad, *more):
            change, new = super(Slow, self).update(ops, grad, *more)
            return 0.03 * change, new

    check_definition(Slow, checks=["rows"], targets=["arrays"], echo=None)
    with pytest.raises(CheckError, match="moved too little to tell: by .* in 100 steps"):
        check_definition(Slow, base={"learning_rate": 0.01}, checks=["gradients"], targets=["arrays"], echo=None)


@numpy_cells
def test_a_definition_in_a_wrapper_is_checked_as_it_is():
    rule = everstep.clip(Adam(1e-3), value=0.5)  # of a small rate: start values are made smaller
    report = check_definition(rule, checks=["gradients", "rows", "rate_set", "config"], targets=["arrays"], echo=None)
    assert {result.check: result.label for result in report.results} == {"gradients": "Clip", "config": "Clip"}


@numpy_cells
def test_wrong_calls():
    with pytest.raises(DefinitionError, match="no check 'speed'; there are gradients, rows"):
        check_definition(Rule, checks=["speed"])
    with pytest.raises(DefinitionError, match="no target or way 'keras9' here; there are .*numpy"):
        check_definition(Rule, targets=["keras9"])
    with pytest.raises(TargetError, match="3 is no optimizer of an API that is installed here"):
        compare(SGD(0.1), 3)


FASTEST = [way for way in harness.quickest() if way.target != "arrays"]


@pytest.mark.parametrize("way", harness.share(FASTEST, len(FASTEST) or 1), ids=harness.way_name)
def test_a_mistake_that_numpy_does_not_show(way):
    """A graph or compiled function counts once, when it is traced: there the rule is wrong in another way."""
    CountsItself.counted[0] = 0
    with pytest.raises(CheckError, match="CountsItself on {}, .*: .*; rounding".format(way.name)):
        check_definition(CountsItself, targets=[way.name], checks=["gradients"], echo=None)


def stock_sgd(way):
    return (getattr(way.stock, "GradientDescentOptimizer", None) or way.stock.SGD)(0.1)


@pytest.mark.parametrize("way", harness.share(FASTEST, len(FASTEST) or 1), ids=harness.way_name)
@pytest.mark.filterwarnings("ignore:Converting sparse IndexedSlices:UserWarning")  # stock Keras 2 does, and TF warns
def test_stock_and_ours_are_compared(way):
    """SGD: the stock Adam of Keras 2.3 reads its count before or after it is increased, at random."""
    result = compare(lambda: stock_sgd(way), SGD(0.1), steps=5, echo=None)
    assert result.same and len(result.rows) >= 5, result.table()
    other = compare(lambda: SGD(0.1).bind(way.module), SGD(0.1, momentum=0.5), steps=3, echo=None)
    assert not other.same
    steps = OrderedDict((row.name, row.step) for row in other.rows if row.what == "weights")
    assert set(steps.values()) == {2} and set(steps) == {"bias", "dense", "duplicates", "single", "unique"}


@numpy_cells
def test_what_differs_and_from_which_step():
    result = compare(SGD(0.1, momentum=0.5), SGD(0.1, momentum=0.5, nesterov=True), steps=3, echo=None)
    assert not result.same and {row.step for row in result.rows if row.what == "weights"} == {1}
    assert all(row.step is None for row in result.rows if row.what == "velocity")
    assert "numpy and numpy: different" in result.table() and "never" in result.table()
    rows = compare(Adam(0.1), Adam(0.1, sparse="rows"), steps=4, echo=None).rows
    assert {row.name for row in rows if row.step} == {"unique", "duplicates"}
    rated = compare(SGD(0.1), SGD(0.1), rates={1: 0.5}, steps=3, echo=None)
    assert rated.same


OF_PYTEST = """
import numpy as np
import pytest
from everstep.optimizers import SGD

@pytest.mark.needs("numpy>=1", target="arrays")
def test_learns(train, target):
    trained = train(SGD(0.5))
    assert trained.losses[-1] < 0.5 * trained.losses[0]
    assert target.target == "arrays"
    assert trained.weights[0].shape == (5, 3)

def test_steps(world):
    weights, ones = world.variable(np.ones(2, "float32")), np.ones(2, "float32")
    world.step(SGD(0.5).bind(world.module), [(ones, weights)])
    assert world.read(weights).tolist() == [0.5, 0.5]

def test_oracle(oracle):
    weights, slots = oracle(SGD(0.5), {"w": np.ones(2)}, [{"w": np.ones(2)}])
    assert weights["w"].tolist() == [0.5, 0.5]

@pytest.mark.needs("nosuch>=2")
def test_absent():
    assert False

@pytest.mark.needs("numpy>=99", target="arrays")
def test_old():
    assert False

@pytest.mark.needs(target="nosuch")
def test_no_target():
    assert False

@pytest.mark.parametrize("target", [1])
def test_of_its_own(target):
    assert target == 1
"""


def python(folder, *arguments, **more):
    """Returns what a Python in a folder prints, which finds everstep, and the modules of a folder `source`."""
    path = os.pathsep.join([str(more.get("source", folder)), os.path.dirname(os.path.dirname(everstep.__file__))])
    process = subprocess.Popen([sys.executable] + list(arguments), cwd=str(folder), stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, env=dict(os.environ, PYTHONPATH=path, PYTEST_ADDOPTS=""))
    return process.communicate()[0].decode()


@numpy_cells
def test_the_plugin(tmpdir):
    tmpdir.join("test_it.py").write(OF_PYTEST)
    output = python(tmpdir, "-m", "pytest", "-p", "everstep.testing.plugin", "-p", "no:cacheprovider", "-rs")
    assert "4 passed, 3 skipped" in output, output
    for text in ("nosuch>=2, which is not installed", "needs numpy>=99; here is", "the target nosuch; here are arrays"):
        assert text in output


@numpy_cells
def test_importing_it_imports_no_framework(tmpdir):
    code = "import sys, everstep.testing as t; print([n for n in %r if n in sys.modules], t.check_definition.__name__)"
    names = ["tensorflow", "keras", "tf_keras", "jax", "torch", "pytest"]
    output = python(tmpdir, "-c", code % names)
    assert "[]" in output and "check_definition" in output


def test_the_model_learns_the_same_on_every_api():
    expected = small_model.train(harness.NUMPY, lambda: Adam(0.1).bind(np), 4)
    for way in harness.share(FASTEST, len(FASTEST) or 1) or [harness.NUMPY]:
        trained = small_model.train(way, functools.partial(Adam(0.1).bind, way.module), 4)
        assert np.allclose(trained.losses, expected.losses, rtol=1e-4)
        assert all(distance(*pair) < 1e-5 for pair in zip(trained.weights, expected.weights))


@numpy_cells
def test_a_new_package_is_green(tmpdir, monkeypatch, capsys):
    monkeypatch.chdir(str(tmpdir))
    assert cli.main(["new", "calm-momentum"]) == 0
    written = capsys.readouterr()[0]
    assert "calm-momentum/src/calm_momentum.py\n" in written and "pip install -e \".[test]\"" in written
    package = tmpdir.join("calm-momentum")
    output = python(package, "-m", "pytest", "-p", "no:cacheprovider", "-s", source=package.join("src"))
    assert "2 passed" in output and "checks passed" in output, output
    workflow, made = package.join(".github", "workflows", "tests.yml").read(), package.join("tox.ini").read()
    assert all("cell: {} }}".format(cell) in workflow and "[testenv:{}]".format(cell) in made for cell in new.CELLS)
    names = ("MyOptimizer", "my-optimizer", "my_optimizer")
    texts = [each.read() for each in package.visit(fil=lambda entry: entry.check(file=1) and entry.ext != ".pyc")]
    assert len(texts) == 14 and not any(name in text for name in names for text in texts)


@numpy_cells
@pytest.mark.parametrize("name, message", [
    ("My_Optimizer", "lower case letters"), ("adam", "Adam is a name of everstep's"), ("taken", "taken exists"),
])
def test_names_that_a_package_cannot_have(name, message, tmpdir, monkeypatch, capsys):
    monkeypatch.chdir(str(tmpdir.ensure("taken", dir=True).dirpath()))
    assert cli.main(["new", name]) == 2 and message in capsys.readouterr()[1]
    assert [each.basename for each in tmpdir.listdir()] == ["taken"]
