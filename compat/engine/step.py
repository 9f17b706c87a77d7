"""The engine: one step over all (gradient, variable) pairs of a call, the same for every target.

Graphs order operations only by explicit dependencies; https://github.com/keras-team/keras/issues/10769 shows what
happens without them. A step ensures this order: a variable is read before it is written; writes wait for all gradients
and for the reads of counters; counters are written last.

A `host` is a `Bound` (compat/targets/bound.py). The engine uses its `backend`, `definition`, `lowerings`,
`arguments`, `rule(variable)`, `record(variable)`, `slot(variable, name)`, `read_counter(name)` and `given(name)`. What
each API does in its own way is asked of `host.adapter` (compat/targets/adapter.py): `present(name)`, `counter(name)`,
`scalar(name)` and `update(variable, function, grad)`, which calls `function(variable, grad)` where the variable lives.
The base class may do some work itself: `moved_natively` are the counters that it moves, `constrain(variable, write)`
applies constraints, and `native_decay(variable)` is its weight decay.
"""
from __future__ import absolute_import, division, print_function

import functools
from collections import OrderedDict, namedtuple

from everstep.compat.engine.collecting import collect, remembers_rows
from everstep.compat.engine.fast_forward import SLOTS as CATCH_UP
from everstep.compat.engine.fast_forward import catch_up_slot_names, catch_up_slots, catches_up, even_rows
from everstep.compat.engine.inner_kernel import run_kernel
from everstep.compat.engine.pairs import with_gradients
from everstep.compat.engine.rows import LAST_WINDOW
from everstep.compat.engine.scope import Scope
from everstep.compat.engine.tracing import asked, measured, scalars_after, updated
from everstep.compat.engine.update_order import in_update_order
from everstep.compat.engine.variable_view import VariableView
from everstep.errors import StateError, UnsupportedError
from everstep.optimizers.contract.trees import flat
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


# The update of one variable: `finish(earlier)` makes it after earlier operations, `hold(earlier)` writes what it
# collected instead. Both return operations. written: the operations that wrote some of that already.
Prepared = namedtuple("Prepared", "view grad finish hold written")


class Step(object):
    """A step: one call with (gradient, variable) pairs, which `check_pairs` checked.

    Args:
        before: tensors to compute before anything is written.
        hypers: `{name: value}` of hypers that the caller has read.
    """

    arrived = 1  # how many steps this counts as

    def __init__(self, host, pairs, before=(), hypers=()):
        self.host, self.backend, self.definition = host, host.backend, host.definition
        self.lowerings, self._hypers = host.lowerings, dict(hypers)
        if host.is_averaged and self.backend.eager:
            raise StateError("inside of everstep.averaged there are averages in the variables: train outside of it")
        self.pairs, self.before = self.backend.lasting(with_gradients(pairs)), list(before)
        self.skips = skips(self.definition)
        self.predicate, self.accepted = True, None  # whether the step updates, is accepted (None: always)
        self.counts = {}  # {counter: value before the step}
        self.scopes = {}  # {compute dtype: Scope}
        self.known = {}  # {name: native value} of measured totals and advanced scalars, for every scope
        self.measured = []  # the native sums; writes must wait for their reads
        self.sums = {}  # {whole variable's key: {name: sum measured for that variable}}
        self.earlier, self.scalars, self.rejected = [], {}, {}  # see `begin`

    def scope(self, dtype):
        if dtype not in self.scopes:
            self.scopes[dtype] = Scope(self, dtype)
        return self.scopes[dtype]

    def hyper(self, name):
        return self._hypers[name] if name in self._hypers else self.host.adapter.present(name)

    def count(self, name):
        if name not in self.counts:
            self.counts[name] = self.host.read_counter(name)
        return self.counts[name]

    def run(self, count=True):
        """Carries out the step. Returns operations; eager code has run them.

        `count` is False for single variables that a wrapper optimizer hands over: counters and scalars do not move.
        """
        if not count and (self.skips or flat(self.definition, "scalar")):
            raise UnsupportedError(
                "{} has values that change once a call, so it cannot run inside an optimizer that hands it one "
                "variable at a time; call its apply_gradients".format(self.definition._short())
            )
        self.begin()
        done = self.update_all()
        return done + (self.end(done) if count else [])

    def begin(self):
        """Computes what all variables share: sums, whether the step updates, new scalars, and what updates wait for."""
        self.decide(self.start())

    def start(self):
        """Measures. Returns whether the step updates if that is decided before, else None."""
        backend = self.backend
        self.earlier = [backend.barrier([grad for grad, _ in self.pairs] + self.before)]
        # If only steps that update need the sums, decide before measuring whether this step updates.
        early = self.skips and measures_only_on_update(self.definition)
        should_update = backend.cast(self._should_update(self.scope("float32")), "bool") if early else None
        self.earlier.extend(self.measure(should_update))
        return should_update

    def decide(self, should_update):
        """Computes whether the step updates and new scalars, from all that was measured. The argument: see `start`."""
        backend, shared = self.backend, self.scope("float32")
        if self.skips:
            if should_update is None:
                should_update = backend.cast(self._should_update(shared), "bool")
            if self.arrived and defines(self.definition, "should_accept"):
                self.accepted = backend.cast(self._asked(shared, "should_accept"), "bool")
                should_update = backend.ops["logical_and"](self.accepted, should_update)
            self.predicate = backend.wait(should_update, self.earlier)
        self.rejected = self._rejected(shared)
        self.scalars = self._advance(shared)
        if backend.without_strategy():
            self.earlier.extend(even_rows(self.host, self.pairs, self.earlier))

    def update_all(self):
        """Updates the variables. Returns operations."""
        groups, single_pairs = self.lowerings.groups(self)
        operations = [each for run_group in groups for each in run_group(self.earlier)]
        return operations + self._update_variables(single_pairs, self.earlier)

    def end(self, operations):
        """Moves scalars and counters, after the operations that update the variables. Returns operations."""
        with self.backend.after(operations):
            return self._write_scalars(self.scalars, self.rejected) + list(self._count())

    @staticmethod
    def count_update(host):
        """Counts one update after steps that ran one variable at a time. Returns an operation."""
        return host.backend.add(host.adapter.counter("updates"), 1)

    def pending(self):
        """Returns the number of steps since the last update, including this one."""
        if not self.skips:
            return self.backend.constant(self.arrived, self.backend.stored("int64"))
        return self.count("pending") + self.arrived

    def _should_update(self, shared):
        return self._asked(shared, "should_update")

    def _asked(self, shared, verb):
        return shared.native(asked(shared, self.definition, verb))

    def learn(self, natives):
        self.known.update(natives)
        for scope in self.scopes.values():
            scope.learn(natives)

    def measure(self, should_update=None):
        """Measures the sums, if `should_update` holds or is None. Returns them: writes must wait for their reads."""
        if not defines(self.definition, "measure"):
            return []
        totals = self.lowerings.totals_of(self)
        if totals is not None:  # also if no update needs them: to measure then is short
            known = totals.of([grad for grad, _ in self.pairs])
            self.learn(known)
            return list(known.values())
        requests = []  # (whole variable's key or None for a total, name, view, value)
        for grad, variable in self.pairs:
            view = VariableView.of_gradient(self, variable, self.backend.local(grad)).for_measure()
            whole = self.host.whole_key(variable)
            self.sums.setdefault(whole, {})
            for name, (is_total, value) in measured(view).items():
                view.hoist([value])
                requests.append((None if is_total else whole, name, view, value))
        dtypes = OrderedDict()
        for whole, name, view, _ in requests:
            dtypes[whole, name] = "float32" if whole is None else view.dtype
        if should_update is None or not all(self.backend.can_branch(variable) for _, variable in self.pairs):
            natives = self.sums_of(requests, dtypes)
        else:
            # read outside of the branch: a first read inside would be cached there
            for name in counters(self.definition):
                self.count(name)
            zeros = lambda: [self.backend.constant(0, dtype) for dtype in dtypes.values()]  # noqa: E731
            natives = self.backend.values_if(should_update, lambda: self.sums_of(requests, dtypes), zeros)
        sums = dict(zip(dtypes, natives))
        for (whole, name), native in sums.items():
            if whole is not None:
                self.sums[whole][name] = native
        self.learn({name: native for (whole, name), native in sums.items() if whole is None})
        self.measured = natives
        return natives

    def sums_of(self, requests, dtypes):
        """Returns the native sums, each over all parts of a variable or, for a total, over all variables.

        For subclasses whose variables lie on several devices: they add what each device has.

        Args:
            requests: (key of the whole variable or None for a total, name, view, value), one for each gradient.
            dtypes: {(key, name): dtype}, in the order of the sums.
        """
        parts = OrderedDict()
        for whole, name, view, value in requests:
            with view.forgetting():
                parts.setdefault((whole, name), []).append(self.backend.cast(view.lower(value), dtypes[whole, name]))
        return [self.backend.sum_of(natives) for natives in parts.values()]

    def _advance(self, shared):
        """Returns `{name: new value}` of the scalars. Rules get the new values from now on."""
        if not flat(self.definition, "scalar"):
            return {}
        natives = self._scalar_natives(shared, scalars_after(shared, self.definition, "advance"))
        self.learn(natives)
        return natives

    def _rejected(self, shared):
        """Returns `{name: new value}` of the scalars for a step that is not accepted."""
        if self.accepted is None:
            return {}
        return self._scalar_natives(shared, scalars_after(shared, self.definition, "reject"))

    def _scalar_natives(self, shared, scalars):
        natives = {}
        for name, value in scalars.items():
            native = shared.native(value)
            natives[name] = self.backend.copy(native, self.host.adapter.scalar(name)) if value.is_buffer else native
        return natives

    def _write_scalars(self, scalars, rejected):
        backend, values = self.backend, dict(scalars)
        for name, value in scalars.items() if self.skips else ():
            before = backend.cast(backend.read(self.host.adapter.scalar(name)), "float32")
            kept = backend.choose(self.accepted, before, rejected[name]) if name in rejected else before
            values[name] = backend.choose(self.predicate, value, kept)
        with backend.after(list(values.values())):  # a scalar may be computed from another one's old value
            return [backend.write(self.host.adapter.scalar(name), value) for name, value in values.items()]

    def _count(self):
        backend, counter = self.backend, self.host.adapter.counter
        applied = backend.cast(self.predicate, "int64") if self.skips else 1
        taken = self.arrived if self.accepted is None else backend.cast(self.accepted, "int64")
        move = {
            "updates": lambda: backend.add(counter("updates"), applied),
            "pending": lambda: backend.write(counter("pending"), (self.count("pending") + taken) * (1 - applied)),
            "steps": lambda: backend.add(counter("steps"), self.arrived),
        }
        for name in counters(self.definition):
            if name not in self.host.adapter.moved_natively or not self.arrived:
                yield move[name]()

    # The variables.

    def _update_variables(self, pairs, earlier):
        """Updates variables, in a branch if not every step updates: one for all where it can be. Returns operations."""
        backend, prepared, operations = self.backend, [], []
        branches = self.skips and self.definition.stages == 1
        free = backend.without_strategy() and all(backend.can_branch(v) and backend.is_here(v) for _, v in pairs)

        def update(variable, grad):
            one = self._prepare(variable, grad, earlier)
            prepared.append(one)
            if branches and free:
                return one.written
            in_branch = branches and backend.can_branch(variable)
            return self._branch([one], earlier + one.written) if in_branch else one.finish(earlier + one.written)

        for grad, variable in pairs:
            operations.extend(self.place(variable, update, grad))
        in_one = branches and free and prepared
        return self._branch(prepared, earlier + operations, self.place) if in_one else operations

    def _branch(self, prepared, earlier, place=lambda variable, function, grad: function(variable, grad)):
        """Finishes updates if the step updates, else writes what they collected."""
        def each(verb):
            operations = []
            for one in prepared:
                run = getattr(one, verb)
                operations.extend(place(one.view.variable, lambda variable, grad: run([]), one.grad))  # noqa: B023
            return operations

        # A branch must not wait for operations outside of it, so its predicate waits for them.
        predicate = self.backend.wait(self.predicate, earlier)
        written = [native for one in prepared for native in self._written(one.view.variable)]
        return self.backend.branch(predicate, lambda: each("finish"), lambda: each("hold"), written)

    def place(self, variable, function, grad):
        """Calls `function(variable, grad)` where the variable lives. Returns operations."""
        return self.host.adapter.update(variable, function, grad)

    def constrain(self, variable, write):
        """Returns the operation `write`, followed by the variable's constraint."""
        return self.host.adapter.constrain(variable, write)

    def is_masked(self, variable):
        """Returns whether a step without an update writes the old values: no branch can write such a variable."""
        return self.skips and self.definition.stages == 1 and not self.backend.can_branch(variable)

    def _written(self, variable):
        return [variable] + [self.host.slot(variable, name) for name in self.host.slot_names(variable)]

    def _prepare(self, variable, grad, earlier):
        """Does what comes before a branch: collects, chooses a strategy and traces. Returns a `Prepared`."""
        if not self.backend.without_strategy():
            earlier = earlier + even_rows(self.host, [(grad, variable)], earlier)
        view = VariableView.of_gradient(self, variable, grad)
        collected, written = collect(self, view, earlier)
        view = view.for_update(collected)
        masked = self.is_masked(variable)
        traced, why = None, "no kernel: a branch here cannot write ref variables"
        if not masked:
            traced, why = self.lowerings.trace_kernel(self, view, collected)
        if traced:
            self.lowerings.note(view, "kernel")
            finish = self._finish_by_kernel
        else:
            traced = self.trace(view)
            if masked:
                self.lowerings.note(view, "plain", [why, "no other strategy: a branch here cannot write ref variables"])
                finish = functools.partial(self._finish, predicate=self.predicate)
            else:
                run = self.lowerings.choose(view, traced, collected, why)
                finish = functools.partial(self._finish_by, run) if run else self._finish

        def finish_it(earlier):
            with view.forgetting():
                return finish(view, traced, collected, earlier)

        return Prepared(view, grad, finish_it, lambda earlier: self.write_slots(view, collected, earlier), written)

    def trace(self, view, inner_kernel=None):
        """Returns the `Traced` update of a view, whose step-wide parts it computes now, outside of any branch.

        Args:
            inner_kernel: an `InnerKernel` to look for, which raises NoKernel if there is none. Default None.
        """
        traced = updated(view, inner_kernel)
        for value in traced.shared:
            view.scope.interpreter.lower(value)
        return traced

    @staticmethod
    def _decayed(view, traced, earlier):
        """Applies the base class's own weight decay. Returns the operations that come before the update."""
        return earlier if traced.decay is None else earlier + [view.decay(traced.decay, earlier)]

    def _finish_by(self, run, view, traced, collected, earlier):
        """Runs one variable's update by a strategy, and writes the collected slots that the update does not change."""
        earlier = self._decayed(view, traced, earlier)
        done = run(earlier)
        unwritten = OrderedDict((name, native) for name, native in collected.items() if name not in traced.slots)
        return done + self.write_slots(view, unwritten, earlier + done)

    def _finish_by_kernel(self, view, traced, collected, earlier):
        """Runs one variable's update by its kernel, and writes what comes after it. Returns operations."""
        backend, earlier = self.backend, self._decayed(view, traced, earlier)
        done = [run_kernel(view, traced.kernel, earlier)]
        with backend.after(done):
            natives = OrderedDict(collected)
            natives.update((name, view.fit(name, value)) for name, value in traced.slots.items())
            change = [] if traced.change is None else [view.fit(None, traced.change)]
        earlier = done + change + list(natives.values())
        if change:
            with backend.after(earlier):
                write = backend.write(view.variable, change[0], view.rows)
        else:
            write = done[0] if len(earlier) == 1 else backend.group(earlier)
        return [self.constrain(view.variable, write)] + self.write_slots(view, natives, earlier)

    def _finish(self, view, traced, collected, earlier, predicate=None):
        """Writes one variable's update; the old values if `predicate` does not hold. Returns operations."""
        backend, (assigned, change, slots) = self.backend, traced[:3]
        earlier = self._decayed(view, traced, earlier)
        with backend.after(earlier):
            natives = OrderedDict(collected)
            ordered = backend.separates and backend.is_traced(view.lower(view.var)) and in_update_order(view, traced)
            if ordered:
                assigned, change = True, ordered[0]
                natives.update(ordered[1])
            else:
                natives.update((name, view.fit(name, value)) for name, value in slots.items())
                change = view.fit(None, change)
            if view.changed_rows is not None:
                unchanged = view.lower(view.var) if assigned else backend.ops["zeros_like"](change)
                change = view.on.chosen(view.changed_rows(), change, unchanged)
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
        earlier = earlier + [change] + list(natives.values())
        with backend.after(earlier):
            write = (backend.write if assigned else backend.subtract)(view.variable, change, view.rows)
        done = [self.constrain(view.variable, write)] + self.write_slots(view, natives, earlier)
        if view.missed:
            recorded = {name: view.lower(value) for name, value in view.missed.recorded(view.scope).items()}
            done.extend(view.missed.record_update(recorded, view.rows, earlier + done, predicate))
        return done

    def write_slots(self, view, natives, earlier):
        """Writes `{name: native value}` of slots after earlier operations. Returns operations."""
        backend = self.backend
        with backend.after(earlier + list(natives.values())):
            return [
                backend.write(self.host.slot(view.variable, name), value, view.rows if view.gathered(name) else None)
                for name, value in natives.items()
            ]
