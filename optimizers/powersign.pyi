# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Literal

from everstep.optimizers.contract.declarations import Hyper, Slot
from everstep.optimizers.contract.definition import Definition
from everstep.optimizers.contract.types import HyperValue

class PowerSign(Definition):
    learning_rate: Hyper
    power_base: Hyper
    beta: Hyper
    sign_decay: Hyper
    m: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.1,
        power_base: HyperValue = 2.718281828459045,
        beta: HyperValue = 0.9,
        sign_decay: HyperValue = 1.0,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...
