"""Decoupled weight decay for any definition."""
from __future__ import absolute_import, division, print_function

import warnings

from everstep.errors import DefinitionError
from everstep.optimizers.contract.by_name import ByName, Factors, holds, rules_of
from everstep.optimizers.contract.checks import TEXT
from everstep.optimizers.contract.composite import Wrapper
from everstep.optimizers.contract.declarations import hyper, option
from everstep.optimizers.contract.definition import assign
from everstep.optimizers.contract.verbs import defines


class DecoupledWeightDecay(ByName, Wrapper):
    """Subtracts a share of the variable, then lets `inner` update the rest: `everstep.decoupled_weight_decay`.

    Loshchilov & Hutter 2019, https://arxiv.org/abs/1711.05101, algorithms 1 and 2.

    var := var - scale * (weight_decay * var + l1 * sign(var)), then the update of `inner` from that var, where
    scale = factor * learning_rate / base_rate
    Without times_rate: scale = factor

    factor is that of the first rule in `factors` that matches the variable, or `otherwise`.

    base_rate=1 multiplies the decay by the learning rate. Set base_rate to the schedule's first rate to keep only the
    schedule's shape: the eta_t of the paper. For another schedule, give weight_decay one, such as
    everstep.CosineDecay(...). The learning rate is that of the innermost rule. To apply `learning_rate_multipliers` to
    the decay too, put them around this wrapper.

    | stock                                     | options                                                          |
    |-------------------------------------------|------------------------------------------------------------------|
    | weight_decay of new-style Keras, Keras 3  | the defaults; exclude_from_weight_decay is exclude               |
    | extend_with_decoupled_weight_decay of     | times_rate=False; decay_var_list is include, with a function;    |
    | tf.contrib.opt, TensorFlow Addons         | sparse="rows" for Addons, which decay only the rows present      |
    | AdamWeightDecayOptimizer of BERT          | weight_decay=0.01, exclude=["LayerNorm", "layer_norm", "bias"],  |
    |                                           | around Adam(epsilon=1e-6, bias_correction=False)                 |
    | AdamWeightDecay of Transformers           | the same exclude in its create_optimizer, around Adam            |
    | keras-adamw                               | weight_decay={name: l2 * sqrt(1 / total_iterations)}, before     |
    |                                           | 1.36 l2 * sqrt(batch_size / total_iterations); beside=True,      |
    |                                           | times_rate=False; with cosine annealing instead base_rate=the    |
    |                                           | rate without annealing. For its l1, wrap once more with          |
    |                                           | weight_decay=0                                                   |

    For a sparse gradient, "exact" decays all rows at each step and "rows" only those present. With "catch_up", a row
    first takes the decay that it missed, for l1 to within one step around 0. A variable without a gradient does not
    decay.

    Advice:
        Exclude biases and normalization, as BERT does: give `everstep.decoupled_weight_decay` the argument
        exclude=["LayerNorm", "layer_norm", "bias"]. Do not add another decay: no L2 penalty in the loss, no
        weight_decay= of the base class, no AdamW inside. With times_rate=False, give weight_decay the same schedule as
        the learning rate.

    Args:
        inner: The definition that updates.
        weight_decay: The share to subtract: a float, tensor, callable or schedule. Default 0.004.
        times_rate: True to multiply the decay by the learning rate of `inner`. Default True.
        base_rate: The learning rate is divided by it. Default 1.
        l1: The constant amount by which elements move towards 0. Default 0.
        factors: ((rule, factor), ...); the first rule that matches counts. A rule is a regular expression that matches
            anywhere in the variable's name, "collection:NAME", or a function of its record. A rule that matches no
            variable in the first step is an error, unless it is a function or its factor is 0; if none of those of 0
            matches, a warning says so. A config holds no functions. Default ().
        otherwise: The factor of all other variables. Default 1.
        beside: True to show `inner` the variable as it was before the decay. Default False.

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

    def _check(self):
        if not self.times_rate and self.base_rate != 1:
            raise DefinitionError("base_rate divides the learning rate, so it needs times_rate=True")
        if self.times_rate and "learning_rate" not in self.base.declarations:
            raise DefinitionError(
                "{} has no single learning rate to multiply the decay by: put decoupled_weight_decay inside of it, or "
                "give times_rate=False".format(self.inner._short())
            )
        if self.beside and defines(self.inner, "evaluation_value"):
            raise DefinitionError(
                "{} averages updated values, which with beside=True would not include the decay; put it around "
                "decoupled_weight_decay".format(self.inner._short())
            )
        super(DecoupledWeightDecay, self)._check()

    @property
    def zero_grad_is_noop(self):  # type: ignore[override]
        return self.inner.zero_grad_is_noop and not self.otherwise and not self.factors  # decay moves all rows

    def must_hold(self, factor):
        return factor != 0  # one list of exclusions serves many models

    def check_variables(self, records):
        super(DecoupledWeightDecay, self).check_variables(records)
        exclusions = [rule for rule, factor in self.factors if not factor]
        unchecked = [rule for rule in exclusions if not isinstance(rule, TEXT)]
        if exclusions and not unchecked and not any(holds(rule, each) for rule in exclusions for each in records):
            warnings.warn(
                "none of the exclusions {} of DecoupledWeightDecay chooses a variable; there are: {}".format(
                    ", ".join(map(repr, exclusions)), ", ".join(record.name for record in records)
                ),
                stacklevel=2,
            )

    def update(self, ops, grad, var, slots, hyper, t):
        if not self.otherwise:
            return super(DecoupledWeightDecay, self).update(ops, grad, var, slots, hyper, t)
        decay = self.scale(hyper) * hyper.weight_decay * var
        if self.l1:
            decay = decay + self.scale(hyper) * self.l1 * ops.sign(var)
        shown = var if self.beside else var - decay
        change, new = super(DecoupledWeightDecay, self).update(ops, grad, shown, slots, hyper, t)
        if not isinstance(change, assign):
            return change + decay, new
        return assign(change.value - decay) if self.beside else change, new

    @property
    def max_replay_steps(self):  # type: ignore[override]
        has_form = not self.l1 and not self.beside
        return self.inner.max_replay_steps if has_form else max(200, self.inner.max_replay_steps)

    def fast_forward(self, ops, var, slots, hyper, steps):
        if not self.otherwise:
            return super(DecoupledWeightDecay, self).fast_forward(ops, var, slots, hyper, steps)
        share = self.scale(hyper) * hyper.weight_decay
        decay, decayed = steps.decay(share) * var, steps.decayed(share)
        if self.l1:  # it stops at 0 and does not change the sign
            l1_decay = decayed.sum(self.scale(hyper) * self.l1)
            decay = var - ops.sign(var) * ops.maximum(ops.abs(var - decay) - l1_decay, 0)
        change, new = super(DecoupledWeightDecay, self).fast_forward(ops, var - decay, slots, hyper, decayed)
        return (change if isinstance(change, assign) else change + decay), new

    def scale(self, hyper):
        if not self.times_rate:
            return self.otherwise
        rule, rule_hyper = self.inner, hyper.inner
        while isinstance(rule, Wrapper):
            rule, rule_hyper = rule.inner, rule_hyper.inner
        return rule_hyper.learning_rate * (self.otherwise / self.base_rate)


def decoupled_weight_decay(
    definition, weight_decay=0.004, times_rate=True, base_rate=1.0, l1=0.0, include=None, exclude=None, beside=False
):
    """Adds AdamW's weight decay to any definition. See `everstep.optimizers.DecoupledWeightDecay`.

    Args:
        definition: The definition that updates.
        weight_decay: The share to subtract. Default 0.004. Or {rule: weight decay}, which decays only the variables
            that its rules match.
        times_rate, base_rate, l1, beside: See the class.
        include: The rule, or a list of rules, of the variables that decay. Default None: all.
        exclude: The rule, or a list of rules, of the variables that do not decay, not by l1 either. It overrides the
            others.

    Returns:
        An `everstep.optimizers.DecoupledWeightDecay`.

    Raises:
        DefinitionError: Arguments exclude each other or let no variable decay, or the definition has no single
            learning rate.
        HyperTypeError, HyperValueError: An argument is of the wrong type or outside its range.

    >>> import everstep
    >>> rule = everstep.decoupled_weight_decay(everstep.optimizers.Adam(), 0.01, exclude=["bias", "norm"])
    >>> rule.factors
    (('bias', 0.0), ('norm', 0.0))
    """
    pairs = [(rule, 0.0) for rule in rules_of(exclude)]
    by_rule = isinstance(weight_decay, (dict, list, tuple))
    if by_rule and include is not None:
        raise DefinitionError("weight_decay={...} already chooses the variables that decay; leave out include")
    if by_rule:
        pairs.extend(DecoupledWeightDecay.factors.check("decoupled_weight_decay", weight_decay))
    pairs.extend((rule, 1.0) for rule in rules_of(include))
    if by_rule and not weight_decay or include is not None and not rules_of(include):
        raise DefinitionError(
            "decoupled_weight_decay got no rule for the variables that decay, so it would change nothing: give one in "
            "{}, or a number alone as weight_decay".format("weight_decay" if by_rule else "include")
        )
    decay, otherwise = 1.0 if by_rule else weight_decay, 0.0 if by_rule or include is not None else 1.0
    return DecoupledWeightDecay(definition, decay, times_rate, base_rate, l1, tuple(pairs), otherwise, beside)
