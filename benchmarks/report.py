"""Writes the figures of the pages on speed: python benchmarks/report.py

They come from benchmarks/record/baseline.json; --check only says if the pages are current. docs/speed.md says for each
API how much more or less than stock a step takes. docs/records/speed_targets.md has each target with all figures that
miss it, or the worst that meets it, and what is slower than stock without a target. docs/records/speed_tables.md has
all figures, a table for each of `MEASURES`.
"""
import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
if __name__ == "__main__":
    sys.path.insert(0, ROOT)

from benchmarks.measures import MEASURES, limits  # noqa: E402
from benchmarks.pictures import draw  # noqa: E402

DOCS = os.path.join(ROOT, "docs")
RECORDS = os.path.join(DOCS, "records")
BASELINE = os.path.join(HERE, "record", "baseline.json")
ABOUT = ("Generated: do not edit; run python -m benchmarks --new-baseline. A line for each result: {}, {{optimizer: "
         "[CPU seconds of a step, ratio, more of the measure's `extra`]}}.")
PLACE = ("cell", "kind", "target", "case", "beside")
START, END = "<!-- figures: do not edit; python benchmarks/report.py -->\n", "<!-- end of figures -->\n"
UNITS = {"ms": 1e3, "s": 1}
# What docs/speed.md shows: {(cell, target): what people call it} and {head: (measure, case, optimizer)}.
SHORT_APIS = {
    ("py37-tf1.15-k2.3", "tf_train"): "`tf.train`, TF 1.15",
    ("py37-tf1.15-k2.3", "get_updates"): "Keras 2.3, TF 1.15",
    ("py39-tf2.10", "optimizer_v2"): "`tf.keras`, TF 2.10",
    ("py311-tf2.15", "update_step"): "`tf.keras`, TF 2.15",
    ("py313-tf2.21-tfk", "keras3"): "Keras 3 on TensorFlow",
    ("py313-k3jax", "keras3, jax"): "Keras 3 on JAX",
    ("py311-k3torch", "keras3, torch"): "Keras 3 on torch",
}
SHORT_CASES = {
    "Adam": ("dense", "B", "everstep"),
    "AdamW, clipped, with a schedule": ("wrappers", "BERT's stack", "everstep"),
    "a rule that has no fused kernel": ("dense", "B", "DiffGrad"),
    "a whole training step": ("models", "LSTM", "everstep"),
}
OTHERS = {"stock", "optax", "torch.optim", "torch.optim, fused", "LazyAdam"}  # not everstep's


def main():
    results = baseline()
    if "--check" in sys.argv:
        old = [page for page, text in pages(results).items() if text != _read(page)]
        return "old: {}; run python benchmarks/report.py".format(", ".join(old)) if old else 0
    write_pages(results)
    draw(results, DOCS, RECORDS)


def baseline():
    """Returns the stored results: of each what the pages and the comparison with later ones need."""
    with open(BASELINE, encoding="utf-8") as file:
        rows = json.load(file)["results"]
    return [dict(zip(PLACE, place), **{key: {label: values[number] for label, values in figures.items()}
                                       for number, key in enumerate(_kept(place[1]))}) for *place, figures in rows]


def store(results):
    """Writes the results that are compared with from now on."""
    rows = []
    for each in results:
        kept = _kept(each["kind"])
        figures = {label: [_short(each[key][label]) for key in kept] for label in sorted(each["seconds"])}
        rows.append(json.dumps([each[key] for key in PLACE] + [figures], separators=(",", ":")))
    about = json.dumps(ABOUT.format(", ".join(PLACE)))
    with open(BASELINE, "w", encoding="utf-8") as file:
        file.write('{{"about": {}, "results": [\n{}\n]}}\n'.format(about, ",\n".join(rows)))


def _kept(kind):
    return ("seconds", "ratios") + MEASURES[kind].extra


def _short(figure):
    return None if figure is None else float("{:.7g}".format(figure))


def write_pages(results):
    for page, text in pages(results).items():
        with open(os.path.join(DOCS, page), "w", encoding="utf-8") as file:
            file.write(text)


def pages(results):
    """Returns {page: its text with these figures}."""
    texts = {}
    for page, lines in (("speed.md", in_short(results)),
                        (os.path.join("records", "speed_targets.md"), overview(results)),
                        (os.path.join("records", "speed_tables.md"), tables(results))):
        head, rest = _read(page).split(START)
        texts[page] = head + START + "\n".join(lines) + "\n" + END + rest.split(END)[1]
    return texts


def in_short(results):
    """Returns the lines of a table of what a step takes, beside stock's, in words."""
    figures = {(each["cell"], each["target"], each["kind"], each["case"], label): ratio
               for each in results for label, ratio in each["ratios"].items()}
    rows = [[name] + [in_words(figures.get(place + case)) for case in SHORT_CASES.values()]
            for place, name in SHORT_APIS.items()]
    return _table(["you train with"] + list(SHORT_CASES), rows)


def in_words(ratio):
    """Returns how much more or less something costs than stock: nothing if it was not measured."""
    if ratio is None:
        return ""
    percent = round(100 * ratio) - 100
    return "the same" if abs(percent) <= 5 else "{} % {}".format(abs(percent), "more" if percent > 0 else "less")


def overview(results):
    """Returns the lines of the table of targets, and of what is slower than stock and has none."""
    rows = []
    for name, measure in MEASURES.items():
        chosen = [each for each in results if each["kind"] == name]
        measured = [(target, figure, each) for each in chosen for target, figure in limits(each).values()]
        for target in measure.targets:
            figures = sorted(((figure, _place(each, target.label)) for hit, figure, each in measured if hit is target))
            missed = [pair for pair in figures if pair[0] > target.limit]
            goal = [_limit(target), "{} of {}".format(len(figures) - len(missed), len(figures)) if figures else ""]
            for figure, place in missed or figures[-1:]:
                rows.append([name] + place + goal + [_bold(figure, missed)])
            if not figures:
                patterns = ["`{}`".format(each) for each in (target.case, target.label, target.environment, target.api)]
                rows.append([name] + patterns + goal + ["not measured"])
        for each, label in without_target(chosen):
            rows.append([name] + _place(each, label) + ["", "", _bold(each["ratios"][label], True)])
    heads = ["measure", "case", "optimizer", "environment", "API", "target", "met", "figure"]
    return _table(heads, rows, right=range(5, 8))


def without_target(results):
    """Yields (result, label) of ours that is slower than what it is compared with, and has no target."""
    for each in results:
        known = OTHERS | set(limits(each)) | {MEASURES[each["kind"]].base}
        for label, ratio in sorted(each["ratios"].items()):
            if label not in known and ratio > 1:
                yield each, label


def _place(result, label):
    return [_thousands(result["case"]), _thousands(label), result["cell"], result["target"]]


def _limit(target):
    units = {None: "", "seconds": " s"}
    return "{:g}{}".format(target.limit, units.get(target.of, " of {}".format(target.of)))


def tables(results):
    """Returns the lines of all tables, one for each measure."""
    lines = []
    for name, measure in MEASURES.items():
        chosen = [each for each in results if each["kind"] == name]
        chosen.sort(key=lambda each: (each["cell"], each["target"], _natural(each["case"])))
        make = _by_case if measure.across == "case" else _by_label
        lines += ["", "## `{}`".format(name), "", measure.title, ""]
        lines += make(measure, chosen) if chosen else ["Not measured yet."]
    return lines[1:]


def _by_case(measure, results):
    """Returns a table with a column for each case, and a row for each optimizer."""
    cases = sorted({each["case"] for each in results})
    places = {}
    for each in results:
        for label in _labels(measure, each):
            cells = places.setdefault((each["cell"], each["target"], label), {})
            cells[each["case"]] = _cell(measure, each, label)
    rows = [list(place) + [cells.get(case, "") for case in cases] for place, cells in places.items()]
    return _table(["environment", "API", "optimizer"] + cases, rows, right=range(3, 3 + len(cases)))


def _by_label(measure, results):
    """Returns a table with a column for each optimizer, and a row for each case."""
    labels = list(dict.fromkeys(label for each in results for label in _labels(measure, each)))
    extra = [(key, label) for key in measure.extra for label in dict.fromkeys([measure.base] + labels)]
    heads = ["environment", "API", "case", "relative to"] + labels + ["{}: {}".format(*each) for each in extra]
    rows = []
    for each in results:
        row = [each["cell"], each["target"], _thousands(each["case"]), each.get("beside", "")]
        row += [_cell(measure, each, label) if label in each["seconds"] else "" for label in labels]
        rows.append(row + [_number(each[key].get(label)) for key, label in extra])
    return _table([_thousands(head) for head in heads], rows, right=range(4, len(heads)))


def _labels(measure, result):
    """Returns the labels to show: what ratios are relative to is 1 in every row."""
    labels = sorted(result["seconds"], key=lambda label: (label != measure.base, label != "everstep", _natural(label)))
    return [label for label in labels if label != measure.base or measure.unit]


def _cell(measure, result, label):
    """Returns a figure with its target in parentheses: bold if it misses it or, without one, is slower than stock."""
    scale = UNITS.get(measure.unit)
    shown = result["seconds"][label] * scale if scale else result["ratios"][label]
    target, figure = limits(result).get(label, (None, None))
    if not target:
        return _bold(shown, label not in OTHERS and label != measure.base and result["ratios"][label] > 1)
    ratio = "{} of {}; ".format(_number(figure), target.of) if target.of not in (None, "seconds") else ""
    return "{} ({}{:g})".format(_bold(shown, figure > target.limit), ratio, target.limit)


def _table(heads, rows, right=()):
    """Returns the lines of a table whose columns line up."""
    right = set(right)
    widths = [max([3] + [len(row[column]) for row in [heads] + rows]) for column in range(len(heads))]

    def line(cells):
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(cells, widths))
        ]
        return "| {} |".format(" | ".join(cells))

    rule = ["-" * (width - 1) + ":" if column in right else "-" * width for column, width in enumerate(widths)]
    return [line(heads), line(rule)] + [line(row) for row in rows]


def _bold(figure, misses):
    return "**{}**".format(_number(figure)) if misses else _number(figure)


def _number(figure):
    return "" if figure is None else "{:.3g}".format(figure) if figure < 0.1 else "{:.2f}".format(figure)


def _thousands(text):
    return "{:,}".format(int(text)) if text.isdigit() else text


def _natural(text):
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", text)]


def _read(page):
    with open(os.path.join(DOCS, page), encoding="utf-8") as file:
        return file.read()


if __name__ == "__main__":
    sys.exit(main())
