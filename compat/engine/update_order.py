"""The order in which a jitted function of JAX computes a variable and its slots: so that XLA updates them in place.

XLA writes a new value into the memory of the old one if nothing reads the old one later. Else it copies the old value
first, in fresh memory at each step, which costs two to three times the update. A rule does not say which of its results
comes first, and XLA on processors does not look for an order without copies.
"""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict

from everstep.compat.rules.expressions import leaves_of


def in_update_order(view, traced):
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
    kept = dict(zip(computed, natives))
    view.interpreter.natives.update(kept)
    new = OrderedDict((name, view.fit(name, values[name])) for name in first)
    change = view.fit(None, traced.change)
    change = change if traced.assigned else view.lower(view.var) - change
    last = [name for name in values if name not in first]
    if last:
        read = set().union(*(leaves_of(values[name], kept) for name in last))
        leaves = [leaf for leaf in [view.grad, view.var] + list(view.slot_values.values()) if leaf in read]
        zero = backend.constant(0, view.dtype)  # without this wait, XLA would copy the zeros
        natives = backend.separate([change, zero] + [view.lower(leaf) for leaf in leaves])
        change, zero = natives[:2]
        view.interpreter.natives.clear()  # these values are computed again, after the separation
        view.interpreter.natives.update(kept)
        view.interpreter.natives.update((value, zero) for value in values.values() if value.op == "zeros_like")
        view.interpreter.natives.update(zip(leaves, natives[2:]))
        new.update((name, view.fit(name, values[name])) for name in last)
    return change, new


def _first_slots(view, traced):
    """Returns the names of the slots whose old value the change reads in no other way than by their new one."""
    first = [name for name, value in traced.slots.items() if value.op != "zeros_like"]
    while True:
        leaves = leaves_of(traced.change, {traced.slots[name] for name in first})
        late = [name for name in first if view.slot_values[name] in leaves]
        if not late:
            return first
        first = [name for name in first if name not in late]
