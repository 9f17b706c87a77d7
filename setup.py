"""The metadata is in setup.cfg. This file is for tools older than PEP 517 (pip < 19) and old editable installs.

Only the description is made here: the README without its relative links, which lead nowhere on a package index.
"""
import io
import os
import re

from setuptools import setup

HERE = os.path.dirname(os.path.abspath(__file__))
NOTE = "*Paths such as `docs/README.md` are those of files in the source distribution.*"


def description():
    """Returns the README with paths in place of relative links, without comments and pictures."""
    with io.open(os.path.join(HERE, "README.md"), encoding="utf-8") as file:
        text = file.read()
    text = re.sub(r"<!--.*?-->\n?", "", text, flags=re.S)
    text = re.sub(r"!\[[^\]]*\]\((?!\w+:)[^)]*\)\n*", "", text)
    text = re.sub(r"\[([^\]]*)\]\((?!\w+:)([^)#]*)[^)]*\)", _path, text)
    title, motto, rest = text.split("\n\n", 2)
    return "\n\n".join([title, motto, NOTE, rest])


def _path(link):
    label, path = link.groups()
    if not path:
        return label  # a link to a heading of the page
    return "`%s`" % path if path.endswith(label) else "%s (`%s`)" % (label, path)


setup(long_description=description())
