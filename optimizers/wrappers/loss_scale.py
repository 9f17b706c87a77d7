"""Loss scaling: gradients of 16 bits that neither vanish nor overflow."""
from __future__ import absolute_import, division, print_function

from everstep.errors import DefinitionError
from everstep.optimizers.contract import Wrapper, defines, option, scalar, total

_MOST = 2.0**126  # twice which is not finite in float32


class LossScale(Wrapper):
    """Takes gradients of a loss that was multiplied with a scale: `everstep.loss_scale`.

    As in Micikevicius et al. 2018, arXiv:1710.03740, section 3.2.

    grad := grad / scale, and inner's step where all of it is finite
    Otherwise the step changes nothing and does not count, but for scale := max(scale * backoff, 1).
    scale := scale * growth after growth_interval updates since it last changed.

    What takes gradients of a loss multiplies it: `minimize`, `compute_gradients`, `get_updates`, `fit` (not that of TF
    2.0 to 2.3). Who takes gradients otherwise (a tf.GradientTape, jax.grad, `backward`) takes them of
    `optimizer.scale_loss(loss)`; a step before any loss was scaled is an error. In Keras 3 a model of mixed_float16 is
    compiled with `auto_scale_loss=False`: with a LossScaleOptimizer around it, it would be scaled twice.

    Around `accumulate` each step is looked at, and one that is not finite is none of the window's; around `clip` and
    `partition`, too, so that a step counts in all or none.

    | stock                                             | options                                                  |
    |---------------------------------------------------|----------------------------------------------------------|
    | LossScaleOptimizer of tf.keras and Keras 3        | the defaults (both count a skipped step in iterations)   |
    | the same with dynamic=False                       | growth_interval=0; stock does not skip                   |
    | GradScaler of torch                               | initial_scale=2.0**16; its scale may be less than 1      |

    Args:
        inner: the definition that updates.
        initial_scale: the first scale, at least 1; 2^15.
        growth_interval: updates to the next growth; 0: the scale never changes; 2000.
        growth, backoff: what the scale is multiplied with; 2 and 0.5.

    >>> import numpy, everstep
    >>> weights = numpy.zeros(1)
    >>> optimizer = everstep.loss_scale(everstep.optimizers.SGD(1.0), initial_scale=8.0).bind(numpy)
    >>> for slope in (numpy.inf, 1.0):
    ...     scale = optimizer.scale_loss(1.0)
    ...     optimizer.apply_gradients([(numpy.array([slope * scale]), weights)])
    ...     print(scale, weights, optimizer.iterations)
    8.0 [0.] 0
    4.0 [-1.] 1
    """

    prefix = "loss_scale"
    forwarded_verbs = frozenset(["collect"])
    initial_scale = option(2.0**15, minimum=1)
    growth_interval = option(2000, minimum=0)
    growth = option(2.0, minimum=1)
    backoff = option(0.5, minimum=0, maximum=1)
    factor = scalar(1.0)
    finite = scalar(0.0)
    used = scalar(1.0)  # the factor that an update's gradients had, which `advance` has moved before `update`

    def _check(self):
        if defines(self.inner, "should_accept"):
            raise DefinitionError("{} scales the loss itself".format(self.inner._short()))
        super(LossScale, self)._check()

    @property
    def without_grad(self):
        return self.inner.without_grad

    def loss_scale(self, ops, hyper):
        return hyper.factor * self.initial_scale

    def measure(self, ops, grad, var, slots, hyper):
        bad = ops.sum(ops.where(ops.isfinite(grad), ops.zeros_like(grad), 1.0))
        inner = self.inner.measure(ops, grad / self.loss_scale(ops, hyper), var, slots.inner, hyper.inner)
        return {"not_finite": total(bad), "inner": inner}

    def should_accept(self, ops, hyper):
        return ops.equal(hyper.not_finite, 0.0)

    def collect(self, ops, grad, slots, hyper):
        return super(LossScale, self).collect(ops, grad / self.loss_scale(ops, hyper), slots, hyper)

    def advance(self, ops, scalars, hyper, t):
        new = dict(super(LossScale, self).advance(ops, scalars, hyper, t), used=scalars.factor)
        if not self.growth_interval:
            return dict(new, factor=scalars.factor, finite=scalars.finite)
        due = scalars.finite + 1 >= self.growth_interval
        grown = ops.minimum(scalars.factor * self.growth, _MOST / self.initial_scale)
        return dict(new, factor=ops.where(due, grown, scalars.factor), finite=ops.where(due, 0.0, scalars.finite + 1))

    def reject(self, ops, scalars, hyper):
        new = super(LossScale, self).reject(ops, scalars, hyper)
        if not self.growth_interval:
            return new
        least = 1.0 / self.initial_scale
        return dict(new, factor=ops.maximum(scalars.factor * self.backoff, least), finite=0 * scalars.finite)

    def update(self, ops, grad, var, slots, hyper, t):
        grad = grad / (hyper.used * self.initial_scale)
        return super(LossScale, self).update(ops, grad, var, slots, hyper, t)


def loss_scale(definition, initial_scale=2.0**15, growth_interval=2000, growth=2.0, backoff=0.5):
    """`LossScale(definition, initial_scale, growth_interval, growth, backoff)`: for gradients of 16 bits."""
    return LossScale(definition, initial_scale, growth_interval, growth, backoff)
