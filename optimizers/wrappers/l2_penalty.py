"""An L2 penalty in the gradient: the weight_decay of torch.optim."""
from __future__ import absolute_import, division, print_function

from everstep.errors import DefinitionError
from everstep.optimizers.contract import Wrapper, defines, hyper


class L2Penalty(Wrapper):
    """Adds weight_decay * var to each gradient, before `inner` sees it: `everstep.l2_penalty`.

    grad := grad + weight_decay * var

    It adds the gradient of the penalty weight_decay / 2 * sum(var^2) to that of the loss.

    Krogh & Hertz 1991, https://proceedings.neurips.cc/paper/1991/hash/8eefcfdf5990e441f0fb6f3fad709e21-Abstract.html
    equation 3. In adaptive rules this is not the weight decay of AdamW: Loshchilov & Hutter 2019,
    https://arxiv.org/abs/1711.05101

    | stock                                     | options                                                          |
    |-------------------------------------------|------------------------------------------------------------------|
    | weight_decay of torch.optim, but for      | weight_decay                                                     |
    | AdamW and decoupled_weight_decay=True     |                                                                  |

    For a sparse gradient, "exact" penalizes all rows at each step and "rows" only those present; "catch_up" is refused.
    Stock of torch refuses sparse gradients with weight_decay. A variable without a gradient is not penalized.

    Advice:
        Use it to take over a program that has weight_decay. For a new one prefer AdamW or
        `everstep.decoupled_weight_decay`, unless the rule is SGD, for which the two are the same at a constant rate.

    Args:
        inner: The definition that updates.
        weight_decay: What the variable is multiplied by: a float, tensor, callable or schedule. Default 0.

    >>> import numpy, everstep
    >>> weights = numpy.array([4.0])
    >>> optimizer = everstep.l2_penalty(everstep.optimizers.SGD(0.5), 0.25).bind(numpy)
    >>> optimizer.apply_gradients([(numpy.array([1.0]), weights)])
    >>> weights  # 4 - 0.5 * (1 + 0.25 * 4)
    array([3.])
    """

    prefix = "l2_penalty"
    weight_decay = hyper(0.0, minimum=0)
    forwarded_verbs = frozenset(["measure"])
    zero_grad_is_noop = False  # type: ignore[assignment]  # the penalty moves all rows

    def _check(self):
        if defines(self.inner, "collect"):
            raise DefinitionError(
                "{} collects gradients before l2_penalty could add to them; if it is a wrapper, put l2_penalty inside "
                "of it".format(self.inner._short())
            )
        super(L2Penalty, self)._check()

    def measure(self, ops, grad, var, slots, hyper):
        return super(L2Penalty, self).measure(ops, grad + hyper.weight_decay * var, var, slots, hyper)

    def update(self, ops, grad, var, slots, hyper, t):
        penalized = grad + hyper.weight_decay * var
        return super(L2Penalty, self).update(ops, penalized, var, slots, hyper, t)


def l2_penalty(definition, weight_decay=0.0):
    """Adds weight_decay * var to each gradient: `L2Penalty(definition, weight_decay)`.

    Args:
        definition: The definition that updates.
        weight_decay: See `everstep.optimizers.L2Penalty`.

    Returns:
        An `everstep.optimizers.L2Penalty`.

    Raises:
        DefinitionError: The definition collects gradients, which would be without the penalty.
        HyperTypeError, HyperValueError: An argument is of the wrong type or outside its range.
    """
    return L2Penalty(definition, weight_decay)
