# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Literal

from everstep.optimizers.contract.declarations import Hyper, Option, Slot
from everstep.optimizers.contract.definition import Definition
from everstep.optimizers.contract.types import HyperValue

class AdamMini(Definition):
    learning_rate: Hyper
    beta_1: Hyper
    beta_2: Hyper
    epsilon: Hyper
    weight_decay: Hyper
    block: Option[Literal["output", "row", "column", "head", "variable"]]
    m: Slot
    v_output: Slot
    v_row: Slot
    v_column: Slot
    v_head: Slot
    v_variable: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        beta_1: HyperValue = 0.9,
        beta_2: HyperValue = 0.999,
        epsilon: HyperValue = 1e-08,
        weight_decay: HyperValue = 0.0,
        block: Literal["output", "row", "column", "head", "variable"] = "output",
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...
