"""Exponential moving averages of the variables."""
from __future__ import absolute_import, division, print_function

from everstep.errors import RuleError
from everstep.optimizers.contract import VARIABLE, Averages, Wrapper, assign, geometric, hyper, option, slot


class MovingAverage(Averages, Wrapper):
    """Keeps a moving average of each variable beside it: `everstep.moving_average`.

    Stock form: https://www.tensorflow.org/api_docs/python/tf/train/ExponentialMovingAverage

    After each update: average := decay * average + (1 - decay) * variable. The average starts at the variable's first
    value. In the first `start` updates decay is 0. For n = t - 1 - start >= 0, decay is:

    warm_up="none": average_decay
    warm_up="ramp": min(average_decay, (1 + n) / (10 + n))
    warm_up="zero_debias": such that the average equals one that starts at 0, divided by 1 - average_decay^(n + 1)
        (Kingma & Ba 2015, https://arxiv.org/abs/1412.6980, section 3); the first value is forgotten

    `everstep.averaged` puts the averages into the variables for evaluation. With `overwrite_every`, the variable itself
    becomes its average after every overwrite_every updates.

    | stock                                     | options                                                          |
    |-------------------------------------------|------------------------------------------------------------------|
    | use_ema, tf.keras 2.11 to 2.15, tf_keras  | the defaults; ema_overwrite_frequency is overwrite_every         |
    | use_ema, Keras 3                          | start=1; ema_overwrite_frequency is overwrite_every              |
    | MovingAverage of TensorFlow Addons        | the defaults; start_step is start; dynamic_decay=True is         |
    |                                           | warm_up="ramp"; for a constant num_updates give its decay        |
    | tf.train.ExponentialMovingAverage,        | the defaults; num_updates=the global step before its increment   |
    | MovingAverageOptimizer of tf.contrib.opt  | is warm_up="ramp"                                                |
    | AveragedModel of PyTorch with get_ema_... | start=1                                                          |

    Averages are of values before a constraint, and in float32 for 16-bit variables. A variable without a gradient has
    no update, and its average does not change. For a sparse gradient, "exact" averages all rows at each update and
    "rows" only those present. With "catch_up", a row first takes all missed updates of its average. There is no closed
    form with overwriting, so that is refused. "variable_rows" is refused too: its absent rows never take the values
    that would be averaged.

    Advice:
        TensorFlow recommends decays of 0.999 or 0.9999. Use warm_up="ramp" with them, so that the average forgets the
        first values soon. Evaluate and export inside `everstep.averaged`, and first run some batches there if layers
        keep running means, such as batch normalization. Put it around lookahead, so that it averages the final values.

    Args:
        inner: The definition that updates.
        average_decay: Decay of the average, 0 to 1. Default 0.99.
        warm_up: "none", "ramp" or "zero_debias". Default "none".
        start: Number of updates in which the average equals the variable. Default 0.
        overwrite_every: Number of updates after which the variable becomes its average; 0 for never. Default 0.

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

    def _check(self):
        why = None
        if self.sparse == "variable_rows":
            why = "absent rows never take the values that would be averaged"
        elif self.sparse == "catch_up" and self.overwrite_every:
            why = "rows would miss the updates that overwrite_every does, which have no closed form"
        if why:
            raise RuleError(
                '{} cannot take sparse="{}": {}. Use sparse="exact" or "rows"'.format(self._short(), self.sparse, why)
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
        share = self.share(ops, hyper, hyper.updates + 1)
        left = 1 - steps.decay(share)
        if isinstance(change, assign):
            steps.rest_first()
            new["average"] = change.value + left * (slots.average - change.value)
            return change, new
        # Each update leaves 1 - share of the distance between average and variable, and of the change that adds to it.
        lag, _ = super(MovingAverage, self).fast_forward(ops, var, slots, hyper, steps.decayed(share, after=True))
        new["average"] = (var - change) + left * (slots.average - var) + lag
        return change, new


def moving_average(definition, average_decay=0.99, warm_up="none", start=0, overwrite_every=0):
    """Keeps an average: `MovingAverage(definition, average_decay, warm_up, start, overwrite_every)`.

    Args:
        definition: The definition that updates.
        average_decay, warm_up, start, overwrite_every: See `everstep.optimizers.MovingAverage`.

    Returns:
        An `everstep.optimizers.MovingAverage`.

    Raises:
        HyperTypeError, HyperValueError: An argument is of the wrong type or outside its range.
        RuleError: The definition's `sparse` is "variable_rows", or "catch_up" with overwrite_every.
    """
    return MovingAverage(definition, average_decay, warm_up, start, overwrite_every)
