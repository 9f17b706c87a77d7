"""LARS: momentum whose step is scaled to the size of each variable."""
from __future__ import absolute_import, division, print_function

import re

from everstep.optimizers.contract import Definition, check_pattern, hyper, option, slot


class LARS(Definition):
    """LARS (You et al. 2017, arXiv:1708.03888, algorithm 1).

    ratio = trust_coefficient * norm(var) / (norm(grad) + weight_decay * norm(var) + epsilon), of the whole variable;
    1 where either norm is 0
    step = learning_rate * ratio * (grad + weight_decay * var)
    velocity := momentum * velocity + step
    var := var - velocity; with nesterov var - step - momentum * velocity

    Defaults are those of `tf.contrib.opt`, which has none for the rate. With a sparse gradient it does plain momentum;
    here that is the dense gradient with zeros elsewhere.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | tf.contrib.opt LARS         | the defaults; its skip_list is exclude_from_layer_adaptation; stock         |
    |                             | LARSOptimizer does plain momentum where a gradient is sparse                |

    Args:
        learning_rate: float, tensor, callable or schedule; 0.01.
        momentum: 0 to 1; a float given as 0 makes no slot; 0.9.
        weight_decay: strength of the squared 2-norm, times 2; 0.0001.
        trust_coefficient: the ratio's factor; 0.001.
        epsilon: keeps the divisor from 0; 0.
        nesterov: look-ahead gradient; False.
        exclude_from_layer_adaptation: a regular expression; variables in whose name it is found have ratio 1 and no
            weight decay; none.

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
        excluded = re.search(self.exclude_from_layer_adaptation, variable.name)
        return self if excluded else self.replace(exclude_from_layer_adaptation="")

    def update(self, ops, grad, var, slots, hyper, t):
        step = hyper.learning_rate * grad
        if not self.exclude_from_layer_adaptation:
            size, length = ops.sqrt(ops.sum(var * var)), ops.sqrt(ops.sum(grad * grad))
            both = (size > 0) & (length > 0)
            divisor = ops.where(both, length + hyper.weight_decay * size + hyper.epsilon, 1)
            ratio = ops.where(both, hyper.trust_coefficient * size / divisor, 1)
            step = hyper.learning_rate * ratio * (grad + hyper.weight_decay * var)
        if not self.has_slot("velocity"):
            return step, {}
        velocity = hyper.momentum * slots.velocity + step
        return step + hyper.momentum * velocity if self.nesterov else velocity, {"velocity": velocity}
