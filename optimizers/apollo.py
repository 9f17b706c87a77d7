"""APOLLO: gradients scaled by what AdamW does to random projections of them."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, hyper, option, refresh, slot
from everstep.optimizers.contract.merged import as_before, as_matrix, low_shape, merged, projected_side


class APOLLO(Definition):
    """APOLLO (Zhu et al. 2024, https://arxiv.org/abs/2412.05270, algorithm 1, as in the authors' code).

    A variable of rank 2 or more is a matrix: all axes but the last are rows. If both sides are longer than `rank`, and
    there are at least as many rows as columns:
    projection := normal(rank, columns) / sqrt(rank), every `period` updates, first at update 1
    low = grad @ projection^T
    m := beta_1 * m + (1 - beta_1) * low
    v := beta_2 * v + (1 - beta_2) * low^2
    step = m / (sqrt(v) + epsilon)
    factor = norm(step) / (norm(low) + 1e-8), for each channel
    scaled = factor * grad
    limiter = max(growth, norm(scaled) / (norm + 1e-8)) / growth, 1 at the first update
    norm := norm(scaled) / limiter
    rate = learning_rate * sqrt(1 - beta_2^t) / (1 - beta_1^t)
    var := var - rate * sqrt(scale) * scaled / limiter
    var := var - learning_rate * weight_decay * var

    normal(rank, columns) is a matrix of normal random numbers. If the matrix has more columns than rows, the projection
    has a column for each row, and low = projection @ grad. A channel is an index of the longer side; with tensor_wise
    the whole matrix is one channel.

    All other variables take AdamW's step. No stock API has it. Defaults are those of the authors' examples.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | apollo-torch                | period is its update_proj_gap, tensor_wise=True its scale_type "tensor". It |
    |                             | draws other numbers                                                         |
    | APOLLO-Mini                 | rank=1, scale=128, tensor_wise=True                                         |

    The numbers of a projection depend on seed, the variable's name and the update, and are the same on every API. A
    sparse gradient is made dense. Partitioned variables are refused.

    Advice:
        The authors' rate for pre-training is 0.01, without clipping of gradients, because the limiter does that. A rank
        of 1/4 of the shorter side is enough; APOLLO-Mini is nearly as good with the memory of SGD.

    Args:
        learning_rate: A float, tensor, callable or schedule. Default 0.01.
        beta_1: Decay of the first moment, 0 to 1. Default 0.9.
        beta_2: Decay of the second moment, 0 to 1. Default 0.999.
        epsilon: Added to the root. Default 1e-6.
        weight_decay: Each update takes learning_rate * weight_decay of the variable away. Default 0.
        rank: The rank of the projection, at least 1. Default 256.
        period: How many updates lie between two projections, at least 1. Default 200.
        scale: The factor of projected steps, squared. Default 1.
        growth: How much the norm of a scaled gradient may grow in an update, at least 1. Default 1.01.
        tensor_wise: True for one factor for a whole variable. Default False.
        seed: A whole number of at least 0. Default 0.
        variable: Set by everstep: the variable's name. Default "".
        side: Set by everstep: the side that is projected, "columns", "rows" or "none". Default "none".

    >>> import numpy
    >>> weights = numpy.zeros((2, 2))
    >>> optimizer = APOLLO(0.1, rank=1, epsilon=0.0).bind(numpy)
    >>> optimizer.apply_gradients([(numpy.array([[3.0, 1.0], [1.0, 2.0]]), weights)])
    >>> (weights / weights[:, :1]).round(2)  # each row a multiple of its gradient
    array([[1.  , 0.33],
           [1.  , 2.  ]])
    """

    family = "Adam"
    locality = "variable"
    learning_rate = hyper(0.01, minimum=0)
    beta_1 = hyper(0.9, minimum=0, maximum=1)
    beta_2 = hyper(0.999, minimum=0, maximum=1)
    epsilon = hyper(1e-6, minimum=0)
    weight_decay = hyper(0.0, minimum=0)
    rank = option(256, minimum=1)
    period = option(200, minimum=1)
    scale = option(1.0, minimum=0)
    growth = option(1.01, minimum=1)
    tensor_wise = option(False)
    seed = option(0, minimum=0)
    variable = option("")
    side = option("none", choices=("columns", "rows", "none"))
    m = slot(shape=lambda variable, rule: low_shape(variable.shape, rule.rank, rule.side))
    v = slot(shape=lambda variable, rule: low_shape(variable.shape, rule.rank, rule.side))
    projection = slot(
        shape=lambda variable, rule: (rule.rank, min(merged(variable.shape))), when=lambda rule: rule.side != "none")
    norm = slot(shape=(), when=lambda rule: rule.side != "none")

    def specialize(self, variable):
        return self.replace(variable=variable.name, side=projected_side(variable.shape, self.rank))

    @refresh(every="period")
    def new_projection(self, ops, grad, var, slots, hyper):
        if self.side == "none":
            return {}
        seed = "{}/{}".format(self.variable, self.seed)
        return {"projection": ops.random_normal(seed, hyper.updates, slots.projection.shape) / self.rank**0.5}

    def update(self, ops, grad, var, slots, hyper, t):
        low, new, matrix = grad, {}, grad
        if self.side != "none":
            matrix = as_matrix(ops, grad)
            pair = (slots.projection, matrix) if self.side == "rows" else (matrix, ops.transpose(slots.projection))
            low = ops.matmul(*pair)
        new["m"] = hyper.beta_1 * slots.m + (1 - hyper.beta_1) * low
        new["v"] = hyper.beta_2 * slots.v + (1 - hyper.beta_2) * low * low
        step = new["m"] / (ops.sqrt(new["v"]) + hyper.epsilon)
        if self.side != "none":
            step, new["norm"] = self._scaled(ops, step, low, matrix, slots.norm)
            step = as_before(ops, step, grad)
        change = hyper.learning_rate * ops.sqrt(1 - hyper.beta_2**t) / (1 - hyper.beta_1**t) * step
        return change + hyper.learning_rate * hyper.weight_decay * (var - change), new

    def _scaled(self, ops, step, low, grad, before):
        """Returns the scaled gradient, and its norm before `scale`."""
        axis = {} if self.tensor_wise else {"axis": 1 if self.side == "columns" else 0, "keepdims": True}
        scaled = ops.norm(step, **axis) / (ops.norm(low, **axis) + 1e-8) * grad
        norm = ops.norm(scaled)
        limiter = ops.where(before > 0, ops.maximum(norm / (before + 1e-8), self.growth) / self.growth, 1.0)
        return self.scale**0.5 * scaled / limiter, norm / limiter
