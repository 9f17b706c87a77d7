"""GaLore: AdamW on gradients that are projected to a low rank."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, hyper, option, refresh, slot
from everstep.optimizers.contract.merged import as_before, as_matrix, low_shape, merged, projected_side


class GaLoreAdamW(Definition):
    """GaLore with AdamW (Zhao et al. 2024, https://arxiv.org/abs/2403.03507, algorithm 2, as in the authors' code).

    A variable of rank 2 or more is a matrix: all axes but the last are rows. If both sides are longer than `rank`, and
    there are at least as many rows as columns:
    projection := singular_vectors(grad), every `period` updates, first at update 1
    low = grad @ projection^T
    m := beta_1 * m + (1 - beta_1) * low
    v := beta_2 * v + (1 - beta_2) * low^2
    rate = learning_rate * sqrt(1 - beta_2^t) / (1 - beta_1^t)
    step = m / (sqrt(v) + epsilon)
    var := var - rate * scale * step @ projection
    var := var - learning_rate * weight_decay * var

    The rows of the projection are the first `rank` right singular vectors of the gradient. If the matrix has more
    columns than rows, the projection has the left singular vectors as columns, low = projection^T @ grad, and
    projection @ step replaces step @ projection. m and v have the shape of low: `rank` in place of the shorter side.

    All other variables take AdamW's step, without scale. No stock API has it. rank, period and scale are those of the
    authors' examples.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | galore-torch                | period is its update_proj_gap; epsilon=1e-6. Its variables without a rank   |
    |                             | are those of another group                                                  |

    A sparse gradient is made dense. Partitioned variables are refused.

    Advice:
        The authors project the kernels of attention and feed-forward layers, with a rate of 0.01 and a rank of 1/4 or
        1/2 of the shorter side. They leave embeddings and the last layer to AdamW, as
        `everstep.partition({"rest": ("embedding|head", AdamW())}, default=GaLoreAdamW())` does.

    Args:
        learning_rate: A float, tensor, callable or schedule. Default 0.01.
        beta_1: Decay of the first moment, 0 to 1. Default 0.9.
        beta_2: Decay of the second moment, 0 to 1. Default 0.999.
        epsilon: Added to the root. Default 1e-6.
        weight_decay: Each update takes learning_rate * weight_decay of the variable away. Default 0.
        rank: The rank of the projected gradient, at least 1. Default 128.
        period: How many updates lie between two projections, at least 1. Default 200.
        scale: The factor of a projected step. Default 0.25.
        side: Set by everstep: the side that is projected, "columns", "rows" or "none". Default "none".

    >>> import numpy
    >>> weights = numpy.zeros((2, 2))
    >>> optimizer = GaLoreAdamW(0.1, rank=1, scale=1.0, epsilon=0.0).bind(numpy)
    >>> optimizer.apply_gradients([(numpy.array([[3.0, 0.0], [1.0, 0.1]]), weights)])
    >>> (weights / weights[0, 0]).round(2)  # each row a multiple of one direction
    array([[1.  , 0.01],
           [1.  , 0.01]])
    """

    family = "Adam"
    locality = "variable"
    learning_rate = hyper(0.01, minimum=0)
    beta_1 = hyper(0.9, minimum=0, maximum=1)
    beta_2 = hyper(0.999, minimum=0, maximum=1)
    epsilon = hyper(1e-6, minimum=0)
    weight_decay = hyper(0.0, minimum=0)
    rank = option(128, minimum=1)
    period = option(200, minimum=1)
    scale = option(0.25, minimum=0)
    side = option("none", choices=("columns", "rows", "none"))
    m = slot(shape=lambda variable, rule: low_shape(variable.shape, rule.rank, rule.side))
    v = slot(shape=lambda variable, rule: low_shape(variable.shape, rule.rank, rule.side))
    projection = slot(
        shape=lambda variable, rule: (rule.rank, merged(variable.shape)[1]) if rule.side == "columns"
        else (merged(variable.shape)[0], rule.rank), when=lambda rule: rule.side != "none")

    def specialize(self, variable):
        return self.replace(side=projected_side(variable.shape, self.rank))

    @refresh(every="period")
    def new_projection(self, ops, grad, var, slots, hyper):
        if self.side == "none":
            return {}
        left, _, right = ops.svd(as_matrix(ops, grad))
        return {"projection": right[: self.rank] if self.side == "columns" else left[:, : self.rank]}

    def _low(self, ops, grad, slots):
        if self.side == "none":
            return grad
        grad = as_matrix(ops, grad)
        if self.side == "columns":
            return ops.matmul(grad, ops.transpose(slots.projection))
        return ops.matmul(ops.transpose(slots.projection), grad)

    def _whole(self, ops, step, slots, like):
        if self.side == "none":
            return step
        pair = (step, slots.projection) if self.side == "columns" else (slots.projection, step)
        return as_before(ops, self.scale * ops.matmul(*pair), like)

    def update(self, ops, grad, var, slots, hyper, t):
        low = self._low(ops, grad, slots)
        m = hyper.beta_1 * slots.m + (1 - hyper.beta_1) * low
        v = hyper.beta_2 * slots.v + (1 - hyper.beta_2) * low * low
        rate = hyper.learning_rate * ops.sqrt(1 - hyper.beta_2**t) / (1 - hyper.beta_1**t)
        change = rate * self._whole(ops, m / (ops.sqrt(v) + hyper.epsilon), slots, var)
        return change + hyper.learning_rate * hyper.weight_decay * (var - change), {"m": m, "v": v}
