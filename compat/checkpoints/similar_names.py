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


def common_depth(names):
    """Returns how many first components all names share, and still have one more."""
    split = [name.split("/") for name in names]
    depth = 0
    while all(len(parts) > depth + 1 and parts[depth] == split[0][depth] for parts in split):
        depth += 1
    return depth


def cuts(state_left, given_left):
    """Yields (components to cut of the state's names, of the given names), the least first."""
    depths = [range(common_depth(names) + 1) for names in (state_left, given_left)]
    for pair in sorted(itertools.product(*depths), key=lambda pair: (sum(pair), pair)):
        yield pair


def _rest(name, cut):
    return "/".join(name.split("/")[cut:])


def _how(state_left, given_left, state_cut, given_cut, numbers):
    prefixes = ["/".join(next(iter(names)).split("/")[:cut]) + "/"
                for names, cut in ((state_left, state_cut), (given_left, given_cut)) if cut]
    texts = ["without " + " and ".join(prefixes)] * bool(prefixes) + ["numbers shifted"] * bool(numbers)
    return "name, " + ", ".join(texts)


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
    for state_cut, given_cut in cuts(state_left, given_left):
        rests = [_rest(name, state_cut) for name in state_left]
        if state_cut and given_cut and not all("/" in rest for rest in rests):
            continue  # `encoder/kernel` and `head/kernel` are two layers
        for pairs in (_shifted(state_left, given_left, state_cut, given_cut),
                      _forced(state_left, given_left, state_cut, given_cut)):
            if pairs and not _contradicts(pairs, exact, state_left, given_left, state_cut, given_cut):
                numbers = any(_rest(old, state_cut) != _rest(new, given_cut) for new, old in pairs.items())
                how = _how(state_left, given_left, state_cut, given_cut, numbers)
                return {new: (old, how) for new, old in pairs.items()}
    return {}


def _shifted(state_left, given_left, state_cut, given_cut):
    """Returns {given name: state name} if each base's numbers differ by one constant, else None."""
    state_rests = {parsed(name)[state_cut:]: name for name in state_left}
    given_rests = {parsed(name)[given_cut:]: name for name in given_left}
    if not len(state_rests) == len(given_rests) == len(state_left):
        return None
    lowest = [{}, {}]  # type: list
    for rests, numbers in zip((state_rests, given_rests), lowest):
        for base, number in itertools.chain.from_iterable(rests):
            numbers[base] = min(number, numbers.get(base, number))
    if set(lowest[0]) != set(lowest[1]):
        return None
    pairs = {}
    for rest, old in state_rests.items():
        new = given_rests.get(tuple((base, number + lowest[1][base] - lowest[0][base]) for base, number in rest))
        if new is None or not agree(state_left[old], given_left[new]):
            return None
        pairs[new] = old
    return pairs


def _forced(state_left, given_left, state_cut, given_cut):
    """Returns {given name: state name} if shapes and the tree of names leave one way, else None."""
    groups = [{}, {}]  # type: list
    for left, cut, group in ((state_left, state_cut, groups[0]), (given_left, given_cut, groups[1])):
        for name, shapes in left.items():
            if shapes is None:
                return None
            bases = tuple(base for base, _ in parsed(name)[cut:])
            group.setdefault((bases, tuple(sorted(shapes.items()))), []).append(name)
    if {key: len(names) for key, names in groups[0].items()} != {key: len(names) for key, names in groups[1].items()}:
        return None
    open_names = {new: key for key, news in groups[1].items() for new in news}
    pairs, scopes, progress = {}, {}, True  # type: dict, dict, bool
    while open_names and progress:
        progress = False
        for new, key in list(open_names.items()):
            olds = [old for old in groups[0][key] if _consistent(_scopes(old, new, state_cut, given_cut), scopes)]
            if len(olds) == 1:
                pairs[new], progress = olds[0], True
                scopes.update(_scopes(olds[0], new, state_cut, given_cut))
                groups[0][key].remove(olds[0])
                del open_names[new]
    return pairs if not open_names else None


def _scopes(old, new, state_cut, given_cut):
    """Returns {("old", scope): scope in the new name, ("new", scope): scope in the old name}."""
    scopes, olds, news = {}, old.split("/"), new.split("/")
    for depth in range(1, len(olds) - state_cut):
        old_scope, new_scope = tuple(olds[: state_cut + depth]), tuple(news[: given_cut + depth])
        scopes["old", old_scope], scopes["new", new_scope] = new_scope, old_scope
    return scopes


def _consistent(scopes, known):
    return all(known.get(scope, other) == other for scope, other in scopes.items())


def _contradicts(pairs, exact, state_left, given_left, state_cut, given_cut):
    """Returns True if the names that both sides have could be matched otherwise in the same way."""
    if renumbered(pairs, exact, state_cut, given_cut):
        return True
    prefixes = ["/".join(next(iter(names)).split("/")[:cut] + [""]) if cut else ""
                for names, cut in ((state_left, state_cut), (given_left, given_cut))]
    for name in exact:
        for prefix, other in (prefixes, prefixes[::-1]):
            if name.startswith(prefix) and prefix != other and other + name[len(prefix):] in exact:
                return True
    return False


def renumbered(pairs, exact, state_cut=0, given_cut=0):
    """Returns the names of both sides that have a base with a number that the pairs change.

    If one `dense_1` has the same name, and `dense` shall be `dense_2`, the first two may be different layers.
    """
    changed = set()
    for new, old in pairs.items():
        news, olds = parsed(new)[given_cut:], parsed(old)[state_cut:]
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
    for state_cut, given_cut in cuts(state_left, given_left) if state_left and given_left else ():
        prefixes = [next(iter(names)).split("/")[:cut]
                    for names, cut in ((state_left, state_cut), (given_left, given_cut))]
        if state_cut and given_cut:
            bases = [[base for base, _ in parsed("/".join(prefix))] for prefix in prefixes]
            if bases[0] != bases[1]:
                continue
        olds = {_rest(name, state_cut): name for name in state_left}
        pairs = OrderedDict((name, olds[_rest(name, given_cut)])
                            for name in given_left if _rest(name, given_cut) in olds)
        if len(pairs) > len(best):
            how = _how(state_left, given_left, state_cut, given_cut, False)
            best = OrderedDict((new, (old, how)) for new, old in pairs.items())
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
