"""The engine: one step over all (gradient, variable) pairs of a call, the same for every target.

Graphs order operations only by explicit dependencies; https://github.com/keras-team/keras/issues/10769 shows what
happens without them. A step ensures this order: a variable is read before it is written; writes wait for all gradients
and for the reads of counters; counters are written last.

A `host` is a target's instance. The engine uses `backend`, `definition`, `rule(variable)`, `record(variable)`,
`slot(variable, name)`, `scalar(name)`, `counter(name)`, `read_counter(name)`, `hyper(name)` and
`update(variable, function, grad)`, which calls `function(variable, grad)` where the variable lives. The base class may
do some work itself: `moved_natively` are the counters that it moves, `constrain(variable, write)` applies constraints,
and `native_decay(variable)` is its weight decay.
"""
from __future__ import absolute_import, division, print_function

import functools
from collections import OrderedDict, namedtuple

from everstep.compat.engine.fast_forward import SLOTS as CATCH_UP
from everstep.compat.engine.fast_forward import catch_up_slot_names, catch_up_slots, catches_up, even_rows
from everstep.compat.engine.pairs import check_pairs, with_gradients
from everstep.compat.engine.rehearsal import checked_update
from everstep.compat.engine.variable_view import LAST_WINDOW, Scope, VariableView
from everstep.errors import StateError, UnsupportedError
from everstep.optimizers.contract.declarations import running_rule
from everstep.optimizers.contract.definition import assign, total
from everstep.optimizers.contract.trees import Names, flat, flatten, tree
from everstep.optimizers.contract.verbs import defines, measures_only_on_update

ENGINE_SLOTS = (LAST_WINDOW,) + CATCH_UP  # all that the engine may keep beside a variable's own slots


def skips(definition):
    """Returns whether some steps do not update, so that steps and updates are counted separately."""
    return definition.stages > 1 or defines(definition, "should_update") or defines(definition, "should_accept")


def counters(definition):
    """Returns the names of the counters that a definition needs."""
    return ("updates", "pending", "steps") if skips(definition) else ("updates",)


def holds(definition):
    """Returns whether steps that do not update collect something for a later update."""
    return skips(definition) and defines(definition, "collect")


def remembers_rows(definition):
    """Returns whether a sparse update needs the rows of earlier steps."""
    return defines(definition, "collect") and (definition.sparse != "exact" or definition.zero_grad_is_noop)


def engine_slots(backend, rule, record):
    """Returns `{name: (initial value, shape, dtype)}` of the slots that the engine keeps beside a variable's own."""
    slots = OrderedDict()
    if record.shape and remembers_rows(rule):
        slots[LAST_WINDOW] = (0, tuple(record.shape[:1]) + (1,) * (len(record.shape) - 1), "int64")
    if record.shape and catches_up(backend.moves_rows, rule):
        slots.update(catch_up_slots(rule, record))
    return slots


def engine_slot_names(rule, moves_rows):
    """Returns the names in `engine_slots` for a variable with rows. `moves_rows`: see `Backend`."""
    names = [LAST_WINDOW] if remembers_rows(rule) else []
    return names + (catch_up_slot_names(rule) if catches_up(moves_rows, rule) else [])


# The values that `update` returned. assigned: whether `change` is the variable's new value; slots: the changed slots;
# decay: the share of the variable that the base class's weight decay subtracts, or None.
Traced = namedtuple("Traced", "assigned change slots decay")


class Step(object):
    """A step: one call with (gradient, variable) pairs. `before` are tensors to compute before anything is written."""

    arrived = 1  # how many steps this counts as

    def __init__(self, host, pairs, before=(), checked=True):
        self.host, self.backend, self.definition = host, host.backend, host.definition
        self.lowerings = host.lowerings
        if host.is_averaged and self.backend.eager:
            raise StateError("inside of everstep.averaged there are averages in the variables: train outside of it")
        pairs = check_pairs(self.backend, pairs, host.casts_gradients) if checked else pairs
        self.pairs, self.before = self.backend.lasting(with_gradients(pairs)), list(before)
        self.skips = skips(self.definition)
        self.predicate, self.accepted = True, None  # whether the step updates, is accepted (None: always)
        self.counts = {}  # {counter: value before the step}
        self.scopes = {}  # {compute dtype: Scope}
        self.known = {}  # {name: native value} of measured totals and advanced scalars, for every scope
        self.sums = {}  # {whole variable's key: {name: sum measured for that variable}}

    def scope(self, dtype):
        if dtype not in self.scopes:
            self.scopes[dtype] = Scope(self, dtype)
        return self.scopes[dtype]

    def count(self, name):
        if name not in self.counts:
            self.counts[name] = self.host.read_counter(name)
        return self.counts[name]

    def run(self, count=True):
        """Carries out the step. Returns operations; eager code has run them.

        `count` is False for single variables that a wrapper optimizer hands over: counters and scalars do not move.
        """
        backend, shared = self.backend, self.scope("float32")
        if not count and (self.skips or flat(self.definition, "scalar")):
            raise UnsupportedError(
                "{} has values that change once a call, so it cannot run inside an optimizer that hands it one "
                "variable at a time; call its apply_gradients".format(self.definition._short())
            )
        gate = [backend.barrier([grad for grad, _ in self.pairs] + self.before)]
        # If only updates need the sums, decide before measuring whether this step updates.
        early = self.skips and measures_only_on_update(self.definition)
        should_update = backend.cast(self._should_update(shared), "bool") if early else None
        gate.extend(self._measure(should_update))
        if self.skips:
            if should_update is None:
                should_update = backend.cast(self._should_update(shared), "bool")
            if self.arrived and defines(self.definition, "should_accept"):
                self.accepted = backend.cast(self._asked(shared, "should_accept"), "bool")
                should_update = backend.ops["logical_and"](self.accepted, should_update)
            self.predicate = backend.wait(should_update, gate)
        rejected = self._rejected(shared)
        scalars = self._advance(shared)
        if backend.without_strategy():
            gate.extend(even_rows(self.host, self.pairs, gate))
        operations = []
        groups, single_pairs = self.lowerings.groups(self)
        for group in groups:
            operations.extend(self.lowerings.run_group(*(group + (gate,))))
        for grad, variable in single_pairs:
            operations.extend(self.host.update(variable, lambda v, g: self._update_variable(v, g, gate), grad))
        with backend.after(operations):
            if count:
                operations.extend(self._write_scalars(scalars, rejected) + list(self._count()))
        return operations

    @staticmethod
    def count_update(host):
        """Counts one update after steps that ran one variable at a time. Returns an operation."""
        return host.backend.add(host.counter("updates"), 1)

    def pending(self):
        """Returns the number of steps since the last update, including this one."""
        if not self.skips:
            return self.backend.constant(self.arrived, self.backend.stored("int64"))
        return self.count("pending") + self.arrived

    def _should_update(self, shared):
        return self._asked(shared, "should_update")

    def _asked(self, shared, verb):
        with running_rule():
            return shared.native(getattr(self.definition, verb)(shared.tracer, shared.names(self.definition)))

    def _learn(self, natives):
        self.known.update(natives)
        for scope in self.scopes.values():
            scope.learn(natives)

    def _measure(self, should_update=None):
        """Measures the sums, if `should_update` holds or is None. Returns them: writes must wait for their reads."""
        if not defines(self.definition, "measure"):
            return []
        requests = []  # (whole variable's key or None for a total, name, view, value)
        for grad, variable in self.pairs:
            view = VariableView.of_gradient(self, variable, self.backend.local(grad)).for_measure()
            whole = self.host.whole_key(variable)
            self.sums.setdefault(whole, {})
            with running_rule():
                measured = view.rule.measure(view.ops, view.grad, view.var, view.slots, view.hypers)
            for name, value in flatten(view.rule, "sum", measured, "measure").items():
                is_total = isinstance(value, total)
                value = view.as_value(value.value if is_total else value)
                view.ops.hoist([value])
                requests.append((None if is_total else whole, name, view, value))
        dtypes = OrderedDict()
        for whole, name, view, _ in requests:
            dtypes[whole, name] = "float32" if whole is None else view.dtype
        if should_update is None or not all(self.backend.can_branch(variable) for _, variable in self.pairs):
            natives = self._sums(requests, dtypes)
        else:
            for name in counters(self.definition):  # read outside: a first read in the branch would be cached there
                self.count(name)
            natives = self.backend.values_if(should_update, lambda: self._sums(requests, dtypes), list(dtypes.values()))
        sums = dict(zip(dtypes, natives))
        for (whole, name), native in sums.items():
            if whole is not None:
                self.sums[whole][name] = native
        self._learn({name: native for (whole, name), native in sums.items() if whole is None})
        return natives

    def _sums(self, requests, dtypes):
        """Returns the native sums, each over all parts of a variable or, for a total, over all variables."""
        sums = OrderedDict()
        for whole, name, view, value in requests:
            with view.forgetting():
                native = self.backend.cast(view.lower(value), dtypes[whole, name])
            sums[whole, name] = sums[whole, name] + native if (whole, name) in sums else native
        return list(sums.values())

    def _advance(self, shared):
        """Returns `{name: new value}` of the scalars. Rules get the new values from now on."""
        if not flat(self.definition, "scalar"):
            return {}
        with running_rule():
            scalars = self.definition.advance(shared.tracer, *(self._scalars_and_hypers(shared) + (shared.t,)))
        natives = self._scalar_natives(shared, scalars, "advance")
        self._learn(natives)
        return natives

    def _rejected(self, shared):
        """Returns `{name: new value}` of the scalars for a step that is not accepted."""
        if self.accepted is None:
            return {}
        with running_rule():
            scalars = self.definition.reject(shared.tracer, *self._scalars_and_hypers(shared))
        return self._scalar_natives(shared, scalars, "reject")

    def _scalar_natives(self, shared, returned, verb):
        natives = {}
        for name, value in flatten(self.definition, "scalar", returned, verb).items():
            value = shared.as_value(value)
            native = shared.native(value)
            natives[name] = self.backend.copy(native, self.host.scalar(name)) if value.is_buffer else native
        return natives

    def _scalars_and_hypers(self, shared):
        return Names(tree(self.definition), shared.scalars), shared.names(self.definition)

    def _write_scalars(self, scalars, rejected):
        backend, values = self.backend, dict(scalars)
        for name, value in scalars.items() if self.skips else ():
            before = backend.cast(backend.read(self.host.scalar(name)), "float32")
            kept = backend.choose(self.accepted, before, rejected[name]) if name in rejected else before
            values[name] = backend.choose(self.predicate, value, kept)
        with backend.after(list(values.values())):  # one may be computed from the old value of another
            return [backend.write(self.host.scalar(name), value) for name, value in values.items()]

    def _count(self):
        backend, counter = self.backend, self.host.counter
        applied = backend.cast(self.predicate, "int64") if self.skips else 1
        taken = self.arrived if self.accepted is None else backend.cast(self.accepted, "int64")
        move = {
            "updates": lambda: backend.add(counter("updates"), applied),
            "pending": lambda: backend.write(counter("pending"), (self.count("pending") + taken) * (1 - applied)),
            "steps": lambda: backend.add(counter("steps"), self.arrived),
        }
        for name in counters(self.definition):
            if name not in self.host.moved_natively or not self.arrived:
                yield move[name]()

    # One variable.

    def _update_variable(self, variable, grad, gate):
        if not self.backend.without_strategy():
            gate = gate + even_rows(self.host, [(grad, variable)], gate)
        view = VariableView.of_gradient(self, variable, grad)
        collected, written = self._collect(view, gate)
        view = view.for_update(collected)
        kernel, why = self.lowerings.kernel(self, view)
        if kernel:
            self.lowerings.note(view, "kernel")
            return self.lowerings.run_kernel(view, kernel, gate + written)
        traced = self.trace(view)
        branches = not self.skips or self.definition.stages > 1 or self.backend.can_branch(variable)
        if not branches:
            self.lowerings.note(view, "plain", [why, "no other strategy: a branch here cannot write ref variables"])
            return self._finish(view, traced, collected, gate + written, self.predicate)
        run = self.lowerings.choose(view, traced, collected, why)
        finish = functools.partial(self._finish_by, run) if run else self._finish
        if not self.skips or self.definition.stages > 1:
            return finish(view, traced, collected, gate + written)
        # A branch must not wait for operations outside of it, so its predicate waits.
        predicate = self.backend.wait(self.predicate, gate + written)
        return self.backend.branch(
            predicate,
            lambda: self._finish_in_branch(finish, view, traced, collected),
            lambda: self._write_slots(view, collected, []),
            [variable] + [self.host.slot(variable, name) for name in self.host.slot_names(variable)],
        )

    def _collect(self, view, gate):
        """Runs `collect` on this step's rows. Returns (`{name: value}` of slots still to write, operations).

        Rows of a sparse gradient are written at once, because `update` reads other rows too.
        """
        if not self.arrived or not defines(view.rule, "collect"):
            return {}, []
        with running_rule():
            slots = view.rule.collect(view.ops, view.grad, view.slots, view.hypers_before)
        changed = view.changed_slots(flatten(view.rule, "slot", slots, "collect"))
        natives = OrderedDict((name, view.fit(name, value)) for name, value in changed.items())
        if remembers_rows(view.rule) and view.record.shape:
            natives[LAST_WINDOW] = view.slot_native(LAST_WINDOW) * 0 + view.accumulation_window()
        if self.accepted is not None:
            for name, native in natives.items():
                old = view.slot_native(name)
                native = self.backend.cast(native, self.backend.dtype(old))
                natives[name] = self.backend.choose(self.accepted, native, old)
        if not view.by_rows:
            return natives, []
        return {}, self._write_slots(view, natives, gate)

    def trace(self, view):
        """Traces `update` on a view, and computes the step-wide parts outside of any branch. Returns `Traced`."""
        with running_rule():
            returned = view.rule.update(view.ops, view.grad, view.var, view.slots, view.hypers, view.scope.t)
        change, slots = checked_update(view, returned)
        assigned = isinstance(change, assign)
        change = view.as_value(change.value if assigned else change)
        slots = view.changed_slots(flatten(view.rule, "slot", slots, "update"))
        decay = view.native_decay()
        recorded = list(view.missed.recorded(view.scope).values()) if view.missed else []
        view.ops.hoist([change] + list(slots.values()) + ([decay] if decay is not None else []) + recorded)
        return Traced(assigned, change, slots, decay)

    @staticmethod
    def _finish_in_branch(finish, view, traced, collected):
        with view.forgetting():
            return finish(view, traced, collected, [])

    @staticmethod
    def _decayed(view, traced, earlier):
        """Applies the base class's own weight decay. Returns the operations that come before the update."""
        return earlier if traced.decay is None else earlier + [view.decay(traced.decay, earlier)]

    def _finish_by(self, run, view, traced, collected, earlier):
        """Runs one variable's update by a strategy, and writes the collected slots that the update does not change."""
        earlier = self._decayed(view, traced, earlier)
        done = run(earlier)
        unwritten = OrderedDict((name, native) for name, native in collected.items() if name not in traced.slots)
        return done + self._write_slots(view, unwritten, earlier + done)

    def _finish(self, view, traced, collected, earlier, predicate=None):
        """Writes one variable's update; the old values if `predicate` does not hold. Returns operations."""
        backend, (assigned, change, slots, _) = self.backend, traced
        earlier = self._decayed(view, traced, earlier)
        with backend.after(earlier):
            natives = OrderedDict(collected)
            natives.update((name, view.fit(name, value)) for name, value in slots.items())
            change = view.fit(None, change)
            if view.changed_rows is not None:
                unchanged = view.lower(view.var) if assigned else backend.ops["zeros_like"](change)
                change = view.on_changed_rows(change, unchanged)
            if not assigned and view.missed:
                change, assigned = view.lower(view.var) - change, True
            if predicate is not None:
                unchanged = view.lower(view.var) if assigned else backend.ops["zeros_like"](change)
                before = view.stored() if view.missed else unchanged
                change = backend.choose(predicate, change, before)
                for name in natives:
                    old = collected.get(name)
                    old = view.slot_native(name) if old is None else old
                    natives[name] = backend.choose(predicate, backend.cast(natives[name], backend.dtype(old)), old)
        ready = earlier + [change] + list(natives.values())
        with backend.after(ready):
            if assigned:
                write = backend.write(view.variable, change, view.rows)
            else:
                write = backend.subtract(view.variable, change, view.rows)
        done = [self.host.constrain(view.variable, write)] + self._write_slots(view, natives, ready)
        if view.missed:
            recorded = {name: view.lower(value) for name, value in view.missed.recorded(view.scope).items()}
            done.extend(view.missed.record_update(recorded, view.rows, ready + done, predicate))
        return done

    def _write_slots(self, view, natives, earlier):
        backend = self.backend
        with backend.after(earlier + list(natives.values())):
            return [
                backend.write(self.host.slot(view.variable, name), value, view.rows if view.gathered(name) else None)
                for name, value in natives.items()
            ]


class LossScale(Step):
    """Computes the loss scale of the next step. It carries out no step."""

    def __init__(self, host):
        super(LossScale, self).__init__(host, [], checked=False)

    def native(self, dtype):
        shared = self.scope("float32")
        return self.backend.cast(self._asked(shared, "loss_scale"), dtype)


class Flush(Step):
    """An update without new gradients, for earlier steps that collected something and did not update."""

    arrived = 0

    def __init__(self, host, variables):
        super(Flush, self).__init__(host, [(self._zero_grad(host, variable), variable) for variable in variables])
        self.count("steps")  # read outside of branches: the number of the window depends on it

    @staticmethod
    def _zero_grad(host, variable):
        backend = host.backend
        if remembers_rows(host.rule(variable)) and host.record(variable).shape and backend.moves_rows:
            return backend.no_rows(variable)
        return backend.ops["zeros_like"](backend.read(variable))

    def pending(self):
        return self.backend.ops["maximum"](self.count("pending"), 1)  # with 0 pending steps nothing is written

    def _should_update(self, shared):
        return self.backend.ops["greater"](self.count("pending"), 0)
