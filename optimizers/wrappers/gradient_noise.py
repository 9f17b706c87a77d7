"""Noise on gradients, the same on every API."""
from __future__ import absolute_import, division, print_function

import math
import zlib

from everstep.errors import DefinitionError, RuleError
from everstep.optimizers.contract import Wrapper, defines, hyper, option

# The largest prime of which (2 * PRIME)^2 fits into int32, what every API has, and whose cubes are all different.
PRIME = 23159
ROUNDS = 6


class GradientNoise(Wrapper):
    """Adds normal noise of falling variance to gradients, before `inner` sees them: `everstep.gradient_noise`.

    As in Neelakantan et al. 2015, arXiv:1511.06807, equation 1: grad + N(0, eta / t^gamma), t from 1 (their 1 + t).

    The noise of an element is a function of `seed`, the variable's name, t, and the element's row and place in it, in
    whole numbers, so it is the same on every API to rounding and a run that is resumed gets what it would have got;
    parts of a partitioned variable get the noise of the whole. The function is a Feistel network of six rounds on two
    numbers modulo 23159, whose round function is the cube; what comes out is made normal by Box and Muller's method, so
    it stays within 4.7 standard deviations.

    Of a sparse gradient: "exact" adds noise to all rows, as to a whole gradient; "rows" to those present. "catch_up" is
    refused: rows would miss noise.

    Args:
        inner: the definition that updates.
        eta: the variance at first; 0.01. The paper takes the best of 0.01, 0.3 and 1.
        gamma: 0.55.
        seed: a whole number from 0 on; another one gives other noise; 0.

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
    zero_grad_is_noop = False  # type: ignore[assignment]  # noise comes without a gradient

    def _check(self):
        if defines(self.inner, "measure") or defines(self.inner, "collect"):
            raise DefinitionError(
                "{} measures or collects gradients, and would do it before there is noise on them; put gradient_noise "
                "inside, where it is a wrapper".format(self.inner._short())
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
        grad = grad + deviation * self.normal(ops, hyper.row_number, hyper.place_in_row, t, grad.dtype)
        return super(GradientNoise, self).update(ops, grad, var, slots, hyper, t)

    def normal(self, ops, row, place, t, dtype):
        keys = [self.key(number) for number in range(ROUNDS)]
        step = ops.cast(t, "int32")
        left, right = _mixed(step % PRIME, step // PRIME, keys)
        keys = [(left * self.key(ROUNDS + number) + right * key) % PRIME for number, key in enumerate(keys)]
        left, right = _mixed(row % PRIME, place % PRIME, keys[: ROUNDS // 2])
        left, right = (left + row // PRIME) % PRIME, (right + place // PRIME) % PRIME
        left, right = _mixed(left, right, keys[ROUNDS // 2 :])
        uniform = (ops.cast(left, dtype) + 0.5) / PRIME
        angle = (ops.cast(right, dtype) + 0.5) * (2 * math.pi / PRIME)
        return ops.sqrt(-2 * ops.log(uniform)) * ops.cos(angle)

    def key(self, number):
        text = u"{}/{}/{}".format(self.variable, self.seed, number)
        return (zlib.crc32(text.encode("utf-8")) & 0xFFFFFFFF) % PRIME


def _mixed(left, right, keys):
    for key in keys:
        inside = right + key  # at most 2 * PRIME, and so all of this stays below 2^31
        left, right = right, (left + inside * inside % PRIME * inside) % PRIME
    return left, right


def gradient_noise(definition, eta=0.01, gamma=0.55, seed=0):
    """`GradientNoise(definition, eta, gamma, seed)`: annealed normal noise, the same on every API."""
    return GradientNoise(definition, eta, gamma, seed)
