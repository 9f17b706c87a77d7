"""`everstep.State`, and taking it from an optimizer and giving it to one."""
from __future__ import absolute_import, division, print_function

import contextlib
import numbers
from collections import OrderedDict

import numpy as np

from everstep.compat.engine import fast_forward
from everstep.compat.engine.step import counters
from everstep.compat.state import npz
from everstep.compat.state.matching import match
from everstep.compat.targets.base import Target
from everstep.errors import (
    EverstepError,
    HyperTypeError,
    HyperValueError,
    StateError,
    UnsupportedError,
    VariableError,
)
from everstep.optimizers.contract.checks import is_tensor
from everstep.optimizers.contract.declarations import VARIABLE
from everstep.optimizers.contract.schedule import Schedule
from everstep.optimizers.contract.tree import flat, tree, with_hypers

TEXT = (str, type(u""))


class State(object):
    """What an optimizer has learned, in no framework's form.

    Arrays are NumPy's, or handles: what has `shape`, `dtype`, rows by `[a:b]` and the whole by `numpy.asarray`.

    Attributes:
        definition: the definition's config, with hypers as they were; None where a file does not say.
        updates, steps, pending: counts of updates, of steps in all and of steps since the last update; steps is None
            where every step updates.
        scalars: {name: float}.
        slots: {variable name: {slot name: array}}.
        variables: {variable name: array}, the values of the variables; empty where they were not taken.
    """

    def __init__(self, definition=None, updates=0, steps=None, pending=0, scalars=(), slots=(), variables=()):
        self.definition, self.updates, self.steps, self.pending = definition, updates, steps, pending
        self.scalars, self.slots, self.variables = OrderedDict(scalars), OrderedDict(slots), OrderedDict(variables)

    def save(self, path):
        """Writes a `.npz` file, of which docs/state_format.md tells all. It is there when it is whole.

        Raises:
            StateError: something in the state has no place in a file, or the file cannot be written.
        """
        npz.save(self, path)

    @classmethod
    def load(cls, path):
        """The state in a file that `save` wrote. Its arrays are handles, read and checked when asked for.

        Raises:
            StateError: it is no such file, is of a newer format, damaged or truncated.
        """
        return cls(**npz.load(path))

    def to_dict(self):
        """All of it, in dictionaries, lists, numbers and arrays."""
        slots = OrderedDict((name, _arrays(slots)) for name, slots in self.slots.items())
        return dict(vars(self), scalars=OrderedDict(self.scalars), slots=slots, variables=_arrays(self.variables))

    def __repr__(self):
        owner = (self.definition or {}).get("definition", "an unknown definition")
        return "<everstep state of {}: {} updates, {} variables>".format(owner, self.updates, len(self.slots))


def _arrays(handles):
    return OrderedDict((name, np.asarray(handle)) for name, handle in handles.items())


def capture(optimizer, variables, session=None, weights=False):
    """The state of a bound optimizer, copied.

    Args:
        optimizer: what `bind(module)` gave. One that has not trained yet has the state that it will start with.
        variables: the variables that it trains: a list, or {name: variable}. A list's names are those that the
            variables have, without `:0`; equal ones get `#0`, `#1`, in order. Arrays, which have none, are called by
            place. A partitioned variable, or the list of its parts, is one variable.
        session: where variables live in a graph, the session that has their values; the default one, or Keras's.
        weights: whether the values of the variables are taken, too.

    Raises:
        StateError: there is more to the optimizer than the state of these variables, or no value could be read.
        UnsupportedError: it is no bound optimizer.
    """
    with opened(optimizer, variables, session) as access:
        own = OrderedDict((name, access.read(variable)) for name, variable in access.own().items())
        counts = {name: int(own.get(name, 0)) for name in counters(optimizer.definition)}
        scalars = OrderedDict(
            (name, float(own.get(name, declaration.init)))
            for name, (_, declaration) in flat(optimizer.definition, "scalar").items()
        )
        slots, values = OrderedDict(), OrderedDict()
        for name, whole in access.wholes.items():
            slots[name] = OrderedDict((slot, access.read_slot(whole, slot)) for slot in whole.slot_names)
            if weights:
                values[name] = access.read_whole(whole)
        updates = counts["updates"] // optimizer.calls_per_update()
        return State(access.config(), updates, counts.get("steps"), counts.get("pending", 0), scalars, slots, values)


def restore(
    optimizer,
    state,
    variables,
    session=None,
    rename=(),
    by_order=False,
    weights=False,
    hypers=False,
    other_definition=False,
):
    """Gives a state to a bound optimizer, built or not. What fails changes nothing.

    Args:
        optimizer: what `bind(module)` gave. One that has not trained yet makes its slots now, but for tf.train in a
            graph, where `minimize` or `apply_gradients` has to come first.
        state: a `State`.
        variables: all variables that the optimizer trains, as for `capture`.
        session: as for `capture`.
        rename: patterns for names of the state that are called otherwise here, "OLD=NEW", and
        by_order: whether names that none fits are matched by order: see everstep.compat.state.matching.
        weights: whether the variables get the values that the state has for them.
        hypers: whether the optimizer's hypers become those of the state. Otherwise they stay as they are.
        other_definition: whether a state of another definition is taken, or of one with other options.

    Returns:
        How each variable was matched. Printed, it is a table.

    Raises:
        StateError: the state is not of this definition, these variables or slots; the message names the first that
            does not fit, and what to do.
        UnsupportedError: it is no bound optimizer.
    """
    with opened(optimizer, variables, session) as access:
        if optimizer.is_averaged:
            raise StateError("inside of everstep.averaged there is nothing to restore: its end would undo that")
        _check_state(state)
        # Everything is read and checked before anything is made or written.
        if not other_definition:
            _check_definition(state.definition, optimizer.definition)
        own = _own_values(state, optimizer)
        rates = _hyper_values(state, optimizer) if hypers else {}
        matching, values = _slot_values(state, access, rename, by_order, weights)
        access.backend.start(optimizer.make_state(access.variables), access.session)
        writes = access.places(values)
        for name, variable in access.own().items():
            dtype = optimizer.backend.dtype(optimizer.unwrap(variable))
            writes.append((variable, _Checked(name, own[name], (), dtype)))
        for variable, value in writes:
            access.write(variable, value())
        for name, value in rates.items():
            access.set_hyper(name, value)
        return matching


def _check_state(state):
    """Raises for what is no State, or was made none by hand."""
    if not isinstance(state, State):
        raise StateError("restore takes an everstep.State, such as everstep.capture gives; got {!r}".format(state))
    if not isinstance(state.definition, (dict, type(None))):
        raise StateError("the definition of a state is a config; got {!r}".format(state.definition))
    for name, slots in state.slots.items():
        if not isinstance(name, TEXT) or not isinstance(slots, dict):
            raise StateError("the slots of a state are {{name: {{name: array}}}}; got {!r}: {!r}".format(name, slots))


def _slot_values(state, access, rename, by_order, weights):
    """(the matching, [(whole, slot or None for the variable itself, value)])"""
    found, wanted = OrderedDict(), OrderedDict()
    for name, whole in access.wholes.items():
        wanted[name] = {slot: whole.slot_shape(slot) for slot in whole.slot_names if slot not in fast_forward.SLOTS}
    for name, slots in state.slots.items():
        found[name] = {slot: _shape(slot, slots[slot]) for slot in slots if slot not in fast_forward.SLOTS}
    matching = match(found, wanted, rename, by_order)
    values = []
    for name, whole in access.wholes.items():
        old = matching.names[name]
        slots = _with_missed_steps(name, state.slots[old], whole)
        _check_names("slots of {}".format(name), slots, whole.slot_names, access.owner + " needs")
        for slot in whole.slot_names:
            handle, what = slots[slot], "{}/{}".format(name, slot)
            values.append((whole, slot, _Checked(what, handle, whole.slot_shape(slot), whole.slot_dtype(slot))))
        if weights:
            if old not in state.variables:
                raise StateError(
                    "the state has no value of {}; everstep.capture(..., weights=True) takes them".format(old)
                )
            values.append((whole, None, _Checked(name, state.variables[old], whole.shape, whole.dtype)))
    return matching, values


def _with_missed_steps(name, slots, whole):
    """A variable's slots, those of `sparse="catch_up"` only where they are needed; without them no row missed any."""
    needed, there = (set(names).intersection(fast_forward.SLOTS) for names in (whole.slot_names, slots))
    if needed and not there:
        return dict(slots, **{slot: whole.first_slot(slot) for slot in needed})
    if not there or needed:
        return slots
    taken, made = [_numbers(slot, slots[slot], np.shape(slots[slot])) if slot in there else None
                   for slot in (fast_forward.ROWS, fast_forward.UPDATES)]
    if taken is None or made is None or np.any(taken != made):
        raise StateError(
            "{}: the state has rows with steps that they have yet to take, for which there is no place here: "
            "optimizer.flush() before it is captured".format(name)
        )
    return {slot: handle for slot, handle in slots.items() if slot not in there}


def _check_names(what, found, wanted, needer):
    if set(found) != set(wanted):
        raise StateError(
            "the state has the {} {}; {} {}".format(
                what, ", ".join(sorted(found)) or "none", needer, ", ".join(sorted(wanted)) or "none"
            )
        )


def _own_values(state, optimizer):
    """{name: value} of counters and scalars."""
    owner = type(optimizer).__name__
    scalars = flat(optimizer.definition, "scalar")
    _check_names("scalars", state.scalars, scalars, owner + " needs")
    values = {}
    for name in counters(optimizer.definition):
        values[name] = getattr(state, name)
        if not isinstance(values[name], numbers.Integral) or values[name] < 0:
            raise StateError("the state has {} = {!r}; {} needs a count".format(name, values[name], owner))
    values["updates"] *= optimizer.calls_per_update()
    for name in scalars:
        values[name] = np.asarray(_numbers(name, state.scalars[name], ()), np.float32)
    return values


# The definition.


def _check_definition(found, definition):
    """Raises where slots of the same names might mean something else."""
    if found is None:
        return
    wanted = definition.get_config(strict=False)
    difference = _difference(found, wanted, definition)
    if difference:
        raise StateError(
            "the state is of {}, this optimizer is {}. Where their slots mean the same, give "
            "other_definition=True".format(*difference)
        )


def _difference(found, wanted, definition):
    """(what the state says, what the optimizer does) of the first difference that gives slots another meaning."""
    name = wanted["definition"]
    if found.get("definition") != name:
        return found.get("definition"), name
    for key, child in definition.children().items():
        inside = found.get(key)
        difference = _difference(inside if isinstance(inside, dict) else {}, wanted[key], child)
        if difference:
            return difference
    for option, declaration in definition.declarations.items():
        if declaration.kind == "option" and option not in definition.keyword_only:
            values = [_plain(config.get(option, declaration.default)) for config in (found, wanted)]
            if values[0] != values[1]:
                return tuple("{} with {}={!r}".format(name, option, value) for value in values)
    return None


def _plain(value):
    if isinstance(value, dict):
        return {name: _plain(inside) for name, inside in value.items()}
    return tuple(map(_plain, value)) if isinstance(value, (list, tuple)) else value


def _hyper_values(state, optimizer):
    """{name: number} of the hypers to set."""
    owner = type(optimizer).__name__
    if state.definition is None:
        raise StateError("the state has no hypers to set: it does not know of which definition it is")
    if not optimizer.sets_hypers:
        raise StateError(
            "hypers of {} cannot be set: on {} they are constants. Bind "
            "everstep.Definition.from_config(state.definition)".format(owner, optimizer.target)
        )
    values = {}
    for name, value in _config_hypers(tree(optimizer.definition), state.definition):
        given = optimizer.given_hyper(name)
        if isinstance(given, Schedule) and given.get_config() == value:
            continue
        try:
            values[name] = optimizer.check_hyper(name, value)
        except (HyperTypeError, HyperValueError) as error:
            raise StateError("{} of the state cannot be set: {}".format(name, error))
    return values


def _config_hypers(node, config):
    for name, declaration in node.definition.declarations.items():
        if declaration.kind == "hyper":
            yield node.prefix + name, config.get(name)
    for key, child in node.children.items():
        inside = config.get(key)
        for found in _config_hypers(child, inside if isinstance(inside, dict) else {}):
            yield found


# Values.


class _Checked(object):
    """A value of a state, checked when this is made and read again when it is called."""

    def __init__(self, name, handle, shape, dtype):
        self.name, self.handle, self.shape, self.dtype = name, handle, tuple(shape), dtype
        self()

    def __call__(self):
        return exactly(self.name, _numbers(self.name, self.handle, self.shape), self.dtype)

    def part(self, place):
        """What belongs to a part of a partitioned variable."""
        value = np.asarray(self.handle[place.slices[0]])[(slice(None),) + place.slices[1:]]
        return exactly(self.name, without_bfloat16(value), self.dtype)


def _numbers(name, value, shape):
    found = _shape(name, value)
    if found != shape:
        raise StateError("{}: the state has shape {}; needed is {}".format(name, found, shape))
    try:
        value = np.asarray(value)
    except StateError:
        raise
    except Exception as error:  # whatever a handle of another file reads with
        raise StateError("{}: the state cannot be read: {}".format(name, error))
    value = without_bfloat16(value)
    if value.dtype.kind not in "fiu" or value.shape != shape:
        raise StateError("{}: the state has values of {}; needed are numbers".format(name, value.dtype))
    return value


def _shape(name, value):
    try:
        return tuple(np.shape(value))
    except ValueError as error:  # a ragged list
        raise StateError("{}: the state has no array: {}".format(name, error))


def exactly(name, value, dtype):
    """The value in a dtype that holds it; bfloat16, which NumPy has not, as float32."""
    value = np.asarray(value)
    made = value.astype("float32" if dtype == "bfloat16" else dtype)
    same = np.array_equal(made[made == made], value[value == value]) and np.array_equal(made == made, value == value)
    if same and dtype == "bfloat16":
        same = not np.any(np.ascontiguousarray(made).view(np.uint32) & 0xFFFF)
    if not same:
        raise StateError(
            "{}: the state has {} values that {} does not hold; cast them yourself if what is lost may be".format(
                name, value.dtype, dtype
            )
        )
    return made


def without_bfloat16(value):
    """bfloat16, which NumPy has not, as float32."""
    return value.astype(np.float32) if value.dtype.name == "bfloat16" else value


# Variables.


class _Whole(object):
    """A variable, or all parts of a partitioned one."""

    def __init__(self, optimizer, name, parts):
        self.optimizer, self.name, self.parts = optimizer, name, parts
        self.first = parts[0]
        self.places = [optimizer.place(part) for part in parts]
        record = optimizer.record(self.first)
        self.record = record._replace(shape=self.places[0].whole) if self.places[0] else record
        self.shape, self.dtype = tuple(self.record.shape), self.record.dtype
        self.slot_names = optimizer.slot_names(self.first)
        if self.places[0] and sum(map(_covers, self.places)) != _size(self.shape):
            raise VariableError("only some parts of {} are given; give all of list(variable)".format(name))

    def _declaration(self, slot):
        return self.optimizer.slot_declaration(self.first, slot, self.record)

    def slot_shape(self, slot):
        return tuple(self._declaration(slot)[1])

    def slot_dtype(self, slot):
        return self._declaration(slot)[2]

    def first_slot(self, slot):
        """What a slot starts with that starts with a number."""
        initial, shape, dtype = self._declaration(slot)
        return np.full(shape, initial, dtype)


def _size(shape):
    return int(np.prod(shape, dtype=np.int64))


def _covers(place):
    return _size([cut.stop - cut.start for cut in place.slices])


def _given(optimizer, variables):
    """{(name or None, key of the whole): [the variable, or its parts]} of a list or a dictionary."""
    if not isinstance(optimizer, Target):
        raise UnsupportedError(
            "capture and restore work on what bind(module) gives; got {!r}. everstep.from_native makes a definition "
            "of a stock optimizer, everstep.read_checkpoint a state of its files".format(optimizer)
        )
    if not isinstance(variables, (dict, list, tuple)):
        raise VariableError(
            "variables are a list of arrays or variables, or {{name: variable}}; got {}".format(
                type(variables).__name__
            )
        )
    named = variables.items() if isinstance(variables, dict) else [(None, variable) for variable in variables]
    found, seen = OrderedDict(), set()
    for name, variable in named:
        if not isinstance(name, TEXT + (type(None),)):
            raise VariableError("variables are called by text; got {!r}".format(name))
        several = variable if isinstance(variable, (list, tuple)) else [variable]
        for part in [part for each in several for part in optimizer.parts(each)]:
            optimizer.check_given(part)
            if optimizer.variable_key(part) in seen:
                raise VariableError("{} is given twice".format(getattr(part, "name", "an array")))
            seen.add(optimizer.variable_key(part))
            found.setdefault((name, optimizer.whole_key(part)), []).append(part)
    return found


@contextlib.contextmanager
def opened(optimizer, variables, session):
    """The way to what an optimizer holds, with the graph in which that lives as the default one."""
    given = _given(optimizer, variables)
    bare = [optimizer.unwrap(part) for parts in given.values() for part in parts]
    with optimizer.backend.inside(bare):
        bare.extend(map(optimizer.unwrap, optimizer.own_variables().values()))
        session = optimizer.backend.session_for(bare, session, optimizer.default_session)
        yield _Access(optimizer, _wholes(optimizer, given), session)


def _wholes(optimizer, given):
    """{name: _Whole}, with `#0`, `#1`, ... behind equal names."""
    names = []
    for place, ((name, _), parts) in enumerate(given.items()):
        names.append(optimizer.state_name(parts[0], place) if name is None else name)
    seen, wholes = {}, OrderedDict()
    for name, parts in zip(names, given.values()):
        number = seen[name] = seen.get(name, -1) + 1
        if names.count(name) > 1:
            name = "{}#{}".format(name, number)
        wholes[name] = _Whole(optimizer, name, parts)
    return wholes


class _Access(object):
    """Reads and writes of what an optimizer holds, in eager code or through a session."""

    def __init__(self, optimizer, wholes, session):
        self.optimizer, self.wholes, self.session = optimizer, wholes, session
        self.backend, self.owner = optimizer.backend, type(optimizer).__name__
        self.variables = [part for whole in wholes.values() for part in whole.parts]
        self.own = optimizer.own_variables
        lost = optimizer.not_carried()
        if lost:
            raise StateError("{}: {}".format(self.owner, lost))
        given = set(map(optimizer.variable_key, self.variables))
        others = [variable for variable in optimizer.slotted() if optimizer.variable_key(variable) not in given]
        if others:
            raise StateError(
                "{} has slots of {} too; give all variables that it trains".format(
                    self.owner, ", ".join(optimizer.record(variable).name for variable in others)
                )
            )

    def read(self, variable):
        return without_bfloat16(self.backend.value(self.optimizer.unwrap(variable), self.session))

    def write(self, variable, value):
        self.backend.put(self.optimizer.unwrap(variable), value, self.session)

    def read_whole(self, whole):
        return self._joined(whole.shape, [(place, self.read(part)) for place, part in zip(whole.places, whole.parts)])

    def read_slot(self, whole, slot):
        """A slot's value; before it is made, the one that it will start with."""
        found = [self.optimizer.find_slot(part, slot) for part in whole.parts]
        if found[0] is None:
            return self._first_value(whole, slot)
        values = [self.read(variable) for variable in found]
        places = [self.optimizer.place(variable) for variable in found]
        if whole.places[0] and not places[0]:
            if any(value.shape != whole.slot_shape(slot) or (value != values[0]).any() for value in values):
                raise StateError(
                    "{}/{}: each part of the variable has one of its own, which cannot be made one".format(
                        whole.name, slot
                    )
                )
        return self._joined(whole.slot_shape(slot), list(zip(places, values)))

    def _joined(self, shape, parts):
        if parts[0][0] is None:
            return parts[0][1]
        whole = np.empty(shape, parts[0][1].dtype)
        for place, value in parts:
            whole[place.slices] = value
        return whole

    def _first_value(self, whole, slot):
        initial, _, dtype = self.optimizer.slot_declaration(whole.first, slot, whole.record)
        return self.read_whole(whole).astype(dtype) if initial is VARIABLE else whole.first_slot(slot)

    def places(self, values):
        """[(variable, what gives its value)] of [(whole, slot or None for the variable itself, value)]."""
        writes = []
        for whole, slot, value in values:
            for part in whole.parts:
                variable = part if slot is None else self.optimizer.find_slot(part, slot)
                if variable is None:
                    self._check_first_value(whole, slot, value)
                    continue
                place = self.optimizer.place(variable)
                if place is None and tuple(self.backend.shape(self.optimizer.unwrap(variable))) != value.shape:
                    raise StateError(
                        "{}: each part of the variable has one of its own, which one cannot be cut into".format(
                            value.name
                        )
                    )
                writes.append((variable, value if place is None else lambda v=value, p=place: v.part(p)))
        return writes

    def _check_first_value(self, whole, slot, value):
        if not np.array_equal(self._first_value(whole, slot), value()):
            raise StateError(
                "{}: {} has no such slot yet, since {} has had no gradient; train it in this graph, or take it out of "
                "the state".format(value.name, self.owner, whole.name)
            )

    def set_hyper(self, name, value):
        variable = self.optimizer.read_hyper(name)
        if hasattr(variable, "assign"):
            self.write(variable, np.float32(value))
        else:
            self.optimizer.set_hyper(name, value)

    def config(self):
        """The definition's config, with its hypers as they are now; those without a value are left out."""
        values = {name: self.hyper(name) for name in self.optimizer.hyper_declarations()}
        values = {name: value for name, value in values.items() if isinstance(value, (float, Schedule))}
        return with_hypers(self.optimizer.definition, values).get_config(strict=False)

    def hyper(self, name):
        value = self.optimizer.read_hyper(name)
        try:
            if hasattr(value, "assign") or is_tensor(value) and not isinstance(value, np.ndarray):
                return self.optimizer.as_given(name, float(self.read(value)))
            return self.optimizer.write_hyper(name, value)
        except EverstepError:  # a placeholder
            return None
