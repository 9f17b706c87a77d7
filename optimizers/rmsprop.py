"""RMSprop, in the four forms that stock optimizers of this name have."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, geometric, hyper, kernel, option, slot


class RMSprop(Definition):
    """RMSprop (Tieleman & Hinton 2012, lecture 6e), with momentum; centered: Graves 2013, arXiv:1308.0850, (38)-(43).

    mean_square := rho * mean_square + (1 - rho) * grad^2
    mean_grad := rho * mean_grad + (1 - rho) * grad, where centered;  variance = mean_square - mean_grad^2
    step = learning_rate * grad / (sqrt(variance) + epsilon), or with epsilon_in_root / sqrt(variance + epsilon)
    velocity := momentum * velocity + step;  var := var - velocity

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | tf.train RMSProp            | epsilon_in_root=True, initial_mean_square=1.0, sparse="rows"; its own       |
    |                             | default: epsilon=1e-10                                                      |
    | OptimizerV2                 | sparse="rows" where momentum is given                                       |
    | Keras 2.0 to 2.3            | epsilon_in_root=False                                                       |
    | new-style Keras, Keras 3    | epsilon_in_root=True                                                        |

    Args:
        learning_rate: float, tensor, callable or schedule; 0.001.
        rho: decay of the averages, 0 to 1; 0.9. `tf.train` calls it decay.
        momentum: 0 to 1; a float given as 0 makes no slot; 0.
        epsilon: keeps the root from 0; 1e-7.
        centered: divide by the standard deviation; False.
        epsilon_in_root: whether epsilon stands under the root; None: where there is momentum, as in OptimizerV2.
        initial_mean_square: where mean_square starts; 0.

    >>> import numpy
    >>> weights = numpy.zeros(1)
    >>> RMSprop(0.1, rho=0.75, epsilon=0.0).bind(numpy).apply_gradients([(numpy.array([3.0]), weights)])
    >>> weights  # 0.1 / sqrt(1 - 0.75)
    array([-0.2])
    """

    family = "Adagrad"
    kernel = kernel("rmsprop")
    learning_rate = hyper(1e-3, minimum=0)
    rho = hyper(0.9, minimum=0, maximum=1)
    momentum = hyper(0.0, minimum=0, maximum=1)
    epsilon = hyper(1e-7, minimum=0)
    centered = option(False)
    epsilon_in_root = option(None, choices=(None, False, True))
    initial_mean_square = option(0.0, minimum=0)
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
        if self.has_slot("velocity"):
            step = new["velocity"] = hyper.momentum * slots.velocity + step
        return step, new

    max_replay_steps = 0

    def fast_forward(self, ops, var, slots, hyper, steps):
        new = {"mean_square": slots.mean_square * hyper.rho**steps}
        if self.centered:
            new["mean_grad"] = slots.mean_grad * hyper.rho**steps
        if not self.has_slot("velocity"):
            return 0, new
        new["velocity"] = slots.velocity * hyper.momentum**steps
        return hyper.momentum * slots.velocity * geometric(ops, hyper.momentum, steps), new
