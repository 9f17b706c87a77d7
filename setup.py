"""The metadata is in setup.cfg. This file is for tools older than PEP 517 (pip < 19) and old editable installs.

Only the description is made here: a package index shows the README by itself, where relative links lead nowhere. They
become links to the repository of `url` in setup.cfg, or, as long as that has none, paths in the source distribution.
"""
import io
import os
import re

from setuptools import setup

try:
    from configparser import RawConfigParser
except ImportError:  # Python 2
    from ConfigParser import RawConfigParser

HERE = os.path.dirname(os.path.abspath(__file__))
NOTE = "*Paths such as `docs/README.md` are those of files in the source distribution.*"


def description():
    """Returns the README without comments and relative links."""
    with io.open(os.path.join(HERE, "README.md"), encoding="utf-8") as file:
        text = file.read()
    text = re.sub(r"<!--.*?-->\n?", "", text, flags=re.S)
    metadata = RawConfigParser()
    metadata.read(os.path.join(HERE, "setup.cfg"))
    if metadata.has_option("metadata", "url"):
        return _absolute(text, metadata.get("metadata", "url").rstrip("/"), "v" + metadata.get("metadata", "version"))
    text = re.sub(r"!\[[^\]]*\]\((?!\w+:)[^)]*\)\n*", "", text)
    text = re.sub(r"\[([^\]]*)\]\((?!\w+:)([^)#]*)[^)]*\)", _path, text)
    title, motto, rest = text.split("\n\n", 2)
    return "\n\n".join([title, motto, NOTE, rest])


def _absolute(text, url, tag):
    """Returns the text with links to the files of a release. Links to a heading of the page stay."""
    text = re.sub(r"(!\[[^\]]*\]\()(?!\w+:)([^)]*\))", r"\1%s/raw/%s/\2" % (url, tag), text)
    return re.sub(r"(\]\()(?!\w+:|#)([^)]*\))", r"\1%s/blob/%s/\2" % (url, tag), text)


def _path(link):
    label, path = link.groups()
    if not path:
        return label  # a link to a heading of the page
    return "`%s`" % path if path.endswith(label) else "%s (`%s`)" % (label, path)


setup(long_description=description())
