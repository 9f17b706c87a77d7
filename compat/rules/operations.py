"""The operations that rules use, in one table: what each takes and gives. All that asks about operations reads it."""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict, namedtuple

import numpy as np

from everstep.errors import RuleError, UnknownOpError, UnsupportedError
from everstep.optimizers.contract import counted_random

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments

# arity: how many values it takes; ANY for a list of them.
# settings: the names of its other arguments, in order.
# takes: the dtypes of its values: "numbers", "bools" or "any". A choice, of `where`, is bool always.
# gives: the dtype of its result: "same" as its values, "bool", or "to" for what that setting says.
# shape: what the shape of its result is: of its values, "broadcast", "reduced", ..., see rules/shapes.py.
# mixes: whether an element of the result depends on other places of the values.
# fresh: whether it can write its result, of its values' dtype, over one of its values or into other memory.
# symbol: the Python operator that rules write it with, None for `ops.NAME(...)`; strength: how strongly that binds.
# numpy: its function of NumPy arrays and settings.
Operation = namedtuple("Operation", "name arity settings takes gives shape mixes fresh symbol strength numpy")
TABLE = OrderedDict()  # type: dict[str, Any]  # {name: Operation}
ANY = -1


def _add(names, arity=1, settings=(), takes="numbers", gives="same", shape="broadcast", mixes=False, fresh=False,
         symbols="", strength=None, numpy=None):
    symbol_of = dict(zip(names.split(), symbols.split()))
    for name in names.split():
        function = numpy or getattr(np, _NUMPY_NAMES.get(name, name))
        symbol = symbol_of.get(name)
        TABLE[name] = Operation(name, arity, settings, takes, gives, shape, mixes, fresh, symbol, strength, function)


def index_of(parts):
    """Returns what stands in the brackets for a part: for each axis a whole number, or (first, end) of a slice."""
    return tuple([slice(*each) if isinstance(each, tuple) else each for each in parts])


def _sigmoid(x):
    half = x / 2  # tanh does not overflow, as exp(-x) would
    return (np.tanh(half) + 1) / 2


_NUMPY_NAMES = {"pow": "power", "divide": "true_divide"}
_add("add subtract", 2, symbols="+ -", strength=4, fresh=True)
_add("multiply divide", 2, symbols="* /", strength=5, fresh=True)
_add("floor_divide remainder", 2, symbols="// %", strength=5)
_add("pow", 2, symbols="**", strength=7, fresh=True)
_add("negative abs sqrt square exp log sin cos sign floor tanh", fresh=True)
_add("rsqrt", numpy=lambda x: 1 / np.sqrt(x), fresh=True)
_add("sigmoid", numpy=_sigmoid, fresh=True)
_add("maximum minimum", 2, fresh=True)
_add("clip", 3, numpy=lambda x, low, high: np.minimum(np.maximum(x, low), high))
_add("less less_equal greater greater_equal", 2, gives="bool", symbols="< <= > >=", strength=3)
_add("equal", 2, takes="any", gives="bool")
_add("isfinite", gives="bool")
_add("logical_or", 2, takes="bools", gives="bool", symbols="|", strength=1)
_add("logical_and", 2, takes="bools", gives="bool", symbols="&", strength=2)
_add("logical_not", takes="bools", gives="bool")
_add("where", 3, takes="any")
_add("zeros_like ones_like", takes="any")
_add("cast", settings=("to",), takes="any", gives="to", numpy=lambda x, to: np.asarray(x).astype(to))
_add("sum mean max min", settings=("axis", "keepdims"), shape="reduced", mixes=True)
_add("any all", settings=("axis", "keepdims"), takes="bools", gives="bool", shape="reduced", mixes=True)
_add("matmul", 2, shape="multiplied", mixes=True)
_add("transpose", settings=("axes",), takes="any", shape="transposed", mixes=True)
_add("reshape", settings=("to",), takes="any", shape="reshaped", numpy=lambda x, to: np.reshape(x, to))
_add("einsum", ANY, settings=("equation",), shape="einsum", mixes=True,
     numpy=lambda *values, **options: np.einsum(options["equation"], *values))
_add("concat", ANY, settings=("axis",), takes="any", shape="concatenated", mixes=True,
     numpy=lambda *values, **options: np.concatenate(values, options["axis"]))
_add("part", settings=("index",), takes="any", shape="part", mixes=True, numpy=lambda x, index: x[index_of(index)])
_add("eye", 0, settings=("size", "dtype"), shape="new", mixes=True,
     numpy=lambda size, dtype: np.eye(size, dtype=dtype))
_add("arange", 0, settings=("size", "dtype"), shape="new", mixes=True,
     numpy=lambda size, dtype: np.arange(size, dtype=dtype))
_add("qr eigh svd cholesky", shape="factored", mixes=True, numpy=lambda x: None)  # backends bring them: see LINALG
_add("solve", 2, shape="solved", mixes=True, numpy=lambda a, b: None)
_add("values_if", shape="old", numpy=lambda x: None)  # of new and old values, see rules/interpreter.py
# One of several results; "chosen" of `values_if`.
_add("item chosen", settings=("place",), shape="item", numpy=lambda several, place: several[place])

# {operation of numpy.linalg, which a backend may lack: how many results it has}
LINALG = {"qr": 2, "eigh": 2, "svd": 3, "cholesky": 1, "solve": 1}
_INNER = frozenset(["item", "chosen", "values_if"])  # rules never name it
# What rules may write after `ops.` on every backend, with NumPy's meaning: all but what Python's operators do.
NAMES = frozenset(
    name for name, each in TABLE.items()
    if name not in _INNER.union(LINALG) and (each.symbol is None or name in ("pow", "logical_and", "logical_or"))
) - frozenset(["negative", "part"])
OPERATORS = frozenset(TABLE) - NAMES - _INNER.union(LINALG)
REDUCTIONS = tuple(name for name, each in TABLE.items() if each.shape == "reduced")
# Operations that mix elements, so they are not computed element by element.
MIXING = frozenset(name for name, each in TABLE.items() if each.mixes)


def _norm(ops, x, axis=None, keepdims=False):
    square = ops.square(x)
    return ops.sqrt(ops.sum(square) if axis is None and not keepdims else ops.sum(square, axis=axis, keepdims=keepdims))


def _outer(ops, a, b):
    return ops.reshape(a, (-1, 1)) * ops.reshape(b, (1, -1))


# {name: function of the ops and the arguments}, for ops that are made of the ops above. Rules may use these, too.
COMPOSED = {  # type: dict[str, Any]
    "norm": _norm,
    "outer": _outer,
    "random_normal": counted_random.normal,
    "random_uniform": counted_random.uniform,
}
# The last number of a counter of each dtype. A float64 holds all counts, and t + 1 and the like do not overflow.
END = {"int64": 2**53, "int32": 2**31 - 2**16}


def composed(name, ops):
    """Returns an op of `COMPOSED`. It raises RuleError for arguments that it does not take."""
    function = COMPOSED[name]
    code, defaults = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[1 : code.co_argcount]
    needed = names[: len(names) - len(defaults)]

    def call(*args, **kwargs):
        given = names[: len(args)] + tuple(sorted(kwargs))
        is_right = len(args) <= len(names) and set(needed) <= set(given) <= set(names) and len(set(given)) == len(given)
        if not is_right:
            raise RuleError("ops.{} takes {}; got {}".format(
                name, ", ".join(names), ", ".join(["{} values".format(len(args))] + sorted(kwargs))))
        return function(ops, *args, **kwargs)

    return call


def unknown_op(name):
    """Returns the error for an op that does not exist."""
    return UnknownOpError("ops has no {!r}; it has: {}".format(name, ", ".join(sorted(NAMES.union(LINALG, COMPOSED)))))


def missing_op(name, owner):
    """Returns the error for an op of `LINALG` that a backend, by its name for people, lacks."""
    return UnsupportedError(
        "ops.{} does not exist on {}, which this optimizer is bound to: it has no such function. Use a newer version "
        "of it, or write the rule with ops.matmul alone".format(name, owner)
    )
