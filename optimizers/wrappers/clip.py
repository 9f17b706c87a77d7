"""Gradient clipping, the same on every API."""
from __future__ import absolute_import, division, print_function

from everstep.errors import DefinitionError
from everstep.optimizers.contract import Wrapper, defines, option, total


class Clip(Wrapper):
    """Bounds gradients before `inner` sees them: `everstep.clip`.

    Pascanu et al. 2013, https://arxiv.org/abs/1211.5063, algorithm 1, is clipping by the global norm.

    value: Clips each element to [-value, value].
    norm: Scales each variable's gradient so that its 2-norm is at most norm.
    global_norm: Scales all gradients of a step by one factor so that their joint 2-norm is at most global_norm.

    For a sparse gradient, the norm is over the rows present, after equal rows are summed.

    | stock                                     | options                                        |
    |-------------------------------------------|------------------------------------------------|
    | clipnorm, Keras 2.0 to 2.3                | global_norm, then value                        |
    | clipnorm, tf.keras                        | norm; with value, value_first=True from TF 2.4 |
    | global_clipnorm                           | global_norm                                    |
    | clipvalue                                 | value                                          |

    Advice:
        Prefer global_norm: it keeps the direction of the gradient. The paper sets the bound from the average norm over
        many updates, and finds 0.5 to 10 times that average to work. Put clip inside accumulate and loss_scale, so that
        it bounds the mean of unscaled gradients. A common mistake is to clip gradients that are still scaled.

    Args:
        inner: The definition that updates.
        norm: Bound of each variable's norm, at least 0. Default None: no bound. One of the three bounds is needed.
        global_norm: Bound of the norm over all variables, at least 0; not together with norm. Default None: no bound.
        value: Bound of each element, at least 0. Default None: no bound.
        value_first: True to clip elements before the norm, False to clip them after it. Default False.

    >>> import numpy, everstep
    >>> weights = numpy.zeros(2)
    >>> optimizer = everstep.clip(everstep.optimizers.SGD(1.0), norm=1.0).bind(numpy)
    >>> optimizer.apply_gradients([(numpy.array([3.0, 4.0]), weights)])
    >>> weights
    array([-0.6, -0.8])
    """

    prefix = "clip"
    norm = option(None, minimum=0)
    global_norm = option(None, minimum=0)
    value = option(None, minimum=0)
    value_first = option(False)

    @property
    def forwarded_verbs(self):  # type: ignore[override]
        return frozenset(["collect"] if self._norms() else ["collect", "measure"])

    def _norms(self):
        return [bound for bound in (self.norm, self.global_norm) if bound is not None]

    def _check(self):
        if not self._norms() and self.value is None:
            raise DefinitionError("clip needs a bound: give norm, global_norm or value")
        if len(self._norms()) > 1:
            raise DefinitionError("clip takes norm or global_norm, not both")
        if defines(self.inner, "measure"):
            raise DefinitionError(
                "{} measures gradients before clip could clip them; if it is a wrapper, put clip inside of "
                "it".format(self.inner._short())
            )
        super(Clip, self)._check()

    @property
    def without_grad(self):
        return self.inner.without_grad

    def measure(self, ops, grad, var, slots, hyper):
        square_sum = ops.sum(ops.square(self._bounded(ops, grad) if self.value_first else grad))
        return {"square_sum": square_sum if self.global_norm is None else total(square_sum)}

    def collect(self, ops, grad, slots, hyper):
        return super(Clip, self).collect(ops, self._clipped(ops, grad, hyper), slots, hyper)

    def update(self, ops, grad, var, slots, hyper, t):
        return super(Clip, self).update(ops, self._clipped(ops, grad, hyper), var, slots, hyper, t)

    def _bounded(self, ops, grad):
        return grad if self.value is None else ops.clip(grad, -self.value, self.value)

    def _clipped(self, ops, grad, hyper):
        if self.value_first:
            grad = self._bounded(ops, grad)
        for bound in self._norms():
            norm = ops.sqrt(hyper.square_sum)
            grad = grad * ops.where(norm > bound, bound / ops.maximum(norm, 1e-30), 1.0)
        return grad if self.value_first else self._bounded(ops, grad)


def clip(definition, norm=None, global_norm=None, value=None, value_first=False):
    """Bounds gradients, the same on every API: `Clip(definition, norm, global_norm, value, value_first)`.

    Args:
        definition: The definition that updates.
        norm, global_norm, value, value_first: See `everstep.optimizers.Clip`.

    Returns:
        An `everstep.optimizers.Clip`.

    Raises:
        DefinitionError: No bound or both norms are given, or the definition measures gradients, which would not be
            clipped.
        HyperTypeError, HyperValueError: An argument is of the wrong type or outside its range.
    """
    return Clip(definition, norm, global_norm, value, value_first)
