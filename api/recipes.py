"""Reads the recipes of recipes.md, for `everstep show`."""
from __future__ import absolute_import, division, print_function

import pkgutil
import re
from collections import namedtuple

# title: the heading; text: what is below it, as plain text.
Recipe = namedtuple("Recipe", "title text first_sentence")
_COMMENT = re.compile(r"<!--.*?-->\n?", re.S)
_FENCE = re.compile(r"^```\w*\n(.*?)^```$", re.S | re.M)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def recipes():
    """Returns a list of the `Recipe`s, in the order of the page."""
    page = pkgutil.get_data("everstep", "recipes.md").decode("utf-8")
    found = []
    for section in re.split(r"^## ", page, flags=re.M)[1:]:
        title, _, text = section.partition("\n")
        text = _LINK.sub(r"\1", _FENCE.sub(_indented, _COMMENT.sub("", text))).strip()
        first_sentence = re.match(r"(?:[^.:]|[.:](?!\s))*", text).group(0).replace("\n", " ")
        found.append(Recipe(title.strip(), text, first_sentence))
    return found


def _indented(block):
    """Returns a block of code with four spaces before each line."""
    return re.sub(r"^(?=.)", "    ", block.group(1), flags=re.M).rstrip("\n")
