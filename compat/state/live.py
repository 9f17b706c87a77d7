"""Reads and writes the variables that an optimizer holds, in eager code or through a session."""
from __future__ import absolute_import, division, print_function

import contextlib
from collections import OrderedDict

import numpy as np

from everstep.compat.state.values import TEXT, without_bfloat16
from everstep.compat.targets.base import Target
from everstep.errors import EverstepError, StateError, UnsupportedError, VariableError
from everstep.optimizers.contract import VARIABLE, Schedule, is_tensor, with_hypers


@contextlib.contextmanager
def opened(optimizer, variables, session):
    """The way to what an optimizer holds, with the graph in which that lives as the default one."""
    given = _given(optimizer, variables)
    bare = [optimizer.unwrap(part) for parts in given.values() for part in parts]
    with optimizer.backend.inside(bare):
        bare.extend(map(optimizer.unwrap, optimizer.own_variables().values()))
        session = optimizer.backend.session_for(bare, session, optimizer.default_session)
        yield _Access(optimizer, _wholes(optimizer, given), session)


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
            optimizer.check_variable(part)
            if optimizer.variable_key(part) in seen:
                raise VariableError("{} is given twice".format(getattr(part, "name", "an array")))
            seen.add(optimizer.variable_key(part))
            found.setdefault((name, optimizer.whole_key(part)), []).append(part)
    return found


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
        trained = optimizer.variables_with_slots()
        others = [variable for variable in trained if optimizer.variable_key(variable) not in given]
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
