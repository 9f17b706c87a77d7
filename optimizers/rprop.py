"""Rprop: a step size for each element, which follows the signs of its gradients."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, hyper, slot


class Rprop(Definition):
    """Resilient backpropagation (Riedmiller & Braun 1993, https://doi.org/10.1109/ICNN.1993.298623).

    agreement = sign(grad) * sign(previous_grad)
    factor = eta_plus if agreement > 0 else eta_minus if agreement < 0 else 1
    step_size := clip(factor * step_size, step_size_min, step_size_max)
    grad := grad if agreement >= 0 else 0
    var := var - step_size * sign(grad);  previous_grad := grad

    The first step sizes are learning_rate, which is not used again. An element whose gradient has changed its sign
    stands still for one update. That is iRprop- of Igel & Huesken 2003,
    https://doi.org/10.1016/S0925-2312(01)00700-7, and of torch; Riedmiller's own form takes the last step back. torch
    multiplies the gradients themselves, so that its agreement is 0 where the product is too small for float32.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | torch.optim                 | the defaults                                                                |

    Advice:
        Only for gradients of the whole data set: with batches, the signs change at random and the steps shrink. The
        authors keep eta_minus at 0.5 and eta_plus at 1.2.

    Args:
        learning_rate: The step size before the first update: a float, tensor, callable or schedule. Default 0.01.
        eta_minus: The factor where the sign has changed, 0 to 1. Default 0.5.
        eta_plus: The factor where it has not, at least 1. Default 1.2.
        step_size_min: The least step size. Default 1e-6.
        step_size_max: The greatest step size. Default 50.

    >>> import numpy
    >>> weights = numpy.zeros(2)
    >>> optimizer = Rprop(0.1).bind(numpy)
    >>> for grad in ([3.0, -0.5], [0.1, 2.0]):
    ...     optimizer.apply_gradients([(numpy.array(grad), weights)])
    >>> weights.round(2)  # -0.1 - 0.12; 0.1 and no step where the sign has changed
    array([-0.22,  0.1 ])
    """

    family = "signs"
    learning_rate = hyper(0.01, minimum=0)
    eta_minus = hyper(0.5, minimum=0, maximum=1)
    eta_plus = hyper(1.2, minimum=1)
    step_size_min = hyper(1e-6, minimum=0)
    step_size_max = hyper(50.0, minimum=0)
    previous_grad = slot()
    step_size = slot(init=-1.0)  # below 0: there is none yet, because the first rate is known at the first update

    def update(self, ops, grad, var, slots, hyper, t):
        agreement = ops.sign(grad) * ops.sign(slots.previous_grad)
        factor = ops.where(agreement < 0, hyper.eta_minus, ops.where(agreement > 0, hyper.eta_plus, 1.0))
        step_size = factor * ops.where(slots.step_size < 0, hyper.learning_rate, slots.step_size)
        step_size = ops.clip(step_size, hyper.step_size_min, hyper.step_size_max)
        grad = ops.where(agreement < 0, 0.0, grad)
        return step_size * ops.sign(grad), {"previous_grad": grad, "step_size": step_size}

    max_replay_steps = 1  # a second zero gradient changes nothing
