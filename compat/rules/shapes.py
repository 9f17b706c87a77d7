"""Finds the shapes of traced values before they are computed."""
from __future__ import absolute_import, division, print_function

import functools
import numbers

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
    """Returns the shapes of the results of an op of `LINALG`, or the shape of the only one."""
    rows, columns = shape if len(shape) == 2 else (None, None)
    symmetric = op in ("eigh", "cholesky")
    if len(shape) != 2 or symmetric and rows != columns and None not in shape:
        raise ValueError("it takes a symmetric matrix" if symmetric else "it takes a matrix")
    if op == "cholesky":
        return tuple(shape)
    if op == "eigh":
        return (rows,), (rows, rows)
    least = None if None in shape else min(shape)
    return ((rows, least), (least, columns)) if op == "qr" else ((rows, least), (least,), (least, columns))


def _solved(left, right):
    if len(left) != 2 or len(right) != 2 or not agree(left, left[::-1]) or not agree(left[:1], right[:1]):
        raise ValueError("it takes a square matrix, and one of as many rows")
    return tuple(right)


def _concatenated(shapes, axis):
    rank = len(shapes[0])
    if not -rank <= axis < rank or any(not agree(
            shape[: axis % rank] + shape[axis % rank + 1 :],
            shapes[0][: axis % rank] + shapes[0][axis % rank + 1 :]) for shape in shapes):
        raise ValueError("their sizes along the other axes differ")
    sizes = [shape[axis] for shape in shapes]
    whole = list(shapes[0])
    whole[axis] = None if None in sizes else sum(sizes)
    return tuple(whole)


def _einsum(equation, shapes):
    operands, _, result = equation.replace(" ", "").partition("->")
    operands, sizes = operands.split(","), {}
    if "->" not in equation or list(map(len, operands)) != list(map(len, shapes)):
        raise ValueError('the equation is no "ij,jk->ik" with a letter for each axis of each value')
    for letter, size in zip("".join(operands), sum(map(tuple, shapes), ())):
        if sizes.get(letter) not in (None, size) and size is not None:
            raise ValueError("{} has two sizes".format(letter))
        sizes[letter] = sizes.get(letter) or size
    if not set(result) <= set(sizes) or len(set(result)) != len(result):
        raise ValueError("the result has axes that no value has, or one twice")
    return tuple([sizes[letter] for letter in result])


def part_of(shape, index):
    """Returns what an index takes of a shape: a whole number or (first, end) for each axis.

    Raises:
        RuleError: it is no tuple of whole numbers and slices without steps, or the size of an axis is not known.
    """
    index = index if isinstance(index, tuple) else (index,)
    if shape is None:
        raise RuleError("a part can only be taken of a value of known shape")
    dots = [each is Ellipsis for each in index]
    if True in dots:
        place = dots.index(True)
        index = index[:place] + (slice(None),) * (len(shape) - len(index) + 1) + index[place + 1 :]
    parts = []  # type: list
    for size, each in zip(shape, index + (slice(None),) * (len(shape) - len(index))):
        is_number = isinstance(each, numbers.Integral) and not isinstance(each, bool)
        if isinstance(each, slice) and each.step in (None, 1):
            bounds = [bound for bound in (each.start, each.stop) if bound is not None]
            if all(isinstance(bound, numbers.Integral) for bound in bounds) and (size is not None or not bounds):
                parts.append((0, None) if size is None else each.indices(size)[:2])
                continue
        elif is_number and size is not None and -size <= each < size:
            parts.append(int(each) % size)
            continue
        raise RuleError(
            "a part of a value of shape {} is taken by whole numbers and slices without steps, which the rule knows "
            "when it runs; got {!r}. ops.where chooses by value".format(shape, each))
    if len(index) > len(shape):
        raise RuleError("a value of shape {} has no part {!r}".format(shape, index))
    return tuple(parts)


def _part(shape, index):
    return tuple([size if each[1] is None else max(0, each[1] - each[0]) for size, each in zip(shape, index)
                  if isinstance(each, tuple)])


# {shape of an `Operation`: function of a value and its arguments' shapes}
_SHAPES = {
    "broadcast": lambda value, shapes: functools.reduce(_broadcast, shapes, ()),
    "reduced": lambda value, shapes: _reduced(shapes[0], value.options.get("axis"), value.options.get("keepdims")),
    "reshaped": lambda value, shapes: _reshaped(shapes[0], value.options["to"]),
    "transposed": lambda value, shapes: _transposed(shapes[0], value.options.get("axes")),
    "multiplied": lambda value, shapes: _multiplied(*shapes),
    "factored": lambda value, shapes: _factored(value.op, shapes[0]),
    "old": lambda value, shapes: tuple(shapes[1 + len(shapes) // 2 :]),  # those of the old values
    "solved": lambda value, shapes: _solved(*shapes),
    "concatenated": lambda value, shapes: _concatenated(shapes, value.options["axis"]),
    "einsum": lambda value, shapes: _einsum(value.options["equation"], shapes),
    "part": lambda value, shapes: _part(shapes[0], value.options["index"]),
    "new": lambda value, shapes: (value.options["size"],) * (2 if value.op == "eye" else 1),
    "item": lambda value, shapes: shapes[0][value.options["place"]],
}
