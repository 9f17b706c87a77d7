# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Any, Literal

from everstep.optimizers.contract.by_name import ByName
from everstep.optimizers.contract.composite import Wrapper
from everstep.optimizers.contract.declarations import Option
from everstep.optimizers.contract.definition import Definition

class LearningRateMultipliers(ByName, Wrapper):
    factors: Option[Any]
    otherwise: Option[float]
    def __init__(
        self,
        inner: Definition,
        factors: Any = (),
        otherwise: float = 1.0,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = ...,
        dense_ok: bool = ...,
    ) -> None: ...

def learning_rate_multipliers(
    definition: Definition,
    factors: Any,
    otherwise: float = 1.0,
) -> LearningRateMultipliers: ...
