"""Exponential moving averages of the variables."""
from __future__ import absolute_import, division, print_function

from everstep.errors import RuleError
from everstep.optimizers.contract import VARIABLE, Averages, Wrapper, assign, decayed, geometric, hyper, option, slot


class MovingAverage(Averages, Wrapper):
    """Keeps a moving average of what `inner` makes of a variable: `everstep.moving_average`.

    average := decay * average + (1 - decay) * variable, after each update, from the variable's first value on, where
    decay is, n updates after the first `start` ones,

    warm_up="none": average_decay
    warm_up="ramp": min(average_decay, (1 + n) / (10 + n))
    warm_up="zero_debias": such that the average is that of an average from 0 on, divided by 1 - average_decay^(n + 1)
        (Kingma & Ba 2015, arXiv:1412.6980, section 3): the first value is forgotten

    and 0 in those first `start`. `everstep.averaged` puts the averages into the variables for evaluation; with
    `overwrite_every` the variable itself becomes its average at each so many-th update.

    | stock                                     | options                                                          |
    |-------------------------------------------|------------------------------------------------------------------|
    | use_ema, tf.keras 2.11 to 2.15, tf_keras  | the defaults; ema_overwrite_frequency is overwrite_every         |
    | use_ema, Keras 3                          | start=1; the same                                                |
    | MovingAverage of TensorFlow Addons        | the defaults; start_step is start; dynamic_decay warm_up="ramp"; |
    |                                           | a number for num_updates is the decay that comes of it           |
    | tf.train.ExponentialMovingAverage,        | the defaults; num_updates=the global step before its increment   |
    | contrib's MovingAverageOptimizer          | is warm_up="ramp"                                                |
    | AveragedModel of PyTorch with get_ema_... | start=1                                                          |

    A value is averaged as the rule gives it, before a constraint, and of 16-bit variables in float32. A variable
    without a gradient has no update, and its average stays. Of a sparse gradient: "exact" averages all rows at each
    update; "rows" those present; with "catch_up" a row first takes all the updates of its average too, which beyond
    the first 200 has no closed form with a warm-up, a later start or overwriting: those are refused, and so is
    "variable_rows", whose absent rows never take the values that would be averaged.

    Args:
        inner: the definition that updates.
        average_decay: 0 to 1; 0.99.
        warm_up: "none" (default), "ramp" or "zero_debias".
        start: number of updates in which the average is the variable; 0.
        overwrite_every: number of updates after which the variable becomes its average; 0: never.

    >>> import numpy, everstep
    >>> weights = numpy.zeros(1)
    >>> optimizer = everstep.moving_average(everstep.optimizers.SGD(1.0), 0.75).bind(numpy)
    >>> optimizer.apply_gradients([(numpy.array([-4.0]), weights)])
    >>> with everstep.averaged(optimizer, [weights]):
    ...     print(weights)
    [1.]
    >>> weights
    array([4.])
    """

    prefix = "moving_average"
    average_decay = hyper(0.99, minimum=0, maximum=1)
    warm_up = option("none", choices=("none", "ramp", "zero_debias"))
    start = option(0, minimum=0)
    overwrite_every = option(0, minimum=0)
    average = slot(init=VARIABLE)
    max_replay_steps = 200  # type: ignore[assignment]

    def _check(self):
        no_closed_form = self.warm_up != "none" or self.start > self.max_replay_steps or self.overwrite_every
        if self.sparse == "catch_up" and no_closed_form or self.sparse == "variable_rows":
            raise RuleError(
                '{} cannot take sparse="{}": see what averages of sparse rows mean in its docstring. Use '
                'sparse="exact" or "rows"'.format(self._short(), self.sparse)
            )
        super(MovingAverage, self)._check()

    def share(self, ops, hyper, t):
        decay, n = hyper.average_decay, ops.maximum(t - 1 - self.start, 0)
        share = 1 - decay
        if self.warm_up == "ramp":
            share = 1 - ops.minimum(decay, (1 + n) / (10 + n))
        if self.warm_up == "zero_debias":
            share = 1 / geometric(ops, decay, n + 1)
        return ops.where(t <= self.start, 1, share) if self.start else share

    def update(self, ops, grad, var, slots, hyper, t):
        change, new = super(MovingAverage, self).update(ops, grad, var, slots, hyper, t)
        if self.overwrite_every:
            value = change.value if isinstance(change, assign) else var - change
            change = assign(ops.where(ops.equal(t % self.overwrite_every, 0), new["average"], value))
        return change, new

    def fast_forward(self, ops, var, slots, hyper, steps):
        change, new = super(MovingAverage, self).fast_forward(ops, var, slots, hyper, steps)
        share = decayed(ops, 1 - hyper.average_decay, steps)
        new["average"] = slots.average + share * (var - change - slots.average)
        return change, new


def moving_average(definition, average_decay=0.99, warm_up="none", start=0, overwrite_every=0):
    """`MovingAverage(definition, average_decay, warm_up, start, overwrite_every)`: an average beside each variable."""
    return MovingAverage(definition, average_decay, warm_up, start, overwrite_every)
