# -*- coding: utf-8 -*-
"""`everstep scan --write` changes the places that it says, keeps all other bytes, and says what it leaves to people."""
from __future__ import absolute_import, division, print_function

import io
import json
import os
import subprocess
import sys
from collections import Counter

import pytest

import scan_corpus
from everstep import cli
from everstep.errors import FileError
from everstep.scan import edits, parsing
from everstep.scan.scanner import scan

pytestmark = pytest.mark.skipif(
    parsing.tree_sitter is None, reason="no tree-sitter here, see the extra [scan] in setup.cfg; Python 3.8 and newer")
ADAM = "everstep.optimizers.Adam(learning_rate=0.001, epsilon=1e-08).bind(tf.train)"


def saved(folder, code, name="code.py"):
    path = os.path.join(str(folder), name)
    with io.open(path, "wb") as file:
        file.write(code if isinstance(code, bytes) else code.encode("utf-8"))
    return path


def content(path):
    with io.open(path, "rb") as file:
        return file.read()


def edited(folder, code, name="code.py", **options):
    """Returns (the bytes after an edit, None if there is none; the reasons for what is left)."""
    done, refused = edits.rewritten(scan([saved(folder, code, name)], **options))
    assert len(done) <= 1
    return done[0].after if done else None, [each.why for each in refused]


# (style, code, the same after --write)
WRITTEN = [
    ("plain", "import tensorflow as tf\no = tf.train.AdamOptimizer(1e-3)\n",
     "import everstep\nimport tensorflow as tf\no = " + ADAM + "\n"),
    ("docstring, future, comments", "#!/usr/bin/env python\n'''Doc\nof lines'''\n# c\nfrom __future__ import division\n"
     "# framework\nimport tensorflow as tf\ntf.train.AdamOptimizer(1e-3) ; x = 1  # end\n",
     "#!/usr/bin/env python\n'''Doc\nof lines'''\n# c\nfrom __future__ import division\n"
     "# framework\nimport everstep\nimport tensorflow as tf\n" + ADAM + " ; x = 1  # end\n"),
    ("no import of the module itself", "def f():\n  import tensorflow as tf\n  return tf.train.AdamOptimizer(1e-3)\n",
     "import everstep\ndef f():\n  import tensorflow as tf\n  return " + ADAM + "\n"),
    ("import is there", "import everstep, tensorflow as tf\ntf.train.AdamOptimizer(1e-3).minimize(loss)",
     "import everstep, tensorflow as tf\n" + ADAM + ".minimize(loss)"),
    ("python 2, tabs", "import tensorflow as tf\nif x <> 1:\n\tprint tf.train.AdamOptimizer(1e-3)\n\tprint `x`, 0777\n",
     "import everstep\nimport tensorflow as tf\nif x <> 1:\n\tprint " + ADAM + "\n\tprint `x`, 0777\n"),
    ("over lines, name", "import tensorflow as tf\ntf.train.AdamOptimizer(\n  name='D',\n  learning_rate=0.001)\n",
     "import everstep\nimport tensorflow as tf\n" + ADAM[:-1] + ", name='D')\n"),
    ("two in a line",
     "import tensorflow as tf\na = [tf.train.AdamOptimizer(1e-3), u'\u00e9', tf.train.AdamOptimizer(1e-3)]\n",
     u"import everstep\nimport tensorflow as tf\na = [{}, u'\u00e9', {}]\n".format(ADAM, ADAM)),
    ("compile with a text", "import keras\nm.compile('adam', loss='mse')\n",
     "import everstep\nimport keras\n"
     "m.compile(everstep.optimizers.Adam(learning_rate=0.001).bind(keras), loss='mse')\n"),
    ("optimizers.get", "from tensorflow.keras import optimizers\no = optimizers.get('adam')\n",
     "import everstep\nimport tensorflow as tf\nfrom tensorflow.keras import optimizers\n"
     "o = everstep.optimizers.Adam(learning_rate=0.001).bind(tf.keras)\n"),
    ("a name that is taken", "from tensorflow.keras.optimizers import Adam\ntf = 1\no = Adam()\n",
     "import everstep\nimport tensorflow\nfrom tensorflow.keras.optimizers import Adam\ntf = 1\n"
     "o = everstep.optimizers.Adam(learning_rate=0.001).bind(tensorflow.keras)\n"),
    ("a module of either kind",
     "try:\n    import tensorflow.compat.v1 as tf\nexcept ImportError:\n    import tensorflow as tf\n"
     "o = tf.train.AdamOptimizer(1e-3)\n", "import everstep\ntry:\n    import tensorflow.compat.v1 as tf\n"
     "except ImportError:\n    import tensorflow as tf\no = " + ADAM + "\n"),
    ("a long line", "import tensorflow as tf\nif x:\n\to = tf.train.MomentumOptimizer(self.config['learning_rate'],\n"
     "\t\tmomentum=self.config['momentum'], name='m').minimize(loss)  # end\n",
     "import everstep\nimport tensorflow as tf\nif x:\n\to = everstep.optimizers.SGD(\n"
     "\t    learning_rate=self.config['learning_rate'], momentum=self.config['momentum'], rate_in_velocity=False, "
     "sparse='rows'\n\t).bind(tf.train, name='m').minimize(loss)  # end\n"),
    ("windows", "import tensorflow as tf\r\n\r\ntf.train.AdamOptimizer(1e-3)\r\n",
     "import everstep\r\nimport tensorflow as tf\r\n\r\n" + ADAM + "\r\n"),
]


@pytest.mark.parametrize("style, code, after", WRITTEN, ids=[each[0] for each in WRITTEN])
def test_what_is_written(style, code, after, tmpdir):
    assert edited(tmpdir, code) == (after.encode("utf-8"), [])
    assert edited(tmpdir, after) == (None, [])  # one edit is enough


@pytest.mark.parametrize("mark, cookie, encoding", [
    (b"\xef\xbb\xbf", "", "utf-8"), (b"", "# -*- coding: latin-1 -*-\n", "latin-1"),
    (b"", "# coding=cp1251\n", "cp1251"), (b"", "", "latin-1"),
])
def test_bytes_stay(mark, cookie, encoding, tmpdir):
    letter = u"\u0436" if encoding == "cp1251" else u"\u00fc"
    code = u"{}import tensorflow as tf\nx = '{}'; tf.train.AdamOptimizer(1e-3)\n".format(cookie, letter)
    after = code.replace("import", "import everstep\nimport", 1).replace("tf.train.AdamOptimizer(1e-3)", ADAM)
    assert edited(tmpdir, mark + code.encode(encoding)) == (mark + after.encode(encoding), [])


# (code, options, why it is not edited)
LEFT = [
    ("import tensorflow as tf\ntf.train.AdamOptimizer(0.1,  # the rate\n  0.9)\n", {}, "there is a comment in it"),
    ("import tensorflow as tf\ntf.train.AdamOptimizer(F['a  b'])\n", {},
     "there is a text of several lines or spaces in it"),
    ("try:\n  from keras.optimizers import Adam\nexcept ImportError:\n  from tensorflow.keras.optimizers import Adam\n"
     "Adam()\n", {}, "it may be of several modules, or holds another place that is edited"),
    ("import tensorflow as tf\no = tf.train.AdamOptimizer(0.1)\no._lr_t\n", {},
     "private attributes or old methods of it are used in this file, or isinstance asks for it"),
    ("import keras\no = keras.optimizers.SGD(0.1)\nself.assertIsInstance(o, keras.optimizers.SGD)\n", {},
     "private attributes or old methods of it are used in this file, or isinstance asks for it"),
    ("import keras\nx = (1, keras.optimizers.Adam(0.1) 2 3)\n", {}, "the code around it does not parse"),
    ("import tensorflow as tf\ntf.keras.optimizers.SGD(0.1, momentum=0.9)\n", {},
     "what it computes depends on the version: say which one the code runs on, with --on"),
    ("import keras\nNAME = 'adam'\nm.compile(NAME)\n", {}, "it takes more than a new line: 'adam'"),
    ("import tensorflow as tf\ntf.contrib.layers.optimize_loss(l, s, 0.1, 'Adam')\n", {},
     "it takes more than a new line: tf.contrib.layers.optimize_loss(l, s, 0.1, 'Adam')"),
    ("import tensorflow as tf\neverstep = 1\ntf.train.AdamOptimizer(0.1)\n", {}, "everstep is another name here"),
    ("import tensorflow as tf\ntf.train.FtrlOptimizer(0.1, accum_name='x')\n", {},
     "its accum_name is no part of the line"),
    ("import tensorflow as tf\ntf.train.AdamOptimizer(**more)\n", {}, "there is no definition for it"),
    ("import tensorflow as tf\nlr = tf.train.exponential_decay(0.1, s, 9, 0.9)\ntf.train.AdamOptimizer(lr)\n",
     {"to": "keras"},
     "its learning rate is a tensor or schedule of one API: tf.train.exponential_decay(0.1, s, 9, 0.9)"),
    ("import tensorflow as tf\nlr = tf.placeholder(tf.float32)\ntf.train.AdamOptimizer(lr)\n", {"to": "tf.keras"},
     "its learning rate is a tensor or schedule of one API: tf.placeholder(tf.float32)"),
    ("import keras\nkeras.optimizers.Adam(0.1)\n", {"to": "torch"},
     "torch needs the model's parameters here, and other code around it"),
    ("import keras\nkeras.optimizers.Adam(0.1)\n", {"to": "optax"}, "optax needs other code around it"),
    ("import tensorflow as tf\rtf.train.AdamOptimizer(0.1)\r", {}, "it has line ends of an old Mac"),
    ("'''x'''; import tensorflow as tf; tf.train.AdamOptimizer(0.1)\n", {}, "there is no place for import everstep"),
]


@pytest.mark.parametrize("code, options, why", LEFT, ids=[each[2].split(":")[0] for each in LEFT])
def test_what_is_left_to_people(code, options, why, tmpdir):
    after, reasons = edited(tmpdir, code, **options)
    assert after is None and set(reasons) == {why}


def test_a_line_that_would_break_the_file_is_not_written(tmpdir):
    report = scan([saved(tmpdir, "import tensorflow as tf\nx = tf.train.AdamOptimizer(1e-3)\ny = g(x)\n")])
    for line in ("a) + (b", "a\ny = 2", "a +", "(", "a  # c"):
        edit = report.edits[0]
        broken = edit._replace(finding=edit.finding._replace(write=line))
        done, refused = edits.rewritten(report._replace(edits=[broken]))
        assert not done and "would parse differently" in refused[0].why, line


def test_other_modules(tmpdir):
    code = "import tensorflow as tf\no = tf.train.MomentumOptimizer(r, 0.9, name='m', use_locking=True)\n"
    line = ("everstep.optimizers.SGD(learning_rate=r, momentum=0.9, rate_in_velocity=False, sparse='rows'{})"
            ".bind({}, name='m')")
    for to, dense, name, imports in (
            ("keras", ", dense_ok=True", "keras", "import everstep\nimport keras\n"),
            ("tf.keras", "", "tf.keras", "import everstep\n"),
            ("tf.compat.v1.train", "", "tf.compat.v1.train", "import everstep\n"),
            ("tf_keras", "", "tf_keras", "import everstep\nimport tf_keras\n")):
        after = "o = " + line.format(dense, name)
        if len(after) > 120:
            after = after.replace("SGD(", "SGD(\n    ").replace(").bind", "\n).bind")
        after = imports + "import tensorflow as tf\n" + after + "\n"
        assert edited(tmpdir, code, to=to) == (after.encode("utf-8"), [])
    code = "from tensorflow import keras\no = keras.optimizers.Adam(0.1)\n"
    after = ("import everstep\nimport keras as keras_module\nfrom tensorflow import keras\n"
             "o = everstep.optimizers.Adam(learning_rate=0.1).bind(keras_module)\n")
    assert edited(tmpdir, code, to="keras") == (after.encode("utf-8"), [])


def notebook(sources, **options):
    cells = [dict(cell_type="code", execution_count=None, metadata={}, outputs=[], source=each) for each in sources]
    options.setdefault("indent", 1)
    book = dict(cells=cells, metadata={}, nbformat=4, nbformat_minor=2)
    return json.dumps(book, ensure_ascii=False, **options) + "\n"


def test_notebooks(tmpdir):
    magic = ["%matplotlib inline\n", u"import keras  # \u00fc\n", "files = !ls"]
    before = [magic, ["%time o = keras.optimizers.Adam()\n", "o?"], "keras.optimizers.Adam(); x"]
    line = "everstep.optimizers.Adam(learning_rate=0.001).bind(keras)"
    after = [magic, ["import everstep\n", "%time o = " + line + "\n", "o?"], line + "; x"]
    for indent in (1, 2, None):
        assert edited(tmpdir, notebook(before, indent=indent), "book.ipynb") == (
            notebook(after, indent=indent).encode("utf-8"), [])
    odd = notebook(before).replace('"nbformat": 4', '"nbformat" : 4')
    none, reasons = edited(tmpdir, odd, "book.ipynb")
    assert none is None and set(reasons) == {"the notebook is written in an unusual way"}


def test_the_command(tmpdir, capsys):
    code = "import tensorflow as tf\n\no = tf.train.AdamOptimizer(1e-3)\nx = 1"
    path, other = saved(tmpdir, code), saved(tmpdir, "import keras\nkeras.optimizers.Adam(1, # c\n)\n", "other.py")
    os.chmod(path, 0o750)
    assert cli.main(["scan", "--patch", path, other]) == 0
    patch, said = capsys.readouterr()
    assert content(path).decode("utf-8") == code
    assert "-o = tf.train.AdamOptimizer(1e-3)\n+o = " + ADAM in patch
    first, second = said.splitlines()
    assert first == "to write: files 1, places 1; left to you: places 1"
    assert second.startswith(other + ":2:1: keras.optimizers.Adam: ")
    assert cli.main(["scan", "--write", path, other]) == 0
    shown, said = capsys.readouterr()
    assert shown == patch and said.startswith("written: files 1, places 1; left to you: places 1\n")
    assert content(path).decode("utf-8") == "import everstep\n" + code.replace("tf.train.AdamOptimizer(1e-3)", ADAM)
    assert os.stat(path).st_mode & 0o777 == 0o750


def test_the_patch_makes_the_same_files(tmpdir, capsysbinary, monkeypatch):
    monkeypatch.chdir(str(tmpdir))
    last = "import tensorflow as tf\r\nx = u'\u00fc'\r\ntf.train.AdamOptimizer(1e-3)"  # no end of the last line
    for name, code in (("a.py", last), ("b.py", "import keras\nkeras.optimizers.Adam(0.1)\n")):
        saved(tmpdir, code.encode("latin-1"), name)
    assert cli.main(["scan", "--patch", "."]) == 0
    patch = capsysbinary.readouterr()[0]
    assert b"\\ No newline at end of file" in patch
    done, _ = edits.rewritten(scan(["a.py", "b.py"]))
    saved(tmpdir, patch, "x.patch")
    subprocess.check_call(["git", "apply", "x.patch"], env=dict(os.environ, GIT_DIR=os.devnull))
    assert [content(each.path) for each in done] == [each.after for each in done]


def test_what_cannot_be_seen_in_the_code_is_said(tmpdir, capsys):
    path = saved(tmpdir, "import tensorflow as tf\ntf.train.AdamOptimizer(rate)\ntf.train.AdamOptimizer(other)\n")
    assert cli.main(["scan", "--patch", "--to", "keras", path]) == 0
    assert capsys.readouterr()[1].splitlines() == [
        "to write: files 1, places 2; left to you: places 0",
        "look at {}:2:1 (places like it: 2): its learning rate is an expression: on another API give a number or an "
        "everstep schedule".format(path)]


def test_a_file_that_changed_meanwhile_stays(tmpdir):
    path = saved(tmpdir, "import keras\nkeras.optimizers.Adam(0.1)\n")
    done, _ = edits.rewritten(scan([path]))
    saved(tmpdir, "x = 1\n")
    with pytest.raises(FileError) as info:
        edits.write(done[0])
    assert "changed since it was read" in str(info.value) and content(path) == b"x = 1\n"


def test_a_scan_of_edited_snippets_finds_the_rest(tmpdir):
    count = 0
    for number, (name, files, _) in enumerate(each for style in scan_corpus.styles().values() for each in style):
        folder = tmpdir.mkdir(str(number))
        scan_corpus.written(files, str(folder))
        before = scan([str(folder)])
        done, _ = edits.rewritten(before)
        for each in done:
            edits.write(each)
        after = scan([str(folder)])
        gone = [edit.finding[:4] for each in done for edit in each.edits]  # file, line, column, kind
        count += len(gone)
        left = before._replace(findings=[each for each in before.findings if each[:4] not in gone])
        assert kinds(left) == kinds(after), name
        assert len(after.not_understood) == len(before.not_understood), name
        for each in done:
            if sys.version_info >= (3, 12) and each.path.endswith(".py") and is_python(each.before):
                assert is_python(each.after), name
    assert count > 100


def kinds(report):
    """Returns how often each thing is found. What is done with an optimizer that was edited is no longer of stock's."""
    return Counter((each.kind, each.what) for each in report.findings if not each.what.endswith("of an optimizer"))


def is_python(code):
    try:
        compile(code, "code", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True
