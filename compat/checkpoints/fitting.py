"""Fits the arrays of a file that goes by position to a layout: which array is which slot of which variable."""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict, namedtuple

import numpy as np

from everstep.compat.checkpoints.conversions import factored_shape, first_few
from everstep.compat.checkpoints.layouts import engine_variants, named_so, optional_slots, record_of, slots_of_rank
from everstep.compat.engine.fast_forward import HISTORY, LENGTH, SUMS
from everstep.compat.engine.missed_sums import BLOCKS
from everstep.compat.engine.step import ENGINE_SLOTS
from everstep.compat.files.contents import Handle
from everstep.compat.stock.entry import Slot
from everstep.errors import StateError
from everstep.optimizers.contract import flat
from everstep.optimizers.wrappers.partition import Partition

RANKED = ("matrix", "vector")  # slots that some variables have not


def fits(entries, layout, definition, known, target, counts="iu"):
    """Yields ({name: handle} of the head and tail, [VariableSlots]) for each way in which the arrays fit a layout.

    Args:
        known: `{name: shape}` of the model's variables, in order; a shape may be None.
        counts: the kinds of dtypes that a count may have.
    """
    outside = layout.head + layout.tail
    if len(entries) < len(outside):
        return
    slot_arrays = entries[len(layout.head) : len(entries) - len(layout.tail)]
    tail = entries[len(entries) - len(layout.tail) :] if layout.tail else []
    optimizer_values = OrderedDict(zip(outside, [handle for _, handle in entries[: len(layout.head)] + tail]))
    for name, handle in optimizer_values.items():
        is_count = name in ("updates", "pending", "steps")
        if handle.shape != () or np.dtype(handle.dtype).kind not in (counts if is_count else "fV"):
            return
    rule, around = layout.rule or definition, layout.around
    if isinstance(rule.base, Partition):
        splits = _behind(slot_arrays, around, known, lambda rest: _split_by_branch(rest, rule, known, target))
    else:
        splits = _behind(slot_arrays, around, known, lambda rest: _split_by_name(rest, layout.blocks, rule, known))
        splits = splits or _split_into_variables(slot_arrays, around + layout.blocks if around else layout.blocks)
    ranks = {}
    for variables in splits:
        if not all(map(named_so, variables)):
            continue
        if all(map(_consistent, variables)) and all(_as_declared(slots, definition) for slots in variables):
            yield optimizer_values, [_used_slots(slots, definition, ranks) for slots in variables]


def _behind(arrays, around, known, split):
    """Returns the splits of arrays whose first ones are in `around`, blocks with the same slots for every variable.

    Args:
        split: returns the splits of the other arrays.
    """
    if not around:
        return split(arrays)
    place = len(known) * sum(map(len, around))
    if place > len(arrays):
        return []
    first = _plain_variables(arrays, around, len(known))
    return [[OrderedDict(list(before.items()) + list(after.items())) for before, after in zip(first, variables)]
            for variables in split(arrays[place:]) if len(variables) == len(first)]


def _split_by_name(arrays, blocks, definition, known):
    """Returns [[{slot: (name, handle)} of each variable]] of a rule that chooses slots by the variables' names, or [].

    Muon does: an embedding has more slots than another matrix of its shape. If the names in the file are not those that
    the rule looks at, the variables' shapes say it, unless neighbours have the same shape.
    """
    optional = optional_slots(definition)
    if len(blocks) != 1 or not optional:
        return []
    shapes = list(known.values())
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
    shapes = list(known.values())
    taken = {definition.base.branch_of(record_of(name, shape or (2,))) for name, shape in zip(known, shapes)}
    idle = {name for name, _ in definition.base.rules}.difference(taken)
    if idle:
        raise StateError(
            "the branch {} of {} takes no variable of the file, which has {}. Give variables= (--variables), the names "
            "that the rules of the partition look for, in the order of the model's trainable weights".format(
                sorted(idle)[0], definition._short(), first_few(known)))
    choices = []
    for name, shape in zip(known, shapes):
        full, several = slots_of_rank(definition, 1, name), []  # a matrix may have `rows` and `columns` instead
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
    if place == len(arrays) or shape is not None and arrays[place][1].shape != shape:
        yield [], place  # this variable is not trained
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
    if full_shapes:
        return max(full_shapes, key=len)
    return factored_shape({slot.name: handle for slot, (_, handle) in stored_slots.items()})


def _consistent(stored_slots):
    """Returns True if the slots can be of one variable. An unused slot may be a placeholder of shape (1,)."""
    variable_shape, shapes, placeholder = None, set(), False
    for slot, (_, handle) in stored_slots.items():
        if slot.name in ENGINE_SLOTS:
            if not _is_engine_slot(slot.name, handle):
                return False
        elif slot.rank == "matrix":
            variable_shape = variable_shape or _variable_shape(stored_slots)
            if len(variable_shape) > 1:
                other_size = variable_shape[-1 if slot.name.rpartition("/")[2] == "rows" else -2]
                if np.prod(handle.shape) * other_size != np.prod(variable_shape):
                    return False
        elif slot.native and slot.rank != "own":
            shapes.add(handle.shape)
            placeholder = placeholder or slot.always and handle.shape == (1,)
    return len(shapes) <= 1 or len(shapes) == 2 and placeholder


def _is_engine_slot(name, handle):
    """Returns whether an array can be this slot of the engine: a table, or else counts."""
    if name not in (HISTORY, SUMS):
        return np.dtype(handle.dtype).kind in "iu"
    rows = handle.shape[0] if len(handle.shape) == 2 else 0
    return rows == LENGTH if name == HISTORY else rows > BLOCKS and np.dtype(handle.dtype) == np.float64


def _as_declared(stored_slots, definition):
    """Returns whether slots with a shape of their own have the one that the definition gives them."""
    own = [(slot.name, handle) for slot, (_, handle) in stored_slots.items() if slot.rank == "own"]
    if not own:
        return True
    record, declared = record_of("", _variable_shape(stored_slots)), flat(definition, "slot")
    return all(handle.shape == tuple(declared[name][1].shape_for(record, declared[name][0]))
               for name, handle in own if name in declared)


# slots: {name: handle}; shape: the variable's; names: the slots' names in the file.
VariableSlots = namedtuple("VariableSlots", "slots shape names")


def _used_slots(stored_slots, definition, ranks):
    """Returns the slots of a variable that the definition uses, in the definition's shapes.

    Args:
        ranks: {rank: names of the slots of such variables}, as far as they are known.
    """
    factored = [slot for slot in stored_slots if slot.rank == "matrix"]
    shape = _variable_shape(stored_slots) if factored else ()
    rank = len(shape) or 1
    if rank not in ranks:
        ranks[rank] = slots_of_rank(definition, rank) + list(ENGINE_SLOTS)
    used_slots = OrderedDict([(slot, handle) for slot, (_, handle) in stored_slots.items() if slot.name in ranks[rank]])
    shape = shape or next(iter(used_slots.values()), next(iter(stored_slots.values()))[1]).shape
    for slot in [slot for slot in factored if slot in used_slots]:
        owner, declared = flat(definition, "slot")[slot.name]
        used_slots[slot] = reshaped(used_slots[slot], declared.shape_for(record_of("", shape), owner))
    return VariableSlots(OrderedDict([(slot.name, handle) for slot, handle in used_slots.items()]), shape,
                          [name for name, _ in stored_slots.values()])


def reshaped(handle, shape):
    """Returns a handle that reads an array in another shape with as many elements."""
    if tuple(handle.shape) == tuple(shape):
        return handle
    return Handle(getattr(handle, "name", "array"), shape, handle.dtype,
                  lambda selection: np.reshape(np.asarray(handle), shape)[selection])
