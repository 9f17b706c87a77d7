"""Weight decay beside the update, for any definition."""
from __future__ import absolute_import, division, print_function

from everstep.errors import DefinitionError
from everstep.optimizers.contract.by_name import ByName, Factors, rules_of
from everstep.optimizers.contract.closed_forms import decayed, geometric
from everstep.optimizers.contract.composite import Wrapper
from everstep.optimizers.contract.declarations import hyper, option
from everstep.optimizers.contract.definition import assign
from everstep.optimizers.contract.verbs import defines


class DecoupledWeightDecay(ByName, Wrapper):
    """Takes a share off the variable, then `inner` updates what is left: `everstep.decoupled_weight_decay`.

    As in Loshchilov & Hutter 2019, arXiv:1711.05101, algorithms 1 and 2.

    var := var - scale * (weight_decay * var + l1 * sign(var)), then inner's update of that var, where
    scale = factor * learning_rate / base_rate; with times_rate=False factor

    and factor is the variable's own: of the first of `factors` that holds, or `otherwise`.

    With base_rate=1 the decay is times the rate; with the rate that a schedule starts from, it follows the schedule
    without being times the rate: the eta_t of the paper. A schedule of its own: weight_decay=everstep.CosineDecay(...).
    The rate is that of the innermost rule; put `learning_rate_multipliers` around this to have them count here too.

    | stock                                     | options                                                          |
    |-------------------------------------------|------------------------------------------------------------------|
    | weight_decay of new-style Keras, Keras 3  | the defaults; exclude_from_weight_decay is exclude               |
    | contrib's and addons' extend_with_...     | times_rate=False; decay_var_list: include, by a function; of a   |
    |                                           | sparse gradient addons decay the rows present: sparse="rows"     |
    | AdamWeightDecayOptimizer of BERT          | 0.01, exclude=["LayerNorm", "layer_norm", "bias"]                |
    | keras-adamw, with cosine annealing        | {name: l2 * sqrt(batch_size / total_iterations)}, beside=True,   |
    |                                           | base_rate=the rate without annealing; else times_rate=False.     |
    |                                           | For l1 another around it, with weight_decay=0                    |

    Of a sparse gradient: "exact" decays all rows at each step; "rows" those present; with "catch_up" a row first takes
    the decay that it missed, l1 within one step of 0. A variable without a gradient does not decay.

    Args:
        inner: the definition that updates.
        weight_decay: the share; float, tensor, callable or schedule; 0.004.
        times_rate: whether the decay goes with the learning rate of `inner`; True.
        base_rate: what that rate is divided by; 1.
        l1: what is drawn to 0 by a constant amount; 0.
        factors: ((rule, factor), ...), of which the first that holds counts. A rule is a regular expression that is
            found in a variable's name, "collection:NAME" or a function of its record. One that chooses no variable of
            the first step is an error, unless its factor is 0. A config holds no functions.
        otherwise: the factor of all other variables; 1.
        beside: whether `inner` sees the variable as it was before the decay; False.

    >>> import numpy, everstep
    >>> weights = numpy.ones(1)
    >>> definition = everstep.decoupled_weight_decay(everstep.optimizers.SGD(0.5), 0.25)
    >>> definition.bind(numpy).apply_gradients([(numpy.ones(1), weights)])
    >>> weights  # 1 - 0.5 * 0.25 - 0.5
    array([0.375])
    """

    prefix = "decoupled"
    weight_decay = hyper(0.004, minimum=0)
    times_rate = option(True)
    base_rate = option(1.0, minimum=1e-30)
    l1 = option(0.0, minimum=0)
    factors = Factors()
    otherwise = option(1.0, minimum=0)
    beside = option(False)
    max_replay_steps = 200  # type: ignore[assignment]

    def _check(self):
        if not self.times_rate and self.base_rate != 1:
            raise DefinitionError("base_rate is what the learning rate is divided by; it needs times_rate=True")
        if self.times_rate and "learning_rate" not in self.base.declarations:
            raise DefinitionError(
                "{} has no one learning rate that a decay could be times: put decoupled_weight_decay inside of it, or "
                "give times_rate=False".format(self.inner._short())
            )
        if self.beside and defines(self.inner, "evaluation_value"):
            raise DefinitionError(
                "{} averages what the variable becomes, and with beside=True would not see the decay; put it around "
                "decoupled_weight_decay".format(self.inner._short())
            )
        super(DecoupledWeightDecay, self)._check()

    @property
    def zero_grad_is_noop(self):  # type: ignore[override]
        return self.inner.zero_grad_is_noop and not self.otherwise and not self.factors  # else all rows shrink

    def must_hold(self, factor):
        return factor != 0  # what people leave out they list for all their models

    def update(self, ops, grad, var, slots, hyper, t):
        if not self.otherwise:
            return super(DecoupledWeightDecay, self).update(ops, grad, var, slots, hyper, t)
        taken = self.scale(hyper) * hyper.weight_decay * var
        if self.l1:
            taken = taken + self.scale(hyper) * self.l1 * ops.sign(var)
        seen = var if self.beside else var - taken
        change, new = super(DecoupledWeightDecay, self).update(ops, grad, seen, slots, hyper, t)
        if not isinstance(change, assign):
            return change + taken, new
        return assign(change.value - taken) if self.beside else change, new

    def fast_forward(self, ops, var, slots, hyper, steps):
        change, new = super(DecoupledWeightDecay, self).fast_forward(ops, var, slots, hyper, steps)
        share = self.scale(hyper) * hyper.weight_decay
        taken = decayed(ops, share, steps) * var
        if self.l1:  # until it is 0
            drawn = self.scale(hyper) * self.l1 * geometric(ops, 1 - share, steps)
            taken = var - ops.sign(var) * ops.maximum(ops.abs(var - taken) - drawn, 0)
        return change + taken, new

    def scale(self, hyper):
        if not self.times_rate:
            return self.otherwise
        inside, found = self.inner, hyper.inner
        while isinstance(inside, Wrapper):
            inside, found = inside.inner, found.inner
        return found.learning_rate * (self.otherwise / self.base_rate)


def decoupled_weight_decay(
    definition, weight_decay=0.004, times_rate=True, base_rate=1.0, l1=0.0, include=None, exclude=None, beside=False
):
    """AdamW's decay for any definition. See `everstep.optimizers.DecoupledWeightDecay`.

    Args:
        definition, times_rate, base_rate, l1, beside: as there.
        weight_decay: as there; or {rule: weight decay}, for the variables that its rules choose alone.
        include: the rule, or rules, of the variables that decay; all unless given.
        exclude: the rule, or rules, of variables that do not, whatever else holds for them.

    >>> import everstep
    >>> made = everstep.decoupled_weight_decay(everstep.optimizers.Adam(), 0.01, exclude=["bias", "norm"])
    >>> made.factors
    (('bias', 0.0), ('norm', 0.0))
    """
    pairs = [(rule, 0.0) for rule in rules_of(exclude)]
    by_rule = isinstance(weight_decay, (dict, list, tuple))
    if by_rule and include is not None:
        raise DefinitionError("weight_decay={...} says which variables decay; it goes without include")
    if by_rule:
        pairs.extend(DecoupledWeightDecay.factors.check("decoupled_weight_decay", weight_decay))
    pairs.extend((rule, 1.0) for rule in rules_of(include))
    decay, otherwise = 1.0 if by_rule else weight_decay, 0.0 if by_rule or include is not None else 1.0
    return DecoupledWeightDecay(definition, decay, times_rate, base_rate, l1, tuple(pairs), otherwise, beside)
