"""Finds the definition that matches the optimizer of a framework's file."""
from __future__ import absolute_import, division, print_function

import ast
import warnings

import numpy as np

from everstep.compat.files.native_file import saver_slots
from everstep.compat.stock.from_native import BESIDE, from_native, short
from everstep.compat.stock.lookup import entries_of
from everstep.compat.stock.registry import definition_classes, entries_spelled
from everstep.compat.targets.construction import CONFIG_KEY, split_config
from everstep.errors import EverstepError, StateError
from everstep.optimizers.contract import REQUIRED, Definition


def definition_for(native, definition=None, optimizer=None, learning_rate=None, by_hand=False):
    """Returns (definition, written by everstep: True, False, or None if only the layout of the arrays can tell).

    If the optimizer was written by hand, its name is that of a definition.
    """
    if definition is not None and optimizer is not None:
        raise StateError("give a definition or the name of an optimizer, not both")
    by_everstep = None if native.config is None and not native.class_name else CONFIG_KEY in (native.config or {})
    if definition is not None:
        if not isinstance(definition, Definition):
            raise StateError("definition is one of everstep's, such as Adam(); got {!r}".format(definition))
        return definition, by_everstep
    if optimizer is not None:
        by_everstep = False if by_everstep is None and native.entries else by_everstep
        return _definition_of_text(native, optimizer, learning_rate, by_hand), by_everstep
    if native.config is not None:
        try:
            return definition_of_config(native), by_everstep
        except EverstepError as error:
            raise type(error)("{}: {}. Give definition=".format(native.path, error))
    raise StateError(
        "{} does not say which optimizer it is of{}: give definition=, such as everstep.optimizers.Adam(...), or "
        "optimizer= (--optimizer), such as \"Adam(learning_rate=0.001)\"".format(native.path, likely_optimizers(native))
    )


def definition_of_config(native):
    """Returns the definition of a file that has its optimizer's config."""
    if CONFIG_KEY in native.config:
        return split_config(native.config)[0]
    return _stock_definition(native.target, native.class_name, native.config)


def _stock_definition(target, name, config):
    """Returns the definition of a stock optimizer, without the warnings on how stock differs."""
    with warnings.catch_warnings():  # how the stock class computes does not matter for its file
        warnings.filterwarnings("ignore", "stock ")
        return from_native({"class_name": name, "config": config}, target)


def _definition_of_text(native, text, learning_rate, by_hand):
    """Returns the definition of a text such as `Adam` or `Adam(learning_rate=0.1)`, as the file's API spells it."""
    try:
        parsed = ast.parse(str(text).strip(), mode="eval").body
        if isinstance(parsed, ast.Call) and parsed.args:
            raise ValueError
        class_node = parsed.func if isinstance(parsed, ast.Call) else parsed
        keywords = parsed.keywords if isinstance(parsed, ast.Call) else []
        name = class_node.id  # type: ignore[attr-defined]  # anything without an id is refused below
        arguments = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in keywords}
    except (AttributeError, SyntaxError, ValueError, TypeError):
        raise StateError('an optimizer is a name, or Name(argument=number, ...); got {!r}'.format(text))
    if by_hand:
        return _definition_named(name, arguments, learning_rate)
    entries = _entries_of(native)
    named = entries_spelled(entries, name)
    if not named:
        raise StateError(
            "{} has no stock optimizer {}; known are {}. For an optimizer of your own, give its definition".format(
                native.target, name, ", ".join(sorted(set(entry.native for entry in entries)))
            )
        )
    entry = named[0]
    unknown = sorted(set(arguments) - set(entry.names) - set(BESIDE if entry.target != "tf_train" else ()))
    if unknown:
        raise StateError("{} has no argument {}; it has {}".format(
            entry.native, ", ".join(unknown), ", ".join(sorted(entry.names))))
    if learning_rate is not None:  # so that the text need not repeat the rate
        arguments.setdefault("learning_rate", learning_rate)
    return definition_of_entry(native, entry, arguments)


def _definition_named(name, arguments, learning_rate):
    """Returns a definition by the name of its class."""
    classes = {name: same[-1] for name, same in definition_classes().items()}
    if name not in classes:
        raise StateError("there is no definition {}; known are {}".format(name, ", ".join(sorted(classes))))
    if learning_rate is not None and "learning_rate" in classes[name].declarations:
        arguments = dict({"learning_rate": learning_rate}, **arguments)
    try:
        return classes[name](**arguments)
    except EverstepError as error:
        raise StateError(str(error))


def definition_of_entry(native, entry, arguments):
    """Returns the definition of a stock optimizer.

    The arguments come first, then values in the file, then the class's defaults.

    Raises:
        StateError: an argument is invalid, or a required one is given neither here nor in the file.
    """
    all_arguments = {name: as_number(handle) for name, handle in native.optimizer_values.items()
                     if name in entry.names and not np.shape(handle)}
    all_arguments.update(arguments)
    for needed in entry.needed:  # what is given by hand, or found in a file without a config, need not be whole
        all_arguments.setdefault(needed, entry.defaults[needed])
    for slot, argument in (("v_hat", "amsgrad"), ("mean_grad", "centered")):
        if argument in entry.names and argument not in all_arguments:
            all_arguments[argument] = any(slot in names for names in _slot_names(native, entry))
    try:
        return _stock_definition(entry.target, entry.native, all_arguments)
    except EverstepError as error:
        raise StateError(str(error))


def guessed_definition(native, name, momentum):
    """Returns the definition of a stock optimizer of the file's API, with defaults for unknown settings."""
    entry = next(entry for entry in _entries_of(native) if entry.native == name)
    required = [argument for argument, value in entry.defaults.items()
                if value is REQUIRED and argument not in native.optimizer_values]
    arguments = {argument: entry.definition.declarations[entry.names[argument]].default for argument in required}
    arguments.update({"momentum": 0.9} if momentum and "momentum" in entry.names else {})
    return definition_of_entry(native, entry, arguments)


def _entries_of(native):
    """Returns the stock entries of the file's API; of both newer Keras APIs if the file does not say."""
    return entries_of(native.target) if native.target else entries_of("keras3") + entries_of("update_step")


def _slot_names(native, entry):
    """Returns a list with the slot names of each variable, in a file that names slots."""
    if native.format == "tf-saver":
        names = [slot.name for slot in entry.slots]
        return [names if len(slots) == len(names) else () for slots in saver_slots(native, entry.op).values()]
    return [[entry.slot_names.get(name) for name in slots] for slots in native.slots.values()]


def likely_optimizers(native):
    """Returns a remark for error messages on which optimizers have such slots."""
    names = sorted(candidates(native))
    return " (its slots are those of {})".format(" or ".join(names)) if names else ""


def candidates(native):
    """Returns the names of the stock optimizers that have the file's slots."""
    if native.class_name:
        return [native.class_name]
    matches = []
    for entry in entries_of(native.target):
        names = set(entry.slot_names)
        if native.format == "tf-saver" and names:
            # AdamGS and LazyAdamGS have Adam's slots, without its powers.
            other = entry.op == "Adam" and not entry.head and any("beta1_power" in key for key, _ in native.entries)
            if saver_slots(native, entry.op) and not other:
                matches.append(entry.native)
        elif native.slots:
            stored_names = set(name for slots in native.slots.values() for name in slots)
            if stored_names <= names and stored_names >= names - {"vhat", "mg", "momentum"}:
                matches.append(entry.native)
    return matches


def as_number(handle):
    """Returns the Python number in a handle, at the shortest precision that keeps its value."""
    return short(np.asarray(handle).astype(np.float64 if np.dtype(handle.dtype).kind != "i" else np.int64)[()])
