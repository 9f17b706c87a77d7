"""Compares the rules of an original for variables of other shapes and ranks."""
from __future__ import absolute_import, division, print_function

from collections import namedtuple

from everstep.compat.port.algebra import leaf_names
from everstep.errors import PortError

# The shapes of variables for which a rule is read. base, other: of 2 dimensions; more: of ranks that are tried only if
# the original asks for a shape.
Shapes = namedtuple("Shapes", "base other deep flat more")
SHAPES = Shapes((4, 3), (7, 5), (2, 3, 4), (5,), ((2, 3, 4, 2), (2, 3, 2, 2, 2), ()))
BASE, DEEP = SHAPES.base, SHAPES.deep


def check_shapes(rule):
    """Compares the rule with those of other shapes. Finds frozen sizes, axes, and rules that differ with the rank."""
    other = rule.shapes.other
    other = rule.read("shape {}".format(other), rule.arguments, (other,)).run(rule.patches)
    if not rule.is_same(rule.of(other), rule.base.outputs):
        _refuse_frozen(rule, other)
    deep = _at_rank(rule, rule.shapes.deep)
    if deep is not None and not rule.is_same(deep, rule.base.outputs):
        rule.axes = "last"
        rule.base.run(rule.patches, "last")
        again = _at_rank(rule, rule.shapes.deep)
        rule.base.outputs = rule.of(rule.base)
        if not rule.is_same(again, rule.base.outputs):
            rule.axes = "trailing"
            rule.base.run(rule.patches)
            rule.base.outputs = rule.of(rule.base)
            _add_rank(rule, rule.shapes.deep, deep, rule.base.outputs)
    _add_rank(rule, rule.shapes.flat, _at_rank(rule, rule.shapes.flat), rule.base.outputs)
    for shape in rule.shapes.more if rule.base.original.looks.sizes and deep is not None else ():
        nearest = outputs_at(rule, len(shape) - 1 if shape else 1)
        if not _add_rank(rule, shape, _at_rank(rule, shape), nearest):
            _forget(rule, shape)


def _add_rank(rule, shape, outputs, nearest):
    """Adds the rule of a rank if it is another one than the nearest rank's. Returns whether it is."""
    if outputs is None or rule.is_same(outputs, nearest):
        return False
    again = tuple(size + 1 for size in shape)
    reading = rule.traced(rule.names, again)
    if not rule.is_same(rule.outputs_of(reading), outputs):
        raise PortError(
            "variables of {} dimensions have a rule of their own, and it changes with their sizes: it differs "
            "between {} and {}. Definitions have no sizes".format(len(shape), shape, again))
    reading.close()
    rule.of_ranks[len(shape)] = outputs
    return True


def outputs_at(rule, rank):
    """Returns the outputs for variables of a rank."""
    for near in range(rank, 2, -1) if rank > 2 else range(rank, 2):
        if near in rule.of_ranks:
            return rule.of_ranks[near]
    return rule.base.outputs


def _forget(rule, shape):
    for each in [each for each in rule.readings if each[0] == "shape {}".format(shape)]:
        each[1].close()
        rule.readings.remove(each)


def _at_rank(rule, shape):
    """Returns the outputs for a shape of another rank; None if the original does not train such variables."""
    what = "shape {}".format(shape)
    known = [reading for name, reading, _ in rule.readings if name == what]
    try:
        reading = known[0] if known else rule.read(what, rule.arguments, (shape,))
        outputs = rule.of(reading.run(rule.patches_of(reading), rule.axes))
    except PortError as error:
        _forget(rule, shape)
        rule.unported.append(len(shape))
        rule.notes.append("variables of {} dimension{} are not ported: {}".format(
            len(shape), "" if len(shape) == 1 else "s", error))
        return None
    return outputs


def _refuse_frozen(rule, other):
    for (name, before), (_, after) in zip(rule.base.machine.constants, other.machine.constants):
        if before != after:
            raise PortError(
                "the shape of the variable is frozen in the rule: the constant {} ({} in the graph) is {} for a "
                "variable of shape {}. Definitions have no sizes; use a mean in place of a sum divided by a "
                "count".format(before, name, after, rule.shapes.other))
    raise PortError("the rule differs between variables of shapes {} and {}".format(*rule.shapes[:2]))


def check_coupling(rule):
    """Refuses terms of other variables."""
    two = rule.read("two variables", rule.arguments, (rule.shapes.base, (6,))).run()
    for name, value in two.outputs.items():
        mixed = sorted(each for each in leaf_names(value) if each.startswith("other."))
        if mixed and not name.startswith("number."):
            raise PortError(
                "what {} becomes depends on the {} of another variable. Such terms are sums over all variables: "
                "port without them, and use everstep.clip(definition, global_norm=...), or write `measure` with "
                "everstep.total".format(name, "gradient" if "other.grad" in mixed else "value"))
