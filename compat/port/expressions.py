"""Expressions of a traced update. Nodes of the same expression are the same object, so that `is` compares them."""
from __future__ import absolute_import, division, print_function

import itertools
import weakref

import numpy as np

from everstep.compat.rules.operations import TABLE

_serials = itertools.count()
_pool = weakref.WeakValueDictionary()  # {(op, serials of the arguments, settings): node}


class Node(object):
    """An op on other nodes, a constant, or a leaf: a value that the update starts with, such as `slots.m`.

    Attributes:
        op: "leaf", "constant", or the name of an op, as in `everstep.Definition`, or of an operator.
        args: the nodes that the op takes.
        settings: the leaf's name; the constant's (type, text); the op's axes and the like; a tuple or text.
        leaves: the names of all leaves below.
    """

    __slots__ = ("op", "args", "settings", "serial", "leaves", "__weakref__")

    def __init__(self, op, args, settings):
        self.op, self.args, self.settings, self.serial = op, args, settings, next(_serials)
        own = [frozenset([settings])] if op == "leaf" else [argument.leaves for argument in args]
        self.leaves = frozenset().union(*own)

    def __repr__(self):
        return "{}({})".format(self.op, ", ".join(map(repr, self.args)) or self.settings)


def node(op, args=(), settings=()):
    """Returns the node of an op as it is, without simplification."""
    key = op, tuple(argument.serial for argument in args), settings
    found = _pool.get(key)
    if found is None:
        found = _pool[key] = Node(op, tuple(args), settings)
    return found


def leaf(name):
    return node("leaf", (), name)


def constant(value):
    if isinstance(value, (bool, np.bool_)):
        return node("constant", (), ("bool", repr(bool(value))))
    return node("constant", (), ("float", repr(float(value))))


def value_of(expression):
    """Returns the value of a constant, a bool or float; None for all other nodes."""
    if expression.op != "constant":
        return None
    kind, text = expression.settings
    return text == "True" if kind == "bool" else float(text)


def is_bool(expression):
    if expression.op in TABLE:
        return TABLE[expression.op].gives == "bool"
    return expression.op == "constant" and expression.settings[0] == "bool"


ZERO, ONE, TWO = constant(0), constant(1), constant(2)

# {op: its function of NumPy arrays}, of those that give each element by itself.
FUNCTIONS = {name: each.numpy for name, each in TABLE.items() if each.shape == "broadcast" and not each.settings}
FUNCTIONS["to_float"] = lambda a: np.asarray(a, np.float64)


def build(op, *args):
    """Returns the node of an op, computed or simplified where that changes no more than rounding."""
    values = [value_of(argument) for argument in args]
    if op in FUNCTIONS and None not in values:
        with np.errstate(all="ignore"):
            try:
                result = FUNCTIONS[op](*values)
                if np.isfinite(result):
                    return constant(result)
            except (TypeError, OverflowError, ZeroDivisionError):
                pass
    rule = _SIMPLER.get(op)
    simpler = rule(args, values) if rule else None
    return node(op, args) if simpler is None else simpler


def reduction(op, value, axes, keepdims):
    """Returns the node of a reduction. axes: None for all, "trailing", "leading" or a tuple."""
    if value.op == "constant" and op != "sum":
        return value
    return node(op, (value,), (axes, keepdims))


def _is(value, number):
    return value is not None and not isinstance(value, bool) and value == number


def _number(expression):
    """Returns the value of a constant number; None for others."""
    value = value_of(expression)
    return None if isinstance(value, bool) else value


def _add(args, values):
    a, b = args
    for x, y, y_value in ((a, b, values[1]), (b, a, values[0])):
        if _is(y_value, 0):
            return x
        if x.op == "subtract" and x.args[1] is y:
            return x.args[0]
        if x.op == "negative":
            return build("subtract", y, x.args[0])
        if y_value is not None and x.op in ("add", "subtract") and _number(x.args[1]) is not None:
            other = _number(x.args[1])
            return build("add", x.args[0], constant(y_value + (other if x.op == "add" else -other)))
    if values[1] is not None and values[1] < 0:
        return build("subtract", a, constant(-values[1]))
    if b.op == "multiply" and _number(b.args[0]) is not None and _number(b.args[0]) < 0:
        return build("subtract", a, build("multiply", constant(-_number(b.args[0])), b.args[1]))
    return None


def _subtract(args, values):
    a, b = args
    if values[1] is not None:
        if values[1] == 0:
            return a
        if a.op in ("add", "subtract") and _number(a.args[1]) is not None:
            other = _number(a.args[1])
            return build("add", a.args[0], constant((other if a.op == "add" else -other) - values[1]))
        if values[1] < 0:
            return node("add", (a, constant(-values[1])))
    if _is(values[0], 0):
        return build("negative", b)
    if b.op == "negative":
        return build("add", a, b.args[0])
    if a.op == "add" and b in a.args:
        return a.args[1 - a.args.index(b)]
    if b.op == "subtract" and b.args[0] is a:
        return b.args[1]  # x - (x - d)
    return None


def _multiply(args, values):
    for place in (0, 1):
        value, other = values[place], args[1 - place]
        if value is None or isinstance(value, bool):
            continue
        if value == 1:
            return other
        if value == 0:
            return ZERO
        if value == -1:
            return build("negative", other)
    for place in (0, 1):
        if args[place].op == "negative":
            rest = list(args)
            rest[place] = args[place].args[0]
            return build("negative", build("multiply", *rest))
    return node("multiply", (args[1], args[0])) if values[1] is not None else None


def _divide(args, values):
    if _is(values[1], 1):
        return args[0]
    if _is(values[0], 0):
        return ZERO
    return build("negative", build("divide", args[0].args[0], args[1])) if args[0].op == "negative" else None


def _negative(args, values):
    inner = args[0]
    if inner.op == "negative":
        return inner.args[0]
    return build("subtract", inner.args[1], inner.args[0]) if inner.op == "subtract" else None


def _pow(args, values):
    if _is(values[1], 2):
        return build("multiply", args[0], args[0])
    if _is(values[1], 1):
        return args[0]
    return build("sqrt", args[0]) if _is(values[1], 0.5) else None


def _bound(unbounded):
    def rule(args, values):
        for place in (0, 1):
            if _is(values[place], unbounded):
                return args[1 - place]
        return args[0] if args[0] is args[1] else None

    return rule


def _where(args, values):
    if values[0] is not None:
        return args[1] if values[0] else args[2]
    if args[1] is args[2]:
        return args[1]
    if is_bool(args[1]) and is_bool(args[2]):
        yes, no = build("logical_and", args[0], args[1]), build("logical_not", args[0])
        return build("logical_or", yes, build("logical_and", no, args[2]))
    if args[0].op == "logical_not":
        return build("where", args[0].args[0], args[2], args[1])
    for place in (1, 2):
        if args[place].op == "where" and args[place].args[0] is args[0]:  # the inner one chooses the same
            same = list(args)
            same[place] = args[place].args[place]
            return build("where", *same)
    return None


def _logical(neutral):
    def rule(args, values):
        for place in (0, 1):
            if values[place] is not None:
                return args[1 - place] if bool(values[place]) is neutral else constant(not neutral)
        return args[0] if args[0] is args[1] else None

    return rule


_SIMPLER = {
    "add": _add, "subtract": _subtract, "multiply": _multiply, "divide": _divide, "negative": _negative, "pow": _pow,
    "square": lambda args, values: build("multiply", args[0], args[0]), "where": _where,
    "minimum": _bound(float("inf")), "maximum": _bound(float("-inf")),
    "logical_and": _logical(True), "logical_or": _logical(False),
    "logical_not": lambda args, values: args[0].args[0] if args[0].op == "logical_not" else None,
    "to_float": lambda args, values: None if is_bool(args[0]) else args[0],
}


def substitute(expression, table, known=None):
    """Returns an expression with the nodes of `table` ({node: node}) replaced, the outermost first."""
    known = {} if known is None else known
    if expression in table:
        return table[expression]
    if expression not in known:
        if not expression.args:
            known[expression] = expression
        else:
            args = [substitute(argument, table, known) for argument in expression.args]
            if all(new is old for new, old in zip(args, expression.args)):
                known[expression] = expression
            elif expression.op in TABLE and TABLE[expression.op].shape != "broadcast":
                known[expression] = node(expression.op, args, expression.settings)
            else:
                known[expression] = build(expression.op, *args)
    return known[expression]


def evaluate(expression, values):
    """Returns the number of an expression without reductions. values: {name of a leaf: number}."""
    if expression.op == "leaf":
        return values[expression.settings]
    if expression.op == "constant":
        return value_of(expression)
    return FUNCTIONS[expression.op](*[evaluate(argument, values) for argument in expression.args])


def walk(expressions):
    """Yields all nodes of expressions once, arguments first."""
    seen = set()

    def visit(expression):
        if expression not in seen:
            seen.add(expression)
            for argument in expression.args:
                for below in visit(argument):
                    yield below
            yield expression

    for expression in expressions:
        for each in visit(expression):
            yield each
