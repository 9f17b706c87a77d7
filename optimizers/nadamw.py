"""NadamW: Nadam with decoupled weight decay."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Decoupled, hyper, kernel, option
from everstep.optimizers.nadam import Nadam


class NadamW(Decoupled, Nadam):
    """Nadam (Dozat 2016) with decoupled weight decay (Loshchilov & Hutter 2019, arXiv:1711.05101, algorithm 2).

    As Nadam, and var := var - learning_rate * weight_decay * var beside it;
    with decay_times_rate=False var - weight_decay * var.

    Defaults are those of Nadam, and for the decay of AdamW.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | TensorFlow Addons           | decay_times_rate=False: extend_with_decoupled_weight_decay(Nadam)           |
    | new-style Keras, Keras 3    | momentum_decay=1: Nadam(weight_decay=...)                                   |
    | torch                       | epsilon=1e-8: NAdam(decoupled_weight_decay=True)                            |

    Args:
        learning_rate: float, tensor, callable or schedule; 0.001.
        beta_1: decay of the first moment, 0 to 1; 0.9.
        beta_2: decay of the second moment, 0 to 1; 0.999.
        epsilon: added to the root; 1e-7.
        momentum_decay: as in Nadam; 0.004.
        momentum_schedule: as in Nadam; True.
        weight_decay: the share of the variable that is taken off; 0.004.
        decay_times_rate: whether that share is times the learning rate; True.

    >>> import numpy
    >>> weights = numpy.ones(1)
    >>> NadamW(0.5, weight_decay=0.25).bind(numpy).apply_gradients([(numpy.zeros(1), weights)])
    >>> weights
    array([0.875])
    """

    kernel = kernel("nadamw")
    weight_decay = hyper(0.004, minimum=0)
    decay_times_rate = option(True)
