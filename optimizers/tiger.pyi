# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Literal

from everstep.optimizers.contract.declarations import Hyper, Option, Slot
from everstep.optimizers.contract.definition import Definition
from everstep.optimizers.contract.types import HyperValue

class Tiger(Definition):
    learning_rate: Hyper
    beta: Hyper
    weight_decay: Hyper
    relative_rate: Option[Literal["", "row", "variable"]]
    m: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        beta: HyperValue = 0.965,
        weight_decay: HyperValue = 0.01,
        relative_rate: Literal["", "row", "variable"] = "",
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...
