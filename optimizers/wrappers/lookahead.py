"""Lookahead: k steps forward, one step back."""
from __future__ import absolute_import, division, print_function

from everstep.errors import RuleError
from everstep.optimizers.contract import VARIABLE, Wrapper, assign, hyper, option, slot


class Lookahead(Wrapper):
    """Every `sync_period` updates, moves slow weights towards the variable and resets it to them: `everstep.lookahead`.

    Zhang et al. 2019, https://arxiv.org/abs/1907.08610, algorithm 1. slow starts at the variable's value. `inner`
    updates the variable. If the number of updates is a multiple of sync_period:

    slow := slow + slow_step_size * (variable - slow);  variable := slow

    `everstep.averaged` puts the slow weights into the variables for evaluation.

    | stock                                     | options                                                          |
    |-------------------------------------------|------------------------------------------------------------------|
    | Lookahead of TensorFlow Addons            | the defaults                                                     |
    | keras-lookahead                           | sync_period=5                                                    |

    For a sparse gradient, "exact" syncs all rows at once. With "rows", a row that is absent at a sync takes part in a
    later one. With "catch_up", a row takes the syncs that it missed: the first 200 steps (or sync_period, if that is
    more) one by one, the rest by the closed form of `inner` at slow_step_size of its speed. This is exact to within the
    weight decay of one period. "variable_rows" is refused: absent rows never take the values that the slow weights
    would move to.

    Advice:
        The paper uses sync_period=5 or 10 and slow_step_size=0.5 or 0.8, and reports gains with the default settings of
        the inner optimizer. Evaluate with the slow weights, inside `everstep.averaged`.

    Args:
        inner: The definition that updates.
        sync_period: Number of updates per update of the slow weights, at least 1. Default 6.
        slow_step_size: The share of the way that slow weights move, 0 to 1. Default 0.5.

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
    zero_grad_is_noop = False  # type: ignore[assignment]  # a sync moves rows without a gradient

    def _check(self):
        if self.sparse == "variable_rows":
            raise RuleError(
                '{} cannot take sparse="variable_rows": absent rows never take the values that slow weights would '
                'move to. Use sparse="exact" or "rows"'.format(self._short())
            )
        super(Lookahead, self)._check()

    def update(self, ops, grad, var, slots, hyper, t):
        change, new = super(Lookahead, self).update(ops, grad, var, slots, hyper, t)
        value = change.value if isinstance(change, assign) else var - change
        syncs = ops.equal(t % self.sync_period, 0)
        new["slow"] = ops.where(syncs, slots.slow + hyper.slow_step_size * (value - slots.slow), slots.slow)
        return assign(ops.where(syncs, new["slow"], value)), new

    def fast_forward(self, ops, var, slots, hyper, steps):
        inner = super(Lookahead, self).fast_forward
        change, new = inner(ops, var, slots, hyper, steps)
        syncs = ops.where(ops.equal((hyper.updates + 1) % self.sync_period, 0), 1, 0)
        unsynced = 0 if isinstance(change, assign) else inner(ops, var, slots, hyper, steps.decayed(syncs, True))[0]
        if isinstance(change, assign) or steps.rests_first:
            # At rest, the variable and the slow weights move together, at the pace of the slow weights.
            steps.rest_first()
            change, _ = inner(ops, var, slots, hyper, steps.slowed(hyper.slow_step_size))
            value = change.value if isinstance(change, assign) else var - change
            new["slow"] = ops.where(steps > 0, value, slots.slow)
            return change, new
        # What lies between variable and slow weights goes to the slow weights in part, by the first sync.
        moved = hyper.slow_step_size * (steps.decay(syncs) * (var - slots.slow) - (change - unsynced))
        new["slow"] = slots.slow + moved
        return assign(new["slow"] + (1 - steps.decay(syncs)) * (var - slots.slow) - unsynced), new

    def evaluation_value(self, ops, var, slots, hyper):
        return slots.slow


def lookahead(definition, sync_period=6, slow_step_size=0.5):
    """Goes k steps forward and one step back: `Lookahead(definition, sync_period, slow_step_size)`.

    Args:
        definition: The definition that updates.
        sync_period, slow_step_size: See `everstep.optimizers.Lookahead`.

    Returns:
        An `everstep.optimizers.Lookahead`.

    Raises:
        HyperTypeError, HyperValueError: An argument is of the wrong type or outside its range.
        RuleError: The definition has sparse="variable_rows".
    """
    return Lookahead(definition, sync_period, slow_step_size)
