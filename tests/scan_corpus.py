"""The snippets in tests/scan/, each with what a scan has to find: `python tests/scan_corpus.py` prints a table.

A file is a style. A line `=== name` begins a snippet. `#: kind what` at the end of a line says what is found there,
with `;` between several, and `#: ?` that a place is not understood; both are taken out before the scan. `--- path`
begins a file of a snippet of several, `--- notebook` a notebook, whose cells `%%%` separates.
"""
from __future__ import absolute_import, division, print_function

import io
import json
import os
import shutil
import sys
import tempfile
from collections import Counter, OrderedDict

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "scan")
MARK = "#: "


def styles():
    """Returns `{style: [(name, [(path, text)], {(path, line): [texts]})]}`."""
    found = OrderedDict()
    for name in sorted(os.listdir(FOLDER)):
        with io.open(os.path.join(FOLDER, name), encoding="utf-8") as file:
            parts = ("\n" + file.read()).split("\n=== ")
        assert not parts[0].strip(), name
        found[name.rpartition(".")[0].replace("_", " ")] = [_snippet(part) for part in parts[1:]]
    return found


def _snippet(text):
    name, _, body = text.partition("\n")
    files, expected, path = OrderedDict(), {}, "code.py"
    for line in body.split("\n"):
        if line.startswith("--- "):
            path = line[4:] if line != "--- notebook" else "code.ipynb"
            files[path] = []
            continue
        code, mark, said = line.partition(MARK)
        files.setdefault(path, []).append(code.rstrip() if mark else line)
        if mark:
            number = len([each for each in files[path] if each != "%%%"])
            expected[path, number] = sorted(each.strip() for each in said.split(";"))
    return name, [(path, "\n".join(lines)) for path, lines in files.items()], expected


def content(path, text):
    """Returns the text of a file; of a notebook, JSON."""
    if not path.endswith(".ipynb"):
        return text + u"\n"
    cells = [dict(cell_type="code", source=cell.strip("\n").splitlines(True)) for cell in text.split("\n%%%\n")]
    return json.dumps(dict(nbformat=4, cells=cells))


def written(files, folder):
    """Writes the files of a snippet."""
    for path, text in files:
        full = os.path.join(folder, path)
        if not os.path.isdir(os.path.dirname(full)):
            os.makedirs(os.path.dirname(full))
        with io.open(full, "w", encoding="utf-8", newline="") as file:
            file.write(content(path, text))


def scanned(files, folder):
    """Returns `{(path, line): [texts]}` of what a scan finds."""
    from everstep.scan.scanner import scan

    written(files, folder)
    report, found = scan([folder]), {}
    for each in report.findings:
        found.setdefault((os.path.relpath(each.file, folder), each.line), []).append(
            "{} {}".format(each.kind, each.what))
    for each in report.not_understood:
        found.setdefault((os.path.relpath(each.file, folder), each.line), []).append("?")
    return {place: sorted(texts) for place, texts in found.items()}


def compared(expected, found):
    """Returns (right, missed, wrong): lists of (path, line, text)."""
    right, missed, wrong = [], [], []
    for place in sorted(set(expected) | set(found)):
        theirs, ours = Counter(expected.get(place, [])), Counter(found.get(place, []))
        right += [place + (text,) for text in (theirs & ours).elements()]
        missed += [place + (text,) for text in (theirs - ours).elements()]
        wrong += [place + (text,) for text in (ours - theirs).elements()]
    return right, missed, wrong


def checked(style):
    """Yields (name, right, missed, wrong) of the snippets of a style."""
    for name, files, expected in style:
        folder = tempfile.mkdtemp()
        try:
            yield (name,) + compared(expected, scanned(files, folder))
        finally:
            shutil.rmtree(folder)


def main():
    totals = Counter()
    print("{:<28} {:>8} {:>6} {:>6} {:>6}".format("STYLE", "SNIPPETS", "FOUND", "MISSED", "WRONG"))
    for style, snippets in styles().items():
        counts = Counter(snippets=len(snippets))
        for name, right, missed, wrong in checked(snippets):
            counts.update(found=len(right), missed=len(missed), wrong=len(wrong))
            for word, places in (("missed", missed), ("wrong", wrong)):
                for path, line, text in places:
                    print("    {}: {}, {}:{}: {}".format(word, name, path, line, text), file=sys.stderr)
        totals.update(counts)
        print("{:<28} {:>8} {:>6} {:>6} {:>6}".format(style, *[counts[each] for each in COUNTS]))
    print("{:<28} {:>8} {:>6} {:>6} {:>6}".format("all", *[totals[each] for each in COUNTS]))


COUNTS = ("snippets", "found", "missed", "wrong")

if __name__ == "__main__":
    main()
