"""Updates all variables of a rule in one call, on backends that have `lists`: see compat/backends/on_torch.py.

A rule with a kernel runs as one call for all of its variables (strategy kernel). Another elementwise rule runs on
blocks that fit into the processor's cache: small variables joined, or a part of a large one (strategy flattened). One
with sums over a whole variable, such as LAMB, takes a variable for a block. All write variables and slots in place. A
plan lasts while the variables and their memory stay the same.
"""
from __future__ import absolute_import, division, print_function

import operator
from collections import OrderedDict

from everstep.compat.engine.collecting import collect
from everstep.compat.engine.fused import KERNELS
from everstep.compat.engine.variable_view import GRAD, VAR, VariableView
from everstep.optimizers.contract import kernel_of
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
        runs = [group.update_of(step, self._written) for group in self._groups]
        left = [step.pairs[place] for place in self._left]
        return runs, [(self.lists.lasting(grad, self._written), variable) for grad, variable in left]

    def _stands(self, variables):
        """Returns whether the last plan holds for a step on these variables."""
        known = self._variables
        if not known or len(known) != len(variables) or not all(map(operator.is_, known, variables)):
            return False
        if getattr(self.lowerings.host, "weight_decay", None) is not self._decay:
            return False
        tensors = self.lists.tensors(self._stored)
        same = tensors is not None and all(map(operator.is_, tensors, self._tensors))
        return same and self.lists.places(tensors) == self._places

    def _plan(self, step):
        """Divides a step's variables into groups."""
        host, lists, alike = self.lowerings.host, self.lists, OrderedDict()
        self._variables, self._groups, taken = [variable for _, variable in step.pairs], [], set()
        self._decay = getattr(host, "weight_decay", None)
        for place, (grad, variable) in enumerate(step.pairs):
            if self.lowerings.is_uniform(grad, variable, ("element", "variable")):
                key = host.rule(variable), host.backend.device(variable), host.native_decay(variable)
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
        self.is_whole = host.rule(self.variables[0]).locality == "variable"  # its sums need whole variables
        self.slots = OrderedDict(
            (name, [host.slot(variable, name) for variable in self.variables])
            for name in host.slot_names(self.variables[0])
        )
        self.kernel, self.why, self.blocks, self.tensors = None, None, [], {}

    def stored(self):
        return self.variables + [slot for slots in self.slots.values() for slot in slots]

    def is_possible(self, step):
        """Finds the kernel of the group. Returns whether it has one, or its rule can run on blocks."""
        tensors, first = self.lists.tensors(self.variables), self._view(step, 0)
        if tensors is None:
            return False
        self.kernel, self.why = self._find_kernel(first, tensors)
        return bool(self.kernel) or not self.lowerings.rejection("flattened") and self._has_one_program(step)

    def _find_kernel(self, view, tensors):
        """Returns (the kernel of the rule, None), or (None, why there is none)."""
        declared = kernel_of(view.rule)
        if self.lowerings.rejection("kernel") or declared is None:
            return None, self.lowerings.rejection("kernel") or "no kernel: the rule declares none"
        kernel = KERNELS[declared.name](view.rule, self.lowerings.fixed_value)
        if kernel is None:
            return None, "no kernel: none of {} with these options".format(declared.name)
        if not self.lists.kernel(kernel.operation, kernel.settings, tensors):
            return None, "no kernel: this torch has no {} for such variables".format(kernel.operation)
        return kernel, None

    def _has_one_program(self, step):
        """Returns whether the rule is elementwise but for sums, and does the same to all variables."""
        places = {step.host.record(variable).shape: place for place, variable in enumerate(self.variables)}
        views = [self._view(step, place) for place in places.values()]
        programs = [view.program(step.trace(view)) for view in views]  # equal rules trace alike for equal shapes
        first = programs[0]
        alike = [
            program.key() == first.key() and list(map(id, program.outside)) == list(map(id, first.outside))
            for program in programs
        ]
        return all(alike) and first.is_elementwise(sums=self.is_whole)

    def _view(self, step, place):
        grad, variable = step.pairs[self.places[place]]
        return VariableView.of_gradient(step, variable, grad)

    def prepare(self, step):
        """Finds the tensors, divides them into blocks and notes the strategy."""
        self.tensors = OrderedDict((name, self.lists.tensors(slots)) for name, slots in self.slots.items())
        self.tensors[VAR] = self.lists.tensors(self.variables)
        if not self.kernel:
            vectors = OrderedDict((name, self.lists.flat(values)) for name, values in self.tensors.items())
            for block in self.lists.blocks(self.tensors[VAR], whole=self.is_whole):
                parts = OrderedDict((name, self.lists.cut(values, block)) for name, values in vectors.items())
                self.blocks.append((block, parts))
        for place in range(len(self.variables)):
            why = [] if self.kernel else [self.why]
            self.lowerings.note(self._view(step, place), "kernel" if self.kernel else "flattened", why)

    def update_of(self, step, written):
        """Collects. Returns a function that updates the group, of operations to wait for: eager code has none.

        Args:
            written: the memory that the step writes. A gradient in it is copied now.
        """
        grads = [step.pairs[place][0] for place in self.places]
        grads = self.lists.gradients(grads, self.tensors[VAR], written)
        self._collect(step)
        run = self._run_kernel if self.kernel else self._run_blocks
        return lambda earlier: run(step, grads) if bool(step.predicate) else []

    def _collect(self, step):
        """Writes what the rule collects for a later update."""
        for place in range(len(self.places) if defines(self.lowerings.host.rule(self.variables[0]), "collect") else 0):
            view = self._view(step, place)
            collected, _ = collect(step, view, [])
            step.write_slots(view, collected, [])

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
            self.lists.decay(self.tensors[VAR], float(view.scope.native(share)))

    def _run_blocks(self, step, grads):
        view = self._view(step, 0)
        traced = step.trace(view)
        program = view.program(traced)
        leaves = program.leaves(self.lists, [view.lower(value) for value in program.outside])
        steps, names = program.steps(self.lists.fresh), [VAR] + list(traced.slots)
        direct = {} if self.is_whole else program.results_in_place(steps, names[1:], self.lists.fresh)
        self._decay(view, traced.decay)
        grads, inputs = self.lists.flat(grads), program.inputs_by_place()
        for block, parts in self.blocks:
            natives = dict(leaves)
            for place, name in inputs:
                natives[place] = self.lists.join(self.lists.cut(grads, block) if name == GRAD else parts[name])
            stored = [natives[place] for place, name in inputs if name != GRAD]
            alone = direct if len(block) == 1 else {}
            for place, op, operands, options, spare, dead in steps:
                values = [natives[operand] for operand in operands]
                spare = parts[alone[place]][0] if place in alone else None if spare is None else natives[spare]
                natives[place] = self.lists.compute(op, values, options, spare)
                for operand in dead:
                    del natives[operand]
            places = [(name, place) for name, place in zip(names, program.results) if place not in alone]
            results = [(name, natives[place]) for name, place in places]
            # One that is the old value of another variable must stay while that one is written.
            results = [(n, self.lists.copy(v) if any(v is old for old in stored) else v) for n, v in results]
            for name, value in results:
                write = self.lists.write if name != VAR or traced.assigned else self.lists.subtract
                write(parts[name], value)
        return []
