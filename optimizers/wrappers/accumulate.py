"""Gradient accumulation: many small batches, one update."""
from __future__ import absolute_import, division, print_function

from everstep.errors import DefinitionError
from everstep.optimizers.declarations import option, slot
from everstep.optimizers.definition import Wrapper
from everstep.optimizers.tree import defines


class Accumulate(Wrapper):
    """Adds up the gradients of `steps` steps, then makes one update of them: `everstep.accumulate`.

    sum := sum + grad at every step; at every `steps`-th one, `inner` updates with sum / steps (`reduction="mean"`) or
    sum (`"sum"`), and sum := 0. `t`, bias corrections and schedules count updates, so that k steps do what one step
    on the k batches joined does. Of a sparse gradient only the rows present are added and written.

    Args:
        inner: the definition that updates.
        steps: number of steps to one update, at least 1.
        reduction: "mean" (default) where each step's loss is a mean over its batch, "sum" where it is a sum.

    >>> import numpy, everstep
    >>> weights = numpy.zeros(1)
    >>> optimizer = everstep.accumulate(everstep.optimizers.SGD(1.0), steps=2).bind(numpy)
    >>> for grad in (1.0, 3.0):
    ...     optimizer.apply_gradients([(numpy.array([grad]), weights)])
    ...     print(weights)
    [0.]
    [-2.]
    """

    prefix = "accumulate"
    steps = option(1, minimum=1)
    reduction = option("mean", choices=("mean", "sum"))
    sum = slot()

    def _check(self):
        if defines(self.inner, "applies") or defines(self.inner, "collect"):
            raise DefinitionError(
                "{} skips or collects steps itself, and two counts of steps have no one meaning; multiply the numbers "
                "of steps instead".format(self.inner._short())
            )
        super(Accumulate, self)._check()

    @property
    def resting(self):
        return self.inner.resting

    def collect(self, ops, grad, slots, hyper):
        return {"sum": slots.sum + grad}

    def measure(self, ops, grad, var, slots, hyper):
        return {"inner": self.inner.measure(ops, self._reduce(slots.sum + grad), var, slots.inner, hyper.inner)}

    def applies(self, ops, hyper):
        return hyper.pending >= self.steps

    def update(self, ops, grad, var, slots, hyper, t):
        change, inner = self.inner.update(ops, self._reduce(slots.sum), var, slots.inner, hyper.inner, t)
        return change, {"sum": ops.zeros_like(slots.sum), "inner": inner}

    def _reduce(self, gradients):
        return gradients / self.steps if self.reduction == "mean" else gradients


def accumulate(definition, steps, reduction="mean"):
    """`Accumulate(definition, steps, reduction)`: k micro-steps equal one big batch."""
    return Accumulate(definition, steps, reduction)
