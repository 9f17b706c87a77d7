"""The code in files and folders: Python files and notebooks, decoded as Python decodes them."""
from __future__ import absolute_import, division, print_function

import codecs
import io
import json
import os
import re
from collections import namedtuple

from everstep.errors import FileError

# Folders that hold no code of the project.
_SKIPPED = ("__pycache__", "node_modules", "site-packages", "build", "dist")
_COOKIE = re.compile(br"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")  # https://peps.python.org/pep-0263/
_MAGIC_CELLS = ("%%time", "%%timeit", "%%capture", "%%prun")  # the rest of these cells is Python

# chunks: [(number of the first line, text)]: one of a Python file, one for each code cell of a notebook. notes: [(line,
# why)] of what cannot be read. content: the bytes of the file.
Source = namedtuple("Source", "path chunks notes content")
# How the bytes of a file become text: its byte order mark and encoding.
Decoded = namedtuple("Decoded", "mark encoding text")


def found(paths):
    """Yields the paths of the Python files and notebooks in files and folders, sorted.

    Raises:
        FileError: a path does not exist.
    """
    for path in paths:
        if os.path.isfile(path):
            yield path
        elif not os.path.isdir(path):
            raise FileError("there is no file or folder {!r}".format(path))
        for folder, folders, names in os.walk(path):
            folders[:] = sorted(name for name in folders if name not in _SKIPPED and not name.startswith("."))
            for name in sorted(names):
                if name.endswith((".py", ".ipynb")):
                    yield os.path.join(folder, name)


def read(path):
    """Returns the `Source` of a file. What cannot be read is in its notes."""
    try:
        with io.open(path, "rb") as file:
            content = file.read()
    except (IOError, OSError) as error:
        return Source(path, [], [(1, "the file cannot be read: {}".format(error.strerror or error))], b"")
    if path.endswith(".ipynb"):
        return _notebook(path, content)
    return Source(path, [(1, _lines(decoded(content).text))], [], content)


def decoded(content):
    """Returns the `Decoded` of a Python file: by its byte order mark, its coding line, else UTF-8, else Latin-1.

    Python 2 read other bytes in comments without a complaint, so that old files have them.
    """
    if content.startswith(codecs.BOM_UTF8):
        return Decoded(codecs.BOM_UTF8, "utf-8", content[len(codecs.BOM_UTF8):].decode("utf-8", "replace"))
    named = [match.group(1).decode("ascii") for match in map(_COOKIE.match, content.split(b"\n", 2)[:2]) if match]
    for encoding in named[:1] + ["utf-8"]:
        try:
            return Decoded(b"", encoding, content.decode(encoding))
        except (LookupError, UnicodeDecodeError):
            continue
    return Decoded(b"", "latin-1", content.decode("latin-1"))


def _lines(text):
    """Returns text with the ends of lines of an old Mac as others. No place changes."""
    return re.sub("\r(?!\n)", "\n", text)


def _notebook(path, content):
    try:
        notebook = json.loads(decoded(content).text)
        sources = ["".join(cell.get("source", cell.get("input", ""))) for cell in code_cells(notebook)]
        language = notebook.get("metadata", {}).get("kernelspec", {}).get("language", "python")
    except (ValueError, LookupError, TypeError, AttributeError):
        return Source(path, [], [(1, "the notebook cannot be read: it is not JSON with cells")], content)
    if language.lower() != "python":
        return Source(path, [], [(1, "a notebook of {}".format(language))], content)
    chunks, notes, line = [], [], 1
    for source in sources:
        text = _lines(source)
        text, not_python = _without_magics(text[:-1] if text.endswith("\n") else text)
        chunks.append((line, text))
        notes += [(line + place, why) for place, why in not_python]
        line += text.count("\n") + 1
    return Source(path, chunks, notes, content)


def code_cells(notebook):
    """Returns the cells of a notebook that hold code."""
    cells = notebook["cells"] if "cells" in notebook else notebook["worksheets"][0]["cells"]  # up to version 3
    return [cell for cell in cells if cell["cell_type"] == "code"]


def _without_magics(cell):
    """Returns (a cell with the lines that are no Python replaced, [(line from 0, why)] of what is left out).

    No other place changes. `%time` and `%timeit` before a statement become `if 1:`, which has as many letters.
    """
    lines, notes = cell.split("\n"), []
    first = next((place for place, line in enumerate(lines) if line.strip()), 0)
    magic = lines[first].split()[0] if lines[first].startswith("%%") else None
    if magic and magic not in _MAGIC_CELLS:
        return "\n".join("" for _ in lines), [(first, "a cell of {}".format(magic))]
    for place, line in enumerate(lines):
        stripped = line.lstrip()
        if place == first and magic:
            lines[place] = ""
        elif re.match(r"%time(it)? +[^-\s]", stripped):
            lines[place] = re.sub("%time(it)?", lambda match: "if 1:".ljust(len(match.group())), line, count=1)
        elif re.match(r"[%!?]|[\w.]+\?{1,2}\s*$", stripped) and not _continues(lines[:place]):
            lines[place] = line[:len(line) - len(stripped)] + "pass"
        elif re.match(r"[\w, ]+= *[%!]", stripped):
            lines[place] = line[:len(line) - len(stripped)] + stripped.partition("=")[0] + "= None"
    return "\n".join(lines), notes


def _continues(lines):
    """Returns whether the next line goes on with the expression of the last one, as `% value` after a format."""
    text = "\n".join(lines)
    return text.rstrip(" ").endswith("\\") or any(text.count(a) > text.count(b) for a, b in ("()", "[]", "{}"))
