"""Finds the definition that matches the optimizer of a framework's file."""
from __future__ import absolute_import, division, print_function

import ast
import warnings

import numpy as np

from everstep.compat.checkpoints.saver_names import has_weights_alone, ops_beside, plain_names, powers_in, slots_of
from everstep.compat.stock.from_native import BESIDE, from_native
from everstep.compat.stock.lookup import entries_of, short
from everstep.compat.stock.registry import definition_classes, entries_spelled
from everstep.compat.targets.construction import CONFIG_KEY, split_config
from everstep.errors import EverstepError, FileError, StateError
from everstep.optimizers.contract import REQUIRED, Definition


def definition_for(claim, request):
    """Returns (definition, written by everstep: True, False, or None if only the layout of the arrays can tell).

    If the optimizer was written by hand, its name is that of a definition.
    """
    definition, optimizer = request.definition, request.optimizer
    if definition is not None and optimizer is not None:
        raise StateError("give a definition or the name of an optimizer, not both")
    by_everstep = None if claim.config is None and not claim.class_name else CONFIG_KEY in (claim.config or {})
    if definition is not None:
        if not isinstance(definition, Definition):
            raise StateError("definition is one of everstep's, such as Adam(); got {!r}".format(definition))
        return definition, by_everstep
    if optimizer is not None:
        by_everstep = False if by_everstep is None and claim.entries else by_everstep
        return _definition_of_text(claim, optimizer, request.learning_rate, request.slots is not None), by_everstep
    if claim.config is not None:
        try:
            return definition_of_config(claim), by_everstep
        except EverstepError as error:
            raise type(error)("{}: {}. Give definition=".format(claim.path, error))
    if claim.contents.format == "tf-saver" and has_weights_alone(plain_names(claim.contents)):
        raise FileError("{} has weights alone, or is of an optimizer without slots: to read its count give optimizer= "
                        "(--optimizer), such as \"GradientDescentOptimizer(learning_rate=0.1)\"".format(claim.path))
    raise StateError(
        "{} does not say which optimizer it is of{}: give definition=, such as everstep.optimizers.Adam(...), or "
        "optimizer= (--optimizer), such as \"Adam(learning_rate=0.001)\"".format(claim.path, likely_optimizers(claim))
    )


def definition_of_config(claim):
    """Returns the definition of a file that has its optimizer's config."""
    if CONFIG_KEY in claim.config:
        return split_config(claim.config)[0]
    return _stock_definition(claim.target, claim.class_name, claim.config)


def _stock_definition(target, name, config):
    """Returns the definition of a stock optimizer, without the warnings on how stock differs."""
    with warnings.catch_warnings():  # how the stock class computes does not matter for its file
        warnings.filterwarnings("ignore", "stock ")
        return from_native({"class_name": name, "config": config}, target)


def parsed(text):
    """Returns (name, {argument: value}) of a text such as `Adam` or `Adam(learning_rate=0.1)`."""
    try:
        tree = ast.parse(str(text).strip(), mode="eval").body
        if isinstance(tree, ast.Call) and tree.args:
            raise ValueError
        class_node = tree.func if isinstance(tree, ast.Call) else tree
        keywords = tree.keywords if isinstance(tree, ast.Call) else []
        name = class_node.id  # type: ignore[attr-defined]  # anything without an id is refused below
        return name, {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in keywords}
    except (AttributeError, SyntaxError, ValueError, TypeError):
        raise StateError('an optimizer is a name, or Name(argument=number, ...); got {!r}'.format(text))


def _definition_of_text(claim, text, learning_rate, by_hand):
    """Returns the definition of a text, as the file's API spells it."""
    name, arguments = parsed(text)
    arguments = {key: value for key, value in arguments.items() if key not in ("name", "use_locking")}
    if by_hand:
        return _definition_named(name, arguments, learning_rate)
    entries = _entries_of(claim)
    named = entries_spelled(entries, name)
    if not named:
        raise StateError(
            "{} has no stock optimizer {}; known are {}. For an optimizer of your own, give its definition".format(
                claim.target, name, ", ".join(sorted(set(entry.native for entry in entries)))
            )
        )
    entry = named[0]
    unknown = sorted(set(arguments) - set(entry.names) - set(BESIDE if entry.target != "tf_train" else ()))
    if unknown:
        raise StateError("{} has no argument {}; it has {}".format(
            entry.native, ", ".join(unknown), ", ".join(sorted(entry.names))))
    if learning_rate is not None:  # so that the text need not repeat the rate
        arguments.setdefault("learning_rate", learning_rate)
    return definition_of_entry(claim, entry, arguments)


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


def definition_of_entry(claim, entry, arguments):
    """Returns the definition of a stock optimizer.

    The arguments come first, then values in the file, then the class's defaults.

    Raises:
        StateError: an argument is invalid, or a required one is given neither here nor in the file.
    """
    all_arguments = {name: as_number(handle) for name, handle in claim.values.items()
                     if name in entry.names and not np.shape(handle)}
    all_arguments.update(arguments)
    for needed in entry.needed:  # what is given by hand, or found in a file without a config, need not be whole
        all_arguments.setdefault(needed, entry.defaults[needed])
    for slot, argument in (("v_hat", "amsgrad"), ("mean_grad", "centered")):
        if argument in entry.names and argument not in all_arguments:
            all_arguments[argument] = any(slot in names for names in _slot_names(claim, entry))
    try:
        return _stock_definition(entry.target, entry.native, all_arguments)
    except EverstepError as error:
        raise StateError(str(error))


def guessed_definition(claim, name, momentum):
    """Returns the definition of a stock optimizer of the file's API, with defaults for unknown settings."""
    entry = next(entry for entry in _entries_of(claim) if entry.native == name)
    required = [argument for argument, value in entry.defaults.items()
                if value is REQUIRED and argument not in claim.values]
    arguments = {argument: entry.definition.declarations[entry.names[argument]].default for argument in required}
    arguments.update({"momentum": 0.9} if momentum and "momentum" in entry.names else {})
    return definition_of_entry(claim, entry, arguments)


def _entries_of(claim):
    """Returns the stock entries of the file's API; of both newer Keras APIs if the file does not say."""
    return entries_of(claim.target) if claim.target else entries_of("keras3") + entries_of("update_step")


def _slot_names(claim, entry):
    """Returns a list with the slot names of each variable, in a file that names slots."""
    if claim.contents.format == "tf-saver":
        names = [slot.name for slot in entry.slots]
        of_variables = slots_of(plain_names(claim.contents), entry.op).values()
        return [names if len(slots) == len(names) else () for slots in of_variables]
    return [[entry.slot_names.get(name) for name in slots] for slots in claim.slots.values()]


def likely_optimizers(claim):
    """Returns a remark for error messages on which optimizers have such slots."""
    names = sorted(candidates(claim))
    return " (its slots are those of {})".format(" or ".join(names)) if names else ""


def candidates(claim):
    """Returns the names of the stock optimizers that have the file's slots."""
    if claim.class_name:
        return [claim.class_name]
    matches, arrays, entries = [], plain_names(claim.contents), entries_of(claim.target)
    has_powers = bool(powers_in(arrays))
    if claim.contents.format == "tf-saver" and has_powers and not any(
            entry.op and slots_of(arrays, entry.op) for entry in entries):  # people gave it a name
        return [entry.native for entry in entries
                if entry.head and ops_beside(arrays, len(entry.slots), {each.op for each in entries})]
    for entry in entries:
        names = set(entry.slot_names)
        if claim.contents.format == "tf-saver" and names:
            # AdamGS and LazyAdamGS have Adam's slots, without its powers.
            if slots_of(arrays, entry.op) and not (entry.op == "Adam" and not entry.head and has_powers):
                matches.append(entry.native)
        elif claim.slots:
            stored_names = set(name for slots in claim.slots.values() for name in slots)
            if stored_names <= names and stored_names >= names - {"vhat", "mg", "momentum"}:
                matches.append(entry.native)
    return matches


def as_number(handle):
    """Returns the Python number in a handle, at the shortest precision that keeps its value."""
    return short(np.asarray(handle).astype(np.float64 if np.dtype(handle.dtype).kind != "i" else np.int64)[()])
