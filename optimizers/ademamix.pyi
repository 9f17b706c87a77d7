# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Literal

from everstep.optimizers.contract.declarations import Hyper, Option, Slot
from everstep.optimizers.contract.definition import Definition
from everstep.optimizers.contract.types import HyperValue

class AdEMAMix(Definition):
    learning_rate: Hyper
    beta_1: Hyper
    beta_2: Hyper
    beta_3: Hyper
    alpha: Hyper
    epsilon: Hyper
    weight_decay: Hyper
    alpha_warmup: Option[int]
    beta_3_warmup: Option[int]
    m: Slot
    v: Slot
    slow: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        beta_1: HyperValue = 0.9,
        beta_2: HyperValue = 0.999,
        beta_3: HyperValue = 0.9999,
        alpha: HyperValue = 2.0,
        epsilon: HyperValue = 1e-08,
        weight_decay: HyperValue = 0.0,
        alpha_warmup: int = 0,
        beta_3_warmup: int = 0,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...
