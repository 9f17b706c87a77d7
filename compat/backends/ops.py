"""The ops that rules use: their names, and each backend's table of them."""
from __future__ import absolute_import, division, print_function

from everstep.errors import UnknownOpError, UnsupportedError
from everstep.optimizers.contract import counted_random

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments

# The ops that rules may use on every backend, with NumPy's names and meaning.
NAMES = frozenset(
    "abs sqrt rsqrt square exp log pow sin cos sign floor maximum minimum clip where equal isfinite logical_and "
    "logical_or logical_not sum mean max min any all cast sigmoid tanh zeros_like ones_like reshape matmul "
    "transpose".split()
)
PAIRS = frozenset(["qr", "eigh"])  # ops with two results, which a backend may lack
# The ops that rules write as Python operators.
OPERATORS = frozenset(
    "add subtract multiply divide floor_divide remainder negative less less_equal greater greater_equal".split()
)


def _norm(ops, x, axis=None, keepdims=False):
    square = ops.square(x)
    return ops.sqrt(ops.sum(square) if axis is None and not keepdims else ops.sum(square, axis, keepdims))


def _outer(ops, a, b):
    return ops.reshape(a, (-1, 1)) * ops.reshape(b, (1, -1))


# {name: function of the ops and the arguments}: what rules may use too, made of the ops above.
COMPOSED = {  # type: dict[str, Any]
    "norm": _norm,
    "outer": _outer,
    "random_normal": counted_random.normal,
    "random_uniform": counted_random.uniform,
}
# The last number of a counter of each dtype. A float64 holds all counts, and t + 1 and the like do not overflow.
END = {"int64": 2**53, "int32": 2**31 - 2**16}


def unknown_op(name):
    """Returns the error for an op that does not exist."""
    return UnknownOpError("ops has no {!r}; it has: {}".format(name, ", ".join(sorted(NAMES.union(PAIRS, COMPOSED)))))


def check_has(backend, op):
    """Raises UnsupportedError if a backend lacks an op of `PAIRS`."""
    if op not in backend.ops:
        raise UnsupportedError(
            "ops.{} does not exist on {}, which this optimizer is bound to: it has no such function. Use a newer "
            "version of it, or write the rule with ops.matmul alone".format(op, backend.name)
        )


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
