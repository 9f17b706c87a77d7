# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Literal

from everstep.optimizers.contract.declarations import Hyper, Option, Slot
from everstep.optimizers.contract.definition import Definition
from everstep.optimizers.contract.types import HyperValue

class Adam(Definition):
    learning_rate: Hyper
    beta_1: Hyper
    beta_2: Hyper
    epsilon: Hyper
    amsgrad: Option[bool]
    bias_correction: Option[bool]
    m: Slot
    v: Slot
    v_hat: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        beta_1: HyperValue = 0.9,
        beta_2: HyperValue = 0.999,
        epsilon: HyperValue = 1e-07,
        amsgrad: bool = False,
        bias_correction: bool = True,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...
