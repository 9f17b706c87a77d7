"""Writes the README's support table from the targets' declarations; `--check` only tells if it is current."""
import io
import os
import re
import sys

from everstep.compat.targets import detect
from everstep.errors import DefinitionError, UnsupportedMemberError

README = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "README.md")
START, END = "<!-- support table: do not edit", "<!-- end of support table -->"


def table():
    rows = ["| you train with (target) | does not support |", "| --- | --- |"]
    for target in detect.TARGETS + (detect.ARRAYS,):
        adapter_class = detect.load(target)
        unsupported = ", ".join(_shown(each) for each in adapter_class.unsupported)
        works_on = re.sub(r"\btf[._][\w.]*\w|\btorch\.optim", r"`\g<0>`", adapter_class.works_on)
        rows.append("| {} ({}) | {} |".format(works_on, target.name, unsupported))
    return "\n".join(rows)


def _shown(item):
    """Returns an item for the table: members and keywords as code, other features in words."""
    if issubclass(item.error, UnsupportedMemberError):
        return "`{}`".format(item.what)
    return "`{}=`".format(item.what) if item.error is DefinitionError else item.what


def renewed(text):
    head, rest = text.split(START, 1)
    marker, rest = rest.split("\n", 1)
    return head + START + marker + "\n" + table() + "\n" + END + rest.split(END, 1)[1]


if __name__ == "__main__":
    with io.open(README, encoding="utf-8") as file:
        text = file.read()
    if "--check" in sys.argv:
        sys.exit(0 if renewed(text) == text else "README's support table is old; run python matrix/support.py")
    with io.open(README, "w", encoding="utf-8") as file:
        file.write(renewed(text))
