"""Finds the definition that a framework's file is of."""
from __future__ import absolute_import, division, print_function

import ast
import warnings

import numpy as np

from everstep.compat.state.native_file import saver_slots
from everstep.compat.state.roles import ROLES, blocks
from everstep.compat.stock.from_native import from_native, short
from everstep.compat.stock.table import FORMS
from everstep.compat.targets.base import CONFIG_KEY, Target
from everstep.errors import DefinitionError, EverstepError, StateError
from everstep.optimizers.contract.definition import Definition


def definition_for(native, definition=None, optimizer=None):
    """(definition, whether everstep wrote the file or None where that is to be found out)"""
    if definition is not None and optimizer is not None:
        raise StateError("give a definition or the name of an optimizer, not both")
    ours = None if native.config is None and not native.class_name else CONFIG_KEY in (native.config or {})
    if definition is not None:
        if not isinstance(definition, Definition):
            raise StateError("definition is one of everstep's, such as everstep.optimizers.Adam(); got {!r}".format(
                definition))
        return definition, ours
    if optimizer is not None:
        return _of_text(native, optimizer), False if ours is None and native.entries else ours
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
    with warnings.catch_warnings():  # of what stock does that the definition does not: no affair of a file's
        warnings.filterwarnings("ignore", "stock ")
        return from_native({"class_name": native.class_name, "config": native.config}, native.target)


def _of_text(native, text):
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
    targets = [native.target] if native.target else ["keras3", "update_step"]
    known = [form for form in FORMS if form.target in targets]
    bare = name.lower().replace("optimizer", "")
    form = next((form for form in known if form.native.lower().replace("optimizer", "") == bare), None)
    if form is None:
        raise StateError(
            "{} has no stock optimizer {}; known are {}. Of one of your own give the definition".format(
                native.target, name, ", ".join(sorted(set(form.native for form in known)))
            )
        )
    unknown = sorted(set(arguments) - set(form.names))
    if unknown:
        raise StateError("{} has no argument {}; it has {}".format(
            form.native, ", ".join(unknown), ", ".join(sorted(form.names))))
    held = dict(native.own)
    config = {name: number(held[name]) for name in form.names if name in held and not np.shape(held[name])}
    config.update(arguments)
    for slot, theirs in (("v_hat", "amsgrad"), ("mean_grad", "centered")):
        if theirs in form.names and theirs not in config:
            config[theirs] = any(slot in found for found in _slot_names(native, form).values())
    made = {form.names[theirs]: value for theirs, value in config.items()}
    made.update(form.fixed)
    made["sparse"] = form.sparse(made) if callable(form.sparse) else form.sparse
    try:
        return form.definition(**made)
    except DefinitionError as error:
        raise StateError(str(error))


def _slot_names(native, form):
    """{variable: names of its slots} of a file whose slots have names."""
    roles = next(roles for roles in ROLES if (roles.target, roles.native) == (form.target, form.native))
    if native.format == "tf-saver":
        numbers = saver_slots(native, roles.op)
        lines = [slot.name for block in blocks(roles) for slot in block]
        return {name: lines if len(found) == len(lines) else () for name, found in numbers.items()}
    names = {slot.native: slot.name for block in blocks(roles) for slot in block}
    return {variable: [names.get(name) for name in found] for variable, found in native.slots.items()}


def likely(native):
    """What a file that does not say seems to be of, in words."""
    kinds = sorted(kinds_of(native))
    return " (its slots are those of {})".format(" or ".join(kinds)) if kinds else ""


def kinds_of(native):
    """The stock optimizers that a file might be of, by its slots."""
    if native.class_name:
        return [native.class_name]
    found = []
    for roles in ROLES:
        names = [slot.native for block in blocks(roles) for slot in block]
        if native.format == "tf-saver" and roles.target == "tf_train" and names:
            if saver_slots(native, roles.op):
                found.append(roles.native)
        elif native.slots and roles.target == native.target:
            has = set(name for slots in native.slots.values() for name in slots)
            if has <= set(names) and has >= set(name for name in names if name not in ("vhat", "mg", "momentum")):
                found.append(roles.native)
    return found


def number(handle):
    return short(np.asarray(handle).astype(np.float64 if np.dtype(handle.dtype).kind != "i" else np.int64)[()])
