"""Sharpness-aware minimization."""
from __future__ import absolute_import, division, print_function

from everstep.errors import DefinitionError
from everstep.optimizers.contract import Wrapper, assign, at_present, chosen, defines, hyper, option, slot, total


class SharpnessAware(Wrapper):
    """Updates with the gradient at the worst point nearby: `everstep.sharpness_aware`.

    Foret et al. 2020, https://arxiv.org/abs/2010.01412, algorithm 1 (SAM):

    worse = var + rho * grad(var) / norm, where norm is that of all gradients together
    `inner` updates var with grad(worse)

    With adaptive (Kwon et al. 2021, https://arxiv.org/abs/2102.11600, algorithm 1, ASAM), with size = abs(var) + eta:
    worse = var + rho * size^2 * grad(var) / norm(size * grad(var))

    Both gradients use the same batch, one step each, as in `everstep.multistage`. `minimize` of a function that
    computes the loss calls it twice. `everstep.enable_multistage(model)` makes `fit` do so. `iterations`, schedules and
    t count updates.

    | stock                                     | options                                                          |
    |-------------------------------------------|------------------------------------------------------------------|
    | SAM of the authors' code                  | the defaults                                                     |
    | ASAM of the authors' code                 | rho=0.5, adaptive=True; there, biases and normalization have a   |
    |                                           | size of 1                                                        |
    | pytorch-optimizer                         | eta=0.0 with adaptive                                            |

    Only sparse="exact" is allowed, because a row may have a gradient at only one of the two points.

    Advice:
        For CIFAR-10 and CIFAR-100, the authors of ASAM take rho=0.05 and 0.1 with SAM, and 0.5 and 1 with ASAM
        (https://github.com/SamsungLabs/ASAM). An update costs two gradients, so compare it with training that is twice
        as long. Put other wrappers inside: around sharpness_aware they would treat each gradient as a step, and are
        refused.

    Args:
        inner: The definition that updates.
        rho: The distance to the worse point. Default 0.05.
        adaptive: True to measure the distance relative to the size of each weight. Default False.
        eta: Added to that size. Default 0.01. It can be an everstep schedule.

    >>> import numpy, everstep
    >>> weights = numpy.full(1, 2.0)  # of loss = weights ** 2 / 2
    >>> optimizer = everstep.sharpness_aware(everstep.optimizers.SGD(0.5), rho=0.5).bind(numpy)
    >>> everstep.enable_multistage(optimizer)  # callers of apply_gradients take 2 gradients of each batch
    >>> for _ in range(2):
    ...     optimizer.apply_gradients([(weights.copy(), weights)])
    ...     print(weights)
    [2.5]
    [0.75]
    """

    prefix = "sharpness_aware"
    stages = 2
    zero_grad_is_noop = False  # type: ignore[assignment]  # a row may have had a gradient at the first point
    rho = hyper(0.05, minimum=0)
    adaptive = option(False)
    eta = option(0.01, minimum=0, schedule=True)
    start = slot()

    def _check(self):
        for verb in ("should_update", "should_accept", "collect", "loss_scale"):
            if defines(self.inner, verb):
                raise DefinitionError(
                    "{} skips, collects or rejects steps, but sharpness_aware takes two steps and updates at the "
                    "second".format(self.inner._short())
                )
        if self.sparse != "exact":
            raise DefinitionError('sharpness_aware takes only sparse="exact"; got {!r}'.format(self.sparse))
        super(SharpnessAware, self)._check()

    def should_update(self, ops, hyper):
        return hyper.pending >= 2

    def measure(self, ops, grad, var, slots, hyper):
        scaled = self._size(ops, var, hyper) * grad
        start = self._start(ops, var, slots, hyper)
        inner = self.inner.measure(ops, grad, start, slots.inner, hyper.inner)
        return {"inner": inner, "squares": total(ops.sum(scaled * scaled))}

    def update(self, ops, grad, var, slots, hyper, t):
        start = self._start(ops, var, slots, hyper)
        change, inner = ops.update_of(self.inner, grad, start, slots.inner, hyper.inner, t)
        value = change.value if isinstance(change, assign) else start - change
        size = self._size(ops, var, hyper)
        worse = var + hyper.rho * size * size * grad / ops.maximum(ops.sqrt(hyper.squares), 1e-12)
        last = self.should_update(ops, hyper)
        inner = chosen(ops, last, inner, slots.inner)
        return assign(ops.where(last, value, worse)), {"start": start, "inner": inner}

    def _start(self, ops, var, slots, hyper):
        return ops.where(self.should_update(ops, hyper), slots.start, var)

    def _size(self, ops, var, hyper):
        return ops.abs(var) + at_present(self.eta, ops, hyper) if self.adaptive else 1.0


def sharpness_aware(definition, rho=0.05, adaptive=False, eta=0.01):
    """Seeks flat minima, by SAM or ASAM: `SharpnessAware(definition, rho, adaptive, eta)`.

    Args:
        definition: The definition that updates.
        rho, adaptive, eta: See `everstep.optimizers.SharpnessAware`.

    Returns:
        An `everstep.optimizers.SharpnessAware`.

    Raises:
        DefinitionError: The definition skips, collects or rejects steps, or has a `sparse` other than "exact".
        HyperTypeError, HyperValueError: An argument is of the wrong type or outside its range.
    """
    return SharpnessAware(definition, rho, adaptive, eta)
