# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Literal

from everstep.optimizers.contract.averages import Averages
from everstep.optimizers.contract.composite import Wrapper
from everstep.optimizers.contract.declarations import Hyper, Option, Slot
from everstep.optimizers.contract.definition import Definition
from everstep.optimizers.contract.types import HyperValue

class MovingAverage(Averages, Wrapper):
    average_decay: Hyper
    warm_up: Option[Literal["none", "ramp", "zero_debias"]]
    start: Option[int]
    overwrite_every: Option[int]
    average: Slot
    def __init__(
        self,
        inner: Definition,
        average_decay: HyperValue = 0.99,
        warm_up: Literal["none", "ramp", "zero_debias"] = "none",
        start: int = 0,
        overwrite_every: int = 0,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = ...,
        dense_ok: bool = ...,
    ) -> None: ...

def moving_average(
    definition: Definition,
    average_decay: HyperValue = 0.99,
    warm_up: Literal["none", "ramp", "zero_debias"] = "none",
    start: int = 0,
    overwrite_every: int = 0,
) -> MovingAverage: ...
