"""The ops that rules use: their names, and each backend's table of them."""
from __future__ import absolute_import, division, print_function

from everstep.errors import UnknownOpError

# The ops that rules may use on every backend, with NumPy's names and meaning.
NAMES = frozenset(
    "abs sqrt rsqrt square exp log pow sin cos sign floor maximum minimum clip where equal isfinite logical_and "
    "logical_or logical_not sum mean max min any all cast sigmoid tanh zeros_like ones_like reshape".split()
)
# The ops that rules write as Python operators.
OPERATORS = frozenset(
    "add subtract multiply divide floor_divide remainder negative less less_equal greater greater_equal".split()
)
# The last number of a counter of each dtype. A float64 holds all counts, and t + 1 and the like do not overflow.
END = {"int64": 2**53, "int32": 2**31 - 2**16}


def unknown_op(name):
    """Returns the error for an op that does not exist."""
    return UnknownOpError("ops has no {!r}; it has: {}".format(name, ", ".join(sorted(NAMES))))


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
    }
    table.update(special)
    for op in NAMES.union(OPERATORS).difference(table):
        table[op] = getattr(module, renamed.get(op, op))
    return table
