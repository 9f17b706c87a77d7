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


class ExponentialDecay(Schedule):
    """`initial * rate ** (updates / decay_steps)`, the exponent rounded down with `staircase`.

    >>> ExponentialDecay(1.0, decay_steps=10, rate=0.5, staircase=True)(25)
    0.25
    """

    initial = option(1e-3)
    decay_steps = option(1.0, minimum=1e-30)
    rate = option(0.96, minimum=0.0)
    staircase = option(False)

    def value(self, ops, updates):
        decays = updates / self.decay_steps
        return self.initial * self.rate ** (ops.floor(decays) if self.staircase else decays)


class PolynomialDecay(Schedule):
    """`(initial - end) * (1 - updates / decay_steps) ** power + end`, then `end`.

    With `cycle`, decay_steps grows to its next multiple whenever it is reached.

    >>> PolynomialDecay(1.0, decay_steps=10, end=0.0)(4)
    0.6
    """

    initial = option(1e-3)
    decay_steps = option(1.0, minimum=1e-30)
    end = option(1e-4)
    power = option(1.0, minimum=0.0)
    cycle = option(False)

    def value(self, ops, updates):
        if self.cycle:
            cycles = ops.maximum(-ops.floor(-updates / self.decay_steps), 1)
            part = updates / (self.decay_steps * cycles)
        else:
            part = ops.minimum(updates, self.decay_steps) / self.decay_steps
        return (self.initial - self.end) * (1 - part) ** self.power + self.end


class PiecewiseConstantDecay(Schedule):
    """`values[0]` up to `boundaries[0]` updates, that one included, `values[1]` up to the next, and so on.

    >>> PiecewiseConstantDecay((2, 5), (1.0, 0.5, 0.1))(3)
    0.5
    """

    boundaries = option(())
    values = option((1e-3,))

    def value(self, ops, updates):
        found = self.values[0] + updates * 0
        for boundary, value in zip(self.boundaries, self.values[1:]):
            found = ops.where(updates > boundary, value, found)
        return found


class CosineDecay(Schedule):
    """Half a cosine from `initial` to `alpha * initial` (Loshchilov & Hutter 2017, arXiv:1608.03983, equation 5).

    With warmup_steps, first a line from `initial` to `warmup_target`, which the cosine then starts from.

    >>> round(CosineDecay(1.0, decay_steps=10)(5), 6)
    0.5
    """

    initial = option(1e-3)
    decay_steps = option(1.0, minimum=1e-30)
    alpha = option(0.0)
    warmup_target = option(None, minimum=0)
    warmup_steps = option(0.0, minimum=0)

    def value(self, ops, updates):
        top = self.initial if self.warmup_target is None else self.warmup_target
        warmup = self.warmup_steps if self.warmup_target is not None else 0
        part = ops.minimum(ops.maximum(updates - warmup, 0), self.decay_steps) / self.decay_steps
        decayed = top * ((1 - self.alpha) * 0.5 * (1 + ops.cos(np.pi * part)) + self.alpha)
        if not warmup:
            return decayed
        return ops.where(updates < warmup, self.initial + (top - self.initial) * updates / warmup, decayed)
