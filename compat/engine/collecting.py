"""What a step collects for a later update, such as the sum of gradients."""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict

from everstep.compat.engine.fitting import agree
from everstep.compat.engine.rows import LAST_WINDOW
from everstep.compat.engine.tracing import collected
from everstep.optimizers.contract.verbs import defines


def remembers_rows(definition):
    """Returns whether a sparse update needs the rows of earlier steps."""
    return defines(definition, "collect") and (definition.sparse != "exact" or definition.zero_grad_is_noop)


def collect(step, view, earlier):
    """Runs `collect` on this step's rows. Returns (`{name: value}` of slots still to write, operations).

    Rows of a sparse gradient are written at once, because `update` reads other rows too. So is what is added to a slot,
    where that needs no new memory.
    """
    if not step.arrived or not defines(view.rule, "collect"):
        return {}, []
    changed = view.changed_slots(collected(view))
    added = _add_in_place(step, view, changed, earlier)
    _read_before(step, view, changed)
    natives = OrderedDict((name, view.fit(name, value)) for name, value in changed.items())
    if remembers_rows(view.rule) and view.record.shape:
        natives[LAST_WINDOW] = view.slot_native(LAST_WINDOW) * 0 + view.on.window()
    if step.accepted is not None:
        for name, native in natives.items():
            old = view.slot_native(name)
            native = step.backend.cast(native, step.backend.dtype(old))
            natives[name] = step.backend.choose(step.accepted, native, old)
    if not view.by_rows:
        return natives, added
    return {}, step.write_slots(view, natives, earlier)


def _read_before(step, view, changed):
    """Orders what measured old values of slots before their new ones, which take their memory: see update_order.py."""
    if not any(map(step.backend.is_traced, step.measured)):
        return
    leaves = [view.slot_values[name] for name in changed]
    natives = step.backend.separate([view.lower(leaf) for leaf in leaves] + step.measured)
    if natives:
        view.interpreter.natives.update(zip(leaves, natives))


def _add_in_place(step, view, changed, earlier):
    """Adds to the slots of which `changed`, `{name: value}`, has a sum, and takes them out. Returns operations."""
    backend, added = step.backend, []
    if not backend.adds_in_place or not backend.without_strategy() or view.by_rows:
        return added
    if step.accepted is not None or step.is_masked(view.variable):  # what is added may have to be undone
        return added
    for name, value in list(changed.items()):
        slot = step.host.slot(view.variable, name)
        old = view.slot_values[name]
        if value.op != "add" or value.args[0] is not old or backend.dtype(slot) != view.dtype:
            continue
        addend = view.lower(value.args[1])
        if agree(backend.shape(addend), old.leaf_shape):
            with backend.after(earlier + [addend]):
                added.append(backend.add(slot, addend))
            del changed[name]
    return added
