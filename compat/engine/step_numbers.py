"""Step-wide values as Python numbers, where no tensor of one element is needed for them."""
from __future__ import absolute_import, division, print_function

import operator

import numpy as np

from everstep.compat.rules.expressions import leaves_of
from everstep.compat.rules.operations import TABLE

_OPERATORS = {  # of NumPy's numbers, which take a fifth of the time of its functions
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv,
    "floor_divide": operator.floordiv, "remainder": operator.mod, "pow": operator.pow, "negative": operator.neg,
    "less": operator.lt, "less_equal": operator.le, "greater": operator.gt, "greater_equal": operator.ge,
}


class StepNumbers(object):
    """Computes step-wide values in float64, and whole numbers in their dtype. Equal leaves are computed once.

    Args:
        values: the values.
    """

    def __init__(self, values):
        self.values = list(values)
        self.leaves = sorted(set().union(*map(leaves_of, self.values)), key=lambda leaf: repr(leaf.leaf))
        self._places, self._constants, self._steps = {leaf: place for place, leaf in enumerate(self.leaves)}, [], []
        for value in self.values:
            self._plan(value)
        self._results = [self._places[value] for value in self.values]
        self._types = [_type_of(leaf.dtype) for leaf in self.leaves]
        self._last, self._numbers = None, None

    def _plan(self, value):
        if value in self._places:
            return
        if value.op == "constant":
            self._constants.append((len(self._places), _type_of(value.dtype)(value.options["number"])))
        else:
            for arg in value.args:
                self._plan(arg)
            self._steps.append((len(self._places), _function(value), [self._places[arg] for arg in value.args]))
        self._places[value] = len(self._places)

    def of(self, read):
        """Returns the numbers. None for those that are made of a leaf for which `read(leaf)` is None."""
        leaves = [read(leaf) for leaf in self.leaves]
        if leaves != self._last:
            with np.errstate(all="ignore"):
                numbers = self._computed(leaves)
            self._last, self._numbers = leaves, [_python(numbers[place]) for place in self._results]
        return self._numbers

    def _computed(self, leaves):
        numbers = [None] * len(self._places)
        for place, (number, to) in enumerate(zip(leaves, self._types)):
            numbers[place] = None if number is None else to(number)
        for place, number in self._constants:
            numbers[place] = number
        for place, function, operands in self._steps:
            values = [numbers[operand] for operand in operands]
            if not any(value is None for value in values):
                numbers[place] = function(*values)
        return numbers


def _type_of(dtype):
    """Returns the type of NumPy that computes in a dtype: the widest for floats."""
    return np.dtype(dtype).type if dtype in ("bool", "int32", "int64", "uint32") else np.float64


def _function(value):
    if value.op == "cast":
        return _type_of(value.dtype)
    function, options = TABLE[value.op].numpy, value.options
    return _OPERATORS.get(value.op, function) if not options else lambda *values: function(*values, **options)


def _python(number):
    return None if number is None else number.item()
