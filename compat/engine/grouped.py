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
from everstep.compat.engine.inner_kernel import InnerKernel, NoKernel, check_declared
from everstep.compat.engine.on_lists import OnLists, slices
from everstep.compat.engine.tracing import collected, updated
from everstep.compat.engine.variable_view import GRAD, VariableView
from everstep.compat.rules.program import Program
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
        self._decay = None  # the base class's weight decay when this was planned: it can be set
        self._stored, self._tensors = [], []  # all variables that the groups write, and their tensors
        self._places, self._written = [], frozenset()  # where the tensors are, and the memory that holds them

    def of(self, step):
        """Returns ([a function that updates a group], the (gradient, variable) pairs in no group)."""
        if not self._stands([variable for _, variable in step.pairs]):
            self._plan(step)
        applies = []  # whether the step updates: read once, as that may be to wait for a device

        def update(run, earlier):
            if not applies:
                applies.append(bool(step.predicate))
            return run() if applies[0] else []

        runs = [functools.partial(update, group.update_of(step, self._written)) for group in self._groups]
        left = [step.pairs[place] for place in self._left]
        return runs, [(self.lists.lasting(grad, self._written), variable) for grad, variable in left]

    def _stands(self, variables):
        """Returns whether the last plan holds for a step on these variables."""
        known = self._variables
        if not known or len(known) != len(variables) or not all(map(operator.is_, known, variables)):
            return False
        if vars(self.lowerings.host.native).get("weight_decay") is not self._decay:
            return False
        tensors = self.lists.tensors(self._stored)
        same = tensors is not None and all(map(operator.is_, tensors, self._tensors))
        return same and self.lists.places(tensors) == self._places

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
        self.kernel, self.why, self.blocks, self.tensors = None, None, [], {}
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
        kernel = KERNELS[declared.name](self.rule, self.lowerings.fixed_value)
        if kernel is None:
            return None, "no kernel: none of {} with these options".format(declared.name)
        if not self.lists.kernel(kernel.operation, kernel.settings, tensors):
            return None, "no kernel: this torch has no {} for such variables".format(kernel.operation)
        return kernel, None

    def _has_one_program(self, step, tensors=None):
        """Returns whether the rule is elementwise but for sums, and does the same to all variables.

        Args:
            tensors: those of the variables, to look for a kernel inside of the rule. Then NoKernel is raised if there
                is none.
        """
        if tensors:
            self._check_inner(tensors)
        each = [self._programs(step, view, bool(tensors))[1] for view in self._view_of_each_shape(step)]
        alike = [_what_it_does(programs) == _what_it_does(each[0]) for programs in each]
        return all(alike) and all(program.is_elementwise(sums=self.is_whole) for program in each[0])

    def _collects_alike(self, step):
        """Returns whether all variables collect the same, each element by itself."""
        if remembers_rows(self.rule):
            return False
        each = [self._collected(view) for view in self._view_of_each_shape(step)]
        does = [(names, _what_it_does([program])) for names, program in each]
        alike = all(one == does[0] for one in does)
        return alike and all(names and program.is_elementwise() for names, program in each)

    def _check_inner(self, tensors):
        """Raises NoKernel if no kernel inside of the rule is to be looked for."""
        if self.lowerings.rejection("kernel"):
            raise NoKernel(self.lowerings.rejection("kernel"))
        check_declared(self.rule)
        if self.is_whole or self.lists.are_small(tensors):
            raise NoKernel("no kernel: it costs more than it saves on small variables, and on whole ones with sums")

    def _programs(self, step, view, is_inner):
        """Returns (the traced update of a view, its programs): one, or those before and after the kernel inside."""
        if not is_inner:
            traced = step.trace(view)
            return traced, [view.program(traced)]
        kernel = KernelOfLists(view, (), self.lowerings.fixed_value)
        traced = step.trace(view, kernel)
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
        if self.is_far:
            self.collects = defines(self.rule, "collect") and self._collects_alike(step)
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
        run = self._run_kernel if self.kernel else self._run_on_lists if self.is_far else self._run_blocks
        return functools.partial(run, step, grads)

    def _collect(self, step, grads):
        """Writes what the rule collects for a later update."""
        if not defines(self.rule, "collect"):
            return
        if self.collects and step.accepted is None:
            if step.arrived:
                view = self._view(step, 0)
                self._run_program(view, *self._collected(view), grads=grads)
            return
        for place in range(len(self.places)):
            view = self._view(step, place)
            natives, _ = collect(step, view, [])
            step.write_slots(view, natives, [])

    def _run_kernel(self, step, grads):
        kernel, view = self.kernel, self._view(step, 0)
        scope = view.scope
        with running_rule():
            scalars = kernel.scalars(view.ops, view.hypers, scope.t)
            decay = kernel.decay(view.hypers) if kernel.decay else view.native_decay()  # never both
        arguments = {name: float(scope.native(value)) for name, value in scalars.items()}
        arguments.update({name: self.tensors[slot] for name, slot in kernel.slots.items()}, **kernel.settings)
        self._decay(view, decay)
        self.lists.kernel(kernel.operation, kernel.settings, grads)(self.tensors[VAR], grads, **arguments)
        return []

    def _decay(self, view, share):
        if share is not None:
            share = view.scope.native(share)
            self.lists.decay(self.tensors[VAR], share if self.is_far else float(share))

    def _run_blocks(self, step, grads):
        view = self._view(step, 0)
        traced, programs = self._programs(step, view, self.is_inner)
        self._decay(view, traced.decay)
        slots, grads = list(traced.slots), self.lists.flat(grads)
        if self.is_inner:
            self._run_around(view, traced, programs, grads)
            return []
        planned = Planned(self.lists, view, programs[0], [VAR] + slots, in_place=not self.is_whole)
        for block, parts in self.blocks:
            for name, value in planned.run(parts, self.lists.cut(grads, block)):
                write = self.lists.write if name != VAR or traced.assigned else self.lists.subtract
                write(parts[name], value)
        return []

    def _run_on_lists(self, step, grads):
        view = self._view(step, 0)
        traced = updated(view)  # without what `step.trace` computes: most of that is a number here
        self._decay(view, traced.decay)
        self._run_program(view, [VAR] + list(traced.slots), view.program(traced), grads, traced.assigned)
        return []

    def _run_program(self, view, names, program, grads, assigned=False):
        """Runs a program on all tensors, and writes its results. names: what they are for, VAR or slots."""
        planned = view.ops.once(  # a tracer keeps its programs, so that the id is this one's own
            ("on lists", id(program), tuple(names), assigned), lambda: OnLists(self.lists, program, names, assigned))
        leaves = planned.leaves(view)
        for cut in slices(self.tensors[VAR]):
            planned.run(leaves, {name: values[cut] for name, values in self.tensors.items()}, grads[cut])

    def _collected(self, view):
        """Returns (slots, the program of their values) of what the rule collects."""
        changed = view.changed_slots(collected(view))
        values = tuple(changed.values())
        return list(changed), view.ops.once(view.key("collected", values), lambda: view.program_of(values))

    def _run_around(self, view, traced, programs, grads):
        """Runs a kernel on each block, and what a wrapper computes before it and after it."""
        lists, inner, kernel = self.lists, traced.kernel, traced.kernel.kernel
        settings = {name: float(view.scope.native(value)) for name, value in inner.scalars.items()}
        settings.update(kernel.settings)
        run = lists.kernel(kernel.operation, kernel.settings, self.tensors[VAR])
        before = Planned(lists, view, programs[0], [GRAD, VAR])
        after = Planned(lists, view, programs[1], ([] if traced.change is None else [VAR]) + list(traced.slots))
        for block, parts in self.blocks:
            cut = lists.cut(grads, block)
            given = dict(before.run(parts, cut))
            if inner.shown is not view.var:
                lists.write(parts[VAR], given[VAR])
            slots = {argument: parts[name] for argument, name in inner.slots.items()}
            run(parts[VAR], lists.split(parts[VAR], given[GRAD]), **dict(settings, **slots))
            for name, value in after.run(parts, cut):
                lists.write(parts[name], value)


class KernelOfLists(InnerKernel):
    """A kernel for lists of variables inside of a rule."""

    def exists(self, kernel, slots):
        lists = self.view.backend.lists
        return lists.kernel(kernel.operation, kernel.settings, lists.tensors([self.view.variable])) is not None

    def key(self):
        return super(KernelOfLists, self).key() + (self.view.backend.device(self.view.variable),)

    def programs(self, traced):
        """Returns the programs of (the kernel's gradient, the variable that it starts from), and of what comes after.

        What comes after reads what the kernel wrote, so a rule that needs the old values there has no such program.
        """
        values = ([] if traced.change is None else [traced.change]) + list(traced.slots.values())
        key = self.view.key("programs", traced.kernel.grad, traced.kernel.shown, tuple(values))
        return self.view.ops.once(key, lambda: self._programs(traced, values))

    def _programs(self, traced, values):
        view, written = self.view, list(traced.kernel.slots.values())
        old, grad = view.slot_values, [(GRAD, view.grad)]
        before = [(VAR, view.var)] + list(old.items())
        after = [(VAR, view.leaf("new", None))] + [(name, view.leaf("new", name)) for name in written]
        after += [(name, value) for name, value in old.items() if name not in written]
        return [
            Program(wanted, {value: name for name, value in grad + inputs})
            for wanted, inputs in (([traced.kernel.grad, traced.kernel.shown], before), (values, after))
        ]


class Planned(object):
    """A program of one step, to run on one block after the other.

    Args:
        names: what its results are for: GRAD, VAR or slots.
        in_place: whether results may be written over the old values of slots as they are computed.
    """

    def __init__(self, lists, view, program, names, in_place=False):
        self.lists, self.names, self.results = lists, names, program.results
        constant = functools.partial(lists.constant, device=view.backend.device(view.variable))
        self.leaves = program.leaves(constant, [view.lower(value) for value in program.outside])
        self.steps, self.inputs = program.steps(lists.fresh), program.inputs_by_place()
        slots = dict(zip(names[1:], program.results[1:])) if in_place else {}
        self.direct = program.results_in_place(self.steps, slots, lists.fresh)

    def run(self, parts, grads):
        """Returns [(name, value)] of the results on a block that are still to write.

        Args:
            parts: `{name: the block's parts of variables or slots}`.
            grads: its parts of gradients.
        """
        lists, natives = self.lists, dict(self.leaves)
        for place, name in self.inputs:
            natives[place] = lists.join(grads if name == GRAD else parts[name])
        stored = [natives[place] for place, name in self.inputs if name != GRAD]
        direct = self.direct if len(grads) == 1 else {}
        for place, op, operands, options, spare, dead in self.steps:
            values = [natives[operand] for operand in operands]
            spare = parts[direct[place]][0] if place in direct else None if spare is None else natives[spare]
            natives[place] = lists.compute(op, values, options, spare)
            for operand in dead:
                del natives[operand]
        results = [(name, natives[place]) for name, place in zip(self.names, self.results) if place not in direct]
        # One that is the old value of another variable must stay while that one is written.
        return [(name, lists.copy(value) if any(value is old for old in stored) else value) for name, value in results]


def _what_it_does(programs):
    """Returns what is equal for programs that do the same, to the same values of the step."""
    return [(program.key(), list(map(id, program.outside))) for program in programs]
