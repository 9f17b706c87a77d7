"""Writes expressions as Python."""
from __future__ import absolute_import, division, print_function

import numpy as np

from everstep.compat.port.algebra import number_of
from everstep.compat.rules.operations import REDUCTIONS, TABLE

_NEGATIVE, _ATOM = 6, 9
_AFTER = {"add": ("add", "subtract"), "multiply": ("multiply", "divide")}  # need no brackets on the right
_BITS = ("logical_or", "logical_and")  # Python's & and | bind stronger than comparisons
_AXES = {"trailing": "tuple(range(1, {}.ndim))", "leading": "tuple(range({0}.ndim - 1))", "last": "-1", "first": "0"}


def number_text(value):
    """Returns the shortest text of a number that is the same float32."""
    if isinstance(value, bool):
        return repr(value)
    if np.isinf(value) or np.isnan(value):
        return 'float("{}")'.format(value)
    if value == int(value) and abs(value) < 1e6:
        return repr(int(value))
    for digits in range(1, 10):
        text = "{:.{}g}".format(value, digits)
        if float(text) == value or np.float32(float(text)) == np.float32(value) and digits > 5:
            return text
    return repr(value)


def text_of(expression, names=None, whole=False):
    """Returns an expression as Python.

    Args:
        names: {expression: local variable that holds it}.
        whole: True to write out the expression itself, even if it has a name.
    """
    return _text(expression, names or {}, whole)[0]


def _text(expression, names, whole=False):
    """Returns (text, how strongly its outermost operator binds)."""
    if expression in names and not whole:
        return names[expression], _ATOM
    op, args = expression.op, expression.args
    if expression.leaf:
        return expression.leaf, _ATOM
    if op == "constant":
        value = number_of(expression)
        return number_text(value), _ATOM if isinstance(value, bool) or value >= 0 else _NEGATIVE
    if op == "negative":
        inner, strength = _text(args[0], names)
        if strength == 5 and args[0].op in ("multiply", "divide") and "//" not in inner and "%" not in inner:
            return "-" + inner, strength  # Python takes it for (-a) * b
        return "-" + (inner if strength > _NEGATIVE else "({})".format(inner)), _NEGATIVE
    if TABLE[op].symbol:
        return _operator(op, args, names)
    inner = [_text(argument, names)[0] for argument in args]
    if op in REDUCTIONS:
        return "ops.{}({}{})".format(op, inner[0], _axes(**expression.options)), _ATOM
    if op == "cast":
        return 'ops.cast({}, grad.dtype)'.format(inner[0]), _ATOM
    if op == "reshape":
        return "ops.reshape({}, {!r})".format(inner[0], expression.options["to"]), _ATOM
    if op == "transpose":
        axes = expression.options.get("axes")
        return "ops.transpose({}{})".format(inner[0], "" if axes is None else ", {!r}".format(axes)), _ATOM
    return "ops.{}({})".format(op, ", ".join(inner)), _ATOM


def _axes(axis=None, keepdims=False):
    if axis is None:
        return ", keepdims=True" if keepdims else ""
    text = _AXES[axis].format("grad") if axis in _AXES else repr(axis)
    return ", axis={}{}".format(text, ", keepdims=True" if keepdims else "")


def _operator(op, args, names):
    symbol, strength = TABLE[op].symbol, TABLE[op].strength
    (left, left_strength), (right, right_strength) = (_text(argument, names) for argument in args)
    if op in _BITS:
        left_stands = left_strength == _ATOM or left_strength == strength
        right_stands = right_strength == _ATOM or right_strength == strength
    elif op == "pow":
        left_stands, right_stands = left_strength > strength, right_strength >= _NEGATIVE
    else:
        left_stands = left_strength > strength or left_strength == strength != 3
        right_stands = right_strength > strength or args[1].op in _AFTER.get(op, ()) and right_strength == strength
    left = left if left_stands else "({})".format(left)
    right = right if right_stands else "({})".format(right)
    return ("{}{}{}" if op == "pow" else "{} {} {}").format(left, symbol, right), strength
