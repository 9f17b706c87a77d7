"""Learning rates of their own for some variables."""
from __future__ import absolute_import, division, print_function

from everstep.errors import DefinitionError
from everstep.optimizers.contract import ByName, Factors, Wrapper, flat, option


class LearningRateMultipliers(ByName, Wrapper):
    """Multiplies the learning rate that `inner` sees by a factor of the variable: `everstep.learning_rate_multipliers`.

    The rate itself is shared and stays what it is, for callbacks and schedules to set. A decay inside that is times the
    rate is multiplied too, one around this is not, and neither is the `weight_decay` of a native base class. What a
    rule keeps for all variables together (the scalars of ScheduleFreeAdamW) goes by the shared rate.

    | stock                                     | options                                                          |
    |-------------------------------------------|------------------------------------------------------------------|
    | lr_multipliers of keras-adamw             | factors, with re.escape: its names are found, not matched        |
    | keras-lr-multiplier                       | factors, with "^" before: its names are prefixes                 |
    | Caffe's lr_mult, groups of PyTorch        | factors, of the rates in proportion to the shared one            |

    Sparse gradients mean what they mean to `inner`.

    Args:
        inner: the definition that updates.
        factors: {rule: factor}, or ((rule, factor), ...); the first that holds counts. A rule is a regular expression
            that is found in a variable's name, "collection:NAME" of a TF 1 graph, or a function of its record. One that
            chooses no variable of the first step is an error; a function may choose none, and a config holds no
            functions.
        otherwise: the factor of all other variables; 1.

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
        return super(LearningRateMultipliers, self).measure(ops, grad, var, slots, self._own(hyper))

    def collect(self, ops, grad, slots, hyper):
        return super(LearningRateMultipliers, self).collect(ops, grad, slots, self._own(hyper))

    def update(self, ops, grad, var, slots, hyper, t):
        return super(LearningRateMultipliers, self).update(ops, grad, var, slots, self._own(hyper), t)

    def fast_forward(self, ops, var, slots, hyper, steps):
        return super(LearningRateMultipliers, self).fast_forward(ops, var, slots, self._own(hyper), steps)

    def _own(self, hyper):
        return hyper if self.otherwise == 1 else hyper.scaled("learning_rate", self.otherwise)


def learning_rate_multipliers(definition, factors, otherwise=1.0):
    """`LearningRateMultipliers(definition, factors, otherwise)`: `{pattern: factor}` of the learning rate."""
    return LearningRateMultipliers(definition, factors, otherwise)
