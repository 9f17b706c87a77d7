"""Scans files and folders."""
from __future__ import absolute_import, division, print_function

from everstep.scan import files
from everstep.scan.by_hand import ByHand
from everstep.scan.calls import Calls
from everstep.scan.classes import Classes
from everstep.scan.findings import NotUnderstood, Report
from everstep.scan.names import Module, Project
from everstep.scan.parsing import Chunk, check_parser, one_line, walk
from everstep.scan.places import canonical, place_of
from everstep.scan.states import States, note_of

_SHOWN = 40  # characters of what does not parse


def scan(paths, on=None, to=None):
    """Returns the `Report` of the Python files and notebooks in files and folders.

    Args:
        paths: the files and folders.
        on: `{product: version}` that the code runs on now, such as `{"TF": "2.3"}`. It decides where what an optimizer
            computes depends on the version. Default None: not known.
        to: the module to write lines for: tf.train, tf.compat.v1.train, tf.keras, keras, tf_keras, torch or optax.
            Default None: the one that the code uses.

    Raises:
        FileError: a path does not exist.
        UnsupportedError: the parser is not installed.
    """
    check_parser()
    findings, unknown, edits, project, modules = [], [], [], Project(_is_known), []
    for path in _unique(files.found(paths)):
        source = files.read(path)
        unknown += [NotUnderstood(path, line, 1, why) for line, why in source.notes]
        module = Module(path, [Chunk(text, line) for line, text in source.chunks], project, source.content)
        project.add(module)
        modules.append(module)
    for module in modules:
        finders = [finder(module, findings, unknown, edits, on, to) for finder in (Calls, Classes, ByHand, States)]
        for chunk in module.chunks:
            for error in chunk.errors():
                line, column = chunk.place(error)
                unknown.append(NotUnderstood(module.path, line, column, _error(error)))
            for finder in finders:
                finder.chunk = chunk
            for node in walk(chunk.root):
                for finder in finders:
                    finder.visit(node)
    return Report(len(modules), sorted(findings, key=_place), sorted(set(unknown), key=_place), edits, modules)


def _is_known(dotted):
    """Returns whether a name is a wrapper of optimizers, such as Horovod's, or a loader of their state."""
    place = place_of(dotted)
    return place is not None and place.kind in ("wrapper", "optimize_loss") or note_of(canonical(dotted)) is not None


def _place(each):
    return each.file, each.line, each.column


def _unique(paths):
    seen = set()
    for path in paths:
        if path not in seen:
            seen.add(path)
            yield path


def _error(node):
    if node.is_missing:
        return "not Python as the parser knows it: {} is missing".format(node.type)
    text = one_line(node)
    return "not Python as the parser knows it: {}".format(text if len(text) <= _SHOWN else text[:_SHOWN] + " ...")
