"""Finds the shapes of traced values before they are computed."""
from __future__ import absolute_import, division, print_function

import functools

import numpy as np

from everstep.compat.rules.operations import TABLE
from everstep.errors import RuleError


def agree(actual, expected):
    """Returns whether two shapes are equal as far as both are known. None: not even the rank is."""
    if actual is None or expected is None:
        return True
    return len(actual) == len(expected) and all(a is None or e is None or a == e for a, e in zip(actual, expected))


def result_shape(value):
    """Returns the shape of a value before it is computed, None for each unknown size; None if its rank is unknown.

    Raises:
        RuleError: an op does not take values of these shapes.
    """
    shapes = value.tracer.shapes
    waiting = [] if value in shapes else [value]  # a chain of ops can be longer than Python's stack is deep
    while waiting:
        node, left = waiting[-1], False
        for arg in node.args:
            if arg not in shapes:
                waiting.append(arg)
                left = True
        if not left:
            shapes[waiting.pop()] = _shape_of(node, list(map(shapes.get, node.args)))
    return shapes[value]


def _shape_of(value, shapes):
    if not value.op:
        return value.leaf_shape
    if None in shapes:
        return None
    how = TABLE[value.op].shape if value.op in TABLE else "broadcast"  # a constant broadcasts too
    if how == "broadcast" and len(set(shapes).difference([()])) < 2:
        return max(shapes, key=len) if shapes else ()
    try:
        return _SHAPES[how](value, shapes)
    except ValueError as error:
        raise RuleError(
            "ops.{} cannot take values of shapes {}{}: {}".format(
                value.op,
                " and ".join(map(str, shapes)),
                " with {}".format(value.options) if value.options else "",
                error,
            )
        )


def _broadcast(left, right):
    rank, shape = max(len(left), len(right)), []
    for a, b in zip((1,) * (rank - len(left)) + left, (1,) * (rank - len(right)) + right):
        if a != b and None not in (a, b) and 1 not in (a, b):
            raise ValueError("they do not broadcast")
        shape.append(b if a == 1 or a is None and b != 1 else a)
    return tuple(shape)


def _reduced(shape, axis, keepdims):
    axes = range(len(shape)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    if any(not -len(shape) <= place < len(shape) for place in axes):
        raise ValueError("there is no axis {}".format(axis))
    gone = {place % len(shape) for place in axes}
    kept = [1 if place in gone else size for place, size in enumerate(shape) if keepdims or place not in gone]
    return tuple(kept)


def _reshaped(shape, to):
    to = tuple(to) if isinstance(to, (tuple, list)) else (to,)
    known = None if None in shape else int(np.prod(shape, dtype=np.int64))
    fixed = int(np.prod([size for size in to if size != -1], dtype=np.int64))
    fits = known is None or (known == fixed if -1 not in to else fixed and known % fixed == 0)
    if not fits or to.count(-1) > 1:
        raise ValueError("the number of elements differs")
    rest = None if known is None or not fixed else known // fixed
    return tuple(rest if size == -1 else size for size in to)


def _transposed(shape, axes):
    places = tuple(range(len(shape)))
    axes = places[::-1] if axes is None else axes
    if sorted(axes) != list(places):
        raise ValueError("axes must be {} in some order".format(places))
    return tuple(shape[axis] for axis in axes)


def _multiplied(left, right):
    if len(left) < 2 or len(left) != len(right):
        raise ValueError("both must be matrices, or stacks of as many")
    pairs = list(zip(left[:-2], right[:-2])) + [(left[-1], right[-2])]
    if any(a != b and None not in (a, b) for a, b in pairs):
        raise ValueError("their sizes do not fit")
    return tuple(b if a is None else a for a, b in pairs[:-1]) + (left[-2], right[-1])


def _factored(op, shape):
    """Returns the shapes of both results of an op of `PAIRS`."""
    rows, columns = shape if len(shape) == 2 else (None, None)
    if len(shape) != 2 or op == "eigh" and rows != columns and None not in shape:
        raise ValueError("it takes a matrix" if op == "qr" else "it takes a symmetric matrix")
    if op == "eigh":
        return (rows,), (rows, rows)
    least = None if None in shape else min(shape)
    return (rows, least), (least, columns)


# {shape of an `Operation`: function of a value and its arguments' shapes}
_SHAPES = {
    "broadcast": lambda value, shapes: functools.reduce(_broadcast, shapes, ()),
    "reduced": lambda value, shapes: _reduced(shapes[0], value.options.get("axis"), value.options.get("keepdims")),
    "reshaped": lambda value, shapes: _reshaped(shapes[0], value.options["to"]),
    "transposed": lambda value, shapes: _transposed(shapes[0], value.options.get("axes")),
    "multiplied": lambda value, shapes: _multiplied(*shapes),
    "factored": lambda value, shapes: _factored(value.op, shapes[0]),
    "chosen": lambda value, shapes: tuple(shapes[1 + len(shapes) // 2 :]),  # those of the old values
    "item": lambda value, shapes: shapes[0][value.options["place"]],
}
