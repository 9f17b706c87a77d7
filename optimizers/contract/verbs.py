"""Finds the verbs that a definition overrides."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract.composite import Composite, Wrapper
from everstep.optimizers.contract.configured import once
from everstep.optimizers.contract.definition import Definition
from everstep.optimizers.contract.trees import tree, walk


def defines(definition, verb):
    """Returns whether a definition or one inside it overrides a verb, other than to pass it on (`forwarded_verbs`)."""
    return once(definition, verb, lambda: _defines(definition, verb))


def _defines(definition, verb):
    return any(overrides(node.definition, verb) for node in walk(tree(definition), active=True))


def overrides(definition, verb):
    """Returns whether a definition itself overrides a verb, other than to pass it on (`forwarded_verbs`)."""
    provider = next(base for base in type(definition).__mro__ if verb in vars(base))
    return provider not in (Definition, Composite, Wrapper) and verb not in getattr(definition, "forwarded_verbs", ())


def measures_only_on_update(definition):
    """Returns whether only steps that update need what the definition measures."""
    if getattr(definition, "measures_on_update", False):
        return True
    children = definition.active().values()
    return not overrides(definition, "measure") and all(measures_only_on_update(child) for child in children)
