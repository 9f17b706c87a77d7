"""Adadelta: steps in proportion to the root mean square of earlier steps."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, hyper, kernel, slot


class Adadelta(Definition):
    """Adadelta (Zeiler 2012, https://arxiv.org/abs/1212.5701, algorithm 1).

    Unlike in the paper, steps have a learning rate, as in every stock version.

    mean_square := rho * mean_square + (1 - rho) * grad^2
    step = sqrt(mean_square_step + epsilon) / sqrt(mean_square + epsilon) * grad
    mean_square_step := rho * mean_square_step + (1 - rho) * step^2
    var := var - learning_rate * step

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | tf.train Adadelta           | sparse="rows"; stock default: epsilon=1e-08                                 |
    | OptimizerV2                 | sparse="rows"                                                               |
    | Keras 2.0 to 2.3            | the defaults; stock default: learning_rate=1.0                              |
    | new-style Keras, Keras 3    | the defaults                                                                |
    | torch.optim                 | the defaults; stock default: epsilon=1e-06, learning_rate=1.0, rho=0.9; its |
    |                             | weight_decay is everstep.l2_penalty                                         |

    Advice:
        Set learning_rate=1.0 for the paper's method, which has no rate to tune. The default of 0.001, as in Keras, is
        far smaller; Keras notes that Adadelta benefits from larger rates than other optimizers
        (https://keras.io/api/optimizers/adadelta).

    Args:
        learning_rate: A float, tensor, callable or schedule, of any sign. Default 0.001; the paper's is 1.
        rho: Decay of both averages, 0 to 1. Default 0.95.
        epsilon: Added under both roots. Default 1e-7.

    >>> import numpy
    >>> weights = numpy.zeros(1)
    >>> Adadelta(1.0, rho=0.75, epsilon=1.0).bind(numpy).apply_gradients([(numpy.array([2.0]), weights)])
    >>> weights.round(4)  # -2 / sqrt(0.25 * 4 + 1)
    array([-1.4142])
    """

    family = "Adagrad"
    kernel = kernel("adadelta")
    learning_rate = hyper(1e-3)
    rho = hyper(0.95, minimum=0, maximum=1)
    epsilon = hyper(1e-7, minimum=0)
    mean_square = slot()
    mean_square_step = slot()

    def update(self, ops, grad, var, slots, hyper, t):
        mean_square = hyper.rho * slots.mean_square + (1 - hyper.rho) * grad * grad
        step = ops.sqrt(slots.mean_square_step + hyper.epsilon) / ops.sqrt(mean_square + hyper.epsilon) * grad
        mean_square_step = hyper.rho * slots.mean_square_step + (1 - hyper.rho) * step * step
        return hyper.learning_rate * step, {"mean_square": mean_square, "mean_square_step": mean_square_step}

    max_replay_steps = 0

    def fast_forward(self, ops, var, slots, hyper, steps):
        left = steps.product(hyper.rho)
        return 0, {"mean_square": slots.mean_square * left, "mean_square_step": slots.mean_square_step * left}
