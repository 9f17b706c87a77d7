"""Finds the fused kernel inside of a traced update, and what wrappers do before and after it.

A wrapper may change the gradient, the variable and the hypers before it calls the `update` of its inner rule, and uses
the change that comes back. If a kernel computes that inner update, its results are opaque values here: the change, the
variable's new value and the new slots. A difference `variable - change` becomes the new value, which is read after the
kernel ran. All else that the wrapper computes lies before the kernel or after it.
"""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict, namedtuple

from everstep.compat.engine.fitting import agree
from everstep.compat.engine.fused import KERNELS
from everstep.compat.rules.expressions import Value
from everstep.compat.rules.shapes import result_shape
from everstep.optimizers.contract import kernel_of
from everstep.optimizers.contract.configured import once
from everstep.optimizers.contract.trees import tree, walk

# kernel: the `Kernel`, see engine/fused.py. slots: {its argument: slot's flat name}.
# grad, scalars: the values of its arguments. shown: the value of the variable that it starts from, as the rule has it.
# before: values to compute before it runs, since it changes what they read. is_all: whether the update is nothing else.
KernelUpdate = namedtuple("KernelUpdate", "kernel slots grad scalars shown before is_all")


class NoKernel(Exception):
    """No kernel computes an update. The message says why."""


def check_declared(rule):
    """Raises NoKernel if neither a rule nor one inside of it declares a kernel."""
    parts = lambda: walk(tree(rule), active=True)  # noqa: E731
    if not once(rule, "has a kernel", lambda: any(kernel_of(each.definition) for each in parts())):
        raise NoKernel("no kernel: the rule declares none")


class InnerKernel(object):
    """Replaces one `update` in a trace by a kernel's.

    Args:
        view: the `VariableView`.
        collected: the names of slots that `collect` returned and that are not written yet.
        fixed_value: a function that returns the number of a hyper, by its flat name, that cannot change; else None.
    """

    def __init__(self, view, collected, fixed_value):
        self.view, self.collected, self.fixed_value = view, collected, fixed_value
        self.found = None
        self._changed = {}  # {value: whether it depends on what the kernel writes}
        self._rewritten = {}  # {value: the value without the opaque change}

    def update(self, definition, grad, var, slots, hyper, t):
        """Returns what `definition.update` returns, as opaque values; None if the definition declares no kernel.

        Raises NoKernel.
        """
        declared, view = kernel_of(definition), self.view
        if declared is None:
            return None
        if self.found:
            raise NoKernel("no kernel: it has several rules with kernels")
        make = KERNELS[declared.name]
        kernel = make(definition, lambda name: self._fixed(hyper, name))
        if kernel is None:
            raise NoKernel("no kernel: none of {} with these options".format(declared.name))
        names = OrderedDict((argument, slots.flat_name(name)) for argument, name in sorted(kernel.slots.items()))
        kernel = self._usable(kernel, list(names.values()))
        if any(getattr(slots, name) is not view.slot_values[slots.flat_name(name)] for name in kernel.slots.values()):
            raise NoKernel("no kernel: a wrapper changes the slots that the rule sees")
        self._shown = _terms(var)
        if view.var not in self._shown:
            raise NoKernel("no kernel: a wrapper shows the rule another variable")
        grad = view.as_value(kernel.grad_factor(hyper) * grad if kernel.grad_factor else grad)
        if not agree(result_shape(grad), view.var.leaf_shape):
            raise NoKernel("no kernel: a wrapper gives the rule a gradient of another shape")
        scalars = kernel.scalars(view.ops, hyper, t)
        scalars = OrderedDict((name, view.as_value(scalars[name])) for name in sorted(scalars))
        if any(result_shape(value) != () for value in scalars.values()):
            raise NoKernel("no kernel: a wrapper gives the rule hypers that are no scalars")
        if kernel.decay:  # part of the rule's change
            var = var - kernel.decay(hyper) * var
        self.found = KernelUpdate(kernel, names, grad, scalars, var, (), False)
        self.change, self.new_var = view.leaf("change", None), view.leaf("new", None)
        self.new_slots = {name: view.leaf("new", name) for name in names.values()}
        opaque = [self.change, self.new_var] + list(self.new_slots.values())
        self._changed = dict.fromkeys(opaque, True)
        return self.change, {name: self.new_slots[slots.flat_name(name)] for name in kernel.slots.values()}

    def key(self):
        """Returns what decides, beside the view's values, whether there is a kernel and which."""
        view, backend = self.view, self.view.backend
        natives = [view.variable] + [view.step.host.slot(view.variable, name) for name in view.declared]
        dtypes = tuple([backend.dtype(native) for native in natives])
        return type(self), view.by_rows, backend.is_ref(view.variable), dtypes, tuple(self.collected)

    def _usable(self, kernel, names):
        """Returns a kernel for slots of some names, or the one to take instead."""
        view, backend = self.view, self.view.backend
        slots = [view.step.host.slot(view.variable, name) for name in names]
        if {backend.dtype(native) for native in [view.variable] + slots} != {view.dtype}:
            raise NoKernel("no kernel: it computes in the dtype of the variable")
        if set(self.collected).intersection(names):
            raise NoKernel("no kernel: the rule collects what it changes")
        if view.by_rows and not kernel.by_rows:
            raise NoKernel("no kernel: {} has no form for rows".format(kernel.operation))
        if not kernel.in_xla and not view.step.host.adapter.is_fused and not backend.in_session():
            # The optimizers of such an API run in functions with jit_compile=True: Keras 3 sets it on a GPU.
            raise NoKernel("no kernel: XLA has no {}".format(kernel.operation))
        if self.exists(kernel, slots):
            return kernel
        if kernel.instead:
            return self._usable(kernel.instead, names)
        raise NoKernel("no kernel: this TensorFlow has no {} for such variables".format(kernel.operation))

    def exists(self, kernel, slots):
        """Returns whether the backend has a `Kernel` for the view and these slots."""
        view, backend = self.view, self.view.backend
        has = backend.is_since(kernel.since)
        return has and backend.kernel(kernel.operation, view.variable, slots, view.by_rows) is not None

    def _fixed(self, hyper, name):
        """Returns a hyper's number, if neither the user nor a wrapper can change it; else None."""
        flat_name = hyper.flat_name(name)
        changed = getattr(hyper, name) is not self.view.scope.values[flat_name]
        return None if changed else self.fixed_value(flat_name)

    def settle(self, assigned, change, slots):
        """Separates a traced update into the kernel and the rest.

        Args:
            assigned: whether `change` is the variable's new value.
            slots: `{name: new value}` of all slots that change.

        Returns:
            (the `KernelUpdate`, the variable's new value or None if that is the kernel's, the slots that it does not
            write).

        Raises:
            NoKernel: the kernel's change cannot be separated.
        """
        if not self.found:
            raise NoKernel("no kernel: a wrapper calls its inner rule's update itself, not super().update")
        value = self._rewrite(change if assigned else self.view.var - change)
        new_var = None if value is self.new_var else value
        rest = OrderedDict()
        for name, value in slots.items():
            if name not in self.new_slots:
                rest[name] = self._rewrite(value)
            elif value is not self.new_slots[name]:
                raise NoKernel("no kernel: a wrapper changes the slots that the rule returned")
        if set(self.new_slots).difference(slots):
            raise NoKernel("no kernel: a wrapper leaves out slots that the rule returned")
        if new_var is not None and not self._depends(new_var):
            raise NoKernel("no kernel: a wrapper does not use the change")
        results = list(rest.values()) + ([] if new_var is None else [new_var])
        is_all = not results and self.found.shown is self.view.var
        return self.found._replace(before=tuple(self._before(results)), is_all=is_all), new_var, rest

    def _depends(self, value):
        """Returns whether a value is computed from what the kernel writes."""
        if value not in self._changed:
            self._changed[value] = any([self._depends(arg) for arg in value.args])
        return self._changed[value]

    def _rewrite(self, value):
        if not self._depends(value):
            return value
        if value not in self._rewritten:
            self._rewritten[value] = self._without_change(value)
        return self._rewritten[value]

    def _without_change(self, value):
        """Returns a value with `shown - change` replaced by the variable's new value."""
        if value is self.change:
            raise NoKernel("no kernel: a wrapper needs the change itself")
        if not value.args:
            return value
        terms = _terms(value)
        if self.change not in terms:
            return self.view.ops.node(value.op, tuple(map(self._rewrite, value.args)), value.options, value.dtype)
        for term, count in self._shown.items():
            terms[term] = terms.get(term, 0) - count
        terms[self.change] += 1
        result = self.new_var
        for term, count in terms.items():
            if count not in (-1, 0, 1) or count and (term is self.change or term is self.view.var):
                raise NoKernel("no kernel: a wrapper needs the change itself")
            if count:
                term = self._rewrite(term)
                result = result + term if count > 0 else result - term
        return result

    def _before(self, results):
        """Yields the largest parts of some values that are not computed from what the kernel writes."""
        waiting, seen = list(results), set()
        while waiting:
            value = waiting.pop()
            if value in seen:
                continue
            seen.add(value)
            if self._depends(value):
                waiting.extend(value.args)
            elif not value.step_wide:
                yield value


def run_kernel(view, update, earlier):
    """Runs a `KernelUpdate` after earlier operations. Returns its operation."""
    backend, kernel, natives = view.backend, update.kernel, {}
    slots = {argument: view.step.host.slot(view.variable, name) for argument, name in update.slots.items()}
    with backend.after(earlier):
        for name, value in update.scalars.items():
            natives[name] = backend.cast(view.lower(value), view.dtype)
        natives[kernel.grad] = view.lower(update.grad)
        read = [] if update.is_all else list(natives.values())
        read += [view.keep(value, update.slots.values()) for value in update.before]
    if update.shown is not view.var:
        earlier = earlier + [view.show(update.shown, earlier + read)]
    with backend.after(earlier + read):
        if view.by_rows:
            natives["indices"] = view.rows
        run = backend.kernel(kernel.operation, view.variable, list(slots.values()), view.by_rows)
        return run(view.variable, dict(natives, **dict(slots, **kernel.settings)))


def _terms(value, count=1, terms=None):
    """Returns `{term: how often}` of the terms that a value is a sum and difference of."""
    terms = OrderedDict() if terms is None else terms
    if isinstance(value, Value) and value.op in ("add", "subtract", "negative"):
        _terms(value.args[0], -count if value.op == "negative" else count, terms)
        if len(value.args) > 1:
            _terms(value.args[1], -count if value.op == "subtract" else count, terms)
    else:
        terms[value] = terms.get(value, 0) + count
    return terms

