"""The base class of all targets, and the contract of its members: all that the engine and `compat/checkpoints` call.

A target is a mixin: it precedes the native base class in the method resolution order. Targets define their members in
the order of the list in `Target`, under the same headings. The API's own methods (minimize, compute_gradients,
apply_gradients, get_updates, ...) follow `scale_loss`. They check their arguments, then call `take_step`.
`checking`, `construction`, `hypers` and `stepping` hold the code that targets share.
"""
from __future__ import absolute_import, division, print_function

from everstep.compat.targets.checking import Checking
from everstep.compat.targets.construction import Construction
from everstep.compat.targets.copying import Copying
from everstep.compat.targets.stepping import Stepping
from everstep.optimizers.contract.types import NativeOptimizer

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments

# Each target must define these; everything else has a default. tests/test_targets.py names the missing ones.
REQUIRED = "target works_on unsupported base_class start hyper read_hyper set_hyper counter scalar get_slot".split()
REQUIRED += "check_variable make_state update".split()


class Target(Copying, Construction, Checking, Stepping, NativeOptimizer):
    """The members of a target.

    A `variable` argument is the object that the user passes. Names of hypers, scalars and slots are flat, see
    optimizers/contract/trees.py.

    Facts:
        target: the target's name.
        works_on: the modules that it supports, in words for error messages.
        unsupported: `Unsupported` records, in the order of the README's table. `refusal(what)` makes the error.
        stock_members: `{name: StockMember}`, attributes of stock classes that people's code reads.
        moved_natively: names of the counters that the base class increments itself.
        takes_gradients: True if this API's optimizers compute gradients of a loss.
        casts_gradients: True if this API takes gradients of another precision than their variable's.
        sets_hypers: True if hypers can be set after construction.
        has_slots: when slots exist, in words for an error message.
        is_fused: True if this API's own optimizers run fused kernels.
        definition, native_base: the bound definition; the native base class. Set by `bind`.
        lowerings: the engine's plans for this optimizer. Set by `bind`.
        eager_steps: the functions of its eager steps. Set by `bind`.
        is_averaged: True while everstep.averaged has put averages into the variables.
        backend: the backend that computes. Set by `start`.

    Construction:
        base_class(optimizer, module): returns the native base class, given the module's Adam or SGD class.
        made_for(definition_class, base): returns the native class of a definition.
        start(name=None, **native): creates the backend, hypers, counters and scalars, and calls the base class.
        native_name(name): returns the prefix of variable names on disk.

    Hypers:
        hyper(name): returns the value that a step uses: a number, a scalar tensor or an everstep.Schedule.
        read_hyper(name): returns the variable that holds the value, or the value that the definition was given.
        set_hyper(name, value): sets it to `check_hyper(name, value)`, or raises HyperValueError.
        check_hyper(name, value): returns the float to set, or raises HyperValueError.
        given_hyper(name): returns the value that the definition was given.
        hyper_declarations(): returns `{name: (owner, declaration)}`.
        rates_of_branches(): returns the names of the branches' learning rates; [] if the definition has no branches.

    Counters and scalars:
        counter(name): returns the native variable of a counter, a scalar int64.
        read_counter(name): returns its value before the step.
        scalar(name): returns the native variable of a scalar, float32.
        steps: the counter of all steps, including those that do not update.

    Variables and slots:
        variable_key(variable): returns a hashable key, equal for a variable's copies on all replicas.
        find_key(variable): computes that key, without the cache.
        whole_key(variable): returns a key that all parts of a partitioned variable share.
        variable_name(variable): returns the name without `:0`.
        unwrap(variable): returns the native variable that the backend works on.
        record(variable): returns the `Variable` record that rules see.
        rule(variable): returns the definition, specialized for the variable.
        rehearsed(variable): returns the set of the kinds of gradients for which the rule was rehearsed.
        collections(variable): returns the names of the graph collections that contain it.
        slot_names(variable): returns a list, with the engine's own slots.
        slot_declaration(variable, name): returns (initial value or VARIABLE, shape, dtype).
        slot(variable, name): returns the native variable of an existing slot.
        get_slot(variable, name): returns the slot as the user sees it, or raises SlotError.

    State:
        check_variable(variable): raises VariableError for a variable that the target cannot train.
        parts(variable): returns the parts of a partitioned variable, or a list of the variable itself.
        place(variable): returns the `Place` of a part in the whole variable; None for a variable that is not a part.
        state_name(variable, place): returns the variable's name in a State; `place` is its index in the user's list.
        own_variables(): returns `{name: variable}` of the counters and scalars that exist.
        counted_elsewhere(): returns the variable that counts updates if the optimizer has no counter, or None.
        find_slot(variable, name): returns the variable that holds a slot, or None.
        variables_with_slots(): returns a list.
        make_state(variables): creates missing counters, scalars and slots; returns a list of other new variables.
        default_session(variables): returns the session to use if the graph has no default session, or None.
        calls_per_update(): returns the amount that the counter of updates grows by per update.
        not_carried(): returns the reason why a State would be incomplete now, or None.

    Copies:
        trained(): returns a list of the variables that have state.
        copied_variable(variable, memo): returns the variable that a deep copy trains.
        exclusions(same_variables): returns what tells a copy which variables have no weight decay, or None.
        exclude(exclusions): takes it over.
        state_to_copy(): returns the counters, scalars and slots that there are, as arrays; or None.
        keep_state(state): keeps a state, or None, for the variables of the first step.
        take_carried(variables): gives variables the state that was kept.

    Step:
        scale_loss(loss): returns the loss to differentiate.
        update(variable, function, grad): calls `function(variable, grad)` on the variable's device; returns operations.
        take_step(pairs, count, before, checked): runs one step; returns operations.
        flush(variables): finishes the pending work of earlier steps; returns an operation, or None in eager code.
        take_flush(variables): runs the update of an open accumulation window; returns operations.
        catch_up(variable, rows): brings rows up to date; returns an operation, or None in eager code.
        constrain(variable, write): returns the operation `write`, followed by the variable's constraint.
        native_decay(variable): returns the base class's weight decay for a variable, or None.
        check_first(variables): checks the definition against the variables of the first step.
        check_grads(pairs): returns the pairs, checked before anything is created or written.
        forgetting_failures(): returns a context that forgets variables and calls first seen in it if its body raises.
        check_repeat(variables): raises UnsupportedError for a call that would break a definition that counts calls.

    Config:
        get_config(): returns the native config. Only if the API has configs.
        write_hyper(name, value): returns a hyper's value in the form that a config holds.
        as_given(name, value): returns the number that the user gave, if `value` equals it in float32.
        split_config(config): returns (definition, native keywords).
        from_config(config): returns the optimizer of a native config. Only if the API has configs.
    """

    target = ""
    works_on = ""
    unsupported = ()  # type: tuple[Any, ...]
    stock_members = {}  # type: dict[str, Any]
    definition = None  # type: Any
    moved_natively = ()  # type: tuple[str, ...]
    takes_gradients = False
    casts_gradients = False
    sets_hypers = True
    has_slots = "once apply_gradients has run"
    is_fused = True
