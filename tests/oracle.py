"""What a definition should do, in NumPy float64, through code that shares with the engine the rule alone."""

from __future__ import absolute_import, division, print_function

import numpy as np

from everstep.compat.ops import numpy_ops
from everstep.optimizers.declarations import VARIABLE
from everstep.optimizers.definition import Variable, assign


class Values(object):
    def __init__(self, **values):
        self.__dict__.update(values)


def trajectory(definition, start, batches, rates=None, accumulate=1):
    """The weights and slots after a run.

    Args:
        definition: a definition without children.
        start: {name: array}.
        batches: a list with, for each step, {name: dense array, (values, indices) or None}, or a function that makes
            that of the weights.
        rates: {step: learning rate set before that step}.
        accumulate: number of steps whose mean gradient makes one update.

    Returns:
        ({name: weights}, {name: {slot: array}}), in float64.
    """
    weights = {name: np.array(value, np.float64) for name, value in start.items()}
    hypers, scalars = {}, {}
    for name, declaration in definition.declarations.items():
        if declaration.kind == "hyper":
            hypers[name] = getattr(definition, name)
        if declaration.kind == "scalar":
            scalars[name] = declaration.init
    rules, slots = {}, {}
    for place, name in enumerate(sorted(weights)):
        value = weights[name]
        record = Variable(name, value.shape, "float64", place, (), None)
        rules[name] = definition.specialize(record)
        slots[name] = {}
        for slot_name in rules[name].declared_order:
            slot = rules[name].declarations[slot_name]
            if slot.kind == "slot" and slot.exists(rules[name]):
                initial = slot.initial_value(rules[name])
                full = value.copy() if initial is VARIABLE else np.full(slot.shape_for(record), initial)
                slots[name][slot_name] = full
    window = []
    for step, batch in enumerate(batches):
        if rates and step in rates:
            hypers["learning_rate"] = rates[step]
        window.append(batch(weights) if callable(batch) else batch)
        if len(window) < accumulate:
            continue
        updates = (step + 1) // accumulate - 1
        present = {
            name: float(np.float32(value)) if not callable(value) else value.value(numpy_ops, np.float64(updates))
            for name, value in hypers.items()
        }
        t = np.float64(updates + 1)
        scalars.update(definition.advance(numpy_ops, Values(**scalars), Values(**dict(present, **scalars)), t))
        present.update(scalars)
        for name in weights:
            grads = [batch[name] for batch in window if batch[name] is not None]
            if grads:
                _update(rules[name], weights, slots[name], name, grads, accumulate, present, t)
        window = []
    return weights, slots


def _update(rule, weights, slots, name, grads, count, hypers, t):
    value = weights[name]
    dense, rows = np.zeros_like(value), set()
    for grad in grads:
        if isinstance(grad, tuple):
            np.add.at(dense, grad[1], np.asarray(grad[0], np.float64))
            rows.update(int(row) for row in grad[1])
        else:
            dense = dense + np.asarray(grad, np.float64)
            rows.update(range(len(value)) if value.ndim else ())
    dense = dense / count
    by_rows = rule.sparse == "rows" and isinstance(grads[0], tuple) and rule.locality != "variable"
    here = np.array(sorted(rows)) if by_rows else Ellipsis

    def part(array):
        return array[here] if by_rows and array.shape[:1] == value.shape[:1] else array

    present = {slot: part(array).copy() for slot, array in slots.items()}
    measured = rule.measure(numpy_ops, dense[here], value[here].copy(), Values(**present), Values(**hypers))
    seen = Values(**dict(hypers, **measured))
    change, new = rule.update(numpy_ops, dense[here], value[here].copy(), Values(**present), seen, t)
    value[here] = change.value if isinstance(change, assign) else value[here] - change
    for slot, array in new.items():
        if by_rows and slots[slot].shape[:1] == value.shape[:1]:
            slots[slot][here] = array
        else:
            slots[slot][Ellipsis] = array


def distance(found, wanted):
    """max|difference| / max|wanted|, the measure of "the same"."""
    found, wanted = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    assert found.shape == wanted.shape, (found.shape, wanted.shape)
    size = np.abs(wanted).max()
    return float(np.abs(found - wanted).max() / size) if size else float(np.abs(found).max())
