# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Literal

from everstep.optimizers.contract.declarations import Hyper, Option, Slot
from everstep.optimizers.contract.definition import Definition
from everstep.optimizers.contract.types import HyperValue

class AdagradDecay(Definition):
    learning_rate: Hyper
    decay_rate: Hyper
    decay_steps: Option[int]
    initial_accumulator_value: Option[float]
    accumulator: Slot
    decays: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        decay_rate: HyperValue = 0.9,
        decay_steps: int = 100000,
        initial_accumulator_value: float = 0.1,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...
