"""Implements `sparse="catch_up"`: when a row is next touched, it first takes the updates that it missed.

A row misses an update that brings it no gradient. The engine keeps these slots beside a variable's own:
- `catch_up/updates`: the number of sparse updates of the variable since all its rows were last up to date.
- `catch_up/rows`: how many of them each row has taken.
- `catch_up/sums`: the table from which the definition's closed form, `fast_forward`, reads sums over missed updates,
  see `missed_sums.py`.
- `catch_up/history`: t, the hypers and the scalars of the last updates, so that a missed update uses its own rate. Of t
  it has the remainder by a power of 2 up to which its dtype holds every integer.

The closed form takes all missed updates at once. Rules without one, and those whose form holds only once the row has
come to rest, replay the first missed updates one by one, each with a zero gradient; these alone have a history. Only
the rows of this step are read and written.
"""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict

import numpy as np

from everstep.compat.backends.on_numpy import NumpyBackend
from everstep.compat.engine.missed_sums import Columns
from everstep.compat.rules.interpreter import Interpreter
from everstep.errors import RuleError
from everstep.optimizers.contract.checks import compute_dtype
from everstep.optimizers.contract.configured import once
from everstep.optimizers.contract.declarations import running_rule
from everstep.optimizers.contract.definition import Definition, assign
from everstep.optimizers.contract.schedule_base import Schedule
from everstep.optimizers.contract.trees import Names, flat, flatten, tree, walk
from everstep.optimizers.contract.verbs import defines

SLOTS = UPDATES, ROWS, HISTORY, SUMS = "catch_up/updates", "catch_up/rows", "catch_up/history", "catch_up/sums"
LENGTH = 4096  # updates in the history; older ones use its oldest values
_TURN = {"float32": 2**24, "float64": 2**53}  # what the t of the history is a remainder by


def catches_up(moves_rows, rule):
    """Returns whether rows can miss updates that they take later."""
    return moves_rows and rule.sparse == "catch_up" and not rule.zero_grad_is_noop


def closed_form(rule, dtype="float32", rank=2):
    """Returns the `Columns` of a rule's `fast_forward`."""
    without_grad = rule.without_grad
    return once(without_grad, ("closed form", dtype, rank), lambda: Columns(without_grad, dtype, rank))


def replayed_steps(rule):
    """Returns how many missed updates are replayed one by one, at most."""
    without_grad = rule.without_grad
    steps = without_grad.max_replay_steps
    if defines(without_grad, "fast_forward") and (closed_form(rule).needs_rest or not _has_own_form(without_grad)):
        return max(steps, Definition.max_replay_steps)
    return steps


def _has_own_form(rule):
    """Returns whether each definition in a rule that overrides `update` also overrides `fast_forward`, if it has one.

    A subclass of Adam with another update has Adam's form, which holds only once the row has come to rest.
    """
    for node in walk(tree(rule), active=True):
        bases = type(node.definition).__mro__
        update, form = [next(i for i, base in enumerate(bases) if verb in vars(base)) for verb in _VERBS]
        if form > update and not node.definition.zero_grad_is_noop:
            return False
    return True


_VERBS = ("update", "fast_forward")


def catch_up_slot_names(rule):
    """Returns the names of the slots kept beside a variable's own."""
    names = [UPDATES, ROWS]
    if replayed_steps(rule):
        names.append(HISTORY)
    if closed_form(rule).width:
        names.append(SUMS)
    return names


def catch_up_slots(rule, record):
    """Returns `{name: (initial value, shape, dtype)}` of the slots kept beside a variable's own."""
    for name, (owner, slot) in flat(rule.without_grad, "slot").items():
        if slot.shape_for(record, owner)[:1] != record.shape[:1]:
            raise RuleError(
                '{} cannot take sparse="catch_up": its slot {} has no rows that could be brought up to date by '
                'themselves. Use sparse="exact" or "rows"'.format(rule._short(), name)
            )
    per_row = tuple(record.shape[:1]) + (1,) * (len(record.shape) - 1)
    dtype = compute_dtype(record.dtype)
    declarations = {
        UPDATES: lambda: (0, (), "int64"),
        ROWS: lambda: (0, per_row, "int64"),
        HISTORY: lambda: (0, (LENGTH, 1 + len(_history_names(rule))), dtype),
        SUMS: lambda: (0, closed_form(rule, dtype, len(record.shape)).shape, "float64"),
    }
    return OrderedDict((name, declarations[name]()) for name in catch_up_slot_names(rule))


def _history_names(rule):
    """Returns the flat names of the hypers and scalars that the history holds, in its order."""
    return list(flat(rule, "hyper")) + list(flat(rule, "scalar"))


class Missed(object):
    """The missed updates of some rows of a variable, or of all its rows.

    Its methods that write return operations.

    Args:
        host: a `Bound`, see `compat/engine/step.py`.
        variable: the variable.
        find_rows: returns the rows, each once; None for all.
    """

    def __init__(self, host, variable, find_rows=None):
        self.host, self.backend, self.variable = host, host.backend, variable
        self.rule, self.record = host.rule(variable), host.record(variable)
        self.without_grad, self.replayed_steps = self.rule.without_grad, replayed_steps(self.rule)
        self.dtype = compute_dtype(self.record.dtype)
        self.slots = list(flat(self.without_grad, "slot"))
        self.closed_form = closed_form(self.rule, self.dtype, len(self.record.shape))
        self.find_rows = find_rows
        self.tracer = host.lowerings.tracer(self.dtype)
        self.now = None  # the number of updates of the optimizer, of which t of a missed update is at most one more

    def values(self):
        """Returns `{name: value}` of the variable (None) and its slots after the missed updates, in compute dtype."""
        backend = self.backend
        rows = self.find_rows() if self.find_rows else None
        left, updates = self._read(ROWS, rows), self._updates()
        values = [backend.cast(self._read(name, rows), self.dtype) for name in [None] + self.slots]
        if not backend.eager or backend.largest(updates - left):
            if self.replayed_steps:
                replayed = backend.ops["minimum"](updates - left, self.replayed_steps)
                values, left = self._replay(values, left, updates, replayed), left + replayed
            table = self._native(SUMS) if self.closed_form.width else None
            values = self.closed_form.values(backend, table, left, updates, values)
        return OrderedDict(zip([None] + self.slots, values))

    def _replay(self, start, taken, updates, replayed):
        """Returns the values after the first missed updates, each carried out with a zero gradient."""
        backend, ops = self.backend, self.backend.ops
        history = backend.read(self._native(HISTORY))
        self.now = self.host.read_counter("updates")
        replay_step = self._trace_step()

        def replay(step, values):
            update = taken + step
            # The index stays within the history, even for rows that missed no step.
            recorded = ops["minimum"](ops["maximum"](update, updates - LENGTH), updates - 1)
            offset = recorded - update  # above 0 if the history has lost the update
            new = self._evaluate(replay_step, values, self._history_rows(history, recorded), offset)
            is_missed = ops["less"](step, replayed)
            return [ops["where"](is_missed, after, value) for after, value in zip(new, values)]

        return backend.repeat(backend.largest(replayed), replay, start)

    def take(self):
        """Writes the rows after their missed updates."""
        values = self.values()
        rows = self.find_rows() if self.find_rows else None
        values[ROWS] = self._read(ROWS, rows) * 0 + self._updates()
        return self._write(values, rows)

    def take_all(self):
        """Writes all rows after their missed updates, and starts to count updates anew. `find_rows`: all, or none."""
        values = self.values()
        rows = self.find_rows() if self.find_rows else None
        values[ROWS] = self._read(ROWS, rows) * 0
        values[UPDATES] = self._updates() * 0
        done = self._write(values, rows)
        if not self.closed_form.width:
            return done
        with self.backend.after(done):
            entry = self.backend.constant(np.zeros((1, self.closed_form.width)), "float64")
            return done + [self.backend.write(self._native(SUMS), entry, self.backend.constant([0], "int64"))]

    def _write(self, values, rows):
        backend = self.backend
        with backend.after(list(values.values())):
            return [
                backend.write(self._native(name), value, rows if self._has_rows(name) else None)
                for name, value in values.items()
            ]

    def recorded(self, scope):
        """Returns `{name: value}` of what is recorded of this update: "t", an integer, hypers and scalars."""
        names = _history_names(self.rule) if self.replayed_steps else self.closed_form.names()
        return OrderedDict([("t", scope.t.exact.integer)] + [(name, scope.values[name]) for name in names])

    def record_update(self, step, rows, earlier, predicate):
        """Records this update, and counts it for the variable and its rows.

        Args:
            step: the native values of `recorded`.
            predicate: whether the update takes place, or None. If not, nothing is counted.
        """
        backend, ops = self.backend, self.backend.ops
        with backend.after(earlier):
            updates = self._updates()
            new_updates = updates + (1 if predicate is None else backend.cast(predicate, "int64"))
            writes = [(ROWS, self._read(ROWS, rows) * 0 + new_updates, rows)]
            if predicate is not None:
                writes = [(ROWS, backend.choose(predicate, writes[0][1], self._read(ROWS, rows)), rows)]
            if self.replayed_steps:
                numbers = [step["t"] % _TURN[self.dtype]] + [step[name] for name in _history_names(self.rule)]
                numbers = backend.stack([backend.cast(number, self.dtype) for number in numbers])
                place = ops["reshape"](ops["remainder"](updates, LENGTH), (1,))
                writes.append((HISTORY, ops["reshape"](numbers, (1, -1)), place))
            if self.closed_form.width:
                table = self._native(SUMS)
                places, entries = self.closed_form.recorded(backend, table, updates, step)
                if predicate is not None:
                    entries = backend.choose(predicate, entries, backend.gather(table, places))
                writes.append((SUMS, entries, places))
            writes.append((UPDATES, new_updates, None))
        with backend.after([native for write in writes for native in write[1:]]):
            return [backend.write(self._native(name), value, rows) for name, value, rows in writes]

    def how(self):
        """Returns how a row takes the updates that it missed, for `everstep_plan`."""
        if not self.replayed_steps:
            return "rows catch up by a closed form"
        return "rows catch up by up to {} replayed updates".format(self.replayed_steps)

    # A replayed update is traced once. For each missed update, `_evaluate` reads the leaves of that trace anew.

    def trace(self):
        """Traces a replayed update, for its errors."""
        if self.replayed_steps:
            self._trace_step()

    def _trace_step(self):
        """Traces one update with a zero gradient. Returns (whether it assigns, change, {name: changed slot})."""
        key = "replay", id(self.rule), self.record.shape, tuple(self._hypers().items())
        return self.tracer.once(key, self._traced_step)

    def _traced_step(self):
        with running_rule():
            var, slots, hypers = self._arguments()
            zero = self.tracer.apply("zeros_like", (var,))
            change, new = self.without_grad.update(self.tracer, zero, var, slots, hypers, self._t())
            new = flatten(self.without_grad, "slot", new, "update")
        self.tracer.once(("alive", id(self.rule)), lambda: self.rule)  # keeps the id its own
        as_value, assigned = self.tracer.as_value, isinstance(change, assign)
        new = OrderedDict((name, as_value(value)) for name, value in new.items())
        return assigned, as_value(change.value if assigned else change), new

    def _evaluate(self, traced, values, history_rows, offset):
        """Returns the new values of the variable and its slots by a traced rule.

        Args:
            history_rows: the history's rows that belong to the variable's rows.
            offset: by how many updates each of them is later than the one to replay.
        """
        assigned, change, new = traced
        old = OrderedDict(zip([None] + self.slots, values))
        readers = {
            "replayed": lambda name: old[name],
            "history": lambda place: self._column(history_rows, place),
            "t": lambda _: self._recorded_t(history_rows, offset),
        }
        interpreter = Interpreter(self.backend, lambda leaf: readers[leaf[0]](leaf[1]))
        change = interpreter.lower(change)
        natives = {None: change if assigned else values[0] - change}
        natives.update((name, interpreter.lower(value)) for name, value in new.items())
        return [self._fit(natives[name], value) if name in natives else value for name, value in old.items()]

    def _fit(self, value, old):
        """Returns the value in the compute dtype and the old value's full shape."""
        return self.backend.cast(value, self.dtype) + self.backend.ops["zeros_like"](old)

    def _arguments(self):
        """Returns (variable, slots, hypers) as leaves."""
        shape, leaf, node = (None,) + tuple(self.record.shape[1:]), self.tracer.leaf, tree(self.without_grad)
        slots = {name: leaf(("replayed", name)) for name in self.slots}
        hypers = dict(self._hypers(), updates=self._t() - 1)
        hypers["pending"] = self.tracer.constant(1.0)  # zero gradients, however many, add up to zero
        names = Names(node, slots), Names(node, hypers, ("pending", "updates"))
        return (leaf(("replayed", None), shape=shape),) + names

    def _hypers(self):
        """Returns `{flat name: value}` of hypers and scalars at the missed update."""
        names = enumerate(_history_names(self.rule))
        return OrderedDict((name, self._hyper(place, name)) for place, name in names)

    def _hyper(self, place, name):
        """Returns a hyper or scalar at the missed update.

        An everstep schedule is evaluated again, at that update, unless a framework computes a part of it.
        """
        hyper = self.host.given(name) if name in flat(self.rule, "hyper") else None
        if isinstance(hyper, Schedule) and not hyper._natives():
            count = self.tracer.once("replayed updates", lambda: self._t() - 1)
            return self.tracer.scheduled(hyper, count)
        return self.tracer.leaf(("history", place + 1))

    def _t(self):
        """Returns t at the missed update."""
        return self.tracer.once("replayed t", lambda: self.tracer.count_leaf(("t", None)))

    def _recorded_t(self, history_rows, offset):
        """Returns t in the history's row, less `offset` if that is a later update."""
        backend, turn = self.backend, _TURN[self.dtype]
        remainder = backend.cast(self._column(history_rows, 0), "int64")
        turns = backend.ops["floor_divide"](backend.ops["maximum"](self.now - remainder, 0), turn)
        t = backend.ops["maximum"](remainder + turns * turn - offset, 1)
        return backend.cast(t, self.tracer.integer)

    def _column(self, history_rows, place):
        """Returns one column of the history, one value for each row of the variable."""
        shape = (-1,) + (1,) * (len(self.record.shape) - 1)
        return self.backend.ops["reshape"](history_rows[:, place], shape)

    def _history_rows(self, history, updates):
        """Returns the history's rows for some updates, numbered from 0."""
        ops = self.backend.ops
        return self.backend.gather(history, ops["reshape"](ops["remainder"](updates, LENGTH), (-1,)))

    # Reading and writing.

    def _native(self, name):
        return self.host.adapter.unwrap(self.variable) if name is None else self.host.slot(self.variable, name)

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
        if name in SLOTS:
            return False
        owner, slot = flat(self.rule, "slot")[name]
        shape = slot.shape_for(self.record, owner)
        return bool(shape) and shape[0] == self.record.shape[0]


def even_rows(host, pairs, earlier):
    """Brings all rows up to date of the variables that get a dense gradient, if any of their rows missed an update.

    The dense step then is that of `exact`, and rows need not record it. Returns operations.
    """
    backend, variables, done = host.backend, [], []
    for grad, variable in pairs if host.definition.sparse == "catch_up" else ():
        dense = backend.slices(backend.local(grad)) is None and host.record(variable).shape
        if dense and catches_up(backend.moves_rows, host.rule(variable)):
            variables.append(variable)
    with backend.after(earlier):
        behind = [backend.read(host.slot(variable, UPDATES)) for variable in variables]
        branching = [variable for variable in variables if backend.can_branch(variable)]
        if branching:
            slots = [host.slot(variable, name) for variable in branching for name in host.slot_names(variable)]
            any_behind = backend.ops["greater"](backend.largest(backend.stack(behind)), 0)
            take = lambda: [done for variable in branching for done in Missed(host, variable).take_all()]  # noqa: E731
            done = backend.branch(any_behind, take, lambda: [], branching + slots)
        for variable, count in zip(variables, behind):
            if not backend.can_branch(variable):
                is_behind = backend.cast(backend.ops["minimum"](count, 1), "int32")
                rows = backend.iota(is_behind * backend.rows_of(variable))  # no rows if none is behind
                done = done + Missed(host, variable, lambda rows=rows: rows).take_all()
    return done


def sums_of_history(rule, record, history, rows, updates, now):
    """Returns the table `catch_up/sums` for a state of an everstep that kept a history alone, as NumPy arrays.

    Args:
        history, rows, updates: the state's slots.
        now: the number of updates of the optimizer.
    """
    backend, dtype = NumpyBackend(), compute_dtype(record.dtype)
    columns, names = closed_form(rule, dtype, len(record.shape)), _history_names(rule)
    table, updates = np.zeros(columns.shape), int(updates)
    first = max(int(np.min(rows)), updates - columns.reach, 0)
    for update in range(first, updates):
        recorded = max(update, updates - LENGTH)
        values = history[recorded % LENGTH]
        t = int(values[0]) + max(now - int(values[0]), 0) // _TURN[dtype] * _TURN[dtype] - (recorded - update)
        step = dict(zip(names, values[1:]), t=np.int64(max(t, 1)))
        places, entries = columns.recorded(backend, table, np.int64(update), step)
        table[places] = entries
    return table


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
