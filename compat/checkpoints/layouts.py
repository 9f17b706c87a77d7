"""Lists the layouts that a file by position may have: which arrays an optimizer saves, in which order."""
from __future__ import absolute_import, division, print_function

import itertools
from collections import OrderedDict, namedtuple

from everstep.compat.engine.fast_forward import HISTORY, SUMS
from everstep.compat.engine.step import counters, engine_slot_names
from everstep.compat.stock.entry import AROUND, Slot
from everstep.compat.stock.lookup import entry_for
from everstep.compat.targets.optimizer_v2_slots import STOCK_ORDERS
from everstep.errors import UnsupportedError
from everstep.optimizers.contract import Variable, Wrapper, flat
from everstep.optimizers.wrappers.accumulate import Accumulate
from everstep.optimizers.wrappers.moving_average import MovingAverage
from everstep.optimizers.wrappers.partition import Partition

# head, tail: names of the arrays before and after the slots. around, blocks: lists of `Slot`, in the order of the file.
# First come those of `around`, which the base class keeps by its keywords. rule: the definition whose slots follow.
Layout = namedtuple("Layout", "head blocks tail around rule")
Layout.__new__.__defaults__ = ((), None)
# {keyword of the base classes of newer Keras: the wrapper that does the same, its slot}
BY_KEYWORD = OrderedDict([
    ("use_ema", (MovingAverage, "moving_average/average")),
    ("gradient_accumulation_steps", (Accumulate, "accumulate/sum")),
])


def layouts_of(target, definition, by_everstep, keywords=None):
    """Yields every (Layout, stock entry or None) that a file of an API may have.

    Args:
        target: the name of the API; None: of a newer Keras.
        by_everstep: whether everstep bound the optimizer; None if that is not known.
        keywords: those of BY_KEYWORD that everstep's `bind` got; None if that is not known.
    """
    for each in [target] if target else ["keras3", "update_step"]:
        if by_everstep is not False:
            for given in _keywords_of(each, definition) if keywords is None else [keywords]:
                for layout in _layouts_with(each, definition, given):
                    yield layout, None
        if not by_everstep:
            try:
                entry = entry_for(each, definition)
            except UnsupportedError:
                if target and by_everstep is False:
                    raise
                continue
            for layout in _stock_layouts(entry, definition):
                yield layout, entry


def _keywords_of(target, definition):
    """Returns the lists of keywords that may have made an optimizer of an API do what a definition does."""
    known = {"update_step": ["use_ema"], "keras3": list(BY_KEYWORD)}.get(target, [])
    slots = flat(definition, "slot")
    known = [keyword for keyword in known if BY_KEYWORD[keyword][1] in slots]
    return [list(some) for count in range(len(known) + 1) for some in itertools.combinations(known, count)]


def _layouts_with(target, definition, keywords):
    """Yields the layouts of an optimizer that everstep bound with some keywords of the base class."""
    slots, declared = [], flat(definition, "slot")
    keywords = [keyword for keyword in keywords if BY_KEYWORD[keyword][1] in declared]
    rule = _without(definition, tuple(BY_KEYWORD[keyword][0] for keyword in keywords))
    for _, name in map(BY_KEYWORD.get, keywords):
        slots.append(Slot(name, AROUND[name] or name, False, ""))
    for around in _orders_around(target, slots):
        for layout in _everstep_layouts(target, rule):
            yield layout._replace(around=around, rule=rule)


def _without(definition, wrappers):
    """Returns a definition without its wrappers of some classes."""
    if not wrappers or not isinstance(definition, Wrapper):
        return definition
    inner = _without(definition.inner, wrappers)
    return inner if isinstance(definition, wrappers) else definition.replace(inner=inner)


def _everstep_layouts(target, definition):
    """Yields the layouts of an optimizer that everstep bound."""
    hypers = [name for name, (owner, declaration) in flat(definition, "hyper").items()
              if isinstance(owner._values[declaration.name], float)]
    hypers = sorted(hypers, key=lambda name: name != "learning_rate")
    if "learning_rate" not in flat(definition, "hyper"):  # a partition has no such hyper, but Keras 3's base class has
        hypers = ["learning_rate"] + hypers
    head = ["updates"] + (hypers if target == "keras3" else [])
    head += [name for name in counters(definition) if name != "updates"] + list(flat(definition, "scalar"))
    vectors, matrices = slots_of_rank(definition, 1), slots_of_rank(definition, 2)
    declared = flat(definition, "slot")

    def rank_of(name):
        if name not in matrices or name not in vectors:
            return "vector" if name in vectors else "matrix"
        return "own" if name in declared and declared[name][1].shape is not None else ""

    slots = [Slot(name, name, False, rank_of(name)) for name in _merged(matrices, vectors)]
    for beside in engine_variants(definition, target):
        block = slots + beside
        if block and target in ("optimizer_v2", "get_updates"):  # as stock does; older files are variable by variable
            blocks = STOCK_ORDERS.get(type(definition.base).__name__, []) if target == "optimizer_v2" else []
            listed = [name for names in blocks for name in names]
            blocks = blocks + [[slot.name] for slot in block if slot.name not in listed]
            by_name = {slot.name: slot for slot in block}
            blocks = [[by_name[name] for name in names if name in by_name] for names in blocks]
            yield Layout(head, [each for each in blocks if each], [])
        yield Layout(head, [block] if block else [], [])


def engine_variants(rule, target):
    """Returns the lists of engine slots that an optimizer may have beside those of a rule."""
    variants = [engine_slot_names(rule, True)]
    # Some backends of Keras 3 have no sparse gradients, and no slots for them.
    if target == "keras3" and variants[0] != engine_slot_names(rule, False):
        variants.append(engine_slot_names(rule, False))
    if SUMS in variants[0] and HISTORY not in variants[0]:  # files of an older everstep have a history instead of sums
        variants.append([HISTORY if name == SUMS else name for name in variants[0]])
    return [[Slot(name, name, False, "") for name in names] for names in variants]


def record_of(name, shape):
    """Returns the record of a variable of a file, as far as a file says what it is, to ask a definition about it."""
    return Variable(name, shape, "float32", 0, (), None)


def slots_of_rank(definition, rank, name=""):
    """Returns the flat names of the slots of a variable of that rank and name; without a name, of all branches."""
    rule = definition
    if not name and isinstance(definition.base, Partition):
        names = ["{}/{}".format(branch, slot) for branch, inner in definition.base.children().items()
                 for slot in slots_of_rank(inner, rank)]
        return list(OrderedDict.fromkeys(list(flat(definition, "slot")) + names))
    # A factored rule has different slots for vectors and matrices, and a partition for each branch.
    if definition.base.locality == "variable" or isinstance(definition.base, Partition):
        rule = definition.specialize(record_of(name, (2,) * rank))
    return list(flat(rule, "slot"))


def all_slots(definition):
    """Returns the flat names of the slots that a variable of any rank and name has."""
    merged = _merged(slots_of_rank(definition, 2), slots_of_rank(definition, 1))
    return merged + [name for name in flat(definition, "slot") if name not in merged]


def _merged(matrices, vectors):
    """Returns all names, in an order that is that of both lists."""
    merged = []
    for name in matrices:
        if name in vectors:
            merged += [each for each in vectors[: vectors.index(name)] if each not in merged]
        merged.append(name)
    return merged + [name for name in vectors if name not in merged]


def optional_slots(definition):
    """Returns the slots that a matrix has or has not by its name: those that vectors have beside a matrix's."""
    vectors, matrices = set(slots_of_rank(definition, 1)), set(slots_of_rank(definition, 2))
    return vectors - matrices if matrices < vectors else set()


def _stock_layouts(entry, definition):
    """Yields the layouts of a stock optimizer, with and without the arrays that only some versions save."""
    used, block_variants = set(all_slots(definition)), []
    # Keras before 2.1.3 has no amsgrad, and no slots for it
    for around, always in itertools.product(_around(entry, definition), (True, False)):
        blocks = [[slot for slot in block if slot.name in used or always and slot.always] for block in entry.blocks]
        blocks = around + [block for block in blocks if block]
        if blocks not in block_variants:
            block_variants.append(blocks)
    has_rate = isinstance(getattr(definition.base, "learning_rate", None), float)
    counters_on_disk = entry.head + entry.tail
    saved_choices = [
        (True, False) if each.optional and each.name != "learning_rate" else (not each.optional or has_rate,)
        for each in counters_on_disk
    ]
    for saved in itertools.product(*saved_choices):
        names = [each.name if is_saved else None for each, is_saved in zip(counters_on_disk, saved)]
        head = [name for name in names[: len(entry.head)] if name]
        tail = [name for name in names[len(entry.head) :] if name]
        if not set(head).intersection(tail):
            for blocks in block_variants:
                yield Layout(head, blocks, tail)


def _around(entry, definition):
    """Returns the ways in which stock orders the slots of wrappers: lists of blocks, which come before the others.

    The outermost of Addons' wrappers comes first. Keras 3 has the averages first, however the definition nests.
    """
    slots = [Slot(name, AROUND[name], False, "") for name in reversed(list(flat(definition, "slot"))) if name in AROUND]
    return _orders_around(entry.target, slots)


def _orders_around(target, slots):
    if target != "keras3" or len(slots) < 2:
        return [[[slot] for slot in slots]]
    slots.sort(key=lambda slot: slot.name != "moving_average/average")
    return [[[slot] for slot in slots], [slots]]  # the second one: Keras before 3.10


def named_so(stored_slots):
    """Returns whether the arrays of a variable have the names of their slots, if the file has names of both."""
    for slot, (name, _) in stored_slots.items():
        last = name.split(":")[0].rpartition("/")[2]
        others = [other.native.rpartition("/")[2] for other in stored_slots if other is not slot]
        if last and last in others and last != slot.native.rpartition("/")[2]:
            return False
    return True
