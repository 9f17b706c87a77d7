"""The parity map: for each definition and cell the largest difference from the float64 oracle, of proof.json.

`proof.py` writes the picture of it, proof.svg. The website makes a page of the same figures.
"""
from __future__ import absolute_import, division, print_function

import html
import math

import cells
import spoken_apis

# The bounds of docs/numbers.md by kind of figure; all others are float32.
BOUNDS = {"float64": 1e-6, "float16": 2e-2}
BOUND = 1e-5
# mixed: dense and sparse variables in one run, of wrappers.
KINDS = ("dense", "unique", "duplicates", "mixed", "accumulated", "rate set", "schedule", "1M elements", "float64",
         "float16")
# (share of the bound, colour of figures up to it), and the colour beyond the bound.
LEVELS = ((0.001, "#dbeafe"), (0.01, "#a9cdf5"), (0.03, "#72a9e6"), (0.1, "#3d80cc"), (0.3, "#1f5a9e"), (1, "#12365f"))
BEYOND, UNKNOWN = "#c2311c", "#e4e4e4"
SIDE, GAP, LEFT, TOP = 11, 1, 132, 116
FAMILIES = ("NumPy", "TF 1", "TF 2, Keras 2", "Keras 3")


def family(versions):
    """Returns the family of a cell's versions, one of FAMILIES."""
    numbers = {name: spoken_apis.number(version)[0] for name, version in versions.items() if version}
    if numbers.get("keras", 0) >= 3:
        return "Keras 3"
    if "tensorflow" in numbers:
        return "TF 1" if numbers["tensorflow"] == 1 else "TF 2, Keras 2"
    return "NumPy"


def columns(shown):
    """Returns [(name, values of proof.json)] of the cells that measured definitions, old frameworks first."""
    table = cells.read()
    measured = [(name, values) for name, values in shown.items() if values["worst"] and name in table]

    def age(item):
        versions = item[1]["versions"]
        return (FAMILIES.index(family(versions)), spoken_apis.number(versions.get("tensorflow") or "99"),
                spoken_apis.number(versions.get("keras") or "0"), spoken_apis.number(table[item[0]].python))

    return sorted(measured, key=age)


def rows(shown):
    """Returns the names of the definitions that any cell measured."""
    return sorted({name for values in shown.values() for name in values["worst"]}, key=str.lower)


def share(figures, kind=None):
    """Returns the largest share of its bound that a figure takes; None if there is no figure (of that kind)."""
    shares = [value / BOUNDS.get(name, BOUND) for name, value in figures.items() if kind in (None, name)]
    return max(shares) if shares else None


def colour(part):
    """Returns the colour of a share of the bound."""
    if part is None:
        return UNKNOWN
    return next((colour for most, colour in LEVELS if part <= most), BEYOND)


def picture(shown):
    """Returns the map as SVG."""
    names, across = rows(shown), columns(shown)
    step = SIDE + GAP
    width, height = LEFT + len(across) * step + 70, TOP + len(names) * step + 62
    lines = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" width="{0}" height="{1}"'
        ' font-family="sans-serif" font-size="9" fill="#222" role="img" aria-label="Parity map">'.format(width, height),
        '<rect width="100%" height="100%" fill="#fff"/>',
    ]
    for place, (name, _) in enumerate(across):
        lines.append('<text transform="translate({},{}) rotate(-60)">{}</text>'.format(
            LEFT + place * step + SIDE, TOP - 5, html.escape(name)))
    squares = {}
    for number, name in enumerate(names):
        top = TOP + number * step
        label = '<text x="{}" y="{}" text-anchor="end">{}</text>'
        lines.append(label.format(LEFT - 5, top + SIDE - 2, html.escape(name)))
        for place, (_, values) in enumerate(across):
            squares.setdefault(colour(share(values["worst"].get(name, {}))), []).append(
                "M{} {}h{s}v{s}h-{s}z".format(LEFT + place * step, top, s=SIDE))
    lines += ['<path fill="{}" d="{}"/>'.format(fill, "".join(squares[fill])) for fill in sorted(squares)]
    lines += _legend(TOP + len(names) * step + 14, shown, names, across)
    return "\n".join(lines + ["</svg>"]) + "\n"


def _legend(top, shown, names, across):
    yield '<text x="{}" y="{}" font-size="11">{}</text>'.format(LEFT, top + 6, html.escape(summary(shown)))
    entries = [("up to {:g} %".format(100 * most), colour) for most, colour in LEVELS]
    entries += [("beyond", BEYOND), ("not measured", UNKNOWN)]
    for number, (text, colour) in enumerate(entries):
        left = LEFT + number * 78
        yield '<rect x="{}" y="{}" width="11" height="11" fill="{}"/><text x="{}" y="{}">{}</text>'.format(
            left, top + 16, colour, left + 15, top + 25, text)


def summary(shown):
    """Returns what the map shows, in a sentence."""
    every = [share(figures) for values in shown.values() for figures in values["worst"].values()]
    text = "{} definitions in {} cells: largest difference from the float64 oracle, in % of its bound. "
    text += "Largest: {:.0f} %"
    return text.format(len(rows(shown)), len(columns(shown)), math.ceil(100 * max(every)) if every else 0)
