"""SOAP: Adam in the eigenbasis of Shampoo's matrices."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, hyper, option, refresh, slot
from everstep.optimizers.contract.merged import as_before, as_matrix, merged, sides_of


class SOAP(Definition):
    """SOAP (Vyas et al. 2024, https://arxiv.org/abs/2409.11321, algorithm 3, as in the authors' code).

    Variables of rank 2 or more are matrices: all axes but the last are rows. q and r are left_basis and right_basis.
    m := beta_1 * m + (1 - beta_1) * grad
    v := beta_2 * v + (1 - beta_2) * (q^T @ grad @ r)^2
    rate = learning_rate * sqrt(1 - beta_2^(t - 1)) / (1 - beta_1^(t - 1))
    var := var - rate * q @ ((q^T @ m @ r) / (sqrt(v) + epsilon)) @ r^T
    var := var - learning_rate * weight_decay * var
    left := shampoo_beta * left + (1 - shampoo_beta) * grad @ grad^T
    right := shampoo_beta * right + (1 - shampoo_beta) * grad^T @ grad

    The first update changes only left, right and the bases, which are their eigenvectors then. At updates 2 + period,
    2 + 2 * period, ... a step of the power method renews them before all else: q becomes the first factor of
    qr(left @ q). Before that, columns of left @ q and rows of v are ordered by the sizes of q^T @ left @ q. The same is
    done with r.

    A side of more than max_size has no basis. Variables of rank 0 and 1 have none, so they take Adam's step. No stock
    API has it. Defaults are those of the authors' code.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | the authors' SOAP           | period is their precondition_frequency, max_size their max_precond_dim.     |
    |                             | They merge axes only with merge_dims                                        |
    | pytorch-optimizer           | the same, and max_precondition_dim                                          |

    `ops.eigh` is used once, and `ops.qr` at each period; Keras 3.0 lacks the former on JAX and torch. A sparse gradient
    is made dense. Partitioned variables are refused.

    Advice:
        The authors' rate for language models is 0.003, with warm-up, and a period of 10; they lose little up to 100.
        It keeps two matrices for each side: set max_size to leave out the long sides of embeddings. A variable whose
        first gradient comes later starts at the next step of the power method. If the first gradient leaves an
        eigenvalue at 0 twice, as where it has two more rows than columns, each API takes other eigenvectors of it.

    Args:
        learning_rate: A float, tensor, callable or schedule. Default 0.003.
        beta_1: Decay of the first moment, 0 to 1. Default 0.95.
        beta_2: Decay of the second moment, 0 to 1. Default 0.95.
        epsilon: Added to the root. Default 1e-8.
        weight_decay: Each update takes learning_rate * weight_decay of the variable away. Default 0.01.
        shampoo_beta: Decay of left and right, 0 to 1. Default None: beta_2.
        period: How many updates lie between two steps of the power method, at least 1. Default 10.
        max_size: The longest side that has a basis. Default 10000.
        sides: Set by everstep: which sides have a basis, "both", "left", "right" or "none". Default "both".

    >>> import numpy
    >>> weights = numpy.zeros((2, 2))
    >>> optimizer = SOAP(0.1, weight_decay=0.0).bind(numpy)
    >>> for _ in range(2):
    ...     optimizer.apply_gradients([(numpy.array([[3.0, 1.0], [1.0, 3.0]]), weights)])
    >>> weights.round(4) + 0.0  # of 4 and 2, along (1, 1) and (1, -1), the signs
    array([[-0.1,  0. ],
           [ 0. , -0.1]])
    """

    family = "second order"
    locality = "variable"
    learning_rate = hyper(3e-3, minimum=0)
    beta_1 = hyper(0.95, minimum=0, maximum=1)
    beta_2 = hyper(0.95, minimum=0, maximum=1)
    epsilon = hyper(1e-8, minimum=0)
    weight_decay = hyper(0.01, minimum=0)
    shampoo_beta = option(None, minimum=0, maximum=1)
    period = option(10, minimum=1)
    max_size = option(10000, minimum=0)
    sides = option("both", choices=("both", "left", "right", "none"))
    m = slot()
    v = slot()
    left = slot(shape=lambda variable: merged(variable.shape)[:1] * 2, when=lambda rule: "left" in rule.sided())
    left_basis = slot(shape=lambda variable: merged(variable.shape)[:1] * 2, when=lambda rule: "left" in rule.sided())
    right = slot(shape=lambda variable: merged(variable.shape)[1:] * 2, when=lambda rule: "right" in rule.sided())
    right_basis = slot(shape=lambda variable: merged(variable.shape)[1:] * 2, when=lambda rule: "right" in rule.sided())

    def specialize(self, variable):
        return self.replace(sides=sides_of(variable.shape, self.max_size))

    def sided(self):
        """Returns the sides that have a basis."""
        return ("left", "right") if self.sides == "both" else () if self.sides == "none" else (self.sides,)

    @refresh(every=None)
    def first_basis(self, ops, grad, var, slots, hyper):
        new = self._moments(ops, grad, slots, hyper)
        return {side + "_basis": ops.eigh(-new[side])[1] for side in self.sided()}  # the largest comes first

    @refresh(every="period", after=2)
    def next_basis(self, ops, grad, var, slots, hyper):
        new, v = {}, as_matrix(ops, slots.v) if self.sided() else slots.v
        for side in self.sided():
            basis = getattr(slots, side + "_basis")
            is_new = ops.cast(ops.equal(ops.max(ops.abs(basis)), 0), basis.dtype)  # no gradient came at update 1
            basis = basis + is_new * ops.eye(basis.shape[0])
            product = ops.matmul(getattr(slots, side), basis)
            order = _descending(ops, ops.sum(basis * product, axis=0))
            new[side + "_basis"] = ops.qr(ops.matmul(product, order))[0]
            v = ops.matmul(ops.transpose(order), v) if side == "left" else ops.matmul(v, order)
        return dict(new, v=as_before(ops, v, slots.v)) if new else {}

    def _moments(self, ops, grad, slots, hyper):
        """Returns the new `left` and `right`."""
        new, beta = {}, hyper.beta_2 if self.shampoo_beta is None else self.shampoo_beta
        for side in self.sided():
            value = as_matrix(ops, grad)
            value = value if side == "left" else ops.transpose(value)
            new[side] = beta * getattr(slots, side) + (1 - beta) * ops.matmul(value, ops.transpose(value))
        return new

    def _turned(self, ops, value, slots, back=False):
        """Returns a value in the eigenbasis, or one of the eigenbasis as it was."""
        if not self.sided():
            return value
        matrix = as_matrix(ops, value)
        if "left" in self.sided():
            matrix = ops.matmul(slots.left_basis if back else ops.transpose(slots.left_basis), matrix)
        if "right" in self.sided():
            matrix = ops.matmul(matrix, ops.transpose(slots.right_basis) if back else slots.right_basis)
        return as_before(ops, matrix, value)

    def update(self, ops, grad, var, slots, hyper, t):
        moves, count = ops.cast(t > 1, grad.dtype), ops.maximum(t - 1, 1)
        m = slots.m + moves * (1 - hyper.beta_1) * (grad - slots.m)
        v = slots.v + moves * (1 - hyper.beta_2) * (ops.square(self._turned(ops, grad, slots)) - slots.v)
        rate = moves * hyper.learning_rate
        correction = rate * ops.sqrt(1 - hyper.beta_2**count) / (1 - hyper.beta_1**count)
        change = self._turned(ops, m, slots) / (ops.sqrt(v) + hyper.epsilon)
        change = correction * self._turned(ops, change, slots, back=True)
        change = change + rate * hyper.weight_decay * (var - change)
        return change, dict(self._moments(ops, grad, slots, hyper), m=m, v=v)


def _descending(ops, numbers):
    """Returns the matrix whose product with a matrix on its left has its columns in the order of some numbers."""
    place, down, right = ops.arange(numbers.shape[0]), (-1, 1), (1, -1)
    earlier = ops.reshape(place, right) < ops.reshape(place, down)
    column, row = ops.reshape(numbers, down), ops.reshape(numbers, right)
    before = ops.logical_or(row > column, ops.logical_and(ops.equal(row, column), earlier))
    number = ops.sum(ops.cast(before, "int32"), axis=1, keepdims=True)  # the new place of each column
    return ops.cast(ops.equal(number, ops.reshape(place, right)), numbers.dtype)
