# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Literal

from everstep.optimizers.contract.declarations import Hyper, Option, Slot
from everstep.optimizers.contract.definition import Definition
from everstep.optimizers.contract.types import HyperValue

class Adan(Definition):
    learning_rate: Hyper
    beta_1: Hyper
    beta_2: Hyper
    beta_3: Hyper
    epsilon: Hyper
    weight_decay: Hyper
    proximal: Option[bool]
    m: Slot
    d: Slot
    v: Slot
    previous_grad: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        beta_1: HyperValue = 0.98,
        beta_2: HyperValue = 0.92,
        beta_3: HyperValue = 0.99,
        epsilon: HyperValue = 1e-08,
        weight_decay: HyperValue = 0.0,
        proximal: bool = True,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...
