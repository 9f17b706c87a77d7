"""Writes the rules of an original as the source of one definition."""
from __future__ import absolute_import, division, print_function

import re
from collections import Counter, OrderedDict, namedtuple

from everstep.compat.port.algebra import ZERO, leaf_names, number_of, ops, substitute, walk
from everstep.compat.port.choices import quoted
from everstep.compat.port.printing import number_text, text_of
from everstep.compat.port.spelling import local_name
from everstep.compat.rules.operations import REDUCTIONS

WIDTH = 116
# A choice between rules. test: Python; yes, no: a Choice or Leaf.
Choice = namedtuple("Choice", "test yes no")
# One rule. var: the expression of the new value; news: {slot: expression}; hints: {expression: name}.
Leaf = namedtuple("Leaf", "var news hints")
# The whole of a definition. options: {name: default}; slots: [(Slot, text of `when` or None)]; extra: lines of source
# between the declarations and the verbs; sparse: the default of `sparse` if not "exact"; choices: {option: values};
# saved_as, stored_as: see docs/port.md.
Parts = namedtuple(
    "Parts", "name docstring hypers options slots scalars tree sparse saved_as extra imports choices stored_as")
_VERBAL = {"sqrt": "root", "greater": "is_greater", "less": "is_less", "sum": "total", "subtract": "difference",
           "multiply": "scaled", "divide": "ratio", "add": "added", "where": "chosen", "pow": "power",
           "equal": "is_equal", "negative": "negated", "mean": "average", "matmul": "matrix"}


def source_of(parts):
    """Returns the source of a definition."""
    lines = list(parts.imports) + [""] if parts.imports else []
    lines += ["import everstep", "", "", "class {}(everstep.Definition):".format(parts.name)]
    if parts.docstring:
        lines += ['    """' + parts.docstring[0]]
        lines += [("    " + line).rstrip() for line in parts.docstring[1:]] + ['    """', ""]
    leaves = list(leaves_of(parts.tree))
    values = walk([value for each in leaves for value in [each.var] + list(each.news.values())])
    locality = max(map(_locality, values), key=("element", "row", "variable").index)
    if locality != "element":
        lines.append('    locality = "{}"'.format(locality))
    if all(_is_still(each) for each in leaves) and not parts.scalars:
        lines.append("    zero_grad_is_noop = True")
    for name, default in parts.hypers.items():
        lines.append("    {} = everstep.hyper({})".format(name, number_text(default)))
    for name, default in parts.options.items():
        choices = ", choices=" + quoted(parts.choices[name]) if name in parts.choices else ""
        lines.append("    {} = everstep.option({}{})".format(name, quoted(default), choices))
    for slot, when in parts.slots:
        lines.append("    {} = everstep.slot({})".format(slot.name, _slot_arguments(slot, when)))
    for scalar in parts.scalars:
        lines.append("    {} = everstep.scalar({})".format(scalar.name, number_text(scalar.start)))
    if parts.sparse != "exact":
        choices = '("exact", "rows", "catch_up", "variable_rows")'
        lines.append('    sparse = everstep.option("{}", choices={})'.format(parts.sparse, choices))
    if parts.saved_as:
        lines += ["    saved_as = {"]
        lines += ['        "{}": "{}",'.format(*item) for item in parts.saved_as.items()] + ["    }"]
    if parts.stored_as:
        lines.append("    stored_as = " + quoted(parts.stored_as))
    lines += parts.extra
    if parts.scalars:
        lines += ["", "    def advance(self, ops, scalars, hyper, t):"]
        body = _Body(2)
        items = body.dictionary([(scalar.name, scalar.new) for scalar in parts.scalars])
        lines += body.lines + body.wrapped("return {", items, "}")
    lines += ["", "    def update(self, ops, grad, var, slots, hyper, t):"]
    body = _Body(2)
    body.write(parts.tree)
    return "\n".join(lines + body.lines) + "\n"


def leaves_of(tree):
    if isinstance(tree, Leaf):
        return [tree]
    return leaves_of(tree.yes) + leaves_of(tree.no)


def _slot_arguments(slot, when):
    arguments = []
    if slot.start == "VARIABLE":
        arguments.append("everstep.VARIABLE")
    elif isinstance(slot.start, str):
        arguments.append('"{}"'.format(slot.start))
    elif slot.start:
        arguments.append(number_text(slot.start))
    if slot.shape:
        arguments.append("shape=" + ("()" if slot.shape == "()" else '"row"'))
    if when:
        arguments.append("when=" + when)
    return ", ".join(arguments)


def _locality(value):
    """Returns what an op makes a rule depend on."""
    if value.op in ("matmul", "transpose", "reshape"):
        return "variable"
    if value.op not in REDUCTIONS:
        return "element"
    axes = value.options.get("axis")
    whole = axes is None or axes in ("leading", "first") or not isinstance(axes, str) and 0 in axes
    return "variable" if whole else "row"


def _is_still(each):
    """Returns whether a zero gradient changes nothing."""
    table = {ops.leaf("grad"): ZERO}
    still = substitute(each.var, table) is ops.leaf("var")
    still = still and all(substitute(new, table) is ops.leaf("slots." + name) for name, new in each.news.items())
    return still and not _divides_by_zero([each.var] + list(each.news.values()), table)


def _divides_by_zero(values, table):
    """Returns whether something in values is not finite if leaves are as in a table, such as a division by a norm."""
    seen, waiting = set(), list(values)
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        args = value.args
        if value.op == "where":
            chosen = number_of(substitute(args[0], table))
            args = args if chosen is None else (args[0], args[1 if chosen else 2])
        below = args[1] if value.op == "divide" else args[0] if value.op in ("log", "rsqrt", "pow") else None
        if below is not None and substitute(below, table) is ZERO and not (
                value.op == "pow" and (number_of(args[1]) or 0) > 0):
            return True
        waiting.extend(args)
    return False


def change_of(new):
    """Returns what an expression of the variable's new value subtracts from it; None if it is no difference."""
    if new is ops.leaf("var"):
        return ZERO
    if new.op == "subtract":
        inner = change_of(new.args[0])
        return None if inner is None else inner + new.args[1]
    if new.op == "add":
        for place in (0, 1):
            inner = change_of(new.args[place])
            if inner is ZERO:
                return ops.plain("negative", (new.args[1 - place],))
            if inner is not None:
                return inner - new.args[1 - place]
    if new.op == "where" and "var" not in leaf_names(new.args[0]):
        changes = [change_of(each) for each in new.args[1:]]
        return None if any(each is None for each in changes) else ops.where(new.args[0], *changes)
    return None


class _Body(object):
    """The statements of one verb."""

    def __init__(self, depth):
        self.depth, self.lines, self.names, self.taken = depth, [], {}, set()

    def write(self, tree):
        roots = self._roots(tree)
        self._name(roots, self._worth_naming(tree))
        if isinstance(tree, Choice):
            self.lines.append("{}if {}:".format("    " * self.depth, tree.test))
            names, taken = dict(self.names), set(self.taken)
            self.depth += 1
            self.write(tree.yes)
            self.depth -= 1
            self.names, self.taken = names, taken
            self.write(tree.no)
            return
        change = change_of(tree.var)
        items = self.dictionary([(name, tree.news[name]) for name in tree.news])
        width = max(60, WIDTH - 4 * self.depth - len("return , {}") - len(", ".join(items)))
        text = self.text(change, width) if change is not None else "everstep.assign({})".format(
            self.text(tree.var, width - len("everstep.assign()")))
        self.lines += self.wrapped("return {}, {{".format(text), items, "}")

    def dictionary(self, pairs):
        return ['"{}": {}'.format(name, self.text(value, 90)) for name, value in pairs]

    def wrapped(self, start, items, end):
        """Returns a line that ends with items, or several if it is too long."""
        margin = "    " * self.depth
        line = margin + start + ", ".join(items) + end
        if len(line) <= WIDTH:
            return [line]
        return [margin + start] + ["{}    {},".format(margin, item) for item in items] + [margin + end]

    def _roots(self, tree):
        """Returns the expressions that every leaf of a tree needs, in order."""
        lists = []
        for each in leaves_of(tree):
            change = change_of(each.var)
            lists.append(list(each.news.values()) + [each.var if change is None else change])
        if len(lists) == 1:
            return lists[0]
        shared = [set(walk(roots)) for roots in lists]
        return [expression for expression in walk(lists[0]) if all(expression in nodes for nodes in shared)]

    def _worth_naming(self, tree):
        """Returns {expression: name that it would have}, of a tree's own or shared expressions."""
        wanted = OrderedDict()
        for each in leaves_of(tree):
            change = change_of(each.var)
            roots = list(each.news.values()) + [each.var if change is None else change]
            uses = Counter(roots)
            for expression in walk(roots):
                uses.update(expression.args)
            for slot, new in each.news.items():
                if new.args and new not in wanted:
                    wanted[new] = slot
            for expression in walk(roots):
                if not expression.args or expression in wanted:
                    continue
                size = _size(expression)
                if uses[expression] > 1 and (size > 1 or expression.op in ("sqrt", "exp", "log", "pow", "sum", "mean")):
                    wanted[expression] = each.hints.get(expression) or _VERBAL.get(expression.op, expression.op)
                elif expression in each.hints and size >= 4 and expression is not change:
                    wanted[expression] = each.hints[expression]
        return wanted

    def _name(self, roots, wanted):
        for expression in walk(roots):
            if expression in wanted and expression not in self.names:
                self.assign(expression, wanted[expression])

    def assign(self, expression, hint):
        text = self.text(expression, 96 - 4 * self.depth, whole=True)
        name = local_name(hint, self.taken)
        self.lines.append("{}{} = {}".format("    " * self.depth, name, text))
        self.names[expression] = name

    def text(self, expression, width, whole=False):
        """Returns an expression as text. Parts of it get names until it is no longer than `width`."""
        while True:
            text = text_of(expression, self.names, whole)
            if len(text) <= width:
                return text
            inner = [each for each in self._unnamed(expression, whole) if each is not expression]
            lengths = {each: len(text_of(each, self.names)) for each in inner}
            inner = [each for each in inner if 12 < lengths[each] <= max(width, 20)]
            if not inner:
                return text
            longest = max(inner, key=lengths.__getitem__)
            self.assign(longest, _VERBAL.get(longest.op, longest.op))

    def _unnamed(self, expression, whole):
        if expression in self.names and not whole:
            return []
        below = [each for argument in expression.args for each in self._unnamed(argument, False)]
        return below + ([expression] if expression.args else [])


def _size(expression):
    return 1 + sum(map(_size, expression.args)) if expression.args else 0


def class_name(text):
    """Returns a name of a class made of a text."""
    name = re.sub(r"[^0-9A-Za-z_]", "", text)
    for ending in ("Optimizer", "V2"):
        if name.endswith(ending) and len(name) > len(ending) + 2:
            name = name[: -len(ending)]
    return name or "Ported"
