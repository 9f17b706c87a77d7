# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Literal

from everstep.optimizers.contract.declarations import Hyper, Option, Slot
from everstep.optimizers.contract.definition import Definition
from everstep.optimizers.contract.types import HyperValue

class AdagradDA(Definition):
    learning_rate: Hyper
    initial_accumulator_value: Option[float]
    l1: Hyper
    l2: Hyper
    gradient_sum: Slot
    accumulator: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        initial_accumulator_value: float = 0.1,
        l1: HyperValue = 0.0,
        l2: HyperValue = 0.0,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...
