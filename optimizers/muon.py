"""Muon: momentum whose update is made orthogonal, and AdamW for all that is no matrix."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, hyper, option, slot
from everstep.optimizers.contract.by_name import matches
from everstep.optimizers.contract.checks import check_pattern


class Muon(Definition):
    """Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/), with AdamW beside it.

    For matrices (variables of rank 2) that are not excluded:

    m := momentum * m + grad
    x = grad + momentum * m
    x := x / (norm(x) + 1e-7), transposed until the last line if it has more rows than columns
    ns_steps times:  x := ns_a * x + (ns_b * x @ x^T + ns_c * (x @ x^T)^2) @ x
    var := var - learning_rate * (rms_rate * sqrt(max(rows, columns)) * x + weight_decay * var)

    The scale with rms_rate is that of Liu et al. 2025, https://arxiv.org/abs/2502.16982, equation 4: updates are as
    large as those of AdamW. With original_scale it is that of the authors' code, sqrt(max(1, columns / rows)): their
    matrices have a row for each output, those of Keras a column. All other variables take the step of Adam, with
    adam_beta_1, adam_beta_2, epsilon and adam_weight_decay, at adam_rate_ratio times the rate.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | Keras 3                     | the defaults; its exclude_layers are exclude, its muon_a, _b, _c ns_a, _b,  |
    |                             | _c                                                                          |

    Defaults are those of Keras. A sparse gradient is made dense. Partitioned variables are refused.

    Advice:
        The authors use it for hidden layers alone: name embeddings and the last layer in `exclude`. Embeddings are left
        out by themselves if "embedding" is in their name. Rates of the authors' code, such as 0.02, are for
        original_scale.

    Args:
        learning_rate: A float, tensor, callable or schedule. Default 0.001.
        momentum: Decay of the momentum, 0 to 1. Default 0.95.
        weight_decay: Each update of a matrix subtracts learning_rate * weight_decay * var. Default 0.004.
        adam_beta_1: Decay of the first moment of all other variables, 0 to 1. Default 0.9.
        adam_beta_2: Decay of their second moment, 0 to 1. Default 0.999.
        epsilon: Added to their root. Default 1e-7.
        adam_weight_decay: Their weight decay. Default 0.004.
        adam_rate_ratio: Their rate, relative to learning_rate. Default 1.
        nesterov: False to take m itself in place of grad + momentum * m. Default True.
        ns_steps: Steps of the Newton-Schulz iteration, at least 1. Default 5.
        ns_a: First coefficient of the iteration, of any sign. Default 3.4445.
        ns_b: Second coefficient, of any sign. Default -4.775.
        ns_c: Third coefficient, of any sign. Default 2.0315.
        rms_rate: Size of an update's elements, as a root of their mean square; 0 not to scale them. Default 0.2.
        original_scale: True to scale updates as the authors' code does, whatever rms_rate is. Default False.
        exclude: Regular expressions. Adam trains the matrices whose name one of them matches anywhere. Default ().
        exclude_embeddings: False to treat embeddings as other matrices. Default True.
        uses_adam: Set by everstep: whether Adam trains the variable. Default True.

    >>> import numpy
    >>> weights = numpy.zeros((2, 2))
    >>> optimizer = Muon(1.0, rms_rate=0.0).bind(numpy)
    >>> optimizer.apply_gradients([(numpy.array([[3.0, 0.0], [0.0, -0.5]]), weights)])
    >>> weights.round(1)  # the sign of the gradient, about
    array([[-0.7,  0. ],
           [ 0. ,  1. ]])
    """

    family = "gradient descent"
    locality = "variable"
    learning_rate = hyper(1e-3, minimum=0)
    momentum = hyper(0.95, minimum=0, maximum=1)
    weight_decay = hyper(0.004, minimum=0)
    adam_beta_1 = hyper(0.9, minimum=0, maximum=1)
    adam_beta_2 = hyper(0.999, minimum=0, maximum=1)
    epsilon = hyper(1e-7, minimum=0)
    adam_weight_decay = hyper(0.004, minimum=0)
    adam_rate_ratio = hyper(1.0, minimum=0)
    nesterov = option(True)
    ns_steps = option(5, minimum=1)
    ns_a = option(3.4445)
    ns_b = option(-4.775)
    ns_c = option(2.0315)
    rms_rate = option(0.2, minimum=0)
    original_scale = option(False)
    exclude = option(())
    exclude_embeddings = option(True)
    uses_adam = option(True)
    m = slot()
    v = slot(when="uses_adam")

    def _check(self):
        for pattern in self.exclude:
            check_pattern("Muon.exclude", pattern)
        super(Muon, self)._check()

    def specialize(self, variable):
        is_embedding = self.exclude_embeddings and matches("(?i)embedding", variable)
        excluded = is_embedding or any(matches(pattern, variable) for pattern in self.exclude)
        return self.replace(uses_adam=excluded or len(variable.shape) != 2)

    def update(self, ops, grad, var, slots, hyper, t):
        if self.uses_adam:
            return self._adam(ops, grad, var, slots, hyper, t)
        m = hyper.momentum * slots.m + grad
        change = self._orthogonal(ops, grad + hyper.momentum * m if self.nesterov else m, slots.m.shape)
        scale = self._scale(*slots.m.shape)
        change = change if scale == 1 else scale * change
        return hyper.learning_rate * (change + hyper.weight_decay * var), {"m": m}

    def _scale(self, rows, columns):
        if self.original_scale:
            return (max(rows, columns) / max(rows, 1)) ** 0.5
        return self.rms_rate * max(rows, columns) ** 0.5 if self.rms_rate else 1.0

    def _orthogonal(self, ops, x, shape):
        """Returns about u v^T, where u s v^T is the singular value decomposition of a matrix."""
        is_tall = shape[0] > shape[1]
        x = x / (ops.norm(x) + 1e-7)
        x = ops.transpose(x) if is_tall else x
        for _ in range(self.ns_steps):
            square = ops.matmul(x, ops.transpose(x))
            x = self.ns_a * x + ops.matmul(self.ns_b * square + self.ns_c * ops.matmul(square, square), x)
        return ops.transpose(x) if is_tall else x

    def _adam(self, ops, grad, var, slots, hyper, t):
        m = hyper.adam_beta_1 * slots.m + (1 - hyper.adam_beta_1) * grad
        v = hyper.adam_beta_2 * slots.v + (1 - hyper.adam_beta_2) * grad * grad
        correction = hyper.adam_rate_ratio * ops.sqrt(1 - hyper.adam_beta_2**t) / (1 - hyper.adam_beta_1**t)
        change = correction * m / (ops.sqrt(v) + hyper.epsilon) + hyper.adam_weight_decay * var
        return hyper.learning_rate * change, {"m": m, "v": v}
