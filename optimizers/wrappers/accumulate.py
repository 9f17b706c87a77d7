"""Gradient accumulation: many small batches, one update."""
from __future__ import absolute_import, division, print_function

from everstep.errors import DefinitionError
from everstep.optimizers.contract import Schedule, Wrapper, defines, option, slot


class Accumulate(Wrapper):
    """Adds up the gradients of `steps` steps, then makes one update of them: `everstep.accumulate`.

    sum := sum + grad at every step; at every `steps`-th one `inner` updates with sum / steps (`reduction="mean"`) or
    sum (`"sum"`), and sum := 0. `t`, bias corrections and schedules count updates, so that k steps do what one step
    on the k batches joined does: what `inner` measures or clips is that of the sum. A step in between costs the
    addition alone.

    `optimizer.flush()` makes the update of a window that is not full, of the steps that came: their mean, or their sum.
    `optimizer.steps` counts steps, `optimizer.iterations` (on tf.train `updates`) counts updates; both are saved, and
    so is an open window.

    Of a sparse gradient only the rows present are added and written, and an update takes all rows of its window for
    present: with "rows" those alone change, with "exact" the others get a zero gradient.

    | stock                                     | options                                                          |
    |-------------------------------------------|------------------------------------------------------------------|
    | gradient_accumulation_steps of Keras 3    | the defaults; native schedules count steps there                 |
    | backward_passes_per_step of Horovod       | the defaults                                                     |

    Args:
        inner: the definition that updates.
        steps: number of steps to one update, at least 1, or an everstep schedule (of updates). An update comes at the
            first step at which the window has so many.
        reduction: "mean" (default) where each step's loss is a mean over its batch, "sum" where it is a sum.

    >>> import numpy, everstep
    >>> weights = numpy.zeros(1)
    >>> optimizer = everstep.accumulate(everstep.optimizers.SGD(1.0), steps=2).bind(numpy)
    >>> for grad in (1.0, 3.0, 5.0):
    ...     optimizer.apply_gradients([(numpy.array([grad]), weights)])
    ...     print(weights)
    [0.]
    [-2.]
    [-2.]
    >>> optimizer.flush()
    >>> print(weights, optimizer.iterations, optimizer.steps)
    [-7.] 2 3
    """

    prefix = "accumulate"
    forwarded_verbs = frozenset(["measure"])
    measures_on_update = True
    steps = option(1, minimum=1, schedule=True)
    reduction = option("mean", choices=("mean", "sum"))
    sum = slot()

    def _check(self):
        if defines(self.inner, "should_update") or defines(self.inner, "collect"):
            raise DefinitionError(
                "{} skips or collects steps itself, and two counts of steps have no one meaning; multiply the numbers "
                "of steps instead".format(self.inner._short())
            )
        if defines(self.inner, "should_accept"):
            raise DefinitionError("put {} around accumulate, not inside".format(type(self.inner).__name__))
        super(Accumulate, self)._check()

    @property
    def without_grad(self):
        return self.inner.without_grad

    def collect(self, ops, grad, slots, hyper):
        return {"sum": slots.sum + grad}

    def measure(self, ops, grad, var, slots, hyper):
        gradients = self._reduced(slots.sum + grad, hyper)
        return {"inner": self.inner.measure(ops, gradients, var, slots.inner, hyper.inner)}

    def should_update(self, ops, hyper):
        steps = self.steps
        return hyper.pending >= (steps.value(ops, hyper.updates) if isinstance(steps, Schedule) else steps)

    def update(self, ops, grad, var, slots, hyper, t):
        gradients = self._reduced(slots.sum, hyper)
        change, inner = self.inner.update(ops, gradients, var, slots.inner, hyper.inner, t)
        return change, {"sum": ops.zeros_like(slots.sum), "inner": inner}

    def _reduced(self, gradients, hyper):
        return gradients / hyper.pending if self.reduction == "mean" else gradients


def accumulate(definition, steps, reduction="mean"):
    """`Accumulate(definition, steps, reduction)`: k micro-steps equal one big batch."""
    return Accumulate(definition, steps, reduction)
