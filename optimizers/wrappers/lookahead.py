"""Lookahead: some steps forward, one step back."""
from __future__ import absolute_import, division, print_function

from everstep.errors import RuleError
from everstep.optimizers.contract import VARIABLE, Wrapper, assign, hyper, option, slot


class Lookahead(Wrapper):
    """Draws slow weights after the variable at every `sync_period`-th update, and puts it back there.

    As in Zhang et al. 2019, arXiv:1907.08610, algorithm 1: `everstep.lookahead`. slow starts at the variable's value;
    `inner` updates the variable, and where the number of updates is a multiple of sync_period

    slow := slow + slow_step_size * (variable - slow);  variable := slow

    `everstep.averaged` puts the slow weights into the variables for evaluation.

    | stock                                     | options                                                          |
    |-------------------------------------------|------------------------------------------------------------------|
    | Lookahead of TensorFlow Addons            | the defaults                                                     |
    | keras-lookahead                           | sync_period=5; slow_step_size=0.5                                |

    Of a sparse gradient: "exact" has all rows meet at once; with "rows" a row that is not present at a meeting goes to
    a later one; "catch_up" takes the meetings that a row missed: the first 200 steps (or sync_period, where that is
    more) one by one, and beyond them the closed form of `inner`, at slow_step_size of its speed: within what a weight
    decay takes in one period. "variable_rows" is refused: absent rows never take the values that slow weights would be
    drawn to.

    Args:
        inner: the definition that updates.
        sync_period: number of updates to one of the slow weights, at least 1; 6.
        slow_step_size: 0 to 1; 0.5.

    >>> import numpy, everstep
    >>> weights = numpy.full(1, 10.0)
    >>> optimizer = everstep.lookahead(everstep.optimizers.SGD(1.0), sync_period=2).bind(numpy)
    >>> for _ in range(2):
    ...     optimizer.apply_gradients([(numpy.array([1.0]), weights)])
    ...     print(weights)
    [9.]
    [9.]
    """

    prefix = "lookahead"
    sync_period = option(6, minimum=1)
    slow_step_size = hyper(0.5, minimum=0, maximum=1)
    slow = slot(init=VARIABLE)
    zero_grad_is_noop = False  # type: ignore[assignment]  # a sync moves rows that have no gradient

    def _check(self):
        if self.sparse == "variable_rows":
            raise RuleError(
                '{} cannot take sparse="variable_rows": absent rows never take the values that slow weights would be '
                'drawn to. Use sparse="exact" or "rows"'.format(self._short())
            )
        super(Lookahead, self)._check()

    @property
    def max_replay_steps(self):  # type: ignore[override]
        return max(200, self.sync_period, self.inner.max_replay_steps)

    def update(self, ops, grad, var, slots, hyper, t):
        change, new = super(Lookahead, self).update(ops, grad, var, slots, hyper, t)
        value = change.value if isinstance(change, assign) else var - change
        meets = ops.equal(t % self.sync_period, 0)
        new["slow"] = ops.where(meets, slots.slow + hyper.slow_step_size * (value - slots.slow), slots.slow)
        return assign(ops.where(meets, new["slow"], value)), new

    def fast_forward(self, ops, var, slots, hyper, steps):
        # The two have met by now, and what still moves the variable does it at the slow weights' pace.
        change, _ = super(Lookahead, self).fast_forward(ops, var, slots, hyper, hyper.slow_step_size * steps)
        _, new = super(Lookahead, self).fast_forward(ops, var, slots, hyper, steps)
        new["slow"] = ops.where(steps > 0, var - change, slots.slow)
        return change, new

    def evaluation_value(self, ops, var, slots, hyper):
        return slots.slow


def lookahead(definition, sync_period=6, slow_step_size=0.5):
    """`Lookahead(definition, sync_period, slow_step_size)`: k steps forward, one step back."""
    return Lookahead(definition, sync_period, slow_step_size)
