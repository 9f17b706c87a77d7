"""How the engine carries out updates: which of its ways it takes for a variable, and why.

| way      | what runs                                                        | where                                  |
|----------|------------------------------------------------------------------|----------------------------------------|
| kernel   | one fused operation of TensorFlow, see engine/fused.py           | rules that declare one                 |
| grouped  | the rule once, on many small variables laid end to end           | rules on single elements; not on JAX   |
| compiled | the rule as one function that XLA made, which variables share    | TF 2.5 and newer; sessions by choice   |
| pieces   | the rule on one piece of a large variable after the other        | sessions before TF 2.9, ref variables  |
| in_place | the rule, with operations that move slots where they are         | sessions                               |
| plain    | the rule, operation by operation                                 | everywhere                             |

The first that can be is taken. None of them changes what is computed, but for rounding. `bind(module,
lowering={"compiled": False})` forbids a way, `{"compiled": True}` takes it wherever it can be, also where it is not
expected to be faster; `optimizer.everstep_plan()` says what was taken.
"""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict, namedtuple

import numpy as np

from everstep.compat.engine.fused import KERNELS
from everstep.compat.engine.variable_view import GRAD, VAR, VariableView, fitted
from everstep.errors import DefinitionError, UnsupportedError
from everstep.optimizers.contract import compute_dtype, defines, kernel_of
from everstep.optimizers.contract.declarations import running_rule

STRATEGIES = ("kernel", "flattened", "compiled", "chunks", "in_place")
SMALL = 16384  # elements below which a variable's own operations cost more than its elements do
TINY = 2048  # the same where one operation, a kernel, is all that a variable needs
FEW = 8  # variables below which laying them end to end does not pay
LARGE = 2**25  # bytes of a temporary from which on the allocator gives it back and faults it in again, every time
CHUNK_ELEMENTS, MAX_CHUNKS = 2**19, 64  # elements of a piece, and how many pieces there are at most

# name, shape: the variable's; gradient: "dense" or "sparse"; strategy: what carries out its update; why: what keeps the
# ways before it in the table from it.
Planned = namedtuple("Planned", "name shape gradient strategy why")


class Lowerings(object):
    """The ways of one optimizer.

    Args:
        host: a target's instance, see compat/engine/step.py.
        wanted: `{way: whether}`, what the user forces and forbids.
    """

    def __init__(self, host, wanted):
        wanted = {} if wanted is None else wanted
        if not isinstance(wanted, dict) or not all(isinstance(value, bool) for value in wanted.values()):
            raise DefinitionError(
                "lowering is a dictionary of True (force) and False (forbid) by strategy ({}); got {!r}".format(
                    ", ".join(STRATEGIES), wanted
                )
            )
        for strategy in sorted(set(wanted) - set(STRATEGIES)):
            raise DefinitionError("lowering has no strategy {!r}; it has {}".format(strategy, ", ".join(STRATEGIES)))
        self.host, self.wanted = host, wanted
        self._planned = OrderedDict()
        self._functions = {}  # what was compiled, by what it computes

    def check(self):
        """Raises where what is forced cannot be."""
        for strategy in STRATEGIES:
            if self._forces(strategy) and not self.host.backend.lowers(strategy):
                raise UnsupportedError(
                    "lowering={{{!r}: True}} cannot be: what {} runs on here has no such strategy".format(
                        strategy, type(self.host).__name__
                    )
                )

    def plan(self):
        return list(self._planned.values())

    def note(self, view, strategy, why=()):
        key = self.host.variable_key(view.variable), view.is_sparse
        gradient = "sparse" if view.is_sparse else "dense"
        why = "; ".join(filter(None, why))
        self._planned[key] = Planned(view.record.name, view.record.shape, gradient, strategy, why)

    def _forces(self, strategy):
        return self.wanted.get(strategy) is True

    def _refusal(self, strategy):
        if self.wanted.get(strategy) is False:
            return "not {}: forbidden".format(strategy)
        return "" if self.host.backend.lowers(strategy) else "not {}: this API has no such strategy".format(strategy)

    def choose(self, view, traced, collected, why):
        """What carries out a traced update, a function of the operations before it; None where it is plain.

        Args:
            collected: `{name: native}` of slots that `collect` gave and that are still to be written.
            why: what keeps the update from ways before.
        """
        why = [why]
        for strategy, find in (("compiled", self._compiled), ("chunks", self._chunks), ("in_place", self._in_place)):
            run, reason = find(view, traced, collected)
            if run:
                self.note(view, strategy, why)
                return run
            why.append(reason)
        self.note(view, "plain", why)
        return None

    # One fused operation.

    def kernel(self, step, view):
        """(the kernel that does a work's update, None), or (None, what stands in its way)."""
        backend, rule = self.host.backend, view.rule
        if self._refusal("kernel"):
            return None, self._refusal("kernel")
        declared = kernel_of(rule)
        if declared is None:
            return None, "no kernel: the rule is not declared to be one's"
        kernel = KERNELS[declared.name](rule, self._fixed)
        if kernel is None:
            return None, "no kernel: none of {} with these options".format(declared.name)
        if step.skips or view.missed or view.changed_rows is not None:
            return None, "no kernel: there are steps or rows to leave out"
        if view.by_rows and not kernel.by_rows:
            return None, "no kernel: {} has no form for rows".format(kernel.operation)
        slots = [self.host.slot(view.variable, name) for name in kernel.slots.values()]
        if {backend.dtype(native) for native in [view.variable] + slots} != {view.dtype}:
            return None, "no kernel: it computes in the dtype of the variable"
        found = backend.is_since(kernel.since) and backend.kernel(kernel.operation, view.variable, slots, view.by_rows)
        if not found:
            return None, "no kernel: this TensorFlow has no {} for such variables".format(kernel.operation)
        return kernel, None

    def run_kernel(self, view, kernel, earlier):
        """The operations that do a work's update by its kernel, after earlier ones."""
        backend, scope = self.host.backend, view.scope
        with running_rule():
            scalars = kernel.scalars(view.ops, view.hypers, scope.t)
            decay = kernel.decay(view.hypers) if kernel.decay else view.native_decay()  # never both
        slots = {name: self.host.slot(view.variable, slot) for name, slot in kernel.slots.items()}
        arguments = {name: backend.cast(scope.native(value), view.dtype) for name, value in scalars.items()}
        arguments.update(slots, **kernel.settings)
        if decay is not None:
            earlier = earlier + [view.decay(decay, earlier)]
        with backend.after(earlier):
            arguments[kernel.grad] = view.lower(view.grad)
            if view.by_rows:
                arguments["indices"] = view.rows
            run = backend.kernel(kernel.operation, view.variable, list(slots.values()), view.by_rows)
            return [self.host.constrain(view.variable, run(view.variable, arguments))]

    def _fixed(self, name):
        """The number that a hyper has for good; None where it can change."""
        value = self.host.given_hyper(name)
        return value if isinstance(value, float) and not self.host.sets_hypers else None

    # Many small variables.

    def groups(self, step):
        """(lists of views, what the first of them traces, its program) and the pairs that are in none."""
        backend = self.host.backend
        if self._refusal("flattened") or step.skips or not backend.without_strategy() or backend.shares_variables():
            return [], step.pairs
        alike = OrderedDict()
        for grad, variable in step.pairs:
            if self._can_group(grad, variable):
                key = self.host.rule(variable), backend.device(variable)
                alike.setdefault(key, []).append((grad, variable))
        groups, taken = [], set()
        for pairs in alike.values():
            pairs = self._worth_grouping(step, pairs)
            made = self._group(step, pairs) if pairs else None
            if made:
                groups.append(made)
                taken.update(id(variable) for _, variable in pairs)
        return groups, [pair for pair in step.pairs if id(pair[1]) not in taken]

    def _worth_grouping(self, step, pairs):
        """Those of some pairs of equal rules that are better off together than by themselves."""
        if self._forces("flattened"):
            return pairs if len(pairs) > 1 else []
        if self.kernel(step, VariableView.of_gradient(step, *reversed(pairs[0])))[0]:
            if self.host.is_fused or self.host.backend.eager:
                return []  # not much slower at each step, and built in half the time
            pairs = [pair for pair in pairs if np.prod(self.host.record(pair[1]).shape) < TINY]
        return pairs if len(pairs) >= FEW else []

    def _can_group(self, grad, variable):
        backend, rule, record = self.host.backend, self.host.rule(variable), self.host.record(variable)
        natives = [variable] + [self.host.slot(variable, name) for name in self.host.slot_names(variable)]
        return (
            backend.is_here(variable)
            and backend.slices(grad) is None
            and backend.shape(grad) == record.shape
            and np.prod(record.shape) < SMALL
            and rule.locality == "element"
            and not defines(rule, "collect")
            and not self.host.native_decay(variable)
            and all(backend.shape(native) == record.shape for native in natives)
            and {backend.dtype(native) for native in natives} == {compute_dtype(record.dtype)}
        )

    def _group(self, step, pairs):
        views = [VariableView.of_gradient(step, variable, grad) for grad, variable in pairs]
        one_of_each = OrderedDict((view.record.shape, view) for view in views)  # shape is all that a rule can tell
        traced = [step.trace(view) for view in one_of_each.values()]
        programs = [view.program(each) for view, each in zip(one_of_each.values(), traced)]
        first = programs[0]
        same = all(
            program.key() == first.key() and list(map(id, program.outside)) == list(map(id, first.outside))
            for program in programs
        )
        return (views, traced[0], first) if same and first.is_elementwise() else None

    def run_group(self, views, traced, program, earlier):
        """The operations that do the updates of many variables by one."""
        backend, first, written = self.host.backend, views[0], [VAR] + list(traced.slots)
        with backend.after(earlier):
            given = {GRAD: backend.concat_flat([view.lower(view.grad) for view in views])}
            for name in [VAR] + list(first.declared):
                if name in program.roles or name in written:
                    value = [view.lower(view.var if name == VAR else view.slot_values[name]) for view in views]
                    given[name] = backend.concat_flat(value)
            outside = [first.lower(value) for value in program.outside]
            natives = _results(backend, program, given, outside, first, traced)
            split = {name: backend.split(natives[name], [view.record.shape for view in views]) for name in written}
        done = []
        with backend.after([backend.barrier(earlier + list(natives.values()))]):
            for place, view in enumerate(views):
                self.note(view, "flattened")
                done.extend(self._write(view, OrderedDict((name, split[name][place]) for name in written)))
        return done

    def _write(self, view, natives):
        """The operations that write new values, whole."""
        done = [self.host.constrain(view.variable, self.host.backend.write(view.variable, natives[VAR]))]
        for name, native in natives.items():
            if name != VAR:
                done.append(self.host.backend.write(self.host.slot(view.variable, name), native))
        return done

    # One compiled function.

    def _compiled(self, view, traced, collected):
        forced = self._forces("compiled")
        if self._refusal("compiled"):
            return None, self._refusal("compiled")
        if view.is_on_rows:
            return None, "not compiled: it is on some rows"
        if not forced and _elements(view) < SMALL:
            return None, "not compiled: the variable is small"
        why = self.host.backend.cannot_compile(view.variable, forced)
        if why:
            return None, why
        return lambda earlier: self._run_compiled(view, traced, view.program(traced, collected), earlier), ""

    def _run_compiled(self, view, traced, program, earlier):
        backend = self.host.backend
        read = [name for name in view.declared if name in program.roles and name not in traced.slots]
        names = read + list(traced.slots)
        key = program.key(), traced.assigned, tuple(read), tuple(traced.slots), view.record[1:3]
        if key not in self._functions:
            self._functions[key] = backend.compile(_Body(backend, program, traced, names, view))
        slots = [self.host.slot(view.variable, name) for name in names]
        with backend.after(earlier):
            outside = [view.lower(value) for value in program.outside]
            done = self._functions[key](view.variable, slots, view.lower(view.grad), outside)
        return [self.host.constrain(view.variable, done)]

    # One large variable.

    def _chunks(self, view, traced, collected):
        shape = view.record.shape
        if self._refusal("chunks"):
            return None, self._refusal("chunks")
        large = _elements(view) * np.dtype(view.dtype).itemsize > LARGE
        program = self._in_session(view, traced, collected) if large or self._forces("chunks") else None
        if program is None or not shape or not program.is_elementwise():
            return None, ""
        rows = max(1, -(-shape[0] * CHUNK_ELEMENTS // _elements(view)), -(-shape[0] // MAX_CHUNKS))
        edges = list(range(0, shape[0], rows)) + [shape[0]]
        if len(edges) < 3:
            return None, ""
        if not self.host.backend.is_ref(view.variable):
            return None, "not chunks: TensorFlow copies a resource variable whole where a part of it is written"
        if self.host.backend.is_since("2.9") and not self._forces("chunks"):  # measured: 1.5 to 2.3 times the cost
            return None, "not chunks: TensorFlow 2.9 and newer keep the memory of large temporaries"
        if self.host.backend.shares_variables():
            return None, "not chunks: others may write the variable meanwhile"
        return lambda earlier: self._run_pieces(view, traced, program, list(zip(edges, edges[1:])), earlier), ""

    def _run_pieces(self, view, traced, program, places, earlier):
        backend, done, waiting, grad = self.host.backend, [], list(earlier), view.lower(view.grad)
        stored = OrderedDict((name, self.host.slot(view.variable, name)) for name in view.declared)
        stored[VAR] = view.variable
        for place in places:
            with backend.after(waiting):
                given = {name: backend.cast(backend.part(native, place), view.dtype) for name, native in stored.items()}
                given[GRAD] = backend.part(grad, place)
                outside = [view.lower(value) for value in program.outside]
                natives = _results(backend, program, given, outside, view, traced)
            with backend.after(list(natives.values())):
                waiting = [backend.write_part(stored[name], native, place) for name, native in natives.items()]
            done.extend(waiting)
        return [self.host.constrain(view.variable, backend.group(done))]

    def _in_session(self, view, traced, collected):
        """The program of an update on a whole variable in a session, of variables and slots alike; else None."""
        backend, record = self.host.backend, view.record
        if not backend.in_session() or view.is_on_rows or collected:
            return None
        natives = [view.variable] + [self.host.slot(view.variable, name) for name in view.declared]
        alike = all(backend.shape(n) == record.shape and backend.dtype(n) == view.dtype for n in natives)
        return view.program(traced) if alike else None

    # Slots where they are.

    def _in_place(self, view, traced, collected):
        if self._refusal("in_place"):
            return None, self._refusal("in_place")
        program = self._in_session(view, traced, collected)
        moved = program.moved(list(traced.slots)) if program else None
        return (lambda earlier: self._run_in_place(view, traced, program, moved, earlier)) if moved else None, ""

    def _run_in_place(self, view, traced, program, moved, earlier):
        backend, done = self.host.backend, []

        def mover(name, factors, share):
            def move(native):
                slot, x = self.host.slot(view.variable, name), native(factors[0])
                for factor in factors[1:]:
                    x = x * native(factor)
                if share is None:
                    done.append(backend.add(slot, x))
                else:
                    done.append(backend.subtract(slot, given[name] - x, share=native(share)))
                with backend.after(done[-1:]):
                    return backend.read(slot)

            return move

        with backend.after(earlier):
            given = {GRAD: view.lower(view.grad), VAR: view.lower(view.var)}
            given.update((name, view.lower(view.slot_values[name])) for name in view.declared)
            outside = [view.lower(value) for value in program.outside]
            instead = {place: mover(name, factors, share) for name, (place, factors, share) in moved.items()}
            options, scaled = {}, None if traced.assigned else program.scaled()
            if scaled:

                def unscaled(native):
                    options["share"] = native(scaled[0])
                    x = native(scaled[1])
                    return x if scaled[2] is None else x / native(scaled[2])

                instead[program.results[0]] = unscaled
            change = program.run(backend, given, outside, instead)
            natives = OrderedDict(
                (name, backend.copy(fitted(backend, native, given[name], name, view.about), view.variable))
                for name, native in zip([VAR] + list(traced.slots), change)
                if name not in moved
            )
        with backend.after(list(natives.values()) + done):
            write = backend.write if traced.assigned else backend.subtract
            done.append(self.host.constrain(view.variable, write(view.variable, natives.pop(VAR), **options)))
            done.extend(backend.write(self.host.slot(view.variable, name), value) for name, value in natives.items())
        return done


def _results(backend, program, given, outside, about, traced):
    """`{VAR or slot: its new value}` of a program, in the full shapes of the old ones in `given`."""
    natives = OrderedDict()
    for name, native in zip([VAR] + list(traced.slots), program.run(backend, given, outside)):
        native = backend.cast(native, about.dtype)
        natives[name] = fitted(backend, native, given[name], name, about.about)
    if not traced.assigned:
        natives[VAR] = given[VAR] - natives[VAR]
    return natives


class _Body(object):
    """What a compiled function does: a program, on a variable and slots that it is given.

    An object and not a function: TensorFlow counts how often functions of one code are traced anew, and warns.
    """

    def __init__(self, backend, program, traced, names, view):
        self.backend, self.program, self.names = backend, program, names
        self.dtype, self.about = view.dtype, view.about
        self.traced = traced._replace(change=None, slots=list(traced.slots), decay=None)  # nothing of the step

    def __call__(self, variable, slots, grad, outside):
        backend, slots = self.backend, dict(zip(self.names, slots))
        given = {name: backend.cast(backend.read(slot), self.dtype) for name, slot in slots.items()}
        given[GRAD], given[VAR] = grad, backend.cast(backend.read(variable), self.dtype)
        natives = _results(backend, self.program, given, outside, self, self.traced)
        with backend.after(list(natives.values())):
            slots[VAR] = variable
            done = [backend.write(slots[name], native) for name, native in natives.items()]
        with backend.after(done):
            return backend.constant(True, "bool")


def _elements(view):
    return int(np.prod(view.record.shape, dtype=np.int64))
