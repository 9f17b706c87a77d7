"""The base class of schedules: hypers that change with the number of updates, the same on every target.

Schedules can be combined, and can have schedules of a framework and functions in them.
"""
from __future__ import absolute_import, division, print_function

import numbers

import numpy as np

from everstep.errors import HyperTypeError, HyperValueError, RuleError, UnsupportedError
from everstep.optimizers.contract.binder import binder
from everstep.optimizers.contract.checks import is_native_schedule as is_native
from everstep.optimizers.contract.configured import Configured
from everstep.optimizers.contract.declarations import option

_OF_VARIABLES = frozenset(["assign", "dtype", "eval", "numpy"])  # what Keras's get_value and set_value read
_SIGNS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}
_COMPUTED = {
    "add": lambda ops, left, right: left + right,
    "subtract": lambda ops, left, right: left - right,
    "multiply": lambda ops, left, right: left * right,
    "divide": lambda ops, left, right: left / right,
    "minimum": lambda ops, left, right: ops.minimum(left, right),
    "maximum": lambda ops, left, right: ops.maximum(left, right),
}


def value_at(given, ops, updates):
    """Returns the value of a number, a schedule, a native schedule or a function at a number of updates.

    Args:
        given: what `everstep.AsSchedule` takes.
        ops: the operations of `Schedule.value`.
        updates: the number of updates so far.

    Raises:
        HyperTypeError: the function fails, or returns no number.
    """
    if isinstance(given, Schedule):
        return given.value(ops, updates)
    if is_native(given):
        return ops.native_schedule(given, updates)
    return _called(given, updates) if callable(given) else given


def at_present(given, ops, hyper):
    """Returns the value of an option that is a number or a schedule, inside of a rule.

    Args:
        given: the option's value.
        ops, hyper: what a verb gets.
    """
    return given.value(ops, hyper.updates) if isinstance(given, Schedule) else given


def _called(function, updates):
    try:
        value = function(updates)
    except Exception as error:  # the user's code; what it raises varies
        found = "{} fails: {}: {}".format(function, type(error).__name__, error)
    else:
        if isinstance(value, (numbers.Real, type(updates))):
            return value
        found = "{} returns {!r}".format(function, value)
    raise HyperTypeError(
        "{}. A function that stands in a schedule takes the number of updates so far and returns a number. It runs "
        "once for all steps and on every API, so it can use Python's operators, but neither `if` nor functions of "
        "NumPy or a framework: for those, write a subclass of everstep.Schedule".format(found)
    )


class Schedule(Configured):
    """Base class of schedules: a hyper's value as a function of the number of updates so far.

    A subclass declares its settings as options and defines `value`. The definition evaluates the schedule at each step.
    It counts updates, not steps: with `accumulate` there are fewer. Calling a schedule evaluates it with NumPy and
    returns a float:

    >>> import everstep
    >>> class Halving(everstep.Schedule):
    ...     initial = everstep.option(0.1)
    ...     def value(self, ops, updates):
    ...         return self.initial * 0.5**updates
    >>> Halving(1.0)(2)
    0.25
    >>> everstep.optimizers.SGD(Halving(1.0)).learning_rate
    Halving(initial=1.0)

    Schedules can be added, subtracted, multiplied and divided: with each other, with numbers, and with all else that
    `everstep.AsSchedule` takes. The result is a schedule.

    >>> rate = 0.5 * Halving(1.0) + 0.25
    >>> rate, rate(1)
    ((0.5 * Halving(initial=1.0)) + 0.25, 0.5)
    >>> rate.at_least(0.5)(9)
    0.5

    Args: the options that the subclass declares, in the order of the class body.

    Raises:
        DefinitionError: an argument is missing or unknown.
        HyperTypeError: an argument is of the wrong type.
        HyperValueError: an argument is outside of its bounds.
    """

    kind = "schedule"
    verbs = ("value",)
    __array_ufunc__ = None  # so that a NumPy number on the left leaves the operation to the schedule

    def value(self, ops, updates):
        """Returns the value for the next update. A subclass must define it.

        Args:
            ops: the operations, see `everstep.Definition`.
            updates: the number of updates so far, from 0.0: a single float, which knows its integer: see `t` of
                `everstep.Definition`.

        Returns:
            A single float.

        Raises:
            RuleError: the class does not define it.
        """
        raise RuleError("{} must define value(self, ops, updates)".format(type(self).__name__))

    def __getattr__(self, name):
        message = "{} has no attribute {!r}".format(type(self).__name__, name)
        if name in _OF_VARIABLES:
            message += "; it is a schedule, which sets the value at every step, not a variable to read or set"
        raise AttributeError(message)

    def __call__(self, updates):
        """Returns the value after a number of updates, as a float."""
        return float(self.value(binder.numpy_ops, np.float64(updates)))

    def __add__(self, other):
        return _combined("add", self, other)

    def __radd__(self, other):
        return _combined("add", other, self)

    def __sub__(self, other):
        return _combined("subtract", self, other)

    def __rsub__(self, other):
        return _combined("subtract", other, self)

    def __mul__(self, other):
        return _combined("multiply", self, other)

    def __rmul__(self, other):
        return _combined("multiply", other, self)

    def __truediv__(self, other):
        return _combined("divide", self, other)

    def __rtruediv__(self, other):
        return _combined("divide", other, self)

    __div__, __rdiv__ = __truediv__, __rtruediv__  # of Python 2

    def __neg__(self):
        return Combined("multiply", -1.0, self)

    def at_least(self, lowest):
        """Returns this schedule with its values raised to a lowest one.

        Args:
            lowest: a number, or what `everstep.AsSchedule` takes.
        """
        return Combined("maximum", self, lowest)

    def at_most(self, highest):
        """Returns this schedule with its values lowered to a highest one.

        Args:
            highest: a number, or what `everstep.AsSchedule` takes.
        """
        return Combined("minimum", self, highest)

    def _natives(self):
        """Returns the schedules of a framework in this one, a list. Only that framework's optimizers can take it."""
        found = []
        for value in self._values.values():
            found += value._natives() if isinstance(value, Schedule) else [value] if is_native(value) else []
        return found

    def _is_whole(self):
        return not self._natives() and all(
            value._is_whole() if isinstance(value, Schedule) else not callable(value) for value in self._values.values()
        )

    def _structure(self):
        """Returns what selects the maths: the classes of this schedule and of those in it, and functions' code."""
        parts = [value._structure() if isinstance(value, Schedule) else getattr(value, "__code__", None)
                 for value in self._values.values()]
        return type(self).serial, tuple(parts)

    def plot(self, updates=1000, axes=None, **line):
        """Draws the values with matplotlib, which must be installed.

        Args:
            updates: the number of updates to draw, an int. Default 1000.
            axes: the matplotlib axes to draw on. Default: `matplotlib.pyplot.gca()`.
            **line: keywords of `axes.plot`, such as label.

        Returns:
            The axes.

        Raises:
            HyperValueError: `updates` is less than 1.
            UnsupportedError: matplotlib is not installed.
        """
        if updates < 1:
            raise HyperValueError("updates must be at least 1, the number of updates to draw; got {!r}".format(updates))
        if axes is None:
            try:
                from matplotlib import pyplot
            except ImportError as error:
                raise UnsupportedError(
                    "plot draws with matplotlib, which cannot be imported ({}): python -m pip install matplotlib, or "
                    "call the schedule with a number of updates".format(error)
                )
            axes = pyplot.gca()
        places = sorted({int(place) for place in np.linspace(0, updates, 1001)})
        axes.plot(places, [self(place) for place in places], **dict({"label": repr(self)}, **line))
        axes.set_xlabel("updates")
        return axes


def _combined(operation, left, right):
    other = right if isinstance(left, Schedule) else left
    known = isinstance(other, numbers.Real) or callable(other)
    return Combined(operation, left, right) if known else NotImplemented


class Combined(Schedule):
    """Combines two schedules, or a schedule and a number: what `0.5 * schedule` and `schedule.at_least(x)` return.

    Args:
        operation: "add", "subtract", "multiply", "divide", "minimum" or "maximum".
        left: the first of both: a number, or what `everstep.AsSchedule` takes. Default 0.
        right: the second, likewise. Default 0.

    >>> AsSchedule(0.5) - 0.25
    AsSchedule(of=0.5) - 0.25
    """

    operation = option("add", choices=tuple(sorted(_COMPUTED)))
    left = option(0.0, schedule="any")
    right = option(0.0, schedule="any")

    def value(self, ops, updates):
        left, right = value_at(self.left, ops, updates), value_at(self.right, ops, updates)
        return _COMPUTED[self.operation](ops, left, right)

    def _short(self):
        texts = [each._short() if isinstance(each, Schedule) else repr(each) for each in (self.left, self.right)]
        left, right = [
            "({})".format(text) if isinstance(each, Combined) and each.operation in _SIGNS else text
            for each, text in zip((self.left, self.right), texts)
        ]
        if self.operation in _SIGNS:
            return "{} {} {}".format(left, _SIGNS[self.operation], right)
        return "{}.{}({})".format(left, "at_least" if self.operation == "maximum" else "at_most", texts[1])


class AsSchedule(Schedule):
    """Makes a schedule of a native schedule or of a function, so that it can be combined.

    A native schedule, such as `tf.keras.optimizers.schedules.CosineDecay(0.1, 1000)`, keeps its own meaning and is
    called with the number of updates. An optimizer of another API refuses it when it is bound, and so do options of
    wrappers, such as the bound of `everstep.clip`. A function takes the number of updates and returns a number. It
    works on every API, and can use Python's operators alone, because it runs before there are numbers. A config cannot
    hold it.

    Args:
        of: a native schedule, a function, another schedule or a number. Default 0.001.

    >>> rate = 0.5 * AsSchedule(lambda step: 0.1 * 0.5**step)
    >>> rate(2)
    0.0125
    """

    of = option(1e-3, schedule="any")

    def value(self, ops, updates):
        return value_at(self.of, ops, updates) + updates * 0
