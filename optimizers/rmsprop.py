"""RMSprop, in the four forms of the stock optimizers of this name."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, hyper, kernel, option, slot


class RMSprop(Definition):
    """RMSprop (Tieleman & Hinton 2012, lecture 6e) with momentum, and centered as in Graves 2013, equations 38 to 43.

    https://www.cs.toronto.edu/~tijmen/csc321/slides/lecture_slides_lec6.pdf, https://arxiv.org/abs/1308.0850

    mean_square := rho * mean_square + (1 - rho) * grad^2
    variance = mean_square
    With centered: mean_grad := rho * mean_grad + (1 - rho) * grad;  variance = mean_square - mean_grad^2
    step = learning_rate * grad / (sqrt(variance) + epsilon)
    With epsilon_in_root: step = learning_rate * grad / sqrt(variance + epsilon)
    velocity := momentum * velocity + step;  var := var - velocity

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | tf.train RMSProp            | epsilon_in_root=True, initial_mean_square=1.0, sparse="rows"; stock         |
    |                             | default: epsilon=1e-10                                                      |
    | OptimizerV2                 | sparse="rows" with momentum                                                 |
    | Keras 2.0 to 2.3            | epsilon_in_root=False                                                       |
    | new-style Keras, Keras 3    | epsilon_in_root=True                                                        |
    | torch.optim                 | epsilon_in_root=False, rate_in_velocity=False; stock default: rho=0.99,     |
    |                             | epsilon=1e-08, learning_rate=0.01; its weight_decay is everstep.l2_penalty  |

    Advice:
        centered=True may help training and costs one slot more (https://keras.io/api/optimizers/rmsprop). The forms are
        not interchangeable: the same rate and epsilon give different steps with epsilon inside and outside the root.

    Args:
        learning_rate: A float, tensor, callable or schedule, of any sign. Default 0.001.
        rho: Decay of the averages, 0 to 1. `tf.train` calls it decay. Default 0.9.
        momentum: 0 to 1. If it is the float 0, there is no velocity slot. Default 0.
        epsilon: Keeps the divisor above 0. Default 1e-7.
        centered: True to divide by the standard deviation of gradients. Default False.
        epsilon_in_root: True to add epsilon under the root, False to add it to the root. Default None: under the root
            only if there is momentum, as in OptimizerV2.
        initial_mean_square: The first value of mean_square. Default 0.
        rate_in_velocity: True if the velocity sums learning_rate * grad / divisor, False if it sums grad / divisor, as
            in torch. Default True.

    >>> import numpy
    >>> weights = numpy.zeros(1)
    >>> RMSprop(0.1, rho=0.75, epsilon=0.0).bind(numpy).apply_gradients([(numpy.array([3.0]), weights)])
    >>> weights  # 0.1 / sqrt(1 - 0.75)
    array([-0.2])
    """

    family = "Adagrad"
    kernel = kernel("rmsprop")
    learning_rate = hyper(1e-3)
    rho = hyper(0.9, minimum=0, maximum=1)
    momentum = hyper(0.0, minimum=0, maximum=1)
    epsilon = hyper(1e-7, minimum=0)
    centered = option(False)
    epsilon_in_root = option(None, choices=(None, False, True))
    initial_mean_square = option(0.0, minimum=0)
    rate_in_velocity = option(True)
    mean_square = slot(init="initial_mean_square")
    mean_grad = slot(when="centered")
    velocity = slot(when="momentum")

    def update(self, ops, grad, var, slots, hyper, t):
        mean_square = hyper.rho * slots.mean_square + (1 - hyper.rho) * grad * grad
        variance, new = mean_square, {"mean_square": mean_square}
        if self.centered:
            new["mean_grad"] = hyper.rho * slots.mean_grad + (1 - hyper.rho) * grad
            variance = mean_square - new["mean_grad"] * new["mean_grad"]
        in_root = self.has_slot("velocity") if self.epsilon_in_root is None else self.epsilon_in_root
        root = ops.sqrt(variance + hyper.epsilon) if in_root else ops.sqrt(variance) + hyper.epsilon
        step = hyper.learning_rate * grad / root
        if self.has_slot("velocity") and not self.rate_in_velocity:
            velocity = new["velocity"] = hyper.momentum * slots.velocity + grad / root
            return hyper.learning_rate * velocity, new
        if self.has_slot("velocity"):
            step = new["velocity"] = hyper.momentum * slots.velocity + step
        return step, new

    max_replay_steps = 0

    def fast_forward(self, ops, var, slots, hyper, steps):
        left = steps.product(hyper.rho)
        new = {"mean_square": slots.mean_square * left}
        if self.centered:
            new["mean_grad"] = slots.mean_grad * left
        if not self.has_slot("velocity"):
            return 0, new
        left = steps.product(hyper.momentum)
        new["velocity"] = slots.velocity * left
        term = left if self.rate_in_velocity else left * hyper.learning_rate
        return slots.velocity * steps.sum(term, hyper.momentum), new
