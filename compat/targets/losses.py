"""What a target does with a loss: scales it, takes its gradients by the user's function, takes several of them."""
from __future__ import absolute_import, division, print_function

import numpy as np

from everstep.compat.engine.flush import LossScale
from everstep.compat.targets.checking import check_stages
from everstep.errors import GradientError
from everstep.optimizers.contract import defines, is_tensor


def scaled(bound, loss):
    """Returns a loss multiplied by the loss scale if the definition has one; else the loss itself."""
    if not defines(bound.definition, "loss_scale"):
        return loss
    bound.has_scaled = True
    if callable(loss):
        return lambda: bound.adapter.scale_loss(loss())
    loss = loss.item() if isinstance(loss, np.generic) else loss
    dtype = bound.backend.dtype(loss) if is_tensor(loss) else "float32"
    return loss * LossScale(bound.host_of(None)).native(dtype)


def by_hand(bound, loss, variables):
    """Computes gradients with the user's function, the one given as `bind(module, gradients=...)`.

    Args:
        loss: the loss, a tensor or a function that computes it, as the caller has it.
        variables: the variables to differentiate with respect to.

    Returns:
        A list of (gradient, variable) pairs.

    Raises:
        GradientError: the function did not return one gradient, or None, for each variable.
    """
    bound.has_called_gradients = True
    grads, variables = list(bound.gradients(loss, variables)), list(variables)
    if len(grads) != len(variables):
        names = ", ".join(str(getattr(variable, "name", variable)) for variable in variables)
        raise GradientError(
            "{!r} gave {} gradients for {} variables ({}); give one for each, or None".format(
                bound.gradients, len(grads), len(variables), names
            )
        )
    return list(zip(bound.backend.wait_for_loss(grads, loss), variables))


def run_stages(bound, minimize, loss, *args, **kwargs):
    """Calls the base class's `minimize` once for each stage of an update."""
    if bound.definition.stages == 1 or bound.takes_stages:
        return minimize(loss, *args, **kwargs)
    if not callable(loss):
        check_stages(bound)
    bound.takes_stages = True
    try:
        done = []
        for _ in range(bound.definition.stages):
            with bound.backend.after(done):
                done = [minimize(loss, *args, **kwargs)]
        return done[0]
    finally:
        bound.takes_stages = False
