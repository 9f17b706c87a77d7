"""Runs a new definition once on small NumPy arrays, so that a mistake in its rule shows where it is made."""
from __future__ import absolute_import, division, print_function

import threading

import numpy as np

from everstep.errors import RuleError
from everstep.optimizers.declarations import running_rule
from everstep.optimizers.schedule import Schedule
from everstep.optimizers.tree import flat, flatten

_state = threading.local()


def check_rule(definition):
    """Raises RuleError, UnknownOpError or DefinitionError for a rule that breaks the contract."""
    if getattr(_state, "running", False):
        return  # a definition that a rule's own `specialize` makes
    _state.running = True
    try:
        with np.errstate(all="ignore"):
            _check(definition)
    finally:
        _state.running = False


def _check(definition):
    from everstep.compat.arrays import ArraysAdapter, Optimizer
    from everstep.compat.ops import IndexedSlices
    from everstep.compat.step import Step, _Work

    class DryRun(ArraysAdapter, Optimizer):
        definition_class = type(definition)

        def hyper(self, name):
            value = self._hypers[name]
            return value if isinstance(value, (float, Schedule)) else 0.5  # tensors and callables are not run

        def rule(self, variable):
            return definition

    variable, grad = np.ones((3, 2), np.float32), np.full((3, 2), 0.5, np.float32)
    optimizer = DryRun(definition=definition)
    optimizer.apply_gradients([(grad, variable)])
    if definition.locality != "variable":
        optimizer.apply_gradients([(IndexedSlices(grad[:2], [2, 2]), variable)])
    step = Step(optimizer, [(grad, variable)])
    step.run()
    work = _Work.of_gradient(step, variable, grad)
    with running_rule():
        collected = definition.collect(work.ops, work.grad, work.slots, work.hypers)
        _, updated = definition.update(work.ops, work.grad, work.var, work.slots, work.hypers, work.scope.t)
    returned = set(flatten(definition, "slot", collected, "collect")) | set(flatten(definition, "slot", updated, "update"))
    missing = [name for name in flat(definition, "slot") if name not in returned]
    if missing:
        raise RuleError(
            "{} declares the slot {}, which neither update nor collect returns; return it (unchanged, if so) or "
            "declare it with when=".format(type(definition).__name__, ", ".join(missing))
        )
