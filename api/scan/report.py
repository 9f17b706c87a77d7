"""The command `everstep scan`, and what it prints."""
from __future__ import absolute_import, division, print_function

import io
import sys
from collections import Counter

from everstep.compat.files.replacing import replacing
from everstep.errors import ConfigError
from everstep.scan import edits
from everstep.scan.page import page, works_on
from everstep.scan.scanner import scan
from everstep.scan.spelling import TO
from everstep.scan.versions import VERSIONS
from everstep.terminal import print_json, print_table, status

FAILURES = ("broken", "changes", "not-understood")
_PRODUCTS = {"tensorflow": "TF", "keras": "Keras", "tf_keras": "tf_keras", "tf-keras": "tf_keras"}
_KINDS = (
    ("construction", "optimizers made by a call"), ("string", "optimizers made by a text, such as \"adam\""),
    ("name", "optimizer classes named without a call"), ("schedule", "schedules"), ("wrapper", "wrappers"),
    ("class", "own optimizer classes"), ("private", "private attributes of optimizers"),
    ("call", "methods that newer optimizers lack"),
    ("by hand", "clipping, averages and accumulation by hand"), ("state", "savers and loaders of optimizer state"),
)


def add_arguments(command):
    """Adds the arguments of `everstep scan`."""
    command.add_argument("paths", nargs="+", metavar="PATH", help="a .py file, a notebook, or a folder of them")
    command.add_argument("--to", choices=sorted(TO), metavar="MODULE",
                         help="write lines for this module: {}; default: the one that the code uses".format(
                             ", ".join(sorted(TO))))
    command.add_argument("--on", action="append", default=[], metavar="NAME==VERSION",
                         help="what the code runs on now: tensorflow==2.3, keras==2.2 or tf_keras==2.16")
    command.add_argument("--fail-on", action="append", default=[], choices=FAILURES, metavar="WHAT",
                         help="exit with 1 if there is one: {}".format(", ".join(FAILURES)))
    command.add_argument("--patch", action="store_true", help="print a patch with the new lines, and write nothing")
    command.add_argument("--write", action="store_true", help="print the patch, and write the files")
    command.add_argument("--html", metavar="FILE", help="write a page that can be searched, and needs nothing else")
    command.add_argument("--json", action="store_true", help="print JSON instead of tables")
    command.set_defaults(run=run)


def run(options):
    """Prints what a scan finds. Returns 1 if it finds what --fail-on names, else 0."""
    on = dict(_version(text) for text in options.on)
    with status("reading ..."):
        report = scan(options.paths, on, options.to)
    if options.json:
        print_json(facts(report))
    elif options.patch or options.write:
        _edit(report, options.write)
    elif options.html:
        with replacing(options.html) as temporary:
            with io.open(temporary, "w", encoding="utf-8") as file:
                file.write(page(report, _summary(report)))
        print("written: {}".format(options.html))
    else:
        _print(report)
    return 1 if any(_failures(report)[name] for name in options.fail_on) else 0


def facts(report):
    """Returns what --json prints."""
    findings = [dict(each._asdict()) for each in report.findings]
    return dict(schema=1, files=report.files, findings=findings,
                not_understood=[dict(each._asdict()) for each in report.not_understood])


def _version(text):
    """Returns (product, "major.minor") of NAME==VERSION."""
    name, _, version = text.partition("==")
    product, version = _PRODUCTS.get(name), ".".join(version.split(".")[:2])
    if product is None or version not in VERSIONS[product]:
        raise ConfigError("--on takes NAME==VERSION, such as tensorflow==2.3, of {}; got {!r}".format(
            ", ".join("{} {} to {}".format(name, VERSIONS[product][0], VERSIONS[product][-1])
                      for name, product in sorted(_PRODUCTS.items()) if "-" not in name), text))
    return product, version


def _failures(report):
    """Returns `{name for --fail-on: how many}`."""
    return {"broken": sum(each.broken for each in report.findings),
            "changes": sum(bool(each.changes) for each in report.findings),
            "not-understood": len(report.not_understood)}


def _print(report):
    print("files: {}, findings: {}, places not understood: {}".format(
        report.files, len(report.findings), len(report.not_understood)))
    rows = _summary(report)
    if rows:
        print()
        print_table("FOUND PLACES", rows)
    if report.findings:
        print()
        print_table("PLACE WHAT WORKS-ON WRITE", [
            (_where(each), each.what, works_on(each), _write(each))
            for each in report.findings])
    changes = _grouped(report.findings)
    if changes:
        print()
        print_table("WHAT MOVED-TO CHANGES", changes)
    if report.not_understood:
        print()
        print_table("PLACE NOT-UNDERSTOOD", [(_where(each), each.why) for each in report.not_understood])


def _summary(report):
    """Returns rows (what, how many)."""
    kinds, failures = Counter(each.kind for each in report.findings), _failures(report)
    rows = [(text, str(kinds[kind])) for kind, text in _KINDS if kinds[kind]]
    return rows + [("does not work on the newest version", str(failures["broken"])),
                   ("changes in silence when moved", str(failures["changes"]))] if report.findings else rows


def _edit(report, is_write):
    """Prints a patch, writes the files if that is wanted, and says on stderr what is left to people."""
    done, refused = edits.rewritten(report)
    out = getattr(sys.stdout, "buffer", sys.stdout)
    for each in done:
        out.write(edits.diff(each))
    out.flush()
    for each in done if is_write else ():
        edits.write(each)
    count = sum(len(each.edits) for each in done)
    print("{}: files {}, places {}; left to you: places {}".format(
        "written" if is_write else "to write", len(done), count, len(refused)), file=sys.stderr)
    for each in refused:
        print("{}: {}: {}".format(_where(each), each.what, each.why), file=sys.stderr)
    notes = {}  # type: dict[str, list[str]]
    for edit in (edit for each in done for edit in each.edits):
        for note in edit.finding.notes:
            notes.setdefault(note, []).append(_where(edit.finding))
    for note, places in sorted(notes.items()):
        print("look at {} (places like it: {}): {}".format(places[0], len(places), note), file=sys.stderr)


def _where(each):
    return "{}:{}:{}".format(each.file, each.line, each.column)


def _write(finding):
    """Returns what to write instead, or why there is nothing."""
    if finding.write:
        return finding.write
    if finding.definitions:
        return "; ".join("{}: {}".format(versions, text or "no definition") for versions, text in finding.definitions)
    return finding.definition or "; ".join(finding.notes)


def _grouped(findings):
    """Returns rows (what, API, what changes there), each once."""
    rows = []
    for each in findings:
        for change in each.changes:
            api, _, text = change.partition(": ")
            row = each.what.split(": ")[-1], api, text
            if row not in rows:
                rows.append(row)
    return rows
