"""What the site says is so: which API a module speaks, formulas, docstrings. The cell py313-site builds the site."""
from __future__ import absolute_import, division, print_function

import doctest
import inspect
import os
import re
import sys

import pytest

import everstep
import spoken_apis
from blocks import read
from everstep import optimizers
from everstep.compat.targets import detect
from everstep.errors import TargetError, UnsupportedError
from harness import doctor

WEBSITE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "website")
modern = pytest.mark.skipif(sys.version_info < (3, 8), reason="a tool in modern Python")


def test_the_chooser_knows_what_every_module_speaks():
    versions = {package.name: package.version for package in doctor.packages() if package.version}
    spoken = {module: api.target for module, api in spoken_apis.spoken(versions).items()}
    assert spoken == {row.module.replace("tensorflow", "tf"): row.target for row in doctor.speaks() if row.target}


def test_versions_that_decide():
    assert spoken_apis.number("2.13.0+cpu") == (2, 13, 0)
    assert list(spoken_apis.spoken({"tensorflow": "1.15.5"})) == ["tf.train", "tf.compat.v1.train", "tf.keras"]
    assert spoken_apis.spoken({"tensorflow": "2.16.2"})["tf.keras"].target == "keras3"
    assert list(spoken_apis.spoken({"keras": "2.4.3"})) == []


@pytest.fixture
def website(monkeypatch):
    monkeypatch.syspath_prepend(WEBSITE)


@modern
@pytest.mark.shared
def test_formulas(website):
    from formulas import formula

    assert formula("m := beta_1 * m") == (
        '<math displaystyle="true"><mrow><mi>m</mi><mo>\u2254</mo><msub><mi>\u03b2</mi><mi>1</mi></msub>'
        "<mo>\u22c5</mo><mi>m</mi></mrow></math>")
    assert "<msqrt><mi>v</mi></msqrt>" in formula("var := var - rate * m / (sqrt(v) + epsilon)")
    assert formula("v = t^2, over all variables").endswith("</math>, over all variables")
    assert formula("With p: v = a - (b - c)").startswith("With p: <math") and formula("a - (b - c)") is None
    assert "(</mo><mi>b</mi><mo>\u2212</mo><mi>c</mi>" in formula("v = a - (b - c)")
    assert "(" not in formula("v = (a - b) - c")
    assert "<mi>m</mi><mspace width='.35em'/><mrow><msup><mi>q</mi>" in formula("v := m @ q^T")
    assert "<mrow><mo>\u2212</mo><mn>8</mn></mrow>" in formula("v = v + 1e-8")
    assert formula("v = v^(-1/4)").endswith("<mn>1</mn></mrow><mo>/</mo><mn>4</mn></mrow></msup></mrow></math>")
    assert "<msub><mi>g</mi><mrow><mn>1</mn></mrow></msub>" in formula("g_1 = grad(start)")
    assert "<msub><mi>g</mi><mrow><mi>j</mi></mrow></msub>" in formula("x = sum(points_ij * g_j)")
    assert "<msub><mi>points</mi><mrow><mi>i</mi><mi>j</mi></mrow></msub>" in formula("x = sum(points_ij * g_j)")
    assert "<mi>d_max</mi>" in formula("d := d_max")
    assert formula("x = 1 if a > 0 else 2 if a < 0 else 3").count("<mtext>, else&#160;</mtext>") == 2
    for text in ("No stock API has it.", "x = import y", "v = f(*a)"):
        assert formula(text) is None, text


@modern
@pytest.mark.shared
def test_docstrings(website):
    from docstrings_as_markdown import markdown

    text = markdown(
        "Does it.\n\n| a   | b   |\n|-----|-----|\n| one | two |\n|   on | more |\n\nArgs:\n    x: First. See\n"
        "        <this>.\n    y: Second.\n\nReturns:\n    A [list].\n\n>>> 1\n1\n", 3)
    assert "| a | b |\n| --- | --- |\n| one on | two more |" in text
    assert "### Arguments\n\n- **`x`**: First. See\n  &lt;this&gt;.\n- **`y`**: Second." in text
    assert "### Returns\n\nA \\[list]." in text and "```pycon\n>>> 1\n1\n```" in text
    assert markdown("Does.\n\nArgs:\n    x: A name\n        of a file: its path.\n", None) == (
        "Does.\n\n**Arguments**\n\n- **`x`**: A name\n  of a file: its path.\n")
    assert markdown("First: http://a.org/x(64)y\nBy-name: Two.", None) == (
        "- **`First`**: <http://a.org/x(64)y>\n- **By-name**: Two.\n")
    assert markdown("One of\n\nnorm: A bound.\nvalue: Of each\n    element.", None) == (
        "One of\n\n- **`norm`**: A bound.\n- **`value`**: Of each\n  element.\n")
    assert markdown("With b_1, v := max(v, b_1), and sparse=\"rows\", as `c`: http://a.org/b_1.", None) == (
        "With `b_1`, `v := max(v, b_1)`, and `sparse=\"rows\"`, as `c`: <http://a.org/b_1>.\n")


@modern
@pytest.mark.shared
def test_the_api_reference_is_current(website):
    import api_reference

    assert api_reference.page() == read(api_reference.PAGE), "run python website/api_reference.py"
    named = [name for _, names in api_reference.GROUPS for name in names.split()]
    modules = [name for name in everstep.__all__ if inspect.ismodule(getattr(everstep, name))]
    assert sorted(named) == sorted(set(everstep.__all__) - set(modules)) and modules == ["errors", "optimizers"]


@modern
@pytest.mark.shared
def test_every_public_name_has_an_example(website):
    import api_reference

    # What needs a framework has lines of code, which pages of docs/ have and run.
    assert [name for _, names in api_reference.GROUPS for name in names.split()
            if not re.search(r">>> |^ {4,}.*\beverstep\.\w+\(", api_reference.docstring(name), re.M)] == []
    for name, text in api_reference.EXAMPLES.items():
        test = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
        assert not doctest.DocTestRunner().run(test).failed


@modern
@pytest.mark.shared
@pytest.mark.parametrize("name", ["Adam", "SGD"])
def test_curves_are_of_the_definition(website, name):
    import curves

    rate, points = curves.best(lambda rate: getattr(optimizers, name)(learning_rate=rate), [0.01])
    assert rate == 0.01 and len(points) == curves.STEPS + 1 and points[0] == curves.START
    x, y = curves.START
    slope = (2 * (x - 1) - 80 * x * (y - x * x), 40 * (y - x * x))
    step = [0.01 * each / (abs(each) + 1e-7) if name == "Adam" else 0.01 * each for each in slope]
    assert max(abs(points[1][k] - (curves.START[k] - step[k])) for k in (0, 1)) < 1e-6
    assert curves.loss(points[-1]) < curves.loss(points[0])


@modern
@pytest.mark.shared
def test_check_sees_faults(website, tmp_path):
    import check_site

    (tmp_path / "a.html").write_text(u'<a href="b.html#x">b</a><a href="c.html">c</a><p id="here"><a href="#here">h</a>'
                                     u'<script src="https://example.org/x.js"></script>')
    (tmp_path / "b.html").write_text(u'<a href="https://example.org">elsewhere</a>')
    (tmp_path / "s.css").write_text(u"@import url(//example.org/font.css);")
    assert check_site.faults(str(tmp_path)) == [
        "a.html: b.html#x has no such anchor", "a.html: c.html leads nowhere",
        "a.html: loads https://example.org/x.js from a network", "s.css: loads //example.org/font.css from a network"]
    assert check_site.faults(str(tmp_path / "none")) != []


@modern
@pytest.mark.shared
def test_check_sees_a_missing_notebook(website, tmp_path):
    import check_site

    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "keras3.html").write_text(u'<a href="a/keras3.ipynb">n</a><a href="keras3.ipynb">n</a>')
    (tmp_path / "docs" / "keras3.ipynb").write_text(u'{"cells": []}')
    (tmp_path / "docs" / "schedules.html").write_text(u'<a href="keras3.ipynb">n</a>')
    assert check_site.faults(str(tmp_path)) == [
        "docs/keras3.html: a/keras3.ipynb leads nowhere", "docs/keras3.html: keras3.ipynb is an empty notebook",
        "docs/schedules.html: has no link to schedules.ipynb"]
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "README.html").write_text(u"")
    missing = [each for each in check_site.faults(str(tmp_path)) if each.startswith("examples/README.html")]
    assert len(missing) == len(check_site.TUTORIALS) == 5


DEFINITION = (
    u'<h2>Use</h2><pre>A(\n    x,\n    *, y=2,\n    **z,\n)</pre><pre>compile(A(1).bind(keras))</pre><h2>Arguments</h2>'
    u'<ul class="arguments simple"><li><p><strong><code>x</code></strong>: One.</p></li><li><strong><code>y</code>'
    u'</strong>: Two, <code>z</code>.</li><li><strong><code>**z</code></strong>: Rest.</li></ul><h2>Rule</h2>'
    u'<h2>Stock optimizers</h2><h2>What it stores</h2><h2>Sparse gradients and speed</h2><h2>Accuracy</h2>'
    u'<h2>Example</h2>')


@modern
@pytest.mark.shared
@pytest.mark.parametrize("old, new, fault", [
    ("", "", None), ("<h2>Rule</h2>", "", "has the chapters Use, Arguments, Stock"),
    (".bind(keras)", "", "has no line for Keras"),
    ("<li><strong><code>y", "<strong><code>y", "takes x, y, **z and lists x+y, **z"),
    ("One.", "One. x: First. y: Second.", "runs arguments together: x, y"),
    ("One.", "One `y`.", "shows '`': "), ("Rest.", "**Rest**.", "shows '**': ")])
def test_check_sees_faults_of_definitions(website, tmp_path, old, new, fault):
    import check_site

    (tmp_path / "definitions").mkdir()
    (tmp_path / "definitions" / "a.html").write_text(DEFINITION.replace(old, new))
    found = check_site.faults(str(tmp_path))
    assert len(found) == (fault is not None) and all(fault in each for each in found)


@pytest.mark.shared
def test_the_calls_on_definition_pages_bind_to_every_module(website):
    import usage

    modules = [(name, module) for name, module in detect.known_modules() if module is not None and speaks(module)]
    for name in optimizers.__all__:
        definition = usage.instance(getattr(optimizers, name))
        others = "\n".join(usage.lines(getattr(optimizers, name))[1])
        for module_name, module in modules:
            keywords = {"params": [torch_parameter()]} if module_name == "torch.optim" else {}
            if module_name == "optax" and ".bind(optax)" not in others:
                with pytest.raises(UnsupportedError, match="gradients of each batch"):
                    definition.bind(module)
            else:
                assert definition.bind(module, **keywords) is not None


def torch_parameter():
    import torch

    return torch.nn.Parameter(torch.zeros(2))


def speaks(module):
    try:
        return detect.find(module)
    except TargetError:
        return None


def test_every_page_of_docs_is_in_the_sidebar():
    with open(os.path.join(WEBSITE, "index.md")) as file:
        listed = set(re.findall(r"^docs/[\w/]+$", file.read(), re.M))
    root = os.path.dirname(WEBSITE)
    pages = {folder + "/" + name[:-3] for folder in ("docs", "docs/records")
             for name in os.listdir(os.path.join(root, folder)) if name.endswith(".md")}
    assert pages == listed
