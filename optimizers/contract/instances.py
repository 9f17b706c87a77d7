"""Tells definitions from what people give instead of one: its class, an optimizer, a name; and says what to write."""
from __future__ import absolute_import, division, print_function

import functools

from everstep.errors import DefinitionError
from everstep.optimizers.contract.checks import TEXT, is_tensor

# Members of native optimizers. Whoever asks a definition for one of them forgot `.bind`.
NATIVE = frozenset(
    "minimize compute_gradients apply_gradients get_updates get_gradients get_slot get_slot_names get_weights "
    "set_weights weights variables iterations lr apply stateless_apply update_step build init".split()
)
_OPTIMIZERS_HAVE_ONE = ("apply_gradients", "get_updates", "update_step")


def is_a(kind, value):
    """Returns whether a value is a definition or schedule, without an import of those: their metaclass marks them."""
    return hasattr(type(value), "declared_order") and getattr(type(value), "kind", None) == kind


def instead_of(value):
    """Returns what to write instead of a value that is no definition."""
    if isinstance(value, type):
        if hasattr(value, "declared_order"):
            return "it is the class: write {}()".format(value.__name__)
        if _is_optimizer(value):
            return "it is the class of an optimizer: everstep.from_native({}(...)) makes a definition".format(
                value.__name__)
    if is_a("definition", getattr(value, "definition", None)):
        return (
            "it is bound already: wrap, then bind, as in everstep.accumulate(definition, 4).bind(module); "
            "everstep.from_native(optimizer) makes a definition of it"
        )
    if _is_optimizer(value):
        return "it is an optimizer of a framework: everstep.from_native(optimizer) makes a definition of it"
    if isinstance(value, TEXT):
        return "everstep.get({!r}) makes the definition of that name".format(value)
    return "give one such as everstep.optimizers.Adam()"


def that_is_fixed(value):
    """Returns what to do about an option that is an array: "" for anything else."""
    return "; it is fixed: with optax.inject_hyperparams, name it in static_args" if is_tensor(value) else ""


def _is_optimizer(value):
    return any(hasattr(value, name) for name in _OPTIMIZERS_HAVE_ONE)


class InstanceMethod(object):
    """Decorates a method that people call on the class by mistake: `Adam.bind(tf.keras)`."""

    def __init__(self, function):
        self.__func__ = function
        self.__doc__ = function.__doc__

    def __get__(self, instance, owner):
        if instance is not None:
            return self.__func__.__get__(instance, owner)

        @functools.wraps(self.__func__)
        def on_class(*args, **kwargs):
            if args and isinstance(args[0], owner):
                return self.__func__(*args, **kwargs)
            raise DefinitionError(
                "{0}.{1}: {0} is the class; write {0}().{1}(...)".format(owner.__name__, self.__func__.__name__)
            )

        return on_class
