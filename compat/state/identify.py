"""Finds the definition that a framework's file is of."""
from __future__ import absolute_import, division, print_function

import ast
import warnings

import numpy as np

from everstep.compat.state.native_file import saver_slots
from everstep.compat.stock.from_native import BESIDE, from_native, short
from everstep.compat.stock.lookup import entries_of
from everstep.compat.targets.base import Target
from everstep.compat.targets.construction import CONFIG_KEY
from everstep.errors import EverstepError, StateError
from everstep.optimizers.contract import REQUIRED, Definition


def definition_for(native, definition=None, optimizer=None, learning_rate=None):
    """(definition, whether everstep wrote the file or None where that is to be found out)"""
    if definition is not None and optimizer is not None:
        raise StateError("give a definition or the name of an optimizer, not both")
    ours = None if native.config is None and not native.class_name else CONFIG_KEY in (native.config or {})
    if definition is not None:
        if not isinstance(definition, Definition):
            raise StateError("definition is one of everstep's, such as Adam(); got {!r}".format(definition))
        return definition, ours
    if optimizer is not None:
        return _of_text(native, optimizer, learning_rate), False if ours is None and native.entries else ours
    if native.config is not None:
        try:
            return of_config(native), ours
        except EverstepError as error:
            raise type(error)("{}: {}. Give definition=".format(native.path, error))
    raise StateError(
        "{} does not say which optimizer it is of{}: give definition=, such as everstep.optimizers.Adam(...), or "
        "optimizer= (--optimizer), such as \"Adam(learning_rate=0.001)\"".format(native.path, likely(native))
    )


def of_config(native):
    """The definition of a file that has its optimizer's config."""
    if CONFIG_KEY in native.config:
        return Target.split_config(native.config)[0]
    return _of_stock(native.target, native.class_name, native.config)


def _of_stock(target, name, config):
    with warnings.catch_warnings():  # of what stock does that the definition does not: no affair of a file's
        warnings.filterwarnings("ignore", "stock ")
        return from_native({"class_name": name, "config": config}, target)


def _of_text(native, text, learning_rate):
    """The definition of `Adam` or `Adam(learning_rate=0.1)`, spelled as the file's API spells it."""
    try:
        parsed = ast.parse(str(text).strip(), mode="eval").body
        if isinstance(parsed, ast.Call) and parsed.args:
            raise ValueError
        called = parsed.func if isinstance(parsed, ast.Call) else parsed
        keywords = parsed.keywords if isinstance(parsed, ast.Call) else []
        name = called.id  # type: ignore[attr-defined]  # what has none is refused below
        arguments = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in keywords}
    except (AttributeError, SyntaxError, ValueError, TypeError):
        raise StateError('an optimizer is a name, or Name(argument=number, ...); got {!r}'.format(text))
    known = _entries_of(native)
    bare = name.lower().replace("optimizer", "")
    entry = next((entry for entry in known if entry.native.lower().replace("optimizer", "") == bare), None)
    if entry is None:
        raise StateError(
            "{} has no stock optimizer {}; known are {}. Of one of your own give the definition".format(
                native.target, name, ", ".join(sorted(set(entry.native for entry in known)))
            )
        )
    unknown = sorted(set(arguments) - set(entry.names) - set(BESIDE if entry.target != "tf_train" else ()))
    if unknown:
        raise StateError("{} has no argument {}; it has {}".format(
            entry.native, ", ".join(unknown), ", ".join(sorted(entry.names))))
    if learning_rate is not None:  # the rate in force, which a text need not say again
        arguments.setdefault("learning_rate", learning_rate)
    return definition_of(native, entry, arguments)


def definition_of(native, entry, arguments):
    """The definition of a stock optimizer: with these arguments, else as the file says, else its own defaults.

    Raises:
        StateError: an argument makes no sense, or none of them says one that has no default.
    """
    given = {name: number(held) for name, held in native.own.items() if name in entry.names and not np.shape(held)}
    given.update(arguments)
    for slot, theirs in (("v_hat", "amsgrad"), ("mean_grad", "centered")):
        if theirs in entry.names and theirs not in given:
            given[theirs] = any(slot in found for found in _slot_names(native, entry))
    try:
        return _of_stock(entry.target, entry.native, given)
    except EverstepError as error:
        raise StateError(str(error))


def guessed_definition(native, name, momentum):
    """The definition that a stock optimizer of the file's API may be, though nobody said its settings."""
    entry = next(entry for entry in _entries_of(native) if entry.native == name)
    lacks = [theirs for theirs, value in entry.defaults.items() if value is REQUIRED and theirs not in native.own]
    given = {theirs: entry.definition.declarations[entry.names[theirs]].default for theirs in lacks}
    given.update({"momentum": 0.9} if momentum and "momentum" in entry.names else {})
    return definition_of(native, entry, given)


def _entries_of(native):
    """The stock optimizers that a file may be of, by its API."""
    return entries_of(native.target) if native.target else entries_of("keras3") + entries_of("update_step")


def _slot_names(native, entry):
    """The names of the slots of each variable, in a file whose slots have names."""
    if native.format == "tf-saver":
        lines = [slot.name for slot in entry.slots]
        return [lines if len(found) == len(lines) else () for found in saver_slots(native, entry.op).values()]
    return [[entry.slot_names.get(name) for name in found] for found in native.slots.values()]


def likely(native):
    """What a file that does not say seems to be of, in words."""
    kinds = sorted(kinds_of(native))
    return " (its slots are those of {})".format(" or ".join(kinds)) if kinds else ""


def kinds_of(native):
    """The stock optimizers that a file might be of, by its slots."""
    if native.class_name:
        return [native.class_name]
    found = []
    for entry in entries_of(native.target):
        names = set(entry.slot_names)
        if native.format == "tf-saver" and names:
            if saver_slots(native, entry.op):
                found.append(entry.native)
        elif native.slots:
            has = set(name for slots in native.slots.values() for name in slots)
            if has <= names and has >= names - {"vhat", "mg", "momentum"}:
                found.append(entry.native)
    return found


def number(handle):
    return short(np.asarray(handle).astype(np.float64 if np.dtype(handle.dtype).kind != "i" else np.int64)[()])
