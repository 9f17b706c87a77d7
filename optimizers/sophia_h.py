"""Sophia-H: clipped steps that are divided by an estimate of second derivatives."""
from __future__ import absolute_import, division, print_function

from everstep.errors import RuleError
from everstep.optimizers.contract import Definition, assign, hyper, option, slot


class SophiaH(Definition):
    """Sophia-H (Liu et al. 2023, https://arxiv.org/abs/2305.14342, algorithms 1 and 3).

    u is normal noise, or with noise="signs" 1 and -1 at random. It is the same on every API.
    curvature = u * (grad(var + distance * u) - grad(var)) / distance, whose mean is the diagonal of the Hessian
    h := beta_2 * h + (1 - beta_2) * curvature
    m := beta_1 * m + (1 - beta_1) * grad(var)
    step = m / max(gamma * h, epsilon);  step := min(max(step, -1), 1)
    var := var - learning_rate * (step + weight_decay * var)

    Both gradients use the same batch, one step each, as in `everstep.sharpness_aware`. `minimize` of a function that
    computes the loss calls it twice. `everstep.enable_multistage(model)` makes `fit` do so. `iterations`, schedules and
    t count updates. In place of the paper's product of the Hessian and u there is a difference of gradients, which is
    exact for a quadratic loss. No stock API has it.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | the paper                   | an estimate every 10 updates, with a beta_2 of 0.99; here one in each, for  |
    |                             | which 0.999 is as slow                                                      |
    | pytorch-optimizer           | gamma=p, epsilon=p * eps and learning_rate=p * lr, with update_period=1     |

    Only sparse="exact" is allowed, because a row may have a gradient at only one of the two points.

    Advice:
        Take 0.8 times AdamW's learning rate, and a weight decay of 0.2. Set gamma so that in 10% to 50% of the elements
        the step is not clipped (https://github.com/Liuhong99/Sophia). An update costs two gradients, so compare it with
        training that is twice as long. For variables of 16 bits take a distance of 0.1: the second point is rounded.

    Args:
        learning_rate: A float, tensor, callable or schedule. Default 0.0006.
        beta_1: Decay of the first moment, 0 to 1. Default 0.96.
        beta_2: Decay of the second derivatives, 0 to 1. Default 0.99.
        gamma: The factor of the second derivatives. Default 0.01.
        epsilon: The least divisor, more than 0. Default 1e-12.
        weight_decay: Each update subtracts learning_rate * weight_decay * var. Default 0.
        distance: The distance to the second point, as a factor of u, more than 0. Default 0.001.
        noise: "normal" or "signs". Default "normal".
        seed: A whole number; another seed gives other noise. Default 0.
        variable: Set by everstep: the variable's name, so that each has noise of its own. Default "".

    >>> import numpy, everstep
    >>> weights = numpy.full(1, 2.0)  # of loss = 4 * weights ** 2 / 2
    >>> rule = SophiaH(1.0, beta_1=0.0, beta_2=0.0, gamma=2.0, noise="signs")
    >>> optimizer = rule.bind(numpy)
    >>> everstep.enable_multistage(optimizer)  # callers of apply_gradients take 2 gradients of each batch
    >>> for _ in range(2):
    ...     optimizer.apply_gradients([(4 * weights, weights)])
    >>> weights.round(6)  # 2 - 8 / (2 * 4)
    array([1.])
    """

    family = "Adam"
    stages = 2
    learning_rate = hyper(6e-4, minimum=0)
    beta_1 = hyper(0.96, minimum=0, maximum=1)
    beta_2 = hyper(0.99, minimum=0, maximum=1)
    gamma = hyper(0.01, minimum=0)
    epsilon = hyper(1e-12, minimum=1e-30)
    weight_decay = hyper(0.0, minimum=0)
    distance = hyper(1e-3, minimum=1e-30)
    noise = option("normal", choices=("normal", "signs"))
    seed = option(0, minimum=0)
    variable = option("")
    m = slot()
    h = slot()
    start = slot()
    first_grad = slot()

    def _check(self):
        if self.sparse != "exact":
            raise RuleError('SophiaH takes only sparse="exact"; got {!r}'.format(self.sparse))
        super(SophiaH, self)._check()

    def specialize(self, variable):
        return self.replace(variable=variable.name)

    def should_update(self, ops, hyper):
        return hyper.pending >= 2

    def update(self, ops, grad, var, slots, hyper, t):
        last = self.should_update(ops, hyper)
        noise = ops.random_normal("{}/{}".format(self.variable, self.seed), t, hyper)
        if self.noise == "signs":
            noise = ops.where(noise < 0, -1.0, 1.0)
        start, first_grad = ops.where(last, slots.start, var), ops.where(last, slots.first_grad, grad)
        moved = (var - start) / hyper.distance  # u, but for the rounding of var
        curvature = moved * (grad - first_grad) / hyper.distance
        m = hyper.beta_1 * slots.m + (1 - hyper.beta_1) * first_grad
        h = hyper.beta_2 * slots.h + (1 - hyper.beta_2) * curvature
        step = ops.clip(m / ops.maximum(hyper.gamma * h, hyper.epsilon), -1, 1)
        after = start - hyper.learning_rate * (step + hyper.weight_decay * start)
        new = {"m": ops.where(last, m, slots.m), "h": ops.where(last, h, slots.h)}
        return assign(ops.where(last, after, var + hyper.distance * noise)), dict(
            new, start=start, first_grad=first_grad
        )
