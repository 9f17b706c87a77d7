"""Cautious updates."""
from __future__ import absolute_import, division, print_function

from everstep.errors import DefinitionError
from everstep.optimizers.contract import Wrapper, assign, at_present, defines, option


class Cautious(Wrapper):
    """Drops what moves a variable against its gradient from the update of `inner`: `everstep.cautious`.

    Liang et al. 2024, https://arxiv.org/abs/2411.16085, algorithm 1, with the scale of the authors' code:

    mask = 1 if change * grad > 0 else 0
    var := var - change * mask / max(mean(mask), xi)

    change is what `inner` would subtract. The mask is for each element, its mean over the whole variable. The state of
    `inner` is as without the wrapper.

    | stock                                     | options                                                          |
    |-------------------------------------------|------------------------------------------------------------------|
    | the authors' code, timm's `caution`       | the defaults                                                     |

    The mean needs all rows, so a sparse gradient becomes dense, whatever `sparse` says, and its absent rows count as
    masked. Leave embedding tables out: `everstep.partition({"embedding": ...}, default=everstep.cautious(...))`.

    Advice:
        Keep the settings of `inner`. Put weight decay around cautious, as in the authors' code:
        `everstep.decoupled_weight_decay(everstep.cautious(everstep.optimizers.Adam()), 0.01)`. Inside, as AdamW has it,
        decay is masked too.

    Args:
        inner: The definition that updates.
        xi: The least mean of a mask, more than 0: no step grows by more than 1 / xi. Default 0.001. It can be an
            everstep schedule.

    >>> import numpy, everstep
    >>> weights = numpy.zeros(2)
    >>> optimizer = everstep.cautious(everstep.optimizers.SGD(1.0, momentum=0.5)).bind(numpy)
    >>> for grad in ([1.0, 4.0], [1.0, -1.0]):
    ...     optimizer.apply_gradients([(numpy.array(grad), weights)])
    ...     print(weights)
    [-1. -4.]
    [-4. -4.]
    """

    prefix = "cautious"
    xi = option(1e-3, minimum=1e-30, schedule=True)
    locality = "variable"  # type: ignore[assignment]

    def _check(self):
        for verb, action in (("collect", "collects gradients"), ("evaluation_value", "averages the updated values")):
            if defines(self.inner, verb):
                raise DefinitionError(
                    "{} {}, which cautious would not reach; if it is a wrapper, put cautious inside of it".format(
                        self.inner._short(), action
                    )
                )
        super(Cautious, self)._check()

    def update(self, ops, grad, var, slots, hyper, t):
        change, new = super(Cautious, self).update(ops, grad, var, slots, hyper, t)
        change = var - change.value if isinstance(change, assign) else change
        mask = ops.where(change * grad > 0, ops.ones_like(grad), 0)
        return change * mask / ops.maximum(ops.mean(mask), at_present(self.xi, ops, hyper)), new


def cautious(definition, xi=1e-3):
    """Drops what moves a variable against its gradient: `Cautious(definition, xi)`.

    Args:
        definition: The definition that updates.
        xi: See `everstep.optimizers.Cautious`.

    Returns:
        An `everstep.optimizers.Cautious`.

    Raises:
        DefinitionError: The definition collects gradients or averages values, which would not be those of the masked
            update.
        HyperTypeError, HyperValueError: An argument is of the wrong type or outside its range.
        RuleError: The definition has sparse="catch_up".
    """
    return Cautious(definition, xi)
