"""The table of a backend's operations."""
from __future__ import absolute_import, division, print_function

from everstep.compat.rules.operations import NAMES, OPERATORS


def add_pairs(table, qr, eigh, diagonal):
    """Adds the ops of `PAIRS` to a table, those that are not None.

    Both results are unique as far as the matrix lets them be: r has no negative diagonal, and the element of an
    eigenvector with the largest absolute value is positive.

    Args:
        table: what `ops_table` returned.
        qr, eigh: functions that return two values, as numpy.linalg's; or None.
        diagonal: a function that returns the diagonal of a matrix.
    """

    def check_matrix(x):
        rank = x.shape.ndims if hasattr(x.shape, "ndims") else len(x.shape)  # None: TensorFlow does not know it
        if rank not in (2, None):
            raise ValueError("it takes a matrix")

    def signs(is_negative, like):
        ones = table["ones_like"](like)
        return table["where"](is_negative, -ones, ones)

    def unique_qr(x):
        check_matrix(x)
        q, r = qr(x)
        numbers = diagonal(r)
        sign = signs(table["less"](numbers, table["zeros_like"](numbers)), numbers)
        return q * table["reshape"](sign, (1, -1)), r * table["reshape"](sign, (-1, 1))

    def unique_eigh(x):
        check_matrix(x)
        values, vectors = eigh(x)
        largest, smallest = table["max"](vectors, axis=0), table["min"](vectors, axis=0)
        return values, vectors * table["reshape"](signs(table["less"](largest, -smallest), largest), (1, -1))

    table.update((op, unique) for op, native, unique in (("qr", qr, unique_qr), ("eigh", eigh, unique_eigh)) if native)


def ops_table(module, renamed, special):
    """Returns `{op: function}` for all ops, with NumPy's meaning.

    Args:
        module: the module that has most of the functions.
        renamed: `{op: the function's name in the module}` for functions with another name.
        special: `{op: function}` for functions that the module lacks or defines differently.
    """
    table = {
        "cast": lambda x, to: module.cast(x, to),
        "clip": lambda x, low, high: module.minimum(module.maximum(x, low), high),
        "reshape": lambda x, to: module.reshape(x, to),
        "transpose": lambda x, axes=None: module.transpose(x, axes),
    }
    table.update(special)
    for op in NAMES.union(OPERATORS).difference(table):
        table[op] = getattr(module, renamed.get(op, op))
    return table
