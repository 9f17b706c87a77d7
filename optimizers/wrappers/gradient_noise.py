"""Gradient noise, the same on every API."""
from __future__ import absolute_import, division, print_function

from everstep.errors import DefinitionError, RuleError
from everstep.optimizers.contract import Wrapper, defines, hyper, option


class GradientNoise(Wrapper):
    """Adds normal noise of falling variance to gradients, before `inner` sees them: `everstep.gradient_noise`.

    Neelakantan et al. 2015, https://arxiv.org/abs/1511.06807, equation 1: grad + N(0, eta / t^gamma), where t starts at
    1 (t is their 1 + t).

    An element's noise is a function of integers: `seed`, the variable's name, t, and the element's row and place in it.
    It is therefore equal on every API up to rounding, a resumed run continues with the same noise if the names are the
    same (Keras 3 leaves out the model's name in a model that it loads), and the parts of a partitioned variable get the
    noise of the whole. It repeats after 23159^3 = 1.2e13 updates. The function is a Feistel network of six rounds on
    two numbers modulo 23159, with the cube as round function. The Box-Muller method makes its result normal, within 4.7
    standard deviations.

    For a sparse gradient, "exact" adds noise to all rows, as for a dense gradient, and "rows" to those present.
    "catch_up" is refused, because rows would miss noise.

    Advice:
        The paper takes the best of eta=0.01, 0.3 and 1, with gamma=0.55, and uses noise for deep networks that are hard
        to train. Put clip around gradient_noise: gradients are then clipped before noise is added. The other order is
        refused.

    Args:
        inner: The definition that updates.
        eta: Variance of the noise at t=1. Default 0.01.
        gamma: The exponent of its decay. Default 0.55.
        seed: An integer of at least 0. Another seed gives other noise. Default 0.
        variable: Set by everstep: the name of the variable, of which the noise is a function. Default "".

    >>> import numpy, everstep
    >>> weights = numpy.zeros(3)
    >>> optimizer = everstep.gradient_noise(everstep.optimizers.SGD(1.0), eta=1.0).bind(numpy)
    >>> optimizer.apply_gradients([(numpy.zeros(3), weights)])
    >>> weights.round(3)
    array([0.99 , 0.54 , 1.336])
    """

    prefix = "noise"
    eta = hyper(0.01, minimum=0)
    gamma = hyper(0.55, minimum=0)
    seed = option(0, minimum=0)
    variable = option("")
    zero_grad_is_noop = False  # type: ignore[assignment]  # noise changes the variable too

    def _check(self):
        if defines(self.inner, "measure") or defines(self.inner, "collect"):
            raise DefinitionError(
                "{} measures or collects gradients before there is noise on them; if it is a wrapper, put "
                "gradient_noise inside of it".format(self.inner._short())
            )
        if self.sparse == "catch_up":
            raise RuleError(
                '{} cannot take sparse="catch_up": rows would miss noise. Use sparse="exact" or "rows"'.format(
                    self._short()
                )
            )
        super(GradientNoise, self)._check()

    def specialize(self, variable):
        return super(GradientNoise, self).specialize(variable).replace(variable=variable.name)

    def update(self, ops, grad, var, slots, hyper, t):
        deviation = ops.sqrt(hyper.eta / t**hyper.gamma)
        grad = grad + deviation * ops.random_normal("{}/{}".format(self.variable, self.seed), t, hyper)
        return super(GradientNoise, self).update(ops, grad, var, slots, hyper, t)


def gradient_noise(definition, eta=0.01, gamma=0.55, seed=0):
    """Adds annealed normal noise to gradients, the same on every API: `GradientNoise(definition, eta, gamma, seed)`.

    Args:
        definition: The definition that updates.
        eta, gamma, seed: See `everstep.optimizers.GradientNoise`.

    Returns:
        An `everstep.optimizers.GradientNoise`.

    Raises:
        DefinitionError: The definition measures or collects gradients, which would be without noise.
        HyperTypeError, HyperValueError: An argument is of the wrong type or outside its range.
        RuleError: The definition has sparse="catch_up".
    """
    return GradientNoise(definition, eta, gamma, seed)
