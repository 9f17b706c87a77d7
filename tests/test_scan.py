# -*- coding: utf-8 -*-
"""`everstep scan`: what it finds in code of many styles, what it says of it, and what it admits not to understand."""
from __future__ import absolute_import, division, print_function

import io
import json
import os
import runpy

import pytest

from everstep import cli
from everstep.scan import parsing
from everstep.scan.scanner import scan
from everstep.scan.versions import VERSIONS, Span, ranges

needs_parser = pytest.mark.skipif(
    parsing.tree_sitter is None, reason="no tree-sitter here, see the extra [scan] in setup.cfg; Python 3.8 and newer")

# (style, code, [(line, column, kind, what)], [lines that are not understood])
STYLES = [
    ("plain module", "import tensorflow as tf\nopt = tf.train.AdamOptimizer(1e-3)\n",
     [(2, 7, "construction", "tf.train.AdamOptimizer")], []),
    ("python 2 print", "import tensorflow as tf\nprint (tf.train.AdamOptimizer(1)), 1\nprint >>f, 'x'\n",
     [(2, 8, "construction", "tf.train.AdamOptimizer")], []),
    ("python 2 except, backticks, exec", "import keras\ntry:\n    exec 'x' in d\nexcept ValueError, error:\n"
     "    raise KeyError, 'x'\nelse:\n    o = keras.optimizers.SGD(lr=0.1)\n",
     [(7, 9, "construction", "keras.optimizers.SGD")], []),
    ("alias of a class", "from tensorflow.keras.optimizers import Adam as A\nA(1e-3)\n",
     [(2, 1, "construction", "tf.keras.optimizers.Adam")], []),
    ("import of a module", "from keras import optimizers\nx = optimizers.RMSprop()\n",
     [(2, 5, "construction", "keras.optimizers.RMSprop")], []),
    ("dotted import", "import tensorflow.keras.optimizers\ntensorflow.keras.optimizers.Adamax()\n",
     [(2, 1, "construction", "tf.keras.optimizers.Adamax")], []),
    ("star import", "from keras.optimizers import *\nSGD(0.1)\nNothing(1)\n",
     [(2, 1, "construction", "keras.optimizers.SGD")], []),
    ("compat.v1 as tf", "import tensorflow.compat.v1 as tf\ntf.train.MomentumOptimizer(0.1, 0.9)\n",
     [(2, 1, "construction", "tf.compat.v1.train.MomentumOptimizer")], []),
    ("name for a module", "import tensorflow as tf\nK = tf.keras\nopt = K.optimizers\nopt.Nadam()\n",
     [(4, 1, "construction", "tf.keras.optimizers.Nadam")], []),
    ("name for a class", "import tensorflow as tf\nC = tf.train.AdagradOptimizer\nC(0.1)\n",
     [(2, 5, "name", "tf.train.AdagradOptimizer"), (3, 1, "construction", "tf.train.AdagradOptimizer")], []),
    ("two imports by try", "try:\n    from tensorflow.keras.optimizers import Adam\nexcept ImportError:\n"
     "    from keras.optimizers import Adam\nAdam()\n",
     [(5, 1, "construction", "keras.optimizers.Adam"), (5, 1, "construction", "tf.keras.optimizers.Adam")], []),
    ("contrib", "import tensorflow as tf\ntf.contrib.opt.LazyAdamOptimizer(0.1)\n",
     [(2, 1, "construction", "tf.contrib.opt.LazyAdamOptimizer")], []),
    ("contrib without a definition", "from tensorflow.contrib.opt import GGTOptimizer\nGGTOptimizer()\n",
     [(2, 1, "construction", "tf.contrib.opt.GGTOptimizer")], []),
    ("addons", "import tensorflow_addons as tfa\ntfa.optimizers.LAMB(1e-3)\n",
     [(2, 1, "construction", "tensorflow_addons.optimizers.LAMB")], []),
    ("local name of the same spelling", "from keras.optimizers import Adam\ndef f(Adam):\n    Adam(1)\n", [], []),
    ("another package", "import torch\nimport re\ntorch.optim.Adam(p)\nre.compile('adam')\n", [], []),
    ("comment and text", "import tensorflow as tf\n# tf.train.AdamOptimizer(1)\n'tf.train.AdamOptimizer(1)'\n", [], []),
    ("lambda, nested call", "import tensorflow as tf\nf = lambda r: g(tf.train.FtrlOptimizer(r))\n",
     [(2, 17, "construction", "tf.train.FtrlOptimizer")], []),
    ("table of classes", "from keras.optimizers import SGD, Adam\nT = {'sgd': SGD, 'adam': Adam}\nT[n](lr=1.)\n",
     [(2, 13, "name", "keras.optimizers.SGD"), (2, 26, "name", "keras.optimizers.Adam")], []),
    ("getattr", "import tensorflow as tf\ngetattr(tf.train, 'AdamOptimizer')(1.)\ngetattr(tf.train, name)(1.)\n",
     [(2, 1, "construction", "tf.train.AdamOptimizer")], [3]),
    ("compile with a text", "from tensorflow import keras\nm.compile('adam', 'mse')\nm.compile(optimizer='SGD')\n",
     [(2, 11, "string", "compile('adam'): tf.keras.optimizers.Adam"),
      (3, 21, "string", "compile('SGD'): tf.keras.optimizers.SGD")], []),
    ("compile with a name", "import keras\nname = 'adam'\nm.compile(name, 'mse')\nm.compile(optimizer=given)\n",
     [(2, 8, "string", "compile('adam'): keras.optimizers.Adam")], [4]),
    ("compile, two Keras", "import keras\nfrom tensorflow.keras import layers\nm.compile('adam')\n", [], [3]),
    ("optimizers.get", "from keras import optimizers\noptimizers.get('sgd')\noptimizers.get(given)\n",
     [(2, 16, "string", "optimizers.get('sgd'): keras.optimizers.SGD")], [3]),
    ("optimize_loss", "import tensorflow as tf\ntf.contrib.layers.optimize_loss(l, s, 0.1, optimizer='Adam')\n"
     "tf.contrib.layers.optimize_loss(l, s, 0.1, given)\ntf.contrib.layers.optimize_loss(l, s, 0.1)\n",
     [(2, 1, "string", "optimize_loss('Adam'): tf.train.AdamOptimizer")], [3]),
    ("schedule", "import tensorflow as tf\ntf.train.exponential_decay(0.1, step, 100, 0.9)\n",
     [(2, 1, "schedule", "tf.train.exponential_decay")], []),
    ("wrappers", "import tensorflow as tf\nimport horovod.tensorflow as hvd\nhvd.DistributedOptimizer(o)\n"
     "tf.clip_by_global_norm(g, 5.0)\n",
     [(3, 1, "wrapper", "horovod.tensorflow.DistributedOptimizer"), (4, 1, "wrapper", "tf.clip_by_global_norm")], []),
    ("own class", "import tensorflow as tf\nclass Mine(tf.keras.optimizers.Optimizer):\n"
     "    def _resource_apply_dense(self, grad, var):\n        pass\nclass Other(Mine):\n    pass\nclass No(object):\n"
     "    pass\n", [(2, 1, "class", "class Mine(tf.keras.optimizers.Optimizer)"), (5, 1, "class", "class Other(Mine)")],
     []),
    ("private attribute", "import tensorflow as tf\nclass A(object):\n    def f(self):\n"
     "        self.opt = tf.train.AdamOptimizer(1.)\n    def g(self):\n        return self.opt._lr_t, self._other\n",
     [(4, 20, "construction", "tf.train.AdamOptimizer"), (6, 16, "private", "_lr_t of tf.train.AdamOptimizer")], []),
    ("get_updates", "from keras.optimizers import Adam\no = Adam()\no.get_updates(params=p, loss=l)\n",
     [(2, 5, "construction", "keras.optimizers.Adam"), (3, 1, "call", "get_updates of keras.optimizers.Adam")], []),
    ("new syntax", "import keras\nmatch x:\n    case 1:\n        if (o := keras.optimizers.SGD(0.1)): f'{f\"{o}\"}'\n",
     [(4, 18, "construction", "keras.optimizers.SGD")], []),
    ("characters before it", u"import keras\nx = u'äöü€'; keras.optimizers.SGD()\n",
     [(2, 14, "construction", "keras.optimizers.SGD")], []),
    ("error before it", "import keras\nx = = 3\nkeras.optimizers.SGD()\n",
     [(3, 1, "construction", "keras.optimizers.SGD")], [2]),
    ("class behind a function", "from helpers import opt\nf().AdamOptimizer(1)\n", [], [2]),
    ("windows line ends, tabs", "import keras\r\nif x:\r\n\to = keras.optimizers.SGD()\r\n",
     [(3, 6, "construction", "keras.optimizers.SGD")], []),
]


def written(folder, name, content):
    path = os.path.join(str(folder), name)
    with io.open(path, "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


def only(folder, code, **options):
    """Returns the one finding in code."""
    report = scan([written(folder, "code.py", code)], **options)
    assert len(report.findings) == 1, report
    return report.findings[0]


@needs_parser
@pytest.mark.parametrize("style, code, expected, not_understood", STYLES, ids=[each[0] for each in STYLES])
def test_styles(style, code, expected, not_understood, tmpdir):
    report = scan([written(tmpdir, "code.py", code)])
    found = sorted((each.line, each.column, each.kind, each.what) for each in report.findings)
    assert found == sorted(expected)
    assert [each.line for each in report.not_understood] == not_understood


@needs_parser
@pytest.mark.parametrize("call", ["tf.clip_by_global_norm(grads, 5.0)", "tf.clip_by_global_norm(grads, clip_norm=5.0)"])
def test_the_bound_of_a_wrapper(call, tmpdir):
    found = only(tmpdir, "import tensorflow as tf\n{}\n".format(call))
    assert found.definition == "everstep.clip(definition, global_norm=5.0)"


@needs_parser
def test_names_are_followed_from_file_to_file(tmpdir):
    package = tmpdir.mkdir("package")
    written(package, "__init__.py", "from .backend import keras\nfrom .loop import *\n")
    written(package, "backend.py", "import tensorflow as tf\nfrom tensorflow import keras\n")
    written(package, "loop.py", "from . import *\n")  # modules import each other
    written(package, "base.py", "from .backend import tf\nclass Base(tf.train.Optimizer):\n    pass\n")
    written(package, "train.py", "from package import keras\nfrom .base import Base\nkeras.optimizers.Adam()\n"
            "class Mine(Base):\n    def _apply_dense(self, grad, var):\n        pass\n")
    report = scan([str(package)])
    found = [(os.path.basename(each.file), each.kind, each.write) for each in report.findings]
    assert found == [
        ("base.py", "class", "everstep port package.base:Base --api tf.train"),
        ("train.py", "construction", "everstep.optimizers.Adam(learning_rate=0.001).bind(keras)"),
        ("train.py", "class", "everstep port package.train:Mine --api tf.train"),
    ]


@needs_parser
def test_encodings(tmpdir):
    code = u"import keras\nx = u'\u00e9'; keras.optimizers.SGD()\n"
    for content in (u"\ufeff".encode("utf-8") + code.encode("utf-8"), u"# coding: latin-1\n".encode("ascii") +
                    code.encode("latin-1"), code.encode("latin-1"), code.encode("utf-8")):
        report = scan([written(tmpdir, "code.py", content)])
        assert [(each.column, each.kind) for each in report.findings] == [(11, "construction")]


NOTEBOOK = {"nbformat": 4, "cells": [
    {"cell_type": "markdown", "source": ["keras.optimizers.SGD()"]},
    {"cell_type": "code", "source": ["%matplotlib inline\n", "!pip install keras\n", "import keras\n", "keras?"]},
    {"cell_type": "code", "source": "if x:\n    %time o = keras.optimizers.SGD(0.1)\n"},
    {"cell_type": "code", "source": "%%bash\nkeras.optimizers.Adam()"},
    {"cell_type": "code", "source": "%%time\nfiles = !ls\ntext = ('%s'\n  % keras.optimizers.Adam())"},
    {"cell_type": "code", "source": "print('unfinished'"},
    {"cell_type": "code", "source": "keras.optimizers.Adamax()"},
]}


@needs_parser
def test_notebooks(tmpdir):
    report = scan([written(tmpdir, "book.ipynb", json.dumps(NOTEBOOK))])
    found = [(each.line, each.column, each.what) for each in report.findings]
    assert found == [(6, 15, "keras.optimizers.SGD"), (12, 5, "keras.optimizers.Adam"),
                     (14, 1, "keras.optimizers.Adamax")]
    assert [each.line for each in report.not_understood] == [7, 13]  # the shell's cell, the unfinished one
    old = {"worksheets": [{"cells": [{"cell_type": "code", "input": "import keras\nkeras.optimizers.SGD()"}]}]}
    assert [each.line for each in scan([written(tmpdir, "old.ipynb", json.dumps(old))]).findings] == [2]
    for content, why in (("{", "not JSON"), (json.dumps({"cells": [], "metadata": {"kernelspec": {"language": "R"}}}),
                                             "notebook of R")):
        report = scan([written(tmpdir, "bad.ipynb", content)])
        assert not report.findings and why in report.not_understood[0].why


TF, KERAS = "import tensorflow as tf\n", "import keras\n"
# (code, definition, works on)
MEANINGS = [
    (TF + "tf.train.RMSPropOptimizer(F.lr, decay=0.99, momentum=0.9)",
     "everstep.optimizers.RMSprop(learning_rate=F.lr, rho=0.99, momentum=0.9, epsilon=1e-10, epsilon_in_root=True, "
     "initial_mean_square=1.0, sparse='rows')", ["TF 1.4 to 1.15"]),
    (TF + "tf.train.MomentumOptimizer(0.1, 0.9, use_nesterov=nag)",
     "everstep.optimizers.SGD(learning_rate=0.1, momentum=0.9, nesterov=nag, rate_in_velocity=False, sparse='rows')",
     ["TF 1.4 to 1.15"]),
    (TF + "tf.compat.v1.train.AdamOptimizer(10 * 1e-4)",
     "everstep.optimizers.Adam(learning_rate=0.001, epsilon=1e-08)", ["TF 1.13 to 2.21"]),
    (TF + "tf.contrib.opt.AdamWOptimizer(1e-4, rate)",
     "everstep.optimizers.AdamW(learning_rate=rate, epsilon=1e-08, weight_decay=0.0001, decay_times_rate=False)",
     ["TF 1.10 to 1.15"]),
    (TF + "tf.keras.optimizers.Adam(learning_rate=0.1, global_clipnorm=c)",
     "everstep.clip(everstep.optimizers.Adam(learning_rate=0.1), global_norm=c)", ["TF 2.4 to 2.21"]),
    (TF + "tf.keras.optimizers.AdamW()", "everstep.optimizers.AdamW(learning_rate=0.001)", ["TF 2.12 to 2.21"]),
    (TF + "tf.keras.optimizers.Adam(1, name='x')", "everstep.optimizers.Adam(learning_rate=1.0)", ["TF 1.14 to 2.15"]),
    (KERAS + "keras.optimizers.Adam(lr=0.1, decay=1e-6)",
     "everstep.rate_decay(everstep.optimizers.Adam(learning_rate=0.1), rate=1e-06)",
     ["Keras 2.0 to 2.3", "Keras 2.9 to 2.12"]),
    (KERAS + "keras.optimizers.Lamb()", "everstep.optimizers.LAMB(learning_rate=0.001, epsilon=1e-07)",
     ["Keras 3.5 to 3.15"]),
    (KERAS + "keras.optimizers.Adam(epsilon=None)", "everstep.optimizers.Adam(learning_rate=0.001)",
     ["Keras 2.0 to 2.2", "Keras 2.9 to 2.12"]),
    (KERAS + "keras.optimizers.Adam(**more)", None, ["Keras 2.0 to 2.3", "Keras 2.9 to 3.15"]),
    (KERAS + "keras.optimizers.Adam(beta1=0.1)", None, []),
    (KERAS + "keras.optimizers.Adam(1, 2, 3, 4, 5, 6, 7)", None, []),
    (TF + "tf.contrib.opt.ShampooOptimizer()", None, ["TF 1.11 to 1.15"]),
    (TF + "tf.contrib.opt.PowerSignOptimizer(sign_decay_fn=f)", None, ["TF 1.5 to 1.15"]),
    (TF + "tf.train.polynomial_decay(r, s, 9, end_learning_rate=0.0, power=2)",
     "everstep.PolynomialDecay(initial=r, decay_steps=9, end=0.0, power=2)", ["TF 1.4 to 1.15"]),
    (TF + "tf.train.piecewise_constant(s, [2, 4], values=[1., .5, .1])",
     "everstep.PiecewiseConstantDecay(boundaries=(2, 4), values=(1.0, 0.5, 0.1))", ["TF 1.4 to 1.15"]),
    (TF + "tf.train.piecewise_constant(s, steps, rates)",
     "everstep.PiecewiseConstantDecay(boundaries=tuple(steps), values=tuple(rates))", ["TF 1.4 to 1.15"]),
    (TF + "tf.train.inverse_time_decay(0.1, s, 10, 0.5)", "everstep.InverseTimeDecay(initial=0.1, rate=0.05)",
     ["TF 1.4 to 1.15"]),
    (TF + "tf.train.natural_exp_decay(0.1, s, 10, 0.5)", None, ["TF 1.4 to 1.15"]),
]


@needs_parser
@pytest.mark.parametrize("code, definition, works_on", MEANINGS, ids=[each[0].split("\n")[1] for each in MEANINGS])
def test_meanings(code, definition, works_on, tmpdir):
    finding = only(tmpdir, code)
    assert (finding.definition, finding.works_on) == (definition, works_on)
    assert definition or finding.notes


@needs_parser
def test_the_text_of_a_definition_makes_it(tmpdir):
    import everstep

    for code, definition, _ in MEANINGS:
        if definition and definition.startswith("everstep.optimizers."):
            names = dict(everstep=everstep, rate=0.1, nag=True, F=type("F", (), {"lr": 0.1}))
            made = eval(definition, names)
            call = code.split("\n")[1].split("(")[0].split(".")
            if "train" in call:
                given = dict(learning_rate=made.learning_rate)
                if hasattr(made, "momentum") and "Momentum" in call[-1]:
                    given.update(momentum=0.9, use_nesterov=True)
                elif hasattr(made, "momentum"):
                    given.update(decay=0.99, momentum=0.9)
                assert made == everstep.get(call[-1], api="tf_train", **given)


@needs_parser
def test_what_depends_on_the_version(tmpdir):
    code = TF + "tf.keras.optimizers.SGD(0.1, momentum=0.9)"
    finding = only(tmpdir, code)
    plain = "everstep.optimizers.SGD(learning_rate=0.1, momentum=0.9{})"
    assert finding.definition is None and finding.write is None
    assert finding.definitions == [["TF 1.4 to 1.13, TF 2.11 to 2.21", plain.format("")],
                                   ["TF 1.14 to 2.10", plain.format(", sparse='rows'")]]
    assert only(tmpdir, code, on={"TF": "2.3"}).write == plain.format(", sparse='rows'") + ".bind(tf.keras)"
    assert only(tmpdir, code, on={"TF": "2.16"}).write == plain.format("") + ".bind(tf.keras)"
    # what standalone Keras 2 bounds together, tf.keras bounds one by one
    clipped = only(tmpdir, KERAS + "keras.optimizers.SGD(0.1, clipnorm=1.0)", on={"Keras": "2.2"})
    assert clipped.definition == "everstep.clip(everstep.optimizers.SGD(learning_rate=0.1), global_norm=1.0)"
    assert any("clipnorm bounds the norm of each gradient" in text for text in clipped.changes)
    clipped = only(tmpdir, TF + "tf.keras.optimizers.SGD(0.1, clipnorm=1.0)")
    assert clipped.definition == "everstep.clip(everstep.optimizers.SGD(learning_rate=0.1), norm=1.0)"


@needs_parser
def test_changes(tmpdir):
    changes = only(tmpdir, TF + "tf.train.RMSPropOptimizer(0.1, epsilon=1e-3)").changes
    assert changes[1] == ("tf.keras 1.14 to 2.10: epsilon_in_root is None, here True; initial_mean_square is 0.0, here "
                          "1.0; moves all rows of a variable with a sparse gradient, here only the rows present of a "
                          "sparse gradient")
    changes = only(tmpdir, KERAS + "keras.optimizers.Nadam(lr=0.1)", on={"Keras": "2.2"}).changes
    assert "momentum_decay is 1.0, here 0.004" in changes[1] and "lr= is ignored" in changes[1]
    assert "learning_rate" not in "".join(changes)
    assert only(tmpdir, KERAS + "keras.optimizers.Adam()").changes == []


@needs_parser
def test_lines_for_another_module(tmpdir):
    code = TF + "tf.train.MomentumOptimizer(rate, 0.9)"
    text = "everstep.optimizers.SGD(learning_rate=rate, momentum=0.9, rate_in_velocity=False, sparse='rows')"
    here, there = only(tmpdir, code), only(tmpdir, code, to="keras")
    assert (here.write, here.imports) == (text + ".bind(tf.train)", ["import everstep"])
    dense = text.replace("sparse='rows'", "sparse='rows', dense_ok=True")
    assert there.write == dense + ".bind(keras)"
    assert there.imports == ["import everstep", "import keras"] and "expression" in there.notes[-1]
    there = only(tmpdir, code, to="torch")
    assert there.write == text + ".bind(torch.optim, params=model.named_parameters())"
    assert there.imports == ["import everstep", "import torch"]
    there = only(tmpdir, code, to="optax")
    assert (there.write, there.imports[1:]) == (dense + ".bind(optax)", ["import optax"])
    named = only(tmpdir, "from tensorflow.keras.optimizers import Adam\nAdam()")
    assert (named.write[-15:], named.imports[1:]) == (".bind(tf.keras)", ["import tensorflow as tf"])


@needs_parser
def test_a_private_class_is_bound_to_the_version_that_its_file_imports(tmpdir):
    code = "from tensorflow.python.training import adam\n%sadam.AdamOptimizer(0.1)"
    for imports, module in (("", "tf.train"), ("import tensorflow as tf\n", "tf.train"),
                            ("import tensorflow.compat.v1 as tf\n", "tf.train"),
                            ("from tensorflow.compat import v1\n", "v1.train")):
        line = only(tmpdir, code % imports).write
        assert line == "everstep.optimizers.Adam(learning_rate=0.1, epsilon=1e-08).bind({})".format(module)


@needs_parser
@pytest.mark.parametrize("hooks, works_on", [
    ("def _resource_apply_dense(self, g, v): pass", ["TF 1.14 to 2.10"]),
    ("def get_updates(self, loss, params): pass", ["TF 1.4 to 1.13"]),
    ("def update_step(self, gradient, variable): pass", ["TF 2.11 to 2.15"]),
    ("def update_step(self, gradient, variable, learning_rate): pass", ["TF 2.16 to 2.21"]),
    ("@tf.function\n    def update_step(self, gradient, variable): pass", ["TF 2.11 to 2.15"]),
    ("x = 1", ["TF 1.4 to 2.21"]),
])
def test_own_classes_work_where_their_hooks_are_called(hooks, works_on, tmpdir):
    finding = only(tmpdir, TF + "class A(tf.keras.optimizers.Optimizer):\n    " + hooks)
    assert finding.works_on == works_on
    assert finding.write == "everstep port code:A --api tf.keras"


@needs_parser
def test_an_own_class_of_either_base(tmpdir):
    code = ("import tensorflow as tf\ntry:\n    Base = tf.keras.optimizers.legacy.Optimizer\n"
            "except AttributeError:\n    Base = tf.keras.optimizers.Optimizer\nclass A(Base):\n"
            "    def _resource_apply_dense(self, g, v): pass\n")
    assert only(tmpdir, code).works_on == ["TF 1.14 to 2.15"]


@needs_parser
def test_the_command(tmpdir, capsys):
    path = written(tmpdir, "code.py", TF + "tf.train.AdamOptimizer(1e-3)\ngetattr(tf.train, x)(1)\n")
    fine = written(tmpdir, "fine.py", KERAS + "keras.optimizers.SGD(0.1)\n")
    assert cli.main(["scan", str(tmpdir)]) == 0
    output = capsys.readouterr()[0]
    assert output.startswith("files: 2, findings: 2, places not understood: 1\n")
    for text in ("TF 1.4 to 1.15", "bind(tf.train)", "epsilon is 1e-07, here 1e-08", "any optimizer of tf.train"):
        assert text in output
    for failure, codes in (("broken", (1, 0)), ("changes", (1, 0)), ("not-understood", (1, 0))):
        assert tuple(cli.main(["scan", each, "--fail-on", failure]) for each in (path, fine)) == codes
    capsys.readouterr()
    assert cli.main(["scan", "--json", "--on", "tensorflow==1.15.5", path]) == 0
    facts = json.loads(capsys.readouterr()[0])
    assert (facts["schema"], facts["files"]) == (1, 1)
    finding = facts["findings"][0]
    assert {"file", "line", "column", "what", "definition", "works_on", "changes", "write"} <= set(finding)
    assert finding["write"] == "everstep.optimizers.Adam(learning_rate=0.001, epsilon=1e-08).bind(tf.train)"
    assert [each["line"] for each in facts["not_understood"]] == [3]
    assert cli.main(["scan", "--on", "tensorflow==9", path]) == 2
    assert "--on takes NAME==VERSION" in capsys.readouterr()[1]
    assert cli.main(["scan", os.path.join(str(tmpdir), "missing")]) == 2
    assert "there is no file or folder" in capsys.readouterr()[1]


@needs_parser
def test_the_picture_in_the_docs_is_current():
    """If not: python tests/make/scan_picture.py"""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    drawn = runpy.run_path(os.path.join(root, "tests", "make", "scan_picture.py"))["picture"]()
    with io.open(os.path.join(root, "docs", "scan.svg"), encoding="utf-8") as file:
        assert file.read() == drawn


@needs_parser
def test_the_page(tmpdir, capsys):
    from html.parser import HTMLParser

    class Reader(HTMLParser):
        """Checks that elements close in order, and collects rows of texts, attributes and scripts."""
        open_now, rows, attributes = [], [], []  # type: list, list, list

        def handle_starttag(self, tag, attrs):
            self.attributes.extend(attrs)
            if tag not in ("meta", "input"):
                self.open_now.append(tag)
            if tag == "tr":
                self.rows.append("")

        def handle_endtag(self, tag):
            assert self.open_now.pop() == tag

        def handle_data(self, data):
            if "td" in self.open_now:
                self.rows[-1] += data + " "

    path = written(tmpdir, "a<b>&.py", TF + "tf.train.AdamOptimizer(1e-3 if x < 2 else 1)\ngetattr(tf.train, x)(1)\n")
    page = os.path.join(str(tmpdir), "page.html")
    assert cli.main(["scan", "--html", page, path]) == 0
    assert capsys.readouterr()[0] == "written: {}\n".format(page)
    with io.open(page, encoding="utf-8") as file:
        text = file.read()
    reader = Reader()
    reader.feed(text)
    assert reader.open_now == [] and not any(name in ("src", "href", "action") for name, _ in reader.attributes)
    assert "url(" not in text and "import" not in text.partition("<script>")[2]
    found, unknown = reader.rows[-2:]
    assert found.startswith(path + ":2:1 construction tf.train.AdamOptimizer TF 1.4 to 1.15 (not the newest)")
    assert "learning_rate=1e-3 if x < 2 else 1, epsilon=1e-08).bind(tf.train)" in found
    assert "epsilon is 1e-07, here 1e-08" in found and "any optimizer of tf.train" in unknown


@pytest.mark.skipif(parsing.tree_sitter is not None, reason="the parser is installed")
def test_a_missing_parser_is_said(capsys):
    assert cli.main(["scan", "."]) == 2
    assert "python -m pip install 'everstep[scan]' with Python 3.8 or newer" in capsys.readouterr()[1]


def test_ranges():
    spans = [Span("TF", "1.14", "2.10", "a"), Span("TF", "2.11", "2.15", "b"), Span("Keras", "3.0", "3.0", "c")]
    assert ranges(spans) == ["TF 1.14 to 2.15", "Keras 3.0"]
    assert spans[0].holds("2.9") and not spans[0].holds("2.11") and not spans[0].holds("1.4")
    assert spans[0].cut("2.4", "2.6")[1:3] == ("2.4", "2.6") and spans[0].cut("2.12") is None
    assert all(len(set(versions)) == len(versions) for versions in VERSIONS.values())
