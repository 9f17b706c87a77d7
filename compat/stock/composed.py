"""Optimizers of other packages that are a definition in a wrapper, with their arguments: for `everstep.get`."""
from __future__ import absolute_import, division, print_function

from everstep.compat.stock.third_party import with_decay
from everstep.optimizers.adam import Adam


def adam_weight_decay(
    learning_rate=0.001, beta_1=0.9, beta_2=0.999, epsilon=1e-7, amsgrad=False, weight_decay_rate=0.0,
    include_in_weight_decay=None, exclude_from_weight_decay=None, **options
):
    """Returns what AdamWeightDecay of Transformers computes: `decoupled_weight_decay` around `Adam`.

    `**options` are those of Adam.
    """
    rule = Adam(learning_rate, beta_1, beta_2, epsilon, amsgrad, **options)
    return with_decay(rule, weight_decay_rate, include_in_weight_decay, exclude_from_weight_decay)


def adam_weight_decay_optimizer(
    learning_rate, weight_decay_rate=0.0, beta_1=0.9, beta_2=0.999, epsilon=1e-6, exclude_from_weight_decay=None,
    **options
):
    """Returns what AdamWeightDecayOptimizer of BERT computes: `decoupled_weight_decay` around Adam without correction.

    `**options` are those of Adam.
    """
    rule = Adam(learning_rate, beta_1, beta_2, epsilon, bias_correction=False, **options)
    return with_decay(rule, weight_decay_rate, None, exclude_from_weight_decay)


# {class name: function}
COMPOSED = {"AdamWeightDecay": adam_weight_decay, "AdamWeightDecayOptimizer": adam_weight_decay_optimizer}
