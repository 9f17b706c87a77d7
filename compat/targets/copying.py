"""Copies and pickles of a bound optimizer: its definition and settings as they are now, its counters and slots.

A deep copy trains the same variables, with its own slots. A pickle has no variables. It keeps the slots in the order of
the variables, and gives them to the variables of its first step. Neither can read a graph, whose values live in a
session. `everstep.capture` can.
"""
from __future__ import absolute_import, division, print_function

import copy
from collections import OrderedDict

from everstep.compat.engine.eager_steps import EagerSteps
from everstep.compat.engine.lowering import Lowerings
from everstep.compat.targets.hypers import Hypers
from everstep.compat.targets.native_classes import native_class, target_class_of
from everstep.errors import StateError, UnsupportedError
from everstep.optimizers.contract import flat, is_tensor, with_hypers

# Settings of the native base class that can be changed after construction.
_SETTINGS = ("clipnorm", "clipvalue", "global_clipnorm", "weight_decay")


class Copying(Hypers):
    """Members that copy, pickle and show an optimizer."""

    def __copy__(self):
        """Returns an optimizer that shares slots and counters, as a shallow copy of a stock optimizer does."""
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.__dict__.update(lowerings=Lowerings(twin, self._native.get("lowering")), eager_steps=EagerSteps(twin))
        return twin

    def __deepcopy__(self, memo):
        rebuild, arguments, state = self._parts(self.exclusions(True))
        variables = [self.copied_variable(variable, memo) for variable in self.trained()]
        twin = memo[id(self)] = rebuild(*arguments)
        twin.keep_state(state)
        if variables:
            twin.take_carried(variables)
        return twin

    def __reduce__(self):
        return self._parts(self.exclusions(False))

    def _parts(self, exclusions):
        state = self.state_to_copy()  # first: it raises the error that tells why a graph cannot be copied
        arguments = self._maker(), self.present_definition(), self._present_native()
        return rebuild, arguments + ((exclusions,) if exclusions else ()), state

    def exclusions(self, same_variables):
        """Returns what tells a copy which variables have no weight decay; None if all have.

        Args:
            same_variables: True if the copy trains the same variables.
        """

    def exclude(self, exclusions):
        """Takes over what `exclusions` returned, before the first step."""

    def __reduce_ex__(self, protocol):
        return self.__reduce__()

    def __setstate__(self, state):
        self.keep_state(state)

    def copied_variable(self, variable, memo):
        """Returns the variable that a deep copy trains."""
        return variable

    def _maker(self):
        """Returns (target class, native base), or (class,) for a user's subclass of a native class."""
        if "native_base" not in vars(type(self)):
            return (type(self),)
        return target_class_of(type(self)), self.native_base

    def present_definition(self):
        """Returns the definition with the hypers as they are now.

        Raises:
            UnsupportedError: a hyper is a tensor, which belongs to this process.
        """
        values = {}
        for name in self.hyper_declarations():
            value = self.given_hyper(name)
            if isinstance(value, float):
                values[name] = self.write_hyper(name, self.read_hyper(name))
            elif is_tensor(value):
                raise UnsupportedError(
                    "{}.{} is a tensor, which cannot be copied; give a number, a function or an "
                    "everstep.Schedule, or bind the definition again".format(type(self).__name__, name)
                )
        return with_hypers(self.definition, values)

    def _present_native(self):
        native = dict(self._native)
        for name in _SETTINGS:
            value = self.__dict__.get(name, native.get(name))
            if value is not None and name not in flat(self.definition, "hyper"):
                native[name] = value
        return native

    def trained(self):
        """Returns the variables that this optimizer has state for, in the order in which they were first seen."""
        return [each.variable for each in sorted(self._rules.values(), key=lambda known: known.record.index)]

    def state_to_copy(self):
        """Returns ({name: array} of counters and scalars, [(shape, {slot: array})]).

        Before the first step it returns the state that was kept for it, or the counters, which may be set by then, and
        None for the slots; None if there are no counters either, or in a graph.

        Raises:
            UnsupportedError: the slots live in a graph.
        """
        variables, own = self.trained(), self.own_variables()
        if not variables and (self._carried is not None or not own):
            return self._carried
        with self.backend.inside([self.unwrap(variable) for variable in variables or own.values()]):
            is_eager = self.backend.eager
        if not is_eager and not variables:
            return None
        if not is_eager:
            raise UnsupportedError(
                "{} has slots in a graph, which cannot be copied (nor can a stock optimizer's). Bind the definition "
                "again, and move the state with everstep.capture and everstep.restore".format(type(self).__name__)
            )
        shared = {name: self._array(variable) for name, variable in own.items()}
        if not variables:
            return shared, None
        slots = []
        for variable in variables:
            arrays = OrderedDict()
            for name in self.slot_names(variable):
                slot = self.find_slot(variable, name)
                if slot is not None:
                    arrays[name] = self._array(slot)
            slots.append((self.record(variable).shape, arrays))
        return shared, slots

    def _array(self, variable):
        return self.backend.values([self.unwrap(variable)], None)[0]

    def keep_state(self, state):
        """Keeps a state, or None, for the variables of the first step. Counters that exist get their values now."""
        self.__dict__["_carried"] = state if state and state[1] is not None else None
        if state is None or not self.backend.eager:
            return
        getattr(self, "iterations", None)  # an OptimizerV2 creates it at the first read
        self._set_shared(state[0])

    def take_carried(self, variables):
        """Gives variables the state that was kept for them.

        Raises:
            StateError: their number or shapes differ from those that the copied optimizer trained.
        """
        if self._carried is None:
            return
        shared, slots = self._carried
        expected = [shape for shape, _ in slots]
        shapes = [self.record(variable).shape for variable in variables]
        if shapes != expected:
            raise StateError(
                "this {} was unpickled with the state of variables of shapes {}; got variables of shapes {}. Give it "
                "the same ones in the same order, or bind the definition for a fresh optimizer".format(
                    type(self).__name__, expected, shapes
                )
            )
        self.__dict__["_carried"] = None
        with self.backend.outside():
            self.make_state(variables)
            self._set_shared(shared)
            for variable, (_, arrays) in zip(variables, slots):
                slots = [(self.unwrap(self.find_slot(variable, name)), array, True) for name, array in arrays.items()]
                self.backend.put(slots, None)

    def _set_shared(self, shared):
        variables = self.own_variables()
        self.backend.put([(self.unwrap(variables[name]), shared[name], True) for name in variables], None)

    def __repr__(self):
        try:
            definition = self.present_definition()
        except Exception:  # a tensor, or a graph whose session is closed: show the settings as they were given
            definition = self.definition
        native = "".join(", {}={!r}".format(*each) for each in sorted(self._present_native().items()) if each[1])
        return "<{} bound to {}{}>".format(definition._short(), self.target, native)


def rebuild(maker, definition, native, exclusions=None):
    """Returns the optimizer that a pickle describes, without its state."""
    maker = maker[0] if len(maker) == 1 else native_class(maker[0], type(definition), maker[1])
    optimizer = maker.from_definition(definition, **native)
    if exclusions:
        optimizer.exclude(exclusions)
    return optimizer


def copied_array(array, memo):
    """Returns the array's copy if a larger object is copied, which may hold the array too; else the array itself."""
    return copy.deepcopy(array, memo) if memo else array
