"""Copies and pickles of a bound optimizer: its definition and settings as they are now, its counters and slots.

A deep copy trains the same variables, with its own slots. A pickle has no variables. It keeps the slots with the names
of the variables, and gives them to the variables of its first step if these have the same names. Other variables begin
anew. Neither can read a graph, whose values live in a session. `everstep.capture` can. Plans and functions are in none:
a copy plans anew.

Where stock's own copies have no slots, ours have none: in Keras 3, and wherever a library such as scikeras makes the
copies of all optimizers of an API from their configs.
"""
from __future__ import absolute_import, division, print_function

import copy
import warnings
from collections import OrderedDict

from everstep.compat.engine.step import counters
from everstep.compat.targets import construction
from everstep.compat.targets.native_classes import native_class, register
from everstep.errors import StateError, StateWarning, UnsupportedError
from everstep.optimizers.contract import flat, is_tensor, scalar_starts, with_hypers

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments

# Settings of the native base class that can be changed after construction.
_SETTINGS = ("clipnorm", "clipvalue", "global_clipnorm", "weight_decay")


def shallow(bound):
    """Returns an optimizer that shares slots and counters, as a shallow copy of a stock optimizer does."""
    if bound.adapter.copies_deeply:
        return copy.deepcopy(bound.native)
    cls = type(bound.native)  # type: Any
    twin = cls.__new__(cls)
    vars(twin).update(vars(bound.native))
    vars(twin)["_bound"] = bound.for_twin(twin)
    return twin


def deep(bound, memo):
    """Returns an optimizer with its own slots that trains the same variables."""
    rebuild_it, arguments, state = parts(bound, bound.adapter.exclusions(True))
    # First: `copied_array` asks whether the memo is empty, and Python 2.7 puts even an empty tuple into it.
    variables = [bound.adapter.copied_variable(variable, memo) for variable in bound.adapter.trained()]
    if bound.adapter.carries is AsTorch:  # with its parameters
        arguments, state = copy.deepcopy((arguments, state), memo)
    else:
        arguments = arguments[:4] + copy.deepcopy(arguments[4:], memo)
    twin = memo[id(bound.native)] = rebuild_it(*arguments)
    adapter = twin._bound.adapter
    adapter.carries.keep(twin._bound, state)
    if variables and adapter.carries.has_slots_at_once:
        adapter.carries.give(twin._bound, variables)
    return twin


def parts(bound, exclusions):
    """Returns (`rebuild`, its arguments, the state), as `__reduce__` does. `exclusions` is as of the adapter."""
    # First: it raises the error that tells why a graph cannot be copied.
    state = None if _copies_configs(bound) else bound.adapter.carries.taken(bound)
    native, is_torch = present_native(bound), bound.adapter.carries is AsTorch
    if is_torch:
        native["params"] = [dict(group) for group in bound.native.param_groups]
    arguments = _maker(type(bound.native)), bound.definition if is_torch else present_definition(bound), native
    own = _own_attributes(bound, arguments) if construction.has_own_init(type(bound.native)) else {}
    return rebuild, arguments + ((exclusions, own) if own else (exclusions,) if exclusions else ()), state


def _own_attributes(bound, arguments):
    """Returns {name: value} of what the `__init__` of a user's subclass sets: a new optimizer has nothing else yet."""
    fresh, present = rebuild(*arguments), vars(bound.native)
    return {name: present[name] for name in set(vars(fresh)) - fresh._bound.base_attributes if name in present}


def _copies_configs(bound):
    """Returns whether some library has replaced how optimizers of this API are pickled, as scikeras does."""
    base = type(bound.native).native_base
    library = getattr(base.__reduce__, "__module__", None)  # None: it is Python's own
    return library is not None and library.split(".")[0] != base.__module__.split(".")[0]


def rebuild(maker, definition, native, exclusions=None, own_attributes=()):
    """Returns the optimizer that a pickle describes, without its state. Registers its class, as `bind` does."""
    if len(maker) == 1:
        maker = maker[0]
    else:
        maker = native_class(maker[0], type(definition), maker[1])
        register(maker)
    optimizer = maker.from_definition(definition, **native)
    if exclusions:
        optimizer._bound.adapter.exclude(exclusions)
    vars(optimizer).update(own_attributes)
    return optimizer


def _maker(cls):
    """Returns (adapter class, native base), or (class,) for a user's subclass of a native class."""
    return (cls.adapter_class, cls.native_base) if "native_base" in vars(cls) else (cls,)


def present_definition(bound):
    """Returns the definition with the hypers as they are now.

    Raises:
        UnsupportedError: a hyper is a tensor, which belongs to this process.
    """
    values = {}
    for name in bound.hyper_declarations():
        value = bound.given(name)
        if isinstance(value, float):
            values[name] = construction.written(bound, name)
        elif is_tensor(value):
            raise UnsupportedError(
                "{}.{} is a tensor, which cannot be copied; give a number, a function or an "
                "everstep.Schedule, or bind the definition again".format(bound.owner, name)
            )
    return with_hypers(bound.definition, values)


def present_native(bound):
    """Returns {name: value} of the keywords of `bind`, as they are now."""
    native = dict(bound.arguments)
    for name in _SETTINGS:
        value = vars(bound.native).get(name, native.get(name))
        if value is not None and name not in flat(bound.definition, "hyper"):
            native[name] = value
    return native


def shown(bound):
    """Returns the text of a bound optimizer."""
    try:
        definition = present_definition(bound)
    except Exception:  # a tensor, or a graph whose session is closed: show the settings as they were given
        definition = bound.definition
    native = "".join(", {}={!r}".format(*each) for each in sorted(present_native(bound).items()) if each[1])
    text = "<{} bound to {}{}>".format(definition._short(), bound.adapter.target, native)
    has_groups = bound.adapter.groups is not None and "param_groups" in vars(bound.native)
    return "{}\n{}".format(bound.base.__repr__(), text) if has_groups else text  # as stock of torch shows them


class ByRole(object):
    """State that copies carry by the roles of slots: of APIs that make a variable's slots when it first trains."""

    has_slots_at_once = True  # of a deep copy

    @staticmethod
    def taken(bound):
        """Returns ({name: array} of counters and scalars, {variable's key: (shape, {slot: array})}).

        Before the first step it returns the state that was kept for it, or the counters, which may be set by then, and
        None for the slots; None if there are no counters either, or in a graph.

        Raises:
            UnsupportedError: the slots live in a graph.
        """
        variables, own = bound.adapter.trained(), bound.adapter.own_variables()
        if not variables and (bound.carried is not None or not own):
            return bound.carried
        with bound.backend.inside([bound.adapter.unwrap(variable) for variable in variables or own.values()]):
            is_eager = bound.backend.eager
        if not is_eager and not variables:
            return None
        if not is_eager:
            raise UnsupportedError(
                "{} has slots in a graph, which cannot be copied (nor can a stock optimizer's). Bind the definition "
                "again, and move the state with everstep.capture and everstep.restore".format(bound.owner)
            )
        shared = {name: _array(bound, variable) for name, variable in own.items()}
        if not variables:
            return shared, None
        slots = OrderedDict()
        for key, variable in zip(_keys(bound, variables), variables):
            arrays = OrderedDict()
            for name in bound.slot_names(variable) + bound.adapter.other_slots(variable):
                slot = bound.adapter.find_slot(variable, name)
                if slot is not None:
                    arrays[name] = _array(bound, slot)
            slots[key] = bound.record(variable).shape, arrays
        return shared, slots

    @staticmethod
    def keep(bound, state):
        """Keeps a state, or None, for the variables of the first step. Counters that exist get their values now."""
        bound.carried = state if state and state[1] is not None else None
        if state is None or not bound.backend.eager:
            return
        getattr(bound.native, "iterations", None)  # an OptimizerV2 creates it at the first read
        _set_shared(bound, state[0])

    @staticmethod
    def give(bound, variables):
        """Gives variables the state that was kept for them. Variables of other names begin anew.

        Raises:
            StateError: a shape differs from that of the copied optimizer's variable of the same name.
        """
        if bound.carried is None:
            return
        shared, slots = bound.carried
        if isinstance(slots, list):  # of an older pickle, which has them by position
            slots = OrderedDict(zip(_keys(bound, variables), slots)) if len(slots) == len(variables) else {}
        if _begins_anew(bound, slots, variables):
            return
        slots = [slots[key] for key in _keys(bound, variables)]
        expected = [shape for shape, _ in slots]
        shapes = [bound.record(variable).shape for variable in variables]
        if shapes != expected:
            raise StateError(
                "this {} was unpickled with the state of variables of shapes {}; got variables of shapes {}. Give it "
                "the same ones, or bind the definition for a fresh optimizer".format(bound.owner, expected, shapes)
            )
        bound.carried = None
        adapter = bound.adapter
        with bound.backend.outside():
            adapter.make_state(variables)
            _set_shared(bound, shared)
            for variable, (_, arrays) in zip(variables, slots):
                found = [(adapter.find_slot(variable, name), array) for name, array in arrays.items()]
                bound.backend.put([(adapter.unwrap(slot), array, True) for slot, array in found], None)


class ByPosition(object):
    """State that copies carry as the values of `variables`, in their order, with the names of what they trained."""

    has_slots_at_once = False  # such an optimizer trains one list of variables, and a copy may train another one

    @staticmethod
    def taken(bound):
        """Returns (the values of all variables there are, those that wait for the first step or None)."""
        adapter = bound.adapter
        values = bound.backend.values([adapter.unwrap(variable) for variable in bound.native._variables], None)
        waiting = bound.carried
        if waiting is None and adapter.is_built():
            waiting = Waiting(values)
            waiting.keys = _keys(bound, adapter.trained())
        return values, waiting

    @staticmethod
    def keep(bound, state):
        """Keeps a state, or None, for the first step. Counters and hypers, which come first, get their values now."""
        values, bound.carried = state or ((), None)
        for variable, value in zip(bound.native._variables, values):
            dtype = bound.backend.dtype(bound.adapter.unwrap(variable))
            variable.assign(bound.backend.cast(bound.backend.tensor(value), dtype))

    @staticmethod
    def give(bound, variables):
        """Gives variables the state that was kept for them. Raises SlotError if it does not fit."""
        if bound.carried is not None:
            bound.native.build(variables)

    @staticmethod
    def check_names(bound, variables):
        """Drops the state of a copy, which waits for its first step, if these variables have other names."""
        if isinstance(bound.carried, Waiting):
            _begins_anew(bound, bound.carried.keys, variables)


class Waiting(list):
    """The values of a copy's variables, which wait for its first step.

    Attributes:
        keys: those of the variables that the copied optimizer trained.
    """

    keys = ()  # type: Any


class WithoutSlots(ByPosition):
    """State that copies carry as those of Keras 3's own optimizers: all if there are no slots yet, else none."""

    @staticmethod
    def taken(bound):
        adapter, variables = bound.adapter, bound.native._variables
        carried = variables if bound.carried is None else bound.carried
        if len(carried) == (adapter.before_slots if adapter.is_built() else len(variables)):
            return ByPosition.taken(bound)[0] if bound.carried is None else bound.carried, None
        warnings.warn(
            "this copy of {} begins anew, without slots and updates, as those of Keras 3's own optimizers do. For the "
            "rest write everstep.restore(copy, everstep.capture(optimizer, variables), variables)".format(bound.owner),
            StateWarning,
            stacklevel=5,
        )
        return None


class AsTorch(object):
    """State that copies carry as those of torch's own optimizers: parameters with their groups and their state."""

    has_slots_at_once = False

    @staticmethod
    def taken(bound):
        return bound.base.__getstate__()

    @staticmethod
    def keep(bound, state):
        """Takes what `taken` returned, or what torch's loader gives. None: nothing."""
        if state is not None:
            bound.base.__setstate__(state)
            bound.adapter.state.settle()

    @staticmethod
    def give(bound, variables):
        """Does nothing: a copy has its state at once."""


def _keys(bound, variables):
    """Returns a (name, number among those of that name) for each variable."""
    names = [bound.adapter.state_name(variable, index) for index, variable in enumerate(variables)]
    return [(name, names[:index].count(name)) for index, name in enumerate(names)]


def _begins_anew(bound, kept, variables):
    """Returns whether variables have other names than a copy's state. If so, drops the state and says so."""
    keys = _keys(bound, variables)
    if sorted(keys) == sorted(kept):
        return False
    bound.carried = None
    new = {name: 0 for name in counters(bound.definition)}
    new.update(scalar_starts(bound.definition))
    with bound.backend.outside():
        _set_shared(bound, new)
    warnings.warn(
        "this copy of {} begins anew: it has the state of {}, and trains {}. If they are the same under other names, "
        "write everstep.restore(copy, everstep.capture(optimizer, variables), variables, by_order=True)".format(
            bound.owner, *(", ".join(name for name, _ in each) or "no variables" for each in (kept, keys))
        ),
        StateWarning,
        stacklevel=3,
    )
    return True


def _array(bound, variable):
    return bound.backend.values([bound.adapter.unwrap(variable)], None)[0]


def _set_shared(bound, shared):
    variables, unwrap = bound.adapter.own_variables(), bound.adapter.unwrap
    bound.backend.put([(unwrap(variables[name]), shared[name], True) for name in variables], None)


def copied_array(array, memo):
    """Returns the array's copy if a larger object is copied, which may hold the array too; else the array itself."""
    return copy.deepcopy(array, memo) if memo else array
