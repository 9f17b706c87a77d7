"""Turns the contents of a framework's file into a State: definition, counts, scalars and slots."""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict

import numpy as np

from everstep.compat.checkpoints import by_object, by_position, by_saver_name, by_torch
from everstep.compat.checkpoints.by_branch import branch_counts, by_branch, counts_of_powers, described
from everstep.compat.checkpoints.by_pattern import by_pattern, count_in
from everstep.compat.checkpoints.claims import Claim, best, check_has_state
from everstep.compat.checkpoints.conversions import calls_per_update, convert_momentum, first_few, other_form
from everstep.compat.checkpoints.identify import as_number, definition_for, parsed
from everstep.compat.checkpoints.layouts import all_slots, optional_slots, slots_of_rank
from everstep.compat.checkpoints.state import State
from everstep.compat.checkpoints.unwrapping import scalars_of
from everstep.compat.engine.step import ENGINE_SLOTS, counters
from everstep.compat.stock.registry import entries_spelled
from everstep.compat.stock.table import STOCK
from everstep.compat.targets.hypers import DECAY, attribute
from everstep.errors import EverstepError, FileError, StateError
from everstep.optimizers.adagrad_da import AdagradDA
from everstep.optimizers.contract import Schedule, flat, with_hypers
from everstep.optimizers.nadam import Nadam
from everstep.optimizers.radam import RAdam
from everstep.optimizers.schedule_free_adamw import ScheduleFreeAdamW
from everstep.optimizers.wrappers.loss_scale import LossScale
from everstep.optimizers.wrappers.partition import Partition

# Rules that use the count t: tf.train keeps powers of beta for them.
_COUNTED = {entry.definition for entry in STOCK if any(each.name.endswith("_power") for each in entry.head)}
_COUNTED.add(AdagradDA)  # its count is called global_step


def to_state(contents, request, claims=None):
    """Returns (the State that a file holds, the Claim that it is made of).

    Args:
        contents: Contents.
        request: a Request: what the user says of the file.
        claims: what the file says by itself; found in the contents by default.
    """
    if contents.state is not None:  # everstep's own file says everything
        return State(**contents.state), None
    request = parsed(request)
    return state_of(settled(contents, request, claims), request)


def settled(contents, request, claims=None):
    """Returns the Claim on the file that explains most, with the slots of its definition."""
    claims = found(contents) if claims is None else claims
    results = fits(contents, request, claims)
    if contents.format == "tf-saver" and request.variables is not None:
        results = _with_variables(results, request.variables)
    claim = best(results, request.scope)
    is_open = contents.format == "tf-saver" and request.slots is None
    wanted = claim.slots if request.scope or request.variables else None
    rival = by_saver_name.rival(claims[0], claim, wanted) if is_open else None
    if rival is not None and not (request.optimizer and entries_spelled([rival.entry], request.optimizer.name)):
        raise FileError("{} has the state of {}. {} leaves {} unexplained".format(
            claim.path, rival.describe(), claim.definition._short(),
            first_few(sorted(rival.explained() - claim.explained()))))
    return claim


def fits(contents, request, claims=None):
    """Returns [Claim], each way to read a file as what the user says.

    Raises:
        EverstepError: there is none.
    """
    claims = found(contents) if claims is None else claims
    for claim in claims:
        check_has_state(claim)
    results, errors = [], []
    for claim in claims:
        try:
            results += _fits(claim, request)
        except EverstepError as error:
            errors.append(error)
    if not results and len(claims) > 1 and isinstance(getattr(request.definition, "base", None), Partition):
        results = [by_branch(Claim(contents, claims[0].target), request.definition,
                             lambda rule: fits(contents, request._replace(definition=rule, updates=None), claims))]
    if not results:
        raise errors[0]
    return results


def _with_variables(claims, variables):
    """Returns [Claim] with some of their variables alone, of those claims that have all of these."""
    fitting = [claim for claim in claims if set(variables) <= set(claim.slots)]
    if not fitting:
        first = max(claims, key=lambda claim: len(set(claim.slots).intersection(variables)))
        raise StateError("{} has no slots of {}; {} has slots of {}".format(
            first.path, first_few(name for name in variables if name not in first.slots), first.describe(),
            first_few(first.slots)))
    return [claim._replace(slots=OrderedDict((name, claim.slots[name]) for name in variables)) for claim in fitting]


def found(contents):
    """Returns [Claim]: what a file says by itself, one for each optimizer that it shows."""
    if contents.format == "tf-saver":
        return by_saver_name.found(contents)
    if contents.format == "torch":
        return by_torch.found(contents)
    return (by_object if contents.objects is not None else by_position).found(contents)


def _fits(claim, request):
    """Returns [Claim], each way to read what the user asks for out of what the file says."""
    if claim.contents.format == "tf-saver" and request.slots is None:
        return by_saver_name.by_saver_name(claim, request)
    definition, by_everstep = definition_for(claim, request)
    if request.slots is not None:
        return [by_pattern(claim, definition, request.slots)]
    if claim.contents.format == "torch":
        return [by_torch.by_torch(claim, definition, request)]
    if claim.slots or not claim.entries:
        return [by_object.by_slot_name(claim, definition)]
    return [by_position.by_position(claim, definition, by_everstep, request.variables)]


def state_of(claim, request):
    """Returns the State that a settled claim stands for, and the claim with its notes."""
    claim = _checked(claim)
    claim = claim._replace(definition=_with_live_hypers(claim))
    if claim.branches:
        branches = {branch: _with_live_hypers(each) for branch, each in claim.branches.items()}
        claim = claim._replace(definition=claim.definition.replace(**branches))
    claim, counts = _counts(claim, request)
    claim, loss_scale = _with_loss_scale(claim)
    scalars = _scalars(claim, counts["updates"])
    variables = OrderedDict((name, claim.variables[name]) for name in claim.slots if name in claim.variables)
    config, pending = claim.definition.get_config(strict=False), counts.get("pending", 0)
    ordered = claim.contents.format not in ("tf-saver", "tf-object") or bool(
        claim.entries) and claim.contents.format == "tf-object"
    state = State(config, counts["updates"], counts.get("steps"), pending, scalars, claim.slots, variables, ordered,
                  loss_scale)
    return _as_definition(state, claim, request.learning_rate), claim


def _checked(claim):
    """Returns the claim with the slots of each variable in the definition's order.

    Raises:
        FileError: a slot is missing, one too many, or holds integers, such as a count that has the name of a slot.
    """
    definition, slots, entry = claim.definition, OrderedDict(), claim.entry
    needed = list(flat(definition, "slot"))
    if needed and not claim.slots:
        raise FileError("{} has no slots of {}, which needs {}".format(
            claim.path, definition._short(), ", ".join(needed)))
    optional = optional_slots(definition)
    unused_slots = {slot.name for slot in entry.slots if slot.always} if entry else set()
    for name, variable_slots in claim.slots.items():
        shape = claim.variables[name].shape if name in claim.variables else claim.shapes.get(name)
        needed_slots = needed if shape is None else slots_of_rank(definition, len(shape), name)
        if optional and optional == set(variable_slots).difference(needed_slots, ENGINE_SLOTS):
            needed_slots = needed  # the variable has another name in the file than the rule looks for
        missing = [slot for slot in needed_slots if slot not in variable_slots]
        if missing:
            raise FileError("{}: {} has no {}; {} needs {}. It has {}".format(
                claim.path, name, " and no ".join(missing), definition._short(), ", ".join(needed_slots),
                ", ".join(variable_slots) or "no slots"))
        extra = sorted(set(variable_slots) - set(needed_slots).union(ENGINE_SLOTS) - unused_slots)
        if extra:
            raise FileError("{}: {} has the slot {}, which {} has not".format(
                claim.path, name, ", ".join(extra), definition._short()))
        slots[name] = OrderedDict(
            (slot, variable_slots[slot]) for slot in needed_slots + list(ENGINE_SLOTS) if slot in variable_slots
        )
        for slot, handle in slots[name].items():
            if slot not in ENGINE_SLOTS and np.dtype(handle.dtype).kind not in "fV":  # V: bfloat16
                raise FileError("{}: {} of {} holds {}; needed are floating point numbers".format(
                    claim.path, slot, name, np.dtype(handle.dtype)))
    return claim._replace(slots=slots)


def _with_live_hypers(claim):
    """Returns the definition with the hypers that the file stores as variables."""
    definition, values = claim.definition, claim.values
    names = {name: name for name in flat(definition, "hyper")}
    names.update({attribute(name): name for name in names})
    if claim.entry is not None:
        names.update(claim.entry.names)
        names.update({"decay": DECAY} if DECAY in names else {})
    changed = {}
    for stored_name, handle in values.items():
        hyper = names.get(stored_name.lstrip("_"))
        if stored_name == "decay" and claim.entry is not None and hyper is None and np.asarray(handle) != 0:
            raise StateError(
                "the file's learning rate decays, by {0} a step: give everstep.rate_decay(definition, {0})".format(
                    as_number(handle)
                )
            )
        if hyper in flat(definition, "hyper") and handle.shape == () and np.dtype(handle.dtype).kind == "f":
            owner, declaration = flat(definition, "hyper")[hyper]
            configured = owner._values[declaration.name]
            value = as_number(handle)
            if isinstance(configured, float) and np.float32(configured) != np.float32(value):
                changed[hyper] = value
    return with_hypers(definition, changed) if changed else definition


def _counts(claim, request):
    """Returns (claim, {counter: count}), from the file's counters, its beta powers or its global_step."""
    values, updates = claim.values, request.updates
    counts = {name: int(np.asarray(values[name])) for name in counters(claim.definition) if name in values}
    if isinstance(updates, dict) or updates is None and claim.branches:
        claim, count = _with_starts(claim, updates)
        counts.update({} if count is None else {"updates": count})
    elif updates is not None:
        rule = next(iter(claim.branches.values())).definition if claim.branches else claim.definition
        counts["updates"], note = count_in(claim, rule, updates)
        claim = claim.with_note(note)
    definition = claim.definition
    # The base class of Keras counts calls, everstep.accumulate counts what is pending.
    is_native = claim.entry is not None or claim.entries and "pending" not in counts
    steps = calls_per_update(claim, definition) if is_native else None
    if steps and "updates" in counts:
        counts = {"updates": counts["updates"] // steps, "steps": counts["updates"],
                  "pending": counts["updates"] % steps}
    if "updates" not in counts and claim.powers:
        counts["updates"], note = _count_of_optimizers(claim)
        claim = claim.with_note(note)
    if counts.get("updates") is None and "global_step" in values:
        counts["updates"] = int(np.asarray(values["global_step"]))
    if counts.get("updates") is None:
        is_ours = claim.entry is None and all_slots(definition)
        if type(definition.base) in _COUNTED or is_ours or _has_schedule(definition):
            raise FileError(
                "{} has no count of updates, which {} needs: no beta powers, no iterations, no global_step. Give "
                "updates= (--updates)".format(claim.path, definition._short())
            )
        claim = claim.with_note("no count of updates, which its rule does not need; read as 0")._replace(counted=False)
        counts["updates"] = 0
    if isinstance(definition, LossScale) and (claim.scaling is not None or claim.loss_scale):
        counts = dict({"steps": counts["updates"], "pending": 0}, **counts)
    missing = [name for name in counters(definition) if name not in counts]
    if missing:
        raise FileError("{} has no {}; it is not of {}".format(claim.path, ", ".join(missing), definition._short()))
    if any(count < 0 for count in counts.values()):
        raise FileError("{} has a negative count: {}".format(claim.path, counts))
    return claim, counts


def _count_of_optimizers(claim):
    """Returns (the count that the beta powers of a file imply or None, a note or None).

    Raises:
        FileError: they are of several optimizers, which have made different numbers of updates.
    """
    counts = counts_of_powers(claim)
    found = OrderedDict(counts.values())
    if len(found) > 1:
        raise FileError(
            "{} has the beta powers of {} optimizers: {}. Give updates= (--updates), the name of one of them, and "
            "variables= (--variables), those that it trained; or a partition with a branch for each".format(
                claim.path, len(counts), described(counts)))
    return next(iter(found.items()), (None, None))


def _with_starts(claim, updates):
    """Returns (the claim of a partition whose branches counted by themselves, the count that they share or None).

    The partition counts from the branch that has made the fewest updates; the others start ahead of it.
    """
    if not claim.branches:
        raise StateError("updates={{branch: count}} is for a partition of the optimizers in a checkpoint of "
                         "tf.train.Saver; got {!r} for {}".format(updates, claim.definition._short()))
    counts = branch_counts(claim, updates)
    for note in OrderedDict.fromkeys(note for _, note in counts.values()):
        claim = claim.with_note(note)
    least = min([count for count, _ in counts.values()] or [None])
    starts = {branch: count - least for branch, (count, _) in counts.items() if count > least}
    if starts:
        claim = claim.with_note("its optimizers have made {} updates: the partition counts from {}, with {}".format(
            " and ".join("{} ({})".format(count, branch) for branch, (count, _) in counts.items()), least,
            "starts={}".format(starts)))
        claim = claim._replace(definition=claim.definition.replace(starts=starts))
    return claim, least


def _with_loss_scale(claim):
    """Returns (claim, the loss scale of a file of a LossScaleOptimizer as `State.loss_scale`, or None).

    If the definition is `everstep.loss_scale`, its scalars are added to the claim's values instead.
    """
    if claim.scaling is None and not claim.loss_scale:
        return claim, None
    stored = {name: float(np.asarray(handle)) for name, handle in claim.loss_scale.items()}
    if not stored:
        claim = claim.with_note("it is of a LossScaleOptimizer, without its scale, which starts anew")
    if not isinstance(claim.definition, LossScale):
        if stored:
            claim = claim.with_note("it is of a LossScaleOptimizer, with a scale of {scale:g} after {good_steps:g} "
                                    "good steps".format(**stored))
        return claim, stored or None
    stored = stored or {"scale": claim.definition.initial_scale, "good_steps": 0.0}
    return claim._replace(values=dict(scalars_of(claim.definition, stored), **claim.values)), None


def _has_schedule(definition):
    hypers = flat(definition, "hyper")
    return DECAY in hypers or any(isinstance(owner._values[each.name], Schedule) for owner, each in hypers.values())


def _scalars(claim, updates):
    """Returns {name: number} of the definition's scalars, stored or derived from the count."""
    definition, values = claim.definition, claim.values
    names = list(flat(definition, "scalar"))
    scalars = {} if set(names) <= set(values) else _derived(definition.base, updates)
    scalars.update((name, float(np.asarray(values[name]))) for name in names if name in values)
    for name in names:
        if name not in scalars:
            raise FileError("{} has no {}, which {} needs".format(claim.path, name, definition._short()))
    return OrderedDict((name, scalars[name]) for name in names)


def _derived(rule, updates):
    """Returns the scalars that stock files leave out but that follow from the count, if the hypers never changed."""
    if isinstance(rule, Nadam):
        steps = np.arange(1, min(updates, 10**6) + 1, dtype=np.float64)  # the product is 0 long before that
        return {"momentum_product": float(np.prod(rule.scheduled(rule, steps))) if rule.momentum_schedule else 1.0}
    if isinstance(rule, RAdam) and isinstance(rule.beta_2, float):
        weights = rule.beta_2 ** np.arange(min(updates, 10**6), dtype=np.float64)
        return {"weights_sum": float(weights.sum()), "ages_sum": float(weights.dot(np.arange(1, len(weights) + 1)))}
    if isinstance(rule, ScheduleFreeAdamW) and rule.averaging_power == rule.rate_power == 0:  # equal weights
        rate = rule.learning_rate if isinstance(rule.learning_rate, float) else 0.0
        return {"greatest_rate": rate * min(1, updates / max(1, rule.warmup_steps)), "weights_sum": float(updates)}
    return {}


def _as_definition(state, claim, learning_rate):
    """Returns a state, read with its stock optimizer's form of momentum, in the form of the given definition."""
    definition, entry = claim.definition, claim.entry
    stock_form = other_form(definition, entry)
    if stock_form is None:
        return state
    if learning_rate is None:
        raise StateError(
            "{} keeps its momentum as the sum of gradients{}, {} otherwise: give learning_rate= (--learning-rate), the "
            "rate that was in force, or rate_in_velocity={} to the definition".format(
                entry.native, " times -rate" if stock_form else "", definition._short(), stock_form))
    config = definition.base.replace(rate_in_velocity=stock_form).get_config(strict=False)
    stock_state = state.replace(definition=config)
    state.slots = convert_momentum(stock_state, definition.base.rate_in_velocity, learning_rate).slots
    return state
