"""Steps that are no call with gradients: reading the loss scale, and finishing what earlier steps collected."""
from __future__ import absolute_import, division, print_function

from everstep.compat.engine.collecting import remembers_rows
from everstep.compat.engine.step import Step


class LossScale(Step):
    """Computes the loss scale of the next step. It carries out no step."""

    def __init__(self, host):
        super(LossScale, self).__init__(host, [])

    def native(self, dtype):
        shared = self.scope("float32")
        return self.backend.cast(self._asked(shared, "loss_scale"), dtype)


class Flush(Step):
    """An update without new gradients, for earlier steps that collected something and did not update."""

    arrived = 0

    def __init__(self, host, variables):
        super(Flush, self).__init__(host, [(zero_grad(host, variable), variable) for variable in variables])
        self.count("steps")  # read here, outside of branches, because the window's number depends on it

    def pending(self):
        return self.backend.ops["maximum"](self.count("pending"), 1)  # with 0 pending steps nothing is written

    def _should_update(self, shared):
        return self.backend.ops["greater"](self.count("pending"), 0)


def zero_grad(host, variable):
    """Returns a gradient that adds nothing: zeros, or no rows where a rule remembers which rows had a gradient."""
    backend = host.backend
    if remembers_rows(host.rule(variable)) and host.record(variable).shape and backend.moves_rows:
        return backend.no_rows(variable)
    return backend.ops["zeros_like"](backend.read(variable))
