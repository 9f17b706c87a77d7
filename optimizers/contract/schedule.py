"""Schedules that decay, with or without a warm-up."""
from __future__ import absolute_import, division, print_function

import numpy as np

from everstep.errors import HyperTypeError, HyperValueError
from everstep.optimizers.contract.checks import check_number
from everstep.optimizers.contract.declarations import option
from everstep.optimizers.contract.schedule_base import Schedule, value_at


class InverseTimeDecay(Schedule):
    """Decays as initial / (1 + rate * updates).

    The `decay` argument of Keras 2 optimizers is this rate. Keras's InverseTimeDecay
    (https://keras.io/api/optimizers/learning_rate_schedules/inverse_time_decay/) has rate = decay_rate / decay_steps.

    Args:
        initial: the value at 0 updates. Default 0.001.
        rate: the growth of the divisor with each update, at least 0. Default 0: constant.

    >>> InverseTimeDecay(1e-2, rate=1e-3)(1000)
    0.005
    """

    initial = option(1e-3)
    rate = option(0.0, minimum=0.0)

    def value(self, ops, updates):
        return self.initial / (1 + self.rate * updates)


class ExponentialDecay(Schedule):
    """Decays as initial * rate^(updates / decay_steps).

    As in Keras: https://keras.io/api/optimizers/learning_rate_schedules/exponential_decay/.

    Args:
        initial: the value at 0 updates. Default 0.001.
        decay_steps: the number of updates in which the value is multiplied by `rate`. Default 1.
        rate: the factor, at least 0. Default 0.96.
        staircase: True to round the exponent down, so that the value changes only every `decay_steps` updates. Default
            False.

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
    """Decays as (initial - end) * (1 - updates / decay_steps)^power + end. After decay_steps updates it stays at `end`.

    As in Keras: https://keras.io/api/optimizers/learning_rate_schedules/polynomial_decay/.

    Args:
        initial: the value at 0 updates. Default 0.001.
        decay_steps: the number of updates until `end`. Default 1.
        end: the last value. Default 0.0001.
        power: the exponent, at least 0. Default 1: a line.
        cycle: True to replace decay_steps by its next multiple whenever it is reached, so that the value rises again.
            Default False.

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
    """Is values[0] while updates <= boundaries[0], then values[1] while updates <= boundaries[1], and so on.

    As in Keras: https://keras.io/api/optimizers/learning_rate_schedules/piecewise_constant_decay/.

    Args:
        boundaries: a tuple of increasing numbers of updates. Default (): constant.
        values: a tuple of values, one more than boundaries. Default (0.001,).

    >>> PiecewiseConstantDecay((2, 5), (1.0, 0.5, 0.1))(3)
    0.5
    """

    boundaries = option(())
    values = option((1e-3,))

    def _check(self):
        for name in ("boundaries", "values"):
            numbers = getattr(self, name)
            if not isinstance(numbers, tuple):
                raise HyperTypeError("{} are a tuple of numbers; got {!r}".format(name, numbers))
            for number in numbers:
                check_number("each of {}".format(name), number)
        if len(self.values) != len(self.boundaries) + 1:
            raise HyperValueError(
                "{} boundaries need {} values, one more; got {}".format(
                    len(self.boundaries), len(self.boundaries) + 1, len(self.values)
                )
            )
        if any(later <= earlier for earlier, later in zip(self.boundaries, self.boundaries[1:])):
            raise HyperValueError("boundaries must increase; got {!r}".format(self.boundaries))

    def value(self, ops, updates):
        result = self.values[0] + updates * 0
        for boundary, value in zip(self.boundaries, self.values[1:]):
            result = ops.where(updates > boundary, value, result)
        return result


class CosineDecay(Schedule):
    """Decays along half a cosine from `initial` to alpha * initial, then stays there.

    value = initial * (alpha + (1 - alpha) * (1 + cos(pi * updates / decay_steps)) / 2)

    This is SGDR without restarts: Loshchilov & Hutter 2017, https://arxiv.org/abs/1608.03983, equation 5. With
    warmup_target, the value first grows along a line from `initial` to warmup_target, in warmup_steps updates. Then the
    cosine starts from warmup_target, as in Keras:
    https://keras.io/api/optimizers/learning_rate_schedules/cosine_decay/.

    Args:
        initial: the value at 0 updates. Default 0.001.
        decay_steps: the number of updates of the cosine, without those of the warmup. Default 1.
        alpha: the last value, as a share of the value that the cosine starts from. Default 0.
        warmup_target: the value at the end of the warmup, at least 0. Default None: no warmup.
        warmup_steps: the number of updates of the warmup. Default 0.

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
    """Decays along half a cosine, again and again: SGDR.

    For cosine i = 0, 1, ..., which starts after start_i updates and takes steps_i = decay_steps * multiplier^i:
    value = initial * (alpha + (1 - alpha) * peak^i * (1 + cos(pi * (updates - start_i) / steps_i)) / 2)

    From Loshchilov & Hutter 2017, https://arxiv.org/abs/1608.03983, equation 5. The value depends on the number of
    updates alone, so a resumed run continues where it was.

    In Keras's schedule of this name (https://keras.io/api/optimizers/learning_rate_schedules/cosine_decay_restarts/)
    multiplier is t_mul, with default 2, and peak is m_mul. A cosine of keras-adamw is
    CosineDecay(learning_rate * eta_max, decay_steps=total_iterations - 1, alpha=eta_min / eta_max). Its last update has
    the lowest rate; the update after it starts a new cosine.

    Args:
        initial: the value at the start of the first cosine. Default 0.001.
        decay_steps: the number of updates of the first cosine. Default 1.
        multiplier: the length of each cosine relative to the one before, at least 1. Default 1.
        peak: the height of each cosine relative to the one before, at least 0. Default 1.
        alpha: the lowest value, as a share of `initial`. Default 0.
        done: the number of updates of the first cosine that count as done at 0 updates. Default 0.

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
        """Returns the number of the current cosine, and the number of updates after which it started.

        Args:
            ops: the operations, see `everstep.Definition`.
            updates: the number of updates so far, plus `done`: a single float.
        """
        if self.multiplier == 1:
            number = ops.floor(updates / self.decay_steps)
            return number, number * self.decay_steps
        growth = self.multiplier - 1

        def start(number):
            return self.decay_steps * (self.multiplier**number - 1) / growth

        # The logarithm and the powers are rounded, so the number they give may be off by one. The margin lets a cosine
        # start exactly at its first update.
        now = updates + 1e-3 + 1e-6 * updates
        number = ops.floor(ops.log(1 + updates * growth / self.decay_steps) / np.log(self.multiplier))
        number = ops.where(now >= start(number + 1), number + 1, number)
        number = ops.where(now < start(number), number - 1, number)
        return number, start(number)


class Warmup(Schedule):
    """Grows along a line from `start` to the first value of `of`, in `steps` updates. Then it is `of`.

    value = start + (of(0) - start) * updates / steps, while updates < steps

    As for BERT, a schedule in `of` counts updates from the first one, the warmup included. With `shift` it counts from
    the end of the warmup, so that the value does not jump there. `get_linear_schedule_with_warmup` of Transformers
    (https://huggingface.co/docs/transformers/main_classes/optimizer_schedules) is
    Warmup(PolynomialDecay(rate, decay_steps=all_updates - steps, end=0), steps, shift=True).

    Args:
        of: a number, another schedule, a native schedule or a function, as for `everstep.AsSchedule`. Default 0.001.
        steps: the number of updates of the warmup. Default 1.
        start: the value at 0 updates. Default 0.
        shift: True to start the other schedule after the warmup. Default False.

    >>> [Warmup(0.5, steps=4)(updates) for updates in (0, 1, 4, 9)]
    [0.0, 0.125, 0.5, 0.5]
    >>> Warmup(InverseTimeDecay(1.0, rate=1.0), steps=4, shift=True)(5)
    0.5
    """

    of = option(1e-3, schedule="any")
    steps = option(1.0, minimum=1e-30)
    start = option(0.0)
    shift = option(False)

    def value(self, ops, updates):
        first = value_at(self.of, ops, updates * 0)
        then = value_at(self.of, ops, ops.maximum(updates - self.steps, 0) if self.shift else updates)
        return ops.where(updates < self.steps, self.start + (first - self.start) * updates / self.steps, then)
