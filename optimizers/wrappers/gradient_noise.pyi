# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Literal

from everstep.optimizers.contract.composite import Wrapper
from everstep.optimizers.contract.declarations import Hyper, Option
from everstep.optimizers.contract.definition import Definition
from everstep.optimizers.contract.types import HyperValue

class GradientNoise(Wrapper):
    eta: Hyper
    gamma: Hyper
    seed: Option[int]
    variable: Option[str]
    def __init__(
        self,
        inner: Definition,
        eta: HyperValue = 0.01,
        gamma: HyperValue = 0.55,
        seed: int = 0,
        variable: str = "",
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = ...,
        dense_ok: bool = ...,
    ) -> None: ...

def gradient_noise(
    definition: Definition,
    eta: HyperValue = 0.01,
    gamma: HyperValue = 0.55,
    seed: int = 0,
) -> GradientNoise: ...
