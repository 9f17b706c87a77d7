"""Finds what code does around an optimizer by hand, where its form is well known: clipping, averages, accumulation."""
from __future__ import absolute_import, division, print_function

import re

from everstep.scan.finder import Finder
from everstep.scan.names import OwnClass
from everstep.scan.parsing import Arguments, bare, literal, one_line, text_of, walk
from everstep.scan.places import canonical

_GRADIENTS = ("compute_gradients", "gradient", "gradients", "get_gradients", "_compute_gradients", "_get_gradients")
_NAMED_GRADIENTS = re.compile(r"(^|_)(d_?|g_?)?grads?(ients?)?(_|\d|$)|(^|_)gvs?(_|$)", re.I)
_LISTS = ("list_comprehension", "generator_expression")
_CLIPPING = {"tensorflow.clip_by_value": "tf.clip_by_value", "tensorflow.clip_by_norm": "tf.clip_by_norm"}
_DEEPEST = 4


class ByHand(Finder):
    """Visits the calls and sums of a file."""

    def visit(self, node):
        """Looks at a node of the tree."""
        if node.type == "call":
            self._call(node, bare(node.child_by_field_name("function")), Arguments(node))
        elif node.type in _LISTS:
            self._list(node, bare(node.named_children[0]))

    def _call(self, node, function, arguments):
        last = text_of(function.child_by_field_name("attribute")) if function.type == "attribute" else text_of(function)
        if last in ("clip_by_value", "clip_by_norm"):
            self._clipping(node, function, arguments)
        elif last in ("assign", "assign_add", "assign_sub"):
            given = arguments.positional
            if len(given) == 1 and function.type == "attribute":
                given = [function.child_by_field_name("object")] + given
            elif not self._is_of_tensorflow(function):
                return
            if len(given) > 1:
                self._assigned(node, last, bare(given[0]), bare(given[1]))

    def _clipping(self, node, function, arguments):
        known = [_CLIPPING.get(each) for each in self._resolved(function)]
        if not arguments.positional or not any(known) or not self._is_gradient(bare(arguments.positional[0])):
            return
        if known[0] == "tf.clip_by_norm":
            bound = arguments.get("clip_norm", 1)
            definition = bound and "everstep.clip(definition, norm={})".format(one_line(bound))
        else:
            bound = _both_ways(arguments.get("clip_value_min", 1), arguments.get("clip_value_max", 2))
            definition = bound and "everstep.clip(definition, value={})".format(bound)
        self._add(node, "gradients clipped by {}".format(known[0]), definition,
                  [] if definition else ["no definition: the bounds are not the same both ways"])

    def _assigned(self, node, verb, target, value):
        if verb == "assign_add":
            if _loop_of(target) is not None and self._is_gradient(_without_division(value)):
                self._accumulation(node)
        elif _loop_of(target) is None:
            return
        elif verb == "assign" and text_of(target) in _averaged(value):
            self._average(node)
        elif verb == "assign_sub" and _moved_towards(target, value):
            self._average(node)

    def _list(self, node, item):
        """`[a + g for a, g in zip(sums, grads)]`, `[tau * w + (1 - tau) * t for w, t in zip(...)]`."""
        if item.type != "binary_operator" or text_of(item.child_by_field_name("operator")) != "+":
            return
        sides = [bare(item.child_by_field_name(side)) for side in ("left", "right")]
        loops = [_loop_of(each) for each in sides]
        if None not in loops and any(self._is_gradient(each) for each in sides):
            self._accumulation(item)
        elif len(_averaged(item)) == 2:
            self._average(item)

    def _average(self, node):
        self._add(node, "moving average by hand", "everstep.moving_average(definition)", [
            "if it averages the trained variables; definition is that of the optimizer, the momentum is an argument"])

    def _accumulation(self, node):
        self._add(node, "gradients accumulated by hand", "everstep.accumulate(definition, steps=...)", [
            "definition is that of the optimizer; steps: how many gradients one update takes"])

    def _add(self, node, what, definition, notes):
        self.add(node, "by hand", what, definition=definition, notes=notes)

    def _resolved(self, node):
        return [canonical(each).replace("tensorflow.compat.v1.", "tensorflow.") for each in self.module.resolved(node)
                if each is not None and not isinstance(each, OwnClass)]

    def _is_of_tensorflow(self, function):
        return any(each.startswith("tensorflow.") for each in self._resolved(function))

    def _is_gradient(self, node, depth=0):
        """Returns whether an expression is a gradient or a list of gradients: by its name, or by what made it."""
        if depth > _DEEPEST:
            return False
        if node.type == "subscript":
            node = bare(node.child_by_field_name("value"))
        if node.type == "call":
            function = bare(node.child_by_field_name("function"))
            last = function.child_by_field_name("attribute") or function
            given = Arguments(node).positional
            if text_of(last) in ("zip", "enumerate", "list"):
                return any(self._is_gradient(bare(each), depth + 1) for each in given)
            return text_of(last) in _GRADIENTS
        if node.type == "attribute":
            return bool(_NAMED_GRADIENTS.search(text_of(node.child_by_field_name("attribute"))))
        if node.type != "identifier":
            return False
        if _NAMED_GRADIENTS.search(text_of(node)):
            return True
        looped = _loop_of(node)
        if looped is not None:
            return self._is_gradient(bare(looped), depth + 1)
        return any(self._is_gradient(value, depth + 1) for value, _ in self.module.values(node))


def _loop_of(node):
    """Returns what a name of a loop or comprehension around it goes through; None if it is no such name."""
    if node.type == "subscript":
        node = bare(node.child_by_field_name("subscript") or node.named_children[-1])
    if node.type != "identifier":
        return None
    name, around = text_of(node), node.parent
    while around is not None and around.type not in ("function_definition", "lambda"):
        loops = [around] if around.type == "for_statement" else [
            each for each in around.named_children if each.type == "for_in_clause"] if around.type in _LISTS else []
        for loop in loops:
            left, right = loop.child_by_field_name("left"), loop.child_by_field_name("right")
            if left is not None and any(each.type == "identifier" and text_of(each) == name for each in walk(left)):
                return _part(left, right, name)
        around = around.parent
    return None


def _part(left, right, name):
    """Returns the argument of `zip` or `enumerate` that a name goes through, or the whole."""
    places = left.named_children if left.type in ("pattern_list", "tuple_pattern") else []
    number = next((number for number, place in enumerate(places)
                   if any(text_of(each) == name for each in walk(place))), None)
    right = bare(right)
    if number is None or right.type != "call":
        return right
    given, called = Arguments(right).positional, text_of(right.child_by_field_name("function"))
    if called == "zip" and number < len(given):
        return bare(given[number])
    if called == "enumerate" and number == 1 and given:
        return _part(places[1], given[0], name)
    return right


def _without_division(node):
    if node.type == "binary_operator" and text_of(node.child_by_field_name("operator")) in ("/", "*"):
        return bare(node.child_by_field_name("left"))
    return node


def _factors(node):
    """Returns the nodes whose product an expression is."""
    node = bare(node)
    if node.type == "binary_operator" and text_of(node.child_by_field_name("operator")) == "*":
        return _factors(node.child_by_field_name("left")) + _factors(node.child_by_field_name("right"))
    return [node]


def _averaged(node):
    """Returns the texts of x and y of `a * x + (1 - a) * y`, of loop names alone; [] if it is no such sum."""
    if node.type != "binary_operator" or text_of(node.child_by_field_name("operator")) != "+":
        return []
    sides = [_factors(node.child_by_field_name(side)) for side in ("left", "right")]
    if [len(side) for side in sides] != [2, 2]:
        return []
    for first, x in (sides[0], sides[0][::-1]):
        for second, y in (sides[1], sides[1][::-1]):
            if _sum_to_one(first, second) and None not in (_loop_of(x), _loop_of(y)):
                return [text_of(x), text_of(y)]
    return []


def _sum_to_one(first, second):
    values = [literal(each) for each in (first, second)]
    if all(known and isinstance(value, float) for known, value in values):
        return abs(values[0][1] + values[1][1] - 1) < 1e-9
    return _is_rest(first, second) or _is_rest(second, first)


def _is_rest(node, other):
    """Returns whether an expression is 1 minus the other one."""
    if node.type != "binary_operator" or text_of(node.child_by_field_name("operator")) != "-":
        return False
    known, one = literal(bare(node.child_by_field_name("left")))
    return known and one == 1 and one_line(bare(node.child_by_field_name("right"))) == one_line(other)


def _moved_towards(target, value):
    """Returns whether `target - value` is an average: `(1 - a) * (target - y)`."""
    for each in _factors(value):
        if each.type == "binary_operator" and text_of(each.child_by_field_name("operator")) == "-":
            left, right = bare(each.child_by_field_name("left")), bare(each.child_by_field_name("right"))
            if text_of(left) == text_of(target) and _loop_of(right) is not None and len(_factors(value)) == 2:
                return True
    return False


def _both_ways(low, high):
    """Returns the text of a bound c of `-c` and `c`; None if they are others."""
    if low is None or high is None:
        return None
    values = [literal(each) for each in (low, high)]
    if all(known for known, _ in values):
        return one_line(high) if isinstance(values[1][1], (int, float)) and values[0][1] == -values[1][1] else None
    return one_line(high) if one_line(low).replace(" ", "") == "-" + one_line(high).replace(" ", "") else None
