"""Adam-mini: Adam with one second moment for each block of a variable."""
from __future__ import absolute_import, division, print_function

from everstep.errors import DefinitionError
from everstep.optimizers.contract import Definition, hyper, option, slot


class AdamMini(Definition):
    """Adam-mini (Zhang et al. 2024, https://arxiv.org/abs/2406.16793, algorithm 1).

    m := beta_1 * m + (1 - beta_1) * grad;  m_hat = m / (1 - beta_1^t)
    v := beta_2 * v + (1 - beta_2) * mean(grad^2), one number for each block;  v_hat = v / (1 - beta_2^t)
    var := var - learning_rate * (m_hat / (sqrt(v_hat) + epsilon) + weight_decay * var)

    | block      | is                                                                                           |
    |------------|----------------------------------------------------------------------------------------------|
    | "output"   | all weights with the same index of the last axis: in the layout of TensorFlow and Keras, what|
    |            | one output of a kernel is made of. In variables of one axis each element, as in Adam         |
    | "row"      | an index of the first axis: of an embedding, a token                                         |
    | "column"   | all weights with the same indices but the first: an output of Keras's kernels of three axes  |
    | "head"     | an index of the second of three axes: a head of the query and key kernels of Keras's         |
    |            | MultiHeadAttention                                                                           |
    | "variable" | the variable                                                                                 |

    No stock API has it. The authors' code chooses blocks by names of PyTorch models: "head" for queries and keys,
    "variable" for normalization, "row" (outputs come first there) for all others, and Adam for biases.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | adam-mini                   | `everstep.partition` of AdamMini with several blocks, by the model's names  |

    Advice:
        Use the settings of AdamW (https://github.com/zyushun/Adam-mini). v has one number for each block, so the state
        is about half of AdamW's. Choose blocks for a Keras model by
        `everstep.partition({"rows": ("embedding", AdamMini(block="row"))}, default=AdamMini())`.

    Args:
        learning_rate: A float, tensor, callable or schedule. Default 0.001.
        beta_1: Decay of the first moment, 0 to 1. Default 0.9.
        beta_2: Decay of the second moment, 0 to 1. Default 0.999.
        epsilon: Added to the root. Default 1e-8.
        weight_decay: Each update subtracts learning_rate * weight_decay * var. Default 0.
        block: What shares a second moment, see the table. Default "output".

    >>> import numpy
    >>> weights = numpy.zeros((2, 2))
    >>> AdamMini(0.1).bind(numpy).apply_gradients([(numpy.array([[3.0, 1.0], [4.0, 1.0]]), weights)])
    >>> weights.round(4)  # the roots of the means are sqrt(12.5) and 1
    array([[-0.0849, -0.1   ],
           [-0.1131, -0.1   ]])
    """

    family = "Adam"
    learning_rate = hyper(1e-3, minimum=0)
    beta_1 = hyper(0.9, minimum=0, maximum=1)
    beta_2 = hyper(0.999, minimum=0, maximum=1)
    epsilon = hyper(1e-8, minimum=0)
    weight_decay = hyper(0.0, minimum=0)
    block = option("output", choices=("output", "row", "column", "head", "variable"))
    m = slot()
    # One slot for each block, because a slot's shape does not depend on options.
    v_output = slot(
        shape=lambda variable: (1,) * (len(variable.shape) - 1) + variable.shape[-1:],
        when=lambda rule: rule.block == "output",
    )
    v_row = slot(shape="row", when=lambda rule: rule.block == "row")
    v_column = slot(
        shape=lambda variable: (1,) * len(variable.shape[:1]) + variable.shape[1:],
        when=lambda rule: rule.block == "column",
    )
    v_head = slot(shape=lambda variable: (1, variable.shape[1], 1), when=lambda rule: rule.block == "head")
    v_variable = slot(shape=(), when=lambda rule: rule.block == "variable")

    @property
    def dry_run(self):  # type: ignore[override]
        return self.block != "head"  # which needs three axes

    @property
    def locality(self):  # type: ignore[override]
        return "row" if self.block == "row" else "variable"

    def check_variables(self, records):
        for record in records if self.block == "head" else ():
            if len(record.shape) != 3:
                raise DefinitionError(
                    'AdamMini(block="head") takes kernels of three axes, (input, head, size); {} has the shape {}. Use '
                    "everstep.partition to give it another block".format(record.name or "a variable", record.shape)
                )

    def update(self, ops, grad, var, slots, hyper, t):
        name, rank, square = "v_" + self.block, len(slots.m.shape), grad * grad
        axes = {"output": range(rank - 1), "row": range(1, rank), "column": range(min(rank, 1)), "head": (0, 2)}
        if self.block == "variable":
            square = ops.mean(square)
        elif len(axes[self.block]):
            square = ops.mean(square, axis=tuple(axes[self.block]), keepdims=True)
        m = hyper.beta_1 * slots.m + (1 - hyper.beta_1) * grad
        v = hyper.beta_2 * getattr(slots, name) + (1 - hyper.beta_2) * square
        step = m / (1 - hyper.beta_1**t) / (ops.sqrt(v / (1 - hyper.beta_2**t)) + hyper.epsilon)
        return hyper.learning_rate * (step + hyper.weight_decay * var), {"m": m, name: v}
