# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Literal

from everstep.optimizers.contract.composite import Wrapper
from everstep.optimizers.contract.declarations import Option, Scalar
from everstep.optimizers.contract.definition import Definition

class LossScale(Wrapper):
    initial_scale: Option[float]
    growth_interval: Option[int]
    growth: Option[float]
    backoff: Option[float]
    factor: Scalar
    finite: Scalar
    used: Scalar
    def __init__(
        self,
        inner: Definition,
        initial_scale: float = 32768.0,
        growth_interval: int = 2000,
        growth: float = 2.0,
        backoff: float = 0.5,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = ...,
        dense_ok: bool = ...,
    ) -> None: ...

def loss_scale(
    definition: Definition,
    initial_scale: float = 32768.0,
    growth_interval: int = 2000,
    growth: float = 2.0,
    backoff: float = 0.5,
) -> LossScale: ...
