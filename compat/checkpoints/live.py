"""Reads and writes the variables of a live optimizer, in eager code or through a session."""
from __future__ import absolute_import, division, print_function

import contextlib
import sys
import warnings
from collections import OrderedDict

import numpy as np

from everstep.compat.engine.fitting import agree, is_known
from everstep.compat.engine.pairs import as_list
from everstep.compat.files.contents import Handle, numbered, product
from everstep.compat.files.exact import bfloat16_to_float32
from everstep.compat.targets import construction
from everstep.compat.targets.native import NativeOptimizer
from everstep.errors import EverstepError, StateError, StateWarning, UnsupportedError, VariableError
from everstep.optimizers.contract import VARIABLE, Schedule, is_tensor, with_hypers
from everstep.optimizers.contract.checks import TEXT

GROUP_SIZE = 1 << 24  # how many numbers are read at once


@contextlib.contextmanager
def open_access(optimizer, variables, session):
    """Yields an `_Access` to the optimizer's variables, with their graph as the default graph."""
    parts_by_whole = _parts_by_whole(optimizer, variables)
    bound = optimizer._bound
    unwrapped = [bound.adapter.unwrap(part) for parts in parts_by_whole.values() for part in parts]
    with bound.backend.inside(unwrapped):
        unwrapped.extend(map(bound.adapter.unwrap, bound.adapter.own_variables().values()))
        session = bound.backend.session_for(unwrapped, session, bound.adapter.default_session)
        yield _Access(bound, _wholes(bound, parts_by_whole), session, is_ordered(variables))


def differing_hypers(bound):
    """Returns {flat hyper: its values} of hypers that have several, as in parameter groups of torch."""
    groups = bound.adapter.groups
    return groups.differing() if groups is not None else {}


def is_ordered(variables):
    """Returns False for a set, and for a dictionary of a Python whose dictionaries have no order."""
    if isinstance(variables, (set, frozenset)):
        return False
    return type(variables) is not dict or sys.version_info >= (3, 6)


def as_variables(variables):
    """Returns {name: variable}, also of pairs of them, or a list of variables. Raises VariableError for all else."""
    if isinstance(variables, dict):
        return variables
    needed = "variables are a list of arrays or variables, such as model.trainable_variables, or {name: variable}"
    if isinstance(variables, TEXT + (bytes, np.ndarray)):
        raise VariableError("{}; got {!r}".format(needed, variables))
    variables = as_list(variables, VariableError, needed)
    pairs = [each for each in variables if isinstance(each, (tuple, list)) and len(each) == 2]
    if not pairs or len(pairs) < len(variables) or not all(isinstance(name, TEXT) for name, _ in pairs):
        return variables
    if len({name for name, _ in pairs}) < len(pairs):
        raise VariableError("two variables have the same name, of {}".format(", ".join(name for name, _ in pairs)))
    # what named_parameters() of torch gives, and params= of bind takes
    return OrderedDict((name, variable) for name, variable in pairs)


def _parts_by_whole(optimizer, variables):
    """Returns {(name or None, key of the whole variable): [the variable, or its parts]}."""
    if not isinstance(optimizer, NativeOptimizer):
        raise UnsupportedError(
            "this needs an optimizer that bind(module) made (capture takes stock optimizers too); got {!r}. "
            "everstep.from_native makes a definition of a stock optimizer, everstep.read_checkpoint a state of its "
            "files".format(optimizer)
        )
    variables = as_variables(variables)
    bound, adapter = optimizer._bound, optimizer._bound.adapter
    named_variables = variables.items() if isinstance(variables, dict) else [(None, variable) for variable in variables]
    parts_by_whole, seen = OrderedDict(), set()
    for name, variable in named_variables:
        if not isinstance(name, TEXT + (type(None),)):
            raise VariableError("variables are called by text; got {!r}".format(name))
        variable_or_parts = variable if isinstance(variable, (list, tuple)) else [variable]
        for part in [part for item in variable_or_parts for part in adapter.parts(item)]:
            adapter.check_variable(part)
            if bound.variable_key(part) in seen:
                raise VariableError("{} is given twice".format(bound.backend.name_of(part)))
            seen.add(bound.variable_key(part))
            parts_by_whole.setdefault((name, bound.whole_key(part)), []).append(part)
    return parts_by_whole


def _wholes(bound, parts_by_whole):
    """Returns {name: _WholeVariable}, with `#0`, `#1`, ... after equal names."""
    names = numbered([bound.adapter.state_name(parts[0], place) if name is None else name
                      for place, ((name, _), parts) in enumerate(parts_by_whole.items())])
    wholes = zip(names, parts_by_whole.values())
    return OrderedDict((name, _WholeVariable(bound, name, parts)) for name, parts in wholes)


class _WholeVariable(object):
    """A variable, or all parts of a partitioned one."""

    def __init__(self, bound, name, parts):
        self.bound, self.name, self.parts = bound, name, parts
        self.first = parts[0]
        self.places = [bound.adapter.place(part) for part in parts]
        record = bound.record(self.first)
        self.record = record._replace(shape=self.places[0].whole) if self.places[0] else record
        self.shape, self.dtype = self.record.shape, self.record.dtype
        self.slot_names = bound.slot_names(self.first)
        if self.places[0] and product(self.shape) != sum(
                product(each.stop - each.start for each in place.slices) for place in self.places):
            raise VariableError("only some parts of {} are given; give all of list(variable)".format(name))

    def declaration(self, slot):
        """Returns (the number that a slot starts with or VARIABLE, its shape, its dtype)."""
        return self.bound.slot_declaration(self.first, slot, self.record)


class _Access(object):
    """Reads and writes the variables of one optimizer.

    Raises:
        StateError: the optimizer has slots of variables that were not given, or something that no state can hold.
    """

    def __init__(self, bound, wholes, session, ordered=True):
        self.bound, self.wholes, self.session, self.ordered = bound, wholes, session, ordered
        self.backend, self.owner = bound.backend, bound.owner
        self._ahead = {}  # {id: (variable, value)}
        self._waiting = []  # (whole variable, slot or None) of the handles that are read next
        self.variables = [part for whole in wholes.values() for part in whole.parts]
        obstacle = bound.adapter.not_carried()
        if obstacle:
            raise StateError("{}: {}".format(self.owner, obstacle))
        given_keys = set(map(bound.variable_key, self.variables))
        trained = bound.variables_with_slots()
        others = [variable for variable in trained if bound.variable_key(variable) not in given_keys]
        if others:
            raise StateError(
                "{} has slots of {} too; give all variables that it trains".format(
                    self.owner, ", ".join(bound.record(variable).name for variable in others)
                )
            )

    def read_ahead(self, variables):
        """Reads variables at once, for `read` to return their values, each one time."""
        values = self.backend.values([self.bound.adapter.unwrap(variable) for variable in variables], self.session)
        self._ahead.update((id(variable), (variable, value)) for variable, value in zip(variables, values))

    def read(self, variable):
        if id(variable) not in self._ahead:
            self.read_ahead([variable])
        return bfloat16_to_float32(self._ahead.pop(id(variable))[1])

    def read_counters(self):
        """Returns {name: value} of the counters and scalars. Reads the hypers ahead, if they all have values."""
        variables = self.bound.adapter.own_variables()
        self.read_ahead(list(variables.values()))
        hypers = [self.bound.adapter.read(name) for name in self.bound.hyper_declarations()]
        try:
            self.read_ahead([hyper for hyper in hypers if hasattr(hyper, "assign")])
        except EverstepError:
            pass
        return OrderedDict((name, self.read(variable)) for name, variable in variables.items())

    def read_wholes(self):
        """Yields (whole variable, {slot: value}, value of the variable). Reads about GROUP_SIZE at once."""
        for group in self._groups():
            self.read_ahead([variable for _, variables in group for variable in variables])
            for whole, _ in group:
                slots = OrderedDict((slot, self.read_slot(whole, slot)) for slot in whole.slot_names)
                yield whole, slots, self.read_whole(whole)

    def _groups(self):
        """Yields lists of (whole variable, [all variables that hold its values])."""
        group, room = [], GROUP_SIZE
        for whole in self.wholes.values():
            variables = [self.bound.adapter.find_slot(part, slot) for slot in whole.slot_names for part in whole.parts]
            variables = [slot for slot in variables if slot is not None] + whole.parts
            size = product(length or 1 for length in whole.shape or ()) * (len(variables) // len(whole.parts))
            if group and size > room:
                yield group
                group, room = [], GROUP_SIZE
            group.append((whole, variables))
            room -= size
        yield group

    def handles(self, weights):
        """Returns ({name: {slot: handle}}, {name: handle} of the variables, empty without `weights`).

        The handles are read in this order, about GROUP_SIZE at once; each read is of the whole.
        """
        wanted = [(whole, slot) for whole in self.wholes.values() for slot in whole.slot_names]
        wanted += [(whole, None) for whole in self.wholes.values() if weights]
        self._waiting = list(wanted)
        found = [self._handle(whole, slot) for whole, slot in wanted]
        slots = OrderedDict((name, OrderedDict()) for name in self.wholes)
        for (whole, slot), handle in zip(wanted, found):
            if slot is not None:
                slots[whole.name][slot] = handle
        return slots, OrderedDict((whole.name, handle) for (whole, slot), handle in zip(wanted, found) if slot is None)

    def _handle(self, whole, slot):
        def read(selection):
            if self._waiting and self._waiting[0] == (whole, slot):
                self._read_next()
            return (self.read_whole(whole) if slot is None else self.read_slot(whole, slot))[selection]

        variables = self._variables_of(whole, slot)
        shape, dtype = (whole.shape, whole.dtype) if slot is None else whole.declaration(slot)[1:]
        if variables:
            variable = self.bound.adapter.unwrap(variables[0])
            dtype = self.backend.dtype(variable)
            if self.bound.adapter.place(variables[0]) is None:
                shape = self.backend.shape(variable)
        if not is_known(shape):
            shape = (self.read_whole(whole) if slot is None else self.read_slot(whole, slot)).shape
        return Handle("{}/{}".format(whole.name, slot or ""), shape, "float32" if dtype == "bfloat16" else dtype, read)

    def _variables_of(self, whole, slot):
        """Returns the variables that hold a slot of a variable, or the variable itself; [] if there is no slot yet."""
        if slot is None:
            return whole.parts
        found = [self.bound.adapter.find_slot(part, slot) for part in whole.parts]
        return [] if found[0] is None else found

    def _read_next(self):
        """Reads the values that are asked for next, of about GROUP_SIZE numbers together."""
        variables, room = [], GROUP_SIZE
        while self._waiting:
            whole, slot = self._waiting[0]
            size = product(length or 1 for length in whole.shape or ())
            if variables and size > room:
                break
            variables += self._variables_of(whole, slot)
            room -= size
            del self._waiting[0]
        self.read_ahead(variables)

    def write(self, writes):
        """Sets variables. `writes` is as `assignments` returns it."""
        unwrap = self.bound.adapter.unwrap
        self.backend.put(((unwrap(variable), read(), is_shared) for variable, read, is_shared in writes), self.session)

    def read_whole(self, whole):
        """Returns the value of a variable, joined from its parts if it is partitioned."""
        return self._join(whole.shape, [(place, self.read(part)) for place, part in zip(whole.places, whole.parts)])

    def read_slot(self, whole, slot):
        """Returns a slot's value; before the slot exists, its initial value."""
        slot_variables = [self.bound.adapter.find_slot(part, slot) for part in whole.parts]
        if slot_variables[0] is None:
            return self._initial_value(whole, slot)
        shape = whole.declaration(slot)[1]
        values = [self.read(variable) for variable in slot_variables]
        places = [self.bound.adapter.place(variable) for variable in slot_variables]
        if whole.places[0] and not places[0]:
            if any(value.shape != shape or (value != values[0]).any() for value in values):
                raise StateError(
                    "{}/{}: each part of the variable has a separate value, and these cannot be joined into one".format(
                        whole.name, slot
                    )
                )
        return self._join(shape, list(zip(places, values)))

    def _join(self, shape, parts):
        """Returns one array, joined from [(place or None, values of the part)]."""
        if parts[0][0] is None:
            return parts[0][1]
        whole = np.empty(shape, parts[0][1].dtype)
        for place, value in parts:
            whole[place.slices] = value
        return whole

    def _initial_value(self, whole, slot):
        """Returns the value that a slot will start with."""
        initial, shape, dtype = whole.declaration(slot)
        if initial is VARIABLE:
            return self.read_whole(whole).astype(dtype)
        return np.full(shape if is_known(shape) else self.read_whole(whole).shape, initial, dtype)

    def assignments(self, values):
        """Returns [(variable, function that returns its value, True if others hold that array)].

        Args:
            values: [(whole variable, slot or None for the variable itself, value as `Checked` is one)].
        """
        writes = []
        for whole, slot, value in values:
            for part in whole.parts:
                variable = part if slot is None else self.bound.adapter.find_slot(part, slot)
                if variable is None:
                    self._check_initial_value(whole, slot, value)
                    continue
                place = self.bound.adapter.place(variable)
                if place is None and not agree(self.backend.shape(self.bound.adapter.unwrap(variable)), value.shape):
                    raise StateError(
                        "{}: each part of the variable has a separate value, and the state has only one".format(
                            value.name
                        )
                    )
                read = value if place is None else lambda v=value, p=place: v.part(p)
                writes.append((variable, read, value.is_shared))
        return writes

    def _check_initial_value(self, whole, slot, value):
        """Raises StateError unless the value of a slot that does not exist yet is its initial value."""
        if not np.array_equal(self._initial_value(whole, slot), value()):
            raise StateError(
                "{}: {} has no such slot yet, since {} has had no gradient; train it in this graph, or take it out of "
                "the state".format(value.name, self.owner, whole.name)
            )

    def set_hyper(self, name, value):
        """Sets a hyper, in its variable if it has one."""
        variable = self.bound.adapter.read(name)
        if hasattr(variable, "assign"):
            self.write([(variable, lambda: np.float32(value), False)])
        else:
            self.bound.adapter.set(name, value)

    def config(self):
        """Returns the definition's config with its present hypers, without those that have no value.

        Warns of those that have several, by group: they stay as the definition was given.
        """
        differing = differing_hypers(self.bound)
        if differing:
            warnings.warn(StateWarning(
                "{}: its parameter groups have different values of {}. A state has one, so it has the definition's; "
                "restore it into an optimizer with such groups".format(self.owner, " and of ".join(
                    "{} ({})".format(name, ", ".join(map(str, differing[name]))) for name in sorted(differing)))),
                stacklevel=4)
        values = {name: self.hyper(name) for name in self.bound.hyper_declarations() if name not in differing}
        values = {name: value for name, value in values.items() if isinstance(value, (float, Schedule))}
        return with_hypers(self.bound.definition, values).get_config(strict=False)

    def hyper(self, name):
        """Returns the present value of a hyper: a float, a `Schedule`, or None if it has none."""
        value = self.bound.adapter.read(name)
        try:
            if hasattr(value, "assign") or is_tensor(value) and not isinstance(value, np.ndarray):
                return construction.as_given(self.bound, name, float(self.read(value)))
            return construction.written(self.bound, name)
        except EverstepError:  # a placeholder has no value
            return None
