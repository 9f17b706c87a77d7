"""Asynchronous workers of a `ParameterServerStrategy` with a coordinator: they do not wait for one another."""
from __future__ import absolute_import, division, print_function

from everstep.compat.engine.windows import has_windows
from everstep.errors import UnsupportedError


def check_workers(bound, variables):
    """Raises UnsupportedError if workers do not wait for one another, and the definition counts steps.

    Args:
        variables: the variables of a step that have a gradient.
    """
    workers = _asynchronous_workers(bound.backend)
    if workers > 1 and has_windows(bound, variables):
        raise UnsupportedError(
            "{} does something at some steps only, and {} workers do not wait for one another: they would do it twice, "
            "or not at all, and count gradients twice. Train with one worker, with a synchronous strategy, such "
            "as MultiWorkerMirroredStrategy, or without that wrapper".format(bound.definition._short(), workers)
        )


def _asynchronous_workers(backend):
    """Returns the number of workers of the present strategy that update on their own; 1 if there are none."""
    distribute = getattr(getattr(backend, "tf", None), "distribute", None)
    strategy = distribute.get_strategy() if hasattr(distribute, "get_strategy") else None
    is_coordinated = type(strategy).__name__ == "ParameterServerStrategyV2"
    return strategy._num_workers if is_coordinated else 1
