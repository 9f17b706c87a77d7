"""Stochastic weight averaging: the mean of some points on the way."""
from __future__ import absolute_import, division, print_function

from everstep.errors import RuleError
from everstep.optimizers.contract import VARIABLE, Averages, Wrapper, option, slot


class StochasticWeightAveraging(Averages, Wrapper):
    """Keeps the mean of what each variable was after every `period`-th update: `everstep.stochastic_weight_averaging`.

    As in Izmailov et al. 2018, arXiv:1803.05407, algorithm 1. A snapshot is taken after the updates start + 1,
    start + 1 + period, ...; where it is the (n + 1)-th

    average := (n * average + variable) / (n + 1)

    and before the first one the average is the variable itself. `everstep.averaged` puts the averages into the
    variables. Layers that keep running means (batch normalization) need some batches at those first.

    | stock                                     | options                                                          |
    |-------------------------------------------|------------------------------------------------------------------|
    | SWA of TensorFlow Addons                  | the defaults; start_averaging, average_period; before the first  |
    |                                           | snapshot its average is 0                                        |
    | AveragedModel of PyTorch,                 | period=P, start=S - 1, where the first call comes after update S |
    | update_parameters after every P-th update | (S = P: at the end of the first epoch of P updates)              |

    A value is averaged as the rule gives it, before a constraint, and of 16-bit variables in float32. Of a sparse
    gradient: "exact" has all rows in a snapshot; with "rows" a row that is not present at one keeps its average, which
    stands for that snapshot too. "catch_up" and "variable_rows" are refused: rows brought up to date later were not
    there when snapshots were taken.

    Args:
        inner: the definition that updates.
        start: number of updates before the first snapshot; 0.
        period: number of updates from one snapshot to the next, at least 1; 10.

    >>> import numpy, everstep
    >>> weights = numpy.zeros(1)
    >>> optimizer = everstep.stochastic_weight_averaging(everstep.optimizers.SGD(1.0), period=2).bind(numpy)
    >>> for _ in range(5):  # snapshots of 1, 3 and 5
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
                '{} cannot take sparse="{}": rows that are brought up to date later were not there when snapshots were '
                'taken. Use sparse="exact" or "rows"'.format(self._short(), self.sparse)
            )
        super(StochasticWeightAveraging, self)._check()

    def share(self, ops, hyper, t):
        since = t - 1 - self.start
        taken = ops.floor(since / self.period)
        share = ops.where(ops.equal(since % self.period, 0), 1 / (ops.maximum(taken, 0) + 1), 0)
        return ops.where(since < 0, 1, share)


def stochastic_weight_averaging(definition, start=0, period=10):
    """`StochasticWeightAveraging(definition, start, period)`: the mean of each period-th point."""
    return StochasticWeightAveraging(definition, start, period)
