"""Hypers that change with the number of updates, the same object on every target."""
from __future__ import absolute_import, division, print_function

import numpy as np

from everstep.errors import RuleError
from everstep.optimizers.configured import Configured
from everstep.optimizers.declarations import option

_OF_VARIABLES = frozenset(["assign", "dtype", "eval", "numpy"])  # what Keras's get_value and set_value ask for


class Schedule(Configured):
    """A hyper's value as a function of the number of updates done so far.

    Subclass it, declare its settings as options and write `value(ops, updates)`: pure maths on a scalar that
    counts from 0.0, in the ops of the table. Calling a schedule evaluates it with NumPy:

    >>> import everstep
    >>> everstep.InverseTimeDecay(0.1, rate=0.5)(2)
    0.05
    """

    kind = "schedule"
    verbs = ("value",)

    def value(self, ops, updates):
        raise RuleError("{} must define value(self, ops, updates)".format(type(self).__name__))

    def __getattr__(self, name):
        message = "{} has no attribute {!r}".format(type(self).__name__, name)
        if name in _OF_VARIABLES:
            message += "; it is a schedule, which decides the value at every step, and no variable to read or set"
        raise AttributeError(message)

    def __call__(self, updates):
        from everstep.compat.ops import numpy_ops

        return float(self.value(numpy_ops, np.float64(updates)))


class InverseTimeDecay(Schedule):
    """`initial / (1 + rate * updates)`: what the `decay` argument of Keras 2.x optimizers does.

    >>> InverseTimeDecay(1e-2, rate=1e-3)(1000)
    0.005
    """

    initial = option(1e-3)
    rate = option(0.0, minimum=0.0)

    def value(self, ops, updates):
        return self.initial / (1 + self.rate * updates)
