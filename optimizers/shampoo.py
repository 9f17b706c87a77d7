"""Shampoo: gradients divided by roots of the second moments of their rows and columns."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, hyper, option, refresh, slot
from everstep.optimizers.contract.merged import as_before, as_matrix, merged, sides_of


class Shampoo(Definition):
    """Shampoo (Gupta et al. 2018, https://arxiv.org/abs/1802.09568, algorithm 1).

    Variables of rank 2 or more are matrices: all axes but the last are rows.
    left := left + grad @ grad^T
    right := right + grad^T @ grad
    Every `period` updates, first at update 1:
        left_root := (left + epsilon * I)^(-1/4)
        right_root := (right + epsilon * I)^(-1/4)
    m := momentum * m + left_root @ grad @ right_root
    var := var - learning_rate * (m + weight_decay * var)

    A side of more than max_size keeps only the diagonal of its matrix, as in section 4 of the paper. Variables of rank
    0 and 1 keep the sum of squares, v, and take grad / sqrt(v + epsilon) in place of the product, as in Adagrad. With
    beta below 1, left := beta * left + (1 - beta) * grad @ grad^T, and so on. No stock API has it.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | pytorch-optimizer           | period=1. Variables of rank 1 have a matrix there, too, and those of rank 3 |
    |                             | and more one for each axis                                                  |

    The roots are computed by `ops.eigh`, which Keras 3.0 lacks on JAX and torch. A sparse gradient is made dense.
    Partitioned variables are refused.

    Advice:
        docs/strategies.md has the cost of a step for each period; the paper computes roots every 20 to 100 updates.
        Roots of the first gradient are about epsilon^(-1/4) in all directions that it does not have, and serve for
        `period` updates: raise epsilon, or warm up the rate. A variable whose first gradient comes later starts at the
        next computation. Tune the rate: steps are of another size than Adam's.

    Args:
        learning_rate: A float, tensor, callable or schedule. Default 0.001.
        momentum: Decay of the momentum, 0 to 1. Default 0: none.
        epsilon: Added to the eigenvalues, and to v. Default 1e-6.
        weight_decay: Each update subtracts learning_rate * weight_decay * var. Default 0.
        beta: Decay of the matrices and of v, 0 to 1. Default 1: sums.
        period: How many updates lie between two computations of the roots, at least 1. Default 10.
        max_size: The longest side that gets a matrix. Default 4096.
        sides: Set by everstep: which sides have a matrix, "both", "left", "right", "none", or "vector"
            for variables of rank 0 and 1. Default "both".

    >>> import numpy
    >>> weights = numpy.zeros((2, 2))
    >>> optimizer = Shampoo(1.0, epsilon=0.0).bind(numpy)
    >>> optimizer.apply_gradients([(numpy.array([[3.0, 0.0], [0.0, -0.5]]), weights)])
    >>> weights.round(6)  # at the first update the sign of the gradient
    array([[-1.,  0.],
           [ 0.,  1.]])
    """

    family = "second order"
    locality = "variable"
    learning_rate = hyper(1e-3, minimum=0)
    momentum = hyper(0.0, minimum=0, maximum=1)
    epsilon = hyper(1e-6, minimum=0)
    weight_decay = hyper(0.0, minimum=0)
    beta = option(1.0, minimum=0, maximum=1)
    period = option(10, minimum=1)
    max_size = option(4096, minimum=0)
    sides = option("both", choices=("both", "left", "right", "none", "vector"))
    m = slot(when="momentum")
    v = slot(when=lambda rule: rule.sides == "vector")
    left = slot(shape=lambda variable, rule: _left(variable, rule), when=lambda rule: rule.sides != "vector")
    right = slot(shape=lambda variable, rule: _right(variable, rule), when=lambda rule: rule.sides != "vector")
    left_root = slot(shape=lambda variable, rule: _left(variable, rule), when=lambda rule: "left" in _matrices(rule))
    right_root = slot(shape=lambda variable, rule: _right(variable, rule), when=lambda rule: "right" in _matrices(rule))

    def specialize(self, variable):
        return self.replace(sides="vector" if len(variable.shape) < 2 else sides_of(variable.shape, self.max_size))

    @refresh(every="period")
    def roots(self, ops, grad, var, slots, hyper):
        if self.sides == "vector":
            return {}
        new = self._statistics(ops, as_matrix(ops, grad), slots)
        return {side + "_root": self._root(ops, new[side], hyper) for side in _matrices(self)}

    def _root(self, ops, matrix, hyper):
        values, vectors = ops.eigh(matrix)
        scales = (ops.maximum(values, 0) + hyper.epsilon) ** -0.25
        return ops.matmul(vectors * ops.reshape(scales, (1, -1)), ops.transpose(vectors))

    def _statistics(self, ops, grad, slots):
        """Returns the new `left` and `right`."""
        new, kept = {}, _matrices(self)
        for side, value in (("left", grad), ("right", ops.transpose(grad))):
            if side in kept:
                square = ops.matmul(value, ops.transpose(value))
            else:
                square = ops.sum(grad * grad, axis=1 if side == "left" else 0, keepdims=True)
            new[side] = self._average(getattr(slots, side), square)
        return new

    def _average(self, old, square):
        return old + square if self.beta == 1 else self.beta * old + (1 - self.beta) * square

    def update(self, ops, grad, var, slots, hyper, t):
        if self.sides == "vector":
            new = {"v": self._average(slots.v, grad * grad)}
            change = grad / ops.sqrt(new["v"] + hyper.epsilon)
        else:
            change = as_matrix(ops, grad)
            new, kept = self._statistics(ops, change, slots), _matrices(self)
            if "left" in kept:
                change = ops.matmul(slots.left_root, change)
            else:
                change = change * (new["left"] + hyper.epsilon) ** -0.25
            if "right" in kept:
                change = ops.matmul(change, slots.right_root)
            else:
                change = change * (new["right"] + hyper.epsilon) ** -0.25
            change = as_before(ops, change, grad)
        if self.has_slot("m"):
            change = new["m"] = hyper.momentum * slots.m + change
        return hyper.learning_rate * (change + hyper.weight_decay * var), new


def _matrices(rule):
    """Returns the sides that have a matrix."""
    return {"both": ("left", "right"), "left": ("left",), "right": ("right",)}.get(rule.sides, ())


def _left(variable, rule):
    rows = merged(variable.shape)[0]
    return (rows, rows if "left" in _matrices(rule) else 1)


def _right(variable, rule):
    columns = merged(variable.shape)[1]
    return (columns if "right" in _matrices(rule) else 1, columns)
