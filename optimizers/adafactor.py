"""Adafactor: Adam with a second moment of one number per row and one per column."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, hyper, option, slot


class Adafactor(Definition):
    """Adafactor (Shazeer & Stern 2018, https://arxiv.org/abs/1804.04235, algorithms 4 to 6).

    beta = 1 - t^beta_2_decay;  square = grad^2 + epsilon_1
    Variables of rank 2 or more are factored over their last two dimensions, each matrix separately:
    rows := beta * rows + (1 - beta) * mean(square over columns)
    columns := beta * columns + (1 - beta) * mean(square over rows)
    v = rows / mean(rows) * columns
    All other variables: v := beta * v + (1 - beta) * square
    direction = grad / sqrt(v);  direction := direction / max(1, rms(direction) / clip_threshold)
    rate = min(learning_rate, 1 / sqrt(t)) with relative_step, else learning_rate
    var := var - max(epsilon_2, rms(var)) * rate * direction; without scale_parameter var - rate * direction

    Defaults are those of Keras 3; the paper's rate is 0.01.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | new-style Keras, Keras 3    | the defaults; its relative_step=False changes nothing                       |
    | torch                       | learning_rate=0.01; it clamps v from below instead of adding epsilon_1      |
    | Transformers, fairseq       | learning_rate=0.01; for their relative_step=False, relative_step=False      |

    Advice:
        The paper's form needs no tuned rate: keep relative_step and scale_parameter and set learning_rate=0.01, which
        then is only an upper limit. To use a rate of your own, set relative_step=False and scale_parameter=False, and
        warm the rate up to a constant such as 0.001. Do not clip gradients as well: the update is clipped already
        (https://huggingface.co/docs/transformers/main_classes/optimizer_schedules).

    Args:
        learning_rate: A float, tensor, callable or schedule. Default 0.001.
        beta_2_decay: The exponent of t, 0 or less. Default -0.8.
        epsilon_1: Added to squared gradients. Default 1e-30.
        epsilon_2: The least root mean square of a variable that scale_parameter uses. Default 0.001.
        clip_threshold: The greatest root mean square of a direction. Default 1.
        relative_step: True to limit the rate to 1 / sqrt(t). Default True.
        scale_parameter: True to scale steps by the variable's root mean square. Default True.
        factored: True to store rows and columns in place of v for variables of rank 2 or more. Default True.

    >>> import numpy
    >>> weights = numpy.full((2, 2), 0.5)
    >>> Adafactor(0.1).bind(numpy).apply_gradients([(numpy.array([[1.0, 2.0], [2.0, 4.0]]), weights)])
    >>> weights  # 0.5 - 0.1 * 0.5: squares that are a row times a column are factored exactly
    array([[0.45, 0.45],
           [0.45, 0.45]])
    """

    family = "Adam"
    locality = "variable"
    learning_rate = hyper(1e-3, minimum=0)
    beta_2_decay = hyper(-0.8, maximum=0)
    epsilon_1 = hyper(1e-30, minimum=0)
    epsilon_2 = hyper(1e-3, minimum=0)
    clip_threshold = hyper(1.0, minimum=0)
    relative_step = option(True)
    scale_parameter = option(True)
    factored = option(True)
    rows = slot(shape=lambda variable: variable.shape[:-1] + (1,), when="factored")
    columns = slot(shape=lambda variable: variable.shape[:-2] + (1,) + variable.shape[-1:], when="factored")
    v = slot(when=lambda definition: not definition.factored)

    def specialize(self, variable):
        return self if len(variable.shape) > 1 else self.replace(factored=False)

    def update(self, ops, grad, var, slots, hyper, t):
        def average(old, square):
            return old + (square - old) * t**hyper.beta_2_decay

        def rms(value):
            return ops.sqrt(ops.mean(value * value))

        square = grad * grad + hyper.epsilon_1
        if self.factored:
            rows = average(slots.rows, ops.mean(square, axis=-1, keepdims=True))
            columns = average(slots.columns, ops.mean(square, axis=-2, keepdims=True))
            # Two roots, because the product of rows and columns could underflow in float32.
            direction = grad / ops.sqrt(rows / ops.mean(rows, axis=-2, keepdims=True)) / ops.sqrt(columns)
            new = {"rows": rows, "columns": columns}
        else:
            v = average(slots.v, square)
            direction, new = grad / ops.sqrt(v), {"v": v}
        rate = ops.minimum(hyper.learning_rate, 1 / ops.sqrt(t)) if self.relative_step else hyper.learning_rate
        if self.scale_parameter:
            rate = rate * ops.maximum(hyper.epsilon_2, rms(var))
        return rate * direction / ops.maximum(1, rms(direction) / hyper.clip_threshold), new
