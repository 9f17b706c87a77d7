"""SGDW: gradient descent with decoupled weight decay."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Decoupled, hyper, kernel, option
from everstep.optimizers.sgd import SGD


class SGDW(Decoupled, SGD):
    """SGD with decoupled weight decay (Loshchilov & Hutter 2019, https://arxiv.org/abs/1711.05101, algorithm 1).

    The update of SGD, and in the same step var := var - learning_rate * weight_decay * var.
    With decay_times_rate=False: var := var - weight_decay * var.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | tf.contrib.opt MomentumW    | decay_times_rate=False, rate_in_velocity=False, sparse="rows"               |
    | TensorFlow Addons           | decay_times_rate=False                                                      |
    | new-style Keras, Keras 3    | the defaults: SGD(weight_decay=...)                                         |

    Advice:
        Do not add an L2 penalty to the loss as well. With decay_times_rate=False the decay does not follow a
        learning-rate schedule: give weight_decay the same schedule
        (https://www.tensorflow.org/addons/api_docs/python/tfa/optimizers/SGDW).

    Args:
        learning_rate: A float, tensor, callable or schedule, of any sign. Default 0.01.
        momentum: 0 to 1. If it is the float 0, there is no velocity slot. Default 0.
        nesterov: True for Nesterov momentum. Default False.
        rate_in_velocity: As in SGD. Default True.
        dampening: As in SGD. Default 0.
        weight_decay: The share of the variable that each update subtracts. Default 0.004.
        decay_times_rate: True to multiply that share by the learning rate. Default True.

    >>> import numpy
    >>> weights = numpy.ones(1)
    >>> SGDW(0.5, weight_decay=0.25).bind(numpy).apply_gradients([(numpy.ones(1), weights)])
    >>> weights  # 1 - 0.5 - 0.5 * 0.25
    array([0.375])
    """

    kernel = kernel("sgdw")
    zero_grad_is_noop = False
    weight_decay = hyper(0.004, minimum=0)
    decay_times_rate = option(True)
