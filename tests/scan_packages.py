"""Scans unpacked sdists of packages: `python tests/scan_packages.py FOLDER` prints what is found, and the seconds.

A sample of 150 places, drawn at random from all findings and all places that are not understood, was compared with the
code by hand; it is in scan_packages.json, and the command says which of them a scan finds no longer. Get a package with
`python -m pip download --no-binary :all: --no-deps NAME==VERSION`, and unpack it in the folder.
"""
from __future__ import absolute_import, division, print_function

import io
import json
import os
import sys
import time

SAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "scan_packages.json")
ROW = "| {} | {:,} | {:,} | {} | {} | {} | {} | {:.1f} |"


def places(report, folder):
    """Yields [path, line, kind, what] of what a scan finds and of what it does not understand."""
    for each in report.findings:
        yield [os.path.relpath(each.file, folder), each.line, each.kind, each.what]
    for each in report.not_understood:
        yield [os.path.relpath(each.file, folder), each.line, "not understood", each.why]


def main(folder):
    from everstep.scan import edits
    from everstep.scan.scanner import scan

    with io.open(SAMPLE, encoding="utf-8") as file:
        sample = json.load(file)
    print("| package | files | lines | findings | not understood | edited by --write | left to people | seconds |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    found, totals = [], [0] * 7
    for name in sorted(os.listdir(folder)):
        start = time.time()
        report = scan([os.path.join(folder, name)])
        seconds = time.time() - start
        done, refused = edits.rewritten(report)
        lines = sum(module.content.count(b"\n") for module in report.modules)
        row = [report.files, lines, len(report.findings), len(report.not_understood),
               sum(len(each.edits) for each in done), len(refused), seconds]
        print(ROW.format(name, *row))
        totals = [total + each for total, each in zip(totals, row)]
        found += list(places(report, folder))
    print(ROW.format("all", *totals))
    lost = [each[:4] for each in sample if each[:4] not in found]
    verdicts = [each[4] for each in sample]
    print("sample: {}".format(", ".join("{} {}".format(verdicts.count(word), word) for word in ("right", "wrong"))))
    for each in lost:
        print("no longer found: {}:{}: {}: {}".format(*each))


if __name__ == "__main__":
    main(*sys.argv[1:])
