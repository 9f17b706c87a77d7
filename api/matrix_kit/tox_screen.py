"""What a run of cells prints: lines that stay, and below them, on a terminal, a bar for each running cell."""
from __future__ import absolute_import, division, print_function

import io
import os
import re
import shutil
import sys
import threading
import time

EVERY = 60  # seconds between two reports of what is running, where lines cannot be drawn again
WIDTH = 20  # of a bar


class Screen(object):
    """Prints from several threads at a time.

    Args:
        file: where it prints; `sys.stdout` by default.
    """

    def __init__(self, file=None):
        self._file = file or sys.stdout
        self._redraws = self._file.isatty() and os.environ.get("TERM") != "dumb" and os.name != "nt"
        self._lock = threading.Lock()
        self._drawn = 0  # lines that show what is running
        self._shown = time.time()

    def say(self, text):
        """Prints a line with the time."""
        self.write(time.strftime("%H:%M:%S ") + text)

    def write(self, text):
        """Prints lines."""
        with self._lock:
            self._draw([])
            self._file.write(text + "\n")
            self._file.flush()

    def show(self, running):
        """Draws a bar for each running cell below all lines; in a file, says the same once a minute.

        Args:
            running: (name, path of its log, when it began, the seconds that it takes or None) of each.
        """
        if self._redraws:
            with self._lock:
                self._draw([_bar(*cell) for cell in running])
        elif time.time() - self._shown >= EVERY:
            self._shown = time.time()
            for cell in running:
                self.say(_bar(*cell))

    def _draw(self, lines):
        if self._drawn:
            self._file.write("\033[%dF\033[J" % self._drawn)  # up to the first of them, and erase to the end
        width = shutil.get_terminal_size().columns - 1 if lines else 0
        self._file.write("".join(line[:width] + "\n" for line in lines))
        self._file.flush()
        self._drawn = len(lines)


def _bar(name, log, start, usual):
    return "%-18s %s, %d s%s" % (name, stage(log), time.time() - start, " of about %d" % usual if usual else "")


def stage(log):
    """Returns what a cell does, read from the log of its tox: a bar of its tests, once pytest has begun with them."""
    if not os.path.exists(log):
        return "waits"
    with io.open(log, encoding="utf-8", errors="replace") as file:
        _, tests, text = file.read().rpartition(": commands[")
    if not tests:
        return "installs"
    percents = re.findall(r"\[ *(\d+)%\]$", text, re.M)  # pytest writes them at the end of a line
    if not percents:
        return "starts its tests"
    collected = re.search(r"collected (\d+) items?(?:.* (\d+) selected)?", text)
    of = " of %s tests" % (collected.group(2) or collected.group(1)) if collected else ""
    done = "#" * (int(percents[-1]) * WIDTH // 100)
    return "[%s] %3s %%%s" % (done.ljust(WIDTH, "."), percents[-1], of)
