"""A rule without its weight decay, for variables that a native base class excludes."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract.by_name import ByName
from everstep.optimizers.contract.composite import Wrapper
from everstep.optimizers.contract.trees import flat


class Undecayed(Wrapper):
    """Shows `inner` a `weight_decay` of 0, at all levels. Its slots and hypers are those of `inner`.

    Args:
        inner: The definition that updates.
    """

    prefix = ""
    forwarded_verbs = frozenset(["measure", "collect", "fast_forward"])

    def measure(self, ops, grad, var, slots, hyper):
        return super(Undecayed, self).measure(ops, grad, var, slots, _without_decay(hyper))

    def collect(self, ops, grad, slots, hyper):
        return super(Undecayed, self).collect(ops, grad, slots, _without_decay(hyper))

    def update(self, ops, grad, var, slots, hyper, t):
        return super(Undecayed, self).update(ops, grad, var, slots, _without_decay(hyper), t)

    def fast_forward(self, ops, var, slots, hyper, steps):
        return super(Undecayed, self).fast_forward(ops, var, slots, _without_decay(hyper), steps)


def undecayed(definition):
    """Returns the definition without its own weight decay; itself if it has none."""
    decays = any(name.split("/")[-1] == "weight_decay" for name in flat(definition, "hyper"))
    return Undecayed(_without_l1(definition)) if decays else definition


def _without_l1(definition):
    """Returns the definition without the L1 decay of `decoupled_weight_decay`, which its `exclude` excludes too."""
    if isinstance(definition, ByName) and "l1" in definition.declarations:  # type: ignore[attr-defined]
        definition = definition.replace(factors=(), otherwise=0.0)  # type: ignore[attr-defined]
    changed = {name: _without_l1(inside) for name, inside in definition.children().items()}
    changed = {name: inside for name, inside in changed.items() if inside is not definition.children()[name]}
    return definition.replace(**changed) if changed else definition


def _without_decay(hyper):
    return hyper.scaled("weight_decay", 0)
