"""A reference implementation in NumPy float64. It shares only the rules with the engine, no code of it."""

from __future__ import absolute_import, division, print_function

import numpy as np

from everstep.compat.backends.on_numpy import numpy_ops
from everstep.optimizers.contract.counted_random import RandomStart
from everstep.optimizers.contract.declarations import VARIABLE
from everstep.optimizers.contract.definition import Variable, assign, total
from everstep.optimizers.contract.trees import flatten


class Values(object):
    """Values by name, as attributes; those of a child definition are a nested `Values`."""

    def __init__(self, **values):
        vars(self).update(values)

    def scaled(self, name, factor):
        """Returns a copy in which every value of that name, at any level, is multiplied by `factor`."""
        return Values(**{
            key: value.scaled(name, factor) if isinstance(value, Values) else value * factor if key == name else value
            for key, value in vars(self).items()
        })

    def replaced(self, values):
        """Returns a copy with other values of some names."""
        return Values(**dict(vars(self), **values))


def nested(values, shared):
    """Turns nested dictionaries into nested `Values`. Each level also gets the values of `shared`."""
    return Values(**dict(shared, **{
        name: nested(value, shared) if isinstance(value, dict) else value for name, value in values.items()
    }))


def trajectory(definition, start, batches, rates=None, accumulate=1, updates=0):
    """Trains and returns the weights and slots.

    Args:
        definition: a definition; one with children has to be `sparse="exact"`.
        start: {name: array}.
        batches: for each step {name: dense array, (values, indices) or None}, or a function of the weights that
            returns this.
        rates: {step: learning rate set before that step}.
        accumulate: number of steps whose mean gradient makes one update.
        updates: number of updates before the first step. Up to 2^53 a float64 counts exactly.

    Returns:
        ({name: weights}, {name: {slot: array}}), in float64.
    """
    run = Oracle(definition, start, accumulate, updates)
    for step, batch in enumerate(batches):
        if rates and step in rates:
            run.set_rate(rates[step])
        run.step(batch)
    return run.weights, {name: run.slots_of(name) for name in run.weights}


class Oracle(object):
    """A training run in float64. See `trajectory` for the arguments.

    Attributes:
        weights: {name: array}.
    """

    def __init__(self, definition, start, accumulate=1, updates=0):
        self.definition, self.accumulate, self.updates = definition, accumulate, updates
        self.weights = {name: np.array(value, np.float64) for name, value in start.items()}
        self.records = {
            name: Variable(name, self.weights[name].shape, "float64", place, (), None)
            for place, name in enumerate(sorted(self.weights))
        }
        self.rules = {name: definition.specialize(record) for name, record in self.records.items()}
        self.slots = {name: _slots(self.rules[name], record, self.weights[name])
                      for name, record in self.records.items()}
        self.scalars = _declared(definition, "scalar", lambda owner, declaration: declaration.initial_value(owner))
        self.pending, self.window = 0, []

    def set_rate(self, rate):
        self.definition = self.definition.replace(learning_rate=rate)
        self.rules = {name: self.definition.specialize(record) for name, record in self.records.items()}

    def slots_of(self, name):
        """Returns {slot: array} of a variable, with the slots of children by their names on disk."""
        return flatten(self.rules[name], "slot", self.slots[name], "update")

    def step(self, batch):
        """Takes one step: {name: dense array, (values, indices) or None}, or a function of the weights."""
        self.window.append(batch(self.weights) if callable(batch) else batch)
        if len(self.window) < self.accumulate:
            return
        grads = {}
        for name in self.weights:
            window_grads = [batch[name] for batch in self.window if batch[name] is not None]
            if window_grads:
                grads[name] = _mean_gradient(window_grads, self.weights[name], self.accumulate)
        self.window = []
        self.pending += 1
        self._apply(grads)

    def _apply(self, grads):
        definition, rules, records, weights, slots = (
            self.definition, self.rules, self.records, self.weights, self.slots)
        shared = {"pending": np.float64(self.pending), "updates": np.float64(self.updates)}
        before, sums, all_totals = _merge(_hypers(definition, self.updates), self.scalars), {}, {}
        for name, (grad, rows) in grads.items():
            part, value, present = _select_rows(rules[name], weights[name], slots[name], rows)
            seen = nested(before, dict(shared, **_positions(records[name])))
            measured = rules[name].measure(numpy_ops, grad[part], value, nested(present, {}), seen)
            sums[name], totals = _split_totals(measured)
            all_totals = _add_totals(all_totals, totals)
        sums = {name: _merge(local, all_totals) for name, local in sums.items()}
        whole = nested(_merge(before, all_totals), shared)
        if not definition.should_accept(numpy_ops, whole):
            self.scalars = _merge(self.scalars, definition.reject(numpy_ops, nested(self.scalars, {}), whole))
            self.pending -= 1
            return
        for name, (grad, rows) in grads.items():
            part, value, present = _select_rows(rules[name], weights[name], slots[name], rows)
            seen = nested(_merge(before, sums[name]), dict(shared, **_positions(records[name])))
            collected = rules[name].collect(numpy_ops, grad[part], nested(present, {}), seen)
            slots[name] = _write_slots(slots[name], collected, part, weights[name])
        should_update = definition.should_update(numpy_ops, whole)
        if not should_update and definition.stages == 1:
            return
        t = np.float64(self.updates + 1)
        new = _merge(self.scalars, definition.advance(numpy_ops, nested(self.scalars, {}), whole, t))
        for name, (grad, rows) in grads.items():
            part, value, present = _select_rows(rules[name], weights[name], slots[name], rows)
            seen = nested(_merge(_merge(before, new), sums[name]), dict(shared, **_positions(records[name])))
            slots_present = nested(present, {})
            change, changed = numpy_ops.update_of(rules[name], grad[part], value, slots_present, seen, t)
            new_value = change.value if isinstance(change, assign) else value - change
            if rules[name].sparse == "variable_rows" and rows is not None and not rules[name].zero_grad_is_noop:
                weights[name][rows] = new_value[rows]
            else:
                weights[name][part] = new_value
            slots[name] = _write_slots(slots[name], changed, part, weights[name])
        if should_update:
            self.scalars, self.updates, self.pending = new, self.updates + 1, 0


def _declared(definition, kind, value):
    """Returns {name: value(...)} of every declaration of a kind, with a nested dictionary for each child."""
    values = {name: _declared(inside, kind, value) for name, inside in definition.children().items()}
    for name, declaration in definition.declarations.items():
        if declaration.kind == kind and declaration.exists(definition):
            values[name] = value(definition, declaration)
    return values


def _hypers(definition, updates):
    def present(owner, declaration):
        value = getattr(owner, declaration.name)
        return value.value(numpy_ops, np.float64(updates)) if callable(value) else float(np.float32(value))

    return _declared(definition, "hyper", present)


def _slots(rule, record, value):
    slots = {name: _slots(inside, record, value) for name, inside in rule.active().items()}
    for name, slot in rule.declarations.items():
        if slot.kind == "slot" and slot.exists(rule):
            initial, shape = slot.initial_value(rule), slot.shape_for(record, rule)
            if isinstance(initial, RandomStart):
                seed = initial.seed if isinstance(initial.seed, int) else getattr(rule, str(initial.seed))
                slots[name] = np.array(initial.numbers(numpy_ops, "{}/{}/{}".format(record.name, name, seed), shape))
            elif initial is VARIABLE:
                slots[name] = value.copy()
            else:
                slots[name] = np.full(shape, initial(record) if callable(initial) else initial, np.float64)
    return slots


def _positions(record):
    """Returns `hyper.row_number` and `hyper.place_in_row` of a variable."""
    rows, size = record.shape[:1], int(np.prod(record.shape[1:], dtype=int))
    return {
        "row_number": np.arange(rows[0], dtype=np.int32).reshape((-1,) + (1,) * len(record.shape[1:])) if rows else 0,
        "place_in_row": np.arange(size, dtype=np.int32).reshape(record.shape[1:]) if rows else 0,
    }


def _mean_gradient(grads, value, count):
    """Returns the mean gradient as a dense array, and the rows that are present, or None if it is dense."""
    dense, rows = np.zeros_like(value), set()
    for grad in grads:
        if isinstance(grad, tuple):
            np.add.at(dense, grad[1], np.asarray(grad[0], np.float64))
            rows.update(int(row) for row in grad[1])
        else:
            dense = dense + np.asarray(grad, np.float64)
            rows.update(range(len(value)) if value.ndim else ())
    return dense / count, np.array(sorted(rows)) if isinstance(grads[0], tuple) else None


def _select_rows(rule, value, slots, rows):
    """Returns (the rows to update or `...`, those rows of the variable, those rows of its slots)."""
    part = rows if rule.sparse == "rows" and rows is not None and rule.locality != "variable" else Ellipsis

    def of(array):
        if isinstance(array, dict):
            return {name: of(inside) for name, inside in array.items()}
        return (array[part] if array.shape[:1] == value.shape[:1] else array).copy()

    return part, value[part].copy(), of(slots)


def _write_slots(slots, new, part, variable):
    written = dict(slots)
    for name, array in new.items():
        if isinstance(array, dict):
            written[name] = _write_slots(slots[name], array, part, variable)
            continue
        written[name] = slots[name].copy()
        written[name][part if slots[name].shape[:1] == variable.shape[:1] else Ellipsis] = array
    return written


def _merge(one, other):
    merged = dict(one)
    for name, value in other.items():
        merged[name] = _merge(one.get(name, {}), value) if isinstance(value, dict) else value
    return merged


def _split_totals(measured):
    """Splits measured values into (those of one variable, totals to sum over all variables)."""
    local, totals = {}, {}
    for name, value in measured.items():
        if isinstance(value, dict):
            local[name], totals[name] = _split_totals(value)
        else:
            (totals if isinstance(value, total) else local)[name] = getattr(value, "value", value)
    return local, totals


def _add_totals(one, other):
    sums = dict(one)
    for name, value in other.items():
        sums[name] = _add_totals(one.get(name, {}), value) if isinstance(value, dict) else one.get(name, 0) + value
    return sums


def distance(actual, expected):
    """Returns max|actual - expected| / max|expected|, the error measure of all tests."""
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    size = np.abs(expected).max()
    return float(np.abs(actual - expected).max() / size) if size else float(np.abs(actual).max())
