"""Matches names that differ by a common prefix or by instance numbers: `sequential_5/dense_9` and `dense_12`.

Frameworks number layers in the order of their creation, so a model that is built again has the same names with higher
numbers. A model inside another one has the same names with a prefix. Both are undone here, but only if one way is left.
"""
from __future__ import absolute_import, division, print_function

import itertools
import re
from collections import OrderedDict

_INSTANCE = re.compile(r"(.+?)(?:_(0|[1-9][0-9]*))?\Z")


def parsed(name):
    """Returns [(base, number)] of a name's components; `dense` has number 0, as Keras counts."""
    return tuple((base, int(number or 0)) for base, number in (
        _INSTANCE.match(part).groups() if part else ("", None) for part in name.split("/")))


def agree(state_shapes, given_shapes):
    """Returns False if the shapes of two variables' slots are known and differ."""
    return state_shapes is None or given_shapes is None or state_shapes == given_shapes


def _prefixes(names):
    """Returns the prefixes that all names share, and still have a component more: "", "model/", "model/encoder/"."""
    prefixes = [""]
    for part in next(iter(names)).split("/")[:-1]:
        prefix = prefixes[-1] + part + "/"
        if not all(name.startswith(prefix) for name in names):
            break
        prefixes.append(prefix)
    return prefixes


def _without_prefixes(state_left, given_left):
    """Yields ((prefix of the state's names, of the given names), {rest of a name in the state: shapes}, {the same}).

    The shortest prefixes come first.
    """
    pairs = itertools.product(_prefixes(state_left), _prefixes(given_left))
    depths = [([prefix.count("/") for prefix in pair], pair) for pair in pairs]
    for _, prefixes in sorted(depths, key=lambda item: (sum(item[0]), item[0])):
        olds, news = [OrderedDict((name[len(prefix) :], shapes) for name, shapes in left.items())
                      for prefix, left in zip(prefixes, (state_left, given_left))]
        yield prefixes, olds, news


def _whole_names(prefixes, pairs, numbers=False):
    """Returns {given name: (name in the state, how)} for {rest of a given name: rest of a name in the state}."""
    cut = " and ".join(filter(None, prefixes))
    how = "name, " + ", ".join(["without " + cut] * bool(cut) + ["numbers shifted"] * numbers)
    return OrderedDict((prefixes[1] + new, (prefixes[0] + old, how)) for new, old in pairs.items())


def whole_match(state_left, given_left, exact):
    """Matches all variables that are left over with each other.

    Args:
        state_left: {name in the state: shapes of its slots}.
        given_left: {given name: the same}.
        exact: the names that both sides have.

    Returns:
        {given name: (name in the state, how)}, or {} if the names leave no way or several.
    """
    if not state_left or len(state_left) != len(given_left):
        return {}
    for prefixes, olds, news in _without_prefixes(state_left, given_left):
        if all(prefixes) and not all("/" in rest for rest in olds):
            continue  # `encoder/kernel` and `head/kernel` are two layers
        for pairs in (_shifted(olds, news), _forced(olds, news)):
            if pairs and not renumbered(pairs, exact) and not _is_among(prefixes, exact):
                return _whole_names(prefixes, pairs, any(old != new for new, old in pairs.items()))
    return {}


def _shifted(olds, news):
    """Returns {given name: state name} if each base's numbers differ by one constant, else None."""
    parsed_olds, parsed_news = [{parsed(name): name for name in names} for names in (olds, news)]
    if not len(parsed_olds) == len(parsed_news) == len(olds):
        return None
    lowest = [{}, {}]  # type: list
    for names, numbers in zip((parsed_olds, parsed_news), lowest):
        for base, number in itertools.chain.from_iterable(names):
            numbers[base] = min(number, numbers.get(base, number))
    if set(lowest[0]) != set(lowest[1]):
        return None
    pairs = {}
    for parts, old in parsed_olds.items():
        new = parsed_news.get(tuple((base, number + lowest[1][base] - lowest[0][base]) for base, number in parts))
        if new is None or not agree(olds[old], news[new]):
            return None
        pairs[new] = old
    return pairs


def _forced(olds, news):
    """Returns {given name: state name} if shapes and the tree of names leave one way, else None."""
    groups = [{}, {}]  # type: list
    for names, group in zip((olds, news), groups):
        for name, shapes in names.items():
            if shapes is None:
                return None
            bases = tuple(base for base, _ in parsed(name))
            group.setdefault((bases, tuple(sorted(shapes.items()))), []).append(name)
    if {key: len(names) for key, names in groups[0].items()} != {key: len(names) for key, names in groups[1].items()}:
        return None
    open_names = {new: key for key, news in groups[1].items() for new in news}
    pairs, scopes, progress = {}, {}, True  # type: dict, dict, bool
    while open_names and progress:
        progress = False
        for new, key in list(open_names.items()):
            fitting = [old for old in groups[0][key] if all(
                scopes.get(scope, other) == other for scope, other in _scopes(old, new).items())]
            if len(fitting) == 1:
                pairs[new], progress = fitting[0], True
                scopes.update(_scopes(fitting[0], new))
                groups[0][key].remove(fitting[0])
                del open_names[new]
    return pairs if not open_names else None


def _scopes(old, new):
    """Returns {("old", scope): scope in the new name, ("new", scope): scope in the old name}."""
    scopes, olds, news = {}, old.split("/"), new.split("/")
    for depth in range(1, len(olds)):
        old_scope, new_scope = tuple(olds[:depth]), tuple(news[:depth])
        scopes["old", old_scope], scopes["new", new_scope] = new_scope, old_scope
    return scopes


def _is_among(prefixes, exact):
    """Returns True if a name that both sides have could be matched with another one by these prefixes, too."""
    return any(name.startswith(prefix) and prefix != other and other + name[len(prefix) :] in exact
               for name in exact for prefix, other in (prefixes, prefixes[::-1]))


def renumbered(pairs, exact):
    """Returns the names of both sides that have a base with a number that the pairs change.

    If one `dense_1` has the same name, and `dense` shall be `dense_2`, the first two may be different layers.
    """
    changed = set()
    for new, old in pairs.items():
        news, olds = parsed(new), parsed(old)
        if [base for base, _ in news] == [base for base, _ in olds]:
            changed.update(base for (base, number), (_, old_number) in zip(news, olds) if number != old_number)
    return [name for name in exact if changed.intersection(base for base, _ in parsed(name))]


def part_match(state_left, given_left):
    """Matches the variables of two models that share a part, if neither has a name of the other.

    Only a prefix of all names is undone, if it is added or dropped, or its number has changed. Numbers further on could
    be of other layers.

    Returns:
        {given name: (name in the state, how)}.
    """
    best = {}  # type: dict
    for prefixes, olds, news in _without_prefixes(state_left, given_left) if state_left and given_left else ():
        bases = [[base for base, _ in parsed(prefix)] for prefix in prefixes]
        shared = [rest for rest in news if rest in olds]
        if (not all(prefixes) or bases[0] == bases[1]) and len(shared) > len(best):
            best = _whole_names(prefixes, OrderedDict(zip(shared, shared)))
    return best


def by_shape(state_left, given_left):
    """Returns {given name: state name} if each shape belongs to one variable of either side, else {}."""
    pairs = {}
    for new, shapes in given_left.items():
        olds = [old for old in state_left if state_left[old] == shapes]
        if not shapes or len(olds) != 1 or list(given_left.values()).count(shapes) != 1:
            return {}
        pairs[new] = olds[0]
    return pairs if len(pairs) == len(state_left) else {}


def candidates(state_left, given_left):
    """Returns {name in the state: [given names that it could be]}, for an error message."""
    result = OrderedDict()
    for old, shapes in state_left.items():
        fitting = [new for new in given_left if agree(shapes, given_left[new])]
        alike = [new for new in fitting if parsed(old)[-1][0] == parsed(new)[-1][0]]
        result[old] = alike or fitting
    return result
