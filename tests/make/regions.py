"""Renews the generated region of a page in docs/, or says that it is old."""
import os
import sys

DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir, "docs")


def renew(page, name, script, text):
    """Writes a region of docs/PAGE; with --check among the arguments it writes nothing.

    Args:
        page: the page's file name.
        name: the region's name, in the comments before and after it.
        script: the file in tests/make that writes it.
        text: its new text, whole lines.

    Returns:
        0, or with --check a message if the region is old: what `sys.exit` takes.
    """
    path, command = os.path.join(DOCS, page), "python tests/make/" + script
    start, end = "<!-- {}: do not edit; {} -->\n".format(name, command), "<!-- end of {} -->\n".format(name)
    with open(path, encoding="utf-8") as file:
        old = file.read()
    head, rest = old.split(start)
    new = head + start + text + end + rest.split(end)[1]
    if "--check" in sys.argv:
        return 0 if new == old else "docs/{} is old; run {}".format(page, command)
    with open(path, "w", encoding="utf-8") as file:
        file.write(new)
    return 0
