"""Which variable of a state is which of those given: by name, then by patterns, then by order where that is asked."""
from __future__ import absolute_import, division, print_function

import re
from collections import OrderedDict, namedtuple

from everstep.errors import StateError

_NUMBER = "#[0-9]+\\Z"  # behind equal names
Match = namedtuple("Match", "wanted found how")


class Matching(object):
    """The variables given, each with the one of the state that it was matched with. Printing it gives a table.

    Attributes:
        matches: [(name given, name in the state, how)].
    """

    def __init__(self, matches):
        self.matches = [Match(*match) for match in matches]

    @property
    def names(self):
        """{name given: name in the state}"""
        return OrderedDict((match.wanted, match.found) for match in self.matches)

    def to_dict(self):
        return [match._asdict() for match in self.matches]

    def __repr__(self):
        rows = [("VARIABLE", "IN THE STATE", "MATCHED BY")] + self.matches
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        return "\n".join("  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip() for row in rows)


def match(found, wanted, rename=(), by_order=False):
    """Matches all variables of a state with all those wanted.

    Args:
        found: {name: {slot name: shape}} of the state, in order.
        wanted: the same of the variables given. In either, None stands for what is not known.
        rename: "OLD=NEW" or (old, new) pairs. OLD is a regular expression for the whole of a name in the state, NEW
            what that variable is called here, in which \\1, \\g<name> stand for groups. The first that fits counts.
            At the last `=` the two are parted.
        by_order: whether those that no name matches are matched in their order, where all their shapes agree.

    Returns:
        A `Matching`.

    Raises:
        StateError: some are not matched, or could be matched in two ways.
    """
    open_found, open_wanted = OrderedDict.fromkeys(found), OrderedDict.fromkeys(wanted)
    matches = {}

    def take(name, old, how):
        matches[name] = Match(name, old, how)
        del open_found[old], open_wanted[name]

    for name in wanted:
        if name in open_found:
            take(name, name, "name")
    for old, new, pattern in [parsed(given) for given in rename]:
        hits = [name for name in open_found if pattern.match(name)]
        if not hits:
            raise StateError(
                "no variable of the state that is still to be matched is called {!r}; those are {}".format(
                    old, _some(open_found)
                )
            )
        targets = OrderedDict()
        for name in hits:
            targets.setdefault(expanded(pattern, old, new, name), []).append(name)
        for name, olds in targets.items():
            if len(olds) > 1:
                raise StateError("{}={} makes one name, {}, of {}".format(old, new, name, " and ".join(olds)))
            if name not in open_wanted:
                raise StateError(
                    "{}={} makes {} of {}; the variables given that are still to be matched are {}".format(
                        old, new, name, olds[0], _some(open_wanted)
                    )
                )
            take(name, olds[0], "{}={}".format(old, new))
    if by_order and len(open_found) == len(open_wanted):
        for old, name in list(zip(open_found, open_wanted)):
            if found[old] is not None and wanted[name] is not None and found[old] != wanted[name]:
                raise StateError(
                    "by order {} of the state would be {}, but the one has {}, the other {}".format(
                        old, name, _shapes(found[old]), _shapes(wanted[name])
                    )
                )
            take(name, old, "order")
    if open_found or open_wanted:
        raise StateError(
            "the state has the variables {}; given were {}.{}".format(
                ", ".join(sorted(found)) or "none",
                ", ".join(sorted(wanted)) or "none",
                _advice(open_found, open_wanted, by_order),
            )
        )
    for name in wanted:
        if re.search(_NUMBER, name) and matches[name].how == "name":
            matches[name] = matches[name]._replace(how="name, and order among equal names")
    return Matching([matches[name] for name in wanted])


def _advice(found, wanted, by_order):
    bare = {re.sub(_NUMBER, "", name) for name in list(found) + list(wanted) if re.search(_NUMBER, name)}
    if bare:
        return (
            " Several are called {}, so that it is not clear which is which: give {{name: variable}}, or "
            "rename".format(" or ".join(sorted(bare)))
        )
    if len(found) != len(wanted):
        return " There are {} of the one without the other: {}".format(
            len(found) + len(wanted), _some(list(found) + list(wanted))
        )
    advice = ' Not matched: {} with {}. Give rename=["OLD=NEW"], which takes patterns'.format(
        _some(found), _some(wanted)
    )
    return advice + ("" if by_order else ", or by_order=True where the order is the same")


def parsed(given):
    try:
        old, new = given if isinstance(given, (tuple, list)) else given.rsplit("=", 1)
        return old, new, re.compile("(?:{})\\Z".format(old))
    except (AttributeError, TypeError, ValueError) as error:
        raise StateError("rename takes \"OLD=NEW\" or (old, new); got {!r}: {}".format(given, error))
    except re.error as error:
        raise StateError("{!r} is no regular expression: {}".format(old, error))


def expanded(pattern, old, new, name):
    try:
        return pattern.match(name).expand(new)
    except (re.error, IndexError) as error:
        raise StateError("{!r} does not fit {!r}: {}".format(new, old, error))


def _shapes(shapes):
    return ", ".join("{} {}".format(name, tuple(shape)) for name, shape in shapes.items()) or "no slots"


def _some(names):
    names = list(names)
    return ", ".join(names[:8] + ["..."] * (len(names) > 8)) or "none"
