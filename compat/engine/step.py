"""The engine: one step over all (gradient, variable) pairs of a call, the same for every target.

Order, for graphs in which nothing else orders anything (https://github.com/keras-team/keras/issues/10769 shows what
happens without): for one variable its reads come before its writes; across variables, writes wait for all gradients
and for the reads of counters; counters move last.

A `host` (a target's instance) gives what differs between targets: `backend`, `definition`, `rule(variable)`,
`record(variable)`, `slot(variable, name)`, `scalar(name)`, `counter(name)`, `read_counter(name)`, `hyper(name)`,
`update(variable, function, grad)`, which calls `function(variable, grad)` where the variable lives, and what its base
class does itself: `moved_natively` (counters), `constrain(variable, write)` and `native_decay(variable)`.
"""
from __future__ import absolute_import, division, print_function

import functools
from collections import OrderedDict, namedtuple

from everstep.compat.engine.fast_forward import SLOTS as CATCH_UP
from everstep.compat.engine.fast_forward import catch_up_slots, catches_up
from everstep.compat.engine.variable_view import LAST_WINDOW, Scope, VariableView, agree
from everstep.errors import GradientError, RuleError, StateError, UnsupportedError
from everstep.optimizers.contract.checks import SIXTEEN_BITS, is_tensor
from everstep.optimizers.contract.declarations import running_rule
from everstep.optimizers.contract.definition import assign, total
from everstep.optimizers.contract.trees import Names, flat, flatten, tree
from everstep.optimizers.contract.verbs import defines, measures_only_on_update

_FLOATS = SIXTEEN_BITS | frozenset(["float32", "float64"])
ENGINE_SLOTS = (LAST_WINDOW,) + CATCH_UP  # all that there may be beside a variable's own


def skips(definition):
    """Whether there are steps that do not update, so that steps and updates are counted apart."""
    return definition.stages > 1 or defines(definition, "should_update") or defines(definition, "should_accept")


def counters(definition):
    """The names of the counters that a definition needs."""
    return ("updates", "pending", "steps") if skips(definition) else ("updates",)


def holds(definition):
    """Whether a step that does not update leaves something to a later one."""
    return skips(definition) and defines(definition, "collect")


def remembers_rows(definition):
    """Whether a sparse update needs to know the rows of earlier steps."""
    return defines(definition, "collect") and (definition.sparse != "exact" or definition.zero_grad_is_noop)


def engine_slots(backend, rule, record):
    """`{name: (initial value, shape, dtype)}` of what the engine keeps beside a variable's slots."""
    found = OrderedDict()
    if record.shape and remembers_rows(rule):
        found[LAST_WINDOW] = (0, tuple(record.shape[:1]) + (1,) * (len(record.shape) - 1), "int64")
    if record.shape and catches_up(backend.moves_rows, rule):
        found.update(catch_up_slots(rule, record))
    return found


def engine_slot_names(rule, moves_rows):
    """What `engine_slots` has for a variable with rows, on a backend whose gradients can be sparse or cannot."""
    names = [LAST_WINDOW] if remembers_rows(rule) else []
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
        grad, dtype = backend.local(grad), backend.dtype(variable)
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
        if found is not None and not agree(found, wanted):
            raise GradientError(
                "the gradient of {} has {} of shape {}; the variable needs {}".format(
                    name, "rows" if slices else "values", tuple(found), wanted
                )
            )
    return kept


# assigned: whether `update` gave the new value, in `change`; slots: the changed ones; decay: the share that the base
# class's own weight decay takes off, or None.
Traced = namedtuple("Traced", "assigned change slots decay")


class Step(object):
    """One call with gradients. `run()` gives the operations that carry it out; in eager code it is then done."""

    arrived = 1  # how many steps it is

    def __init__(self, host, pairs, before=(), checked=True):
        """Args: before: tensors that are computed before anything is written, beside the gradients."""
        self.host, self.backend, self.definition = host, host.backend, host.definition
        self.lowerings = host.lowerings
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
            self.scopes[dtype] = Scope(self, dtype)
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
        operations = []
        groups, alone = self.lowerings.groups(self)
        for group in groups:
            operations.extend(self.lowerings.run_group(*(group + (gate,))))
        for grad, variable in alone:
            operations.extend(self.host.update(variable, lambda v, g: self._update_variable(v, g, gate), grad))
        with backend.after(operations):
            if count:
                operations.extend(self._write_scalars(scalars, rejected) + list(self._count()))
        return operations

    @staticmethod
    def count_update(host):
        """The operations that count one update, for steps that ran one variable at a time."""
        return host.backend.add(host.counter("updates"), 1)

    def pending(self):
        """The steps since the last update, this one included."""
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
        """Learns the sums, and gives them: nothing may be written before they are read.

        Args: should_update: whether they are asked for at all; None: they are.
        """
        if not defines(self.definition, "measure"):
            return []
        asked = []  # (which variable's, None of a total; name; of which work; value)
        for grad, variable in self.pairs:
            view = VariableView.of_gradient(self, variable, self.backend.local(grad)).for_measure()
            whole = self.host.whole_key(variable)
            self.sums.setdefault(whole, {})
            with running_rule():
                found = view.rule.measure(view.ops, view.grad, view.var, view.slots, view.hypers)
            for name, value in flatten(view.rule, "sum", found, "measure").items():
                of_all = isinstance(value, total)
                value = view.as_value(value.value if of_all else value)
                view.ops.hoist([value])
                asked.append((None if of_all else whole, name, view, value))
        dtypes = OrderedDict()
        for whole, name, view, _ in asked:
            dtypes[whole, name] = "float32" if whole is None else view.dtype
        if should_update is None or not all(self.backend.can_branch(variable) for _, variable in self.pairs):
            natives = self._sums(asked, dtypes)
        else:
            for name in counters(self.definition):  # a branch that reads one first would keep it
                self.count(name)
            natives = self.backend.values_if(should_update, lambda: self._sums(asked, dtypes), list(dtypes.values()))
        found = dict(zip(dtypes, natives))
        for (whole, name), native in found.items():
            if whole is not None:
                self.sums[whole][name] = native
        self._learn({name: native for (whole, name), native in found.items() if whole is None})
        return natives

    def _sums(self, asked, dtypes):
        sums = OrderedDict()
        for whole, name, view, value in asked:
            with view.forgetting():
                native = self.backend.cast(view.lower(value), dtypes[whole, name])
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
        with backend.after(list(values.values())):  # one may be made of the old value of another
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
            self.lowerings.note(view, "plain", [why, "no other way: ref variables cannot be written in a branch"])
            return self._finish(view, traced, collected, gate + written, self.predicate)
        run = self.lowerings.choose(view, traced, collected, why)
        finish = functools.partial(self._finish_by, run) if run else self._finish
        if not self.skips or self.definition.stages > 1:
            return finish(view, traced, collected, gate + written)
        # A branch must not wait for anything outside of it, so its predicate does.
        predicate = self.backend.wait(self.predicate, gate + written)
        return self.backend.branch(
            predicate,
            lambda: self._finish_in_branch(finish, view, traced, collected),
            lambda: self._write_slots(view, collected, []),
            [variable] + [self.host.slot(variable, name) for name in self.host.slot_names(variable)],
        )

    def _collect(self, view, gate):
        """Runs `collect` on the rows present: (new whole slots, still to be written; operations that wrote rows).

        What a sparse gradient adds is written at once, since `update` will read other rows too.
        """
        if not self.arrived or not defines(view.rule, "collect"):
            return {}, []
        with running_rule():
            found = view.rule.collect(view.ops, view.grad, view.slots, view.hypers_before)
        changed = view.changed_slots(flatten(view.rule, "slot", found, "collect"))
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
        """What `update` makes of a work, as values.

        Their step-wide parts are computed here, outside of any branch.
        """
        with running_rule():
            found = view.rule.update(view.ops, view.grad, view.var, view.slots, view.hypers, view.scope.t)
        if not isinstance(found, tuple) or len(found) != 2 or isinstance(found, assign):
            raise RuleError("{}.update must return (change, slots); it returned {!r}".format(view.owner, found))
        change, slots = found
        assigned = isinstance(change, assign)
        change = view.as_value(change.value if assigned else change)
        slots = view.changed_slots(flatten(view.rule, "slot", slots, "update"))
        decay = view.native_decay()
        noted = view.missed.note(view.scope) if view.missed else []
        view.ops.hoist([change] + list(slots.values()) + ([decay] if decay is not None else []) + noted)
        return Traced(assigned, change, slots, decay)

    @staticmethod
    def _finish_in_branch(finish, view, traced, collected):
        with view.forgetting():
            return finish(view, traced, collected, [])

    @staticmethod
    def _decayed(view, traced, earlier):
        """The operations before an update, the base class's own decay among them."""
        return earlier if traced.decay is None else earlier + [view.decay(traced.decay, earlier)]

    def _finish_by(self, run, view, traced, collected, earlier):
        """Has one variable's update carried out, and writes what there is beside it."""
        earlier = self._decayed(view, traced, earlier)
        done = run(earlier)
        kept = OrderedDict((name, native) for name, native in collected.items() if name not in traced.slots)
        return done + self._write_slots(view, kept, earlier + done)

    def _finish(self, view, traced, collected, earlier, predicate=None):
        """Computes one variable's update after `earlier` operations and writes it; where not `predicate`, what was."""
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
            noted = [view.lower(value) for value in view.missed.note(view.scope)]
            done.extend(view.missed.count(noted, view.rows, ready + done, predicate))
        return done

    def _write_slots(self, view, natives, earlier):
        backend = self.backend
        with backend.after(earlier + list(natives.values())):
            return [
                backend.write(self.host.slot(view.variable, name), value, view.rows if view.gathered(name) else None)
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

    def _should_update(self, shared):
        return self.backend.ops["greater"](self.count("pending"), 0)
