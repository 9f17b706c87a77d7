"""The table of a backend's operations."""
from __future__ import absolute_import, division, print_function

from everstep.compat.rules.operations import NAMES, OPERATORS, index_of


def add_linalg(table, qr, eigh, svd, cholesky, solve, diagonal):
    """Adds the ops of `LINALG` to a table, those that are not None.

    Results are unique as far as the matrix lets them be: r has no negative diagonal, and the element of an eigenvector,
    and of a column of the first matrix of svd, with the largest absolute value is positive.

    Args:
        table: what `ops_table` returned.
        qr, eigh, svd, cholesky, solve: functions as numpy.linalg's, svd without full matrices; or None.
        diagonal: a function that returns the diagonal of a matrix.
    """

    def rank_of(x):
        return x.shape.ndims if hasattr(x.shape, "ndims") else len(x.shape)  # None if TensorFlow does not know the rank

    def check_matrix(x):
        if rank_of(x) not in (2, None):
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

    def is_empty(x):
        return rank_of(x) is not None and 0 in list(x.shape)

    def signs_of(vectors):
        largest, smallest = table["max"](vectors, axis=0), table["min"](vectors, axis=0)
        return signs(table["less"](largest, -smallest), largest)

    def unique_eigh(x):
        check_matrix(x)
        values, vectors = eigh(x)
        if is_empty(x):
            return values, vectors
        return values, vectors * table["reshape"](signs_of(vectors), (1, -1))

    def unique_svd(x):
        check_matrix(x)
        left, numbers, right = svd(x)
        if is_empty(x):
            return left, numbers, right
        sign = signs_of(left)
        return left * table["reshape"](sign, (1, -1)), numbers, right * table["reshape"](sign, (-1, 1))

    def checked_cholesky(x):
        check_matrix(x)
        return cholesky(x)

    def checked_solve(a, b):
        check_matrix(a)
        check_matrix(b)
        return solve(a, b)

    for op, native, unique in (
        ("qr", qr, unique_qr), ("eigh", eigh, unique_eigh), ("svd", svd, unique_svd),
        ("cholesky", cholesky, checked_cholesky), ("solve", solve, checked_solve),
    ):
        if native:
            table[op] = unique


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
        "part": lambda x, index: x[index_of(index)],
        "einsum": lambda *values, **options: module.einsum(options["equation"], *values),
        "concat": lambda *values, **options: concat(list(values), options["axis"]),
        "eye": lambda size, dtype: module.eye(size, dtype=dtype),
        "arange": lambda size, dtype: getattr(module, renamed.get("arange", "arange"))(size, dtype=dtype),
    }
    concat = getattr(module, "concat", None) or module.concatenate
    table.update(special)
    for op in NAMES.union(OPERATORS).difference(table):
        table[op] = getattr(module, renamed.get(op, op))
    return table
