"""Values of a rule that are simplified as they are made. Equal ones are one object, so that `is` compares them."""
from __future__ import absolute_import, division, print_function

import weakref

import numpy as np

from everstep.compat.backends.on_numpy import NumpyBackend
from everstep.compat.rules.expressions import Tracer
from everstep.compat.rules.interpreter import Interpreter
from everstep.compat.rules.operations import REDUCTIONS, TABLE


class Algebra(Tracer):
    """Records expressions, computed or simplified where that changes no more than rounding.

    Leaves have names as a definition writes them, such as "slots.m". A value lives as long as someone holds it.
    """

    def __init__(self):
        super(Algebra, self).__init__("float64")
        self._shared = weakref.WeakValueDictionary()

    def leaf(self, name):
        """Returns the value that an update starts with by that name."""
        return super(Algebra, self).leaf(name, step_wide=True)

    def constant(self, number, dtype=None, op=None):
        if isinstance(number, (bool, np.bool_)):
            return super(Algebra, self).constant(bool(number), "bool")
        return super(Algebra, self).constant(float(number), self.dtype)

    def node(self, op, values, options, dtype):
        options = {name: value for name, value in options.items() if value is not None and value is not False}
        numbers = [number_of(value) for value in values]
        if op in REDUCTIONS and numbers[0] is not None and (op != "sum" or numbers[0] == 0):
            return values[0]
        if TABLE[op].shape == "broadcast" and None not in numbers:
            with np.errstate(all="ignore"):
                try:
                    result = np.asarray(TABLE[op].numpy(*numbers, **options)).item()
                    if np.isfinite(result):
                        return self.constant(result)
                except (TypeError, OverflowError, ZeroDivisionError):
                    pass
        simpler = _SIMPLER[op](values, numbers) if op in _SIMPLER else None
        return self.plain(op, values, options, dtype) if simpler is None else simpler

    def plain(self, op, values, options=None, dtype="float64"):
        """Returns an op on values as it is, without simplification."""
        return super(Algebra, self).node(op, tuple(values), options or {}, dtype)


ops = Algebra()
ZERO, ONE = ops.constant(0), ops.constant(1)


def number_of(value):
    """Returns what a constant is, a bool or float; None for all other values."""
    return value.options["number"] if value.op == "constant" else None


def _is(number, wanted):
    return number is not None and not isinstance(number, bool) and number == wanted


def _number(value):
    """Returns what a constant number is; None for other values."""
    return None if value.dtype == "bool" else number_of(value)


def _term(value):
    """Returns (rest, number) of a value that is `rest + number`; None for others."""
    number = _number(value.args[1]) if value.op in ("add", "subtract") else None
    return None if number is None else (value.args[0], number if value.op == "add" else -number)


def _add(args, numbers):
    a, b = args
    for x, y, number in ((a, b, numbers[1]), (b, a, numbers[0])):
        if _is(number, 0):
            return x
        if x.op == "subtract" and x.args[1] is y:
            return x.args[0]
        if x.op == "negative":
            return y - x.args[0]
        if number is not None and _term(x):
            rest, other = _term(x)
            return rest + (other + number)
    if numbers[1] is not None and numbers[1] < 0:
        return a - -numbers[1]
    if b.op == "multiply" and (_number(b.args[0]) or 0) < 0:
        return a - -_number(b.args[0]) * b.args[1]
    return None


def _subtract(args, numbers):
    a, b = args
    if _is(numbers[1], 0):
        return a
    if numbers[1] is not None:
        if _term(a):
            rest, other = _term(a)
            return rest + (other - numbers[1])
        if numbers[1] < 0:
            return ops.plain("add", (a, ops.constant(-numbers[1])))
    if _is(numbers[0], 0):
        return -b
    if b.op == "negative":
        return a + b.args[0]
    if a.op == "add":
        for place in (0, 1):
            if a.args[place] is b:
                return a.args[1 - place]
    if b.op == "subtract" and b.args[0] is a:
        return b.args[1]  # x - (x - d)
    return None


def _multiply(args, numbers):
    for number, other in zip(numbers, args[::-1]):
        if _is(number, 1):
            return other
        if _is(number, 0):
            return ZERO
        if _is(number, -1):
            return -other
    for place in (0, 1):
        if args[place].op == "negative":
            rest = list(args)
            rest[place] = args[place].args[0]
            return -(rest[0] * rest[1])
    return ops.plain("multiply", args[::-1]) if numbers[1] is not None else None


def _divide(args, numbers):
    if _is(numbers[1], 1):
        return args[0]
    if _is(numbers[0], 0):
        return ZERO
    return -(args[0].args[0] / args[1]) if args[0].op == "negative" else None


def _negative(args, numbers):
    inner = args[0]
    if inner.op == "negative":
        return inner.args[0]
    return inner.args[1] - inner.args[0] if inner.op == "subtract" else None


def _pow(args, numbers):
    if _is(numbers[1], 2):
        return args[0] * args[0]
    if _is(numbers[1], 1):
        return args[0]
    return ops.sqrt(args[0]) if _is(numbers[1], 0.5) else None


def _bound(unbounded):
    def rule(args, numbers):
        for place in (0, 1):
            if _is(numbers[place], unbounded):
                return args[1 - place]
        return args[0] if args[0] is args[1] else None

    return rule


def _where(args, numbers):
    condition, yes, no = args
    if numbers[0] is not None:
        return yes if numbers[0] else no
    if yes is no:
        return yes
    if yes.dtype == "bool":
        return condition & yes | ~condition & no
    if condition.op == "logical_not":
        return ops.where(condition.args[0], no, yes)
    for place in (1, 2):
        if args[place].op == "where" and args[place].args[0] is condition:  # the inner one chooses the same
            same = list(args)
            same[place] = args[place].args[place]
            return ops.where(*same)
    return None


def _logical(neutral):
    def rule(args, numbers):
        for place in (0, 1):
            if numbers[place] is not None:
                return args[1 - place] if numbers[place] is neutral else ops.constant(not neutral)
        return args[0] if args[0] is args[1] else None

    return rule


_SIMPLER = {
    "add": _add, "subtract": _subtract, "multiply": _multiply, "divide": _divide, "negative": _negative, "pow": _pow,
    "square": lambda args, numbers: args[0] * args[0], "where": _where,
    "minimum": _bound(float("inf")), "maximum": _bound(float("-inf")),
    "logical_and": _logical(True), "logical_or": _logical(False),
    "logical_not": lambda args, numbers: args[0].args[0] if args[0].op == "logical_not" else None,
    "cast": lambda args, numbers: None if args[0].dtype == "bool" else args[0],
}


def walk(values):
    """Yields all that some values are made of, each once, arguments first."""
    seen, waiting = set(), list(values)[::-1]
    while waiting:
        value = waiting[-1]
        inner = [] if value in seen else [each for each in value.args if each not in seen]
        if inner:
            waiting.extend(inner[::-1])
            continue
        waiting.pop()
        if value not in seen:
            seen.add(value)
            yield value


def leaf_names(*values):
    """Returns the names of the leaves that values are made of."""
    return {each.leaf for each in walk(values) if each.leaf}


def substitute(value, table, known=None):
    """Returns a value in which those of `table` ({value: value}) are replaced, the outermost first."""
    known = {} if known is None else known
    if value in table:
        return table[value]
    if value not in known:
        args = tuple(substitute(argument, table, known) for argument in value.args)
        same = all(new is old for new, old in zip(args, value.args))
        known[value] = value if same else ops.node(value.op, args, value.options, value.dtype)
    return known[value]


def evaluate(value, numbers):
    """Returns the number of a value without reductions. numbers: {name of a leaf: number}."""
    return Interpreter(NumpyBackend(), numbers.__getitem__).lower(value)
