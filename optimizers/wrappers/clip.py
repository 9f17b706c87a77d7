"""Gradient clipping, the same on every API."""
from __future__ import absolute_import, division, print_function

from everstep.errors import DefinitionError
from everstep.optimizers.contract import Wrapper, defines, option, total


class Clip(Wrapper):
    """Bounds gradients before `inner` sees them (Pascanu et al. 2013, arXiv:1211.5063, algorithm 1): `everstep.clip`.

    value: each element to [-value, value].
    norm: each variable's gradient to a 2-norm of at most norm, by one factor.
    global_norm: all gradients of a step to a common 2-norm of at most global_norm, by one factor.

    Of a sparse gradient only the rows present are looked at, equal ones added up before.

    | stock                                     | options                                        |
    |-------------------------------------------|------------------------------------------------|
    | clipnorm, Keras 2.0 to 2.3                | global_norm, then value                        |
    | clipnorm, tf.keras                        | norm; with value too: value_first from TF 2.4  |
    | global_clipnorm                           | global_norm                                    |
    | clipvalue                                 | value                                          |

    Args:
        inner: the definition that updates.
        norm, global_norm, value: bounds of at least 0; None: none. At most one of the two norms.
        value_first: whether elements are bounded before the norm is, or after; False.

    >>> import numpy, everstep
    >>> weights = numpy.zeros(2)
    >>> optimizer = everstep.clip(everstep.optimizers.SGD(1.0), norm=1.0).bind(numpy)
    >>> optimizer.apply_gradients([(numpy.array([3.0, 4.0]), weights)])
    >>> weights
    array([-0.6, -0.8])
    """

    prefix = "clip"
    forwarded_verbs = frozenset(["collect"])
    norm = option(None, minimum=0)
    global_norm = option(None, minimum=0)
    value = option(None, minimum=0)
    value_first = option(False)

    def _check(self):
        if self.norm is not None and self.global_norm is not None:
            raise DefinitionError("clip takes norm or global_norm, not both")
        if defines(self.inner, "measure"):
            raise DefinitionError(
                "{} measures gradients, and would do it before they are clipped".format(self.inner._short())
            )
        super(Clip, self)._check()

    @property
    def without_grad(self):
        return self.inner.without_grad

    def measure(self, ops, grad, var, slots, hyper):
        if self.norm is None and self.global_norm is None:
            return {}
        found = ops.sum(ops.square(self._bounded(ops, grad) if self.value_first else grad))
        return {"square_sum": found if self.global_norm is None else total(found)}

    def collect(self, ops, grad, slots, hyper):
        return super(Clip, self).collect(ops, self._clipped(ops, grad, hyper), slots, hyper)

    def update(self, ops, grad, var, slots, hyper, t):
        return super(Clip, self).update(ops, self._clipped(ops, grad, hyper), var, slots, hyper, t)

    def _bounded(self, ops, grad):
        return grad if self.value is None else ops.clip(grad, -self.value, self.value)

    def _clipped(self, ops, grad, hyper):
        if self.value_first:
            grad = self._bounded(ops, grad)
        bound = self.norm if self.norm is not None else self.global_norm
        if bound is not None:
            norm = ops.sqrt(hyper.square_sum)
            grad = grad * ops.where(norm > bound, bound / ops.maximum(norm, 1e-30), 1.0)
        return grad if self.value_first else self._bounded(ops, grad)


def clip(definition, norm=None, global_norm=None, value=None, value_first=False):
    """`Clip(definition, norm, global_norm, value, value_first)`: gradients bounded alike on every API."""
    return Clip(definition, norm, global_norm, value, value_first)
