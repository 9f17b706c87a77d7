"""Chooses the lowering strategy of each variable's update, and carries it out.

| strategy  | what runs                                                       | where                                  |
|-----------|-----------------------------------------------------------------|----------------------------------------|
| kernel    | one fused operation of TensorFlow or torch, see engine/fused.py | rules that declare one; not on JAX     |
| flattened | the rule once, on many small variables concatenated             | elementwise rules; not on JAX          |
| compiled  | the rule as one XLA function, which variables share             | TF 2.5 and newer; sessions of TF 1.14  |
| chunks    | the rule on one chunk of a large variable after the other       | sessions before TF 2.9, ref variables  |
| in_place  | the rule, with operations that update slots in place            | sessions                               |
| plain     | the rule, operation by operation                                | everywhere                             |

The engine takes the first strategy that applies. All compute the same, except for rounding. `bind(module,
lowering={"compiled": False})` forbids a strategy. `{"compiled": True}` forces it wherever it applies, even if it is not
expected to be faster. `optimizer.everstep_plan()` lists the strategies taken.
"""
from __future__ import absolute_import, division, print_function

import functools
from collections import OrderedDict, namedtuple

import numpy as np

from everstep.compat.engine.compiled import CompiledUpdate, new_values
from everstep.compat.engine.fitting import VAR, fitted, is_known
from everstep.compat.engine.grouped import Plans, can_be_grouped, what_it_does
from everstep.compat.engine.inner_kernel import InnerKernel, NoKernel, check_declared
from everstep.compat.engine.measuring import Totals
from everstep.compat.engine.variable_view import GRAD, VariableView
from everstep.compat.rules.expressions import Tracer
from everstep.compat.rules.operations import LINALG
from everstep.errors import DefinitionError, UnsupportedError
from everstep.optimizers.contract import compute_dtype, defines, flat

STRATEGIES = ("kernel", "flattened", "compiled", "chunks", "in_place")
SMALL = 16384  # elements; for smaller variables, launching operations costs more than computing
TINY = 2048  # elements; the same for a variable whose whole update is one operation, a kernel
FEW = 8  # variables; flattening fewer does not pay
COMPILES_INSTEAD = 2**18  # elements; from here on, one compiled function costs less than a kernel and other operations
IN_SESSIONS = 2**16  # elements; compiling one in a session takes as long as it saves in 200 steps
MOST_VALUES = 10000  # step-wide values and leaves that are kept: a rate set at each step is a new number each time
LARGE = 2**25  # bytes; larger temporaries go back to the system, and fault in again at every step
CHUNK_ELEMENTS, MAX_CHUNKS = 2**19, 64  # elements of a chunk, and the most chunks of a variable

# name, shape: of the variable; gradient: "dense" or "sparse"; strategy: the one taken; why: why those before it in the
# table were rejected.
Planned = namedtuple("Planned", "name shape gradient strategy why")


class Lowerings(object):
    """The lowering strategies of one optimizer.

    Args:
        host: a `Bound`, see compat/engine/step.py.
        requested: `{strategy: bool}`, True to force it and False to forbid it; None for no requests.

    Raises:
        DefinitionError: `requested` is no such dictionary.
    """

    def __init__(self, host, requested):
        requested = {} if requested is None else requested
        if not isinstance(requested, dict) or not all(isinstance(value, bool) for value in requested.values()):
            raise DefinitionError(
                "lowering is a dictionary of True (force) and False (forbid) by strategy ({}); got {!r}".format(
                    ", ".join(STRATEGIES), requested
                )
            )
        for strategy in sorted(set(requested) - set(STRATEGIES)):
            raise DefinitionError("lowering has no strategy {!r}; it has {}".format(strategy, ", ".join(STRATEGIES)))
        self.host, self.requested = host, requested
        self._tracers = {}  # {compute dtype: `Tracer`, which keeps what it traced}
        self._planned = OrderedDict()
        self._functions = {}  # {what it computes: compiled function}
        self.checked = ()  # the variables of the last step whose variables and rules were checked
        self.plans = None  # how variables are updated together, on a backend that has `lists`
        self.totals = None  # how they are measured together there

    def share(self, other):
        """Shares what was traced, and the list of `plan`, with those of another host of the same definition."""
        self._tracers, self._planned = other._tracers, other._planned

    def check(self):
        """Raises UnsupportedError if a forced strategy does not exist here."""
        for strategy in STRATEGIES if self.requested else ():
            if self._forces(strategy) and not self.host.backend.lowers(strategy):
                raise UnsupportedError(
                    "lowering={{{!r}: True}}: {} has no such strategy here; leave it out".format(
                        strategy, self.host.owner
                    )
                )

    def tracer(self, dtype):
        """Returns the `Tracer` of a compute dtype. Steps share it, so that a rule runs once, not once a step."""
        tracer = self._tracers.get(dtype)
        if tracer is None or len(tracer) > MOST_VALUES:
            backend = self.host.backend
            lacks = set(LINALG).difference(backend.ops)
            tracer = self._tracers[dtype] = Tracer(dtype, backend.stored("int64"), lacks, backend.name)
        return tracer

    def plan(self):
        """Returns a list of `Planned`, one for each variable and kind of gradient."""
        return list(self._planned.values())

    def note(self, view, strategy, why=()):
        """Records the strategy taken for a view, and why others were rejected."""
        key = self.host.variable_key(view.variable), view.is_sparse
        gradient = "sparse" if view.is_sparse else "dense"
        why = "; ".join(filter(None, list(why) + [view.missed.how() if view.missed else ""]))
        self._planned[key] = Planned(view.record.name, view.record.shape, gradient, strategy, why)

    def _forces(self, strategy):
        return self.requested.get(strategy) is True

    def rejection(self, strategy):
        """Returns why a strategy is not allowed or does not exist here; "" if neither."""
        if self.requested.get(strategy) is False:
            return "not {}: forbidden".format(strategy)
        return "" if self.host.backend.lowers(strategy) else "not {}: this API has no such strategy".format(strategy)

    def choose(self, view, traced, collected, why):
        """Chooses a strategy for a traced update, after `kernel` and `flattened` were rejected.

        Args:
            collected: `{name: native value}` of slots that `collect` returned and that are not written yet.
            why: why `kernel` was rejected.

        Returns:
            A function that runs the update after a list of earlier operations, and returns operations; None for plain.
        """
        why = [why]
        candidates = ("compiled", self._compiled), ("chunks", self._chunks), ("in_place", self._in_place)
        for strategy, plan_update in candidates:
            run, reason = plan_update(view, traced, collected)
            if run:
                self.note(view, strategy, why)
                return run
            why.append(reason)
        self.note(view, "plain", why)
        return None

    # One fused operation.

    def trace_kernel(self, step, view, collected=()):
        """Traces a view's update with its kernel. Returns (`Traced`, None), or (None, why there is none)."""
        if self.rejection("kernel"):
            return None, self.rejection("kernel")
        if self.host.backend.lists:
            return None, "no kernel: variables that are updated one by one have none"
        try:
            check_declared(view.rule)
            if view.missed or view.changed_rows is not None:
                raise NoKernel("no kernel: some rows stay unchanged, or missed updates")
            traced = step.trace(view, InnerKernel(view, collected, self.fixed_value))
        except NoKernel as error:
            return None, str(error)
        if self._compiles_instead(view, traced):
            return None, ("not kernel: compiling the whole update costs less than "
                          "a kernel and what comes before and after it")
        return traced, None

    def _compiles_instead(self, view, traced):
        """Returns whether the whole update compiled costs less than a kernel and what comes before and after it."""
        if traced.kernel.is_all and traced.decay is None or self._forces("kernel"):
            return False
        large = is_known(view.record.shape) and _elements(view.record) >= COMPILES_INSTEAD
        # Before TF 2.5, and for ref variables, compiled functions take longer than the kernel and what is beside it.
        cheap = self.host.backend.is_since("2.5") and not self.host.backend.is_ref(view.variable)
        return large and cheap and not self._not_compiled(view)

    def fixed_value(self, name):
        """Returns a hyper's number; None if the hyper can change."""
        value = self.host.given(name)
        return value if isinstance(value, float) and not self.host.adapter.sets_hypers else None

    # Many small variables.

    def groups(self, step):
        """Finds variables to update together.

        Returns:
            ([a function of earlier operations that updates a group], the (gradient, variable) pairs in no group).
        """
        backend = self.host.backend
        if backend.lists and can_be_grouped(self.host.definition):
            self.plans = self.plans or Plans(self)
            return self.plans.of(step)
        if self.rejection("flattened") or step.skips or not backend.without_strategy() or backend.shares_variables():
            return [], step.pairs
        alike = OrderedDict()
        for grad, variable in step.pairs:
            if self._can_flatten(grad, variable):
                key = self.host.rule(variable), backend.device(variable)
                alike.setdefault(key, []).append((grad, variable))
        groups, taken = [], set()
        for pairs in alike.values():
            pairs = self._worth_flattening(step, pairs)
            group = self._group(step, pairs) if pairs else None
            if group:
                groups.append(functools.partial(self._run_group, *group))
                taken.update(id(variable) for _, variable in pairs)
        return groups, [pair for pair in step.pairs if id(pair[1]) not in taken]

    def totals_of(self, step):
        """Returns the `Totals` that are all that a step measures; None if variables are measured one by one."""
        if not step.backend.lists:
            return None
        if self.totals is None or not self.totals.stand(step.pairs):
            self.totals = Totals(step)
        return self.totals if self.totals.are_all else None

    def _worth_flattening(self, step, pairs):
        """Returns those of some pairs, all of one rule, that are updated faster together than one by one."""
        if self._forces("flattened"):
            return pairs if len(pairs) > 1 else []
        if self.trace_kernel(step, VariableView.of_gradient(step, *reversed(pairs[0])))[0]:
            if self.host.adapter.is_fused or self.host.backend.eager:
                return []  # a kernel for each variable is hardly slower, and builds in half the time
            pairs = [pair for pair in pairs if np.prod(self.host.record(pair[1]).shape) < TINY]
        return pairs if len(pairs) >= FEW else []

    def _can_flatten(self, grad, variable):
        """Returns whether a variable's update is best computed on its flattened values, together with others."""
        shape = self.host.record(variable).shape
        if not is_known(shape) or np.prod(shape, dtype=np.int64) >= SMALL or not self.host.backend.is_here(variable):
            return False
        return self.is_uniform(grad, variable) and not self.host.adapter.native_decay(variable)

    def is_uniform(self, grad, variable, localities=("element",)):
        """Returns whether slots and a gradient fit a variable element by element, and its rule has such a locality."""
        backend, rule, record = self.host.backend, self.host.rule(variable), self.host.record(variable)
        natives = [variable] + [self.host.slot(variable, name) for name in flat(rule, "slot")]
        return (
            backend.slices(grad) is None
            and is_known(record.shape)
            and backend.shape(grad) == record.shape
            and rule.locality in localities
            and (backend.lists or not defines(rule, "collect"))
            and False not in [backend.shape(native) == record.shape for native in natives]
            and {backend.dtype(native) for native in natives} == {compute_dtype(record.dtype)}
        )

    def _group(self, step, pairs):
        """Returns (views, the traced update of the first, its program); None if the programs differ."""
        views = [VariableView.of_gradient(step, variable, grad) for grad, variable in pairs]
        # equal rules give equal programs for equal shapes
        by_shape = OrderedDict((view.record.shape, view) for view in views)
        traced = [step.trace(view) for view in by_shape.values()]
        programs = [view.program(update) for view, update in zip(by_shape.values(), traced)]
        first = programs[0]
        same = all(program is first or what_it_does([program]) == what_it_does([first]) for program in programs)
        return (views, traced[0], first) if same and first.is_elementwise() else None

    def _run_group(self, views, traced, program, earlier):
        """Runs the updates of many variables as one. Returns operations."""
        backend, first, written = self.host.backend, views[0], [VAR] + list(traced.slots)
        with backend.after(earlier):
            inputs = {GRAD: backend.concat_flat([view.lower(view.grad) for view in views])}
            for name in [VAR] + list(first.declared):
                if name in program.inputs or name in written:
                    values = [view.lower(view.var if name == VAR else view.slot_values[name]) for view in views]
                    inputs[name] = backend.concat_flat(values)
            outside = [first.lower(value) for value in program.outside]
            natives = new_values(backend, program, inputs, outside, first, traced)
            split = {name: backend.split(natives[name], [view.record.shape for view in views]) for name in written}
        done = []
        with backend.after([backend.barrier(earlier + list(natives.values()))]):
            for place, view in enumerate(views):
                self.note(view, "flattened")
                done.extend(self._write(view, OrderedDict((name, split[name][place]) for name in written)))
        return done

    def _write(self, view, natives):
        """Writes the whole new values of a variable and its slots. Returns operations."""
        done = [view.step.constrain(view.variable, self.host.backend.write(view.variable, natives[VAR]))]
        for name, native in natives.items():
            if name != VAR:
                done.append(self.host.backend.write(self.host.slot(view.variable, name), native))
        return done

    # One compiled function.

    def _compiled(self, view, traced, collected):
        why = self._not_compiled(view)
        if why:
            return None, why
        program = view.program(traced, collected)
        if program.better_without_xla() and not self._forces("compiled"):
            return None, "not compiled: " + program.better_without_xla()
        return lambda earlier: self._run_compiled(view, traced, program, earlier), ""

    def _not_compiled(self, view):
        """Returns why a view's update is not compiled; "" if it is."""
        backend, forced = self.host.backend, self._forces("compiled")
        if self.rejection("compiled"):
            return self.rejection("compiled")
        if view.is_on_rows:
            return "not compiled: the update is on some rows only"
        if not is_known(view.record.shape):
            return "not compiled: the variable's shape is not known"
        if not forced and _elements(view.record) < (IN_SESSIONS if backend.in_session() else SMALL):
            return "not compiled: the variable is small"
        if not forced and backend.in_session() and view.step.skips:
            return "not compiled: in a branch of a session"
        if not forced and self.host.arguments.get("jit_compile") is False:
            return "not compiled: jit_compile=False"
        return backend.cannot_compile(view.variable, forced, self.host.adapter.stock_compiles())

    def _run_compiled(self, view, traced, program, earlier):
        backend = self.host.backend
        only_read = [name for name in view.declared if name in program.inputs and name not in traced.slots]
        names, by_values = only_read + list(traced.slots), backend.is_ref(view.variable)
        key = program.key(), traced.assigned, tuple(only_read), tuple(traced.slots), view.record[1:3], by_values
        if key not in self._functions:
            update = CompiledUpdate(backend, program, traced, names, view)
            self._functions[key] = backend.compile(update.values if by_values else update, by_values)
        with backend.after(earlier):
            outside = [view.lower(value) for value in program.outside]
            if not by_values:
                slots = [self.host.slot(view.variable, name) for name in names]
                done = self._functions[key](view.variable, slots, view.lower(view.grad), outside)
                return [view.step.constrain(view.variable, done)]
            stored = [view.lower(view.slot_values[name]) for name in names]
            results = self._functions[key]([view.lower(view.grad), view.lower(view.var)] + stored + outside)
        with backend.after(results):
            return self._write(view, OrderedDict(zip([VAR] + list(traced.slots), results)))

    # One large variable.

    def _chunks(self, view, traced, collected):
        shape = view.record.shape
        if self.rejection("chunks"):
            return None, self.rejection("chunks")
        if not is_known(shape):
            return None, "not chunks: the variable's shape is not known"
        large = _elements(view.record) * np.dtype(view.dtype).itemsize > LARGE
        program = self._in_session(view, traced, collected) if large or self._forces("chunks") else None
        if program is None or not shape or not program.is_elementwise():
            return None, ""
        rows = max(1, -(-shape[0] * CHUNK_ELEMENTS // _elements(view.record)), -(-shape[0] // MAX_CHUNKS))
        edges = list(range(0, shape[0], rows)) + [shape[0]]
        if len(edges) < 3:
            return None, ""
        if not self.host.backend.is_ref(view.variable):
            return None, "not chunks: TensorFlow copies a whole resource variable when a part of it is written"
        if self.host.backend.is_since("2.9") and not self._forces("chunks"):  # measured: 1.5 to 2.3 times the cost
            return None, "not chunks: TensorFlow 2.9 and newer keep the memory of large temporaries"
        if self.host.backend.shares_variables():
            return None, "not chunks: others may write the variable meanwhile"
        return lambda earlier: self._run_chunks(view, traced, program, list(zip(edges, edges[1:])), earlier), ""

    def _run_chunks(self, view, traced, program, chunks, earlier):
        backend, done, waiting, grad = self.host.backend, [], list(earlier), view.lower(view.grad)
        stored = OrderedDict((name, self.host.slot(view.variable, name)) for name in view.declared)
        stored[VAR] = view.variable
        for chunk in chunks:
            with backend.after(waiting):
                inputs = {
                    name: backend.cast(backend.part(native, chunk), view.dtype) for name, native in stored.items()
                }
                inputs[GRAD] = backend.part(grad, chunk)
                outside = [view.lower(value) for value in program.outside]
                natives = new_values(backend, program, inputs, outside, view, traced)
            with backend.after(list(natives.values())):
                waiting = [backend.write_part(stored[name], native, chunk) for name, native in natives.items()]
            done.extend(waiting)
        return [view.step.constrain(view.variable, backend.group(done))]

    def _in_session(self, view, traced, collected):
        """Returns the program of an update that runs in a session, on a whole variable; else None.

        None also if a slot has another shape or dtype than the variable.
        """
        backend, record = self.host.backend, view.record
        if not backend.in_session() or view.is_on_rows or collected:
            return None
        natives = [view.variable] + [self.host.slot(view.variable, name) for name in view.declared]
        alike = all(backend.shape(n) == record.shape and backend.dtype(n) == view.dtype for n in natives)
        return view.program(traced) if alike else None

    # Slots in place.

    def _in_place(self, view, traced, collected):
        if self.rejection("in_place"):
            return None, self.rejection("in_place")
        program = self._in_session(view, traced, collected)
        updates = program.in_place_updates(list(traced.slots)) if program else None
        return (lambda earlier: self._run_in_place(view, traced, program, updates, earlier)) if updates else None, ""

    def _run_in_place(self, view, traced, program, updates, earlier):
        """Runs an update, with some slots updated in place: `updates`, of `Program.in_place_updates`."""
        backend, done = self.host.backend, []

        def updater(name, factors, share):
            def update(native):
                slot, x = self.host.slot(view.variable, name), native(factors[0])
                for factor in factors[1:]:
                    x = x * native(factor)
                if share is None:
                    done.append(backend.add(slot, x))
                else:
                    done.append(backend.subtract(slot, inputs[name] - x, share=native(share)))
                with backend.after(done[-1:]):
                    return backend.read(slot)

            return update

        with backend.after(earlier):
            inputs = {GRAD: view.lower(view.grad), VAR: view.lower(view.var)}
            inputs.update((name, view.lower(view.slot_values[name])) for name in view.declared)
            outside = [view.lower(value) for value in program.outside]
            overrides = {place: updater(name, factors, share) for name, (place, factors, share) in updates.items()}
            options, scaled = {}, None if traced.assigned else program.scaled_change()
            if scaled:

                def unscaled(native):
                    options["share"] = native(scaled[0])
                    x = native(scaled[1])
                    return x if scaled[2] is None else x / native(scaled[2])

                overrides[program.results[0]] = unscaled
            results = program.run(backend, inputs, outside, overrides)
            natives = OrderedDict(
                (name, backend.copy(fitted(backend, native, inputs[name], name, view.about), view.variable))
                for name, native in zip([VAR] + list(traced.slots), results)
                if name not in updates
            )
        with backend.after(list(natives.values()) + done):
            write = backend.write if traced.assigned else backend.subtract
            done.append(view.step.constrain(view.variable, write(view.variable, natives.pop(VAR), **options)))
            done.extend(backend.write(self.host.slot(view.variable, name), value) for name, value in natives.items())
        return done


def _elements(record):
    return int(np.prod(record.shape, dtype=np.int64))
