"""Finds entries of the stock table by class, by name or by definition."""
from __future__ import absolute_import, division, print_function

import inspect
import sys

import numpy as np

from everstep.compat.stock.entry import Stock
from everstep.compat.stock.of_torch import REFUSED, TORCH, parts_of, split
from everstep.compat.stock.table import STOCK, UNSUPPORTED, UNSUPPORTED_MODULES, UNSUPPORTED_WITHOUT_API
from everstep.compat.stock.third_party import OTHERS, other_entry
from everstep.compat.targets.detect import TARGETS, find
from everstep.compat.targets.optax_transform import CLOSURE
from everstep.errors import ConfigError, UnsupportedError
from everstep.optimizers.contract.checks import TEXT
from everstep.optimizers.contract.declared import inspect_arguments
from everstep.optimizers.contract.trees import flat

# Whose classes are stock.
FRAMEWORKS = ("tensorflow", "tensorflow_core", "tensorflow_estimator", "keras", "tf_keras", "torch")


def entries_of(target):
    """Returns the entries of an API, in the table's order."""
    return [entry for entry in STOCK + TORCH if entry.target == target]


def target_named(api):
    """Returns the name of the target that a module, or the name itself, stands for.

    Raises:
        ConfigError: it stands for none that has stock optimizers.
    """
    target = str(api) if isinstance(api, TEXT) else find(api).target.name
    known = [each.name for each in TARGETS]
    if target not in known:
        raise ConfigError("api is a module, such as tf.keras, or one of {}; got {!r}".format(", ".join(known), api))
    return target


def entry_of_class(stock, target):
    """Returns the entry of a stock class of an API.

    Raises:
        UnsupportedError: the class has no entry; the message says why.
    """
    name = "{}.{}".format(stock.__module__, stock.__name__)
    if stock.__module__.split(".")[0] in FRAMEWORKS:
        modules = UNSUPPORTED_MODULES if target else dict(UNSUPPORTED_MODULES, **UNSUPPORTED_WITHOUT_API)
        reasons = [reason for part, reason in modules.items() if part in stock.__module__]
        reason = (REFUSED if target == "torch_optim" else UNSUPPORTED).get(
            stock.__name__, reasons[0] if reasons else None)
        if reason:
            raise UnsupportedError("everstep has no definition for {}: {}".format(name, reason))
        # In tf.train a subclass may compute something else than its base, so only its own name counts. In Keras,
        # `.legacy` has classes of the same names.
        for base in [stock] if target == "tf_train" else stock.__mro__:
            for entry in entries_of(target):
                if entry.native == base.__name__:
                    check_needed(entry, inspect_arguments(base.__init__) if entry.needed else ())
                    return entry
    if target == "optimizer_v2" and other_entry(stock):
        return other_entry(stock)
    known = ", ".join(sorted(entry.native for entry in entries_of(target)))
    if not known:
        raise UnsupportedError(CLOSURE.format(name))
    raise UnsupportedError(
        "{} is not one of the stock optimizers that everstep knows for {}: {}".format(name, target, known)
    )


def check_needed(entry, names):
    """Raises UnsupportedError if arguments are those of an older class, which computes something else."""
    for theirs, why in entry.needed.items():
        if theirs not in names:
            raise UnsupportedError(
                "everstep has no definition for {} without {}: {}".format(entry.native, theirs, why)
            )


def entry_named(api, name):
    """Returns the entry of an API, see `target_named`, for a class name in any case.

    Raises:
        UnsupportedError: there is none.
    """
    target = target_named(api)
    entries = [entry for entry in entries_of(target) if entry.native.lower() == name.lower()]
    if not entries:
        why = ": " + UNSUPPORTED[name] if name in UNSUPPORTED else ""
        raise UnsupportedError("everstep knows no stock optimizer {} of {}{}".format(name, target, why))
    return entries[0]


def installed_defaults(entry, module):
    """Returns `{stock argument: default}` of an entry's class in a module, as far as its constructor tells them.

    The table has those of most versions. Keras's epsilon was 1e-8 before 2.1.3, and later is what its backend says.
    """
    stock = entry.class_in(module)
    if getattr(stock, "__module__", "").split(".")[0] not in FRAMEWORKS:
        return {}
    _, defaults = constructor_of(stock)
    if "lr" in defaults and "lr" not in entry.names:  # before Keras 2.3
        defaults["learning_rate"] = defaults.pop("lr")
    if entry.target == "get_updates" and defaults.get("epsilon") is None:  # Keras 2.3 takes it from **kwargs
        defaults["epsilon"] = sys.modules[stock.__module__].K.epsilon()
    return {theirs: value for theirs, value in defaults.items() if theirs in entry.names and value is not None}


def constructor_of(stock):
    """Returns (the names of a constructor's positional parameters, `{name: default}` of those that have one)."""
    of = "getfullargspec" if hasattr(inspect, "getfullargspec") else "getargspec"  # of Python 2.7
    listed = getattr(inspect, of)(stock.__init__)
    names, defaults = listed.args[1:], listed.defaults or ()
    given = dict(zip(names[len(names) - len(defaults):], defaults))
    given.update(getattr(listed, "kwonlydefaults", None) or {})
    return [part for name in names for part in parts_of(name, given.get(name))], split(given)


def entries_for(target, definition):
    """Returns the entries of an API with a definition's class and all the slots that the definition uses."""
    rule = definition.base
    used = set(flat(rule, "slot"))
    others = list(OTHERS.values()) if target == "optimizer_v2" else []
    return [entry for entry in entries_of(target) + others
            if entry.definition is type(rule) and used <= {slot.name for slot in entry.slots}]


def entry_for(target, definition):
    """Returns the entry of the API's stock optimizer that stores what a definition stores.

    That is the first one with the definition's class and all the slots that the definition uses; for a definition that
    was ported from this API, its original.

    Raises:
        UnsupportedError: the API has no such optimizer.
    """
    entries = entries_for(target, definition)
    if entries:
        return entries[0]
    stored_as = getattr(definition.base, "stored_as", (None,))  # everstep.port writes it down
    if stored_as[0] == target:
        rule = type(definition.base)
        return Stock(target, rule.__name__, rule, {}, slots=stored_as[1], counters=stored_as[2])
    raise UnsupportedError(
        "{} has no stock optimizer with the slots of {}".format(target or "no API", definition.base._short())
    )


def slots_of_stock(target, definition):
    """Returns {slot in files of the API's stock optimizer: slot} of a definition; {} if there is no such optimizer."""
    try:
        return entry_for(target, definition).slot_names
    except UnsupportedError:
        return {}


def short(value):
    """Returns a number without the digits that a conversion through float32 added; other values unchanged."""
    if isinstance(value, (np.ndarray, np.generic)) and np.ndim(value) == 0:
        value = value.item()
    if isinstance(value, float) and not isinstance(value, bool) and float(np.float32(value)) == value:
        return float(str(np.float32(value)))
    return value
