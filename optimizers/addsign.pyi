# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Literal

from everstep.optimizers.contract.declarations import Hyper, Slot
from everstep.optimizers.contract.definition import Definition
from everstep.optimizers.contract.types import HyperValue

class AddSign(Definition):
    learning_rate: Hyper
    alpha: Hyper
    beta: Hyper
    sign_decay: Hyper
    m: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.1,
        alpha: HyperValue = 1.0,
        beta: HyperValue = 0.9,
        sign_decay: HyperValue = 1.0,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...
