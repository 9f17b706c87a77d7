"""`sparse="catch_up"`: when a row is next touched, it first takes the steps in which it had no gradient.

What that needs is kept beside a variable's slots:
- `catch_up/updates`: how many updates the variable has had, and `catch_up/rows`: how many of them each row has taken;
- `catch_up/history`: t, the hypers and the scalars of its last updates, so that a missed step is taken at its own rate.

A row that missed k updates replays the first `max_replay_steps` of them one by one, each with a zero gradient. The
definition's closed form, `fast_forward`, then does the rest at once. Only the rows of this step are read and written.
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
LENGTH = 4096  # updates that the history goes back; older ones are taken at its oldest values


def catches_up(moves_rows, rule):
    """Whether rows can miss something that they take later."""
    return moves_rows and rule.sparse == "catch_up" and not rule.zero_grad_is_noop


def catch_up_slots(rule, record):
    """`{name: (initial value, shape, dtype)}` of what is kept beside a variable's own slots."""
    for name, (_, slot) in flat(rule.without_grad, "slot").items():
        if slot.shape_for(record)[:1] != record.shape[:1]:
            raise RuleError(
                '{} cannot take sparse="catch_up": its slot {} has no rows that could be brought up to date by '
                "themselves".format(rule._short(), name)
            )
    per_row = tuple(record.shape[:1]) + (1,) * (len(record.shape) - 1)
    width = 1 + len(_kept(rule))
    history = 0, (LENGTH, width), compute_dtype(record.dtype)
    return OrderedDict([(UPDATES, (0, (), "int64")), (ROWS, (0, per_row, "int64")), (HISTORY, history)])


def _kept(rule):
    """The flat names of the hypers and scalars that the history holds."""
    return list(flat(rule, "hyper")) + list(flat(rule, "scalar"))


class Missed(object):
    """What some rows of a variable, or all, have missed.

    Args:
        host: a target's instance, see `compat/engine/step.py`.
        variable: the variable.
        find_rows: gives the rows, each once; None for all.
    """

    def __init__(self, host, variable, find_rows=None):
        self.host, self.backend, self.variable = host, host.backend, variable
        self.rule, self.record = host.rule(variable), host.record(variable)
        self.without_grad, self.max_replay_steps = self.rule.without_grad, self.rule.without_grad.max_replay_steps
        self.dtype = compute_dtype(self.record.dtype)
        self.slots = list(flat(self.without_grad, "slot"))
        self.find_rows = find_rows
        self.tracer = Tracer(self.backend, self.dtype)
        self.now = {}  # what the leaves of the traced rule stand for at present

    def values(self):
        """`{name: value}` of the variable (None) and its slots with all that was missed, in the compute dtype."""
        backend, ops = self.backend, self.backend.ops
        rows = self.find_rows() if self.find_rows else None
        done = self._read(ROWS, rows)
        history = backend.read(self.host.slot(self.variable, HISTORY))
        updates = self._updates()
        missed = updates - done
        replayed = ops["minimum"](missed, self.max_replay_steps)
        start = [backend.cast(self._read(name, rows), self.dtype) for name in [None] + self.slots]

        def replay(step, values):
            row = done + step
            old = ops["minimum"](ops["maximum"](row, updates - LENGTH), updates - 1)  # rows that miss nothing, too
            before = backend.cast(old - row, self.dtype)  # how far back of the history the row is
            new = self._lowered(one_step, values, self._lines(history, old), before=before)
            taken = ops["less"](step, replayed)
            return [ops["where"](taken, after, value) for after, value in zip(new, values)]

        if backend.eager and not backend.largest(missed):
            return OrderedDict(zip([None] + self.slots, start))
        if self.max_replay_steps:
            one_step = self._step()
            start = backend.repeat(backend.largest(replayed), replay, start)
        if defines(self.without_grad, "fast_forward"):
            kept = self._lines(history, ops["maximum"](updates - 1, 0))
            left = backend.cast(missed - replayed, self.dtype)
            start = self._lowered(self._coast(), start, kept, before=0 * left, steps=left)
        return OrderedDict(zip([None] + self.slots, start))

    def take(self):
        """The operations that bring the rows up to date."""
        backend, values = self.backend, self.values()
        rows = self.find_rows() if self.find_rows else None
        values[ROWS] = self._read(ROWS, rows) * 0 + self._updates()
        with backend.after(list(values.values())):
            return [
                backend.write(self._native(name), value, rows if self._goes_by_rows(name) else None)
                for name, value in values.items()
            ]

    def note(self, scope):
        """The values of this update that its missing rows will need, in the history's order."""
        return [scope.t] + [scope.values[name] for name in _kept(self.rule)]

    def count(self, noted, rows, earlier, predicate):
        """The operations that write down that the rows have taken one update more, unless not `predicate`."""
        backend, ops = self.backend, self.backend.ops
        with backend.after(earlier):
            updates = self._updates()
            now = updates + (1 if predicate is None else backend.cast(predicate, "int64"))
            taken = self._read(ROWS, rows) * 0 + now
            if predicate is not None:
                taken = backend.choose(predicate, taken, self._read(ROWS, rows))
            place = ops["reshape"](ops["remainder"](updates, LENGTH), (1,))
            line = ops["reshape"](backend.stack(noted), (1, -1))
        with backend.after([now, taken, line, place]):
            return [
                backend.write(self._native(HISTORY), line, place),
                backend.write(self._native(ROWS), taken, rows),
                backend.write(self._native(UPDATES), now),
            ]

    # One zero gradient, and many, each written down once, on values that `_lowered` puts in.

    def _step(self):
        with running_rule():
            var, slots, hypers = self._arguments()
            zero = self.tracer.apply("zeros_like", (var,))
            change, new = self.without_grad.update(self.tracer, zero, var, slots, hypers, self._t())
            return change, flatten(self.without_grad, "slot", new, "update")

    def _coast(self):
        with running_rule():
            var, slots, hypers = self._arguments()
            steps = self.tracer.leaf(lambda: self.now["steps"])
            change, new = self.without_grad.fast_forward(self.tracer, var, slots, hypers, steps)
            return change, flatten(self.without_grad, "slot", new, "fast_forward")

    def _lowered(self, traced, values, kept, **more):
        """What the traced rule makes of the values, and of the history's lines that belong to their rows."""
        (change, new), results = traced, {}
        names = [None] + self.slots
        self.now = dict(zip(names, values), kept=kept, **more)
        with self.tracer.forgetting():
            var = self.tracer.lower(self._as_value(change.value if isinstance(change, assign) else change), results)
            made = {None: var if isinstance(change, assign) else values[0] - var}
            made.update((name, self.tracer.lower(self._as_value(value), results)) for name, value in new.items())
            return [self._fit(made[name], old) if name in made else old for name, old in zip(names, values)]

    def _fit(self, value, old):
        """In the old value's full shape and dtype."""
        return self.backend.cast(value, self.dtype) + self.backend.ops["zeros_like"](old)

    def _as_value(self, value):
        return value if isinstance(value, Value) else self.tracer.constant(value)

    def _arguments(self):
        """The variable, its slots and the hypers as values of what is put in later."""
        shape = (None,) + tuple(self.record.shape[1:])
        slots = {name: self.tracer.leaf(lambda name=name: self.now[name]) for name in self.slots}
        node = tree(self.without_grad)
        hypers = {name: self._hyper(place, name) for place, name in enumerate(_kept(self.rule))}
        hypers["pending"] = self._as_value(1.0)  # however many steps came, they brought these rows nothing
        return (
            self.tracer.leaf(lambda: self.now[None], shape=shape),
            Names(node, slots),
            Names(node, hypers, ("pending",)),
        )

    def _hyper(self, place, name):
        """What a schedule of ours was, it says itself, however long ago."""
        given = self.host.given_hyper(name) if name in flat(self.rule, "hyper") else None
        if isinstance(given, Schedule):
            return self._as_value(given.value(self.tracer, self._t() - 1))
        return self.tracer.leaf(lambda: self._column(place + 1))

    def _t(self):
        older = lambda: self.backend.ops["maximum"](self._column(0) - self.now["before"], 1.0)  # noqa: E731  # a reader
        return self.tracer.leaf(older)

    def _column(self, place):
        """One of the history's values for each row."""
        shape = (-1,) + (1,) * (len(self.record.shape) - 1)
        return self.backend.ops["reshape"](self.now["kept"][:, place], shape)

    def _lines(self, history, updates):
        """What the history has of some updates."""
        ops = self.backend.ops
        return self.backend.gather(history, ops["reshape"](ops["remainder"](updates, LENGTH), (-1,)))

    # What is read and written.

    def _native(self, name):
        return self.host.unwrap(self.variable) if name is None else self.host.slot(self.variable, name)

    def _updates(self):
        return self.backend.read(self._native(UPDATES))

    def _read(self, name, rows):
        native = self._native(name)
        by_rows = rows is not None and self._goes_by_rows(name)
        return self.backend.gather(native, rows) if by_rows else self.backend.read(native)

    def _goes_by_rows(self, name):
        if name in (None, ROWS):
            return True
        if name in (UPDATES, HISTORY):
            return False
        shape = flat(self.rule, "slot")[name][1].shape_for(self.record)
        return bool(shape) and shape[0] == self.record.shape[0]


def check(definition):
    """Raises RuleError where missed steps cannot be taken later."""
    why = None
    if definition.locality == "variable":
        why = "its rule needs the whole variable"
    elif defines(definition.without_grad, "measure"):
        why = "its rule measures all rows of a step"
    if why:
        raise RuleError(
            '{} cannot take sparse="catch_up": {}. Use sparse="exact" or "rows"'.format(definition._short(), why)
        )
