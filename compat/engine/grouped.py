"""Updates all variables of a rule in one call, on backends that have `lists`: see compat/backends/on_torch.py.

A rule with a kernel runs as one call for all of its variables (strategy kernel). Another elementwise rule runs on
blocks that fit into the processor's cache: small variables joined, or a part of a large one (strategy flattened). In a
wrapper around a rule with a kernel, each block runs what comes before the kernel, the kernel, and what comes after it.
One with sums over a whole variable, such as LAMB, takes a variable for a block. All write variables and slots in place.
A plan lasts while the variables and their memory stay the same.
"""
from __future__ import absolute_import, division, print_function

import functools
import operator
from collections import OrderedDict

from everstep.compat.engine.collecting import collect, remembers_rows
from everstep.compat.engine.fitting import VAR
from everstep.compat.engine.fused import KERNELS
from everstep.compat.engine.inner_kernel import NoKernel, check_declared
from everstep.compat.engine.kernel_of_lists import KernelOfLists
from everstep.compat.engine.on_lists import OnLists, slices
from everstep.compat.engine.step_numbers import StepNumbers
from everstep.compat.engine.tracing import collected, updated
from everstep.compat.engine.variable_view import GRAD, VariableView
from everstep.optimizers.contract import flat, kernel_of
from everstep.optimizers.contract.declarations import running_rule
from everstep.optimizers.contract.verbs import defines


def can_be_grouped(definition):
    """Returns whether steps of a definition update all variables or none, and keep what they collect."""
    return definition.stages == 1 and not defines(definition, "should_accept")


class Plans(object):
    """The groups of one optimizer's variables.

    Args:
        lowerings: its `Lowerings`, see compat/engine/lowering.py.
    """

    def __init__(self, lowerings):
        self.lowerings, self.lists = lowerings, lowerings.host.backend.lists
        self._variables, self._groups, self._left = [], [], []
        self._kinds = []  # the places of the sparse gradients
        self._decay = None  # the base class's weight decay when this was planned: it can be set
        self._stored, self._tensors = [], []  # all variables that the groups write, and their tensors
        self._places, self._written = [], frozenset()  # where the tensors are, and the memory that holds them

    def of(self, step):
        """Returns ([a function that updates a group], the (gradient, variable) pairs in no group)."""
        kinds = self._kinds_of(step)
        if kinds != self._kinds or not self.stands([variable for _, variable in step.pairs]):
            self._kinds = kinds
            self._plan(step)
        applies = []  # whether the step updates; read once, because reading may wait for a device

        def update(run, earlier):
            if not applies:
                applies.append(bool(step.predicate))
            return run() if applies[0] else []

        runs = [functools.partial(update, group.update_of(step, self._written)) for group in self._groups]
        left = [step.pairs[place] for place in self._left]
        return runs, [(self.lists.lasting(grad, self._written), variable) for grad, variable in left]

    def _kinds_of(self, step):
        """Returns the places of the sparse gradients of a step."""
        backend = self.lowerings.host.backend
        return [place for place, (grad, _) in enumerate(step.pairs) if backend.slices(grad) is not None
                ] if backend.moves_rows else []

    def stands(self, variables):
        """Returns whether the last plan holds for a step on these variables."""
        known = self._variables
        if not known or len(known) != len(variables) or not all(map(operator.is_, known, variables)):
            return False
        if vars(self.lowerings.host.native).get("weight_decay") is not self._decay:
            return False
        tensors = self.lists.tensors(self._stored)
        same = tensors is not None and all(map(operator.is_, tensors, self._tensors))
        return same and self.lists.places(tensors) == self._places

    def can_repeat(self):
        """Returns whether another step needs but gradients, hypers, counters and totals."""
        return bool(self._groups) and not self._left and all(group.can_repeat() for group in self._groups)

    def repeat(self, grads, number, updates):
        """Repeats the last step with other gradients.

        Args:
            number: a function that returns the number of a leaf: a hyper, a counter or a total.
            updates: whether the step updates.
        """
        runs = [group.repeated(grads, number, self._written) for group in self._groups]
        for run in runs if updates else ():
            run()

    def are_far(self):
        """Returns whether some variables lie where to read a number is to wait."""
        return any(group.is_far for group in self._groups)

    def hypers(self):
        """Returns the names of the hypers that a step reads."""
        leaves = [leaf.leaf for group in self._groups for leaf in group.leaves()]
        return {name for kind, name in leaves if kind == "hyper"}

    def _plan(self, step):
        """Divides a step's variables into groups."""
        host, lists, alike = self.lowerings.host, self.lists, OrderedDict()
        self._variables, self._groups, taken = [variable for _, variable in step.pairs], [], set()
        self._decay = vars(host.native).get("weight_decay")
        for place, (grad, variable) in enumerate(step.pairs):
            if self.lowerings.is_uniform(grad, variable, ("element", "variable")):
                key = host.rule(variable), host.backend.device(variable), host.adapter.native_decay(variable)
                alike.setdefault(key, []).append(place)
        for places in alike.values():
            group = Group(self, step, places)
            if group.is_possible(step):
                self._groups.append(group)
                taken.update(places)
        self._left = [place for place in range(len(step.pairs)) if place not in taken]
        self._stored = [variable for group in self._groups for variable in group.stored()]
        self._tensors = lists.tensors(self._stored) or []
        if not lists.are_separate(self._tensors) or len(self._tensors) < len(self._stored):
            self._groups, self._left, self._stored, self._tensors = [], list(range(len(step.pairs))), [], []
        self._places = lists.places(self._tensors)
        self._written = lists.memory(self._tensors + (lists.tensors(self._variables) or []))
        for group in self._groups:
            group.prepare(step)


class Group(object):
    """Variables that are updated together: those of a step in some places, all of one rule, dtype and device."""

    def __init__(self, plans, step, places):
        self.lowerings, self.lists, self.places = plans.lowerings, plans.lists, places
        self.variables = [step.pairs[place][1] for place in places]
        host = self.lowerings.host
        self.rule = host.rule(self.variables[0])
        self.is_whole = self.rule.locality == "variable"  # its sums need whole variables
        self.slots = OrderedDict(
            (name, [host.slot(variable, name) for variable in self.variables]) for name in flat(self.rule, "slot")
        )
        self.kernel, self.why, self.blocks, self.tensors, self._runs = None, None, [], {}, {}
        self.is_inner = False  # whether there is a kernel inside of the rule
        self.is_far = False  # whether each operation runs on all tensors at once
        self.collects = False  # whether what the rule collects does too

    def stored(self):
        return self.variables + [slot for slots in self.slots.values() for slot in slots]

    def is_possible(self, step):
        """Finds the kernel of the group. Returns whether it has one, or its rule can run on blocks."""
        tensors = self.lists.tensors(self.variables)
        if tensors is None:
            return False
        self.kernel, self.why = self._find_kernel(tensors)
        if self.kernel:
            return True
        try:
            self.is_inner = self._has_one_program(step, tensors)
            self.why = "no kernel: a wrapper does not do the same to each element"
        except NoKernel as error:
            self.why = str(error)
        return self.is_inner or not self.lowerings.rejection("flattened") and self._has_one_program(step)

    def _find_kernel(self, tensors):
        """Returns (the kernel that is the whole rule, None), or (None, why there is none)."""
        declared = kernel_of(self.rule)
        if self.lowerings.rejection("kernel") or declared is None:
            return None, self.lowerings.rejection("kernel") or "no kernel: the rule declares none"
        kernel = self._own_kernel()
        if kernel is None:
            return None, "no kernel: none of {} with these options".format(declared.name)
        if not self.lists.kernel(kernel.operation, kernel.settings, tensors):
            return None, "no kernel: this torch has no {} for such variables".format(kernel.operation)
        return kernel, None

    def _own_kernel(self):
        """Returns the `Kernel` that the rule declares, or None."""
        declared = None if self.lowerings.rejection("kernel") else kernel_of(self.rule)
        return declared and KERNELS[declared.name](self.rule, self.lowerings.fixed_value)

    def _has_one_program(self, step, tensors=None):
        """Returns whether the rule is elementwise but for sums, and does the same to all variables.

        Args:
            tensors: those of the variables, to look for a kernel inside of the rule. Then NoKernel is raised if there
                is none.
        """
        if tensors:
            self._check_inner(tensors)
        each = [self._programs(view, bool(tensors))[1] for view in self._view_of_each_shape(step)]
        alike = [what_it_does(programs) == what_it_does(each[0]) for programs in each]
        return all(alike) and all(program.is_elementwise(sums=self.is_whole) for program in each[0])

    def _collects_alike(self, step):
        """Returns whether all variables collect the same, each element by itself."""
        if remembers_rows(self.rule):
            return False
        each = [self._collected(view) for view in self._view_of_each_shape(step)]
        does = [(names, what_it_does([program])) for names, program in each]
        alike = all(one == does[0] for one in does)
        return alike and all(names and program.is_elementwise() for names, program in each)

    def _check_inner(self, tensors):
        """Raises NoKernel if no kernel inside of the rule is to be looked for."""
        if self.lowerings.rejection("kernel"):
            raise NoKernel(self.lowerings.rejection("kernel"))
        check_declared(self.rule)
        if self.is_whole or self.lists.are_small(tensors):
            raise NoKernel("no kernel: it costs more than it saves on small variables, and on whole ones with sums")

    def _programs(self, view, is_inner):
        """Returns (the traced update of a view, its programs): one, or those before and after the kernel inside."""
        if not is_inner:
            traced = updated(view)
            return traced, [view.program(traced)]
        kernel = KernelOfLists(view, (), self.lowerings.fixed_value)
        traced = updated(view, kernel)
        return traced, kernel.programs(traced)

    def _view_of_each_shape(self, step):
        """Returns views of variables, one of each shape: equal rules trace alike for equal shapes."""
        places = {step.host.record(variable).shape: place for place, variable in enumerate(self.variables)}
        return [self._view(step, place) for place in places.values()]

    def _view(self, step, place):
        grad, variable = step.pairs[self.places[place]]
        return VariableView.of_gradient(step, variable, grad)

    def prepare(self, step):
        """Finds the tensors, divides them into blocks and notes the strategy."""
        self.tensors = OrderedDict((name, self.lists.tensors(slots)) for name, slots in self.slots.items())
        self.tensors[VAR] = self.lists.tensors(self.variables)
        self.is_far = not (self.kernel or self.is_inner or self.is_whole) and self.lists.is_far(self.tensors[VAR])
        self.collects = defines(self.rule, "collect") and self._collects_alike(step)
        if self.is_far:
            self.tensors = OrderedDict((name, self.lists.detached(values)) for name, values in self.tensors.items())
        elif not self.kernel:
            vectors = OrderedDict((name, self.lists.flat(values)) for name, values in self.tensors.items())
            for block in self.lists.blocks(self.tensors[VAR], whole=self.is_whole):
                parts = OrderedDict((name, self.lists.cut(values, block)) for name, values in vectors.items())
                self.blocks.append((block, parts))
        for place in range(len(self.variables)):
            has_kernel = self.kernel or self.is_inner
            why = [] if has_kernel else [self.why]
            self.lowerings.note(self._view(step, place), "kernel" if has_kernel else "flattened", why)

    def update_of(self, step, written):
        """Collects. Returns a function that updates the group.

        Args:
            written: the memory that the step writes. A gradient in it is copied now.
        """
        grads = [step.pairs[place][0] for place in self.places]
        grads = self.lists.gradients(grads, self.tensors[VAR], written)
        self._collect(step, grads)
        return functools.partial(self._run, step, grads, self._planned)

    def _collect(self, step, grads):
        """Writes what the rule collects for a later update."""
        if not defines(self.rule, "collect"):
            return
        if self.collects and step.accepted is None:
            if step.arrived:
                self._run(step, grads, self._planned_collect)
            return
        for place in range(len(self.places)):
            view = self._view(step, place)
            natives, _ = collect(step, view, [])
            step.write_slots(view, natives, [])

    def _run(self, step, grads, plan):
        """Runs what `plan(view)` returns: (the `StepNumbers` of what it takes, a function of these and gradients)."""
        view = self._view(step, 0)
        key = view.key(view.native_decay())
        if key not in self._runs.setdefault(plan, {}):
            self._runs[plan] = {key: plan(view)}
        numbers, run = self._runs[plan][key]
        natives = numbers.of(functools.partial(self._number, step, view))
        run([view.scope.native(v) if n is None else n for v, n in zip(numbers.values, natives)], grads)
        return []

    def can_repeat(self):
        """Returns whether what ran last needs but gradients, hypers, counters and totals."""
        if self.collects != defines(self.rule, "collect") or any(not self._runs.get(plan) for plan in self._plans()):
            return False
        return all(leaf.leaf[0] in ("hyper", "count", "known") for leaf in self.leaves())

    def leaves(self):
        """Returns the step-wide leaves that the runs of the last steps read."""
        runs = [run for plan in self._plans() for run in self._runs[plan].values()]
        return [leaf for numbers, _ in runs for leaf in numbers.leaves]

    def _plans(self):
        return [self._planned] + ([self._planned_collect] if self.collects else [])

    def repeated(self, grads, number, written):
        """Collects again. Returns a function that updates. The arguments: see `Plans.repeat` and `update_of`."""
        grads = self.lists.gradients([grads[place] for place in self.places], self.tensors[VAR], written)
        if self.collects:
            self._again(self._planned_collect, number, grads)
        return functools.partial(self._again, self._planned, number, grads)

    def _again(self, plan, number, grads):
        [(numbers, run)] = self._runs[plan].values()
        run(numbers.of(number), grads)

    def _number(self, step, view, leaf):
        """Returns the number of a leaf; None if only its device knows it."""
        kind, name = leaf.leaf
        native = step.hyper(name) if kind == "hyper" else view.scope.readers[leaf.leaf]()
        if self.is_far and kind != "hyper":
            tensors = self.lists.tensors([native])
            if tensors is None or self.lists.is_far(tensors):
                return None
        return self.lists.number(native() if callable(native) else native, "learning_rate" in name)

    def _planned(self, view):
        """Plans the update."""
        if self.kernel:
            return self._planned_kernel(view, self.kernel, self.lists.kernel(
                self.kernel.operation, self.kernel.settings, self.tensors[VAR]))
        if self.is_inner:
            return self._planned_around(view)
        traced = updated(view)
        program = self._on_lists(view, [VAR] + list(traced.slots), view.program(traced), traced.assigned)
        run = self._by_lists(program) if self.is_far else self._by_blocks(program)
        planned = self._with_decay(view, traced.decay, program.program.outside, run)
        kernel = self._own_kernel() if self.is_far else None
        if kernel is None:
            return planned
        function = self.lists.device_kernel(kernel, self._scalars(view, kernel), self.tensors[VAR])
        return self._either(self._planned_kernel(view, kernel, function), planned) if function else planned

    def _either(self, planned, otherwise):
        """Plans a kernel where all that it takes are numbers, and a program for other steps."""
        (first, by_kernel), (second, by_program) = planned, otherwise
        count = len(first.values)

        def run(natives, grads):
            if any(isinstance(native, self.lists.torch.Tensor) for native in natives[:count]):
                by_program(natives[count:], grads)
            else:
                by_kernel(natives[:count], grads)

        return StepNumbers(first.values + second.values), run

    def _scalars(self, view, kernel):
        with running_rule():
            return kernel.scalars(view.ops, view.hypers, view.scope.t)

    def _planned_kernel(self, view, kernel, function):
        scalars = self._scalars(view, kernel)
        with running_rule():
            decay = kernel.decay(view.hypers) if kernel.decay else view.native_decay()  # a rule never has both
        given = dict({name: self.tensors[slot] for name, slot in kernel.slots.items()}, **kernel.settings)

        def run(natives, grads):
            function(self.tensors[VAR], grads, **dict(given, **dict(zip(scalars, natives))))

        return self._with_decay(view, decay, scalars.values(), run)

    def _with_decay(self, view, decay, values, run):
        """Plans a run that comes after a share of the variables is subtracted, or None for none."""
        def decayed(natives, grads):
            self.lists.decay(self.tensors[VAR], natives[0])
            run(natives[1:], grads)

        values = [view.as_value(value) for value in values]
        return (StepNumbers(values), run) if decay is None else (StepNumbers([view.as_value(decay)] + values), decayed)

    def _on_lists(self, view, names, program, assigned=False):
        """Returns how a program runs. names: what its results are for, VAR or slots."""
        return view.ops.once(  # a tracer keeps its programs, so no other program gets this id
            ("on lists", id(program), tuple(names), assigned), lambda: OnLists(self.lists, program, names, assigned))

    def _by_lists(self, program):
        def run(natives, grads):
            for cut in slices(self.tensors[VAR]):
                program.run(natives, {name: values[cut] for name, values in self.tensors.items()}, grads[cut])

        return run

    def _by_blocks(self, program):
        def run(natives, grads):
            grads = self.lists.flat(grads)
            for block, parts in self.blocks:
                program.run_block(natives, parts, self.lists.cut(grads, block))

        return run

    def _planned_collect(self, view):
        """Plans what the rule collects for a later update."""
        names, program = self._collected(view)
        return StepNumbers(program.outside), self._by_lists(self._on_lists(view, names, program))

    def _collected(self, view):
        """Returns (slots, the program of their values) of what the rule collects."""
        changed = view.changed_slots(collected(view))
        values = tuple(changed.values())
        return list(changed), view.ops.once(view.key("collected", values), lambda: view.program_of(values))

    def _planned_around(self, view):
        """Plans a kernel on each block, and what a wrapper computes before and after it."""
        lists, (traced, programs) = self.lists, self._programs(view, True)
        inner, kernel = traced.kernel, traced.kernel.kernel
        call = lists.kernel(kernel.operation, kernel.settings, self.tensors[VAR])
        before = self._on_lists(view, [GRAD, VAR][:len(programs[0].results)], programs[0], assigned=True)
        after = self._on_lists(
            view, ([] if traced.change is None else [VAR]) + list(traced.slots), programs[1], assigned=True)
        first, second = len(inner.scalars), len(inner.scalars) + len(programs[0].outside)

        def run(natives, grads):
            scalars, grads = dict(zip(inner.scalars, natives)), lists.flat(grads)
            for block, parts in self.blocks:
                cut = lists.cut(grads, block)
                given = dict(before.joined(natives[first:second], parts, cut))
                if VAR in given:
                    lists.foreach.write(parts[VAR], given[VAR])
                slots = {argument: parts[name] for argument, name in inner.slots.items()}
                call(parts[VAR], given[GRAD], **dict(scalars, **dict(slots, **kernel.settings)))
                after.run_block(natives[second:], parts, cut)

        values = list(inner.scalars.values()) + programs[0].outside + programs[1].outside
        return self._with_decay(view, traced.decay, values, run)


def what_it_does(programs):
    """Returns what is equal for programs that do the same, to the same values of the step."""
    return [(program.key(), list(map(id, program.outside))) for program in programs]
