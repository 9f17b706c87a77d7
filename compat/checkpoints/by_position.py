"""Finds the slots in files that store an optimizer's arrays by position: those of Keras."""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict

import numpy as np

from everstep.compat.checkpoints.claims import Claim
from everstep.compat.checkpoints.conversions import first_few
from everstep.compat.checkpoints.fitting import fits
from everstep.compat.checkpoints.identify import keywords_of
from everstep.compat.checkpoints.layouts import layouts_of
from everstep.compat.checkpoints.naming import names_of, version_of, weights_of
from everstep.compat.checkpoints.unwrapping import inner_config
from everstep.compat.targets.construction import CONFIG_KEY
from everstep.errors import DefinitionError, FileError, StateError, UnsupportedError
from everstep.optimizers.contract.checks import TEXT
from everstep.optimizers.wrappers.accumulate import accumulate
from everstep.optimizers.wrappers.moving_average import moving_average

_WHOLE_SINCE = (2, 0, 8)  # the version of Keras from which on counts are integers


def found(contents):
    """Returns [Claim] of a file of Keras: the optimizer that was compiled, without a definition."""
    claim, missing = Claim(contents), list(contents.missing)
    claim = claim._replace(variables=OrderedDict((weight.name, weight.handle) for weight in weights_of(claim)))
    if contents.config is not None:
        claim = _with_config(claim, contents.config)
    entries = contents.optimizers[-1].entries if contents.optimizers else []
    if claim.config is not None and not missing and not contents.optimizers:
        missing.append("the config of an optimizer, {}, but none of its variables (it never trained)".format(
            claim.class_name))
    if contents.format == "keras" and claim.target == "optimizer_v2" and not entries:
        missing = ["the config of a legacy optimizer, {}, but not its state, which this format never keeps; save .h5 "
                   "instead".format(claim.class_name)]
    if contents.format == "keras" and claim.target == "optimizer_v2" and CONFIG_KEY not in claim.config:
        claim = claim._replace(target="update_step")
    if claim.target == "optimizer_v2" and entries and "/iterations" in entries[0][0]:
        claim = claim._replace(target="get_updates")  # everstep's Keras 2 optimizers have a name in their config too
    loss_scale, copies = {}, {}
    is_outer = contents.format == "keras-h5" and claim.scaling is not None and claim.target == "keras3"
    if len(contents.optimizers) > 1 or is_outer and entries:
        several = len(contents.optimizers) > 1  # Keras stores the variables of the optimizer inside twice
        outer = contents.optimizers[0].entries
        rest, loss_scale = _without_loss_scale(claim, outer, len(entries) if several else len(outer) - 4)
        copies = {handle.name: copy.name for (_, handle), (_, copy) in zip(entries, rest)} if several else {}
        entries = entries if several else rest
    return [claim._replace(entries=tuple(entries), loss_scale=loss_scale, copies=copies, missing=tuple(missing))]


def _with_config(claim, serialized):
    """Returns the claim with the optimizer's class and config, and its API, which the config tells."""
    version = claim.contents.version
    if isinstance(serialized, TEXT):  # up to Keras 3.0 at least, a file of compile("adam") has this text alone
        target = "keras3" if version[:1] >= "3" else "update_step"
        return claim._replace(class_name=str(serialized), config={}, target=target)
    if not isinstance(serialized, dict) or not isinstance(serialized.get("config"), dict):
        raise FileError("{} has no optimizer's config, but {!r}".format(claim.path, serialized))
    config, name = serialized["config"], str(serialized.get("class_name")).split(">")[-1]
    if "LossScaleOptimizer" in name and inner_config(config) is not None:
        return _with_config(claim, inner_config(config))._replace(scaling=config)
    target = "optimizer_v2" if "name" in config else "get_updates"
    if version[:1] >= "3":
        target = "keras3"
    elif "is_legacy_optimizer" in config or "jit_compile" in config:
        target = "update_step"
    return claim._replace(class_name=name, config=config, target=target)


# How many variables of its own a LossScaleOptimizer stores: none in tf.keras; in Keras 3 iteration and learning_rate,
# and once it is built step_counter and dynamic_scale.
_LOSS_SCALE_VARIABLES = (0, 2, 4)


def _without_loss_scale(claim, entries, count):
    """Returns (the entries of the optimizer inside of a LossScaleOptimizer, the loss scale).

    They are the last `count` entries. Keras 3 stores the LossScaleOptimizer's own variables before them; tf.keras
    stores none.
    """
    before = len(entries) - count
    own = entries[: max(before, 0)]
    if count < 0 or before not in _LOSS_SCALE_VARIABLES or any(handle.shape != () for _, handle in own):
        raise FileError("{} has a LossScaleOptimizer with {} variables around {}".format(claim.path, before, count))
    return entries[before:], {"good_steps": own[2][1], "scale": own[3][1]} if before == 4 else {}


def by_position(claim, definition, by_everstep, variables):
    """Returns the claim as one of a definition, of a file that goes by position.

    Raises:
        FileError: the arrays are not the state of the definition.
        StateError: there is more than one way to read them, or the variables' names are unknown.
    """
    found_fits, tried, name_errors, weights = [], [], [], weights_of(claim)
    trained = [weight for weight in weights if weight.trains] or weights
    known = OrderedDict((weight.name, weight.handle.shape) for weight in trained)
    if variables is not None:
        known = OrderedDict((name, known.get(name)) for name in variables)
    counts = "iu" if version_of(claim.contents) >= _WHOLE_SINCE else "f"
    for layout, entry in layouts_of(claim.target, definition, by_everstep, keywords_of(claim)):
        tried.append(layout)
        for values, per_variable in _fits(claim, layout, definition, known, counts):
            try:
                names = list(known)
                if per_variable:
                    shapes, hints = zip(*[(each.shape, each.names) for each in per_variable])
                    names = names_of(claim, weights, list(shapes), list(hints), variables)
            except StateError as error:
                name_errors.append(str(error))  # the text alone: the error's traceback would keep the file open
                continue
            found_fits.append((names, values, per_variable, entry))
    remark = "" if found_fits else _keywords_that_fit(
        claim, definition, by_everstep, lambda layout, rule: any(
            not name_errors or len(per_variable) == len(known)
            for _, per_variable in _fits(claim, layout, rule, known, counts)))
    if not found_fits and name_errors:
        raise StateError(name_errors[0] + remark)
    if not found_fits:
        raise FileError(
            "{}: {} arrays of shapes {} are not the state of {} of {}: expected are {}, then the slots {}{}".format(
                claim.path,
                len(claim.entries),
                first_few(str(handle.shape) for _, handle in claim.entries),
                definition._short(),
                claim.target or "Keras",
                ", ".join(tried[0].head),
                " | ".join(" ".join(slot.name for slot in block) for block in list(tried[0].around) + tried[0].blocks)
                or "none",
                remark,
            )
        )
    if len(set(_meaning(fit) for fit in found_fits)) > 1:
        several = [first_few(each) for each in sorted(set(tuple(names) for names, _, _, _ in found_fits))]
        raise StateError(
            "{} can be read in several ways: {}".format(claim.path, (
                "with slots of {}. Give variables= (--variables), the names of those that were trained".format(
                    ", or of ".join(several))
                if len(several) > 1 else
                "it does not say if it is of a stock optimizer or of one that everstep bound, which store their slots "
                "in another order. Read a .keras or .h5 file of the same model, which says it"))
        )
    names, values, per_variable, entry = found_fits[0]
    count = float(np.asarray(values["updates"])) if counts == "f" and "updates" in values else 0.0
    if not count.is_integer():
        raise FileError("{} has a count of updates that is not whole: {}".format(claim.path, count))
    slots = OrderedDict((name, OrderedDict()) for name in names)
    for name, each in zip(names, per_variable):
        slots[name].update(each.slots)
    for name, handle in claim.values.items():  # only object checkpoints have these
        values.setdefault("momentum_product" if name == "_u_product" else name, handle)
    return claim._replace(definition=definition, slots=slots, values=values, entry=entry,
                          target=claim.target or entry and entry.target,
                          shapes=dict(zip(names, [each.shape for each in per_variable])))


def _fits(claim, layout, definition, known, counts):
    return fits(list(claim.entries), layout, definition, known, claim.target or "keras3", counts)


# [(keywords of newer Keras, what the definition is then, a function that makes it so)]
_AROUND = [
    ("use_ema=True", "everstep.moving_average({}, ema_momentum)", lambda rule: moving_average(rule, 0.5)),
    ("gradient_accumulation_steps", "everstep.accumulate({}, gradient_accumulation_steps)",
     lambda rule: accumulate(rule, 2)),
    ("use_ema=True and gradient_accumulation_steps",
     "everstep.moving_average(everstep.accumulate({}, gradient_accumulation_steps), ema_momentum)",
     lambda rule: moving_average(accumulate(rule, 2), 0.5)),
]


def _keywords_that_fit(claim, definition, by_everstep, fit):
    """Returns a remark on the keywords with which a file may be of a definition that its arrays do not fit."""
    remarks = []
    for keywords, wrapped, wrap in _AROUND if claim.target in (None, "update_step", "keras3") else ():
        try:
            rule = wrap(definition)
        except DefinitionError:  # it skips steps, and then Keras averages and accumulates nothing
            continue
        if any(fit(layout, rule) for layout, _ in layouts_of(claim.target, rule, by_everstep, keywords_of(claim))):
            remarks.append(". If it was trained with {}, give definition={}".format(
                keywords, wrapped.format(type(definition).__name__ + "(...)")))
    return "".join(remarks)


def stock_arrays(target, definition, arrays, variables):
    """Returns what the arrays of a stock optimizer's `variables` are, for the definition that computes the same.

    Args:
        target: the name of the API.
        arrays: the arrays, in the order in which stock saves them.
        variables: `{name: shape}` of the variables to train, in order.

    Returns:
        ({name: array} of counters and the learning rate, [{slot: array} of each variable]); None if they are not that.
    """
    shapes, entries = list(variables.values()), [("", array) for array in arrays]
    try:
        for layout, _ in layouts_of(target, definition, False):
            for values, per_variable in fits(entries, layout, definition, variables, target):
                if [each.shape for each in per_variable] == shapes:
                    return values, [each.slots for each in per_variable]
    except UnsupportedError:  # stock has no such optimizer
        pass
    return None


def _meaning(fit):
    """Returns a key that two fits share if they read the same state."""
    names, optimizer_values, per_variable, _ = fit
    slots = tuple((name, tuple((slot, id(handle)) for slot, handle in each.slots.items()))
                  for name, each in zip(names, per_variable))
    return slots or tuple(names), id(optimizer_values["updates"]) if "updates" in optimizer_values else None
