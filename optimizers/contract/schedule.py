"""Hypers that change with the number of updates, the same object on every target."""
from __future__ import absolute_import, division, print_function

import numpy as np

from everstep.errors import RuleError
from everstep.optimizers.contract.binder import binder
from everstep.optimizers.contract.configured import Configured
from everstep.optimizers.contract.declarations import option

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
        return float(self.value(binder.numpy_ops, np.float64(updates)))


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


class CosineDecayRestarts(Schedule):
    """Cosines from `initial` to `alpha * initial`, one after the other: SGDR.

    As in Loshchilov & Hutter 2017, arXiv:1608.03983, equation 5. The first takes `decay_steps` updates, each other
    `multiplier` times as many as the one before, and starts at `peak` times its start. It is a function of the number
    of updates, so that a run that is resumed is where it was.

    TensorFlow's schedule of this name has t_mul for multiplier and m_mul for peak; there multiplier is 2. A cosine of
    keras-adamw is CosineDecay with decay_steps of its total_iterations - 1, initial of the rate times eta_max and alpha
    of eta_min / eta_max: its last update has the least rate, and the one after it starts anew.

    Args:
        initial: the value at first.
        decay_steps: number of updates of the first cosine.
        multiplier: at least 1; 1.
        peak: 1.
        alpha: 0.
        done: number of updates by which the first cosine has gone on at the first of them; 0.

    >>> schedule = CosineDecayRestarts(1.0, decay_steps=10, multiplier=2.0)
    >>> [round(schedule(updates), 3) for updates in (0, 5, 10, 20, 30)]
    [1.0, 0.5, 1.0, 0.5, 1.0]
    """

    initial = option(1e-3)
    decay_steps = option(1.0, minimum=1e-30)
    multiplier = option(1.0, minimum=1)
    peak = option(1.0, minimum=0)
    alpha = option(0.0)
    done = option(0, minimum=0)

    def value(self, ops, updates):
        number, start = self.cycle(ops, updates + self.done)
        part = (updates + self.done - start) / (self.decay_steps * self.multiplier**number)
        part = ops.minimum(ops.maximum(part, 0), 1)
        return self.initial * ((1 - self.alpha) * self.peak**number * 0.5 * (1 + ops.cos(np.pi * part)) + self.alpha)

    def cycle(self, ops, updates):
        """(which cosine, after how many updates it started)"""
        if self.multiplier == 1:
            number = ops.floor(updates / self.decay_steps)
            return number, number * self.decay_steps
        growth = self.multiplier - 1

        def start(number):
            return self.decay_steps * (self.multiplier**number - 1) / growth

        # Logarithms and powers are of rounded numbers, but a cosine starts at its first update all the same.
        now = updates + 1e-3 + 1e-6 * updates
        number = ops.floor(ops.log(1 + updates * growth / self.decay_steps) / np.log(self.multiplier))
        number = ops.where(now >= start(number + 1), number + 1, number)
        number = ops.where(now < start(number), number - 1, number)
        return number, start(number)


class Warmup(Schedule):
    """A line from `start` to what `of` has at first, in `steps` updates, and then `of`: a number or another schedule.

    The other schedule counts from the first update, as BERT's does, or with `shift` from the end of the line, so that
    there is no jump: `get_linear_schedule_with_warmup` of Transformers is Warmup(PolynomialDecay(rate, decay_steps=all
    updates - steps, end=0), steps, shift=True).

    >>> [Warmup(0.5, steps=4)(updates) for updates in (0, 1, 4, 9)]
    [0.0, 0.125, 0.5, 0.5]
    >>> Warmup(InverseTimeDecay(1.0, rate=1.0), steps=4, shift=True)(5)
    0.5
    """

    of = option(1e-3, schedule=True)
    steps = option(1.0, minimum=1e-30)
    start = option(0.0)
    shift = option(False)

    def value(self, ops, updates):
        first, then = self.of, self.of
        if isinstance(self.of, Schedule):
            first = self.of.value(ops, updates * 0)
            then = self.of.value(ops, ops.maximum(updates - self.steps, 0) if self.shift else updates)
        return ops.where(updates < self.steps, self.start + (first - self.start) * updates / self.steps, then)
