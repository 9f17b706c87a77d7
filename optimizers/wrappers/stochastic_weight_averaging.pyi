# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Literal

from everstep.optimizers.contract.averages import Averages
from everstep.optimizers.contract.composite import Wrapper
from everstep.optimizers.contract.declarations import Option, Slot
from everstep.optimizers.contract.definition import Definition

class StochasticWeightAveraging(Averages, Wrapper):
    start: Option[int]
    period: Option[int]
    average: Slot
    def __init__(
        self,
        inner: Definition,
        start: int = 0,
        period: int = 10,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = ...,
        dense_ok: bool = ...,
    ) -> None: ...

def stochastic_weight_averaging(
    definition: Definition,
    start: int = 0,
    period: int = 10,
) -> StochasticWeightAveraging: ...
