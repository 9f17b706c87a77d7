"""Tiger: the sign of the momentum, with a rate that can follow the size of the weights."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, hyper, option, slot


class Tiger(Definition):
    """Tiger (Su 2023, https://kexue.fm/archives/9512, "tight-fisted optimizer").

    m := beta * m + (1 - beta) * grad
    var := var - rate * (sign(m) + weight_decay * var)

    rate is the learning rate. With relative_rate="variable", it is the learning rate times the root mean square of the
    variable; with "row", of each row.

    No stock API has it. Defaults are those of the author's code (https://github.com/bojone/tiger), which chooses the
    relative rate by name. That code also accumulates gradients, for which there is `everstep.accumulate`, and shrinks
    variables whose gradient is not finite.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | the author's code           | `everstep.partition` of Tiger(5e-4, weight_decay=0.0) for "bias|beta|gamma",|
    |                             | relative_rate="row" for "embeddings", and "variable" for all others         |
    | pytorch-optimizer           | the defaults                                                                |

    Advice:
        Lion with beta_1 = beta_2 is Tiger, so start from Lion's learning rates, 3 to 10 times smaller than for AdamW.
        With a relative rate, the author's example takes 1.76e-3, after a warm-up. A variable that starts at 0, such as
        a bias, never moves by a relative rate.

    Args:
        learning_rate: A float, tensor, callable or schedule. Default 0.001.
        beta: Decay of the momentum, 0 to 1. Default 0.965.
        weight_decay: Each update subtracts rate * weight_decay * var. Default 0.01.
        relative_rate: "variable" to multiply the rate by the size of the variable, "row" by that of each row. Default
            "".

    >>> import numpy
    >>> weights = numpy.ones(2)
    >>> Tiger(0.125, weight_decay=0.0).bind(numpy).apply_gradients([(numpy.array([3.0, -0.5]), weights)])
    >>> weights
    array([0.875, 1.125])
    """

    family = "signs"
    learning_rate = hyper(1e-3, minimum=0)
    beta = hyper(0.965, minimum=0, maximum=1)
    weight_decay = hyper(0.01, minimum=0)
    relative_rate = option("", choices=("", "row", "variable"))
    m = slot()

    @property
    def locality(self):  # type: ignore[override]
        return self.relative_rate or "element"

    def _rate(self, ops, var, rank, hyper):
        if not self.relative_rate:
            return hyper.learning_rate
        square = var * var
        if self.relative_rate == "variable":
            square = ops.mean(square)
        elif rank > 1:
            square = ops.mean(square, axis=tuple(range(1, rank)), keepdims=True)
        return hyper.learning_rate * ops.sqrt(square)

    def update(self, ops, grad, var, slots, hyper, t):
        m = hyper.beta * slots.m + (1 - hyper.beta) * grad
        rate = self._rate(ops, var, len(grad.shape), hyper)
        return rate * (ops.sign(m) + hyper.weight_decay * var), {"m": m}

    @property
    def max_replay_steps(self):  # type: ignore[override]
        return 200 if self.relative_rate else 0

    def fast_forward(self, ops, var, slots, hyper, steps):
        new = {"m": slots.m * steps.product(hyper.beta)}
        if self.relative_rate:
            return 0.0, new  # no form: the rate follows the size of the row, which each update changes
        share = hyper.learning_rate * hyper.weight_decay
        change = ops.sign(slots.m) * steps.decayed(share).sum(hyper.learning_rate * ops.sign(hyper.beta))
        return change + steps.decay(share) * var, new
