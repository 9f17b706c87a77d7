"""`everstep show NAME --plot`: what is drawn, and where. A recorder takes the place of matplotlib."""
from __future__ import absolute_import, division, print_function

import re
import sys

import numpy as np
import pytest

import everstep
from everstep import cli, plots
from everstep.optimizers import SophiaH


class Recorder(object):
    """Stands for a figure of matplotlib, and for its axes."""

    def __init__(self):
        self.lines, self.saved = [], None

    def add_subplot(self, *place):
        return self

    def plot(self, first, second, *style, **line):
        self.lines.append((first, second))

    def semilogy(self, values):
        self.losses = values

    def savefig(self, path):
        self.saved = path

    def __getattr__(self, name):
        return lambda *arguments, **keywords: self


@pytest.fixture
def figure(monkeypatch):
    recorder = Recorder()
    monkeypatch.setattr(plots, "_figure", lambda: recorder)
    return recorder


def test_a_schedule_is_drawn_with_its_arguments(figure, capsys):
    text = "Warmup(polynomial_decay(1.0, decay_steps=2000, end=0.0), 100, start=0.5)"
    assert cli.main(["show", text, "--plot", "a.svg"]) == 0
    (updates, values), = figure.lines
    assert figure.saved == "a.svg" and (updates[0], updates[-1]) == (0, 2500)
    expected = everstep.Warmup(everstep.PolynomialDecay(1.0, decay_steps=2000, end=0.0), 100, start=0.5)
    assert values == [expected(place) for place in updates] and values[0] == 0.5
    assert capsys.readouterr()[0] == "a.svg is written: Warmup from 0 to 2500 updates\n"


@pytest.mark.parametrize("text, lengths", [
    ("PiecewiseConstantDecay((3000, 4000), (3.0, 2.0, 1.0))", 5000), ("ExponentialDecay(1.0, decay_steps=10)", 1000)])
def test_how_many_updates_are_drawn(text, lengths, figure):
    plots.plot(text)
    assert figure.lines[0][0][-1] == lengths and figure.saved == text.partition("(")[0] + ".png"


def test_a_definition_descends(figure, capsys):
    assert cli.main(["show", "sgd(learning_rate=0.01)", "--plot"]) == 0
    (across, up), _ = figure.lines
    # By hand, from (-1.2, 1): the gradient of (1 - x)^2 + 20 (y - x^2)^2 is (-46.64, -17.6).
    np.testing.assert_allclose((across[1], up[1]), (-1.2 + 0.4664, 1 + 0.176), rtol=1e-7)
    assert len(across) == 201 and figure.saved == "sgd.png"
    assert abs(figure.losses[0] - (2.2 ** 2 + 20 * 0.44 ** 2)) < 1e-9
    assert capsys.readouterr()[0].startswith("sgd.png is written: 200 steps of sgd(learning_rate=0.01) with ")


def test_a_rule_of_several_gradients_descends():
    points = plots.descent(SophiaH(0.03))
    assert len(points) == plots.STEPS + 1 and plots.loss(points[-1]) < plots.loss(points[0]) / 100


def test_without_a_rate_the_best_is_drawn(figure):
    assert "learning_rate=0.01, the best of 7," in plots.plot("GradientDescentOptimizer")


@pytest.mark.parametrize("text, complaint", [
    ("CosineDecay", "drawn with its arguments"), ("Adam(0.1)", "arguments by name"), ("Adam(", "a name, or a call"),
    ("Warmup(open('a'), 3)", "a name, or a call"), ("Lookahead", "is a wrapper"),
    ("SGD(learning_rate=1e9)", r"diverges with every learning rate of \[1000000000.0\]"),
])
def test_what_cannot_be_drawn(text, complaint, figure, capsys):
    assert cli.main(["show", text, "--plot"]) == 2
    assert re.search(complaint, capsys.readouterr()[1]) and figure.saved is None


def test_without_matplotlib(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert cli.main(["show", "SGD", "--plot"]) == 2
    assert "pip install matplotlib" in capsys.readouterr()[1]


@pytest.mark.filterwarnings("ignore")  # matplotlib's own
def test_with_matplotlib(tmp_path):
    pytest.importorskip("matplotlib")
    for text in ("SGD(learning_rate=0.003)", "CosineDecay(0.1, decay_steps=10)"):
        plots.plot(text, str(tmp_path / "a.png"))
        assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
