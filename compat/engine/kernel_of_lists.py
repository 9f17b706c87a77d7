"""A fused kernel inside of a rule for lists of variables, such as torch's, and the programs before and after it."""
from __future__ import absolute_import, division, print_function

from everstep.compat.engine.fitting import VAR
from everstep.compat.engine.inner_kernel import InnerKernel
from everstep.compat.engine.variable_view import GRAD
from everstep.compat.rules.program import Program


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
        before, shown = [(VAR, view.var)] + list(old.items()), traced.kernel.shown
        after = [(VAR, view.leaf("new", None))] + [(name, view.leaf("new", name)) for name in written]
        after += [(name, value) for name, value in old.items() if name not in written]
        return [
            Program(wanted, {value: name for name, value in grad + inputs})
            for wanted, inputs in (
                ([traced.kernel.grad] + ([] if shown is view.var else [shown]), before), (values, after))
        ]
