"""Conditional gradient: steps that keep each variable within a ball."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, hyper


class ConditionalGradient(Definition):
    """Conditional gradient, or Frank-Wolfe, with a Frobenius norm constraint.

    Ravi et al. 2018, https://arxiv.org/abs/1803.06453.

    var := learning_rate * var - (1 - learning_rate) * lambda_ * grad / (norm(grad) + epsilon)

    The norm is that of the whole variable. A variable that starts in the ball of radius lambda_ stays there.

    Defaults are those of TensorFlow Addons, which has no default for the rate. Its nuclear norm constraint
    (`ord="nuclear"`) needs a singular value decomposition, which everstep's ops do not have. For a sparse gradient,
    Addons moves only the rows present; here all rows shrink.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | TensorFlow Addons           | the defaults                                                                |

    Advice:
        The step size is 1 - learning_rate, so choose a rate near 1: a rate of 1 changes nothing. The constraint takes
        the place of a penalty on the weights: no weight decay is needed to bound their norm
        (https://www.tensorflow.org/addons/tutorials/optimizers_conditionalgradient).

    Args:
        learning_rate: The share of the variable that is kept, 0 to 1: a float, tensor, callable or schedule. Default
            0.99.
        lambda_: Radius of the ball. Default 0.01.
        epsilon: Added to the norm of the gradient. Default 1e-7.

    >>> import numpy
    >>> weights = numpy.zeros(2)
    >>> ConditionalGradient(0.5, lambda_=1.0).bind(numpy).apply_gradients([(numpy.array([3.0, -4.0]), weights)])
    >>> weights.round(4)
    array([-0.3,  0.4])
    """

    family = "gradient descent"
    locality = "variable"
    learning_rate = hyper(0.99, minimum=0, maximum=1)
    lambda_ = hyper(0.01, minimum=0)
    epsilon = hyper(1e-7, minimum=0)

    def update(self, ops, grad, var, slots, hyper, t):
        corner = hyper.lambda_ / (ops.sqrt(ops.sum(grad * grad)) + hyper.epsilon) * grad
        return (1 - hyper.learning_rate) * (var + corner), {}
