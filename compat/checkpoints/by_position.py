"""Finds the slots in files that store an optimizer's arrays by position: those of Keras."""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict, namedtuple

import numpy as np

from everstep.compat.checkpoints.claims import Claim
from everstep.compat.checkpoints.conversions import first_few
from everstep.compat.checkpoints.layouts import (
    engine_variants,
    layouts_of,
    named_so,
    optional_slots,
    record_of,
    slots_of_rank,
)
from everstep.compat.checkpoints.unwrapping import inner_config
from everstep.compat.engine.fast_forward import HISTORY, LENGTH, SUMS
from everstep.compat.engine.missed_sums import BLOCKS
from everstep.compat.engine.step import ENGINE_SLOTS
from everstep.compat.files.contents import Handle, numbered
from everstep.compat.stock.entry import Slot
from everstep.compat.targets.construction import CONFIG_KEY
from everstep.errors import FileError, StateError
from everstep.optimizers.contract import flat
from everstep.optimizers.contract.checks import TEXT
from everstep.optimizers.wrappers.partition import Partition

RANKED = ("matrix", "vector")  # slots that some variables have not


def _fits(entries, layout, definition, known, target):
    """Yields ({name: handle} of the head and tail, [_VariableSlots]) for each way in which the arrays fit a layout.

    Args:
        known: `{name: shape}` of the model's variables, in order; a shape may be None.
    """
    outside = layout.head + layout.tail
    if len(entries) < len(outside):
        return
    slot_arrays = entries[len(layout.head) : len(entries) - len(layout.tail)]
    tail = entries[len(entries) - len(layout.tail) :] if layout.tail else []
    optimizer_values = OrderedDict(zip(outside, [handle for _, handle in entries[: len(layout.head)] + tail]))
    for name, handle in optimizer_values.items():
        is_count = name in ("updates", "pending", "steps")
        if handle.shape != () or (np.dtype(handle.dtype).kind in "iu") != is_count:
            return
    if isinstance(definition.base, Partition):
        splits = _split_by_branch(slot_arrays, definition, known, target)
    else:
        splits = _split_by_name(slot_arrays, layout.blocks, definition, known) or _split_into_variables(
            slot_arrays, layout.blocks)
    for variables in splits:
        fit = all(map(named_so, variables)) and all(map(_consistent, variables))
        if fit and all(_as_declared(slots, definition) for slots in variables):
            yield optimizer_values, [_used_slots(slots, definition) for slots in variables]


def _split_by_name(arrays, blocks, definition, known):
    """Returns [[{slot: (name, handle)} of each variable]] of a rule that chooses slots by the variables' names, or [].

    Muon does: an embedding has more slots than another matrix of its shape. If the names in the file are not those that
    the rule looks at, the variables' shapes say it, unless neighbours have the same shape.
    """
    optional = optional_slots(definition)
    if len(blocks) != 1 or not optional:
        return []
    shapes = [tuple(shape) if shape is not None else None for shape in known.values()]
    by_name = [set(slots_of_rank(definition, 1 if shape is None else len(shape), name))
               for name, shape in zip(known, shapes)]
    every, fewer = blocks[0], [slot for slot in blocks[0] if slot.name not in optional]
    for others in ([fewer], [fewer, every]):
        found = _only_split(arrays, shapes, [[every] if optional <= names else others for names in by_name])
        if found:
            return found
    return []


def _split_by_branch(arrays, definition, known, target):
    """Returns [[{slot: (name, handle)} of each variable]] of a partition, whose branches have their own slots, or [].

    Raises:
        StateError: no variable's name is one that a branch looks for.
    """
    shapes = [tuple(shape) if shape is not None else None for shape in known.values()]
    taken = {definition.base.branch_of(record_of(name, shape or (2,))) for name, shape in zip(known, shapes)}
    idle = {name for name, _ in definition.base.rules}.difference(taken)
    if idle:
        raise StateError(
            "the branch {} of {} takes no variable of the file, which has {}. Give variables= (--variables), the names "
            "that the rules of the partition look for, in the order of the model's trainable weights".format(
                sorted(idle)[0], definition._short(), first_few(known)))
    choices = []
    for name, shape in zip(known, shapes):
        full, several = slots_of_rank(definition, 1, name), []  # a matrix may have rows and columns in their place
        for rank in {1, 2} if shape is None else {len(shape)}:
            rule = definition.specialize(record_of(name, (2,) * rank))
            slots = [Slot(slot, slot, False, "matrix" if slot not in full else "own" if each.shape is not None else "")
                     for slot, (_, each) in flat(rule, "slot").items()]
            several += [slots + beside for beside in engine_variants(rule, target) if slots + beside not in several]
        choices.append(several)
    return _only_split(arrays, shapes, choices)


def _only_split(arrays, shapes, choices):
    """Returns [the split of the arrays into variables, if there is exactly one].

    Args:
        shapes: the variables' shapes; None for one that is not known.
        choices: the lists of slots that each variable may have.
    """
    ways, places = [], {0}  # [{place: [(what a variable takes there, the next place)]}], for places that are reached
    for shape, several in zip(shapes, choices):
        ways.append({place: list(_takings(arrays, shape, several, place)) for place in places})
        places = {end for taken in ways[-1].values() for _, end in taken}
    splits = {len(arrays): [[]]}  # {place: at most two splits of the rest}
    for way in reversed(ways):
        splits = {place: [taken + rest for taken, end in takings for rest in splits.get(end, ())][:2]
                  for place, takings in way.items()}
    return splits[0] if len(splits.get(0, ())) == 1 and splits[0][0] else []


def _takings(arrays, shape, choices, place):
    """Yields ([{slot: (name, handle)}] that a variable may take from a place on, the next place); [] if it has none."""
    if place == len(arrays) or shape is not None and tuple(arrays[place][1].shape) != shape:
        yield [], place  # it is not trained
    for slots in choices:
        taken = OrderedDict(zip(slots, arrays[place : place + len(slots)]))
        if len(taken) == len(slots) and _consistent(taken):
            if shape is None or all(handle.shape == shape for slot, (_, handle) in taken.items()
                                    if slot.name not in ENGINE_SLOTS and slot.rank not in ("matrix", "own")):
                yield [taken], place + len(slots)


def _split_into_variables(arrays, blocks):
    """Yields every split of the arrays into variables, each a list of {slot: (name, handle)}."""
    plain_blocks = [block for block in blocks if not any(slot.rank in RANKED for slot in block)]
    plain_width = sum(map(len, plain_blocks))
    max_count = len(arrays) // plain_width if plain_width else 0
    if plain_blocks == blocks:
        if len(arrays) == max_count * plain_width:
            yield _plain_variables(arrays, blocks, max_count)
        return
    for chain in _chains(arrays, blocks[-1]):
        for count in range(max_count + 1):
            place = plain_width * count
            if place not in chain or plain_blocks and chain[place][2] != count:
                continue
            ranked = []
            while place < len(arrays):
                taken, place, _ = chain[place]
                ranked.append(taken)
            yield [OrderedDict(list(plain_slots.items()) + list(ranked_slots.items()))
                   for plain_slots, ranked_slots in zip(_plain_variables(arrays, plain_blocks, len(ranked)), ranked)]


def _plain_variables(arrays, blocks, count):
    """Returns the slots of each variable in blocks that are the same for all variables."""
    place, variables = 0, [OrderedDict() for _ in range(count)]
    for block in blocks:
        for variable in range(count):
            for slot in block:
                variables[variable][slot] = arrays[place]
                place += 1
    return variables


def _chains(arrays, block):
    """Yields {place: ({slot: (name, handle)} there, the next place, the number of variables from here to the end)}.

    They are for a block in which vectors have other slots than matrices. Keras saves scalars in place of a vector's
    rows and columns, which do not exist; everstep saves nothing. A file does it for all vectors: if each could choose,
    there would be 2**n ways to read n of them.
    """
    chains = []
    for ranks_of_vector in (("", "vector"), ("", "matrix"))[: 1 + any(slot.rank == "matrix" for slot in block)]:
        chain = {len(arrays): ({}, len(arrays), 0)}
        for place in reversed(range(len(arrays))):
            taken = _variable_at(arrays, place, block, ranks_of_vector)
            if taken is not None and place + len(taken) in chain:
                end = place + len(taken)
                chain[place] = taken, end, 1 + chain[end][2]
        if chain not in chains:
            chains.append(chain)
            yield chain


def _variable_at(arrays, place, block, ranks_of_vector):
    """Returns {slot: (name, handle)} of the variable whose arrays begin at a place; None if there is none."""
    for rank, ranks in (("matrix", ("", "matrix")), ("vector", ranks_of_vector)):
        slots = [slot for slot in block if slot.rank in ranks or slot.rank == "own"]
        taken = OrderedDict(zip(slots, arrays[place : place + len(slots)]))
        if not slots or len(taken) < len(slots) or (len(_variable_shape(taken)) > 1) != (rank == "matrix"):
            continue
        placeholders = [handle for slot, (_, handle) in taken.items() if rank == "vector" and slot.rank == "matrix"]
        if _consistent(taken) and all(handle.shape == () for handle in placeholders):
            return taken
    return None


def _variable_shape(stored_slots):
    """Returns the shape of the variable with these slots: that of a full slot, or of rows and columns together."""
    full_shapes = [handle.shape for slot, (_, handle) in stored_slots.items()
                   if slot.rank not in ("matrix", "own") and slot.name not in ENGINE_SLOTS]
    if full_shapes or not stored_slots:
        return max(full_shapes, key=len) if full_shapes else ()
    rows, columns = [handle.shape for _, handle in stored_slots.values()][:2]
    return rows[:-1] + columns[-1:] if len(rows) == len(columns) > 1 else ()


def _consistent(stored_slots):
    """Returns True if the slots can be of one variable. An unused slot may be a placeholder of shape (1,)."""
    counts = [handle for slot, (_, handle) in stored_slots.items()
              if slot.name in ENGINE_SLOTS and slot.name not in (HISTORY, SUMS)]
    if any(np.dtype(handle.dtype).kind not in "iu" for handle in counts):
        return False
    tables = {slot.name: handle for slot, (_, handle) in stored_slots.items() if slot.name in (HISTORY, SUMS)}
    if any(len(handle.shape) != 2 for handle in tables.values()):
        return False
    if HISTORY in tables and tables[HISTORY].shape[0] != LENGTH:
        return False
    if SUMS in tables and (tables[SUMS].shape[0] <= BLOCKS or np.dtype(tables[SUMS].dtype) != np.float64):
        return False
    variable_shape = _variable_shape(stored_slots)
    for slot, (_, handle) in stored_slots.items():
        if slot.rank == "matrix" and len(variable_shape) > 1:
            other_size = variable_shape[-1 if slot.name.rpartition("/")[2] == "rows" else -2]
            if np.prod(handle.shape) * other_size != np.prod(variable_shape):
                return False
    shapes = set(handle.shape for slot, (_, handle) in stored_slots.items()
                 if slot.native and slot.name not in ENGINE_SLOTS and slot.rank not in ("matrix", "own"))
    return len(shapes) <= 1 or len(shapes) == 2 and (1,) in shapes and any(
        slot.always and handle.shape == (1,) for slot, (_, handle) in stored_slots.items())


def _as_declared(stored_slots, definition):
    """Returns whether slots with a shape of their own have the one that the definition gives them."""
    record = record_of("", _variable_shape(stored_slots))
    declared = flat(definition, "slot")
    return all(handle.shape == tuple(declared[slot.name][1].shape_for(record))
               for slot, (_, handle) in stored_slots.items() if slot.rank == "own" and slot.name in declared)


# slots: {name: handle}; shape: the variable's; names: the slots' names in the file.
_VariableSlots = namedtuple("_VariableSlots", "slots shape names")


def _used_slots(stored_slots, definition):
    """Returns the slots of a variable that the definition uses, in the definition's shapes."""
    shape = _variable_shape(stored_slots) if any(slot.rank == "matrix" for slot in stored_slots) else ()
    used_names = slots_of_rank(definition, len(shape) or 1) + list(ENGINE_SLOTS)
    used_slots = OrderedDict((slot, handle) for slot, (_, handle) in stored_slots.items() if slot.name in used_names)
    shape = shape or next(iter(used_slots.values()), next(iter(stored_slots.values()))[1]).shape
    record = record_of("", shape)
    for slot in [slot for slot in used_slots if slot.rank == "matrix"]:
        used_slots[slot] = reshaped(used_slots[slot], flat(definition, "slot")[slot.name][1].shape_for(record))
    return _VariableSlots(OrderedDict((slot.name, handle) for slot, handle in used_slots.items()), shape,
                          [name for name, _ in stored_slots.values()])


def reshaped(handle, shape):
    """Returns a handle that reads an array in another shape with as many elements."""
    if tuple(handle.shape) == tuple(shape):
        return handle
    return Handle(getattr(handle, "name", "array"), shape, handle.dtype,
                  lambda selection: np.reshape(np.asarray(handle), shape)[selection])


def found(contents):
    """Returns [Claim] of a file of Keras: the optimizer that was compiled, without a definition."""
    variables = [(weight.name, weight.handle) for weight in contents.weights
                 if weight.trains and weight.handle.dtype.kind in "fV"]
    names, missing = numbered([name for name, _ in variables]), list(contents.missing)
    claim = Claim(contents, variables=zip(names, [handle for _, handle in variables]), ordered=contents.ordered)
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
    fits, tried, name_errors = [], [], []
    known = OrderedDict((name, handle.shape) for name, handle in claim.variables.items())
    if variables is not None:
        known = OrderedDict((name, known.get(name)) for name in variables)
    for layout, entry in layouts_of(claim.target, definition, by_everstep):
        tried.append(layout)
        for values, per_variable in _fits(list(claim.entries), layout, definition, known, claim.target or "keras3"):
            try:
                names = list(claim.variables)
                if per_variable:
                    shapes, hints = zip(*[(each.shape, each.names) for each in per_variable])
                    names = names_of(claim, list(shapes), list(hints), variables)
            except StateError as error:
                name_errors.append(str(error))  # the text alone: the error's traceback would keep the file open
                continue
            fits.append((names, values, per_variable, entry))
    if not fits and name_errors:
        raise StateError(name_errors[0])
    if not fits:
        raise FileError(
            "{}: {} arrays of shapes {} are not the state of {} of {}: expected are {}, then the slots {}".format(
                claim.path,
                len(claim.entries),
                first_few(str(handle.shape) for _, handle in claim.entries),
                definition._short(),
                claim.target or "Keras",
                ", ".join(tried[0].head),
                " | ".join(" ".join(slot.name for slot in block) for block in tried[0].blocks) or "none",
            )
        )
    if len(set(_meaning(fit) for fit in fits)) > 1:
        raise StateError(
            "{} does not say if it is of a stock optimizer or of one that everstep bound, which store their slots in "
            "another order. Read a .keras or .h5 file of the same model, which says it".format(claim.path)
        )
    names, values, per_variable, entry = fits[0]
    slots = OrderedDict((name, OrderedDict()) for name in names)
    for name, each in zip(names, per_variable):
        slots[name].update(each.slots)
    for name, handle in claim.values.items():  # only object checkpoints have these
        values.setdefault("momentum_product" if name == "_u_product" else name, handle)
    return claim._replace(definition=definition, slots=slots, values=values, entry=entry,
                          target=claim.target or entry and entry.target,
                          shapes=dict(zip(names, [each.shape for each in per_variable])))


def _meaning(fit):
    """Returns a key that two fits share if they read the same state."""
    names, optimizer_values, per_variable, _ = fit
    slots = tuple((name, tuple((slot, id(handle)) for slot, handle in each.slots.items()))
                  for name, each in zip(names, per_variable))
    return slots or tuple(names), id(optimizer_values["updates"]) if "updates" in optimizer_values else None


def names_of(claim, shapes, hints, given=None):
    """Returns the names of the variables that the slots belong to.

    Args:
        shapes: the variables' shapes, in the order of the slots.
        hints: for each variable, the names of its slots in the file.
        given: the names, if the user gave them.

    Raises:
        StateError: the given names do not fit, or the file leaves the names open.
    """
    if given is not None:
        if len(set(given)) != len(given) or len(given) != len(shapes):
            raise StateError("the file has slots of {} variables; variables= names {}".format(len(shapes), list(given)))
        for name, shape in zip(given, shapes):
            if name in claim.variables and claim.variables[name].shape != shape:
                raise StateError("{} has shape {}; the slots in its place have {}".format(
                    name, claim.variables[name].shape, shape))
        return list(given)
    known = list(claim.variables)
    hinted = [_name_in_hints(known, texts) for texts in hints]
    if all(hinted) and len(set(hinted)) == len(hinted):
        return hinted
    if not known:
        return [str(place) for place in range(len(shapes))]
    known_shapes = [claim.variables[name].shape for name in known]
    if claim.ordered:
        if known_shapes == shapes:
            return known
        if _count_subsequences(shapes, known_shapes) == 1:
            remaining = iter(zip(known, known_shapes))
            return [next(name for name, known_shape in remaining if known_shape == shape) for shape in shapes]
    elif len(set(shapes)) == len(shapes) and all(known_shapes.count(shape) == 1 for shape in shapes):
        return [known[known_shapes.index(shape)] for shape in shapes]
    raise StateError(
        "{} has slots of shapes {}, and does not say of which of the weights {} they are. Give variables= "
        "(--variables), their names in the order of the model's trainable weights".format(
            claim.path, first_few(map(str, shapes)),
            first_few("{} {}".format(*item) for item in zip(known, known_shapes))
        )
    )


def _name_in_hints(known, texts):
    """Returns the longest known name that occurs in the names of all slots of a variable, or None."""
    texts = [text.replace("/", "_") for text in texts if text]
    matches = [name for name in known if texts and all(name.replace("/", "_") in text for text in texts)]
    return max(matches, key=len) if matches else None


def _count_subsequences(shapes, known_shapes):
    """Returns in how many ways `shapes` is a subsequence of `known_shapes`."""
    counts = [1] + [0] * len(shapes)
    for known_shape in known_shapes:
        for place in range(len(shapes), 0, -1):
            if shapes[place - 1] == known_shape:
                counts[place] += counts[place - 1]
    return counts[-1]
