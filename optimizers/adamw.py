"""AdamW: Adam with decoupled weight decay."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.adam import Adam
from everstep.optimizers.contract import Decoupled, hyper, kernel, option


class AdamW(Decoupled, Adam):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019, arXiv:1711.05101, algorithm 2).

    As Adam, and var := var - learning_rate * weight_decay * var beside it;
    with decay_times_rate=False var - weight_decay * var.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | tf.contrib.opt AdamW        | decay_times_rate=False; its own default: epsilon=1e-08; stock               |
    |                             | AdamWOptimizer moves all rows of a sparse gradient, and decays some         |
    | new-style Keras, Keras 3    | the defaults; weight_decay of its other optimizers is the same              |
    | TensorFlow Addons           | decay_times_rate=False                                                      |

    Args:
        learning_rate: float, tensor, callable or schedule; 0.001.
        beta_1: decay of the first moment, 0 to 1; 0.9.
        beta_2: decay of the second moment, 0 to 1; 0.999.
        epsilon: added to the root; 1e-7.
        amsgrad: False.
        weight_decay: the share of the variable that is taken off; 0.004.
        decay_times_rate: whether that share is times the learning rate; True.

    >>> import numpy
    >>> weights = numpy.ones(1)
    >>> AdamW(0.5, weight_decay=0.25).bind(numpy).apply_gradients([(numpy.zeros(1), weights)])
    >>> weights
    array([0.875])
    """

    kernel = kernel("adamw")
    weight_decay = hyper(0.004, minimum=0)
    decay_times_rate = option(True)
