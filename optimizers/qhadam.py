"""QHAdam: Adam whose moments are mixed with the gradient of the day."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import Definition, hyper, slot


class QHAdam(Definition):
    """QHAdam (Ma & Yarats 2019, "Quasi-hyperbolic momentum and Adam for deep learning", arXiv:1810.06801).

    m := beta_1 * m + (1 - beta_1) * grad;  m_hat = m / (1 - beta_1^t)
    v := beta_2 * v + (1 - beta_2) * grad^2;  v_hat = v / (1 - beta_2^t)
    direction = nu_1 * m_hat + (1 - nu_1) * grad
    root = sqrt(nu_2 * v_hat + (1 - nu_2) * grad^2)
    var := var - learning_rate * direction / (root + epsilon)

    Defaults are those of the authors' code, with which it is Adam; they advise nu_1=0.7. Its slots are m_hat and v_hat.

    | stock                       | options                                                                     |
    |-----------------------------|-----------------------------------------------------------------------------|
    | the authors' code           | the defaults                                                                |

    Args:
        learning_rate: float, tensor, callable or schedule; 0.001.
        beta_1: decay of the first moment, 0 to 1; 0.9.
        beta_2: decay of the second moment, 0 to 1; 0.999.
        nu_1: share of the first moment in the direction; 1.
        nu_2: share of the second moment under the root, 0 to 1; 1.
        epsilon: added to the root; 1e-8.

    >>> import numpy
    >>> weights = numpy.zeros(1)
    >>> QHAdam(0.1, nu_1=0.7).bind(numpy).apply_gradients([(numpy.array([3.0]), weights)])
    >>> weights.round(4)
    array([-0.1])
    """

    family = "Adam"
    learning_rate = hyper(1e-3, minimum=0)
    beta_1 = hyper(0.9, minimum=0, maximum=1)
    beta_2 = hyper(0.999, minimum=0, maximum=1)
    nu_1 = hyper(1.0)
    nu_2 = hyper(1.0, minimum=0, maximum=1)
    epsilon = hyper(1e-8, minimum=0)
    m = slot()
    v = slot()

    def update(self, ops, grad, var, slots, hyper, t):
        m = hyper.beta_1 * slots.m + (1 - hyper.beta_1) * grad
        v = hyper.beta_2 * slots.v + (1 - hyper.beta_2) * grad * grad
        direction = hyper.nu_1 / (1 - hyper.beta_1**t) * m + (1 - hyper.nu_1) * grad
        square = hyper.nu_2 / (1 - hyper.beta_2**t) * v + (1 - hyper.nu_2) * grad * grad
        return hyper.learning_rate * direction / (ops.sqrt(square) + hyper.epsilon), {"m": m, "v": v}

    def fast_forward(self, ops, var, slots, hyper, steps):
        return 0, {"m": slots.m * hyper.beta_1**steps, "v": slots.v * hyper.beta_2**steps}
