"""The (gradient, variable) pairs of a step, checked before anything is created or written.

A pair that does not fit raises here, in the call that brought it. Only what the values of a graph decide (the rows of a
sparse gradient, sizes that were unknown) fails later, when the graph runs; the step's writes then wait for that check.
"""
from __future__ import absolute_import, division, print_function

import numpy as np

from everstep.compat.engine.fitting import agree, is_known
from everstep.errors import GradientError, VariableError
from everstep.optimizers.contract.checks import SIXTEEN_BITS, compute_dtype, is_tensor

_FLOATS = SIXTEEN_BITS | frozenset(["float32", "float64"])


def as_list(values, error, needed):
    """Returns the values of an iterable, but not of a tensor, as a list.

    Args:
        error: the class to raise for anything else.
        needed: what should have been given, as the start of the message.
    """
    try:
        iterator = None if is_tensor(values) and not isinstance(values, np.ndarray) else iter(values)
    except TypeError:
        iterator = None
    if iterator is None:
        raise error("{}; got {!r}".format(needed, values))
    return list(iterator)


def as_pairs(grads_and_vars):
    """Returns a list of (gradient, variable) tuples. Raises GradientError for anything else."""
    pairs = as_list(grads_and_vars, GradientError, "a step takes a list of (gradient, variable) pairs")
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise GradientError("a step takes pairs of a gradient and its variable; got {!r}".format(pair))
    return [tuple(pair) for pair in pairs]


def with_gradients(pairs):
    """Returns the pairs that have a gradient."""
    return [pair for pair in pairs if pair[0] is not None]


def check_pairs(backend, pairs, any_float=False):
    """Returns all pairs, with gradients that were given as lists or NumPy arrays made values of the backend.

    Args:
        any_float: whether the API casts gradients of another precision, as Keras 3 does. The others raise.

    Raises:
        GradientError: no pair has a gradient, or one does not fit its variable.
        VariableError: a variable belongs to another graph.
    """
    pairs = as_pairs(pairs)
    if not with_gradients(pairs):
        names = ", ".join(str(getattr(v, "name", "array")) for _, v in pairs) or "an empty list was given"
        raise GradientError("no gradients provided for any variable: {}".format(names))
    return [(_checked(backend, grad, variable, any_float), variable) for grad, variable in pairs]


def check_rows(backend, pairs):
    """Returns all pairs. In a graph, their gradients fail when they do not fit the values of that run.

    Raises:
        GradientError: in eager code, a sparse gradient has a row that its variable lacks.
    """
    return [(backend.fitting(grad, variable, backend.name_of(variable)), variable) for grad, variable in pairs]


def _checked(backend, grad, variable, any_float):
    """Returns one gradient as a value of the backend; None for None."""
    if grad is None or backend.surely_fits(grad, variable):
        return grad
    name, dtype = backend.name_of(variable), backend.dtype(variable)
    if dtype not in _FLOATS:
        raise GradientError("{} is of dtype {}; only real floating-point variables are trained".format(name, dtype))
    if backend.is_foreign(variable):
        raise VariableError(
            "{} belongs to another graph than this call; make the call in the variable's own graph "
            "(with variable.graph.as_default())".format(name)
        )
    whole, grad = grad, _as_value(backend, grad, name, dtype)
    local = backend.local(grad)
    slices, expected = backend.slices(local), backend.shape(variable)
    if backend.eager and not is_known(expected):
        expected = backend.shape(backend.read(variable))
    if slices and expected == ():
        raise GradientError("{} is a single number and has no rows for a sparse gradient".format(name))
    values = slices[0] if slices else local
    _check_dtype(backend, values, name, dtype, any_float)
    if any(backend.is_foreign(part) for part in slices or [local]):
        raise GradientError(
            "the gradient of {} belongs to another graph than this call, or to none: {!r}".format(name, whole)
        )
    actual = backend.shape(values)
    if slices:
        _check_indices(backend, values, slices[1], name)
        actual, expected = (shape and shape[1:] for shape in (actual, expected))
    if not agree(actual, expected):
        raise GradientError(
            "the gradient of {} has {} of shape {}; the variable needs {}".format(
                name, "rows" if slices else "values", tuple(actual), expected
            )
        )
    return grad


def _as_value(backend, grad, name, dtype):
    local = backend.local(grad)
    slices = backend.slices(local)
    if slices is None:
        value = backend.gradient(local, dtype)
        if value is None:
            raise GradientError(
                "the gradient of {} is {!r}; needed is a tensor, a list or array of numbers, or IndexedSlices of the "
                "module that is trained with".format(name, grad)
            )
        return value if local is grad else grad  # one value for each replica
    values, indices = slices
    if all(is_tensor(part) and not isinstance(part, np.ndarray) for part in slices):
        return grad
    values, sparse = backend.gradient(values, dtype), None
    if values is not None:
        sparse = backend.sparse(values, indices, grad)
    if sparse is None:
        raise GradientError(
            "the sparse gradient of {} needs real numbers as values and a vector of whole numbers as indices; got "
            "{!r}".format(name, grad)
        )
    return sparse


def _check_dtype(backend, values, name, dtype, any_float):
    try:
        actual = backend.dtype(values)
    except ValueError:  # Keras 3 has no name for complex dtypes
        actual = str(values.dtype)
    if actual == dtype or actual in _FLOATS and (any_float or actual == compute_dtype(dtype)):
        return
    raise GradientError(
        "the gradient of {0} is of dtype {1}; the variable needs {2}. {3}".format(
            name, actual, dtype, "Cast it" if actual in _FLOATS else "Gradients are real numbers"
        )
    )


def _check_indices(backend, values, indices, name):
    if backend.dtype(indices) not in ("int32", "int64"):
        raise GradientError(
            "the row numbers (indices) of the sparse gradient of {} are of dtype {}; needed is int32 or int64".format(
                name, backend.dtype(indices)
            )
        )
    counts, shape = backend.shape(indices), backend.shape(values)
    if counts is not None and len(counts) != 1:
        raise GradientError(
            "the row numbers (indices) of the sparse gradient of {} are a vector; got shape {}".format(name, counts)
        )
    if counts is not None and shape is not None and not agree(counts, shape[:1]):
        raise GradientError(
            "the sparse gradient of {} has {} row numbers and values of shape {}; needed is one row for each".format(
                name, counts[0], shape
            )
        )
