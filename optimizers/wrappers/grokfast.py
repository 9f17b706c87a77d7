"""Grokfast: gradients with more of their slow part."""
from __future__ import absolute_import, division, print_function

from everstep.errors import DefinitionError
from everstep.optimizers.contract import Wrapper, defines, hyper, slot


class Grokfast(Wrapper):
    """Adds a multiple of its moving average to each gradient, before `inner` sees it: `everstep.grokfast`.

    Lee et al. 2024, https://arxiv.org/abs/2405.20233, algorithm 2, "Grokfast-EMA":

    In the first update: average := grad
    Later: average := average_decay * average + (1 - average_decay) * grad
    grad := grad + factor * average

    `inner` gets the gradient of the last line. A variable whose first gradient comes later than the first update has an
    average that starts at 0.

    | stock                                     | options                                                          |
    |-------------------------------------------|------------------------------------------------------------------|
    | gradfilter_ema of the authors' code       | the defaults; its alpha is average_decay, its lamb factor        |

    For a sparse gradient, "exact" decays the averages of all rows, and absent rows move by them. "rows" leaves these
    alone. With "catch_up", a row replays up to 500 missed steps, after which the average has decayed to 4e-5 of its
    value by the default decay.

    Advice:
        Use it for models that generalize long after they fit the training data, with weight decay. The gradient grows
        by up to 1 + factor: with SGD, divide the learning rate by that. Put clip and accumulate around grokfast.

    Args:
        inner: The definition that updates.
        average_decay: Decay of the average, 0 to 1. Default 0.98.
        factor: The multiple of the average that is added. Default 2.

    >>> import numpy, everstep
    >>> weights = numpy.zeros(1)
    >>> optimizer = everstep.grokfast(everstep.optimizers.SGD(1.0), average_decay=0.5).bind(numpy)
    >>> for grad in (1.0, 3.0):
    ...     optimizer.apply_gradients([(numpy.array([grad]), weights)])
    ...     print(weights)
    [-3.]
    [-10.]
    """

    prefix = "grokfast"
    average_decay = hyper(0.98, minimum=0, maximum=1)
    factor = hyper(2.0, minimum=0)
    average = slot()
    zero_grad_is_noop = False  # type: ignore[assignment]  # the average moves rows without a gradient

    def _check(self):
        if defines(self.inner, "measure") or defines(self.inner, "collect"):
            raise DefinitionError(
                "{} measures or collects gradients before grokfast could change them; if it is a wrapper, put grokfast "
                "inside of it".format(self.inner._short())
            )
        super(Grokfast, self)._check()

    def update(self, ops, grad, var, slots, hyper, t):
        average = ops.where(t > 1, hyper.average_decay * slots.average + (1 - hyper.average_decay) * grad, grad)
        change, new = super(Grokfast, self).update(ops, grad + hyper.factor * average, var, slots, hyper, t)
        return change, dict(new, average=average)

    @property
    def max_replay_steps(self):  # type: ignore[override]
        return max(500, self.inner.max_replay_steps)

    def fast_forward(self, ops, var, slots, hyper, steps):
        # The inner form is that of a zero gradient, which the rest of the average nearly is.
        change, new = super(Grokfast, self).fast_forward(ops, var, slots, hyper, steps)
        return change, dict(new, average=slots.average * steps.product(hyper.average_decay))


def grokfast(definition, average_decay=0.98, factor=2.0):
    """Adds a multiple of its moving average to each gradient: `Grokfast(definition, average_decay, factor)`.

    Args:
        definition: The definition that updates.
        average_decay, factor: See `everstep.optimizers.Grokfast`.

    Returns:
        An `everstep.optimizers.Grokfast`.

    Raises:
        DefinitionError: The definition measures or collects gradients, which would be those without the average.
        HyperTypeError, HyperValueError: An argument is of the wrong type or outside its range.
    """
    return Grokfast(definition, average_decay, factor)
