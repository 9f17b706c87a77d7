"""Explicit Runge-Kutta methods: rules that use several gradients per update."""
from __future__ import absolute_import, division, print_function

from collections import namedtuple

from everstep.errors import DefinitionError, HyperTypeError, HyperValueError
from everstep.optimizers.contract import (
    Option,
    Wrapper,
    assign,
    check_number,
    chosen,
    defines,
    option,
    scalar,
    slot,
    total,
)

# A Butcher tableau. points: its matrix A; row i weights the earlier slopes in the point of stage i + 2. weights: the
# weights of all slopes in the update. error: their weights in the error estimate, or None. order: the error estimate
# falls with this power of the rate.
Tableau = namedtuple("Tableau", "points weights error order")

TABLEAUS = {
    "heun": Tableau(((1.0,),), (1 / 2, 1 / 2), (-1 / 2, 1 / 2), 2),
    "midpoint": Tableau(((1 / 2,),), (0.0, 1.0), (-1.0, 1.0), 2),
    "ralston": Tableau(((2 / 3,),), (1 / 4, 3 / 4), (-3 / 4, 3 / 4), 2),
    "rk23": Tableau(
        ((1 / 2,), (0.0, 3 / 4), (2 / 9, 1 / 3, 4 / 9)),
        (2 / 9, 1 / 3, 4 / 9, 0.0),
        (2 / 9 - 7 / 24, 1 / 3 - 1 / 4, 4 / 9 - 1 / 3, -1 / 8),
        3,
    ),
    "rk4": Tableau(((1 / 2,), (0.0, 1 / 2), (0.0, 0.0, 1.0)), (1 / 6, 1 / 3, 1 / 3, 1 / 6), None, None),
    "rk45": Tableau(
        (
            (1 / 5,),
            (3 / 40, 9 / 40),
            (44 / 45, -56 / 15, 32 / 9),
            (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
            (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
            (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
        ),
        (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84, 0.0),
        (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40),
        5,
    ),
}
_MOST = 16  # stages; common methods have at most 13


class _TableauOption(Option):
    """An option that takes the name of a tableau, or a pair of points and weights."""

    def check(self, owner, value):
        what = "{}.{}".format(owner, self.name)
        if not isinstance(value, (tuple, list)):
            if value not in TABLEAUS:
                raise HyperValueError(
                    "{} is one of {}, or a pair ((row, ...), weights); got {!r}".format(
                        what, ", ".join(sorted(TABLEAUS)), value
                    )
                )
            return value
        try:
            rows, weights = value
            rows = tuple(tuple(check_number(what, number) for number in row) for row in rows)
            weights = tuple(check_number(what, number) for number in weights)
        except (TypeError, ValueError) as error:
            raise HyperTypeError(
                "{} as a pair is ((row, ...), weights), all of numbers; got {!r}: {}".format(what, value, error)
            )
        fits = 1 < len(weights) <= _MOST and [len(row) for row in rows] == list(range(1, len(weights)))
        if not fits or abs(sum(weights) - 1) > 1e-6:
            raise HyperValueError(
                "{} needs 2 to {} weights that add up to 1, and a row of points for each stage after the first, of 1, "
                "2, ... numbers; implicit methods are not supported. Got {!r}".format(what, _MOST, value)
            )
        return rows, weights


class Multistage(Wrapper):
    """An explicit Runge-Kutta method along the negative gradient: `everstep.multistage`.

    g_1 = grad(start)
    g_i = grad(start - learning_rate * sum(points_ij * g_j))
    slope = sum(weights_i * g_i)

    The first sum is over the earlier stages j, the second over all stages i. `inner` then makes one update from start,
    with slope as its gradient (Hairer, Norsett & Wanner 1993, Solving Ordinary Differential Equations I, II.1,
    https://doi.org/10.1007/978-3-540-78862-1). Around SGD without momentum it is the method itself for
    d var / d time = -grad, with steps of learning_rate.

    All gradients of an update use the same batch, one step each. `minimize` of a function that computes the loss calls
    it once per stage. `everstep.enable_multistage(model)` makes `fit` do so. `iterations`, schedules and t count
    updates.

    | tableau                     | order | gradients | with tolerance | from                                          |
    |-----------------------------|-------|-----------|----------------|-----------------------------------------------|
    | "heun", "midpoint",         | 2     | 2         | 2              | Heun 1900; Runge 1895; Ralston 1962           |
    | "ralston"                   |       |           |                |                                               |
    | "rk23"                      | 3     | 3         | 4              | Bogacki & Shampine 1989                       |
    | "rk4"                       | 4     | 4         | none           | Kutta 1901                                    |
    | "rk45"                      | 5     | 6         | 7              | Dormand & Prince 1980                         |

    - Ralston: https://doi.org/10.1090/S0025-5718-1962-0150954-0
    - Bogacki & Shampine: https://doi.org/10.1016/0893-9659(89)90079-7
    - Dormand & Prince: https://doi.org/10.1016/0771-050X(80)90013-3

    With `tolerance`, the learning rate is multiplied by a size that the method adapts, at first 1. An update's error is
    estimated from its slopes: the root mean square of error / (1e-3 * tolerance + tolerance * |var|) over all
    variables. If it is above 1, the variables go back to start. The size is then multiplied by 0.9 * error^(-1/order),
    within 0.2 and 5. A rejected update counts in `iterations`.

    Only sparse="exact" is allowed, because a row's earlier slopes count even if later stages do not touch the row.

    Advice:
        An update costs as many gradients as the table says, so compare it with other optimizers by gradients and not by
        updates. Put other wrappers inside: around multistage they would treat each gradient as a step, and are refused.

    Args:
        inner: The definition that updates.
        tableau: A name of the table, or a pair ((row, ...), weights): one row of points for each stage after the first,
            then the weights. Default "heun".
        tolerance: The relative error allowed per update. Default None: a fixed size, without error estimates.

    >>> import numpy, everstep
    >>> weights = numpy.ones(1)  # of loss = weights ** 2 / 2, which falls as exp(-time)
    >>> optimizer = everstep.multistage(everstep.optimizers.SGD(0.1), "rk4").bind(numpy)
    >>> everstep.enable_multistage(optimizer)  # callers of apply_gradients take 4 gradients of each batch
    >>> for _ in range(4):
    ...     optimizer.apply_gradients([(weights.copy(), weights)])
    >>> abs(weights - numpy.exp(-0.1)) < 1e-7
    array([ True])
    """

    prefix = "multistage"
    zero_grad_is_noop = False  # type: ignore[assignment]  # a row may have had a gradient at an earlier stage
    tableau = _TableauOption("heun")
    tolerance = option(None, minimum=1e-30)
    start = slot()
    vars().update(("slope_{}".format(n), slot(when=lambda rule, n=n: rule.stages > n)) for n in range(1, _MOST))
    size = scalar(1.0)
    used = scalar(1.0)  # the size of this update: `advance` changes `size` before `update` runs

    def _check(self):
        for verb in ("should_update", "should_accept", "collect", "loss_scale"):
            if defines(self.inner, verb):
                raise DefinitionError(
                    "{} skips, collects or rejects steps, but multistage takes a step for each stage and updates at "
                    "the last".format(self.inner._short())
                )
        if "learning_rate" not in self.base.declarations:
            raise DefinitionError("{} has no single learning rate, which multistage needs".format(self.inner._short()))
        if self.sparse != "exact":
            raise DefinitionError('multistage takes only sparse="exact"; got {!r}'.format(self.sparse))
        if self.tolerance is not None and self._method.error is None:
            raise DefinitionError("tableau {!r} has no error estimate, which tolerance needs".format(self.tableau))
        super(Multistage, self)._check()

    @property
    def _method(self):
        return TABLEAUS[self.tableau] if self.tableau in TABLEAUS else Tableau(*(self.tableau + (None, None)))

    @property
    def stages(self):
        # A last stage that only the error estimate uses is left out without a tolerance.
        weights = self._method.weights
        return len(weights) - (self.tolerance is None and not weights[-1])

    def should_update(self, ops, hyper):
        return hyper.pending >= self.stages

    def measure(self, ops, grad, var, slots, hyper):
        slopes = self._slopes(ops, grad, slots, hyper)
        mean = self._mean(slopes, self._method.weights)
        measures = {"inner": self.inner.measure(ops, mean, var, slots.inner, hyper.inner)}
        if self.tolerance is not None:
            error = self._rate(hyper, hyper.size) * self._mean(slopes, self._method.error)
            relative = error / (self.tolerance * (1e-3 + ops.abs(slots.start)))
            measures.update(error=total(ops.sum(relative * relative)), elements=total(ops.sum(ops.ones_like(grad))))
        return measures

    def advance(self, ops, scalars, hyper, t):
        new = super(Multistage, self).advance(ops, scalars, hyper, t)
        if self.tolerance is None:
            return dict(new, size=scalars.size, used=scalars.used)
        power = -1 / self._method.order
        change = 0.9 * ops.maximum(self._error(ops, hyper), 1e-10) ** power
        return dict(new, size=scalars.size * ops.clip(change, 0.2, 5.0), used=scalars.size)

    def update(self, ops, grad, var, slots, hyper, t):
        slopes = self._slopes(ops, grad, slots, hyper)
        start = ops.where(ops.equal(hyper.pending, 1), var, slots.start)
        inner_hyper = hyper.inner if self.tolerance is None else hyper.inner.scaled("learning_rate", hyper.used)
        mean = self._mean(slopes, self._method.weights)
        change, inner = self.inner.update(ops, mean, start, slots.inner, inner_hyper, t)
        value = change.value if isinstance(change, assign) else start - change
        last_stage = self.should_update(ops, hyper)
        accepted = last_stage
        if self.tolerance is not None:
            accepted = ops.logical_and(last_stage, self._error(ops, hyper) <= 1)
            value = ops.where(accepted, value, start)
        for place in range(self.stages - 1):
            point = start - self._rate(hyper, hyper.used) * self._mean(slopes, self._method.points[place])
            value = ops.where(ops.equal(hyper.pending, place + 1), point, value)
        new = {"slope_{}".format(place): slope for place, slope in enumerate(slopes[:-1], 1)}
        return assign(value), dict(new, start=start, inner=chosen(ops, accepted, inner, slots.inner))

    def _slopes(self, ops, grad, slots, hyper):
        """Returns one gradient per stage: those of earlier stages from their slots, this step's for all others."""
        stored = [getattr(slots, "slope_{}".format(place)) for place in range(1, self.stages)]
        return [ops.where(hyper.pending > place, slope, grad) for place, slope in enumerate(stored, 1)] + [grad]

    @staticmethod
    def _mean(slopes, weights):
        return sum(weight * slope for weight, slope in zip(weights, slopes) if weight)

    def _rate(self, hyper, size):
        rule, rule_hyper = self.inner, hyper.inner
        while isinstance(rule, Wrapper):
            rule, rule_hyper = rule.inner, rule_hyper.inner
        return rule_hyper.learning_rate if self.tolerance is None else rule_hyper.learning_rate * size

    def _error(self, ops, hyper):
        return ops.sqrt(hyper.error / hyper.elements)


def multistage(definition, tableau="heun", tolerance=None):
    """Runs any explicit Runge-Kutta method, such as Heun or RK45: `Multistage(definition, tableau, tolerance)`.

    Args:
        definition: The definition that updates.
        tableau, tolerance: See `everstep.optimizers.Multistage`.

    Returns:
        An `everstep.optimizers.Multistage`.

    Raises:
        DefinitionError: The definition skips, collects or rejects steps, has no single learning rate, or has a `sparse`
            other than "exact"; or the tableau has no error estimate and there is a tolerance.
        HyperTypeError, HyperValueError: An argument is of the wrong type or outside its range.
    """
    return Multistage(definition, tableau, tolerance)
