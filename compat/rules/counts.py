"""Computes with counts: numbers of updates and of steps, which a float32 holds exactly only up to 2^24.

A count is a value of the compute dtype that also knows its integer. Ops that depend on a period or a boundary are
computed from the integer: sums, differences, products, minima, maxima and comparisons of counts and whole numbers, `%`,
`//` and `floor(count / number)`. So `t % 6` is right at every t. All other ops take the count as a float.
"""
from __future__ import absolute_import, division, print_function

import math
import numbers
from collections import namedtuple
from fractions import Fraction

# The integer of a count, a value or a Python int, which lies between low and high.
Whole = namedtuple("Whole", "integer low high")

MOST = {"int64": 2**63 - 1, "int32": 2**31 - 1}  # the greatest number of each dtype of counters
_BOUNDS = {  # of an op's result, from the bounds of its arguments
    "add": lambda a, b: (a.low + b.low, a.high + b.high),
    "subtract": lambda a, b: (a.low - b.high, a.high - b.low),
    "minimum": lambda a, b: (min(a.low, b.low), min(a.high, b.high)),
    "maximum": lambda a, b: (max(a.low, b.low), max(a.high, b.high)),
    "multiply": lambda a, b: _ends([x * y for x in a[1:] for y in b[1:]]),
}
_MIRRORED = {  # {comparison: the one with its arguments exchanged}
    "less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal",
    "equal": "equal",
}
_ROUNDED_UP = ("less", "greater_equal")  # n < 2.5 is n < 3, n <= 2.5 is n <= 2
OPS = frozenset(["floor", "negative", "remainder", "floor_divide"]).union(_BOUNDS, _MIRRORED)


def _ends(products):
    return min(products), max(products)


def counted(tracer, op, args):
    """Returns an op on counts, computed from their integers; None for one that takes floats."""
    if op == "floor":
        return _floor(tracer, args[0])
    wholes = [getattr(arg, "exact", None) for arg in args]
    if not any(wholes):
        return None
    if op == "negative":
        return tracer.count(_integer(tracer, op, wholes), -wholes[0].high, -wholes[0].low)
    numbers_ = [None if whole else _number(arg) for whole, arg in zip(wholes, args)]
    if op in _MIRRORED:
        if not wholes[0]:
            op, wholes, numbers_ = _MIRRORED[op], wholes[::-1], numbers_[::-1]
        return _compared(tracer, op, wholes, numbers_[1])
    if op in _BOUNDS:
        return _combined(tracer, op, [whole or _whole(tracer, number) for whole, number in zip(wholes, numbers_)])
    return _divided(tracer, op, args[0], numbers_[1]) if wholes[0] else None


def _number(arg):
    """Returns the number of an argument, None if it is a value that is known only when the step runs."""
    number = arg if isinstance(arg, numbers.Real) else getattr(arg, "options", {}).get("number")
    return number if number is not None and abs(number) < float("inf") else None


def _whole(tracer, number):
    fits = number is not None and number == math.floor(number) and abs(number) <= MOST[tracer.integer]
    return Whole(int(number), int(number), int(number)) if fits else None


def _integer(tracer, op, wholes):
    """Returns an op on integers, as a value of the integers' dtype, or bool for a comparison."""
    dtype = "bool" if op in _MIRRORED else tracer.integer
    integers = [
        tracer.constant(whole.integer, tracer.integer) if isinstance(whole.integer, numbers.Integral) else whole.integer
        for whole in wholes
    ]
    return tracer.node(op, tuple(integers), {}, dtype)


def _compared(tracer, op, wholes, number):
    if not wholes[1]:
        if number is None or op == "equal" and number != math.floor(number):
            return None
        rounded = math.ceil(number) if op in _ROUNDED_UP else math.floor(number)
        wholes = [wholes[0], _whole(tracer, rounded)]
    return _integer(tracer, op, wholes) if wholes[1] else None


def _combined(tracer, op, wholes):
    if not all(wholes):
        return None
    low, high = _BOUNDS[op](*wholes)
    fits = max(-low, high) <= MOST[tracer.integer]
    return tracer.count(_integer(tracer, op, wholes), low, high) if fits else None


def _divided(tracer, op, count, number):
    """Returns `count % number` or `count // number`. A number may be a fraction, such as 5 / 2."""
    if number is None or number <= 0:
        return None
    fraction = Fraction(int(number) if number == math.floor(number) else float(number))
    divisor, factor = fraction.numerator, fraction.denominator
    if divisor * factor > MOST[tracer.integer]:
        return None
    if factor > 1:
        scaled = count % divisor * factor  # a small number: count * factor might overflow
        quotient = op == "floor_divide"
        return count // divisor * factor + scaled // divisor if quotient else scaled % divisor / factor
    _, low, high = count.exact
    integer = _integer(tracer, op, [count.exact, _whole(tracer, divisor)])
    bounds = (low // divisor, high // divisor) if op == "floor_divide" else (0, divisor - 1)
    return tracer.count(integer, *bounds)


def _floor(tracer, arg):
    if getattr(arg, "exact", None):
        return arg
    if getattr(arg, "op", None) != "divide" or not arg.args[0].exact:
        return None
    return _divided(tracer, "floor_divide", arg.args[0], _number(arg.args[1]))
