"""The order in which a jitted function of JAX computes a variable and its slots: so that XLA updates them in place.

XLA writes a new value into the memory of the old one if nothing reads the old one later. Else it copies the old value
first, in fresh memory at each step, which costs two to three times the update. A rule does not say which of its results
comes first, and XLA on processors does not look for an order without copies.
"""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict


def in_turn(view, traced):
    """Computes a variable and its slots, each old value being read before it is replaced.

    First the slots whose old value the change needs only for their new value, then the variable, then the others.

    Args:
        view, traced: a `VariableView`, and what its rule returned.

    Returns:
        (the variable's new value, `{name: new value}`); None if the backend has no use for an order.
    """
    backend, values = view.backend, traced.slots
    first = _first_slots(view, traced)
    computed = [value for name, value in values.items() if name in first and not value.step_wide]
    natives = backend.separate([view.lower(value) for value in computed or [view.var]])
    if natives is None:
        return None
    kept = {id(value): (value, native) for value, native in zip(computed, natives)}
    view.results.update(kept)
    new = OrderedDict((name, view.fit(name, values[name])) for name in first)
    change = view.fit(None, traced.change)
    change = change if traced.assigned else view.lower(view.var) - change
    last = [name for name in values if name not in first]
    if last:
        read = set().union(*(_leaves(values[name], kept) for name in last))
        leaves = [leaf for leaf in [view.grad, view.var] + list(view.slot_values.values()) if id(leaf) in read]
        zero = backend.constant(0, view.dtype)  # XLA copies zeros that do not wait for what reads the old value
        natives = backend.separate([change, zero] + [view.lower(leaf) for leaf in leaves])
        change, zero = natives[:2]
        view.results.clear()  # what comes last is computed anew
        view.results.update(kept)
        view.results.update((id(value), (value, zero)) for value in values.values() if value.op == "zeros_like")
        view.results.update((id(leaf), (leaf, native)) for leaf, native in zip(leaves, natives[2:]))
        new.update((name, view.fit(name, values[name])) for name in last)
    return change, new


def _first_slots(view, traced):
    """Returns the names of the slots whose old value the change reads in no other way than by their new one."""
    first = [name for name, value in traced.slots.items() if value.op != "zeros_like"]
    while True:
        leaves = _leaves(traced.change, {id(traced.slots[name]) for name in first})
        late = [name for name in first if id(view.slot_values[name]) in leaves]
        if not late:
            return first
        first = [name for name in first if name not in late]


def _leaves(value, known):
    """Returns the ids of the leaves that a value is computed from, if the values of the ids `known` are there."""
    leaves, waiting, seen = set(), [value], set()
    while waiting:
        value = waiting.pop()
        if id(value) in known or id(value) in seen:
            continue
        seen.add(id(value))
        if value.read is not None:
            leaves.add(id(value))
        waiting.extend(value.args)
    return leaves
