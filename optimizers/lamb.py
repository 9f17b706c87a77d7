"""LAMB: Adam whose step is scaled to the norm of each variable."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, check_pattern, hyper, option, slot
from everstep.optimizers.contract.by_name import matches


class LAMB(Definition):
    """LAMB (You et al. 2020, https://arxiv.org/abs/1904.00962, algorithm 2, with phi(z) = z).

    m := beta_1 * m + (1 - beta_1) * grad;  m_hat = m / (1 - beta_1^t)
    v := beta_2 * v + (1 - beta_2) * grad^2;  v_hat = v / (1 - beta_2^t)
    direction = m_hat / (sqrt(v_hat) + epsilon) + weight_decay * var
    ratio = norm(var) / norm(direction)
    var := var - learning_rate * ratio * direction

    Both norms are over the whole variable. ratio is 1 if either is 0. Defaults are those of TensorFlow Addons.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | Keras 3                     | the defaults; stock default: epsilon=1e-07; its weight_decay= is not part   |
    |                             | of the trust ratio                                                          |
    | TensorFlow Addons           | the defaults; join its lists of patterns with a vertical bar                |

    Advice:
        Use it for very large batches; the paper trains BERT with batches of 32,768. For other batch sizes it scales the
        learning rate with the square root of the batch size, after a warm-up. Exclude biases and normalization with
        exclude_from_weight_decay, such as "bias|LayerNorm|layer_norm".

    Args:
        learning_rate: A float, tensor, callable or schedule. Default 0.001.
        beta_1: Decay of the first moment, 0 to 1. Default 0.9.
        beta_2: Decay of the second moment, 0 to 1. Default 0.999.
        epsilon: Added to the root. Default 1e-6.
        weight_decay: The share of the variable that is added to the direction. Default 0.
        exclude_from_weight_decay: A regular expression. Variables whose name it matches anywhere have no weight decay.
            Default "": none.
        exclude_from_layer_adaptation: A regular expression. Variables whose name it matches anywhere have a ratio of 1.
            Default "": those of exclude_from_weight_decay.

    >>> import numpy
    >>> weights = numpy.array([3.0, 4.0])
    >>> LAMB(0.1).bind(numpy).apply_gradients([(numpy.array([2.0, -2.0]), weights)])
    >>> weights.round(4)  # -0.1 * 5 / sqrt(2), and +
    array([2.6464, 4.3536])
    """

    family = "Adam"
    locality = "variable"
    learning_rate = hyper(1e-3, minimum=0)
    beta_1 = hyper(0.9, minimum=0, maximum=1)
    beta_2 = hyper(0.999, minimum=0, maximum=1)
    epsilon = hyper(1e-6, minimum=0)
    weight_decay = hyper(0.0, minimum=0)
    exclude_from_weight_decay = option("")
    exclude_from_layer_adaptation = option("")
    m = slot()
    v = slot()

    def _check(self):
        for name in ("exclude_from_weight_decay", "exclude_from_layer_adaptation"):
            check_pattern("LAMB." + name, getattr(self, name))
        super(LAMB, self)._check()

    def specialize(self, variable):
        undecayed = self.exclude_from_weight_decay
        unadapted = self.exclude_from_layer_adaptation or undecayed

        def matching(pattern):
            return pattern if pattern and matches(pattern, variable) else ""

        return self.replace(
            exclude_from_weight_decay=matching(undecayed), exclude_from_layer_adaptation=matching(unadapted)
        )

    def update(self, ops, grad, var, slots, hyper, t):
        m = hyper.beta_1 * slots.m + (1 - hyper.beta_1) * grad
        v = hyper.beta_2 * slots.v + (1 - hyper.beta_2) * grad * grad
        direction = m / (1 - hyper.beta_1**t) / (ops.sqrt(v / (1 - hyper.beta_2**t)) + hyper.epsilon)
        if not self.exclude_from_weight_decay:
            direction = direction + hyper.weight_decay * var
        rate = hyper.learning_rate
        if not self.exclude_from_layer_adaptation:
            var_norm, norm = ops.sqrt(ops.sum(var * var)), ops.sqrt(ops.sum(direction * direction))
            rate = rate * ops.where((var_norm > 0) & (norm > 0), var_norm / ops.where(norm > 0, norm, 1), 1)
        return rate * direction, {"m": m, "v": v}
