"""Implements `sparse="catch_up"`: when a row is next touched, it first takes the updates that it missed.

A row misses an update that brings it no gradient. The engine keeps three slots beside a variable's own:
- `catch_up/updates`: the number of updates of the variable. `catch_up/rows`: how many of them each row has taken.
- `catch_up/history`: t, the hypers and the scalars of the last updates, so that a missed update uses its own rate. Of t
  it has the remainder by a power of 2 up to which its dtype holds every integer.

A row replays the first `max_replay_steps` missed updates one by one, each with a zero gradient. The definition's closed
form, `fast_forward`, then takes the rest at once. Only the rows of this step are read and written.
"""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict

from everstep.compat.engine.trace import Tracer, Value
from everstep.errors import RuleError
from everstep.optimizers.contract.checks import compute_dtype
from everstep.optimizers.contract.declarations import running_rule
from everstep.optimizers.contract.definition import assign
from everstep.optimizers.contract.schedule import Schedule
from everstep.optimizers.contract.trees import Names, flat, flatten, tree
from everstep.optimizers.contract.verbs import defines

SLOTS = UPDATES, ROWS, HISTORY = "catch_up/updates", "catch_up/rows", "catch_up/history"
LENGTH = 4096  # updates in the history; older ones use its oldest values
_TURN = {"float32": 2**24, "float64": 2**53}  # what the t of the history is a remainder by


def catches_up(moves_rows, rule):
    """Returns whether rows can miss updates that they take later."""
    return moves_rows and rule.sparse == "catch_up" and not rule.zero_grad_is_noop


def catch_up_slots(rule, record):
    """Returns `{name: (initial value, shape, dtype)}` of the slots kept beside a variable's own."""
    for name, (_, slot) in flat(rule.without_grad, "slot").items():
        if slot.shape_for(record)[:1] != record.shape[:1]:
            raise RuleError(
                '{} cannot take sparse="catch_up": its slot {} has no rows that could be brought up to date by '
                "themselves".format(rule._short(), name)
            )
    per_row = tuple(record.shape[:1]) + (1,) * (len(record.shape) - 1)
    width = 1 + len(_history_names(rule))
    history = 0, (LENGTH, width), compute_dtype(record.dtype)
    return OrderedDict([(UPDATES, (0, (), "int64")), (ROWS, (0, per_row, "int64")), (HISTORY, history)])


def _history_names(rule):
    """Returns the flat names of the hypers and scalars that the history holds, in its order."""
    return list(flat(rule, "hyper")) + list(flat(rule, "scalar"))


class Missed(object):
    """The missed updates of some rows of a variable, or of all its rows.

    Args:
        host: a target's instance, see `compat/engine/step.py`.
        variable: the variable.
        find_rows: returns the rows, each once; None for all.
    """

    def __init__(self, host, variable, find_rows=None):
        self.host, self.backend, self.variable = host, host.backend, variable
        self.rule, self.record = host.rule(variable), host.record(variable)
        self.without_grad, self.max_replay_steps = self.rule.without_grad, self.rule.without_grad.max_replay_steps
        self.dtype = compute_dtype(self.record.dtype)
        self.slots = list(flat(self.without_grad, "slot"))
        self.find_rows = find_rows
        self.tracer = Tracer(self.backend, self.dtype)
        self.bindings = {}  # {name: native value} that the leaves of the traced rule read
        self.now = None  # the number of updates of the optimizer, of which t of a missed update is at most one more

    def values(self):
        """Returns `{name: value}` of the variable (None) and its slots after the missed updates, in compute dtype."""
        backend, ops = self.backend, self.backend.ops
        rows = self.find_rows() if self.find_rows else None
        taken = self._read(ROWS, rows)
        history = backend.read(self.host.slot(self.variable, HISTORY))
        updates = self._updates()
        missed = updates - taken
        replayed = ops["minimum"](missed, self.max_replay_steps)
        start = [backend.cast(self._read(name, rows), self.dtype) for name in [None] + self.slots]
        self.now = self.host.read_counter("updates")

        def replay(step, values):
            update = taken + step
            # Stays within the history, also for rows that have missed nothing.
            recorded = ops["minimum"](ops["maximum"](update, updates - LENGTH), updates - 1)
            offset = recorded - update  # above 0 if the history has lost the update
            new = self._evaluate(replay_step, values, self._history_rows(history, recorded), offset=offset)
            is_missed = ops["less"](step, replayed)
            return [ops["where"](is_missed, after, value) for after, value in zip(new, values)]

        if backend.eager and not backend.largest(missed):
            return OrderedDict(zip([None] + self.slots, start))
        if self.max_replay_steps:
            replay_step = self._trace_step()
            start = backend.repeat(backend.largest(replayed), replay, start)
        if defines(self.without_grad, "fast_forward"):
            newest = self._history_rows(history, ops["maximum"](updates - 1, 0))
            left = backend.cast(missed - replayed, self.dtype)
            start = self._evaluate(self._trace_fast_forward(), start, newest, offset=0 * missed, steps=left)
        return OrderedDict(zip([None] + self.slots, start))

    def take(self):
        """Writes the rows after their missed updates. Returns operations."""
        backend, values = self.backend, self.values()
        rows = self.find_rows() if self.find_rows else None
        values[ROWS] = self._read(ROWS, rows) * 0 + self._updates()
        with backend.after(list(values.values())):
            return [
                backend.write(self._native(name), value, rows if self._has_rows(name) else None)
                for name, value in values.items()
            ]

    def history_row(self, scope):
        """Returns t (its remainder), the hypers and the scalars of this update, in the history's order."""
        return [scope.t % _TURN[self.dtype]] + [scope.values[name] for name in _history_names(self.rule)]

    def record_update(self, values, rows, earlier, predicate):
        """Writes the history's row for this update, and counts the update for the variable and its rows.

        Counts nothing if `predicate` is given and does not hold. Returns operations.
        """
        backend, ops = self.backend, self.backend.ops
        with backend.after(earlier):
            updates = self._updates()
            new_updates = updates + (1 if predicate is None else backend.cast(predicate, "int64"))
            taken = self._read(ROWS, rows) * 0 + new_updates
            if predicate is not None:
                taken = backend.choose(predicate, taken, self._read(ROWS, rows))
            place = ops["reshape"](ops["remainder"](updates, LENGTH), (1,))
            history_row = ops["reshape"](backend.stack(values), (1, -1))
        with backend.after([new_updates, taken, history_row, place]):
            return [
                backend.write(self._native(HISTORY), history_row, place),
                backend.write(self._native(ROWS), taken, rows),
                backend.write(self._native(UPDATES), new_updates),
            ]

    # Both rules are traced once, on leaves that read `self.bindings`; `_evaluate` sets those.

    def trace(self):
        """Traces both rules, for their errors."""
        self._trace_step()
        if defines(self.without_grad, "fast_forward"):
            self._trace_fast_forward()

    def _trace_step(self):
        """Traces one update with a zero gradient. Returns (change, changed slots)."""
        with running_rule():
            var, slots, hypers = self._arguments()
            zero = self.tracer.apply("zeros_like", (var,))
            change, new = self.without_grad.update(self.tracer, zero, var, slots, hypers, self._t())
            return change, flatten(self.without_grad, "slot", new, "update")

    def _trace_fast_forward(self):
        """Traces the closed form of many updates with zero gradients. Returns (change, changed slots)."""
        with running_rule():
            var, slots, hypers = self._arguments()
            steps = self.tracer.leaf(lambda: self.bindings["steps"])
            change, new = self.without_grad.fast_forward(self.tracer, var, slots, hypers, steps)
            return change, flatten(self.without_grad, "slot", new, "fast_forward")

    def _evaluate(self, traced, values, history_rows, **bindings):
        """Returns the new values of the variable and its slots by a traced rule.

        `history_rows` are the history's rows that belong to the variable's rows.
        """
        (change, new), results = traced, {}
        names = [None] + self.slots
        self.bindings = dict(zip(names, values), history_rows=history_rows, **bindings)
        with self.tracer.forgetting():
            var = self.tracer.lower(self._as_value(change.value if isinstance(change, assign) else change), results)
            natives = {None: var if isinstance(change, assign) else values[0] - var}
            natives.update((name, self.tracer.lower(self._as_value(value), results)) for name, value in new.items())
            return [self._fit(natives[name], old) if name in natives else old for name, old in zip(names, values)]

    def _fit(self, value, old):
        """Returns the value in the compute dtype and the old value's full shape."""
        return self.backend.cast(value, self.dtype) + self.backend.ops["zeros_like"](old)

    def _as_value(self, value):
        return value if isinstance(value, Value) else self.tracer.constant(value)

    def _arguments(self):
        """Returns (variable, slots, hypers) as leaves that read `self.bindings`."""
        shape = (None,) + tuple(self.record.shape[1:])
        slots = {name: self.tracer.leaf(lambda name=name: self.bindings[name]) for name in self.slots}
        node = tree(self.without_grad)
        hypers = {name: self._hyper(place, name) for place, name in enumerate(_history_names(self.rule))}
        hypers["pending"] = self._as_value(1.0)  # zero gradients, however many, add up to zero
        hypers["updates"] = self._t() - 1
        return (
            self.tracer.leaf(lambda: self.bindings[None], shape=shape),
            Names(node, slots),
            Names(node, hypers, ("pending", "updates")),
        )

    def _hyper(self, place, name):
        """Returns a hyper or scalar at the missed update. An everstep schedule is evaluated again, at that update."""
        hyper = self.host.given_hyper(name) if name in flat(self.rule, "hyper") else None
        if isinstance(hyper, Schedule):
            return self._as_value(hyper.value(self.tracer, self._t() - 1))
        return self.tracer.leaf(lambda: self._column(place + 1))

    def _t(self):
        """Returns t at the missed update: t in the history's row, less `offset` if that is a later update."""

        def read():
            backend, turn = self.backend, _TURN[self.dtype]
            remainder = backend.cast(self._column(0), "int64")
            turns = backend.ops["floor_divide"](backend.ops["maximum"](self.now - remainder, 0), turn)
            return backend.ops["maximum"](remainder + turns * turn - self.bindings["offset"], 1)

        return self.tracer.count_leaf(read)

    def _column(self, place):
        """Returns one column of the history, one value for each row of the variable."""
        shape = (-1,) + (1,) * (len(self.record.shape) - 1)
        return self.backend.ops["reshape"](self.bindings["history_rows"][:, place], shape)

    def _history_rows(self, history, updates):
        """Returns the history's rows for some updates, numbered from 0."""
        ops = self.backend.ops
        return self.backend.gather(history, ops["reshape"](ops["remainder"](updates, LENGTH), (-1,)))

    # Reading and writing.

    def _native(self, name):
        return self.host.unwrap(self.variable) if name is None else self.host.slot(self.variable, name)

    def _updates(self):
        return self.backend.read(self._native(UPDATES))

    def _read(self, name, rows):
        native = self._native(name)
        by_rows = rows is not None and self._has_rows(name)
        return self.backend.gather(native, rows) if by_rows else self.backend.read(native)

    def _has_rows(self, name):
        """Returns whether a slot, or the variable, is read and written by rows."""
        if name in (None, ROWS):
            return True
        if name in (UPDATES, HISTORY):
            return False
        shape = flat(self.rule, "slot")[name][1].shape_for(self.record)
        return bool(shape) and shape[0] == self.record.shape[0]


def check(definition):
    """Raises RuleError if a definition cannot take missed updates later."""
    why = None
    if definition.locality == "variable":
        why = "its rule needs the whole variable"
    elif defines(definition.without_grad, "measure"):
        why = "its rule measures all rows of a step"
    if why:
        raise RuleError(
            '{} cannot take sparse="catch_up": {}. Use sparse="exact" or "rows"'.format(definition._short(), why)
        )
