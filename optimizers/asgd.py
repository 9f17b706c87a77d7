"""ASGD: gradient descent with a falling rate, and the mean of all values from some update on."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import VARIABLE, Definition, hyper, slot


class ASGD(Definition):
    """Averaged gradient descent (Polyak & Juditsky 1992, https://doi.org/10.1137/0330046).

    var := var - eta * (grad + lambd * var)
    average := average + mu * (var - average)
    eta := learning_rate / (1 + lambd * learning_rate * t)^alpha, learning_rate before the first update
    mu := 1 / max(1, t - t0), 1 before the first update

    The rates are those of Xu 2011, https://arxiv.org/abs/1107.2490. The average is the variable itself until update
    t0 + 2, and then the mean of its values. `everstep.averaged` puts it into the variables for evaluation. The defaults
    are those of torch, which averages after a million updates. As in torch, eta and mu are computed for the next
    update, so that a new learning_rate acts one update later.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | torch.optim                 | the defaults; its weight_decay is everstep.l2_penalty                       |

    Advice:
        Set t0 to the number of updates of one epoch: Bottou's svmasgd, which has the same rates, begins to average
        after the first one (https://leon.bottou.org/projects/sgd). For an average that forgets old values use
        everstep.moving_average.

    Args:
        learning_rate: A float, tensor, callable or schedule. Default 0.01.
        lambd: The decay of the variable, and with it of the rate; of any sign. Default 1e-4.
        alpha: The exponent of the rate's decay, of any sign. Default 0.75.
        t0: The update after which the mean begins; a number of any sign. Default 1e6.

    >>> import numpy, everstep
    >>> weights = numpy.zeros(1)
    >>> optimizer = ASGD(1.0, lambd=0.0, t0=0.0).bind(numpy)
    >>> for _ in range(3):
    ...     optimizer.apply_gradients([(numpy.array([-1.0]), weights)])
    >>> with everstep.averaged(optimizer, [weights]):  # 1, then the mean of 2 and 3
    ...     print(weights)
    [2.5]
    """

    family = "gradient descent"
    locality = "row"  # eta and mu are no arrays of elements, which could be joined with those of other variables
    learning_rate = hyper(0.01, minimum=0)
    lambd = hyper(1e-4)
    alpha = hyper(0.75)
    t0 = hyper(1e6)
    average = slot(init=VARIABLE)
    eta = slot(init=-1.0, shape=())  # below 0: there is none yet, because the first rate is known at the first update
    mu = slot(init=1.0, shape=())

    def update(self, ops, grad, var, slots, hyper, t):
        rate = hyper.learning_rate
        change = ops.where(slots.eta < 0, rate, slots.eta) * (grad + hyper.lambd * var)
        new = {"average": slots.average + slots.mu * (var - change - slots.average)}
        new["eta"] = rate / (1 + hyper.lambd * rate * t) ** hyper.alpha
        new["mu"] = 1 / ops.maximum(1, t - hyper.t0)
        return change, new

    def evaluation_value(self, ops, var, slots, hyper):
        return slots.average
