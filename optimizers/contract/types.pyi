# Written by hand: at run time these are plain names.
from collections.abc import Callable
from typing import Any, Protocol

from everstep.optimizers.contract.schedule_base import Schedule

class _Scalar(Protocol):
    """A tensor, variable or array of any framework."""

    @property
    def dtype(self) -> Any: ...
    @property
    def shape(self) -> Any: ...

HyperValue = float | _Scalar | Callable[..., Any] | Schedule
