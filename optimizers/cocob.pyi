# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Literal

from everstep.optimizers.contract.declarations import Hyper, Option, Slot
from everstep.optimizers.contract.definition import Definition
from everstep.optimizers.contract.types import HyperValue

class COCOB(Definition):
    learning_rate: Hyper
    alpha: Hyper
    initial_largest: Option[float]
    largest: Slot
    absolute_sum: Slot
    gradient_sum: Slot
    offset: Slot
    reward: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 1.0,
        alpha: HyperValue = 100.0,
        initial_largest: float = 1e-08,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...
