"""The state in a file of a framework: its definition, its counts, and what each array in it is."""
from __future__ import absolute_import, division, print_function

import ast
import re
import warnings
from collections import OrderedDict, namedtuple

import numpy as np

from everstep.compat.engine.fast_forward import HISTORY
from everstep.compat.engine.step import ENGINE_SLOTS, counters, engine_slot_names
from everstep.compat.state.roles import ROLES, Slot, blocks, count_of_powers, in_form, roles_of, some
from everstep.compat.state.state import State
from everstep.compat.stock.from_native import from_native, short
from everstep.compat.stock.table import FORMS
from everstep.compat.targets.base import Target
from everstep.compat.targets.construction import CONFIG_KEY
from everstep.compat.targets.hypers import attribute
from everstep.errors import DefinitionError, EverstepError, FileError, StateError, UnsupportedError
from everstep.optimizers.contract.definition import Definition
from everstep.optimizers.contract.schedule import Schedule
from everstep.optimizers.contract.tree import flat, with_hypers
from everstep.optimizers.nadam import Nadam

_COUNTED = ("Adam", "AdamW", "Adamax", "Nadam")  # whose rules use t
_OWN_UPDATES = {"tf_train": "updates", "optimizer_v2": "iter", "get_updates": "iterations"}  # of what everstep binds

Layout = namedtuple("Layout", "head blocks tail")  # names of what is there once, before and behind the slots


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
    config = {name: _number(held[name]) for name in form.names if name in held and not np.shape(held[name])}
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
        numbers = _saver_slots(native, roles.op)
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
            if _saver_slots(native, roles.op):
                found.append(roles.native)
        elif native.slots and roles.target == native.target:
            has = set(name for slots in native.slots.values() for name in slots)
            if has <= set(names) and has >= set(name for name in names if name not in ("vhat", "mg", "momentum")):
                found.append(roles.native)
    return found


def to_state(native, definition=None, optimizer=None, updates=None, learning_rate=None, variables=None):
    """The State that a file has.

    Args:
        native: a NativeFile.
        definition, optimizer: one of them where the file does not say.
        updates: the count, where the file has none.
        learning_rate: the rate in force, where velocities are rescaled.
        variables: names in the order of the slots, where the file leaves that open.
    """
    check_present(native)
    definition, ours = definition_for(native, definition, optimizer)
    if native.format == "tf-saver":
        slots, own, form = _by_saver_name(native, definition)
    elif native.slots or not native.entries:
        slots, own, form = _by_slot_name(native, definition)
    else:
        slots, own, form = by_place(native, definition, ours, variables)
    wanted = list(flat(definition, "slot"))
    if wanted and not slots:
        raise FileError("{} has no slots of {}, which needs {}".format(
            native.path, definition._short(), ", ".join(wanted)))
    for name, found in slots.items():
        lacks = [slot for slot in wanted if slot not in found]
        if lacks:
            raise FileError("{}: {} has no {}; {} needs {}. It has {}".format(
                native.path, name, " and no ".join(lacks), definition._short(), ", ".join(wanted),
                ", ".join(found) or "no slots"))
        extra = sorted(set(found) - set(wanted).union(ENGINE_SLOTS) - _always(native, definition, form))
        if extra:
            raise FileError("{}: {} has the slot {}, which {} has not".format(
                native.path, name, ", ".join(extra), definition._short()))
        slots[name] = OrderedDict((slot, found[slot]) for slot in wanted + list(ENGINE_SLOTS) if slot in found)
    definition = _with_live_hypers(definition, own, form)
    counts = _counts(native, definition, own, form, updates)
    state = State(
        definition.get_config(strict=False),
        counts["updates"],
        counts.get("steps"),
        counts.get("pending", 0),
        _scalars(native, definition, own, counts["updates"]),
        slots,
        OrderedDict((name, native.variables[name]) for name in slots if name in native.variables),
    )
    return _as_definition(state, definition, form, learning_rate)


def _always(native, definition, form):
    """The slots that a stock optimizer has whether or not it uses them."""
    if form is None:
        return set()
    return {slot.name for block in blocks(roles_of(form.target, definition)[0]) for slot in block if slot.always}


def check_present(native):
    if native.missing:
        raise FileError("{} has {}; there is no optimizer's state to read".format(
            native.path, "; ".join(native.missing)))


def _number(handle):
    return short(np.asarray(handle).astype(np.float64 if np.dtype(handle.dtype).kind != "i" else np.int64)[()])


def _with_live_hypers(definition, own, form):
    names = {hyper: hyper for hyper in flat(definition, "hyper")}
    names.update({attribute(hyper): hyper for hyper in names})
    if form is not None:
        names.update(form.names)
    live = {}
    for theirs, handle in own.items():
        ours = names.get(theirs.lstrip("_"))
        if theirs == "decay" and form is not None and ours is None and np.asarray(handle) != 0:
            raise StateError(
                "the file's learning rate decays, by {} a step: give the definition with learning_rate="
                "everstep.InverseTimeDecay({}, rate={})".format(
                    _number(handle), _number(own["learning_rate"]) if "learning_rate" in own else "...", _number(handle)
                )
            )
        if ours in flat(definition, "hyper") and handle.shape == () and np.dtype(handle.dtype).kind == "f":
            owner, declaration = flat(definition, "hyper")[ours]
            given = owner._values[declaration.name]
            value = _number(handle)
            if isinstance(given, float) and np.float32(given) != np.float32(value):
                live[ours] = value
    return with_hypers(definition, live) if live else definition


def _counts(native, definition, own, form, updates):
    counts = {name: int(np.asarray(own[name])) for name in counters(definition) if name in own}
    if updates is not None:
        counts["updates"] = updates
    steps = (native.config or {}).get("gradient_accumulation_steps")
    if steps and form is not None and "updates" in counts:  # what Keras 3 counts is calls
        counts = {"updates": counts["updates"] // steps, "steps": counts["updates"],
                  "pending": counts["updates"] % steps}
    if "updates" not in counts and form is not None and form.target == "tf_train":
        counts["updates"] = count_of_powers(native, definition, own)
    if counts.get("updates") is None and "global_step" in own:
        counts["updates"] = int(np.asarray(own["global_step"]))
    if counts.get("updates") is None:
        if type(definition.base).__name__ in _COUNTED or form is None or _has_schedule(definition):
            raise FileError(
                "{} has no count of updates, which {} needs: no beta powers, no iterations, no global_step. Give "
                "updates= (--updates)".format(native.path, definition._short())
            )
        native.notes.append("no count of updates, which its rule does not need; read as 0")
        native.counted = False
        counts["updates"] = 0
    lacks = [name for name in counters(definition) if name not in counts]
    if lacks:
        raise FileError("{} has no {}; it is not of {}".format(native.path, ", ".join(lacks), definition._short()))
    if any(count < 0 for count in counts.values()):
        raise FileError("{} has a negative count: {}".format(native.path, counts))
    return counts


def _has_schedule(definition):
    return any(isinstance(owner._values[declaration.name], Schedule)
               for owner, declaration in flat(definition, "hyper").values())


def _scalars(native, definition, own, updates):
    scalars = OrderedDict()
    for name in flat(definition, "scalar"):
        if name in own:
            scalars[name] = float(np.asarray(own[name]))
        elif name == "momentum_product" and isinstance(definition.base, Nadam):
            scalars[name] = _product_of(definition.base, updates)
        else:
            raise FileError("{} has no {}, which {} needs".format(native.path, name, definition._short()))
    return scalars


def _product_of(nadam, updates):
    """Nadam's product, which follows from the count while beta_1 is the same; some formats leave it out."""
    if not nadam.momentum_schedule:
        return 1.0
    steps = np.arange(1, min(updates, 10**6) + 1, dtype=np.float64)  # nothing is left of it long before
    return float(np.prod(nadam.scheduled(nadam, steps)))


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


def _by_slot_name(native, definition):
    """Object checkpoints of OptimizerV2 and tf.train."""
    own = OrderedDict((_OWN_NAMES.get(name, name), handle) for name, handle in native.own.items())
    names, form = {name: name for name in list(flat(definition, "slot")) + list(ENGINE_SLOTS)}, None
    has = set(name for found in native.slots.values() for name in found)
    if not has <= set(names) or native.target == "tf_train" and "updates" not in own:
        roles, form = roles_of(native.target, definition)
        names = {slot.native: slot.name for block in blocks(roles) for slot in block}
    if not has <= set(names):
        raise FileError("{} has the slots {}, which are not those of {}{}".format(
            native.path, ", ".join(sorted(has)), definition._short(), likely(native)))
    slots = OrderedDict((variable, OrderedDict()) for variable in native.variables)
    for variable, found in native.slots.items():
        slots[variable].update((names[name], handle) for name, handle in found.items())
    return slots, own, form


_OWN_NAMES = {"iter": "updates", "momentum_cache": "momentum_product"}


def _saver_slots(native, op):
    """{variable: {number: handle}} of the slots whose names end with `op`."""
    keys, found = dict(native.entries), OrderedDict()
    pattern = re.compile(r"^(.+)/{}(?:_(\d+))?$".format(re.escape(op)))
    for key, handle in native.entries:
        match = pattern.match(key)
        variable = match and _variable_of(match.group(1), keys, handle.shape)
        if match:
            found.setdefault(variable or match.group(1), {})[int(match.group(2) or 0)] = handle
    return found


def _variable_of(path, keys, shape=None):
    """The variable that a slot's name begins with, below the scope in which the optimizer stood."""
    parts = path.split("/")
    for place in range(len(parts)):
        name = "/".join(parts[place:])
        if name in keys and (shape is None or keys[name].shape == shape):
            return name
    return None


def _by_saver_name(native, definition):
    keys = dict(native.entries)
    for target in ("tf_train", "optimizer_v2", "get_updates"):
        found = _ours_in_saver(native, definition, target, keys)
        if found:
            return found
    stock, form = roles_of("tf_train", definition)
    numbers = _saver_slots(native, stock.op)
    line = [slot for block in blocks(stock) for slot in block]
    used = set(flat(definition, "slot"))
    line = [slot for slot in line if slot.always or slot.name in used]
    if line and not numbers:
        raise FileError("{} has no slots of {}: none of its {} names ends with /{}{}".format(
            native.path, stock.native, len(keys), stock.op, likely(native)))
    slots = OrderedDict()
    for variable, found in numbers.items():
        if sorted(found) != list(range(len(line))):
            raise FileError(
                "{}: {} has the slots {}; {} makes {}{}".format(
                    native.path, variable, some(stock.op + ("_%d" % number if number else "") for number in found),
                    stock.native, ", ".join("{} ({})".format(stock.op + ("_%d" % place if place else ""), slot.native)
                                            for place, slot in enumerate(line)) or "none",
                    ". Two optimizers of that name have trained it; their slots cannot be told apart"
                    if len(found) > len(line) else ""))
        slots[variable] = OrderedDict(
            (slot.name, found[place]) for place, slot in enumerate(line) if slot.name in used)
    if not line:
        slots = OrderedDict((key, OrderedDict()) for key, handle in native.entries
                            if np.dtype(handle.dtype).kind == "f")
    native.variables = OrderedDict((name, keys[name]) for name in slots if name in keys)
    own = OrderedDict()
    for wanted in ("beta1_power", "beta2_power", "global_step"):
        powers = [handle for key, handle in native.entries if re.match(r"(.*/)?{}(_\d+)?$".format(wanted), key)]
        if len(set(float(np.asarray(power)) for power in powers)) > 1:
            raise FileError(
                "{} has different values of {}, so it is of more than one optimizer. Give updates= (--updates)".format(
                    native.path, wanted
                )
            )
        if powers:
            own[wanted] = powers[0]
    return slots, own, form


def _ours_in_saver(native, definition, target, keys):
    """What a bound optimizer, or a stock OptimizerV2, left in a file of Saver; None where none did."""
    count = _OWN_UPDATES[target]
    counts = [key for key, handle in native.entries
              if re.match(r"(.*/)?(?!catch_up/)[^/]+/{}(_\d+)?$".format(count), key)
              and np.dtype(handle.dtype).kind in "iu"]
    if not counts:
        return None
    if len(counts) > 1:
        raise FileError("{} has the state of more than one optimizer: {}".format(native.path, ", ".join(counts)))
    scope = counts[0].rpartition("/")[0]
    name = scope.rpartition("/")[2]
    wanted = list(flat(definition, "slot")) + list(ENGINE_SLOTS)
    names, form = {slot: slot for slot in wanted}, None
    if target == "optimizer_v2":
        try:
            stock, stock_form = roles_of(target, definition)
            theirs = {slot.native: slot.name for block in blocks(stock) for slot in block}
            if any(key.startswith(scope + "/") and key[len(scope) + 1 :].endswith("/" + slot)
                   for key in keys for slot in set(theirs) - set(names)):
                names, form = theirs, stock_form
        except UnsupportedError:
            pass
    slots = OrderedDict()
    for key, handle in native.entries:
        for theirs in sorted(names, key=len, reverse=True):
            if target == "tf_train":
                match = re.match(r"^(.+)/{}/{}(_\d+)?$".format(re.escape(name), re.escape(theirs)), key)
                variable = match and (_variable_of(match.group(1), keys) or match.group(1))
            else:
                match = re.match(r"^{}/(.+)/{}$".format(re.escape(scope), re.escape(theirs)), key)
                variable = match and match.group(1)
            if match:
                slots.setdefault(variable, OrderedDict())[names[theirs]] = handle
                break
    own = OrderedDict()
    for key, handle in native.entries:
        if key.startswith(scope + "/") and handle.shape == ():
            own[key[len(scope) + 1 :]] = handle
    own["updates"] = keys[counts[0]]
    if "momentum_cache" in own:
        own["momentum_product"] = own.pop("momentum_cache")
    native.target = target
    native.variables = OrderedDict((name, keys[name]) for name in slots if name in keys)
    return slots, own, form


def _as_definition(state, definition, form, learning_rate):
    """A state read in the form of a stock optimizer, in that of the definition that was given."""
    stock = form.fixed.get("rate_in_velocity") if form is not None else None
    wanted = getattr(definition.base, "rate_in_velocity", None)
    if stock is None or wanted is None or stock == wanted or not definition.base.has_slot("velocity"):
        return state
    if learning_rate is None:
        raise StateError(
            "{} keeps its momentum as the sum of gradients{}, {} otherwise: give learning_rate= (--learning-rate), the "
            "rate that was in force, or rate_in_velocity={} to the definition".format(
                form.native, " times -rate" if stock else "", definition._short(), stock))
    found = definition.base.replace(rate_in_velocity=stock).get_config(strict=False)
    held = State(found, state.updates, state.steps, state.pending, state.scalars, state.slots, state.variables)
    state.slots = in_form(held, wanted, learning_rate).slots
    return state
