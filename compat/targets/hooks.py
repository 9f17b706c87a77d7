"""Hooks: methods of a native API that its base class calls, one by one, and that a user's class may replace."""
from __future__ import absolute_import, division, print_function

from everstep.compat.engine.by_hooks import Hooks


def replaced(native, names):
    """Returns those of the hooks that the optimizer itself, a subclass of its class or a mixin replaces, in order."""
    found = set(vars(native))
    for each in type(native).__mro__:
        if "native_base" in vars(each):  # the class that everstep made; below it nobody replaces a hook of ours
            break
        found.update(vars(each))
    return [name for name in names if name in found]


def through(native, names, update, finish=None):
    """Returns the `Hooks` by which a step runs; None if none of them is replaced."""
    found = replaced(native, names)
    return Hooks(found, update, finish) if found else None


def slots_missing(owner, what):
    """Returns the message for a class that makes no slots. what: those that are missing, in words."""
    return "{} has no {}. A subclass that replaces _create_slots or build must call super's first".format(owner, what)


def why_other_slots_stay(adapter):
    """Returns why a State would lack slots that the user's class adds; None if there are none."""
    names = sorted(set(name for variable in adapter.trained() for name in adapter.other_slots(variable)))
    return why_own_stay("slots of its own ({})".format(", ".join(names))) if names else None


def why_own_stay(what):
    """Returns why a State lacks what the user's class adds. what: that, in words."""
    return "its class adds {}, which a state cannot hold; save them with the API's own files".format(what)
