"""A learning rate that falls with the number of updates, and can still be set."""
from __future__ import absolute_import, division, print_function

from everstep.errors import DefinitionError
from everstep.optimizers.contract import Wrapper, flat, hyper


class RateDecay(Wrapper):
    """Divides the learning rate by 1 + rate * updates: the `decay` of Keras 2, `everstep.rate_decay`.

    The learning rate that `inner` sees = learning_rate / (1 + rate * updates so far)

    `optimizer.lr` stays a number, so that callbacks such as ReduceLROnPlateau read and set it, as in stock, and
    `optimizer.decay` is `rate`. `everstep.InverseTimeDecay` gives the same values, but is a schedule, which nothing can
    set. All learning rates inside are divided, those of weight decays too.

    | stock                                     | options                                                          |
    |-------------------------------------------|------------------------------------------------------------------|
    | decay of Keras 2 and OptimizerV2          | rate                                                             |

    Sparse gradients are handled as in `inner`.

    Advice:
        Use it to take over a program that gave `decay`. For a new one, schedules say more plainly where the rate ends.

    Args:
        inner: The definition that updates.
        rate: What each update adds to the divisor: a float, tensor, callable or schedule. Default 0: no decay.

    >>> import numpy, everstep
    >>> weights = numpy.zeros(1)
    >>> optimizer = everstep.rate_decay(everstep.optimizers.SGD(1.0), 1.0).bind(numpy)
    >>> for _ in range(3):  # at the rates 1, 1/2 and 1/3
    ...     optimizer.apply_gradients([(numpy.array([-6.0]), weights)])
    >>> print(weights, optimizer.learning_rate)
    [11.] 1.0
    """

    prefix = "rate_decay"
    forwarded_verbs = frozenset(["measure", "collect", "advance", "fast_forward"])
    rate = hyper(0.0, minimum=0)

    def _check(self):
        if not any(name.split("/")[-1] == "learning_rate" for name in flat(self.inner, "hyper")):
            raise DefinitionError("{} has no learning rate to decay".format(self.inner._short()))
        super(RateDecay, self)._check()

    def measure(self, ops, grad, var, slots, hyper):
        return super(RateDecay, self).measure(ops, grad, var, slots, self._decayed(hyper))

    def collect(self, ops, grad, slots, hyper):
        return super(RateDecay, self).collect(ops, grad, slots, self._decayed(hyper))

    def advance(self, ops, scalars, hyper, t):
        return super(RateDecay, self).advance(ops, scalars, self._decayed(hyper), t)

    def update(self, ops, grad, var, slots, hyper, t):
        return super(RateDecay, self).update(ops, grad, var, slots, self._decayed(hyper), t)

    def fast_forward(self, ops, var, slots, hyper, steps):
        return super(RateDecay, self).fast_forward(ops, var, slots, self._decayed(hyper), steps)

    def _decayed(self, hyper):
        return hyper.scaled("learning_rate", 1 / (1 + hyper.rate * hyper.updates))


def rate_decay(definition, rate):
    """Divides the learning rate by 1 + rate * updates: `RateDecay(definition, rate)`.

    Args:
        definition: The definition that updates.
        rate: See `everstep.optimizers.RateDecay`.

    Returns:
        An `everstep.optimizers.RateDecay`.

    Raises:
        DefinitionError: The definition has no learning rate.
        HyperTypeError, HyperValueError: The rate is of the wrong type or below 0.
    """
    return RateDecay(definition, rate)
