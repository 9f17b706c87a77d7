"""LARS: momentum whose step is scaled to the norm of each variable."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, check_pattern, hyper, option, slot
from everstep.optimizers.contract.by_name import matches


class LARS(Definition):
    """LARS (You et al. 2017, https://arxiv.org/abs/1708.03888, algorithm 1).

    ratio = trust_coefficient * norm(var) / (norm(grad) + weight_decay * norm(var) + epsilon), over the whole variable;
    1 if either norm is 0
    step = learning_rate * ratio * (grad + weight_decay * var)
    velocity := momentum * velocity + step
    var := var - velocity
    With nesterov: var := var - step - momentum * velocity

    Defaults are those of `tf.contrib.opt`, which has no default for the rate. For a sparse gradient, `tf.contrib.opt`
    does plain momentum; here it is treated as the dense gradient with zeros elsewhere.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | tf.contrib.opt LARS         | the defaults; its skip_list is exclude_from_layer_adaptation; stock         |
    |                             | LARSOptimizer does plain momentum for sparse gradients, and before TF 1.15  |
    |                             | its ratio is outside of the velocity, its weight decay in the ratio alone   |

    Advice:
        Use it for large batches of image models. Exclude biases and batch normalization, such as
        exclude_from_layer_adaptation="batch_normalization|bias", and set epsilon for models with very small gradients;
        both are what the documentation of tf.contrib.opt.LARSOptimizer advises.

    Args:
        learning_rate: A float, tensor, callable or schedule. Default 0.01.
        momentum: 0 to 1. If it is the float 0, there is no velocity slot. Default 0.9.
        weight_decay: weight_decay * var is added to the gradient. Default 0.0001.
        trust_coefficient: Factor of the ratio. Default 0.001.
        epsilon: Keeps the divisor above 0. Default 0.
        nesterov: True for Nesterov momentum. Default False.
        exclude_from_layer_adaptation: A regular expression. Variables whose name it matches anywhere have a ratio of 1
            and no weight decay. Default "": none.

    >>> import numpy
    >>> weights = numpy.array([3.0, 4.0])
    >>> LARS(1.0, weight_decay=0.0, trust_coefficient=0.1).bind(numpy).apply_gradients(
    ...     [(numpy.array([0.0, 2.0]), weights)]
    ... )
    >>> weights.round(4)  # -0.1 * 5
    array([3. , 3.5])
    """

    family = "gradient descent"
    locality = "variable"
    learning_rate = hyper(0.01, minimum=0)
    momentum = hyper(0.9, minimum=0, maximum=1)
    weight_decay = hyper(1e-4, minimum=0)
    trust_coefficient = hyper(0.001, minimum=0)
    epsilon = hyper(0.0, minimum=0)
    nesterov = option(False)
    exclude_from_layer_adaptation = option("")
    velocity = slot(when="momentum")

    def _check(self):
        check_pattern("LARS.exclude_from_layer_adaptation", self.exclude_from_layer_adaptation)
        super(LARS, self)._check()

    def specialize(self, variable):
        excluded = matches(self.exclude_from_layer_adaptation, variable)
        return self if excluded else self.replace(exclude_from_layer_adaptation="")

    def update(self, ops, grad, var, slots, hyper, t):
        step = hyper.learning_rate * grad
        if not self.exclude_from_layer_adaptation:
            var_norm, grad_norm = ops.sqrt(ops.sum(var * var)), ops.sqrt(ops.sum(grad * grad))
            nonzero = (var_norm > 0) & (grad_norm > 0)
            divisor = ops.where(nonzero, grad_norm + hyper.weight_decay * var_norm + hyper.epsilon, 1)
            ratio = ops.where(nonzero, hyper.trust_coefficient * var_norm / divisor, 1)
            step = hyper.learning_rate * ratio * (grad + hyper.weight_decay * var)
        if not self.has_slot("velocity"):
            return step, {}
        velocity = hyper.momentum * slots.velocity + step
        return step + hyper.momentum * velocity if self.nesterov else velocity, {"velocity": velocity}
