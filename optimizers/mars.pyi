# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Literal

from everstep.optimizers.contract.declarations import Hyper, Option, Slot
from everstep.optimizers.contract.definition import Definition
from everstep.optimizers.contract.types import HyperValue

class MARS(Definition):
    learning_rate: Hyper
    beta_1: Hyper
    beta_2: Hyper
    gamma: Hyper
    epsilon: Hyper
    weight_decay: Hyper
    amsgrad: Option[bool]
    m: Slot
    v: Slot
    v_max: Slot
    previous_grad: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.003,
        beta_1: HyperValue = 0.95,
        beta_2: HyperValue = 0.99,
        gamma: HyperValue = 0.025,
        epsilon: HyperValue = 1e-08,
        weight_decay: HyperValue = 0.0,
        amsgrad: bool = False,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...
