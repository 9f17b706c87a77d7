"""Loss scaling: keeps float16 gradients from underflow and overflow."""
from __future__ import absolute_import, division, print_function

from everstep.errors import DefinitionError
from everstep.optimizers.contract import Wrapper, defines, option, scalar, total

_MOST = 2.0**126  # so that a growth by 2 stays finite in float32
_COUNTED = 2**23  # the most updates that the scalar `finite`, a float32, counts one by one


class LossScale(Wrapper):
    """Updates from the gradients of a loss that is multiplied by a scale: `everstep.loss_scale`.

    Micikevicius et al. 2018, https://arxiv.org/abs/1710.03740, section 3.2.

    grad := grad / scale, then the step of `inner` if all gradients are finite
    If not, the step changes nothing and does not count, except for scale := max(scale * backoff, 1).
    scale := scale * growth after growth_interval updates without a change of scale

    `minimize`, `compute_gradients`, `get_updates` and `fit` (except in TF 2.0 to 2.3) scale the loss themselves. If you
    compute gradients otherwise (tf.GradientTape, jax.grad, `backward`), use `optimizer.scale_loss(loss)`. A step before
    any loss was scaled is an error. In Keras 3, compile a model of mixed_float16 with `auto_scale_loss=False`;
    otherwise Keras adds a LossScaleOptimizer and the loss is scaled twice.

    | stock                                             | options                                                  |
    |---------------------------------------------------|----------------------------------------------------------|
    | LossScaleOptimizer of tf.keras and Keras 3        | the defaults; both count a skipped step in iterations    |
    | the same with dynamic=False                       | growth_interval=0; stock does not skip                   |
    | GradScaler of torch                               | initial_scale=2.0**16; its scale may be less than 1      |

    Advice:
        Use it for float16. bfloat16 has the range of float32 and needs no loss scaling
        (https://www.tensorflow.org/guide/mixed_precision). Put it outermost: around accumulate it checks each step, and
        a step that is not finite does not enter the window; around clip and partition, a step counts for all variables
        or for none, and gradients are unscaled before they are clipped. Start with a high scale: it falls faster than
        it grows (https://keras.io/api/optimizers/loss_scale_optimizer).

    Args:
        inner: The definition that updates.
        initial_scale: The first scale, at least 1. Default 2^15.
        growth_interval: Number of updates before the scale grows; 0 for a constant scale. Above 2^23 it is counted to
            within one part in 4 million. Default 2000.
        growth: The factor by which the scale grows, at least 1. Default 2.
        backoff: The factor by which the scale falls, 0 to 1. Default 0.5.

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
    used = scalar(1.0)  # the factor of this update's gradients: `advance` changes `factor` before `update` runs

    def _check(self):
        if defines(self.inner, "should_accept"):
            raise DefinitionError(
                "{} scales the loss or rejects steps itself; loss_scale cannot go around it".format(self.inner._short())
            )
        super(LossScale, self)._check()

    @property
    def without_grad(self):
        return self.inner.without_grad

    def loss_scale(self, ops, hyper):
        return hyper.factor * self.initial_scale

    def measure(self, ops, grad, var, slots, hyper):
        not_finite = ops.sum(ops.where(ops.isfinite(grad), ops.zeros_like(grad), 1.0))
        inner = self.inner.measure(ops, grad / self.loss_scale(ops, hyper), var, slots.inner, hyper.inner)
        return {"not_finite": total(not_finite), "inner": inner}

    def should_accept(self, ops, hyper):
        return ops.equal(hyper.not_finite, 0.0)

    def collect(self, ops, grad, slots, hyper):
        return super(LossScale, self).collect(ops, grad / self.loss_scale(ops, hyper), slots, hyper)

    def advance(self, ops, scalars, hyper, t):
        new = dict(super(LossScale, self).advance(ops, scalars, hyper, t), used=scalars.factor)
        if not self.growth_interval:
            return dict(new, factor=scalars.factor, finite=scalars.finite)
        finite = scalars.finite + 1
        every = -(-self.growth_interval // _COUNTED)
        if every > 1:  # count one update in `every`
            finite = ops.where(ops.equal(t % every, 0), finite, scalars.finite)
        due = finite * every >= self.growth_interval
        grown = ops.minimum(scalars.factor * self.growth, _MOST / self.initial_scale)
        return dict(new, factor=ops.where(due, grown, scalars.factor), finite=ops.where(due, 0.0, finite))

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
    """Scales the loss for 16-bit gradients: `LossScale(definition, initial_scale, growth_interval, growth, backoff)`.

    Args:
        definition: The definition that updates.
        initial_scale, growth_interval, growth, backoff: See `everstep.optimizers.LossScale`.

    Returns:
        An `everstep.optimizers.LossScale`.

    Raises:
        DefinitionError: The definition scales the loss or rejects steps itself.
        HyperTypeError, HyperValueError: An argument is of the wrong type or outside its range.
    """
    return LossScale(definition, initial_scale, growth_interval, growth, backoff)
