# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Literal

from everstep.optimizers.contract.declarations import Hyper, Slot
from everstep.optimizers.contract.definition import Definition
from everstep.optimizers.contract.types import HyperValue

class Lion(Definition):
    learning_rate: Hyper
    beta_1: Hyper
    beta_2: Hyper
    weight_decay: Hyper
    m: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        beta_1: HyperValue = 0.9,
        beta_2: HyperValue = 0.99,
        weight_decay: HyperValue = 0.0,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...
