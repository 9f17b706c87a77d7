"""AdamW: Adam with decoupled weight decay."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.adam import Adam
from everstep.optimizers.contract import Decoupled, hyper, kernel, option


class AdamW(Decoupled, Adam):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019, https://arxiv.org/abs/1711.05101, algorithm 2).

    The update of Adam, and in the same step var := var - learning_rate * weight_decay * var.
    With decay_times_rate=False: var := var - weight_decay * var.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | tf.contrib.opt AdamW        | decay_times_rate=False; stock default: epsilon=1e-08; stock AdamWOptimizer  |
    |                             | moves all rows of a sparse gradient, and decays some                        |
    | new-style Keras, Keras 3    | the defaults; weight_decay of its other optimizers is the same              |
    | torch.optim                 | corrected_root=True; stock default: epsilon=1e-08, weight_decay=0.01        |
    | TensorFlow Addons           | decay_times_rate=False                                                      |

    Advice:
        Do not add an L2 penalty to the loss as well. With decay_times_rate=False the decay does not follow a
        learning-rate schedule: give weight_decay the same schedule
        (https://www.tensorflow.org/addons/api_docs/python/tfa/optimizers/AdamW). To leave out biases and normalization,
        as BERT does, use `everstep.decoupled_weight_decay(Adam(), exclude=["bias", "norm"])`.

    Args:
        learning_rate: A float, tensor, callable or schedule, of any sign. Default 0.001.
        beta_1: Decay of the first moment, 0 to 1. Default 0.9.
        beta_2: Decay of the second moment, 0 to 1. Default 0.999.
        epsilon: Added to the root. Default 1e-7.
        amsgrad: As in Adam. Default False.
        bias_correction: As in Adam. Default True.
        corrected_root: As in Adam. Default False.
        weight_decay: The share of the variable that each update subtracts. Default 0.004.
        decay_times_rate: True to multiply that share by the learning rate. Default True.

    >>> import numpy
    >>> weights = numpy.ones(1)
    >>> AdamW(0.5, weight_decay=0.25).bind(numpy).apply_gradients([(numpy.zeros(1), weights)])
    >>> weights
    array([0.875])
    """

    kernel = kernel("adamw")
    weight_decay = hyper(0.004, minimum=0)
    decay_times_rate = option(True)
