"""Matches the variables of a state with the given variables: by name, by patterns, then by order if asked, or by names
that differ by a prefix or by numbers."""
from __future__ import absolute_import, division, print_function

import re
from collections import OrderedDict, namedtuple

from everstep.compat.checkpoints import similar_names
from everstep.compat.checkpoints.conversions import first_few
from everstep.errors import StateError

_NUMBER = "#[0-9]+\\Z"  # the suffix that tells equal names apart
Match = namedtuple("Match", "wanted found how")


class Matching(object):
    """Which variable of a state each given variable was matched with. Prints as a table.

    Attributes:
        matches: [(given name, name in the state, how)].
        missing: {given name: why} of the given variables that are not restored. Empty without `partial`.
        unused: {name in the state: why} of the variables of the state that nothing was restored from. Empty without
            `partial`.
    """

    def __init__(self, matches, missing=(), unused=()):
        self.matches = [Match(*match) for match in matches]
        self.missing, self.unused = OrderedDict(missing), OrderedDict(unused)

    @property
    def names(self):
        """Returns {given name: name in the state}."""
        return OrderedDict((match.wanted, match.found) for match in self.matches)

    @property
    def restored(self):
        """Returns the given names that are restored."""
        return [match.wanted for match in self.matches]

    def to_dict(self):
        """Returns the matches as a list of dictionaries."""
        return [match._asdict() for match in self.matches]

    def __repr__(self):
        rows = [("VARIABLE", "IN THE STATE", "MATCHED BY")] + self.matches
        rows += [(name, "-", "not restored: " + why) for name, why in self.missing.items()]
        rows += [("-", name, "not used: " + why) for name, why in self.unused.items()]
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        return "\n".join("  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip() for row in rows)


def match(state_shapes, given_shapes, rename=(), by_order=False, ordered=True, partial=False):
    """Matches every variable of a state with one given variable.

    Args:
        state_shapes: {name: {slot name: shape}} of the state, in order. None in place of a dictionary: shapes unknown.
        given_shapes: the same for the given variables.
        rename: "OLD=NEW" strings, split at the last `=`, or (old, new) pairs. OLD is a regular expression that matches
            a whole name in the state. NEW is the name of the given variable, and may refer to groups: \\1, \\g<name>.
            The first pattern that fits is used.
        by_order: True matches the variables that are left over in order, if their number and all shapes agree.
        ordered: False if one side has no order: variables left over then match only if their names or shapes leave one
            way.
        partial: True leaves over what does not match.

    Returns:
        A `Matching`.

    Raises:
        StateError: a variable is left over, or could be matched in two ways.
    """
    if by_order and partial:
        raise StateError("by_order and partial exclude each other: the order of a part says nothing; give rename")
    state_left, given_left = OrderedDict(state_shapes), OrderedDict(given_shapes)
    matches, differing, unused = {}, {}, {}  # type: dict, dict, dict

    def take(name, old, how):
        del state_left[old], given_left[name]
        if partial and not similar_names.agree(state_shapes[old], given_shapes[name]):
            shapes = [describe_shapes(each) for each in (given_shapes[name], state_shapes[old])]
            differing[name] = "its slots are {}, in the state {}".format(*shapes)
            unused[old] = "its slots are " + shapes[1]
        else:
            matches[name] = Match(name, old, how)

    for name in given_shapes:
        if name in state_left:
            take(name, name, "name")
    exact = list(matches)
    for old, new, pattern in [parse_rename(given) for given in rename]:
        hits = [name for name in state_left if pattern.match(name)]
        if not hits:
            raise StateError(
                "no variable of the state that is still unmatched is called {!r}; unmatched are {}".format(
                    old, first_few(state_left)
                )
            )
        targets = OrderedDict()
        for name in hits:
            targets.setdefault(expand_name(pattern, old, new, name), []).append(name)
        for name, olds in targets.items():
            if len(olds) > 1:
                raise StateError("{}={} gives one name, {}, to several variables: {}".format(
                    old, new, name, " and ".join(olds)))
            if name not in given_left:
                raise StateError(
                    "{}={} renames {} to {}, which is no given variable; those still unmatched are {}".format(
                        old, new, olds[0], name, first_few(given_left)
                    )
                )
            take(name, olds[0], "{}={}".format(old, new))
    if by_order and ordered and len(state_left) == len(given_left):
        shared = similar_names.renumbered(dict(zip(given_left, state_left)), exact)
        if shared:
            raise StateError(
                "{} is a name on both sides, but by order {} of the state would be {}, so it may be another layer: "
                "give {{name in the state: variable}}".format(shared[0], next(iter(state_left)), next(iter(given_left)))
            )
        for old, name in list(zip(state_left, given_left)):
            old_shapes, new_shapes = state_shapes[old], given_shapes[name]
            if not similar_names.agree(old_shapes, new_shapes):
                raise StateError(
                    "by order, {} of the state would match {}, but the first has {}, the other {}".format(
                        old, name, describe_shapes(old_shapes), describe_shapes(new_shapes)
                    )
                )
            take(name, old, "order")
    elif not partial:
        similar = similar_names.whole_match(state_left, given_left, exact)
        if by_order and not similar:
            by_shape = similar_names.by_shape(state_left, given_left)
            similar = {name: (old, "shape") for name, old in by_shape.items()}
        for name, (old, how) in similar.items():
            take(name, old, how)
    elif not matches and not differing:
        for name, (old, how) in similar_names.part_match(state_left, given_left).items():
            take(name, old, how)
    if (state_left or given_left) and not partial or state_shapes and given_shapes and not matches:
        raise StateError(
            "{}the state has the variables {}; you gave {}.{}".format(
                "nothing to restore: " * partial,
                first_few(sorted(state_shapes), 40),
                first_few(sorted(given_shapes), 40),
                _advice(state_left, given_left, by_order, ordered, differing),
            )
        )
    for name in given_shapes:
        if re.search(_NUMBER, name) and name in matches and matches[name].how == "name":
            matches[name] = matches[name]._replace(how="name, and order among equal names")
    used = set(match.found for match in matches.values())
    return Matching(
        [matches[name] for name in given_shapes if name in matches],
        [(name, differing.get(name, "not in the state")) for name in given_shapes if name not in matches],
        [(old, unused.get(old, "no variable of that name was given")) for old in state_shapes if old not in used])


def _advice(state_left, given_left, by_order, ordered, differing):
    """Returns what the user can do about the variables that are left over."""
    repeated = {re.sub(_NUMBER, "", name) for name in list(state_left) + list(given_left) if re.search(_NUMBER, name)}
    if repeated:
        return (
            " Several are called {}, so that it is not clear which is which: give {{name: variable}}, or "
            "rename".format(" or ".join(sorted(repeated)))
        )
    if differing:
        return " " + "; ".join("{}: {}".format(*item) for item in sorted(differing.items())[:8])
    if len(state_left) != len(given_left):
        return " {} left unmatched: {}. partial=True restores the others".format(
            len(state_left) + len(given_left), first_few(list(state_left) + list(given_left))
        )
    candidates = list(similar_names.candidates(state_left, given_left).items())
    pairs = "; ".join("{} with {}".format(old, first_few(names, separator=" or ", nothing="nothing of its shapes"))
                      for old, names in candidates[:8])
    advice = " Not matched: {}{}".format(pairs, "; ..." * (len(candidates) > 8))
    advice += '. Give rename=["OLD=NEW"], which takes patterns, or {name in the state: variable}'
    if not ordered:
        return advice + ". The state has no order (tf.train.Saver stores names alphabetically), so by_order cannot help"
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


def describe_shapes(shapes):
    return ", ".join("{} {}".format(name, tuple(shape)) for name, shape in shapes.items()) or "no slots"
