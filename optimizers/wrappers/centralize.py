"""Gradient centralization."""
from __future__ import absolute_import, division, print_function

from everstep.errors import DefinitionError
from everstep.optimizers.contract import Wrapper, defines, option


class Centralize(Wrapper):
    """Subtracts from each gradient its mean over all axes but the last, before `inner` sees it: `everstep.centralize`.

    Yong et al. 2020, https://arxiv.org/abs/2004.01461, equation 1. In the kernel layout of TensorFlow and Keras, the
    mean is over the weights of one output of a dense or convolution layer. Variables of rank 0 or 1 are not
    centralized.

    Centralizing a sparse gradient needs all rows, so it becomes dense, whatever `sparse` says. Leave embedding tables
    out: `everstep.partition({"embedding": ...}, default=everstep.centralize(...))`. Partitioned variables are refused.

    | stock                                     | options                                                          |
    |-------------------------------------------|------------------------------------------------------------------|
    | the authors' code, for PyTorch            | the defaults (outputs are the first axis there);                 |
    |                                           | minimum_rank=3 for its "_GCC", convolutions alone                |

    Advice:
        For convolutions alone, as in the "_GCC" optimizers of the authors' code
        (https://github.com/Yonghongwei/Gradient-Centralization), set minimum_rank=3. Put clip, accumulate and other
        wrappers that read gradients around centralize; inside it they would work on gradients that are not centralized,
        so everstep refuses them there.

    Args:
        inner: The definition that updates.
        minimum_rank: The least rank of a variable whose gradient is centralized, 2 or more. Default 2.
        centers: Set by everstep: False for a variable of a lower rank. Default True.

    >>> import numpy, everstep
    >>> weights = numpy.zeros((2, 2))
    >>> optimizer = everstep.centralize(everstep.optimizers.SGD(1.0)).bind(numpy)
    >>> optimizer.apply_gradients([(numpy.array([[1.0, 5.0], [3.0, 5.0]]), weights)])
    >>> weights
    array([[ 1.,  0.],
           [-1.,  0.]])
    """

    prefix = "centralize"
    minimum_rank = option(2, minimum=2)
    centers = option(True)

    def _check(self):
        for verb, action in (("measure", "measures"), ("collect", "collects")):
            if defines(self.inner, verb):
                raise DefinitionError(
                    "{} {} gradients before centralize could centralize them; if it is a wrapper, put centralize "
                    "inside of it".format(self.inner._short(), action)
                )
        super(Centralize, self)._check()

    @property
    def locality(self):  # type: ignore[override]
        return "variable" if self.centers else self.inner.locality

    def specialize(self, variable):
        rule = super(Centralize, self).specialize(variable)
        return rule if len(variable.shape) >= self.minimum_rank else rule.replace(centers=False)

    def update(self, ops, grad, var, slots, hyper, t):
        if self.centers:
            grad = grad - ops.mean(grad, axis=tuple(range(len(var.shape) - 1)), keepdims=True)
        return super(Centralize, self).update(ops, grad, var, slots, hyper, t)


def centralize(definition, minimum_rank=2):
    """Gives gradients a mean of 0 for each output: `Centralize(definition, minimum_rank)`.

    Args:
        definition: The definition that updates.
        minimum_rank: See `everstep.optimizers.Centralize`.

    Returns:
        An `everstep.optimizers.Centralize`.

    Raises:
        DefinitionError: The definition measures or collects gradients, which would not be centralized.
        HyperTypeError, HyperValueError: An argument is of the wrong type or outside its range.
    """
    return Centralize(definition, minimum_rank)
