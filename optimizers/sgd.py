"""Stochastic gradient descent, with heavy-ball or Nesterov momentum."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, hyper, kernel, option, slot


class SGD(Definition):
    """Gradient descent with heavy-ball or Nesterov momentum.

    Gradient descent: Robbins & Monro 1951, https://doi.org/10.1214/aoms/1177729586
    Heavy-ball momentum: Polyak 1964, https://doi.org/10.1016/0041-5553(64)90137-5
    Nesterov momentum: Sutskever et al. 2013, https://proceedings.mlr.press/v28/sutskever13.html, equations 3 and 4

    a := momentum * a - learning_rate * grad
    var := var + a
    With nesterov: var := var + momentum * a - learning_rate * grad
    Without momentum: var := var - learning_rate * grad

    With rate_in_velocity=False; the two differ once the rate changes:
    a := momentum * a + grad
    var := var - learning_rate * a
    With nesterov: var := var - learning_rate * (grad + momentum * a)

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | tf.train GradientDescent,   | the defaults                                                                |
    |   Keras 2.0 to 2.3,         |                                                                             |
    |   new-style Keras, Keras 3  |                                                                             |
    | tf.train Momentum           | rate_in_velocity=False, sparse="rows"                                       |
    | OptimizerV2                 | sparse="rows" with momentum                                                 |
    | torch.optim                 | rate_in_velocity=False; stock default: learning_rate=0.001; its             |
    |                             | weight_decay is everstep.l2_penalty; it keeps no count of steps             |

    Advice:
        With a warm-up or a schedule, rate_in_velocity=False (tf.train, torch) applies a new rate to the whole velocity
        at once. With True (Keras) the velocity still holds old rates: see "momentum correction" in Goyal et al. 2017,
        https://arxiv.org/abs/1706.02677, section 3. They also scale the rate with the batch size.

    Args:
        learning_rate: A float, tensor, callable or schedule, of any sign. Default 0.01.
        momentum: 0 to 1. If it is the float 0, there is no velocity slot. Default 0.
        nesterov: True for Nesterov momentum. Default False.
        rate_in_velocity: True if the velocity sums learning_rate * grad, False if it sums gradients. Default True.
        dampening: 0 to 1: from the second update on, (1 - dampening) * grad comes into the velocity in the place of
            grad, as in torch. Default 0.

    >>> import numpy
    >>> weights = numpy.array([1.0, 2.0])
    >>> SGD(0.5).bind(numpy).apply_gradients([(numpy.array([1.0, -1.0]), weights)])
    >>> weights
    array([0.5, 2.5])
    """

    family = "gradient descent"
    kernel = kernel("sgd")
    learning_rate = hyper(0.01)
    momentum = hyper(0.0, minimum=0, maximum=1)
    nesterov = option(False)
    rate_in_velocity = option(True)
    dampening = option(0.0, minimum=0, maximum=1)
    without_position = ("dampening",)
    velocity = slot(when="momentum")

    @property
    def zero_grad_is_noop(self):
        return not self.has_slot("velocity")

    def update(self, ops, grad, var, slots, hyper, t):
        step = hyper.learning_rate * grad
        if not self.has_slot("velocity"):
            return step, {}
        added = step if self.rate_in_velocity else grad
        if self.dampening:
            added = ops.where(t > 1, 1 - self.dampening, 1.0) * added
        if not self.rate_in_velocity:
            velocity = hyper.momentum * slots.velocity + added
            total = grad + hyper.momentum * velocity if self.nesterov else velocity
            return hyper.learning_rate * total, {"velocity": velocity}
        velocity = hyper.momentum * slots.velocity - added
        change = step - hyper.momentum * velocity if self.nesterov else -velocity
        return change, {"velocity": velocity}

    max_replay_steps = 0

    def fast_forward(self, ops, var, slots, hyper, steps):
        if not self.has_slot("velocity"):
            return 0, {}
        left = steps.product(hyper.momentum)
        term = left * hyper.momentum if self.nesterov else left
        term = -term if self.rate_in_velocity else term * hyper.learning_rate
        return slots.velocity * steps.sum(term, hyper.momentum), {"velocity": slots.velocity * left}
