"""What a call of a stock optimizer means: where it works, the definitions that compute the same, what changes."""
from __future__ import absolute_import, division, print_function

from collections import namedtuple

from everstep.scan.changes import changes
from everstep.scan.definitions import computed, entry_of
from everstep.scan.signatures import order
from everstep.scan.versions import ranges

# works_on: texts of ranges. definition: text, or None. definitions: [(versions, text)] where versions differ, which the
# code does not tell. changes, notes: texts. sparse: how the definition treats sparse gradients. spans: the versions.
Meaning = namedtuple("Meaning", "works_on definition definitions changes notes sparse spans")


def meaning(place, arguments, version=None):
    """Returns the `Meaning` of a call.

    Args:
        place: the `Place` of the class.
        arguments: its `Arguments`.
        version: `{product: version}` that the code runs on now, which picks one of several definitions.
    """
    each = [computed(span, place.name, arguments) for span in place.spans]
    each = [one for one in each if one is not None]
    now = _now(each, version)
    is_private = place.detail == "private"
    notes = ["a private module: which versions have it is not known"] if is_private else []
    if now is None:
        return Meaning([], None, [], [], notes + ["no version takes these arguments"], None, ())
    if now.why:
        notes.append("no definition: " + now.why)
    given = list(arguments.named) + _positional(now.span, place.name, arguments)
    entry = entry_of(now.span, place.name) if now.span.product != "Transformers" else None
    changed = changes(now.span, entry, given, now.sparse) if entry is not None else []
    definitions = [] if version and now.span.holds(version.get(now.span.product)) else _distinct(each)
    depends = len(definitions) > 1
    spans = [one.span for one in each]
    return Meaning([] if is_private else ranges(spans), None if depends else now.definition,
                   definitions if depends else [], changed, notes + list(now.notes), now.sparse,
                   () if is_private else tuple(spans))


def _now(each, version):
    """Returns the `Computed` of the version that the code runs on, or of the oldest that it works on."""
    for one in each:
        if version and one.span.holds(version.get(one.span.product)):
            return one
    return each[0] if each else None


def _positional(span, name, arguments):
    """Returns the names of the arguments that are given without one."""
    names = order(span, name)[:len(arguments.positional)]
    return ["learning_rate" if name == "lr" else name for name in names]


def _distinct(each):
    """Returns [(versions, definition)], one for each definition."""
    found = []
    for one in each:
        same = next((pair for pair in found if pair[1] == one.definition), None)
        if same is None:
            found.append(([one.span], one.definition))
        else:
            same[0].append(one.span)
    return [(", ".join(ranges(spans)), definition) for spans, definition in found]
