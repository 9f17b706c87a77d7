"""Conditional gradient: steps that stay within a ball."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, hyper


class ConditionalGradient(Definition):
    """Conditional gradient, or Frank-Wolfe (Ravi et al. 2018, arXiv:1803.06453), with a Frobenius norm constraint.

    var := learning_rate * var - (1 - learning_rate) * lambda_ * grad / (norm(grad) + epsilon)

    The norm is of the whole variable. Note that 1 - learning_rate is the size of the step: a rate of 1 changes nothing.
    A variable that starts in the ball of radius lambda_ stays there.

    The nuclear norm constraint of TensorFlow Addons (`ord="nuclear"`) needs a singular value decomposition, which the
    ops of a rule do not have. With a sparse gradient Addons moves only the rows present; here all rows shrink.
    Defaults are those of TensorFlow Addons, which has none for the rate.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | TensorFlow Addons           | the defaults                                                                |

    Args:
        learning_rate: the share of the variable that is kept, 0 to 1: float, tensor, callable or schedule; 0.99.
        lambda_: radius of the ball; 0.01.
        epsilon: added to the norm of the gradient; 1e-7.

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
