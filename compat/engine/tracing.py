"""Runs the verbs of a rule on symbols, once for each kind of values that they get, and keeps what they return."""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict, namedtuple

from everstep.compat.engine.fitting import check_fits
from everstep.compat.engine.inner_kernel import NoKernel
from everstep.compat.rules.expressions import step_wide_parts
from everstep.compat.rules.shapes import result_shape
from everstep.errors import RuleError
from everstep.optimizers.contract.declarations import running_rule
from everstep.optimizers.contract.definition import assign, total
from everstep.optimizers.contract.refreshing import has_refresh, refreshes
from everstep.optimizers.contract.trees import Names, flatten, tree, walk

# The values that `update` returned. assigned: whether `change` is the variable's new value; slots: the changed slots;
# decay: the share of the variable that the base class's weight decay subtracts, or None. kernel: the `KernelUpdate`
# that runs first, or None; the change is None if the kernel does all of it. shared: its step-wide parts, in the order
# in which they are computed.
Traced = namedtuple("Traced", "assigned change slots decay kernel shared")


def updated(view, inner_kernel=None):
    """Returns the `Traced` update of a view. Raises RuleError if the rule returns something else.

    Args:
        inner_kernel: an `InnerKernel` to look for, which raises NoKernel if there is none. Default None.
    """
    decay, has_missed = view.native_decay(), view.missed is not None
    key = view.key("update", decay, has_missed, inner_kernel and inner_kernel.key())
    known = view.ops.once(key, lambda: _updated(view, decay, inner_kernel))
    if isinstance(known, Traced):
        return known
    raise NoKernel(known)


def _updated(view, decay, inner_kernel):
    try:
        del view.ops.updated[:]
        with running_rule(), view.ops.by_kernel(inner_kernel):
            returned = view.ops.update_of(view.rule, view.grad, view.var, view.slots, view.hypers, view.scope.t)
        if has_refresh(view.rule):
            _check_refreshed(view)
        change, slots = checked_update(view, returned)
        assigned = isinstance(change, assign)
        change = view.as_value(change.value if assigned else change)
        slots, kernel = view.changed_slots(flatten(view.rule, "slot", slots, "update")), None
        if inner_kernel:
            kernel, change, slots = inner_kernel.settle(assigned, change, slots)
        else:
            _check_shapes(view, [(None, change)] + list(slots.items()))
    except NoKernel as error:
        return str(error)  # returned as text, because an exception would keep its frames and the tensors in them
    values = [change, decay] + list(slots.values())
    values += view.missed.recorded(view.scope).values() if view.missed else []
    values += [kernel.grad, kernel.shown] + list(kernel.scalars.values()) if kernel else []
    shared = step_wide_parts([value for value in values if value is not None])
    return Traced(assigned or kernel is not None, change, slots, decay, kernel, shared)


def _check_refreshed(view):
    """Raises RuleError if a wrapper left out the methods of its inner rule that run every few updates."""
    for node in walk(tree(view.rule), active=True):
        if type(node.definition).refresh_methods and not any(node.definition is each for each in view.ops.updated):
            raise RuleError(
                "a wrapper calls {0}.update itself, which leaves out {0}.{1}; it should call super().update or "
                "ops.update_of(self.inner, ...)".format(
                    type(node.definition).__name__, refreshes(node.definition)[0][0])
            )


def checked_update(view, returned):
    """Returns (change, slots) as `update` returned them. Raises RuleError for anything else."""
    if not isinstance(returned, tuple) or len(returned) != 2 or isinstance(returned, assign):
        raise RuleError("{}.update must return (change, slots); it returned {!r}".format(view.owner, returned))
    return returned


def _check_shapes(view, values):
    """Raises RuleError if a slot's new value or (None) the change has another shape than the old value can take."""
    for name, value in values:
        expected = (view.var if name is None else view.slot_values[name]).leaf_shape
        check_fits(result_shape(value), expected, name, view.about)


def collected(view):
    """Returns `{name: value}` of the slots that `collect` returned."""
    return view.ops.once(view.key("collect", tuple(view.scope.scalars.items())), lambda: _collected(view))


def _collected(view):
    with running_rule():
        slots = view.rule.collect(view.ops, view.grad, view.slots, view.hypers_before)
    slots = flatten(view.rule, "slot", slots, "collect")
    slots = OrderedDict((name, view.as_value(value)) for name, value in slots.items())
    _check_shapes(view, slots.items())
    return slots


def measured(view):
    """Returns `{name: (whether it is a total over all variables, value)}` of what the rule measures."""
    return view.ops.once(view.key("measure"), lambda: _measured(view))


def _measured(view):
    with running_rule():
        returned = view.rule.measure(view.ops, view.grad, view.var, view.slots, view.hypers)
    sums = OrderedDict()
    for name, value in flatten(view.rule, "sum", returned, "measure").items():
        is_total = isinstance(value, total)
        sums[name] = is_total, view.as_value(value.value if is_total else value)
    return sums


def asked(scope, definition, verb):
    """Returns what a verb of (ops, hyper) returned, such as `should_update`. scope: the step's float32 `Scope`."""
    def ask():
        return scope.tracer.as_value(getattr(definition, verb)(scope.tracer, scope.names(definition)))

    return _of_step(scope, definition, verb, ask)


def scalars_after(scope, definition, verb):
    """Returns `{name: value}` of the scalars that `advance` or `reject` returned."""
    def ask():
        arguments = [Names(tree(definition), scope.scalars), scope.names(definition)]
        arguments += [scope.t] if verb == "advance" else []
        scalars = flatten(definition, "scalar", getattr(definition, verb)(scope.tracer, *arguments), verb)
        return OrderedDict((name, scope.tracer.as_value(value)) for name, value in scalars.items())

    return _of_step(scope, definition, verb, ask)


def _of_step(scope, definition, verb, ask):
    def run():
        with running_rule():
            return definition, ask()  # the definition, so that nothing else gets its id

    return scope.tracer.once((verb, id(definition), scope.key), run)[1]
