"""Matches the variables of a state with the given variables: by name, by patterns, then by order if asked."""
from __future__ import absolute_import, division, print_function

import re
from collections import OrderedDict, namedtuple

from everstep.errors import StateError

_NUMBER = "#[0-9]+\\Z"  # the suffix that tells equal names apart
Match = namedtuple("Match", "wanted found how")


class Matching(object):
    """Which variable of a state each given variable was matched with. Prints as a table.

    Attributes:
        matches: [(given name, name in the state, how)].
    """

    def __init__(self, matches):
        self.matches = [Match(*match) for match in matches]

    @property
    def names(self):
        """Returns {given name: name in the state}."""
        return OrderedDict((match.wanted, match.found) for match in self.matches)

    def to_dict(self):
        """Returns the matches as a list of dictionaries."""
        return [match._asdict() for match in self.matches]

    def __repr__(self):
        rows = [("VARIABLE", "IN THE STATE", "MATCHED BY")] + self.matches
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        return "\n".join("  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip() for row in rows)


def match(state_shapes, given_shapes, rename=(), by_order=False):
    """Matches every variable of a state with one given variable.

    Args:
        state_shapes: {name: {slot name: shape}} of the state, in order. None in place of a dictionary: shapes unknown.
        given_shapes: the same for the given variables.
        rename: "OLD=NEW" strings, split at the last `=`, or (old, new) pairs. OLD is a regular expression that matches
            a whole name in the state. NEW is the name of the given variable, and may refer to groups: \\1, \\g<name>.
            The first pattern that fits is used.
        by_order: True matches the variables that are left over in order, if their number and all shapes agree.

    Returns:
        A `Matching`.

    Raises:
        StateError: a variable is left over, or could be matched in two ways.
    """
    state_left, given_left = OrderedDict.fromkeys(state_shapes), OrderedDict.fromkeys(given_shapes)
    matches = {}

    def take(name, old, how):
        matches[name] = Match(name, old, how)
        del state_left[old], given_left[name]

    for name in given_shapes:
        if name in state_left:
            take(name, name, "name")
    for old, new, pattern in [parse_rename(given) for given in rename]:
        hits = [name for name in state_left if pattern.match(name)]
        if not hits:
            raise StateError(
                "no variable of the state that is still unmatched is called {!r}; unmatched are {}".format(
                    old, _first_few(state_left)
                )
            )
        targets = OrderedDict()
        for name in hits:
            targets.setdefault(expand_name(pattern, old, new, name), []).append(name)
        for name, olds in targets.items():
            if len(olds) > 1:
                raise StateError("{}={} makes one name, {}, of {}".format(old, new, name, " and ".join(olds)))
            if name not in given_left:
                raise StateError(
                    "{}={} makes {} of {}; the given variables that are still unmatched are {}".format(
                        old, new, name, olds[0], _first_few(given_left)
                    )
                )
            take(name, olds[0], "{}={}".format(old, new))
    if by_order and len(state_left) == len(given_left):
        for old, name in list(zip(state_left, given_left)):
            old_shapes, new_shapes = state_shapes[old], given_shapes[name]
            if old_shapes is not None and new_shapes is not None and old_shapes != new_shapes:
                raise StateError(
                    "by order {} of the state would match {}, but the one has {}, the other {}".format(
                        old, name, _describe_shapes(old_shapes), _describe_shapes(new_shapes)
                    )
                )
            take(name, old, "order")
    if state_left or given_left:
        raise StateError(
            "the state has the variables {}; you gave {}.{}".format(
                ", ".join(sorted(state_shapes)) or "none",
                ", ".join(sorted(given_shapes)) or "none",
                _advice(state_left, given_left, by_order),
            )
        )
    for name in given_shapes:
        if re.search(_NUMBER, name) and matches[name].how == "name":
            matches[name] = matches[name]._replace(how="name, and order among equal names")
    return Matching([matches[name] for name in given_shapes])


def _advice(state_left, given_left, by_order):
    """Returns what the user can do about the variables that are left over."""
    repeated = {re.sub(_NUMBER, "", name) for name in list(state_left) + list(given_left) if re.search(_NUMBER, name)}
    if repeated:
        return (
            " Several are called {}, so that it is not clear which is which: give {{name: variable}}, or "
            "rename".format(" or ".join(sorted(repeated)))
        )
    if len(state_left) != len(given_left):
        return " {} left unmatched: {}".format(
            len(state_left) + len(given_left), _first_few(list(state_left) + list(given_left))
        )
    advice = ' Not matched: {} with {}. Give rename=["OLD=NEW"], which takes patterns'.format(
        _first_few(state_left), _first_few(given_left)
    )
    return advice + ("" if by_order else ", or by_order=True where the order is the same")


def parse_rename(item):
    """Returns (old, new, compiled pattern) of one item of `rename`."""
    try:
        old, new = item if isinstance(item, (tuple, list)) else item.rsplit("=", 1)
        return old, new, re.compile("(?:{})\\Z".format(old))
    except (AttributeError, TypeError, ValueError) as error:
        raise StateError("rename takes \"OLD=NEW\" or (old, new); got {!r}: {}".format(item, error))
    except re.error as error:
        raise StateError("{!r} is no regular expression: {}".format(old, error))


def expand_name(pattern, old, new, name):
    """Returns the new name for a name that the pattern matches."""
    try:
        return pattern.match(name).expand(new)
    except (re.error, IndexError) as error:
        raise StateError("{!r} does not fit {!r}: {}".format(new, old, error))


def _describe_shapes(shapes):
    return ", ".join("{} {}".format(name, tuple(shape)) for name, shape in shapes.items()) or "no slots"


def _first_few(names):
    names = list(names)
    return ", ".join(names[:8] + ["..."] * (len(names) > 8)) or "none"
