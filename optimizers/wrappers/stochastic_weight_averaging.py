"""Stochastic weight averaging: the mean of the weights at several points of training."""
from __future__ import absolute_import, division, print_function

from everstep.errors import RuleError
from everstep.optimizers.contract import VARIABLE, Averages, Wrapper, option, slot


class StochasticWeightAveraging(Averages, Wrapper):
    """Keeps the mean of each variable over every `period`-th update: `everstep.stochastic_weight_averaging`.

    Izmailov et al. 2018, https://arxiv.org/abs/1803.05407, algorithm 1.
    Snapshots are taken after the updates start + 1, start + 1 + period, ... At the (n + 1)-th snapshot:

    average := (n * average + variable) / (n + 1)

    Before the first one, the average is the variable itself. `everstep.averaged` puts the averages into the variables.

    | stock                                     | options                                                          |
    |-------------------------------------------|------------------------------------------------------------------|
    | SWA of TensorFlow Addons                  | the defaults; start_averaging is start, average_period is        |
    |                                           | period; its average is 0 before the first snapshot               |
    | AveragedModel of PyTorch,                 | period=P, start=S - 1 if the first call follows update S         |
    | update_parameters after every P-th update | (S = P: at the end of the first epoch of P updates)              |

    Averages are of values before a constraint, and in float32 for 16-bit variables. For a sparse gradient, "exact"
    takes all rows into a snapshot. With "rows", a row that is absent keeps its average, which counts as its value in
    that snapshot. "catch_up" and "variable_rows" are refused: rows that are brought up to date later were not there
    when snapshots were taken.

    Advice:
        The paper starts from weights that a usual schedule has trained (set `start` to its length), and then uses a
        constant or cyclical learning rate. Before evaluation, run some batches inside `everstep.averaged` if layers
        keep running means, such as batch normalization.

    Args:
        inner: The definition that updates.
        start: Number of updates before the first snapshot. Default 0.
        period: Number of updates from one snapshot to the next, at least 1. Default 10.

    >>> import numpy, everstep
    >>> weights = numpy.zeros(1)
    >>> optimizer = everstep.stochastic_weight_averaging(everstep.optimizers.SGD(1.0), period=2).bind(numpy)
    >>> for _ in range(5):  # snapshots at 1, 3 and 5
    ...     optimizer.apply_gradients([(numpy.array([-1.0]), weights)])
    >>> with everstep.averaged(optimizer, [weights]):
    ...     print(weights)
    [3.]
    """

    prefix = "swa"
    start = option(0, minimum=0)
    period = option(10, minimum=1)
    average = slot(init=VARIABLE)

    def _check(self):
        if self.sparse in ("catch_up", "variable_rows"):
            raise RuleError(
                '{} cannot take sparse="{}": rows that are brought up to date later would be missing from snapshots. '
                'Use sparse="exact" or "rows"'.format(self._short(), self.sparse)
            )
        super(StochasticWeightAveraging, self)._check()

    def share(self, ops, hyper, t):
        since = t - 1 - self.start
        snapshots = ops.floor(since / self.period)
        share = ops.where(ops.equal(since % self.period, 0), 1 / (ops.maximum(snapshots, 0) + 1), 0)
        return ops.where(since < 0, 1, share)


def stochastic_weight_averaging(definition, start=0, period=10):
    """Keeps the mean over every period-th update: `StochasticWeightAveraging(definition, start, period)`.

    Args:
        definition: The definition that updates.
        start, period: See `everstep.optimizers.StochasticWeightAveraging`.

    Returns:
        An `everstep.optimizers.StochasticWeightAveraging`.

    Raises:
        HyperTypeError, HyperValueError: An argument is of the wrong type or outside its range.
        RuleError: The definition's `sparse` is "catch_up" or "variable_rows".
    """
    return StochasticWeightAveraging(definition, start, period)
