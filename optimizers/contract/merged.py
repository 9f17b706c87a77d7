"""Takes variables as matrices, for rules that work on the two sides of a matrix."""
from __future__ import absolute_import, division, print_function


def merged(shape):
    """Returns the shape (rows, columns) of a variable of rank 2 or more as a matrix: all axes but the last are rows."""
    rows = 1
    for size in shape[:-1]:
        rows *= size
    return rows, shape[-1]


def sides_of(shape, max_size):
    """Returns "both", "left", "right" or "none": the sides of a variable that are at most `max_size` long.

    A variable of rank 0 or 1, or without elements, has none.
    """
    if len(shape) < 2 or 0 in shape:
        return "none"
    left, right = (size <= max_size for size in merged(shape))
    return "both" if left and right else "left" if left else "right" if right else "none"


def projected_side(shape, rank):
    """Returns which side of a variable is projected to a rank: the shorter one, "columns" or "rows", if it is longer.

    "none" if it is not. Of a square, columns.
    """
    rows, columns = merged(shape) if len(shape) > 1 else (0, 0)
    return "none" if min(rows, columns) <= rank else "columns" if rows >= columns else "rows"


def low_shape(shape, rank, side):
    """Returns the shape of a variable after its `side` is projected to a rank."""
    if side == "none":
        return shape
    rows, columns = merged(shape)
    return (rows, rank) if side == "columns" else (rank, columns)


def as_matrix(ops, value):
    """Returns a value of rank 2 or more as a matrix."""
    return value if value.ndim == 2 else ops.reshape(value, (-1, value.shape[-1]))


def as_before(ops, matrix, like):
    """Returns a matrix in the shape of the value that it was made of."""
    return matrix if like.ndim == 2 else ops.reshape(matrix, like.shape)
