# not run: it runs the other scripts in their cells, and writes their pages; tests/test_examples.py checks them
"""Makes the page of a worked example: python examples/page.py NAME... [--record CELL] [--check]

Without names it makes all pages, and the gallery in README.md. A page has the script's docstring, its code, and what
it printed and drew when it ran. `--record CELL` runs the script first, in this Python, and keeps what comes out in
examples/outputs/NAME.json. `--check` only compares.

A script prints its figures. What it leaves in CURVES = {label: [numbers]} is drawn, with its AXES = (across, up). None
is a gap. POINTS = {label: [(x, y)]} are drawn beside each other, in a second picture.
"""
from __future__ import absolute_import, division, print_function

import argparse
import ast
import glob
import io
import json
import os
import runpy
import shutil
import sys
import tempfile
import time
from collections import OrderedDict

HERE = os.path.dirname(os.path.abspath(__file__))
# The cards of the gallery: (example, what it runs on, what it shows).
CARDS = (
    ("estimator", "TF 1.15", u"Change one line of an old model function, and it trains with AdamW in batches of 64."),
    ("old_run", "TF 1.4, then Keras 3 on TensorFlow, JAX and torch",
     u"Weights, moments and the count of updates come out of the old checkpoint. The run goes on as if it had never "
     u"stopped."),
    ("from_addons", "TF 2.10, then TF 2.16",
     u"AdamW of TensorFlow Addons in its MovingAverage, and the lines that do the same on Keras 3."),
    ("recommender", "TF 2.15",
     u"A step takes half the time of Adam on the whole table, and gives the same weights."),
    ("averages", "TF 2.11", u"The test loss is 0.38 with the weights as they train, and 0.33 with their averages."),
    ("resume", "TF 2.4", u"A process dies while it trains. The next one ends with the same bits."),
    ("custom", "TF 1.15 and TF 2.21",
     u"One class trains on each API of two TensorFlows. All agree with NumPy to rounding."),
    ("fine_tuning", "TF 1.15 with bert-tensorflow",
     u"Batches of 16 fit into memory. Clipping, decay and the schedule are those of a batch of 64."),
    ("bert_to_torch", "TF 1.15 with bert-tensorflow, then PyTorch with transformers",
     u"The moments move too. A run that goes on with the weights alone is drawn beside it."),
    ("bert_to_optax", "JAX with optax", u"The same run goes on in a model that is written with jax.numpy alone."),
    ("gan", "TF 2.8", u"Generator and discriminator have an optimizer each, with slots and counts of their own."),
    ("layer_rates", "Keras 3 on torch",
     u"With a tenth of the rate for the pre-trained layer 86 % of the test images are right, with one rate 79 %."),
)
NAMES = tuple(card[0] for card in CARDS)
GALLERY, END = u"<!-- gallery: do not edit; python examples/page.py -->\n", u"<!-- end of gallery -->\n"
COLORS = ("#1f6fb4", "#d1495b", "#2e8b57", "#8a5fbf", "#b8860b")
DASHES = ("", "7 5", "2 4", "9 3 2 3", "4 2")
WIDTH, HEIGHT, LEFT, BOTTOM = 640, 300, 62, 36


def read(name):
    with io.open(os.path.join(HERE, name), encoding="utf-8") as file:
        return file.read()


def outputs(name):
    """Returns {cell: {"printed", "seconds", "curves", "axes"}}."""
    path = os.path.join("outputs", name + ".json")
    return json.loads(read(path), object_pairs_hook=OrderedDict) if os.path.exists(os.path.join(HERE, path)) else {}


def record(name, cell):
    """Runs a script in an empty folder, and keeps what it prints. Its arrays NAME*.npz become data."""
    before, printed, folder = os.getcwd(), io.StringIO(), tempfile.mkdtemp()
    os.chdir(folder)
    stdout, start = sys.stdout, time.time()
    sys.stdout = Both(stdout, printed)
    try:
        left = runpy.run_path(os.path.join(HERE, name + ".py"), run_name="__main__")
    finally:
        sys.stdout = stdout
        os.chdir(before)
    for path in glob.glob(os.path.join(folder, name + "*.npz")):
        shutil.copy(path, os.path.join(HERE, "data"))
    shutil.rmtree(folder)
    curves = [(label, [value and float("%.4g" % value) for value in values])
              for label, values in left["CURVES"].items()]
    known = dict(outputs(name), **{cell: OrderedDict(
        printed=printed.getvalue(), seconds=int(round(time.time() - start)), curves=OrderedDict(curves),
        axes=left["AXES"])})
    if "POINTS" in left:
        known[cell]["points"] = OrderedDict(
            (label, " ".join("%.3g,%.3g" % tuple(point) for point in points))
            for label, points in left["POINTS"].items())
    with io.open(os.path.join(HERE, "outputs", name + ".json"), "w", encoding="utf-8") as file:
        file.write(u"" + json.dumps(known, indent=1, sort_keys=True) + u"\n")


class Both(object):
    """Prints to two files."""

    def __init__(self, *files):
        self.files = files

    def write(self, text):
        for file in self.files:
            file.write(text if isinstance(text, type(u"")) or file is self.files[0] else text.decode("utf-8"))

    def flush(self):
        self.files[0].flush()


def files_of(name):
    """Returns {file: text} of the page and picture of an example."""
    code = read(name + ".py")
    text = ast.get_docstring(ast.parse(code.encode("utf-8")))
    text = text.partition("\n")[2]
    body = code[code.index("from __future__"):].partition("\n")[2].strip()
    lines = [u"# " + title_of(name), u"", text.strip(), u""]
    curves, points, axes = OrderedDict(), OrderedDict(), None
    known = outputs(name)
    printed = []
    for cell, output in sorted(known.items()):
        printed += [u"In `{}`, in {} seconds:".format(cell, max(1, output["seconds"])), u"", u"```text",
                    output["printed"].rstrip(), u"```", u""]
        curves.update(sorted(output["curves"].items()))
        points.update(sorted(output.get("points", {}).items(), reverse=True))
        axes = output["axes"]
    pictures = {name + ".svg": picture(curves, axes)}
    if points:
        pictures[name + "_points.svg"] = scatter(points)
        lines += [u"![Points, {}]({}_points.svg)".format(u" and ".join(points), name), u""]
    lines += [u"![Curves of the runs]({}.svg)".format(name), u""] + printed
    lines += [u"The script, [{0}.py]({0}.py), {1}, cells of the [test matrix](../matrix/README.md):".format(
        name, code.partition("\n")[0].partition(";")[0][2:].replace(":", "")), u"",
              u"<!-- not run: the script itself runs -->", u"```python", body, u"```", u""]
    return dict(pictures, **{name + ".md": u"\n".join(lines)})


def title_of(name):
    """Returns the first line of a script's docstring, without its full stop."""
    return ast.get_docstring(ast.parse(read(name + ".py").encode("utf-8"))).partition("\n")[0].rstrip(".")


def gallery():
    """Returns README.md with a card for each example: title, picture, what it shows, what it takes."""
    lines = []
    for place in range(0, len(CARDS), 2):
        pair = CARDS[place:place + 2]
        titles = [u"[{}]({}.md)".format(title_of(name), name) for name, _, _ in pair]
        # One table, so that all columns are alike: the first titles are its head.
        rows = [[u"**{}**".format(title) for title in titles]] if place else [titles, [u"---"] * len(pair)]
        rows += [[u"[![Curves: {1}]({0}.svg)]({0}.md)".format(name, title_of(name)) for name, _, _ in pair],
                 [u"{} *{}, {}*".format(shown, where, seconds(name)) for name, where, shown in pair]]
        lines += [u"| {} |".format(u" | ".join(row)) for row in rows]
    head, rest = read("README.md").split(GALLERY)
    return {"README.md": head + GALLERY + u"\n".join(lines) + u"\n" + END + rest.split(END)[1]}


def seconds(name):
    """Returns how long a script took where it was recorded, such as "5 s" or "1 to 5 s"."""
    found = sorted({max(1, output["seconds"]) for output in outputs(name).values()})
    return u" to ".join(u"{}".format(each) for each in (found if len(found) < 3 else found[::len(found) - 1])) + u" s"


def picture(curves, axes):
    """Returns an SVG of lines."""
    longest = max(len(values) for values in curves.values())
    every = [value for values in curves.values() for value in values if value is not None]
    low, high = min(every), max(every)
    low = 0.0 if 0 < low < 0.5 * high else low

    def place(step, value):
        return (LEFT + (WIDTH - LEFT - 12) * step / float(max(1, longest - 1)),
                8 + (HEIGHT - BOTTOM - 8) * (high - value) / ((high - low) or 1.0))

    parts = [u'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" width="{0}" height="{1}" '
             u'font-family="sans-serif" font-size="12">'.format(WIDTH, HEIGHT + 18 * len(curves)),
             u'<rect width="100%" height="100%" fill="#fff"/>']
    for share in (0, 0.25, 0.5, 0.75, 1):
        value = low + share * (high - low)
        y = place(0, value)[1]
        parts.append(u'<path d="M{} {:.1f}H{}" stroke="#ddd"/><text x="{}" y="{:.1f}" text-anchor="end">{:.3g}</text>'
                     .format(LEFT, y, WIDTH - 12, LEFT - 6, y + 4, value))
    parts.append(u'<text x="{}" y="{}">{}</text><text x="{}" y="{}" text-anchor="end">{}</text>'.format(
        LEFT, HEIGHT - BOTTOM + 18, 1, WIDTH - 12, HEIGHT - BOTTOM + 18, longest))
    parts.append(u'<text x="{}" y="{}" text-anchor="middle">{}, over {}</text>'.format(
        (LEFT + WIDTH) // 2, HEIGHT - BOTTOM + 18, *axes[::-1]))
    for number, (label, values) in enumerate(curves.items()):
        points = u"L".join(u"{:.1f} {:.1f}".format(*place(step, value)) for step, value in enumerate(values)
                         if value is not None)
        style = u'fill="none" stroke="{}" stroke-width="2" stroke-dasharray="{}"'.format(
            COLORS[number % len(COLORS)], DASHES[number % len(DASHES)])
        y = HEIGHT + 4 + 18 * number
        parts.append(u'<path d="M{}" {}/><path d="M{} {}h40" {}/><text x="{}" y="{}">{}</text>'.format(
            points, style, LEFT, y, style, LEFT + 48, y + 4, label))
    return u"\n".join(parts + [u"</svg>"]) + u"\n"


def scatter(points):
    """Returns an SVG with a square of points for each label, all to one scale."""
    points = OrderedDict((label, [tuple(map(float, point.split(","))) for point in text.split()])
                         for label, text in points.items())
    largest = 1.05 * max(abs(value) for values in points.values() for point in values for value in point)
    side, scale = HEIGHT, HEIGHT / (2 * largest)
    parts = [u'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {}" font-family="sans-serif" font-size="12">'
             .format((side + 20) * len(points), side + 24), u'<rect width="100%" height="100%" fill="#fff"/>']
    for number, (label, values) in enumerate(points.items()):
        left = 10 + (side + 20) * number
        dots = u"".join(u"M{:.1f} {:.1f}h0".format(left + scale * (x + largest), scale * (largest - y))
                        for x, y in values)
        parts.append(u'<rect x="{}" width="{}" height="{}" fill="none" stroke="#ddd"/><path d="{}" stroke="{}" '
                     u'stroke-width="4" stroke-linecap="round" opacity="0.6"/><text x="{}" y="{}" text-anchor="middle">'
                     u'{}</text>'.format(left, side, side, dots, COLORS[number], left + side // 2, side + 16, label))
    return u"\n".join(parts + [u"</svg>"]) + u"\n"


def renewed(files, check):
    """Writes files of examples/ from {file: text}; with `check` it writes nothing, and returns those that are old."""
    if check:
        return [file for file, text in files.items() if read(file) != text]
    for file, text in files.items():
        with io.open(os.path.join(HERE, file), "w", encoding="utf-8") as page:
            page.write(text)
    return []


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="all, if none is given")
    parser.add_argument("--record", metavar="CELL", help="the cell that this Python belongs to")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    old = []
    for name in options.names or NAMES:
        if options.record:
            record(name, options.record)
        old += renewed(files_of(name), options.check)
    if not options.names:
        old += renewed(gallery(), options.check)
    return "run python examples/page.py: these are old: " + ", ".join(old) if old else 0


if __name__ == "__main__":
    sys.exit(main())
