# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Literal

from everstep.optimizers.contract.composite import Wrapper
from everstep.optimizers.contract.declarations import Hyper, Option, Slot
from everstep.optimizers.contract.definition import Definition
from everstep.optimizers.contract.types import HyperValue

class SharpnessAware(Wrapper):
    rho: Hyper
    adaptive: Option[bool]
    eta: Option[float]
    start: Slot
    def __init__(
        self,
        inner: Definition,
        rho: HyperValue = 0.05,
        adaptive: bool = False,
        eta: float = 0.01,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = ...,
        dense_ok: bool = ...,
    ) -> None: ...

def sharpness_aware(
    definition: Definition,
    rho: HyperValue = 0.05,
    adaptive: bool = False,
    eta: float = 0.01,
) -> SharpnessAware: ...
