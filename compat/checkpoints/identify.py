"""Finds the definition that matches the optimizer of a framework's file."""
from __future__ import absolute_import, division, print_function

import ast
import warnings
from collections import namedtuple

import numpy as np

from everstep.compat.checkpoints.layouts import BY_KEYWORD
from everstep.compat.checkpoints.saver_names import has_weights_alone, ops_beside, slots_of
from everstep.compat.stock.from_native import BESIDE, from_native, wrapped_as
from everstep.compat.stock.lookup import entries_of, short
from everstep.compat.stock.of_torch import FLAG, of_groups
from everstep.compat.stock.registry import definition_classes, entries_spelled
from everstep.compat.targets.construction import CONFIG_KEY, split_config
from everstep.errors import EverstepError, FileError, StateError
from everstep.optimizers.contract import Definition


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
    if claim.target == "torch_optim":
        return _of_torch(claim, optimizer), False
    if optimizer is not None:
        by_everstep = False if by_everstep is None and claim.entries else by_everstep
        return _definition_of_name(claim, request), by_everstep
    if claim.config is not None:
        try:
            if by_everstep:
                return _of_own_config(claim), True
            return definition_of_stock({"class_name": claim.class_name, "config": claim.config}, claim.target), False
        except EverstepError as error:
            raise type(error)("{}: {}. Give definition=".format(claim.path, error))
    if claim.contents.format == "tf-saver" and has_weights_alone(claim.variables):
        raise FileError("{} has weights alone, or its optimizer has no slots; if so, give optimizer= (--optimizer) to "
                        "read its count, such as \"GradientDescentOptimizer(learning_rate=0.1)\"".format(claim.path))
    raise StateError(
        "{} does not say which optimizer wrote it{}: give definition=, such as everstep.optimizers.Adam(...), or "
        "optimizer= (--optimizer), such as \"Adam(learning_rate=0.001)\"".format(claim.path, likely_optimizers(claim))
    )


def _of_own_config(claim):
    """Returns the definition of an optimizer that everstep bound, in the wrappers that the keywords with slots are.

    The other keywords, such as clipnorm, add nothing to the arrays.
    """
    definition, native = split_config(claim.config)
    kept = {name: native.get(name) for name in tuple(BY_KEYWORD) + ("ema_momentum", "ema_overwrite_frequency")}
    return wrapped_as(definition, kept, None, claim.target)


def keywords_of(claim):
    """Returns those of BY_KEYWORD that a config of everstep's has; None if there is no such config."""
    if claim.config is None or CONFIG_KEY not in claim.config:
        return None
    return [keyword for keyword in BY_KEYWORD if claim.config.get(keyword)]


def _of_torch(claim, optimizer):
    """Returns the definition of an optimizer of torch, whose groups have its arguments. `optimizer`: Named or None."""
    groups, (name, arguments) = claim.config["param_groups"], optimizer or Named(claim.class_name, {})
    unknown = sorted(set(arguments).difference(*groups))
    if unknown:
        raise StateError("{} has no argument {}; its groups have {}".format(claim.path, ", ".join(unknown), ", ".join(
            sorted(groups[0]))))
    if name is None:
        raise StateError("{} is of no optimizer that torch.optim has: give definition=, such as everstep.optimizers."
                         "Adam(...)".format(claim.path))
    if optimizer is None and name == "Adam" and any(each.get("weight_decay") and FLAG not in each for each in groups):
        raise StateError('{} has a weight_decay, and is of an older PyTorch, which writes the same for Adam and AdamW: '
                         'give optimizer= (--optimizer), "Adam" or "AdamW", or definition='.format(claim.path))
    try:
        return of_groups(name, [dict(group, **arguments) for group in groups])
    except EverstepError as error:
        raise StateError("{}: {}. Give definition=".format(claim.path, error))


def definition_of_stock(stock, target=None):
    """Does what `from_native` does, without its warnings: how stock computes does not matter for what it stores."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "stock ")
        return from_native(stock, target)


# An optimizer as its own API writes it. arguments: {name: value}
Named = namedtuple("Named", "name arguments")


def parsed(request):
    """Returns a Request with its optimizer, a text such as `Adam` or `Adam(learning_rate=0.1)`, as Named.

    A `name` among the arguments is the scope, unless the request has one.
    """
    if request.optimizer is None:
        return request
    try:
        tree = ast.parse(str(request.optimizer).strip(), mode="eval").body
        if isinstance(tree, ast.Call) and tree.args:
            raise ValueError
        class_node = tree.func if isinstance(tree, ast.Call) else tree
        keywords = tree.keywords if isinstance(tree, ast.Call) else []
        name = class_node.id  # type: ignore[attr-defined]  # anything without an id is refused below
        arguments = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in keywords}
    except (AttributeError, SyntaxError, ValueError, TypeError):
        raise StateError('an optimizer is a name, or Name(argument=number, ...); got {!r}'.format(request.optimizer))
    scope = arguments.pop("name", None)
    arguments.pop("use_locking", None)
    return request._replace(optimizer=Named(name, arguments), scope=scope if request.scope is None else request.scope)


def _definition_of_name(claim, request):
    """Returns the definition of a Named, as the file's API spells it; with slots=, by the name of its class."""
    (name, arguments), learning_rate = request.optimizer, request.learning_rate
    if request.slots is not None:
        return _definition_named(name, arguments, learning_rate)
    entries = entries_of_file(claim)
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
    if learning_rate is not None:  # then the text need not repeat the rate
        arguments = dict({"learning_rate": learning_rate}, **arguments)
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
    for needed in entry.needed:  # arguments that a user gives, or that a file without a config has, may be incomplete
        all_arguments.setdefault(needed, entry.defaults[needed])
    for slot, argument in (("v_hat", "amsgrad"), ("mean_grad", "centered")):
        if argument in entry.names and argument not in all_arguments:
            all_arguments[argument] = any(slot in names for names in _slot_names(claim, entry))
    try:
        return definition_of_stock({"class_name": entry.native, "config": all_arguments}, entry.target)
    except EverstepError as error:
        raise StateError(str(error))


def entries_of_file(claim):
    """Returns the stock entries of the file's API; of both newer Keras APIs if the file does not say."""
    return entries_of(claim.target) if claim.target else entries_of("keras3") + entries_of("update_step")


def _slot_names(claim, entry):
    """Returns a list with the slot names of each variable, in a file that names slots."""
    if claim.contents.format == "tf-saver":
        names = [slot.name for slot in entry.slots]
        of_variables = slots_of(claim.variables, entry.op).values()
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
    arrays, entries = claim.variables, entries_of(claim.target)
    if claim.contents.format == "tf-saver":
        # AdamGS and LazyAdamGS have Adam's slots, without its powers.
        fitting = [entry for entry in entries if entry.slot_names and slots_of(arrays, entry.op)
                   and not (entry.op == "Adam" and not entry.head and claim.powers)]
        if not fitting and claim.powers:  # the user's program named its optimizer
            known = {entry.op for entry in entries}
            fitting = [entry for entry in entries if entry.head and ops_beside(arrays, len(entry.slots), known)]
    else:
        stored = {name for slots in claim.slots.values() for name in slots}
        fitting = [entry for entry in entries if stored
                   and set(entry.slot_names) - {"vhat", "mg", "momentum"} <= stored <= set(entry.slot_names)]
    return [entry.native for entry in fitting]


def as_number(handle):
    """Returns the Python number in a handle, at the shortest precision that keeps its value."""
    return short(np.asarray(handle).astype(np.float64 if np.dtype(handle.dtype).kind != "i" else np.int64)[()])
