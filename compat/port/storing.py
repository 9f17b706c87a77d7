"""Finds the order in which an original's Keras saves its variables, in the notation of the stock table."""
from __future__ import absolute_import, division, print_function

from everstep.compat.port.reading import Reading, built
from everstep.compat.port.setting import Setting

SHAPES = (4, 3), (6,)


def stored_as(rule):
    """Returns (API, slots, counters) as `Stock` takes them; None if the original's files say the names, or nothing.

    Args:
        rule: a `Rule` that has been read.
    """
    if rule.kind.target == "tf_train" or rule.ranks and any(slot.shape for slot in rule.slots.values()):
        return None
    reading = Reading(rule.kind, Setting(rule.arguments, SHAPES[:1], rule.names), rule.given)
    two = built(rule.kind, Setting(rule.arguments, SHAPES, rule.names))
    one, both = _variables(reading.original), _variables(two)
    reading.close()
    two.close()
    roles = [reading.roles.get(reading.original.key_of(native)) for native in one]
    if None in roles or len([role for role in roles if role.kind == "counter"]) != 1:
        return None
    kinds = "".join("s" if role.kind == "slot" else "-" for role in roles)
    head, count = len(kinds) - len(kinds.lstrip("-")), kinds.count("s")
    if kinds.strip("-") != "s" * count or len(both) != len(one) + count:
        return None
    names = [_slot(rule, role, reading.original) for role in roles[head : head + count]]
    shapes = [_shape(native) for native in both[head : head + 2 * count]]
    blocks, place = [], 0
    while place < len(shapes):  # a block has some slots of each variable in turn. Unused ones may be of shape (1,)
        run = next((run for run in range(len(shapes) - place) if shapes[place + run] == SHAPES[1]), len(shapes))
        run = min(run, (len(shapes) - place) // 2)
        second = shapes[place + run : place + 2 * run]
        if not run or any(shape not in (SHAPES[1], (1,)) for shape in second):
            return None
        blocks.append(" ".join(names[len(names) - count :][:run]))
        count, place = count - run, place + 2 * run
    tail = roles[head + len(names) :]
    counters = [" ".join(_counter(role) for role in part) for part in (roles[:head], tail)]
    return rule.kind.target, " | ".join(blocks), " | ".join(counters) if tail else counters[0]


def stored_as_by(rules):
    """Returns the same for all options of a definition. rules: those of each choice."""
    most, least = [choose(rules, key=lambda rule: len(rule.slots)) for choose in (max, min)]
    if any(not set(rule.slots) <= set(most.slots) for rule in rules):
        return None
    stored = stored_as(most)
    if stored is None or len(least.slots) == len(most.slots):
        return stored
    unused = [part for part in (stored_as(least) or ("", ""))[1].split() if part.endswith("*")]
    slots = [part + "*" if part + "*" in unused else part for part in stored[1].split(" ")]
    return stored[0], " ".join(slots), stored[2]


def _variables(original):
    """Returns the variables that the optimizer's API saves, in order."""
    optimizer = original.optimizer
    if original.kind.target == "get_updates":
        return list(optimizer.weights)
    variables = optimizer.variables
    return list(variables() if callable(variables) else variables)


def _shape(native):
    return tuple(int(size) for size in getattr(native, "_value", native).shape)


def _slot(rule, role, original):
    """Returns a slot in the table's notation: `ours=theirs`, with a star if the rule has no use for it."""
    theirs, optimizer = role.name, original.optimizer
    if rule.kind.target == "optimizer_v2":
        for name in optimizer.get_slot_names():
            native = optimizer.get_slot(original.variables[0], name)
            if original.key_of(native) == original.key_of(role.native):
                theirs = name
    text = role.name if theirs == role.name else "{}={}".format(role.name, theirs)
    return text if role.name in rule.slots else text + "*"


def _counter(role):
    if role.kind == "counter":
        return "updates"
    return role.name + ("?" if role.name == "learning_rate" else "")
