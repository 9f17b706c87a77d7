"""Hypers as attributes of the native object (`optimizer.beta_1 = 0.8`), and the checks of what they are set to.

A hyper has four verbs. The adapter reads it (the variable that holds it), sets it, and gives its present value, the one
that a step uses. `bound.given(name)` is what the definition was given.
"""
from __future__ import absolute_import, division, print_function

import functools
import sys
from collections import OrderedDict

import numpy as np

from everstep.errors import DefinitionError, HyperTypeError, HyperValueError, UnsupportedMemberError
from everstep.optimizers.contract import Definition, Schedule, flat, is_tensor, tree, with_hypers
from everstep.optimizers.contract.checks import check_number
from everstep.optimizers.contract.composite import Composite

_RATE = ("learning_rate", "lr")
DECAY = "rate_decay/rate"
_OF_KERAS_2 = {"lr": "learning_rate", "decay": DECAY}  # {name: ours}


def check(bound, name, value):
    """Returns the float to set; raises HyperValueError if the hyper or the value does not allow it."""
    given = bound.given(name)
    if not isinstance(given, float) and not hasattr(given, "assign"):  # the user's variable is set
        kind = "a tensor" if is_tensor(given) else "a callable"
        kind = "a native schedule" if hasattr(given, "get_config") else kind
        kind = "an everstep schedule" if isinstance(given, Schedule) else kind
        raise HyperValueError(
            "{}.{} was given as {}, which decides its value at every step; it cannot be set. Bind a definition "
            "with a number to set it".format(bound.owner, name, kind)
        )
    owner, declaration = bound.hyper_declarations()[name]
    value = _number_of(value) if is_tensor(value) else value
    checked = declaration.check(type(owner).__name__, value)
    if not isinstance(checked, float):
        raise HyperValueError("{}.{} can be set to a number; got {!r}".format(bound.owner, name, value))
    if checked < 0 and declaration.name == "learning_rate" and not bound.adapter.ascends:
        raise HyperValueError("{}.{} must be at least 0, as of this API's own optimizers; got {!r}. To ascend, give "
                              "maximize=True".format(bound.owner, name, checked))
    if _decides(tree(bound.definition), name):
        definition_with(bound, name, checked)
    return checked


def _decides(node, name):
    """Returns whether a hyper may decide which slots there are, or is checked together with other arguments."""
    definition = node.definition
    if type(definition)._check != Definition._check:
        return True
    for declaration in definition.declarations.values():
        if declaration.kind == "slot" and (callable(declaration.when) or node.prefix + str(declaration.when) == name):
            return True
    return any(_decides(child, name) for child in node.children.values())


def definition_with(bound, name, value):
    """Returns the definition with another value of a hyper; raises HyperValueError if that needs more slots."""
    definition = with_hypers(bound.definition, {name: value})
    missing = set(flat(definition, "slot")) - set(flat(bound.definition, "slot"))
    if missing:
        raise HyperValueError(
            "{0}.{1} was given as {2!r}, without the slot {3}, so it cannot become {4!r}; bind a definition with "
            "another {1}".format(bound.owner, name, bound.given(name), ", ".join(sorted(missing)), value)
        )
    return definition


def called(bound, name, function):
    """Returns what a callable hyper gives; raises HyperTypeError unless it is a number or a scalar tensor."""
    try:
        value = function()
    except TypeError as error:
        if sys.exc_info()[2].tb_next is not None:  # raised inside of the function
            raise
        raise HyperTypeError(
            "{}.{} takes a callable without arguments; {!r} cannot be called so: {}".format(
                bound.owner, name, function, error
            )
        )
    what = "{}.{}, given by a callable,".format(bound.owner, name)
    if is_tensor(value):
        bound.hyper_declarations()[name][1].check_tensor(what, value)
    else:
        check_number(what, value)
    return value


def lazily(bound, name, value):
    """Returns a hyper's value for graphs: a callable is called, and checked, when the engine reads it."""
    return functools.partial(called, bound, name, value) if is_function(value) else value


def attribute_of(bound, name):
    """Returns an attribute that the native object itself does not have. Raises UnsupportedMemberError."""
    if name in bound.hyper_names:
        return bound.adapter.read(bound.hyper_names[name])
    for item in bound.adapter.unsupported:
        if item.what == name and issubclass(item.error, AttributeError):
            raise refusal(bound, name)
    if name in bound.options:
        return bound.options[name]
    member = bound.adapter.stock_members.get(name)
    if member is not None and (member.kind is None or member.needs in flat(bound.definition, member.kind)):
        return member.read(bound)
    why = _unclear(bound, name) or "{} has no attribute {!r}".format(bound.owner, name)
    raise UnsupportedMemberError(why)


def assign(bound, name, value):
    """Sets an attribute if it is a hyper. Returns False if it is one of the native object. Raises HyperValueError."""
    if name in bound.hyper_names:
        if not bound.started:
            return _give_way(bound, name)
        bound.adapter.set(bound.hyper_names[name], value)
        return True
    why = _unclear(bound, name)
    if why:
        raise HyperValueError(why)
    if name in bound.options and name not in vars(bound.native):  # such as `built`, which Keras 3 keeps there
        raise HyperValueError(
            "{0}.{1} is an option, fixed when it is bound; bind definition.replace({1}={2!r})".format(
                bound.owner, name, value
            )
        )
    if name == "iterations" and not hasattr(value, "assign_add"):
        raise HyperTypeError("iterations is the variable that counts updates; got {!r}".format(value))
    for item in bound.adapter.unsupported:
        if item.what == name and item.error is DefinitionError and not is_off(value):
            raise refusal(bound, name)
    return False


def _give_way(bound, name):
    """Decides who has a name that the native base class's constructor sets. Returns True if the hyper has it."""
    if name in bound.adapter.stock_hypers:
        return True
    if name in bound.aliases:
        bound.aliases.discard(name)
        del bound.hyper_names[name]
        return False
    raise taken(bound.owner, bound.adapter.target, name)


def taken(owner, target, name):
    """Returns the error for a hyper that has the name of something else in the native class."""
    return DefinitionError(
        "{0} cannot have a hyper {1!r} on {2}: optimizers there have a member of that name. Give the hyper another "
        "name, such as {0}_{1}".format(owner, name, target)
    )


def check_names(native_class, names):
    """Raises DefinitionError if a native class has a method or property of a hyper's name, unless it is stock's."""
    for name in names:
        if hasattr(native_class, name) and name not in native_class.adapter_class.stock_hypers:
            raise taken(native_class.__name__, native_class.adapter_class.target, name)


def refusal(bound, what, **details):
    """Returns the error for an item of the adapter's `unsupported`; `details` fill in its text."""
    item = next(item for item in bound.adapter.unsupported if item.what == what)
    return item.error(item.text.format(optimizer=bound.owner, target=bound.adapter.target, **details))


def rates_of_branches(bound):
    """Returns the flat names of the learning rates if each branch of the definition has its own; else nothing."""
    rates = [name for name in bound.hyper_declarations() if name.endswith("/learning_rate")]
    return rates if "learning_rate" not in bound.hyper_names else []


def decays_of(bound, rate):
    """Returns the flat names of the hypers of `rate_decay` that a learning rate, by its flat name, is decayed by."""
    names = bound.hyper_declarations()
    return [name for name in names if name.endswith(DECAY) and rate.startswith(name[: -len(DECAY)])]


def _unclear(bound, name):
    """Returns an error message if several parts of the definition have a hyper of this name; else None."""
    if isinstance(bound.definition, Composite):
        return many_rates(bound, name) or _several(bound, name)
    return None


def many_rates(bound, name):
    """Returns an error message if `name` is the learning rate but each branch of the definition has its own."""
    rates = [attribute(rate) for rate in rates_of_branches(bound)] if name in _RATE else ()
    if rates:
        return (
            "{} has several learning rates: {}. Set each of them. A callback can do it, too: LambdaCallback("
            "on_epoch_begin=lambda epoch, logs: setattr(optimizer, {!r}, 0.1))".format(
                bound.owner, ", ".join(rates), rates[0])
        )
    return None


def _several(bound, name):
    """Returns an error message if several wrappers have a hyper of this name, and nothing else is called so."""
    found = [attribute(hyper) for hyper in bound.hyper_declarations() if hyper.endswith("/" + name)]
    if len(found) < 2 or hasattr(type(bound.native), name) or vars(bound.native).get(name) is not None:
        return None
    return "{} has several hypers {!r}: set or read {}".format(bound.owner, name, " or ".join(found))


def is_function(value):
    """Returns True for a function that gives a hyper's value: some schedules and tensors can be called too."""
    return callable(value) and not isinstance(value, Schedule) and not is_tensor(value)


def _number_of(tensor):
    """Returns the number in an array or tensor; itself if it has none yet, or many."""
    try:
        array = np.asarray(tensor)
    except Exception:  # a traced tensor; each framework has its own error
        return tensor
    return array.item() if array.ndim == 0 else tensor


def is_off(value):
    """Returns True for a setting that stock takes as "none": None or the number 0."""
    return value is None or isinstance(value, (int, float)) and not value


def attribute(name):
    """Returns the attribute name and config key of a flat hyper name."""
    return name.replace("/", "_")


def options(definition):
    """Returns `{attribute: value}` of the options of a definition and its children."""
    declared = flat(definition, "option").items()
    return {attribute(name): owner._values[declaration.name] for name, (owner, declaration) in declared}


def attribute_names(bound):
    """Returns ({attribute: flat hyper name}, the set of aliases among them).

    Aliases are `lr` and `decay`, and the bare name of a wrapper's hyper where no other hyper and no member of the class
    has it.
    """
    declared = flat(bound.definition, "hyper")
    names = OrderedDict([(attribute(hyper), hyper) for hyper in declared])
    check_names(type(bound.native), names)
    for alias, hyper in _OF_KERAS_2.items():
        if hyper in declared:
            names[alias] = hyper
    bare = [hyper.rpartition("/")[2] for hyper in declared]
    aliases = set()
    for hyper, name in zip(declared, bare):
        is_stock = name in bound.adapter.stock_hypers
        free = bound.arguments.get(name) is None if is_stock else not hasattr(type(bound.native), name)
        if name not in names and bare.count(name) == 1 and name not in _RATE and free:
            names[name] = hyper
            aliases.add(name)
    return names, aliases
