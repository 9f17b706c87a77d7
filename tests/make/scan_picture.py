"""Draws what `everstep scan` prints for a small program as docs/scan.svg: `python tests/make/scan_picture.py`."""
from __future__ import absolute_import, division, print_function

import contextlib
import io
import os
import shutil
import tempfile

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "scan.svg")
COLUMNS, ACROSS, DOWN, EDGE = 112, 7.8, 17, 14
CODE = u"""\
import tensorflow as tf

lr = tf.train.exponential_decay(0.1, step, 1000, 0.96)
opt = tf.train.RMSPropOptimizer(lr, decay=0.99, momentum=0.9)
gvs = [(tf.clip_by_value(g, -1.0, 1.0), v) for g, v in opt.compute_gradients(loss)]
saver = tf.train.Saver()
model.compile(optimizer=tf.keras.optimizers.Adam(lr=1e-3))
other = getattr(tf.train, name)(lr)
"""
HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" width="{0}" height="{1}">
<title>everstep scan: the report of a small program</title>
<rect width="100%" height="100%" rx="8" fill="#1e1e2a"/>
<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="13" fill="#e6e6ee">
"""


def report():
    """Returns the lines that the command prints."""
    from everstep import cli

    folder, here, columns = tempfile.mkdtemp(), os.getcwd(), os.environ.get("COLUMNS")
    try:
        os.chdir(folder)
        with io.open("train.py", "w", encoding="utf-8") as file:
            file.write(CODE)
        os.environ["COLUMNS"] = str(COLUMNS)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            cli.main(["scan", "train.py"])
    finally:
        os.environ.pop("COLUMNS")
        if columns is not None:
            os.environ["COLUMNS"] = columns
        os.chdir(here)
        shutil.rmtree(folder)
    return ["$ everstep scan train.py"] + printed.getvalue().splitlines()


def picture():
    """Returns the SVG."""
    lines = report()
    parts = [HEAD.format(int(2 * EDGE + COLUMNS * ACROSS), int(2 * EDGE + len(lines) * DOWN))]
    for number, line in enumerate(lines):
        text = line.rstrip().replace("&", "&amp;").replace("<", "&lt;")
        is_head = line[:1].isalpha() and line.split()[0].isupper()
        if text:
            parts.append('<text x="{}" y="{}" xml:space="preserve"{}>{}</text>\n'.format(
                EDGE, EDGE + 12 + number * DOWN, ' fill="#8fd0ff"' if is_head or number == 0 else "", text))
    return "".join(parts) + "</g>\n</svg>\n"


if __name__ == "__main__":
    with io.open(PATH, "w", encoding="utf-8", newline="\n") as file:
        file.write(picture())
