"""Gradient accumulation: one update from many small batches."""
from __future__ import absolute_import, division, print_function

from everstep.errors import DefinitionError
from everstep.optimizers.contract import Wrapper, at_present, defines, option, slot


class Accumulate(Wrapper):
    """Adds up the gradients of `steps` steps, then makes one update from them: `everstep.accumulate`.

    Ott et al. 2018, https://arxiv.org/abs/1806.00187, train with large batches on few devices in this way.

    Every step:           sum := sum + grad
    Every steps-th step, inner updates with sum / steps (reduction="mean") or sum (reduction="sum"), and sum := 0.

    t, bias corrections and schedules count updates, so k steps equal one step on the k batches joined. What `inner`
    measures or clips is the reduced sum. A step that does not update costs only the addition.

    `optimizer.flush()` makes an update from a window that is not full, with the mean or sum of the steps it has.
    `optimizer.steps` counts steps; `optimizer.iterations` (`updates` on tf.train) counts updates. Both are saved, and
    so is an open window.

    For a sparse gradient, a step adds and writes only the rows present. An update treats all rows of its window as
    present: with sparse="rows" only those change, with "exact" all other rows get a zero gradient.

    | stock                                     | options                                                          |
    |-------------------------------------------|------------------------------------------------------------------|
    | gradient_accumulation_steps of Keras 3    | the defaults; native schedules count steps there                 |
    | backward_passes_per_step of Horovod       | the defaults                                                     |

    Advice:
        Choose reduction="mean" if each step's loss is a mean over its batch; "sum" then makes gradients k times too
        large. Shorten schedules, which now count updates. Put clip inside to bound the mean, or around to bound each
        gradient; put loss_scale around, so that one overflow discards one step and not the window.

    Args:
        inner: The definition that updates.
        steps: Number of steps per update, at least 1, or an everstep schedule over updates. The update comes at the
            first step at which the window holds at least that many. Default 1.
        reduction: "mean" or "sum" of the gradients. Default "mean".

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
                "{} already skips or collects steps, and accumulate cannot count them again; multiply the numbers of "
                "steps instead".format(self.inner._short())
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
        reduced = self._reduced(slots.sum + grad, hyper)
        return {"inner": self.inner.measure(ops, reduced, var, slots.inner, hyper.inner)}

    def should_update(self, ops, hyper):
        return hyper.pending >= at_present(self.steps, ops, hyper)

    def update(self, ops, grad, var, slots, hyper, t):
        reduced = self._reduced(slots.sum, hyper)
        change, new = super(Accumulate, self).update(ops, reduced, var, slots, hyper, t)
        return change, dict(new, sum=ops.zeros_like(slots.sum))

    def _reduced(self, grad_sum, hyper):
        return grad_sum * (1 / hyper.pending) if self.reduction == "mean" else grad_sum


def accumulate(definition, steps, reduction="mean"):
    """Makes `steps` small batches equal one big batch: `Accumulate(definition, steps, reduction)`.

    Args:
        definition: The definition that updates.
        steps, reduction: See `everstep.optimizers.Accumulate`.

    Returns:
        An `everstep.optimizers.Accumulate`.

    Raises:
        DefinitionError: The definition skips, collects or rejects steps itself.
        HyperTypeError, HyperValueError: An argument is of the wrong type or outside its range.
    """
    return Accumulate(definition, steps, reduction)
