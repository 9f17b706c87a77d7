"""The report of `everstep scan --html`: one page that needs nothing else and can be searched."""
from __future__ import absolute_import, division, print_function

from collections import Counter

_STYLE = """
:root { color-scheme: light dark; }
html { background: Canvas; color: CanvasText; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 1.5rem auto; max-width: 90rem; padding: 0 1rem; }
input[type=search] { font: inherit; padding: .4rem .6rem; width: min(30rem, 100%); }
table { border-collapse: collapse; margin: 1rem 0; width: 100%; }
th, td { border-bottom: 1px solid #8886; padding: .35rem .6rem; text-align: left; vertical-align: top; }
code { font-family: ui-monospace, monospace; font-size: .92em; overflow-wrap: anywhere; }
td ul { margin: .2rem 0; padding-left: 1.1rem; }
.broken { color: #b3261e; font-weight: 600; }
@media (prefers-color-scheme: dark) { .broken { color: #ff8a80; } }
fieldset { border: 0; margin: .6rem 0; padding: 0; }
label { margin-right: 1rem; white-space: nowrap; }
#places td:first-child { min-width: 14rem; }
@media (max-width: 48rem) {
  #places thead { clip-path: inset(50%); height: 1px; overflow: hidden; position: absolute; width: 1px; }
  #places, #places tbody, #places tr:not([hidden]) { display: block; overflow-wrap: anywhere; }
  #places tr { border-bottom: 1px solid #8886; padding: .4rem 0; }
  #places td { border: 0; display: block; padding: .1rem 0; }
  #places td:empty { display: none; }
  #places td:nth-child(4)::before { content: "works on: "; }
}
"""
_SCRIPT = """
var query = document.getElementById("query"), boxes = document.querySelectorAll("input[type=checkbox]");
function show() {
  var words = query.value.toLowerCase().split(/\\s+/), hidden = {}, count = 0;
  boxes.forEach(function (box) { hidden[box.value] = !box.checked; });
  document.querySelectorAll("#places tbody tr").forEach(function (row) {
    var text = row.textContent.toLowerCase();
    row.hidden = hidden[row.dataset.kind] || !words.every(function (word) { return text.indexOf(word) >= 0; });
    count += row.hidden ? 0 : 1;
  });
  document.getElementById("count").textContent = count;
}
query.addEventListener("input", show);
boxes.forEach(function (box) { box.addEventListener("change", show); });
show();
"""
_UNKNOWN = "not understood"
_COLUMNS = ("place", "kind", "what", "works on", "what to write, and notes")


def page(report, summary):
    """Returns the page of a `Report`.

    Args:
        report: the `Report`.
        summary: rows (text, number as text) for the table at the top.
    """
    rows = [_finding(each) for each in report.findings]
    rows += [_row(_UNKNOWN, [_place(each), _UNKNOWN, "", "", _text(each.why)]) for each in report.not_understood]
    kinds = Counter(each.kind for each in report.findings)
    kinds.update([_UNKNOWN] * len(report.not_understood))
    box = '<label><input type="checkbox" value="{0}" checked> {0} ({1})</label>'
    boxes = "".join(box.format(_text(kind), kinds[kind]) for kind in sorted(kinds))
    head = "".join("<th>{}</th>".format(each) for each in _COLUMNS)
    return "\n".join([
        '<!doctype html>', '<html lang="en"><head><meta charset="utf-8"><title>everstep scan</title>',
        '<meta name="viewport" content="width=device-width">', "<style>" + _STYLE + "</style></head><body><main>",
        "<h1>Optimizers of this code</h1>", "<table><thead><tr><th>found</th><th>places</th></tr></thead><tbody>",
        "".join("<tr><td>{}</td><td>{}</td></tr>".format(_text(text), _text(number)) for text, number in summary),
        "</tbody></table>",
        '<p><input type="search" id="query" placeholder="search all columns" aria-label="search"></p>',
        "<fieldset>" + boxes + "</fieldset>", '<p>shown: <span id="count">{}</span></p>'.format(len(rows)),
        '<table id="places"><thead><tr>' + head + "</tr></thead><tbody>", "\n".join(rows), "</tbody></table>",
        "</main><script>" + _SCRIPT + "</script></body></html>", ""])


def works_on(finding):
    """Returns the versions that a finding works on, as a text."""
    return ", ".join(finding.works_on) or ("" if finding.kind in ("by hand", "state", "wrapper") else "not known")


def _finding(each):
    notes = ["changes on {}".format(change) for change in each.changes] + list(each.notes)
    notes += ["{}: {}".format(versions, text or "no definition") for versions, text in each.definitions]
    write = "<code>{}</code>".format(_text(each.write or each.definition)) if each.write or each.definition else ""
    more = "<ul>{}</ul>".format("".join("<li>{}</li>".format(_text(note)) for note in notes)) if notes else ""
    works = _text(works_on(each))
    if each.broken:
        works = '<span class="broken">{} (not the newest)</span>'.format(works)
    return _row(each.kind, [_place(each), _text(each.kind), "<code>{}</code>".format(_text(each.what)), works,
                            write + more])


def _place(each):
    return "<code>{}:{}:{}</code>".format(_text(each.file), each.line, each.column)


def _row(kind, cells):
    return '<tr data-kind="{}">{}</tr>'.format(_text(kind), "".join("<td>{}</td>".format(cell) for cell in cells))


def _text(text):
    """Returns a text with what HTML reads otherwise written as HTML has it."""
    for letter, name in (("&", "amp"), ("<", "lt"), (">", "gt"), ('"', "quot")):
        text = text.replace(letter, "&{};".format(name))
    return text
