"""Stochastic gradient descent, with momentum."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, geometric, hyper, kernel, option, slot


class SGD(Definition):
    """Gradient descent (Robbins & Monro 1951) with heavy-ball (Polyak 1964) or Nesterov momentum.

    Nesterov's as in Sutskever et al. 2013, equations 3 and 4.

    a := momentum * a - learning_rate * grad
    var := var + a; with nesterov var + momentum * a - learning_rate * grad
    without momentum var := var - learning_rate * grad

    or with rate_in_velocity=False, which differs once the rate changes,
    a := momentum * a + grad
    var := var - learning_rate * a; with nesterov var - learning_rate * (grad + momentum * a)

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | tf.train GradientDescent,   | the defaults                                                                |
    |   Keras 2.0 to 2.3,         |                                                                             |
    |   new-style Keras, Keras 3  |                                                                             |
    | tf.train Momentum           | rate_in_velocity=False, sparse="rows"                                       |
    | OptimizerV2                 | sparse="rows" where momentum is given                                       |

    Args:
        learning_rate: float, tensor, callable or schedule; 0.01.
        momentum: 0 to 1; a float given as 0 makes no slot; 0.
        nesterov: look-ahead gradient; False.
        rate_in_velocity: whether the velocity sums gradients times their rates, or gradients; True.

    >>> import numpy
    >>> weights = numpy.array([1.0, 2.0])
    >>> SGD(0.5).bind(numpy).apply_gradients([(numpy.array([1.0, -1.0]), weights)])
    >>> weights
    array([0.5, 2.5])
    """

    family = "gradient descent"
    kernel = kernel("sgd")
    learning_rate = hyper(0.01, minimum=0)
    momentum = hyper(0.0, minimum=0, maximum=1)
    nesterov = option(False)
    rate_in_velocity = option(True)
    velocity = slot(when="momentum")

    @property
    def zero_grad_is_noop(self):
        return not self.has_slot("velocity")

    def update(self, ops, grad, var, slots, hyper, t):
        step = hyper.learning_rate * grad
        if not self.has_slot("velocity"):
            return step, {}
        if not self.rate_in_velocity:
            velocity = hyper.momentum * slots.velocity + grad
            total = grad + hyper.momentum * velocity if self.nesterov else velocity
            return hyper.learning_rate * total, {"velocity": velocity}
        velocity = hyper.momentum * slots.velocity - step
        change = step - hyper.momentum * velocity if self.nesterov else -velocity
        return change, {"velocity": velocity}

    @property
    def max_replay_steps(self):
        return 0 if self.rate_in_velocity else 200  # rates matter only outside of the velocity

    def fast_forward(self, ops, var, slots, hyper, steps):
        if not self.has_slot("velocity"):
            return 0, {}
        change = hyper.momentum * slots.velocity * geometric(ops, hyper.momentum, steps)
        change = change * (-1 if self.rate_in_velocity else hyper.learning_rate)
        change = change * hyper.momentum if self.nesterov else change
        return change, {"velocity": slots.velocity * hyper.momentum**steps}
