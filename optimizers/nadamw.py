"""NadamW: Nadam with decoupled weight decay."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Decoupled, hyper, kernel, option
from everstep.optimizers.nadam import Nadam


class NadamW(Decoupled, Nadam):
    """Nadam with decoupled weight decay.

    Dozat 2016, https://openreview.net/forum?id=OM0jvwB8jIp57ZJjtNEZ, algorithm 2;
    Loshchilov & Hutter 2019, https://arxiv.org/abs/1711.05101, algorithm 2.

    The update of Nadam, and in the same step var := var - learning_rate * weight_decay * var.
    With decay_times_rate=False: var := var - weight_decay * var.

    Defaults are those of Nadam, and those of AdamW for the decay.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | TensorFlow Addons           | decay_times_rate=False: extend_with_decoupled_weight_decay(Nadam)           |
    | new-style Keras, Keras 3    | momentum_decay=1: Nadam(weight_decay=...)                                   |
    | torch                       | epsilon=1e-8: NAdam(decoupled_weight_decay=True)                            |

    Advice:
        As for AdamW: do not add an L2 penalty to the loss as well. With decay_times_rate=False, give weight_decay the
        same schedule as the learning rate.

    Args:
        learning_rate: A float, tensor, callable or schedule, of any sign. Default 0.001.
        beta_1: Decay of the first moment, 0 to 1. Default 0.9.
        beta_2: Decay of the second moment, 0 to 1. Default 0.999.
        epsilon: Added to the root. Default 1e-7.
        momentum_decay: As in Nadam. Default 0.004.
        momentum_schedule: As in Nadam. Default True.
        weight_decay: The share of the variable that each update subtracts. Default 0.004.
        decay_times_rate: True to multiply that share by the learning rate. Default True.

    >>> import numpy
    >>> weights = numpy.ones(1)
    >>> NadamW(0.5, weight_decay=0.25).bind(numpy).apply_gradients([(numpy.zeros(1), weights)])
    >>> weights
    array([0.875])
    """

    kernel = kernel("nadamw")
    weight_decay = hyper(0.004, minimum=0)
    decay_times_rate = option(True)
