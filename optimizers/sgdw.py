"""SGDW: gradient descent with decoupled weight decay."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Decoupled, hyper, kernel, option
from everstep.optimizers.sgd import SGD


class SGDW(Decoupled, SGD):
    """SGD with decoupled weight decay (Loshchilov & Hutter 2019, arXiv:1711.05101, algorithm 1).

    As SGD, and var := var - learning_rate * weight_decay * var beside it;
    with decay_times_rate=False var - weight_decay * var.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | tf.contrib.opt MomentumW    | decay_times_rate=False, rate_in_velocity=False, sparse="rows"               |
    | TensorFlow Addons           | decay_times_rate=False                                                      |
    | new-style Keras, Keras 3    | the defaults: SGD(weight_decay=...)                                         |

    Args:
        learning_rate: float, tensor, callable or schedule; 0.01.
        momentum: 0 to 1; a float given as 0 makes no slot; 0.
        nesterov: look-ahead gradient; False.
        rate_in_velocity: as in SGD; True.
        weight_decay: the share of the variable that is taken off; 0.004.
        decay_times_rate: whether that share is times the learning rate; True.

    >>> import numpy
    >>> weights = numpy.ones(1)
    >>> SGDW(0.5, weight_decay=0.25).bind(numpy).apply_gradients([(numpy.ones(1), weights)])
    >>> weights  # 1 - 0.5 - 0.5 * 0.25
    array([0.375])
    """

    kernel = kernel("sgdw")
    zero_grad_is_noop = False
    max_replay_steps = 200  # type: ignore[assignment]  # of what decays while it still moves
    weight_decay = hyper(0.004, minimum=0)
    decay_times_rate = option(True)
