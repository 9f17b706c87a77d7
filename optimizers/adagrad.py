"""Adagrad: gradients divided by the root of the sum of their squares."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, hyper, kernel, option, slot


class Adagrad(Definition):
    """Adagrad (Duchi et al. 2011, https://jmlr.org/papers/v12/duchi11a.html, the diagonal form of figure 1).

    accumulator := accumulator + grad^2
    var := var - learning_rate * grad / (sqrt(accumulator) + epsilon)
    With epsilon_in_root: var := var - learning_rate * grad / sqrt(accumulator + epsilon)

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | tf.train Adagrad            | epsilon=0.0                                                                 |
    | tf.contrib.opt RegAdagrad   | epsilon=0.0; it can leave its accumulator alone in some steps, which        |
    |                             | Adagrad cannot                                                              |
    | OptimizerV2                 | the defaults                                                                |
    | Keras 2.0 to 2.3            | initial_accumulator_value=0.0; stock default: learning_rate=0.01            |
    | new-style Keras, Keras 3    | epsilon_in_root=True                                                        |
    | torch.optim                 | the defaults; stock default: epsilon=1e-10, initial_accumulator_value=0.0,  |
    |                             | learning_rate=0.01; its lr_decay is everstep.rate_decay                     |

    Advice:
        Use a larger learning rate than for other optimizers; the default of 0.001 is that of Keras, which notes this
        and names 1.0 for the paper's form (https://keras.io/api/optimizers/adagrad). Adagrad suits sparse features:
        rare ones keep large steps. Steps only ever shrink, so for endless training see AdagradDecay.

    Args:
        learning_rate: A float, tensor, callable or schedule, of any sign. Default 0.001.
        initial_accumulator_value: The first value of accumulators. Default 0.1.
        epsilon: Keeps the divisor above 0. Default 1e-7.
        epsilon_in_root: True to add epsilon under the root, False to add it to the root. Default False.

    >>> import numpy
    >>> weights = numpy.zeros(1)
    >>> Adagrad(0.1, initial_accumulator_value=0.0).bind(numpy).apply_gradients([(numpy.array([3.0]), weights)])
    >>> weights.round(4)
    array([-0.1])
    """

    family = "Adagrad"
    kernel = kernel("adagrad")
    zero_grad_is_noop = True
    learning_rate = hyper(1e-3)
    initial_accumulator_value = option(0.1, minimum=0)
    epsilon = hyper(1e-7, minimum=0)
    epsilon_in_root = option(False)
    accumulator = slot(init="initial_accumulator_value")

    def update(self, ops, grad, var, slots, hyper, t):
        accumulator = slots.accumulator + grad * grad
        inside, outside = (hyper.epsilon, 0) if self.epsilon_in_root else (0, hyper.epsilon)
        return hyper.learning_rate * grad / (ops.sqrt(accumulator + inside) + outside), {"accumulator": accumulator}
