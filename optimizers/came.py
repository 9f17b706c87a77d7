"""CAME: Adafactor with momentum, weighed by how much directions can be trusted."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, hyper, option, slot


class CAME(Definition):
    """CAME (Luo et al. 2023, https://arxiv.org/abs/2307.02047, algorithm 2, as in the authors' code).

    Variables of rank 2 or more are factored over their last two dimensions, each matrix separately. There
    factored(square, beta) keeps the averages of the means of its rows and columns, with that decay, and is
    rows / mean(rows) * columns.

    direction = grad / sqrt(factored(grad^2 + epsilon_1, beta_2))
    direction := direction / max(1, rms(direction) / clip_threshold)
    m := beta_1 * m + (1 - beta_1) * direction
    var := var - learning_rate * (m / sqrt(factored((direction - m)^2 + epsilon_2, beta_3)) + weight_decay * var)

    All other variables: v := beta_2 * v + (1 - beta_2) * (grad^2 + epsilon_1), which replaces factored(...) in the
    first line, and m alone in the last one. No stock API has it.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | the authors' code           | the defaults with a learning_rate                                           |
    | pytorch-optimizer           | the defaults                                                                |

    A sparse gradient is made dense, as in Adafactor, because a variable's mean needs all of its rows.

    Advice:
        For BERT, GPT-2 and T5, the authors keep the default betas and epsilons, and take a rate near AdamW's
        (https://github.com/yangluo7/CAME). They advise a beta_3 larger than beta_2.

    Args:
        learning_rate: A float, tensor, callable or schedule. Default 0.0002.
        beta_1: Decay of the first moment, 0 to 1. Default 0.9.
        beta_2: Decay of the second moment, 0 to 1. Default 0.999.
        beta_3: Decay of the distrust, 0 to 1. Default 0.9999.
        epsilon_1: Added to squared gradients. Default 1e-30.
        epsilon_2: Added to squared differences. Default 1e-16.
        clip_threshold: The greatest root mean square of a direction. Default 1.
        weight_decay: Each update subtracts learning_rate * weight_decay * var. Default 0.
        factored: True to store rows and columns for variables of rank 2 or more. Default True.

    >>> import numpy
    >>> weights = numpy.zeros(2)
    >>> CAME(0.5, beta_1=0.5, beta_2=0.75).bind(numpy).apply_gradients([(numpy.array([1.0, -4.0]), weights)])
    >>> weights  # the directions are 2 and -2, then 1 and -1
    array([-0.25,  0.25])
    """

    family = "Adam"
    locality = "variable"
    learning_rate = hyper(2e-4, minimum=0)
    beta_1 = hyper(0.9, minimum=0, maximum=1)
    beta_2 = hyper(0.999, minimum=0, maximum=1)
    beta_3 = hyper(0.9999, minimum=0, maximum=1)
    epsilon_1 = hyper(1e-30, minimum=0)
    epsilon_2 = hyper(1e-16, minimum=0)
    clip_threshold = hyper(1.0, minimum=0)
    weight_decay = hyper(0.0, minimum=0)
    factored = option(True)
    m = slot()
    v = slot(when=lambda definition: not definition.factored)
    rows = slot(shape=lambda variable: variable.shape[:-1] + (1,), when="factored")
    columns = slot(shape=lambda variable: variable.shape[:-2] + (1,) + variable.shape[-1:], when="factored")
    distrust_rows = slot(shape=lambda variable: variable.shape[:-1] + (1,), when="factored")
    distrust_columns = slot(shape=lambda variable: variable.shape[:-2] + (1,) + variable.shape[-1:], when="factored")

    def specialize(self, variable):
        return self if len(variable.shape) > 1 else self.replace(factored=False)

    def update(self, ops, grad, var, slots, hyper, t):
        def average(old, new, beta):
            return beta * old + (1 - beta) * new

        def factors(square, rows, columns, beta):
            return (average(rows, ops.mean(square, axis=-1, keepdims=True), beta),
                    average(columns, ops.mean(square, axis=-2, keepdims=True), beta))

        def divided(value, rows, columns):
            # Two roots, because the product of rows and columns could underflow in float32.
            return value / ops.sqrt(rows / ops.mean(rows, axis=-2, keepdims=True)) / ops.sqrt(columns)

        square, new = grad * grad + hyper.epsilon_1, {}
        if self.factored:
            rows, columns = factors(square, slots.rows, slots.columns, hyper.beta_2)
            direction, new = divided(grad, rows, columns), {"rows": rows, "columns": columns}
        else:
            v = new["v"] = average(slots.v, square, hyper.beta_2)
            direction = grad / ops.sqrt(v)
        rms = ops.sqrt(ops.mean(direction * direction))
        direction = direction / ops.maximum(1, rms / hyper.clip_threshold)
        m = step = average(slots.m, direction, hyper.beta_1)
        if self.factored:
            differences = ops.square(direction - m) + hyper.epsilon_2
            rows, columns = factors(differences, slots.distrust_rows, slots.distrust_columns, hyper.beta_3)
            step = divided(m, rows, columns)
            new.update(distrust_rows=rows, distrust_columns=columns)
        return hyper.learning_rate * (step + hyper.weight_decay * var), dict(new, m=m)
