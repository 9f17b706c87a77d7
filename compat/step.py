"""The engine: one step over all (gradient, variable) pairs of a call, the same for every target.

Order, for graphs in which nothing else orders anything (https://github.com/keras-team/keras/issues/10769 shows what
happens without): for one variable its reads come before its writes; across variables, writes wait for all gradients
and for the reads of counters; counters move last.

A `host` (an adapter's instance) gives what differs between targets: `backend`, `definition`, `rule(variable)`,
`record(variable)`, `slot(variable, name)`, `scalar(name)`, `counter(name)`, `read_counter(name)`, `hyper(name)`,
`update(variable, function, grad)`, which calls `function(variable, grad)` where the variable lives, and what its base
class does itself: `moved_natively` (counters), `constrain(variable, write)` and `native_decay(variable)`.
"""
from __future__ import absolute_import, division, print_function

import contextlib
from collections import OrderedDict

import numpy as np

from everstep.compat.catch_up import SLOTS as CATCH_UP
from everstep.compat.catch_up import Missed, catch_up_slots, catches_up
from everstep.compat.trace import Tracer, Value
from everstep.errors import GradientError, RuleError, StateError, UnsupportedError
from everstep.optimizers.declarations import SIXTEEN_BITS, compute_dtype, is_tensor, running_rule
from everstep.optimizers.definition import assign, total
from everstep.optimizers.schedule import Schedule
from everstep.optimizers.tree import Names, defines, flat, flatten, measures_at_updates, tree

_FLOATS = SIXTEEN_BITS | frozenset(["float32", "float64"])
TOUCHED = "touched"  # the slot that remembers in which window a row last got a gradient
ENGINE_SLOTS = (TOUCHED,) + CATCH_UP  # all that there may be beside a variable's own


def skips(definition):
    """Whether there are steps that do not update, so that steps and updates are counted apart."""
    return definition.stages > 1 or defines(definition, "applies") or defines(definition, "accepts")


def counters(definition):
    """The names of the counters that a definition needs."""
    return ("updates", "pending", "steps") if skips(definition) else ("updates",)


def holds(definition):
    """Whether a step that does not update leaves something to a later one."""
    return skips(definition) and defines(definition, "collect")


def remembers_rows(definition):
    """Whether a sparse update needs to know the rows of earlier steps."""
    return defines(definition, "collect") and (definition.sparse != "exact" or definition.still)


def engine_slots(backend, rule, record):
    """`{name: (initial value, shape, dtype)}` of what the engine keeps beside a variable's slots."""
    found = OrderedDict()
    if record.shape and remembers_rows(rule):
        found[TOUCHED] = (0, tuple(record.shape[:1]) + (1,) * (len(record.shape) - 1), "int64")
    if record.shape and catches_up(backend.moves_rows, rule):
        found.update(catch_up_slots(rule, record))
    return found


def engine_slot_names(rule, moves_rows):
    """What `engine_slots` has for a variable with rows, on a backend whose gradients can be sparse or cannot."""
    names = [TOUCHED] if remembers_rows(rule) else []
    return names + (list(CATCH_UP) if catches_up(moves_rows, rule) else [])


def as_pairs(grads_and_vars):
    """A list of (gradient, variable) pairs, or an error."""
    pairs = list(grads_and_vars)
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise GradientError("a step takes pairs of a gradient and its variable; got {!r}".format(pair))
    return [tuple(pair) for pair in pairs]


def check_pairs(backend, pairs):
    """The (gradient, variable) pairs that have a gradient, or an error; nothing is built or changed before."""
    pairs = as_pairs(pairs)
    kept = [(grad, variable) for grad, variable in pairs if grad is not None]
    if not kept:
        names = ", ".join(str(getattr(v, "name", "array")) for _, v in pairs) or "an empty list was given"
        raise GradientError("no gradients provided for any variable: {}".format(names))
    for grad, variable in kept:
        name = getattr(variable, "name", "array")
        dtype = backend.dtype(variable)
        if dtype not in _FLOATS:
            raise GradientError("{} is of dtype {}; only real floating-point variables are trained".format(name, dtype))
        slices, wanted = backend.slices(grad), tuple(backend.shape(variable))
        if not slices and not is_tensor(grad):
            raise GradientError(
                "the gradient of {} is {!r}; needed is a tensor, or IndexedSlices of the module that is trained "
                "with".format(name, grad)
            )
        if slices and not wanted:
            raise GradientError("{} is a single number and has no rows for a sparse gradient".format(name))
        found = backend.shape(slices[0] if slices else grad)
        if slices and found is not None:
            found, wanted = found[1:], wanted[1:]
        if found is not None and not _agree(found, wanted):
            raise GradientError(
                "the gradient of {} has {} of shape {}; the variable needs {}".format(
                    name, "rows" if slices else "values", tuple(found), wanted
                )
            )
    return kept


def _agree(found, wanted):
    return len(found) == len(wanted) and all(f is None or w is None or f == w for f, w in zip(found, wanted))


def _broadcasts(found, wanted):
    return len(found) <= len(wanted) and all(f in (1, w) for f, w in zip(reversed(found), reversed(wanted)))


class Step(object):
    """One call with gradients. `run()` gives the operations that carry it out; in eager code it is then done."""

    arrived = 1  # how many steps it is

    def __init__(self, host, pairs, before=(), checked=True):
        """Args: before: tensors that are computed before anything is written, beside the gradients."""
        self.host, self.backend, self.definition = host, host.backend, host.definition
        if host.is_averaged and self.backend.eager:
            raise StateError("inside of everstep.averaged there are averages in the variables: train outside of it")
        self.pairs, self.before = check_pairs(self.backend, pairs) if checked else pairs, list(before)
        self.skips = skips(self.definition)
        self.predicate, self.accepted = True, None  # the latter where the definition may not
        self.counts = {}  # counters as they were before the step
        self.scopes = {}  # by compute dtype
        self.known = {}  # totals measured and scalars advanced: what scopes learn while the step goes on
        self.sums = {}  # by whole variable: what was measured for it alone

    def scope(self, dtype):
        if dtype not in self.scopes:
            self.scopes[dtype] = _Scope(self, dtype)
        return self.scopes[dtype]

    def count(self, name):
        if name not in self.counts:
            self.counts[name] = self.host.read_counter(name)
        return self.counts[name]

    def run(self, count=True):
        """Args: count: whether counters and scalars move; not where a wrapper optimizer hands over single variables."""
        backend, shared = self.backend, self.scope("float32")
        if not count and (self.skips or flat(self.definition, "scalar")):
            raise UnsupportedError(
                "{} keeps what moves once for a whole call, so it cannot run inside an optimizer that hands it one "
                "variable at a time; call its apply_gradients".format(self.definition._short())
            )
        gate = [backend.barrier([grad for grad, _ in self.pairs] + self.before)]
        # Where an update alone needs sums, whether there is one is known before them.
        early = self.skips and measures_at_updates(self.definition)
        applies = backend.cast(self._applies(shared), "bool") if early else None
        gate.extend(self._measure(applies))
        if self.skips:
            applies = backend.cast(self._applies(shared), "bool") if applies is None else applies
            if self.arrived and defines(self.definition, "accepts"):
                self.accepted = backend.cast(self._asked(shared, "accepts"), "bool")
                applies = backend.ops["logical_and"](self.accepted, applies)
            self.predicate = backend.wait(applies, gate)
        rejected = self._rejected(shared)
        scalars = self._advance(shared)
        operations = []
        for grad, variable in self.pairs:
            operations.extend(self.host.update(variable, lambda v, g: self._update_variable(v, g, gate), grad))
        with backend.after(operations):
            if count:
                operations.extend(self._write_scalars(scalars, rejected) + list(self._count()))
        return operations

    @staticmethod
    def count_update(host):
        """The operations that count one update, for steps that ran one variable at a time."""
        backend, counter = host.backend, host.counter("updates")
        return backend.write(counter, backend.read(counter) + 1)

    def pending(self):
        """The steps since the last update, this one included."""
        return self.count("pending") + self.arrived

    def _applies(self, shared):
        return self._asked(shared, "applies")

    def _asked(self, shared, verb):
        with running_rule():
            return shared.native(getattr(self.definition, verb)(shared.tracer, shared.names(self.definition)))

    def _learn(self, natives):
        self.known.update(natives)
        for scope in self.scopes.values():
            scope.learn(natives)

    def _measure(self, applies=None):
        """Learns the sums, and gives them: nothing may be written before they are read.

        Args: applies: whether they are asked for at all; None: they are.
        """
        if not defines(self.definition, "measure"):
            return []
        asked = []  # (which variable's, None of a total; name; of which work; value)
        for grad, variable in self.pairs:
            work = _Work.of_gradient(self, variable, grad).for_measure()
            whole = self.host.whole_key(variable)
            self.sums.setdefault(whole, {})
            with running_rule():
                found = work.rule.measure(work.ops, work.grad, work.var, work.slots, work.hypers)
            for name, value in flatten(work.rule, "sum", found, "measure").items():
                of_all = isinstance(value, total)
                value = work.as_value(value.value if of_all else value)
                work.ops.hoist([value])
                asked.append((None if of_all else whole, name, work, value))
        dtypes = OrderedDict()
        for whole, name, work, _ in asked:
            dtypes[whole, name] = "float32" if whole is None else work.dtype
        if applies is None or not all(self.backend.can_branch(variable) for _, variable in self.pairs):
            natives = self._sums(asked, dtypes)
        else:
            for name in counters(self.definition):  # a branch that reads one first would keep it
                self.count(name)
            natives = self.backend.values_if(applies, lambda: self._sums(asked, dtypes), list(dtypes.values()))
        found = dict(zip(dtypes, natives))
        for (whole, name), native in found.items():
            if whole is not None:
                self.sums[whole][name] = native
        self._learn({name: native for (whole, name), native in found.items() if whole is None})
        return natives

    def _sums(self, asked, dtypes):
        sums = OrderedDict()
        for whole, name, work, value in asked:
            with work.forgetting():
                native = self.backend.cast(work.lower(value), dtypes[whole, name])
            sums[whole, name] = sums[whole, name] + native if (whole, name) in sums else native
        return list(sums.values())

    def _advance(self, shared):
        """The scalars' new values, which rules see from now on."""
        if not flat(self.definition, "scalar"):
            return {}
        with running_rule():
            found = self.definition.advance(shared.tracer, *(self._scalars_and_hypers(shared) + (shared.t,)))
        new = self._scalar_natives(shared, found, "advance")
        self._learn(new)
        return new

    def _rejected(self, shared):
        """The scalars' new values where the step is not accepted."""
        if self.accepted is None:
            return {}
        with running_rule():
            found = self.definition.reject(shared.tracer, *self._scalars_and_hypers(shared))
        return self._scalar_natives(shared, found, "reject")

    def _scalar_natives(self, shared, returned, verb):
        natives = {}
        for name, value in flatten(self.definition, "scalar", returned, verb).items():
            value = shared.as_value(value)
            native = shared.native(value)
            natives[name] = self.backend.own(native, self.host.scalar(name)) if value.is_buffer else native
        return natives

    def _scalars_and_hypers(self, shared):
        return Names(tree(self.definition), shared.scalars), shared.names(self.definition)

    def _write_scalars(self, scalars, rejected):
        backend, values = self.backend, dict(scalars)
        for name, value in scalars.items() if self.skips else ():
            before = backend.cast(backend.read(self.host.scalar(name)), "float32")
            kept = backend.choose(self.accepted, before, rejected[name]) if name in rejected else before
            values[name] = backend.choose(self.predicate, value, kept)
        with backend.after(list(values.values())):  # one may be made of the old value of another
            return [backend.write(self.host.scalar(name), value) for name, value in values.items()]

    def _count(self):
        applied = self.backend.cast(self.predicate, "int64") if self.skips else 1
        taken = self.arrived if self.accepted is None else self.backend.cast(self.accepted, "int64")
        moved = {
            "updates": lambda: self.count("updates") + applied,
            "pending": lambda: (self.count("pending") + taken) * (1 - applied),
            "steps": lambda: self.count("steps") + self.arrived,
        }
        for name in counters(self.definition):
            if name not in self.host.moved_natively or not self.arrived:
                yield self.backend.write(self.host.counter(name), moved[name]())

    # One variable.

    def _update_variable(self, variable, grad, gate):
        work = _Work.of_gradient(self, variable, grad)
        collected, written = self._collect(work, gate)
        work = work.for_update(collected)
        traced = self._trace(work)
        if not self.skips or self.definition.stages > 1:
            return self._finish(work, traced, collected, gate + written)
        if not self.backend.can_branch(variable):
            return self._finish(work, traced, collected, gate + written, self.predicate)
        # A branch must not wait for anything outside of it, so its predicate does.
        predicate = self.backend.wait(self.predicate, gate + written)
        return self.backend.branch(
            predicate,
            lambda: self._finish_in_branch(work, traced, collected),
            lambda: self._write_slots(work, collected, []),
            [variable] + [self.host.slot(variable, name) for name in self.host.slot_names(variable)],
        )

    def _collect(self, work, gate):
        """Runs `collect` on the rows present: (new whole slots, still to be written; operations that wrote rows).

        What a sparse gradient adds is written at once, since `update` will read other rows too.
        """
        if not self.arrived or not defines(work.rule, "collect"):
            return {}, []
        with running_rule():
            found = work.rule.collect(work.ops, work.grad, work.slots, work.hypers_before)
        changed = work.changed_slots(flatten(work.rule, "slot", found, "collect"))
        natives = OrderedDict((name, work.fit(name, value)) for name, value in changed.items())
        if remembers_rows(work.rule) and work.record.shape:
            natives[TOUCHED] = work.slot_native(TOUCHED) * 0 + work.window()
        if self.accepted is not None:
            for name, native in natives.items():
                old = work.slot_native(name)
                native = self.backend.cast(native, self.backend.dtype(old))
                natives[name] = self.backend.choose(self.accepted, native, old)
        if not work.by_rows:
            return natives, []
        return {}, self._write_slots(work, natives, gate)

    def _trace(self, work):
        """(whether `update` assigned, the change, the changed slots, what the base class's decay takes off) as values.

        Their step-wide parts are computed here, outside of any branch.
        """
        with running_rule():
            found = work.rule.update(work.ops, work.grad, work.var, work.slots, work.hypers, work.scope.t)
        if not isinstance(found, tuple) or len(found) != 2 or isinstance(found, assign):
            raise RuleError("{}.update must return (change, slots); it returned {!r}".format(work.owner, found))
        change, slots = found
        assigned = isinstance(change, assign)
        change = work.as_value(change.value if assigned else change)
        slots = work.changed_slots(flatten(work.rule, "slot", slots, "update"))
        decay = self.host.native_decay(work.variable)
        decay = work.scope.values["learning_rate"] * decay if decay else None
        noted = work.missed.note(work.scope) if work.missed else []
        work.ops.hoist([change] + list(slots.values()) + ([decay] if decay is not None else []) + noted)
        return assigned, change, slots, decay

    def _finish_in_branch(self, work, traced, collected):
        with work.forgetting():
            return self._finish(work, traced, collected, [])

    def _finish(self, work, traced, collected, earlier, predicate=None):
        """Computes one variable's update after `earlier` operations and writes it; where not `predicate`, what was."""
        backend, (assigned, change, slots, decay) = self.backend, traced
        if decay is not None:
            earlier = earlier + [self._decay(work, decay, earlier)]
        with backend.after(earlier):
            natives = OrderedDict(collected)
            natives.update((name, work.fit(name, value)) for name, value in slots.items())
            change = work.fit(None, change)
            if work.changed_rows is not None:
                unchanged = work.lower(work.var) if assigned else backend.ops["zeros_like"](change)
                change = work.on_changed_rows(change, unchanged)
            by_value = work.by_rows or work.missed or backend.dtype(work.variable) != work.dtype
            if not assigned and by_value:
                change, assigned = work.lower(work.var) - change, True
            if predicate is not None:
                still = work.lower(work.var) if assigned else backend.ops["zeros_like"](change)
                before = work.stored() if work.missed else still
                change = backend.choose(predicate, change, before)
                for name in natives:
                    old = collected.get(name)
                    old = work.slot_native(name) if old is None else old
                    natives[name] = backend.choose(predicate, backend.cast(natives[name], backend.dtype(old)), old)
        ready = earlier + [change] + list(natives.values())
        with backend.after(ready):
            if assigned:
                write = backend.write(work.variable, change, work.rows)
            else:
                write = backend.subtract(work.variable, change)
        done = [self.host.constrain(work.variable, write)] + self._write_slots(work, natives, ready)
        if work.missed:
            noted = [work.lower(value) for value in work.missed.note(work.scope)]
            done.extend(work.missed.count(noted, work.rows, ready + done, predicate))
        return done

    def _decay(self, work, decay, earlier):
        """Takes off what the base class's own weight decay does: of all rows, before the rule sees the variable."""
        with self.backend.after(earlier):
            value = self.backend.cast(self.backend.read(work.variable), work.dtype)
            return self.backend.write(work.variable, value - value * work.lower(decay))

    def _write_slots(self, work, natives, earlier):
        backend = self.backend
        with backend.after(earlier + list(natives.values())):
            return [
                backend.write(self.host.slot(work.variable, name), value, work.rows if work.gathered(name) else None)
                for name, value in natives.items()
            ]


class LossScale(Step):
    """What the loss is multiplied with before the next step: no step at all."""

    def __init__(self, host):
        super(LossScale, self).__init__(host, [], checked=False)

    def native(self, dtype):
        shared = self.scope("float32")
        return self.backend.cast(self._asked(shared, "loss_scale"), dtype)


class Flush(Step):
    """The update that earlier steps left something for, if they did; its gradients are nothing."""

    arrived = 0

    def __init__(self, host, variables):
        super(Flush, self).__init__(host, [(self._nothing(host, variable), variable) for variable in variables])
        self.count("steps")  # which names the window: a branch that reads it first would keep it

    @staticmethod
    def _nothing(host, variable):
        backend = host.backend
        if remembers_rows(host.rule(variable)) and host.record(variable).shape and backend.moves_rows:
            return backend.no_rows(variable)
        return backend.ops["zeros_like"](backend.read(variable))

    def pending(self):
        return self.backend.ops["maximum"](self.count("pending"), 1)  # where there are none nothing is written

    def _applies(self, shared):
        return self.backend.ops["greater"](self.count("pending"), 0)


class _Scope(object):
    """The step-wide values in one compute dtype, each computed once."""

    shared_names = ("pending", "updates", "row_number", "place_in_row")

    def __init__(self, step, dtype):
        self.step, self.dtype = step, dtype
        self.tracer = Tracer(step.backend, dtype)
        updates = self._leaf(lambda: self._cast(step.count("updates")))
        self.t = updates + 1.0
        self.scalars = {name: self._scalar(name) for name in flat(step.definition, "scalar")}
        self.values = dict(self.scalars)
        self.values["updates"] = updates
        self.values["pending"] = self._leaf(lambda: self._cast(step.pending()))
        self.values.update((name, self._hyper(name)) for name in flat(step.definition, "hyper"))
        self.learn(step.known)

    def names(self, definition, extra=()):
        return Names(tree(definition), dict(self.values, **dict(extra)), self.shared_names)

    def learn(self, natives):
        for name, native in natives.items():
            self.values[name] = self._leaf(lambda native=native: self._cast(native))

    def native(self, value):
        return self.tracer.lower(self.as_value(value), {})

    def as_value(self, value):
        return value if isinstance(value, Value) else self.tracer.constant(value)

    def _scalar(self, name):
        return self._leaf(lambda: self._cast(self.step.backend.read(self.step.host.scalar(name))))

    def _hyper(self, name):
        value = self.step.host.hyper(name)
        if isinstance(value, Schedule):
            return self.as_value(value.value(self.tracer, self.values["updates"]))
        if isinstance(value, float):  # as every framework's own hypers, which are float32 variables
            return self.as_value(float(np.float32(value)))
        return self._leaf(lambda: self._cast(self.step.backend.tensor(value() if callable(value) else value)))

    def _leaf(self, read):
        return self.tracer.leaf(read, step_wide=True, shape=())

    def _cast(self, native):
        return self.step.backend.cast(native, self.dtype)


class _Work(object):
    """One variable's part of a step: the values that its rule sees, of the whole variable or of some rows."""

    def __init__(self, step, variable, read_grad, find_rows=None):
        self.step, self.variable, self.backend = step, variable, step.backend
        self.record, self.rule = step.host.record(variable), step.host.rule(variable)
        self.owner = type(self.rule).__name__
        self.dtype = compute_dtype(self.record.dtype)
        self.scope = step.scope(self.dtype)
        self.ops = self.scope.tracer
        self.by_rows, self._find_rows, self._rows = find_rows is not None, find_rows, None
        self.changed_rows = None  # gives the rows outside of which the variable stays, where there are such
        self.declared = flat(self.rule, "slot")
        self.missed, self._caught_up = None, None  # what the rows take before this step, and what it makes of them
        self.results = {}
        self.grad = self.ops.leaf(read_grad, shape=self._shape(self.record.shape))
        self.var = self.ops.leaf(self.stored, shape=self._shape(self.record.shape))
        self.slot_values = OrderedDict((name, self._slot(name)) for name in self.declared)

    @classmethod
    def of_gradient(cls, step, variable, grad):
        """The work that a gradient brings: equal rows of a sparse one are added up here, once."""
        backend = step.backend
        dtype = compute_dtype(backend.dtype(variable))
        slices = backend.slices(grad)
        if slices is None:
            return cls(step, variable, lambda: backend.cast(backend.tensor(grad), dtype))
        summed, rows = backend.sum_duplicates(backend.cast(slices[0], dtype), slices[1])
        return cls(step, variable, lambda: summed, lambda: rows)

    def for_update(self, collected):
        """The work that `update` does: on the same rows, on all that the window touched, or on the whole."""
        work = self._for_update(collected)
        if self.record.shape and catches_up(self.backend.moves_rows, self.rule):
            work._catch_up()
        return work

    def _for_update(self, collected):
        if not self.by_rows:
            for name, native in collected.items():
                if name in self.slot_values:
                    self.slot_values[name] = self.ops.leaf(lambda native=native: native, shape=self._slot_shape(name))
            return self
        if self._row_rule and not defines(self.rule, "collect"):
            return self
        return self._on(lambda: self.backend.rows_equal(self._marks(), self.window()))

    def _catch_up(self):
        """From here on the values are those of rows that have taken all that they missed."""
        self.missed = Missed(self.step.host, self.variable, (lambda: self.rows) if self.by_rows else None)
        self.var = self._now(None, self.var)
        self.slot_values.update((name, self._now(name, self.slot_values[name])) for name in self.missed.slots)

    def _now(self, name, old):
        def read():
            if self._caught_up is None:
                self._caught_up = self.missed.values()
            return self._caught_up[name]

        return self.ops.leaf(read, shape=old.shape)

    def for_measure(self):
        """The work that `measure` does: on the rows present, and where steps add up, on all of the window's."""
        if not self.by_rows or not (self.rule.stages > 1 or defines(self.rule, "collect")):
            return self
        return self._on(self._window_and_present)

    @property
    def _row_rule(self):
        return self.rule.locality != "variable" and (self.rule.sparse in ("rows", "catch_up") or self.rule.still)

    def _on(self, find_rows):
        """The work on other rows, or on the whole where the rule needs it; where no gradient came, it is 0."""
        summed, present = self.lower(self.grad), self.rows

        def whole_grad():
            return self.backend.spread(summed, present, self.backend.rows_of(self.variable))

        if not self._row_rule:
            work = _Work(self.step, self.variable, whole_grad)
            if self.rule.sparse == "variable_rows" and not self.rule.still:
                work.changed_rows = find_rows if defines(self.rule, "collect") else lambda: present
            return work
        work = _Work(self.step, self.variable, lambda: self.backend.gather(whole_grad(), work.rows), find_rows)
        return work

    def on_changed_rows(self, changed, unchanged):
        """`changed` on the rows that may change, `unchanged` on the others."""
        rows, ops = self.changed_rows(), self.backend.ops
        marks = self.backend.spread(ops["ones_like"](rows), rows, self.backend.rows_of(self.variable))
        marks = ops["reshape"](marks, (-1,) + (1,) * (len(self.record.shape) - 1))
        return ops["where"](ops["greater"](marks, ops["zeros_like"](marks)), changed, unchanged)

    def window(self):
        """The mark of rows touched since the last update: the step that opened the window, counted from 1.

        Not the number of updates, which Keras's LossScaleOptimizer also moves, at steps that it leaves out.
        """
        count = self.step.count
        opened = count("steps") - count("pending") if self.step.skips else count("updates")
        return self.backend.cast(opened + 1, "int64")

    def _marks(self):
        return self.backend.read(self.step.host.slot(self.variable, TOUCHED))

    def _window_and_present(self):
        marks = self.backend.ops["reshape"](self._marks(), (-1,))
        present = self.backend.cast(self.rows, "int64") * 0 + self.window()
        present = self.backend.spread(present, self.rows, self.backend.rows_of(self.variable))
        return self.backend.rows_equal(self.backend.ops["maximum"](marks, present), self.window())

    @property
    def rows(self):
        """The rows that this work is on, found when first asked for; None for the whole."""
        if self._rows is None and self.by_rows:
            self._rows = self._find_rows()
        return self._rows

    @contextlib.contextmanager
    def forgetting(self):
        """Forgets what was computed within: outside of a branch, or where it is traced again, that is not there."""
        before = dict(self.results), self._rows, self._caught_up
        try:
            yield
        finally:
            self.results, self._rows, self._caught_up = before

    @property
    def slots(self):
        return Names(tree(self.rule), self.slot_values)

    @property
    def hypers(self):
        row, place = (self.ops.leaf(read, dtype="int32") for read in (self._row_number, self._place_in_row))
        return self.scope.names(self.rule, dict(self._own_sums(), row_number=row, place_in_row=place))

    def _row_number(self):
        """The number that each element's row has in the whole variable."""
        if not self.record.shape:
            return self.backend.constant(0, "int32")
        place, rows = self.step.host.place(self.variable), self.rows
        rows = self.backend.iota(self.backend.rows_of(self.variable)) if rows is None else rows
        rows = self.backend.cast(rows, "int32") + (place.slices[0].start if place else 0)
        return self.backend.ops["reshape"](rows, (-1,) + (1,) * (len(self.record.shape) - 1))

    def _place_in_row(self):
        """The number that each element has in its row of the whole variable."""
        place, found, size = self.step.host.place(self.variable), self.backend.constant(0, "int32"), 1
        for axis in range(len(self.record.shape) - 1, 0, -1):
            number = self.backend.iota(self.record.shape[axis]) + (place.slices[axis].start if place else 0)
            alone = [-1 if other == axis else 1 for other in range(len(self.record.shape))]
            found = found + self.backend.ops["reshape"](number * size, tuple(alone))
            size *= (place.whole if place else self.record.shape)[axis]
        return found

    @property
    def hypers_before(self):
        """With the scalars as they were: they advance with an update, and a step may come to none."""
        return self.scope.names(self.rule, dict(self._own_sums(), **self.scope.scalars))

    def _own_sums(self):
        own = self.step.sums.get(self.step.host.whole_key(self.variable), {})
        return {name: self.ops.leaf(lambda native=native: native) for name, native in own.items()}

    def gathered(self, name):
        """Whether a slot goes by rows: its first dimension is the variable's."""
        shape = self.record.shape if name == TOUCHED else self.declared[name][1].shape_for(self.record)
        return bool(shape) and shape[0] == self.record.shape[0]

    def _shape(self, shape):
        return (None,) + tuple(shape[1:]) if self.by_rows else tuple(shape)

    def _slot_shape(self, name):
        shape = self.declared[name][1].shape_for(self.record)
        return self._shape(shape) if self.gathered(name) else shape

    def _slot(self, name):
        read = lambda: self.backend.cast(self.slot_native(name), self.dtype)  # noqa: E731  # a leaf's reader
        return self.ops.leaf(read, shape=self._slot_shape(name))

    def slot_native(self, name):
        slot = self.step.host.slot(self.variable, name)
        return self.backend.gather(slot, self.rows) if self.by_rows and self.gathered(name) else self.backend.read(slot)

    def stored(self):
        """The variable as it is, whatever its rows have missed."""
        backend, variable = self.backend, self.variable
        native = backend.gather(variable, self.rows) if self.by_rows else backend.read(variable)
        return backend.cast(native, self.dtype)

    def as_value(self, value):
        return self.scope.as_value(value)

    def lower(self, value):
        return self.ops.lower(value, self.results)

    def changed_slots(self, slots):
        """The returned slots as values, without those returned unchanged, where nothing else changes them."""
        caught_up = self.missed.slots if self.missed else ()
        found = OrderedDict((name, self.slot_values[name]) for name in caught_up)
        found.update((name, self.as_value(value)) for name, value in slots.items())
        return OrderedDict(
            (name, value) for name, value in found.items() if name in caught_up or value is not self.slot_values[name]
        )

    def fit(self, name, value):
        """The native form of a slot's new value, or without a name of the change, in its full shape."""
        backend = self.backend
        like = self.var if name is None else self.slot_values[name]
        native = self.lower(value)
        if value.dtype != self.dtype:
            native = backend.cast(native, self.dtype)
        found, wanted = backend.shape(native), like.shape
        if found is not None and not _agree(found, wanted) and _broadcasts(found, wanted):
            native = native + backend.ops["zeros_like"](self.lower(like))
        elif found is not None and not _agree(found, wanted):
            raise RuleError(
                "{}.update gave {} shape {} for {}, which needs {}".format(
                    self.owner, "slot " + name if name else "the change", tuple(found), self.record.name, tuple(wanted)
                )
            )
        return backend.own(native, self.variable) if value.is_buffer else native
