"""The base class of all targets: every member that the engine and `compat/state` ask of a target, with its contract.

A target is a class that stands before the native base class in the method order. Each target defines the same members
in the same order, that of the list in `Target`, under the same headings. The API's own methods (minimize,
compute_gradients, apply_gradients, get_updates, ...) come after `scale_loss`; they check their arguments, then call
`take_step`. `construction`, `hypers` and `stepping` hold what targets have in common.
"""
from __future__ import absolute_import, division, print_function

from everstep.compat.targets.construction import Construction
from everstep.compat.targets.copying import Copying
from everstep.compat.targets.stepping import Stepping

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments

# What each target must define. It may leave the rest as it is. tests/test_targets.py names what is missing.
REQUIRED = "target works_on unsupported base_class start hyper read_hyper set_hyper counter scalar get_slot".split()
REQUIRED += "check_given make_state update".split()


class Target(Copying, Construction, Stepping):
    """What all targets share. A variable is as the user gives it; a name of a hyper, scalar or slot is a flat one.

    Facts:
        target: the name in the table of targets.
        works_on: the modules that speak it, for people.
        unsupported: `Unsupported` records, in the order of the README's table. `refusal(what)` is the error to raise.
        moved_natively: names of the counters that the base class moves by itself.
        takes_gradients: whether this API's optimizers take gradients of a loss.
        sets_hypers: whether hypers can be set after the optimizer is made.
        has_slots: when there are slots, for an error.
        is_fused: whether this API's own optimizers run fused kernels.
        definition, native_base: the definition that is bound; the native class. Set by `bind`.
        lowerings: the engine's plans for this optimizer. Set by `bind`.
        is_averaged: whether everstep.averaged has put averages into the variables.
        backend: the arrays that it works on. Set by `start`.

    Construction:
        base_class(optimizer, module): the native base class; `optimizer` is the module's class that told.
        made_for(definition_class, base): the native class of a definition.
        start(name=None, **native): makes the backend, hypers, counters and scalars, and calls the base class.
        native_name(name): the name that variables on disk begin with.

    Hypers:
        hyper(name): what a step uses: a number, a tensor without dimensions or an everstep.Schedule.
        read_hyper(name): what holds the value: a variable, or what was given.
        set_hyper(name, value): sets it to `check_hyper(name, value)`, or raises HyperValueError.
        check_hyper(name, value): the float to set, or HyperValueError.
        given_hyper(name): what the definition was given.
        hyper_declarations(): `{name: (owner, declaration)}`.

    Counters and scalars:
        counter(name): what the backend works on, int64 without dimensions.
        read_counter(name): its value before the step.
        scalar(name): what the backend works on, float32 without dimensions.
        steps: the counter of steps, those without an update too.

    Variables and slots:
        variable_key(variable): hashable; the same for all parts of a variable on replicas.
        find_key(variable): that, computed.
        whole_key(variable): the same for all parts of a partitioned variable.
        variable_name(variable): its name without `:0`.
        unwrap(variable): what the backend works on.
        record(variable): the `Variable` that rules are told of.
        rule(variable): the definition, specialized for the variable.
        collections(variable): names of the collections of the graph that it is in.
        slot_names(variable): a list, those of the engine too.
        slot_declaration(variable, name): (initial value or VARIABLE, shape, dtype).
        slot(variable, name): what the backend works on, of a slot that is made.
        get_slot(variable, name): what the user gets of a slot, or SlotError.

    State:
        check_given(variable): raises VariableError for a variable that the target cannot train.
        parts(variable): a list of the variables that a partitioned one stands for.
        place(variable): the `Place` of a part in the whole; None of what is whole.
        state_name(variable, place): the name of one in a list of variables.
        own_variables(): `{name: variable}` of the counters and scalars, as far as they are made.
        find_slot(variable, name): what holds a slot, or None.
        slotted(): a list of the variables that have slots.
        make_state(variables): makes the missing counters, scalars and slots; returns what it made beside them.
        default_session(variables): the session for variables of a graph where there is no default one, or None.
        calls_per_update(): what the counter of updates moves by at an update.
        not_carried(): why a State would lack something now, or None.

    Copies:
        trained(): a list of the variables that there is state for.
        copied_variable(variable, memo): the variable that a deep copy trains.
        state_to_copy(): counters, scalars and slots as arrays, or None.
        take_state(state, variables), keep_state(state): gives it to variables; keeps it for those of the first step.

    Step:
        scale_loss(loss): the loss to take gradients of.
        update(variable, function, grad): calls `function(variable, grad)` where the variable lives; returns operations.
        take_step(pairs, count, before, checked): one step; returns operations.
        flush(variables): does what steps have left undone; an operation, or None in eager code.
        take_flush(variables): makes the update of an open window; returns operations.
        catch_up(variable, rows): brings rows up to date; an operation, or None in eager code.
        constrain(variable, write): the operation that wrote a variable, with its constraint.
        native_decay(variable): the base class's own weight decay of a variable, or None.
        check_repeat(variables): raises UnsupportedError for a call that a definition that counts calls cannot take.

    Config:
        get_config(): the native config. Only where the API has it.
        write_hyper(name, value): a hyper's value as a config holds it.
        as_given(name, value): the number as it was given, if `value` is that in float32.
        split_config(config): (definition, native keywords).
        from_config(config): the optimizer of a native config. Only where the API has it.
    """

    target = ""
    works_on = ""
    unsupported = ()  # type: tuple[Any, ...]
    definition = None  # type: Any
    moved_natively = ()  # type: tuple[str, ...]
    takes_gradients = False
    sets_hypers = True
    has_slots = "once apply_gradients has run"
    is_fused = True
