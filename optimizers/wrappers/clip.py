"""Gradient clipping, the same on every API."""
from __future__ import absolute_import, division, print_function

from everstep.errors import DefinitionError
from everstep.optimizers.contract import Wrapper, at_present, defines, option, total
from everstep.optimizers.contract.quantile import quantile, quantile_scalars, with_number


class Clip(Wrapper):
    """Bounds gradients before `inner` sees them: `everstep.clip`.

    Pascanu et al. 2013, https://arxiv.org/abs/1211.5063, algorithm 1, is clipping by the global norm.

    value: Clips each element to [-value, value].
    norm: Scales each variable's gradient so that its 2-norm is at most norm.
    global_norm: Scales all gradients of a step by one factor so that their joint 2-norm is at most global_norm.
    unit_norm: Scales the gradient of each unit so that its 2-norm is at most unit_norm * max(norm(unit), 1e-3). This is
        adaptive gradient clipping (Brock et al. 2021, https://arxiv.org/abs/2102.06171, equation 3). A unit is the
        weights of one output: all axes but the last of a kernel, in the layout of TensorFlow and Keras. A variable of
        rank 0 or 1 is one unit, as in the authors' code.
    percentile: global_norm, with a bound that follows training: that percentile of the global norms of all updates so
        far, this one included. This is AutoClip (Seetharaman et al. 2020, https://arxiv.org/abs/2007.14469, algorithm
        1). The authors keep all norms. Here nine scalars estimate the percentile: it is exact for five updates, then
        the P-square algorithm (Jain & Chlamtac 1985, https://doi.org/10.1145/4372.4378). From 100 to 1,000 norms, the
        estimate of the 10th percentile is off by 1% on average if they are log-normal with a deviation of 1, by 3% if
        they fall tenfold in that time, and by 12% if they rise tenfold. A norm that is not finite is left out.

    For a sparse gradient, the norm is over the rows present, after equal rows are summed. unit_norm needs all rows, so
    the gradient becomes dense, whatever `sparse` says.

    | stock                                     | options                                        |
    |-------------------------------------------|------------------------------------------------|
    | clipnorm, Keras 2.0 to 2.3                | global_norm, then value                        |
    | clipnorm, tf.keras                        | norm; with value, value_first=True from TF 2.4 |
    | global_clipnorm                           | global_norm                                    |
    | clipvalue                                 | value                                          |

    Advice:
        Prefer global_norm: it keeps the direction of the gradient. The paper sets the bound from the average norm over
        many updates, and finds 0.5 to 10 times that average to work. Put clip inside accumulate and loss_scale, so that
        it bounds the mean of unscaled gradients. A common mistake is to clip gradients that are still scaled. For
        networks without normalization, Brock et al. take a unit_norm of 0.01 for batches of 4,096 and larger ones for
        smaller batches, and leave the last layer out: `everstep.partition` does. Seetharaman et al. take a percentile
        of 10.

    Args:
        inner: The definition that updates.
        norm: Bound of each variable's norm, at least 0, or an everstep schedule of bounds, as for the next three too.
            Default None: no bound. Give at least one of the five bounds.
        global_norm: Bound of the norm over all variables, at least 0; not together with norm. Default None: no bound.
        value: Bound of each element, at least 0. Default None: no bound.
        value_first: True to clip elements before the norm, False to clip them after it. Default False.
        unit_norm: Bound of each unit's norm, as a share of that of its weights, at least 0; not together with the other
            norms. Default None: no bound.
        percentile: The percentile of all global norms that bounds the global norm, 0 to 100; not together with the
            other norms. Default None: no bound.
        axes: Set by everstep with unit_norm: the axes of a unit. Default (0,), those of a matrix.

    >>> import numpy, everstep
    >>> weights = numpy.zeros(2)
    >>> optimizer = everstep.clip(everstep.optimizers.SGD(1.0), norm=1.0).bind(numpy)
    >>> optimizer.apply_gradients([(numpy.array([3.0, 4.0]), weights)])
    >>> weights
    array([-0.6, -0.8])
    """

    prefix = "clip"
    norm = option(None, minimum=0, schedule=True)
    global_norm = option(None, minimum=0, schedule=True)
    value = option(None, minimum=0, schedule=True)
    value_first = option(False)
    unit_norm = option(None, minimum=0, schedule=True)
    percentile = option(None, minimum=0, maximum=100)
    axes = option((0,))
    vars().update(quantile_scalars(lambda rule: rule.percentile is not None))

    @property
    def locality(self):  # type: ignore[override]
        return self.inner.locality if self.unit_norm is None else "variable"

    @property
    def forwarded_verbs(self):  # type: ignore[override]
        used = dict(measure=self._measures, advance=self.percentile is not None, specialize=self.unit_norm is not None)
        return frozenset(["collect"] + [verb for verb in used if not used[verb]])

    @property
    def _measures(self):
        return any(bound is not None for bound in (self.norm, self.global_norm, self.percentile))

    def _check(self):
        norms = [self.norm, self.global_norm, self.unit_norm, self.percentile]
        if norms.count(None) == 4 and self.value is None:
            raise DefinitionError("clip needs a bound: give norm, global_norm, unit_norm, percentile or value")
        if norms.count(None) < 3:
            raise DefinitionError("clip takes one of norm, global_norm, unit_norm and percentile, not both")
        if (self.unit_norm is not None or self.percentile is not None) and defines(self.inner, "collect"):
            raise DefinitionError(
                "{} collects gradients before clip could compare them with the {}; put clip inside of it".format(
                    self.inner._short(), "weights" if self.percentile is None else "norms of other updates"
                )
            )
        if defines(self.inner, "measure"):
            raise DefinitionError(
                "{} measures gradients before clip could clip them; if it is a wrapper, put clip inside of "
                "it".format(self.inner._short())
            )
        super(Clip, self)._check()

    @property
    def dry_run(self):  # type: ignore[override]
        return self.inner.dry_run and (self.unit_norm is None or self.axes == (0,))  # its arrays are matrices

    def specialize(self, variable):
        rule = super(Clip, self).specialize(variable)
        if self.unit_norm is None:
            return rule
        rank = len(variable.shape)
        return rule.replace(axes=tuple(range(max(rank - 1, min(rank, 1)))))

    @property
    def without_grad(self):
        return self.inner.without_grad

    def measure(self, ops, grad, var, slots, hyper):
        square_sum = ops.sum(ops.square(self._bounded(ops, grad, hyper) if self.value_first else grad))
        return {"square_sum": square_sum if self.norm is not None else total(square_sum)}

    def advance(self, ops, scalars, hyper, t):
        new = super(Clip, self).advance(ops, scalars, hyper, t)
        if self.percentile is None:
            return new
        return dict(new, **with_number(ops, scalars, ops.sqrt(hyper.square_sum), self.percentile / 100))

    def collect(self, ops, grad, slots, hyper):
        return super(Clip, self).collect(ops, self._clipped(ops, grad, hyper), slots, hyper)

    def update(self, ops, grad, var, slots, hyper, t):
        return super(Clip, self).update(ops, self._clipped(ops, grad, hyper, var), var, slots, hyper, t)

    def _bounded(self, ops, grad, hyper):
        if self.value is None:
            return grad
        bound = at_present(self.value, ops, hyper)
        return ops.clip(grad, -bound, bound)

    def _clipped(self, ops, grad, hyper, var=None):
        if self.value_first:
            grad = self._bounded(ops, grad, hyper)
        if self.unit_norm is not None and var is not None:  # it is None in `collect`, which then has no use
            norm, least = self._unit_norms(ops, grad), ops.maximum(self._unit_norms(ops, var), 1e-3)
            bound = at_present(self.unit_norm, ops, hyper) * least
            grad = grad * ops.where(norm > bound, bound / ops.maximum(norm, 1e-6), 1.0)
        if self._measures:
            norm, bound = ops.sqrt(hyper.square_sum), self._bound(ops, hyper)
            grad = grad * ops.where(norm > bound, bound / ops.maximum(norm, 1e-30), 1.0)
        return grad if self.value_first else self._bounded(ops, grad, hyper)

    def _bound(self, ops, hyper):
        if self.percentile is not None:
            return quantile(ops, hyper, self.percentile / 100)
        return at_present(self.norm if self.norm is not None else self.global_norm, ops, hyper)

    def _unit_norms(self, ops, value):
        return ops.sqrt(ops.sum(value * value, axis=self.axes, keepdims=True)) if self.axes else ops.abs(value)


def clip(
    definition, norm=None, global_norm=None, value=None, value_first=False, unit_norm=None, percentile=None
):
    """Bounds gradients by value, norm, global norm, the norms of units, or a percentile, the same on every API.

    Args:
        definition: The definition that updates.
        norm, global_norm, value, value_first, unit_norm, percentile: See `everstep.optimizers.Clip`.

    Returns:
        An `everstep.optimizers.Clip`.

    Raises:
        DefinitionError: No bound or two norms are given, or the definition measures gradients, which would not be
            clipped.
        HyperTypeError, HyperValueError: An argument is of the wrong type or outside its range.
    """
    return Clip(definition, norm, global_norm, value, value_first, unit_norm, percentile)
