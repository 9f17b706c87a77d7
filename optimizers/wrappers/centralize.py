"""Gradient centralization."""
from __future__ import absolute_import, division, print_function

from everstep.errors import DefinitionError
from everstep.optimizers.contract import Wrapper, defines, option


class Centralize(Wrapper):
    """Takes off a gradient its mean over all axes but the last, before `inner` sees it: `everstep.centralize`.

    As in Yong et al. 2020, arXiv:2004.01461, equation 1: that is what leads to one output of a dense layer or of a
    convolution, as TensorFlow and Keras lay out their kernels. Variables of one axis or none are left alone.

    The mean is over the whole gradient, and what is left of a sparse one has all rows: it is made a whole one, whatever
    `sparse` says. Keep tables out by `everstep.partition({"embedding": ...}, default=everstep.centralize(...))`.
    Partitioned variables are refused.

    | stock                                     | options                                                          |
    |-------------------------------------------|------------------------------------------------------------------|
    | the paper's code, of PyTorch              | the defaults: outputs are its first axis; its "GC" of            |
    |                                           | convolutions alone is minimum_rank=3                             |

    Args:
        inner: the definition that updates.
        minimum_rank: how many axes a variable has at least whose gradient is centralized, 2 or more; 2.

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
        for verb, why in (("measure", "measures"), ("collect", "collects")):
            if defines(self.inner, verb):
                raise DefinitionError(
                    "{} {} gradients, and would do it before they are centralized; put centralize inside, where it "
                    "is a wrapper".format(self.inner._short(), why)
                )
        super(Centralize, self)._check()

    @property
    def locality(self):  # type: ignore[override]
        return "variable" if self.centers else self.inner.locality

    def specialize(self, variable):
        made = super(Centralize, self).specialize(variable)
        return made if len(variable.shape) >= self.minimum_rank else made.replace(centers=False)

    def update(self, ops, grad, var, slots, hyper, t):
        if self.centers:
            grad = grad - ops.mean(grad, axis=tuple(range(len(var.shape) - 1)), keepdims=True)
        return super(Centralize, self).update(ops, grad, var, slots, hyper, t)


def centralize(definition, minimum_rank=2):
    """`Centralize(definition, minimum_rank)`: gradients of mean 0 for each output."""
    return Centralize(definition, minimum_rank)
