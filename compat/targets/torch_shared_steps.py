"""Steps that all parameters of torch share, where a definition counts steps: `accumulate`, `loss_scale`, and others.

Counts are stored beside each parameter, and one without a gradient takes no part in a step. But a window opens and
closes for all parameters, and the loss has one scale. So a parameter

* without a gradient gets one of zeros while a window is open that it is part of;
* that comes later, or comes back, makes up for the steps of the open window, with gradients of zeros;
* without a gradient in a whole window stays as it is.

This is what `backward` before each of several batches and one `step` does.
"""
from __future__ import absolute_import, division, print_function

from everstep.compat.engine.flush import zero_grad
from everstep.optimizers.contract.trees import tree, walk
from everstep.optimizers.contract.verbs import overrides

_FOR_ALL = ("should_update", "should_accept", "loss_scale")  # what decides for all variables


class SharedSteps(object):
    """The steps of one optimizer. `adapter`: the one of torch_optim."""

    def __init__(self, adapter):
        self._adapter, self._bound, self._state = adapter, adapter.bound, adapter.state
        nodes = [node for node in walk(tree(self._bound.definition), active=True)
                 if any(overrides(node.definition, verb) for verb in _FOR_ALL)]
        own = {node.prefix + name for node in nodes for name in node.definition.declared_order}
        self._scalars = [name for name in adapter.state.starts if name in own]

    def completed(self, pairs):
        """Returns the (gradient, parameter) pairs of a step, with gradients of zeros for those of an open window."""
        number, known = self._state.number, self._adapter.trained()
        latest = self._state.latest(known)
        steps = number(latest, "steps")
        late = [param for _, param in pairs if number(param, "steps") < steps and not number(param, "pending")]
        if late:
            self._catch_up(late, latest)
        grads = {id(param): grad for grad, param in pairs}
        # for `flush`, which finishes a window of all of them
        self._bound.calls[None, self._bound.backend.replica()] = [self._bound.variable_key(param) for param in known]
        if len(known) == len(pairs):
            return pairs
        idle = [param for param in known if id(param) not in grads and number(param, "pending")]
        if self._state.ready(idle):
            self._adapter.forget()
        grads.update((id(param), zero_grad(self._bound, param)) for param in idle)
        return [(grads[id(param)], param) for param in known if id(param) in grads]

    def _catch_up(self, late, latest):
        """Brings parameters to the counts of a parameter of the last step."""
        number, put = self._state.number, self._state.put
        steps, pending = [number(latest, name) for name in ("steps", "pending")]
        for param in late:
            for name in self._scalars:
                put(param, name, number(latest, name))
            put(param, "steps", steps - pending)
        for _ in range(pending):
            self._adapter.take([(zero_grad(self._bound, param), param) for param in late])
