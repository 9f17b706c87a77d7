"""Puts new lines into files, and checks that nothing else changed: each file is parsed before and after."""
from __future__ import absolute_import, division, print_function

import difflib
import io
import json
import os
import re
from collections import namedtuple

from everstep.compat.files.replacing import replacing
from everstep.errors import FileError
from everstep.scan import files
from everstep.scan.calls import IS_INSTANCE
from everstep.scan.finder import in_broken_statement
from everstep.scan.parsing import Chunk

_LONGEST = 120  # characters of a line
_IMPORTS = ("import_statement", "import_from_statement")
# A file with its new lines. before, after: bytes. edits: the `Edit`s that are in it.
Rewritten = namedtuple("Rewritten", "path before after edits")
# A place that is not edited. what: of the finding; why: a text.
Refused = namedtuple("Refused", "file line column what why")
_Piece = namedtuple("_Piece", "first end text")  # characters of a chunk, and what replaces them


def rewritten(report):
    """Returns ([Rewritten], [Refused]) of a `Report`. Nothing is written."""
    done, refused = [], []  # type: list, list
    by_path, private = {}, set()  # type: dict, set
    for edit in report.edits:
        by_path.setdefault(edit.finding.file, []).append(edit)
    for each in report.findings:
        if each.kind in ("private", "call"):
            private.add((each.file, each.what.partition(" of ")[2]))
        if IS_INSTANCE in each.notes:
            private.add((each.file, each.what))
    for module in report.modules:
        edits, wanted = _once(by_path.get(module.path, [])), []
        for edit in edits:
            why = _why_not(edit, edits, private)
            if why is None:
                wanted.append(edit)
            else:
                refused.append(_refused(edit, why))
        after, why = _after(module, wanted) if wanted else (None, None)
        if after is not None:
            done.append(Rewritten(module.path, module.content, after, wanted))
        else:
            refused += [_refused(edit, why) for edit in wanted]
    return done, sorted(refused)


def write(each):
    """Writes a `Rewritten`.

    Raises:
        FileError: the file is another one than the one that was read.
        StateError: it cannot be written.
    """
    with io.open(each.path, "rb") as file:
        if file.read() != each.before:
            raise FileError("{!r} changed since it was read: run the scan again".format(each.path))
    with replacing(each.path) as temporary:
        with io.open(temporary, "wb") as file:
            file.write(each.after)


def diff(each):
    """Returns the bytes of a unified diff of a `Rewritten`, which `patch -p1` and `git apply` take."""
    name = os.path.normpath(each.path).replace(os.sep, "/").lstrip("/").encode("utf-8", "surrogateescape")
    lines = difflib.diff_bytes(difflib.unified_diff, _lines(each.before), _lines(each.after), b"a/" + name,
                               b"b/" + name)
    return b"".join(line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n" for line in lines)


def _lines(content):
    return re.findall(b"[^\n]*\n|[^\n]+", content)


def _refused(edit, why):
    finding = edit.finding
    return Refused(finding.file, finding.line, finding.column, finding.what, why)


def _why_not(edit, edits, private):
    """Returns why a place is not edited; None if it is."""
    if edit.why is not None:
        return edit.why
    if in_broken_statement(edit.node):
        return "the code around it does not parse"
    if any(other is not edit and _overlap(edit, other) for other in edits):
        return "it may be of several modules, or holds another place that is edited"
    if (edit.finding.file, edit.finding.what) in private:
        return "private attributes or old methods of it are used in this file, or isinstance asks for it"
    return None


def _once(edits):
    """Returns edits without those that write the same line at the same place: of a name that is two modules."""
    seen, kept = [], []
    for edit in edits:
        key = edit.chunk, edit.node.start_byte, edit.node.end_byte, edit.finding.write
        if key not in seen or edit.why is not None:
            kept.append(edit)
        seen.append(key)
    return kept


def _overlap(edit, other):
    return edit.chunk is other.chunk and edit.node.start_byte < other.node.end_byte and \
        other.node.start_byte < edit.node.end_byte


def _after(module, edits):
    """Returns (the new bytes of a file, None), or (None, why there are none)."""
    imports = []
    for edit in edits:
        imports += [line for line in edit.finding.imports if line not in imports]
    imports = [line for line in imports if not _has_import(module, line)]
    pieces = {}
    first = min(module.chunks.index(edit.chunk) for edit in edits)
    for number, chunk in enumerate(module.chunks):
        mine = [edit for edit in edits if edit.chunk is chunk]
        if mine:
            pieces[number], why = _pieces(chunk, mine, imports if number == first else [])
            if why is not None:
                return None, why
    return _notebook(module, pieces) if module.path.endswith(".ipynb") else _python(module, pieces[0])


def _has_import(module, line):
    """Returns whether the module has an import already: `import everstep`."""
    words = line.split()
    return any(bound.kind == "import" and bound.value == words[1] for bound in module.scope.bound.get(words[-1], []))


def _pieces(chunk, edits, imports):
    """Returns ([_Piece] of a chunk, None), or (None, why there are none): the rest has to parse as before."""
    pieces = sorted(_Piece(*chunk.span(edit.node) + (_broken(chunk, edit),)) for edit in edits)
    place = _import_place(chunk) if imports else None
    if imports and place is None:
        return None, "there is no place for {}".format(imports[0])
    if imports:
        end = "\r\n" if "\r\n" in chunk.text else "\n"
        pieces = [_Piece(place, place, "".join(line + end for line in imports))] + pieces
    text, spans = _spliced(chunk.text, pieces)
    inserted = spans.pop(0) if imports else None
    before = _skeleton(chunk, [chunk.span(edit.node) for edit in edits], None)
    if before != _skeleton(Chunk(text), spans, inserted):
        return None, "the file would parse differently elsewhere"
    return pieces, None


def _broken(chunk, edit):
    """Returns the new line, with the arguments of the definition on a line of their own where it is long."""
    write, text = edit.finding.write, chunk.text
    first, end = chunk.span(edit.node)
    start = text.rfind("\n", 0, first) + 1
    rest = text[end:].split("\n", 1)[0].rstrip()
    if first - start + len(write) + len(rest) <= _LONGEST:
        return write
    bind = Chunk(write).root.named_children[0].named_children[0]  # definition.bind(...)
    definition = bind.child_by_field_name("function").child_by_field_name("object")
    around = definition.child_by_field_name("arguments")
    before, inside, after = (part.decode("utf-8") for part in (
        write.encode("utf-8")[:around.start_byte + 1], around.text[1:-1], write.encode("utf-8")[around.end_byte - 1:]))
    line = ("\r\n" if "\r\n" in text else "\n") + re.match(r"[ \t]*", text[start:]).group()
    return before + line + "    " + inside + line + after


def _spliced(text, pieces):
    """Returns (text with pieces in it, their spans there)."""
    new, spans, last = "", [], 0
    for piece in pieces:
        new += text[last:piece.first]
        spans.append((len(new), len(new) + len(piece.text)))
        new, last = new + piece.text, piece.end
    return new + text[last:], spans


def _skeleton(chunk, spans, inserted):
    """Returns the tree of a chunk as a list of kinds and texts, with one mark for what stands in each span.

    Args:
        inserted: the span of imports, which is left out.
    """
    ends, waiting, listed = dict(spans), [(chunk.root, 0)], []  # type: dict, list, list
    while waiting:
        node, depth = waiting.pop()
        first, end = chunk.span(node)
        if inserted and inserted[0] <= first and end <= inserted[1] and node.type in _IMPORTS:
            continue
        if ends.get(first) == end and not node.has_error and node.type != "module":
            listed.append((depth, "edited"))
            continue
        listed.append((depth, node.type, None if node.children else node.text, node.is_missing))
        waiting += [(child, depth + 1) for child in reversed(node.children)]
    return listed


def _import_place(chunk):
    """Returns where new imports go: before the first import of the module, else after its docstring."""
    statements = [each for each in chunk.root.children if each.type not in ("comment", "future_import_statement")]
    if statements and statements[0].type == "expression_statement" and statements[0].children[0].type == "string":
        statements = statements[1:]
    imports = [each for each in statements if each.type in _IMPORTS and each.start_point[1] == 0]
    before = imports[:1] or [each for each in statements if each.start_point[1] == 0][:1]
    return chunk.span(before[0])[0] if before else None


def _python(module, pieces):
    mark, encoding, old = files.decoded(module.content)
    if mark + old.encode(encoding, "replace") != module.content:
        return None, "its encoding is not known"
    if old != module.chunks[0].text:
        return None, "it has line ends of an old Mac"
    try:
        return mark + _spliced(old, pieces)[0].encode(encoding), None
    except UnicodeError:
        return None, "its encoding cannot hold the new line"


def _notebook(module, pieces):
    """Returns a notebook with new cells, if all else in it can be written again as it is."""
    mark, encoding, old = files.decoded(module.content)
    notebook = json.loads(old)
    written = _writer(notebook, old)
    if written is None or mark + old.encode(encoding, "replace") != module.content:
        return None, "the notebook is written in an unusual way"
    cells = files.code_cells(notebook)
    for number, mine in pieces.items():
        cell = cells[number]
        key = "source" if "source" in cell else "input"
        source = "".join(cell[key])
        moved = [_in_source(each, module.chunks[number].text, source) for each in mine]
        if None in moved:
            return None, "a command of the notebook is in the way"
        source = _spliced(source, moved)[0]
        cell[key] = source.splitlines(True) if isinstance(cell[key], list) else source
    return mark + written(notebook).encode(encoding), None


def _in_source(piece, text, source):
    """Returns a piece of parsed code in the source of its cell, which may have commands; None if it is in one."""
    row, column = text.count("\n", 0, piece.first), piece.first - (text.rfind("\n", 0, piece.first) + 1)
    first = sum(len(line) + 1 for line in source.split("\n")[:row]) + column
    end = first + piece.end - piece.first
    if source[first:end] != text[piece.first:piece.end] or source.count("\n", 0, first) != row:
        return None
    return _Piece(first, end, piece.text)


def _writer(notebook, text):
    """Returns the function that wrote a notebook's JSON; None if it is not found."""
    ends = "\n" if text.endswith("\n") else ""
    for indent in (1, 2, 4, None):
        for is_ascii in (False, True):
            for is_sorted in (False, True):
                def written(value, indent=indent, is_ascii=is_ascii, is_sorted=is_sorted):
                    return json.dumps(value, indent=indent, ensure_ascii=is_ascii, sort_keys=is_sorted) + ends
                if written(notebook) == text:
                    return written
    return None
