"""Adafactor: Adam with a second moment of one number per row and one per column."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, hyper, option, slot

_STEP_FROM_1 = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float64": 2.0**-52}  # of others that of float32


class Adafactor(Definition):
    """Adafactor (Shazeer & Stern 2018, https://arxiv.org/abs/1804.04235, algorithms 4 to 6).

    beta = 1 - t^beta_2_decay;  square = grad^2 + epsilon_1
    Variables of rank 2 or more are factored over their last two dimensions, each matrix separately:
    rows := beta * rows + (1 - beta) * row_means(square)
    columns := beta * columns + (1 - beta) * column_means(square)
    v = rows / mean(rows) * columns
    All other variables: v := beta * v + (1 - beta) * square
    direction = grad / sqrt(v);  direction := direction / max(1, rms(direction) / clip_threshold)
    rate = min(learning_rate, 1 / sqrt(t)) with relative_step, else learning_rate
    var := var - max(epsilon_2, rms(var)) * rate * direction
    Without scale_parameter: var := var - rate * direction
    With epsilon_floor: square = grad^2;  v = max(rows / max(mean(rows), epsilon_1) * columns, epsilon_1^2)

    Defaults are those of Keras 3; the paper's rate is 0.01.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | new-style Keras, Keras 3    | the defaults; its relative_step=False changes nothing                       |
    | torch.optim                 | epsilon_floor=True; stock default: epsilon_1=0.0, learning_rate=0.01; its   |
    |                             | weight_decay is everstep.decoupled_weight_decay(beside=True)                |
    | Transformers, fairseq       | learning_rate=0.01; for their relative_step=False, relative_step=False      |

    Advice:
        The paper's form needs no tuned rate: keep relative_step and scale_parameter and set learning_rate=0.01, which
        then is only an upper limit. To use a rate of your own, set relative_step=False and scale_parameter=False, and
        warm the rate up to a constant such as 0.001. Do not clip gradients as well: the update is clipped already
        (https://huggingface.co/docs/transformers/main_classes/optimizer_schedules).

    Args:
        learning_rate: A float, tensor, callable or schedule. Default 0.001.
        beta_2_decay: The exponent of t, 0 or less. Default -0.8.
        epsilon_1: Added to squared gradients. With epsilon_floor 0 stands for the step from 1 to the next number of the
            variable's dtype, 1.2e-7 of float32, which is None in torch. Default 1e-30.
        epsilon_2: The least root mean square of a variable that scale_parameter uses. Default 0.001.
        clip_threshold: The greatest root mean square of a direction. Default 1.
        relative_step: True to limit the rate to 1 / sqrt(t). Default True.
        scale_parameter: True to scale steps by the variable's root mean square. Default True.
        factored: True to store rows and columns in place of v for variables of rank 2 or more. Default True.
        epsilon_floor: True to make epsilon_1 the least value of sqrt(v), as in torch. Default False.
        variable_dtype: Set by everstep, with epsilon_floor: the variable's dtype. Default "float32".

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
    epsilon_floor = option(False)
    variable_dtype = option("float32")
    rows = slot(shape=lambda variable: variable.shape[:-1] + (1,), when="factored")
    columns = slot(shape=lambda variable: variable.shape[:-2] + (1,) + variable.shape[-1:], when="factored")
    v = slot(when=lambda definition: not definition.factored)

    def specialize(self, variable):
        rule = self if len(variable.shape) > 1 else self.replace(factored=False)
        return rule.replace(variable_dtype=variable.dtype) if self.epsilon_floor else rule

    def update(self, ops, grad, var, slots, hyper, t):
        def average(old, square):
            return old + (square - old) * t**hyper.beta_2_decay

        def rms(value):
            return ops.sqrt(ops.mean(value * value))

        floor, square = self.epsilon_floor, grad * grad
        if floor:
            own = _STEP_FROM_1.get(self.variable_dtype, 2.0**-23)
            least = ops.where(hyper.epsilon_1 > 0, hyper.epsilon_1, own)
        else:
            square = square + hyper.epsilon_1
        if self.factored:
            rows = average(slots.rows, ops.mean(square, axis=-1, keepdims=True))
            columns = average(slots.columns, ops.mean(square, axis=-2, keepdims=True))
            mean = ops.mean(rows, axis=-2, keepdims=True)
            # Two roots, because the product of rows and columns could underflow in float32.
            roots = [ops.sqrt(rows / (ops.maximum(mean, least) if floor else mean)), ops.sqrt(columns)]
            new = {"rows": rows, "columns": columns}
        else:
            v = average(slots.v, square)
            roots, new = [ops.sqrt(v)], {"v": v}
        if floor:
            roots = [ops.maximum(roots[0] * roots[1] if self.factored else roots[0], least)]
        direction = grad
        for root in roots:
            direction = direction / root
        rate = ops.minimum(hyper.learning_rate, 1 / ops.sqrt(t)) if self.relative_step else hyper.learning_rate
        if self.scale_parameter:
            rate = rate * ops.maximum(hyper.epsilon_2, rms(var))
        return rate * direction / ops.maximum(1, rms(direction) / hyper.clip_threshold), new
