"""What a port returns, and what it was compared with."""
from __future__ import absolute_import, division, print_function

import sys
from collections import namedtuple

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments


class Port(namedtuple("Port", "definition source report")):
    """What `everstep.port` returns.

    Attributes:
        definition: the definition, with the arguments given.
        source: the Python source of its class; for a stock optimizer, of the expression that makes it; for one in a
            wrapper, both.
        report: a `Report`.
    """


class Report(object):
    """What a port was compared with, and how far it was apart.

    Attributes:
        original: the name of the original class and its API.
        comparisons: a list of `Comparison`: what, steps, distance (of the weights, relative to how far they moved) and
            slots (distance of the slots, relative to their size; None if it has none).
        sparse: what the original does with sparse gradients: "exact", "rows", "variable_rows", "none" (it takes none)
            or "other".
        unverified: sentences on what may change the rule and was not followed, each with the line of the original. If
            there are any, the port is not verified.
        notes: sentences on what is frozen, left open by the original, or not ported.
        seconds: how long the port took.
        is_stock: whether everstep knew the optimizer.
        is_wrapped: whether the source ends with `definition = `, a wrapper of everstep around the class.
        arguments: {name: value} of all arguments of the original, defaults too.
        order: how the counter is read, as in `Kind`.
        counts_itself: whether a step of the original moves its own counter.
        versions: the frameworks.
    """

    is_stock = False
    is_wrapped = False
    counts_itself, order = True, None  # type: bool, Any
    arguments = ()  # type: Any
    unverified = ()  # type: Any

    def __init__(self, original, comparisons, sparse, notes, seconds):
        self.original, self.comparisons, self.sparse = original, comparisons, sparse
        self.notes, self.seconds = notes, seconds
        versions = [(name, getattr(sys.modules.get(name), "__version__", None)) for name in ("tensorflow", "keras")]
        self.versions = " and ".join("{} {}".format(*each) for each in versions if each[1])

    @property
    def dense(self):
        """The largest distance of the weights with dense gradients, other than of float16."""
        return max([each.distance for each in self.comparisons if not each.what.startswith(("sparse", "float16"))]
                   or [0.0])

    def lines(self):
        """Returns the report as lines of text."""
        lines = ["compared with {}, largest distance of weights and slots:".format(self.original)]
        for each in self.comparisons:
            slots = "" if each.slots is None else ", {:.0e}".format(each.slots)
            lines.append("    {}, {} steps: {:.0e}{}".format(each.what, each.steps, each.distance, slots))
        lines += ["    not verified: " + text for text in self.unverified]
        return lines + ["    note: " + note for note in self.notes]

    def __str__(self):
        return "\n".join(self.lines())


def original_name(kind):
    module = kind.cls.__module__
    return "{}{} ({})".format("" if module == "__main__" else module + ".", kind.cls.__name__, kind.target)
