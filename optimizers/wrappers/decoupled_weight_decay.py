"""Weight decay beside the update, for any definition."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.coasting import decayed
from everstep.optimizers.declarations import hyper, option
from everstep.optimizers.definition import Wrapper, assign


class DecoupledWeightDecay(Wrapper):
    """Takes a share off the variable, then `inner` updates what is left: `everstep.decoupled_weight_decay`.

    As in Loshchilov & Hutter 2019, arXiv:1711.05101, algorithms 1 and 2.

    var := var - learning_rate * weight_decay * var; with times_rate=False var - weight_decay * var
    then inner's update of that var

    | stock                                     | options                                        |
    |-------------------------------------------|------------------------------------------------|
    | weight_decay of new-style Keras, Keras 3  | the defaults                                   |
    | contrib's and addons' extend_with_...     | times_rate=False                               |

    Args:
        inner: the definition that updates.
        weight_decay: the share; float, tensor, callable or schedule; 0.004.
        times_rate: whether it is times the learning rate of `inner`; True.

    >>> import numpy, everstep
    >>> weights = numpy.ones(1)
    >>> definition = everstep.decoupled_weight_decay(everstep.optimizers.SGD(0.5), 0.25)
    >>> definition.bind(numpy).apply_gradients([(numpy.ones(1), weights)])
    >>> weights  # 1 - 0.5 * 0.25 - 0.5
    array([0.375])
    """

    prefix = "decoupled"
    weight_decay = hyper(0.004, minimum=0)
    times_rate = option(True)
    still = False  # type: ignore[assignment]  # all rows shrink
    replays = 200  # type: ignore[assignment]

    def update(self, ops, grad, var, slots, hyper, t):
        share = self.share(hyper)
        change, new = super(DecoupledWeightDecay, self).update(ops, grad, var - share * var, slots, hyper, t)
        return change if isinstance(change, assign) else change + share * var, new

    def coast(self, ops, var, slots, hyper, steps):
        change, new = super(DecoupledWeightDecay, self).coast(ops, var, slots, hyper, steps)
        return change + decayed(ops, self.share(hyper), steps) * var, new

    def share(self, hyper):
        return hyper.weight_decay * hyper.inner.learning_rate if self.times_rate else hyper.weight_decay


def decoupled_weight_decay(definition, weight_decay=0.004, times_rate=True):
    """`DecoupledWeightDecay(definition, weight_decay, times_rate)`: AdamW's decay for any definition."""
    return DecoupledWeightDecay(definition, weight_decay, times_rate)
