"""Finds which verbs a definition, or one inside it, defines itself."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract.composite import Composite, Wrapper
from everstep.optimizers.contract.configured import once
from everstep.optimizers.contract.definition import Definition
from everstep.optimizers.contract.trees import tree, walk


def defines(definition, verb):
    """Whether a definition, or one inside it, brings its own version of a verb, beyond passing it on."""
    return once(definition, verb, lambda: _defines(definition, verb))


def _defines(definition, verb):
    return any(_brings(node.definition, verb) for node in walk(tree(definition), active=True))


def _brings(definition, verb):
    provider = next(base for base in type(definition).__mro__ if verb in vars(base))
    return provider not in (Definition, Composite, Wrapper) and verb not in getattr(definition, "forwarded_verbs", ())


def measures_only_on_update(definition):
    """Whether all that a definition measures is asked for at its updates alone."""
    if getattr(definition, "measures_on_update", False):
        return True
    inside = definition.active().values()
    return not _brings(definition, "measure") and all(measures_only_on_update(each) for each in inside)
