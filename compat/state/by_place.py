"""Tells the slots in files that keep arrays by position, without names."""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict, namedtuple

import numpy as np

from everstep.compat.engine.fast_forward import HISTORY
from everstep.compat.engine.step import ENGINE_SLOTS, counters, engine_slot_names
from everstep.compat.state.roles import Slot, blocks, roles_of, some
from everstep.errors import FileError, StateError, UnsupportedError
from everstep.optimizers.contract.tree import flat

Layout = namedtuple("Layout", "head blocks tail")  # names of what is there once, before and behind the slots


def _layouts(native, definition, ours):
    """What might stand where, in a file that goes by position: (Layout, form or None) of each way."""
    scalars = list(flat(definition, "scalar"))
    targets = [native.target] if native.target else ["keras3", "update_step"]
    for target in targets:
        if ours is not False:
            hypers = [name for name, (owner, declaration) in flat(definition, "hyper").items()
                      if isinstance(owner._values[declaration.name], float)]
            hypers = sorted(hypers, key=lambda name: name != "learning_rate")
            others = [name for name in counters(definition) if name != "updates"] + scalars
            head = ["updates"] + (hypers if target == "keras3" else []) + others
            engine = [engine_slot_names(definition, True)]
            if target == "keras3" and engine[0] != engine_slot_names(definition, False):  # no sparse gradients there
                engine.append(engine_slot_names(definition, False))
            for names in engine:
                slots = [Slot(name, name, False) for name in list(flat(definition, "slot")) + names]
                yield Layout(head, [slots] if slots else [], []), None
        if not ours:
            try:
                roles, form = roles_of(target, definition)
            except UnsupportedError:
                if native.target:
                    raise
                continue
            for layout in _stock_layouts(target, roles, definition, scalars):
                yield layout, form


def _stock_layouts(target, roles, definition, scalars):
    used = set(flat(definition, "slot"))
    first = [[Slot("accumulate/sum", "", False)]] if "accumulate/sum" in used else []
    ways = []
    for always in (True, False):  # Keras before 2.1.3 knew no amsgrad, and kept nothing for it
        lines = [[slot for slot in block if slot.name in used or always and slot.always] for block in blocks(roles)]
        lines = first + [block for block in lines if block]
        if lines not in ways:
            ways.append(lines)
    heads = [["updates"]]
    if target == "keras3":
        number = isinstance(getattr(definition.base, "learning_rate", None), float)
        heads = [["updates", "learning_rate"]] if number else heads
    if target == "get_updates" and roles.native in ("RMSprop", "Adagrad", "Adadelta"):
        heads.append([])  # before Keras 2.3
    for head in heads:
        for lines in ways:
            yield Layout(head, lines, [])
            if scalars:
                yield Layout(head + scalars, lines, [])
                yield Layout(head, lines, scalars)


def _fitted(entries, layout, definition):
    """({name: handle} of what is there once, [{slot: (name, handle)} of each variable]), or None."""
    once = layout.head + layout.tail
    width = sum(map(len, layout.blocks))
    body = entries[len(layout.head) : len(entries) - len(layout.tail)]
    if len(entries) < len(once) or len(body) % width if width else body:
        return None
    tail = entries[len(entries) - len(layout.tail) :] if layout.tail else []
    own = OrderedDict(zip(once, [handle for _, handle in entries[: len(layout.head)] + tail]))
    for name, handle in own.items():
        integer = name in ("updates", "pending", "steps")
        if handle.shape != () or (np.dtype(handle.dtype).kind in "iu") != integer:
            return None
    count, place = len(body) // width if width else 0, 0
    found = [OrderedDict() for _ in range(count)]
    for block in layout.blocks:
        for variable in range(count):
            for slot in block:
                found[variable][slot] = body[place]
                place += 1
    return (own, [_kept(each, definition) for each in found]) if all(map(_like, found)) else None


def _like(found):
    """Whether the slots of one variable have one shape; those that are not used may be a placeholder."""
    counts = [handle for slot, (_, handle) in found.items() if slot.name in ENGINE_SLOTS and slot.name != HISTORY]
    if any(np.dtype(handle.dtype).kind not in "iu" for handle in counts):
        return False
    shapes = set(handle.shape for slot, (_, handle) in found.items() if slot.native and slot.name not in ENGINE_SLOTS)
    return len(shapes) <= 1 or len(shapes) == 2 and (1,) in shapes and any(
        slot.always and handle.shape == (1,) for slot, (_, handle) in found.items())


_Found = namedtuple("_Found", "kept shape names")  # the slots of a variable; its shape; their names in the file


def _kept(found, definition):
    used = set(flat(definition, "slot")).union(ENGINE_SLOTS)
    kept = OrderedDict((slot.name, handle) for slot, (_, handle) in found.items() if slot.name in used)
    handles = list(kept.values()) or [handle for _, handle in found.values()]
    return _Found(kept, handles[0].shape, [name for name, _ in found.values()])


def by_place(native, definition, ours, variables):
    fits, tried, wrong = [], [], []
    for layout, form in _layouts(native, definition, ours):
        tried.append(layout)
        fit = _fitted(native.entries, layout, definition)
        if fit is None:
            continue
        own, found = fit
        try:
            names = list(native.variables)
            if found:
                names = names_of(native, [each.shape for each in found], [each.names for each in found], variables)
        except StateError as error:
            wrong.append(str(error))  # not the error, which would keep the file open
            continue
        fits.append((names, own, found, form))
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
    names, own, found, form = fits[0]
    if native.target is None and form is not None:
        native.target = form.target
    slots = OrderedDict((name, OrderedDict()) for name in names)
    for name, each in zip(names, found):
        slots[name].update(each.kept)
    for name, handle in native.own.items():  # object checkpoints
        own.setdefault("momentum_product" if name == "_u_product" else name, handle)
    return slots, own, form


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
