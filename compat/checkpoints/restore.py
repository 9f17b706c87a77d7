"""`everstep.restore`: loads a state into an optimizer."""
from __future__ import absolute_import, division, print_function

import functools
import numbers
from collections import OrderedDict

import numpy as np

from everstep.compat.checkpoints import in_trees
from everstep.compat.checkpoints.live import differing_hypers, open_access
from everstep.compat.checkpoints.matching import match
from everstep.compat.checkpoints.state import State
from everstep.compat.checkpoints.unwrapping import scalars_of, scale_variables, unwrapped
from everstep.compat.checkpoints.values import Checked, Room, numeric_array, shape_of
from everstep.compat.engine import fast_forward
from everstep.compat.engine.step import counters
from everstep.compat.rules.operations import END
from everstep.compat.targets.hypers import check
from everstep.compat.targets.optax_transform import transform_of
from everstep.errors import HyperTypeError, HyperValueError, StateError
from everstep.optimizers.contract import Schedule, flat, tree
from everstep.optimizers.contract.checks import TEXT
from everstep.optimizers.wrappers.loss_scale import LossScale

KEPT_BYTES = 1 << 26  # so many bytes of a file's arrays are kept after their check; the others are read twice


def restore(
    optimizer=None,
    state=None,
    variables=None,
    session=None,
    rename=(),
    by_order=False,
    weights=False,
    hypers=False,
    other_definition=False,
    partial=False,
):
    """Restores a state into a bound optimizer, trained or new. If it fails, nothing has changed.

        >>> import numpy as np
        >>> from everstep import capture, optimizers, restore
        >>> weights = np.ones(2)
        >>> optimizer = optimizers.SGD(0.5, momentum=0.5).bind(np)
        >>> _ = optimizer.apply_gradients([(np.ones(2), weights)])
        >>> resumed = optimizers.SGD(0.5, momentum=0.5).bind(np)
        >>> restore(resumed, capture(optimizer, {"w": weights}), {"w": weights})
        VARIABLE  IN THE STATE  MATCHED BY
        w         w             name

    Args:
        optimizer: always needed: the optimizer that `bind(module)` returned. If it has not trained yet, its slots are
            created now; only tf.train in a graph needs `minimize` or `apply_gradients` first.
        state: always needed: a `State`.
        variables: always needed: all variables that the optimizer trains, as for `capture`. For a transform of optax,
            the tree of the parameters.
        session: as for `capture`.
        rename: a list of "OLD=NEW" strings or (old, new) pairs, for variables that the state calls OLD and you call
            NEW. OLD is a regular expression for a whole name; NEW may refer to its groups: \\1, \\g<name>. A name that
            both sides have is never renamed.
        by_order: True matches the variables that are left over in order, if their number and the shapes of their slots
            agree. Default False. A state without an order (`state.ordered`), such as one of tf.train.Saver, is matched
            only where names or shapes leave one way.
        weights: True also sets the variables to the values in the state. Default False.
        hypers: True also sets the optimizer's hypers to those of the state, if the API can set hypers. Default False.
        other_definition: True accepts a state of another definition, or of the same one with other options. Default
            False.
        partial: True restores the variables that match, and the counters and scalars. Default False. The others keep
            what they have; `missing` and `unused` of the result name them and say why. Only names decide, and `rename`.

    Without `partial`, names may also differ by a prefix (`model/`) or by instance numbers (`dense_9` is `dense_12`), if
    that leaves one way to match all variables.

    Returns:
        A `Matching`: how each variable was matched. It prints as a table. For a transform of optax, which holds no
        state itself, the new state of the optimizer, or with `weights` (the state, the parameters).

    Raises:
        StateError: the state does not fit the definition, the variables or the slots. The message names the first
            mismatch, and what to do.
        VariableError: `variables` has something that is not a variable, one twice, or only some parts of one.
        UnsupportedError: `optimizer` is not a bound optimizer.
    """
    transform, how = transform_of(optimizer), (rename, by_order, weights, hypers, other_definition, partial)
    if transform is not None:
        with in_trees.started(transform, variables) as tree:
            _restored(tree.layout.native, state, tree.named(), None, {}, *how)
            return (tree.state(), tree.params()) if weights else tree.state()
    return _restored(unwrapped(optimizer), state, variables, session, scale_variables(optimizer), *how)


def _restored(optimizer, state, variables, session, scale, rename, by_order, weights, hypers, other_definition,
              partial):
    """Restores, and returns the `Matching`. `scale`: {name: variable} of a LossScaleOptimizer around the optimizer."""
    with open_access(optimizer, variables, session) as access:
        bound = access.bound
        if bound.is_averaged:
            raise StateError(
                "there is nothing to restore inside of everstep.averaged: the end of its block would undo it"
            )
        _check_state(state)
        if state.loss_scale is not None and isinstance(bound.definition, LossScale):
            state = _with_loss_scale(state, bound.definition)
        # Read and check everything first, so that a restore that fails has changed nothing.
        if not other_definition:
            _check_definition(state.definition, bound.definition)
        optimizer_values = _optimizer_values(state, bound)
        hyper_values = _hyper_values(state, bound) if hypers else {}
        matching, values = _slot_values(state, access, rename, by_order, weights, partial)
        if partial:  # variables that the state lacks keep what was loaded before
            bound.adapter.carries.give(bound, access.variables)
        else:
            bound.adapter.carries.keep(bound, None)
        bound.lost = None
        access.backend.start(bound.adapter.make_state(access.variables), access.session)
        writes = access.assignments(values)
        for name, variable in bound.adapter.own_variables().items():
            dtype = bound.backend.dtype(bound.adapter.unwrap(variable))
            writes.append((variable, Checked(name, optimizer_values[name], (), dtype), False))
        for name, variable in scale.items() if state.loss_scale is not None else ():
            writes.append((variable, functools.partial(np.asarray, state.loss_scale[name]), False))
        access.write(writes)
        for name, value in hyper_values.items():
            access.set_hyper(name, value)
        return matching


def _check_state(state):
    """Raises StateError unless this is a State whose parts have the right types."""
    if not isinstance(state, State):
        raise StateError("restore takes an everstep.State, such as everstep.capture gives; got {!r}".format(state))
    if not isinstance(state.definition, (dict, type(None))):
        raise StateError("the definition of a state is a config; got {!r}".format(state.definition))
    for name, slots in state.slots.items():
        if not isinstance(name, TEXT) or not isinstance(slots, dict):
            raise StateError("the slots of a state are {{name: {{name: array}}}}; got {!r}: {!r}".format(name, slots))


def _with_loss_scale(state, definition):
    """Returns the state of a LossScaleOptimizer around an optimizer as one of `everstep.loss_scale` around it."""
    if state.definition is None or state.definition.get("definition") == type(definition).__name__:
        return state
    config = dict(definition.get_config(strict=False), inner=state.definition)
    steps = state.updates if state.steps is None else state.steps  # the number of skipped steps is not known
    scalars = dict(state.scalars, **scalars_of(definition, state.loss_scale))
    return state.replace(definition=config, steps=steps, scalars=scalars)


def _slot_values(state, access, rename, by_order, weights, partial):
    """Returns (matching, [(whole variable, slot or None for the variable itself, checked value)])."""
    state_shapes, given_shapes = OrderedDict(), OrderedDict()
    for name, whole in access.wholes.items():
        given_shapes[name] = {slot: whole.declaration(slot)[1]
                              for slot in whole.slot_names if slot not in fast_forward.SLOTS}
    for name, slots in state.slots.items():
        state_shapes[name] = {slot: shape_of(slot, slots[slot]) for slot in slots if slot not in fast_forward.SLOTS}
    matching = match(state_shapes, given_shapes, rename, by_order, state.ordered and access.ordered, partial)
    values, room = [], Room(KEPT_BYTES)
    for name, old, _ in matching.matches:
        whole = access.wholes[name]
        slots = _with_missed_steps(name, state.slots[old], whole, state.updates)
        _check_names("slots of {}".format(name), slots, whole.slot_names, access.owner + " needs")
        for slot in whole.slot_names:
            _, shape, dtype = whole.declaration(slot)
            values.append((whole, slot, Checked("{}/{}".format(name, slot), slots[slot], shape, dtype, room)))
        if weights:
            if old not in state.variables:
                raise StateError(
                    "the state has no value of {}; everstep.capture(..., weights=True) takes them".format(old)
                )
            values.append((whole, None, Checked(name, state.variables[old], whole.shape, whole.dtype, room)))
    return matching, values


def _with_missed_steps(name, slots, whole, now):
    """Returns a variable's slots with exactly those of `sparse="catch_up"` that the optimizer needs.

    If no row has missed a step, they get their initial values, or are dropped if the optimizer has no place for them.
    The table of sums over missed steps is computed from the history that older states have instead.
    """
    needed, present = (set(names).intersection(fast_forward.SLOTS) for names in (whole.slot_names, slots))
    if needed == present:
        return slots
    others = {slot: handle for slot, handle in slots.items() if slot not in present}
    declared = {slot: whole.declaration(slot) for slot in needed}
    initial = {slot: np.full(shape, value, dtype) for slot, (value, shape, dtype) in declared.items()}
    if not present:
        return dict(others, **initial)
    row_updates, updates = [
        numeric_array(slot, slots[slot], np.shape(slots[slot])) if slot in present else None
        for slot in (fast_forward.ROWS, fast_forward.UPDATES)
    ]
    if row_updates is not None and updates is not None and not np.any(row_updates != updates):
        return dict(others, **initial)
    has_history = row_updates is not None and updates is not None and fast_forward.HISTORY in present
    if not has_history or needed - present != {fast_forward.SUMS}:
        raise StateError(
            "{}: the state has rows with steps that they have yet to take, which this optimizer cannot hold: call "
            "optimizer.flush() before the capture".format(name)
        )
    history = slots[fast_forward.HISTORY]
    history = numeric_array(fast_forward.HISTORY, history, np.shape(history))
    rule = whole.bound.rule(whole.first)
    table = fast_forward.sums_of_history(rule, whole.record, history, row_updates, updates, now)
    kept = {slot: slots[slot] for slot in needed.intersection(present)}
    return dict(others, **dict(kept, **{fast_forward.SUMS: table}))


def _check_names(kind, state_names, needed_names, needed_by):
    """Raises StateError unless the state has exactly the needed names."""
    if set(state_names) != set(needed_names):
        raise StateError(
            "the state has the {} {}; {} {}".format(
                kind, ", ".join(sorted(state_names)) or "none", needed_by, ", ".join(sorted(needed_names)) or "none"
            )
        )


def _optimizer_values(state, bound):
    """Returns {name: value} of the counters and scalars."""
    owner = bound.owner
    scalars = flat(bound.definition, "scalar")
    _check_names("scalars", state.scalars, scalars, owner + " needs")
    values = {}
    for name in counters(bound.definition):
        values[name] = getattr(state, name)
        if not isinstance(values[name], numbers.Integral) or values[name] < 0:
            raise StateError("the state has {} = {!r}; {} needs a count".format(name, values[name], owner))
    values["updates"] *= bound.adapter.calls_per_update()
    dtype = bound.backend.stored("int64")
    for name, value in values.items():
        if value > END[dtype]:
            raise StateError(
                "the state has {} = {}; a counter of {} is of {} on {} and ends at {}. Restore into an API with "
                "counters of int64: all but Keras 3 on JAX and torch, and optax".format(
                    name, value, owner, dtype, bound.backend.name, END[dtype]
                )
            )
    for name in scalars:
        values[name] = np.asarray(numeric_array(name, state.scalars[name], ()), np.float32)
    return values


def _check_definition(state_config, definition):
    """Raises StateError if slots of equal names might mean something else."""
    if state_config is None:
        return
    config = definition.get_config(strict=False)
    difference = _first_difference(state_config, config, definition)
    if difference:
        raise StateError(
            "the state is of {}, this optimizer is {}. If their slots mean the same, give "
            "other_definition=True".format(*difference)
        )


def _first_difference(state_config, config, definition):
    """Returns the first difference that changes the meaning of slots, as two texts (state, optimizer), or None."""
    name = config["definition"]
    if state_config.get("definition") != name:
        return state_config.get("definition"), name
    for key, child in definition.children().items():
        child_config = state_config.get(key)
        difference = _first_difference(child_config if isinstance(child_config, dict) else {}, config[key], child)
        if difference:
            return difference
    for option, declaration in definition.declarations.items():
        if declaration.kind == "option" and option not in definition.keyword_only:
            values = [_normalized(each.get(option, declaration.default)) for each in (state_config, config)]
            if values[0] != values[1]:
                return tuple("{} with {}={!r}".format(name, option, value) for value in values)
    return None


def _normalized(value):
    """Returns a config value with lists as tuples, so that equal values compare equal."""
    if isinstance(value, dict):
        return {name: _normalized(inner) for name, inner in value.items()}
    return tuple(map(_normalized, value)) if isinstance(value, (list, tuple)) else value


def _hyper_values(state, bound):
    """Returns {name: number} of the hypers to set."""
    owner = bound.owner
    if state.definition is None:
        raise StateError("the state has no hypers to set: it does not say which definition it is of")
    if not bound.adapter.sets_hypers:
        raise StateError(
            "hypers of {} cannot be set: on {} they are constants. Bind "
            "everstep.Definition.from_config(state.definition)".format(owner, bound.adapter.target)
        )
    differing = differing_hypers(bound)
    if differing:
        raise StateError("{}: its parameter groups have different values of {}, and a state has one; restore it "
                         "without hypers=True".format(owner, " and ".join(sorted(differing))))
    values = {}
    for name, value in _config_hypers(tree(bound.definition), state.definition):
        current = bound.given(name)
        if isinstance(current, Schedule) and current.get_config() == value:
            continue
        try:
            values[name] = check(bound, name, value)
        except (HyperTypeError, HyperValueError) as error:
            raise StateError("{} of the state cannot be set: {}".format(name, error))
    return values


def _config_hypers(node, config):
    """Yields (flat name, value or None) of every hyper in a config."""
    for name, declaration in node.definition.declarations.items():
        if declaration.kind == "hyper":
            yield node.prefix + name, config.get(name)
    for key, child in node.children.items():
        child_config = config.get(key)
        for item in _config_hypers(child, child_config if isinstance(child_config, dict) else {}):
            yield item
