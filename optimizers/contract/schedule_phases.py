"""Schedules with phases or periods: one cycle, cycles, warm-up and decay as papers have them, and holding a value."""
from __future__ import absolute_import, division, print_function

import numpy as np

from everstep.errors import HyperValueError
from everstep.optimizers.contract.declarations import option
from everstep.optimizers.contract.schedule_base import Schedule, value_at

_FALLS = {  # a part of a fall, from 0 to 1: what is left of its height
    "linear": lambda ops, part: 1 - part,
    "cosine": lambda ops, part: 0.5 * (1 + ops.cos(np.pi * part)),
    "sqrt": lambda ops, part: 1 - ops.sqrt(part),
}


class OneCycle(Schedule):
    """Rises from peak / start_divisor to `peak`, then falls to almost 0: the 1cycle policy.

    rise: from start = peak / start_divisor to peak, in `rise` updates
    fall: from peak to end = start / end_divisor, until `steps` updates. Then the value stays at `end`.
    With three_phases, it falls back to `start` in `rise` updates, then to `end`.

    From Smith & Topin 2017, https://arxiv.org/abs/1708.07120, section 2, with the cosines of fastai. OneCycleLR of
    PyTorch (https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.OneCycleLR.html) with max_lr,
    total_steps and pct_start is OneCycle(max_lr, steps=total_steps - 1, rise=pct_start * total_steps - 1). optax's
    cosine_onecycle_schedule(transition_steps, peak_value, pct_start) is
    OneCycle(peak_value, steps=transition_steps, rise=int(pct_start * transition_steps)). PyTorch's cycle of the
    momentum is the same with divisors below 1: OneCycle(0.85, steps, rise, start_divisor=0.85 / 0.95, end_divisor=1.0).

    Args:
        peak: the highest value. Default 0.001.
        steps: the number of updates until `end`. Default 1.
        rise: the number of updates of the rise, less than `steps`; with three_phases less than half of it. Default
            None: 0.3 * steps.
        start_divisor: what `peak` is divided by at 0 updates, more than 0. Default 25.
        end_divisor: what the first value is divided by at the end, more than 0. Default 10000.
        shape: "cosine" or "linear". Default "cosine".
        three_phases: True to fall in two phases. Default False.

    >>> schedule = OneCycle(1.0, steps=10, rise=4, shape="linear")
    >>> [round(schedule(updates), 3) for updates in (0, 2, 4, 7, 10)]
    [0.04, 0.52, 1.0, 0.5, 0.0]
    """

    peak = option(1e-3)
    steps = option(1.0, minimum=1e-30)
    rise = option(None, minimum=1e-30)
    start_divisor = option(25.0, minimum=1e-30)
    end_divisor = option(1e4, minimum=1e-30)
    shape = option("cosine", choices=("cosine", "linear"))
    three_phases = option(False)

    def _check(self):
        if self._rise() * (2 if self.three_phases else 1) >= self.steps:
            raise HyperValueError(
                "the rise of {} updates leaves nothing of {} steps to fall in; give fewer".format(
                    self._rise(), self.steps
                )
            )

    def value(self, ops, updates):
        start = self.peak / self.start_divisor
        ends, values = [self._rise(), self.steps], [start, self.peak, start / self.end_divisor]
        if self.three_phases:
            ends, values = [ends[0], 2 * ends[0], ends[1]], [start, self.peak, start, values[-1]]
        begins = [0] + ends[:-1]
        result = values[-1] + updates * 0
        for begin, end, first, last in reversed(list(zip(begins, ends, values, values[1:]))):
            left = _FALLS[self.shape](ops, _part(ops, updates, begin, end - begin))
            result = ops.where(updates < end, last + (first - last) * left, result)
        return result

    def _rise(self):
        return 0.3 * self.steps if self.rise is None else self.rise


class Cyclical(Schedule):
    """Goes up from `low` to `high` and down again along lines, again and again.

    With part = 0 at the start of a cycle, 1 at its top and 0 at its end, and cycle = 0, 1, 2, ...:
    "triangular":  value = low + (high - low) * part
    "triangular2": value = low + (high - low) * part / 2^cycle
    "exp_range":   value = low + (high - low) * part * rate^updates

    From Smith 2015, https://arxiv.org/abs/1506.01186, section 3. CyclicLR of PyTorch
    (https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.CyclicLR.html) is this with base_lr,
    max_lr, step_size_up, step_size_down, mode, gamma. In TensorFlow Addons' ExponentialCyclicalLearningRate the
    power is that of the cycle from 1 on, unless scale_mode="iterations".

    Args:
        low: the lowest value. Default 0.0001.
        high: the highest value. Default 0.001.
        rise: the number of updates from `low` to `high`. Default 2000.
        fall: the number of updates from `high` to `low`. Default None: as many.
        mode: "triangular", "triangular2" or "exp_range". Default "triangular".
        rate: the factor of each update with "exp_range", 0 to 1. Default 1.

    >>> schedule = Cyclical(0.0, 1.0, rise=2, mode="triangular2")
    >>> [schedule(updates) for updates in range(7)]
    [0.0, 0.5, 1.0, 0.5, 0.0, 0.25, 0.5]
    """

    low = option(1e-4)
    high = option(1e-3)
    rise = option(2000.0, minimum=1e-30)
    fall = option(None, minimum=1e-30)
    mode = option("triangular", choices=("triangular", "triangular2", "exp_range"))
    rate = option(1.0, minimum=0, maximum=1)

    def value(self, ops, updates):
        fall = self.rise if self.fall is None else self.fall
        period = self.rise + fall
        at = updates % period
        height = (self.high - self.low) * ops.minimum(at / self.rise, (period - at) / fall)
        if self.mode == "triangular2":
            height = height * 0.5 ** ops.floor(updates / period)
        if self.mode == "exp_range":
            height = height * self.rate**updates
        return self.low + height


class Noam(Schedule):
    """Grows along a line for `warmup` updates, then decays as the inverse square root: the Transformer's schedule.

    value = factor * model_size^-0.5 * min(t^-0.5, t * warmup^-1.5), where t = updates + 1

    From Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, equation 3. The CustomSchedule of TensorFlow's
    Transformer tutorial has t = updates in its first version.

    Args:
        factor: the factor of all values. Default 1.
        model_size: the width of the model, at least 1. Default 512.
        warmup: the number of updates of the growth, at least 1. Default 4000.

    >>> schedule = Noam(model_size=4, warmup=4)
    >>> [schedule(updates) for updates in (0, 3, 15)]
    [0.0625, 0.25, 0.125]
    """

    factor = option(1.0)
    model_size = option(512.0, minimum=1)
    warmup = option(4000.0, minimum=1)

    def value(self, ops, updates):
        t = updates + 1
        return self.factor * self.model_size**-0.5 * ops.minimum(1 / ops.sqrt(t), t * self.warmup**-1.5)


class InverseSquareRoot(Schedule):
    """Stays at `initial` for `steps` updates, then decays as initial * sqrt(steps / updates).

    From Raffel et al. 2019, https://arxiv.org/abs/1910.10683, section 3.1.2. T5 has 10,000 steps and the initial value
    1 / sqrt(10000). `inverse_sqrt` of fairseq and `get_inverse_sqrt_schedule` of Transformers
    (https://huggingface.co/docs/transformers/main_classes/optimizer_schedules) with num_warmup_steps=n are
    Warmup(InverseSquareRoot(rate, steps=n), steps=n).

    Args:
        initial: the first value. Default 0.001.
        steps: the number of updates until the decay. Default 10000.

    >>> [InverseSquareRoot(1.0, steps=4)(updates) for updates in (0, 4, 16)]
    [1.0, 1.0, 0.5]
    """

    initial = option(1e-3)
    steps = option(10000.0, minimum=1e-30)

    def value(self, ops, updates):
        return self.initial * ops.sqrt(self.steps / ops.maximum(updates, self.steps))


class WarmupStableDecay(Schedule):
    """Warms up along a line, stays at `peak`, then decays to `end`: WSD, the trapezoid.

    From `start` to `peak` in `warmup` updates; `peak` for `stable` updates; to `end` in `fall` updates. Then it stays
    at `end`. With part = 0 to 1 of the fall, value = end + (peak - end) * left:
    "linear": left = 1 - part;  "cosine": left = (1 + cos(pi * part)) / 2;  "sqrt": left = 1 - sqrt(part)

    From Hu et al. 2024, https://arxiv.org/abs/2404.06395, section 4. "sqrt" is the cooldown of Haegele et al. 2024,
    https://arxiv.org/abs/2405.18392, equation 1. `get_wsd_schedule` of Transformers
    (https://huggingface.co/docs/transformers/main_classes/optimizer_schedules) is
    WarmupStableDecay(rate, num_warmup_steps, num_stable_steps, num_decay_steps, end=min_lr_ratio * rate,
    shape="cosine"). For the exponential decay of MiniCPM, multiply by an `ExponentialDecay` with staircase=False.

    Args:
        peak: the highest value. Default 0.001.
        warmup: the number of updates of the warmup. Default 0.
        stable: the number of updates at `peak`. Default 0.
        fall: the number of updates of the decay. Default 1.
        start: the value at 0 updates. Default 0.
        end: the last value. Default 0.
        shape: "linear", "cosine" or "sqrt". Default "linear".

    >>> schedule = WarmupStableDecay(1.0, warmup=4, stable=10, fall=2)
    >>> [schedule(updates) for updates in (0, 1, 4, 14, 15, 16)]
    [0.0, 0.25, 1.0, 1.0, 0.5, 0.0]
    """

    peak = option(1e-3)
    warmup = option(0.0, minimum=0)
    stable = option(0.0, minimum=0)
    fall = option(1.0, minimum=1e-30)
    start = option(0.0)
    end = option(0.0)
    shape = option("linear", choices=("linear", "cosine", "sqrt"))

    def value(self, ops, updates):
        left = _FALLS[self.shape](ops, _part(ops, updates, self.warmup + self.stable, self.fall))
        decayed = self.end + (self.peak - self.end) * left
        if not self.warmup:
            return decayed
        rising = self.start + (self.peak - self.start) * updates / self.warmup
        return ops.where(updates < self.warmup, rising, decayed)


class Hold(Schedule):
    """Follows another schedule for `after` updates, then holds the value that it has there.

    Args:
        of: what to follow: what `everstep.AsSchedule` takes. Default 0.001.
        after: the number of updates after which the value stays. Default 1.

    >>> import everstep
    >>> schedule = Hold(everstep.PolynomialDecay(1.0, decay_steps=10, end=0.0), after=4)
    >>> [schedule(updates) for updates in (0, 2, 4, 9)]
    [1.0, 0.8, 0.6, 0.6]
    """

    of = option(1e-3, schedule="any")
    after = option(1.0, minimum=0)

    def value(self, ops, updates):
        return value_at(self.of, ops, ops.minimum(updates, self.after))


def _part(ops, updates, begin, steps):
    """Returns what part of a phase is over, 0 to 1."""
    return ops.minimum(ops.maximum(updates - begin, 0), steps) / steps
