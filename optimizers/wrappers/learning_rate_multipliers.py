"""Different learning rates for some variables."""
from __future__ import absolute_import, division, print_function

from everstep.errors import DefinitionError
from everstep.optimizers.contract import ByName, Factors, Wrapper, flat, option


class LearningRateMultipliers(ByName, Wrapper):
    """Multiplies the learning rate that `inner` sees by a factor per variable: `everstep.learning_rate_multipliers`.

    Howard & Ruder 2018, https://arxiv.org/abs/1801.06146, section 3.2, fine-tune the layers of a model in this way.

    The shared learning rate does not change, so callbacks and schedules set it as usual. A decay inside this wrapper
    that is multiplied by the rate is multiplied by the factor too. A decay around this wrapper is not, and neither is
    the `weight_decay` of a native base class. Scalars that a rule shares between variables, such as those of
    ScheduleFreeAdamW, use the shared rate.

    | stock                                     | options                                                          |
    |-------------------------------------------|------------------------------------------------------------------|
    | lr_multipliers of keras-adamw             | factors, its names with re.escape: they match anywhere           |
    | keras-lr-multiplier                       | factors, its names with "^" in front: they are prefixes          |
    | Caffe's lr_mult, groups of PyTorch        | factors: each rate divided by the shared one                     |

    Sparse gradients are handled as in `inner`.

    Advice:
        Use it to fine-tune: Howard & Ruder divide the rate by 2.6 for each layer further from the output. Use partition
        if variables need another algorithm, or a rate that callbacks can set separately.

    Args:
        inner: The definition that updates.
        factors: {rule: factor}, or ((rule, factor), ...); the first rule that matches counts. A rule is a regular
            expression that matches anywhere in the variable's name, "collection:NAME" of a TF 1 graph, or a function of
            its record. A rule that matches no variable in the first step is an error, unless it is a function. A config
            holds no functions.
        otherwise: The factor of all other variables. Default 1.

    >>> import numpy, everstep
    >>> kernel, bias = numpy.zeros((1, 2)), numpy.zeros(2)
    >>> factors = {lambda variable: len(variable.shape) == 1: 0.5}
    >>> optimizer = everstep.learning_rate_multipliers(everstep.optimizers.SGD(1.0), factors).bind(numpy)
    >>> optimizer.apply_gradients([(-numpy.ones((1, 2)), kernel), (-numpy.ones(2), bias)])
    >>> print(kernel, bias, optimizer.learning_rate)
    [[1. 1.]] [0.5 0.5] 1.0
    """

    prefix = "multipliers"
    forwarded_verbs = frozenset(["measure", "collect", "fast_forward"])
    factors = Factors()
    otherwise = option(1.0, minimum=0)

    def _check(self):
        if not any(name.split("/")[-1] == "learning_rate" for name in flat(self.inner, "hyper")):
            raise DefinitionError("{} has no learning rate to multiply".format(self.inner._short()))
        super(LearningRateMultipliers, self)._check()

    def measure(self, ops, grad, var, slots, hyper):
        return super(LearningRateMultipliers, self).measure(ops, grad, var, slots, self._scaled(hyper))

    def collect(self, ops, grad, slots, hyper):
        return super(LearningRateMultipliers, self).collect(ops, grad, slots, self._scaled(hyper))

    def update(self, ops, grad, var, slots, hyper, t):
        return super(LearningRateMultipliers, self).update(ops, grad, var, slots, self._scaled(hyper), t)

    def fast_forward(self, ops, var, slots, hyper, steps):
        return super(LearningRateMultipliers, self).fast_forward(ops, var, slots, self._scaled(hyper), steps)

    def _scaled(self, hyper):
        return hyper if self.otherwise == 1 else hyper.scaled("learning_rate", self.otherwise)


def learning_rate_multipliers(definition, factors, otherwise=1.0):
    """Multiplies the learning rate of some variables: `LearningRateMultipliers(definition, factors, otherwise)`.

    Args:
        definition: The definition that updates.
        factors, otherwise: See `everstep.optimizers.LearningRateMultipliers`.

    Returns:
        An `everstep.optimizers.LearningRateMultipliers`.

    Raises:
        DefinitionError: The definition has no learning rate, or there is no factor other than `otherwise`=1.
        HyperTypeError, HyperValueError: An argument is of the wrong type or outside its range.
    """
    if isinstance(factors, (dict, list, tuple)) and not factors and otherwise == 1:
        raise DefinitionError(
            "learning_rate_multipliers got no factors, so it would change nothing: give {rule: factor}, or otherwise="
        )
    return LearningRateMultipliers(definition, factors, otherwise)
