"""What the command line prints: tables that fit the terminal, colours, bars of progress, and text that is safe."""
from __future__ import absolute_import, division, print_function

import contextlib
import json
import os
import struct
import sys
import textwrap
import unicodedata

try:
    import fcntl
    import termios
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LARGE = 1 << 26  # progress is shown for files of at least this many bytes
NARROWEST = 12  # no column is made narrower than this to fit the terminal
GAP = "  "
BOLD, DIM, RED, GREEN = "1", "2", "31", "32"
# By the text of a cell before a colon.
COLOURS = {"damaged": RED, "none": DIM, "not installed": DIM, "read": GREEN, "yes": GREEN}


def width(stream):
    """Returns how many columns a line may have: COLUMNS, else the terminal's width. None if unbounded, as in a pipe."""
    try:
        return int(os.environ["COLUMNS"])
    except (KeyError, ValueError):
        pass
    if fcntl is None or not is_terminal(stream):
        return None
    try:
        size = fcntl.ioctl(stream.fileno(), termios.TIOCGWINSZ, b"\0" * 8)
    except (IOError, OSError):
        return None
    return struct.unpack("hhhh", size)[1] or None


def is_terminal(stream):
    """Returns whether a person sees what is written to a stream."""
    try:
        return stream.isatty()
    except (AttributeError, ValueError):  # no stream, or a closed one
        return False


def painted(text, colour, stream):
    """Returns text in a colour if the stream is a terminal that has colours. NO_COLOR switches them off."""
    if not text or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not is_terminal(stream):
        return text
    if os.name == "nt" and "WT_SESSION" not in os.environ:  # older consoles print the codes
        return text
    return "\x1b[{}m{}\x1b[0m".format(colour, text)


def print_table(header, rows):
    """Prints rows in columns. Cells are wrapped if the lines would be longer than the terminal is wide."""
    rows = [header.split()] + [
        [printable(cell, sys.stdout).replace("\n", "\\x0a") for cell in row] for row in rows
    ]
    columns = list(zip(*rows))
    widths = [max(map(len, column)) for column in columns]
    longest_words = [max(len(word) for cell in column for word in cell.split() or [""]) for column in columns]
    widths = fitting(fitting(widths, width(sys.stdout), longest_words), width(sys.stdout))
    for number, row in enumerate(rows):
        colours = [BOLD if number == 0 else COLOURS.get(cell.split(": ")[0]) for cell in row]
        cells = [textwrap.wrap(cell, room, break_on_hyphens=False) or [""] if len(cell) > room else [cell]
                 for cell, room in zip(row, widths)]
        for line in range(max(map(len, cells))):
            print(_line([cell[line] if line < len(cell) else "" for cell in cells], widths, colours))


def print_json(facts):
    """Prints facts for programs."""
    print(json.dumps(facts, indent=2, sort_keys=True))


def _line(cells, widths, colours):
    """Returns one line of a table, without spaces at its end."""
    while len(cells) > 1 and not cells[-1]:
        cells = cells[:-1]
    texts = [painted(cell, colour, sys.stdout) if colour else cell for cell, colour in zip(cells, colours)]
    gaps = [" " * (room - len(cell)) for cell, room in zip(cells, widths)]
    return GAP.join(text + gap for text, gap in zip(texts[:-1], gaps)) + (GAP if len(texts) > 1 else "") + texts[-1]


def fitting(widths, room, least=None):
    """Returns widths of columns that fit into `room` characters if that is possible: wide columns become narrower.

    >>> fitting([8, 30, 60], 60)
    [8, 24, 24]

    Args:
        least: the least width of each column.
    """
    widths, least = list(widths), least or [NARROWEST] * len(widths)
    while room and sum(widths) + len(GAP) * (len(widths) - 1) > room:
        can_shrink = [column for column in range(len(widths)) if widths[column] > least[column]]
        if not can_shrink:
            break
        widths[max(can_shrink, key=lambda column: (widths[column], column))] -= 1
    return widths


def printable(value, stream):
    """Returns a value as text that a terminal only prints.

    Names come from files: control characters, which could make a terminal do something, and characters that the stream
    cannot encode are escaped.
    """
    text = str(value)
    if isinstance(text, bytes):  # Python 2
        text = text.decode("utf-8", "replace")
    text = "".join(
        char if char == "\n" or unicodedata.category(char)[0] != "C" else "\\x%02x" % ord(char) for char in text
    )
    encoding = getattr(stream, "encoding", None) or "utf-8"
    encoded = text.encode(encoding, "backslashreplace")
    return encoded if str is bytes else encoded.decode(encoding)


def wrapped(text, room):
    """Returns text whose lines have at most `room` characters, where it has words. Lines that fit stay as they are.

    A paragraph with a line that is too long is filled anew, a table becomes a list. None as room bounds nothing.

    >>> print(wrapped("This line is too long.\\n\\n| a | b |\\n|---|---|\\n| one | two words |", 14))
    This line is
    too long.
    <BLANKLINE>
    a: b
    one: two words
    """
    paragraphs = text.split("\n\n")
    return "\n\n".join(
        _refilled(each.splitlines(), room) if room and max(map(len, each.splitlines() or [""])) > room else each
        for each in paragraphs)


def _refilled(lines, room):
    """Returns the lines of one paragraph or table, filled anew."""
    parts = []
    for line in lines:
        cells = [cell.strip() for cell in line.strip()[1:].rstrip("|").split(" | ")]
        indent = line[: len(line) - len(line.lstrip())]
        if not line.startswith("|"):
            # A new line of text starts where the one before it was not full, as after a formula.
            goes_on = parts and parts[-1][1] == indent and parts[-1][2] > 80
            parts.append([parts.pop()[0] + " " + line.strip() if goes_on else line, indent, len(line)])
        elif set("".join(cells)) <= set("-|: "):
            continue
        elif parts and (not cells[0] or line.startswith("|   ")):  # the row before goes on
            first, _, rest = parts.pop()[0].partition(": ")
            joined = " ".join(filter(None, [first, cells[0]])) + ": " + " ".join([rest] + cells[1:])
            parts.append([joined, "    ", 0])
        else:
            parts.append([cells[0] + ": " + " ".join(cells[1:]), "    ", 0])
    return "\n".join(textwrap.fill(part, room, subsequent_indent=indent, break_long_words=False,
                                   break_on_hyphens=False) for part, indent, _ in parts)


@contextlib.contextmanager
def status(text):
    """Shows a line on stderr while something takes long, if that is a terminal, and removes it."""
    shown = is_terminal(sys.stderr)
    if shown:
        sys.stderr.write(text)
        sys.stderr.flush()
    try:
        yield
    finally:
        if shown:
            sys.stderr.write("\r" + " " * len(text) + "\r")
            sys.stderr.flush()


@contextlib.contextmanager
def progress(total):
    """Gives a function to call with the number of bytes done. It shows a bar on stderr with tqdm, else lines."""
    if total < LARGE:
        yield lambda count: None
        return
    try:
        from tqdm import tqdm
    except ImportError:
        done = [0, 0]  # bytes, and the tenths of the total that were printed

        def moved(count):
            done[0] += count
            if done[0] * 10 // total > done[1]:
                done[1] = done[0] * 10 // total
                print("{} of {} MB".format(done[0] >> 20, total >> 20), file=sys.stderr)

        yield moved
        return
    with tqdm(total=total, unit="B", unit_scale=True, unit_divisor=1024, file=sys.stderr) as bar:
        yield bar.update


def leave_closed_pipe():
    """Sends the rest of the output nowhere, so that Python does not complain of the closed pipe as it exits."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (IOError, OSError, ValueError, AttributeError):  # stdout is no file of the system
        pass
