"""Tells the slots in files that keep arrays by position, without names."""
from __future__ import absolute_import, division, print_function

import itertools
from collections import OrderedDict, namedtuple

import numpy as np

from everstep.compat.engine.fast_forward import HISTORY
from everstep.compat.engine.step import ENGINE_SLOTS, counters, engine_slot_names
from everstep.compat.state.conversions import some
from everstep.compat.state.native_file import Handle
from everstep.compat.stock.entry import Slot
from everstep.compat.stock.lookup import entry_for
from everstep.errors import FileError, StateError, UnsupportedError
from everstep.optimizers.contract import Variable, flat

Layout = namedtuple("Layout", "head blocks tail")  # names of what is there once, before and behind the slots


def _layouts(native, definition, ours):
    """What may stand where, in a file that goes by position: (Layout, stock entry or None) of each way."""
    targets = [native.target] if native.target else ["keras3", "update_step"]
    for target in targets:
        if ours is not False:
            for layout in _own_layouts(target, definition):
                yield layout, None
        if not ours:
            try:
                entry = entry_for(target, definition)
            except UnsupportedError:
                if native.target:
                    raise
                continue
            for layout in _stock_layouts(entry, definition):
                yield layout, entry


def _own_layouts(target, definition):
    hypers = [name for name, (owner, declaration) in flat(definition, "hyper").items()
              if isinstance(owner._values[declaration.name], float)]
    hypers = sorted(hypers, key=lambda name: name != "learning_rate")
    head = ["updates"] + (hypers if target == "keras3" else [])
    head += [name for name in counters(definition) if name != "updates"] + list(flat(definition, "scalar"))
    engine = [engine_slot_names(definition, True)]
    if target == "keras3" and engine[0] != engine_slot_names(definition, False):  # no sparse gradients there
        engine.append(engine_slot_names(definition, False))
    vectors, matrices = slots_of_rank(definition, 1), slots_of_rank(definition, 2)
    slots = [Slot(name, name, False, "" if name in vectors else "matrix") for name in matrices]
    slots += [Slot(name, name, False, "vector") for name in vectors if name not in matrices]
    for names in engine:
        block = slots + [Slot(name, name, False, "") for name in names]
        yield Layout(head, [block] if block else [], [])


def slots_of_rank(definition, rank):
    """The flat names of the slots of a variable of that rank, whatever it is called."""
    rule = definition
    if definition.base.locality == "variable":  # a factored rule keeps other slots of vectors than of matrices
        record = Variable("", (2,) * rank, "float32", 0, (), None)
        rule = definition.specialize(record)
    return list(flat(rule, "slot"))


def _stock_layouts(entry, definition):
    used = set(slots_of_rank(definition, 1)).union(slots_of_rank(definition, 2))
    first = [[Slot("accumulate/sum", "", False, "")]] if "accumulate/sum" in used else []
    ways = []
    for always in (True, False):  # Keras before 2.1.3 knew no amsgrad, and kept nothing for it
        lines = [[slot for slot in block if slot.name in used or always and slot.always] for block in entry.blocks]
        lines = first + [block for block in lines if block]
        if lines not in ways:
            ways.append(lines)
    rate = isinstance(getattr(definition.base, "learning_rate", None), float)
    choices = [(True, False) if each.optional and each.name != "learning_rate" else (not each.optional or rate,)
               for each in entry.head + entry.tail]
    for saved in itertools.product(*choices):
        kept = [each.name if is_saved else None for each, is_saved in zip(entry.head + entry.tail, saved)]
        head, tail = ([name for name in part if name] for part in (kept[: len(entry.head)], kept[len(entry.head) :]))
        if not set(head).intersection(tail):
            for lines in ways:
                yield Layout(head, lines, tail)


def _fits(entries, layout, definition):
    """({name: handle} of what is there once, [_Found of each variable]) of each way in which a layout fits."""
    once = layout.head + layout.tail
    if len(entries) < len(once):
        return
    body = entries[len(layout.head) : len(entries) - len(layout.tail)]
    tail = entries[len(entries) - len(layout.tail) :] if layout.tail else []
    own = OrderedDict(zip(once, [handle for _, handle in entries[: len(layout.head)] + tail]))
    for name, handle in own.items():
        integer = name in ("updates", "pending", "steps")
        if handle.shape != () or (np.dtype(handle.dtype).kind in "iu") != integer:
            return
    for found in _variables(body, layout.blocks):
        if all(map(_like, found)):
            yield own, [_kept(each, definition) for each in found]


def _variables(body, blocks):
    """Lists of {slot: (name, handle)} of each variable: the ways in which a body is made of blocks."""
    plain = [block for block in blocks if not any(slot.rank for slot in block)]
    width = sum(map(len, plain))
    most = len(body) // width if width else 0
    if plain == blocks and len(body) != most * width:
        return
    for count in range(most + 1) if plain != blocks else [most]:
        place, found = 0, [OrderedDict() for _ in range(count)]
        for block in plain:
            for variable in range(count):
                for slot in block:
                    found[variable][slot] = body[place]
                    place += 1
        if plain == blocks:
            yield found
            continue
        for rest in _mixed(body[place:], blocks[-1]):
            if not plain:
                yield rest
            elif len(rest) == count:
                yield [OrderedDict(list(first.items()) + list(then.items())) for first, then in zip(found, rest)]


def _mixed(body, block):
    """The same for a block in which vectors have other slots than matrices."""
    if not body:
        yield []
    # Keras 3 saves a vector's rows and columns, which it has not, as numbers.
    for rank, ranks in (("matrix", ("", "matrix")), ("vector", ("", "vector")), ("vector", ("", "matrix"))):
        slots = [slot for slot in block if slot.rank in ranks]
        found = OrderedDict(zip(slots, body))
        if not body or len(found) < len(slots) or (len(_shape(found)) > 1) != (rank == "matrix"):
            continue
        numbers = [handle for slot, (_, handle) in found.items() if rank == "vector" and slot.rank == "matrix"]
        if _like(found) and all(handle.shape == () for handle in numbers):
            for rest in _mixed(body[len(slots) :], block):
                yield [found] + rest


def _shape(found):
    """The shape of the variable of some slots: its own, or that of its rows and columns together."""
    plain = [handle.shape for slot, (_, handle) in found.items()
             if slot.rank != "matrix" and slot.name not in ENGINE_SLOTS]
    if plain or not found:
        return max(plain, key=len) if plain else ()
    rows, columns = [handle.shape for _, handle in found.values()][:2]
    return rows[:-1] + columns[-1:] if len(rows) == len(columns) > 1 else ()


def _like(found):
    """Whether the slots of one variable have one shape; those that are not used may be a placeholder."""
    counts = [handle for slot, (_, handle) in found.items() if slot.name in ENGINE_SLOTS and slot.name != HISTORY]
    if any(np.dtype(handle.dtype).kind not in "iu" for handle in counts):
        return False
    whole = _shape(found)
    for slot, (_, handle) in found.items():
        if slot.rank == "matrix" and len(whole) > 1:
            left_out = whole[-1 if slot.name == "rows" else -2]
            if np.prod(handle.shape) * left_out != np.prod(whole):
                return False
    shapes = set(handle.shape for slot, (_, handle) in found.items()
                 if slot.native and slot.name not in ENGINE_SLOTS and slot.rank != "matrix")
    return len(shapes) <= 1 or len(shapes) == 2 and (1,) in shapes and any(
        slot.always and handle.shape == (1,) for slot, (_, handle) in found.items())


_Found = namedtuple("_Found", "kept shape names")  # the slots of a variable; its shape; their names in the file


def _kept(found, definition):
    shape = _shape(found) if any(slot.rank == "matrix" for slot in found) else ()
    used = slots_of_rank(definition, len(shape) or 1) + list(ENGINE_SLOTS)
    kept = OrderedDict((slot, handle) for slot, (_, handle) in found.items() if slot.name in used)
    shape = shape or next(iter(kept.values()), next(iter(found.values()))[1]).shape
    record = Variable("", shape, "float32", 0, (), None)
    for slot in [slot for slot in kept if slot.rank == "matrix"]:
        kept[slot] = reshaped(kept[slot], flat(definition, "slot")[slot.name][1].shape_for(record))
    return _Found(OrderedDict((slot.name, handle) for slot, handle in kept.items()), shape,
                  [name for name, _ in found.values()])


def reshaped(handle, shape):
    """A handle of an array in another shape, with as many elements."""
    if tuple(handle.shape) == tuple(shape):
        return handle
    return Handle(getattr(handle, "name", "array"), shape, handle.dtype,
                  lambda selection: np.reshape(np.asarray(handle), shape)[selection])


def by_place(native, definition, ours, variables):
    fits, tried, wrong = [], [], []
    for layout, entry in _layouts(native, definition, ours):
        tried.append(layout)
        for own, found in _fits(native.entries, layout, definition):
            try:
                names = list(native.variables)
                if found:
                    names = names_of(native, [each.shape for each in found], [each.names for each in found], variables)
            except StateError as error:
                wrong.append(str(error))  # not the error, which would keep the file open
                continue
            fits.append((names, own, found, entry))
    if not fits and wrong:
        raise StateError(wrong[0])
    if not fits:
        raise FileError(
            "{}: {} arrays of shapes {} are not the state of {} of {}: expected are {}, then the slots {}".format(
                native.path,
                len(native.entries),
                some(str(handle.shape) for _, handle in native.entries),
                definition._short(),
                native.target or "Keras",
                ", ".join(tried[0].head),
                " | ".join(" ".join(slot.name for slot in block) for block in tried[0].blocks) or "none",
            )
        )
    if len(set(_meaning(fit) for fit in fits)) > 1:
        raise StateError(
            "{} may be of a stock optimizer or of one that everstep bound, with slots in another order, and does not "
            "say. Read a .keras or .h5 file of it, which does".format(native.path)
        )
    names, own, found, entry = fits[0]
    if native.target is None and entry is not None:
        native.target = entry.target
    slots = OrderedDict((name, OrderedDict()) for name in names)
    for name, each in zip(names, found):
        slots[name].update(each.kept)
    for name, handle in native.own.items():  # object checkpoints
        own.setdefault("momentum_product" if name == "_u_product" else name, handle)
    return slots, own, entry


def _meaning(fit):
    """What a way to read a file comes to, to tell ways apart."""
    names, own, found, _ = fit
    slots = tuple((name, tuple((slot, id(handle)) for slot, handle in each.kept.items()))
                  for name, each in zip(names, found))
    return slots or tuple(names), id(own["updates"]) if "updates" in own else None


def names_of(native, shapes, hints, given=None):
    """The names of the variables that slots of these shapes, in this order, belong to.

    Args:
        hints: for each variable, the names that its slots have in the file.
        given: the names, where the user says them.
    """
    if given is not None:
        if len(set(given)) != len(given) or len(given) != len(shapes):
            raise StateError("the file has slots of {} variables; variables= names {}".format(len(shapes), list(given)))
        for name, shape in zip(given, shapes):
            if name in native.variables and native.variables[name].shape != shape:
                raise StateError("{} has shape {}; the slots in its place have {}".format(
                    name, native.variables[name].shape, shape))
        return list(given)
    known = list(native.variables)
    hinted = [_hinted(known, texts) for texts in hints]
    if all(hinted) and len(set(hinted)) == len(hinted):
        return hinted
    if not known:
        return [str(place) for place in range(len(shapes))]
    sizes = [native.variables[name].shape for name in known]
    if native.ordered:
        if sizes == shapes:
            return known
        if _ways(shapes, sizes) == 1:
            rest = iter(zip(known, sizes))
            return [next(name for name, size in rest if size == shape) for shape in shapes]
    elif len(set(shapes)) == len(shapes) and all(sizes.count(shape) == 1 for shape in shapes):
        return [known[sizes.index(shape)] for shape in shapes]
    raise StateError(
        "{} has slots of shapes {}, and does not say of which of the weights {} they are. Give variables= "
        "(--variables), their names in the order of the model's trainable weights".format(
            native.path, some(map(str, shapes)), some("{} {}".format(*item) for item in zip(known, sizes))
        )
    )


def _hinted(known, texts):
    """The longest known name that is in the names of a variable's slots."""
    texts = [text.replace("/", "_") for text in texts if text]
    found = [name for name in known if texts and all(name.replace("/", "_") in text for text in texts)]
    return max(found, key=len) if found else None


def _ways(shapes, sizes):
    """In how many ways `shapes` are some of `sizes` in that order."""
    ways = [1] + [0] * len(shapes)
    for size in sizes:
        for place in range(len(shapes), 0, -1):
            if shapes[place - 1] == size:
                ways[place] += ways[place - 1]
    return ways[-1]
