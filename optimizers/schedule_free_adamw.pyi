# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Any, Literal

from everstep.optimizers.contract.declarations import Hyper, Option, Scalar, Slot
from everstep.optimizers.contract.definition import Definition
from everstep.optimizers.contract.types import HyperValue

class ScheduleFreeAdamW(Definition):
    learning_rate: Hyper
    beta_1: Hyper
    beta_2: Hyper
    epsilon: Hyper
    weight_decay: Hyper
    warmup_steps: Option[int]
    averaging_power: Hyper
    rate_power: Hyper
    correction_in_rate: Option[bool]
    z: Slot
    v: Slot
    greatest_rate: Scalar
    weights_sum: Scalar
    def rate(self, ops: Any, hyper: Any, t: Any) -> Any: ...
    @staticmethod
    def weight(hyper: Any, greatest: Any, t: Any) -> Any: ...
    def __init__(
        self,
        learning_rate: HyperValue = 0.0025,
        beta_1: HyperValue = 0.9,
        beta_2: HyperValue = 0.999,
        epsilon: HyperValue = 1e-08,
        weight_decay: HyperValue = 0.0,
        warmup_steps: int = 0,
        averaging_power: HyperValue = 0.0,
        rate_power: HyperValue = 2.0,
        correction_in_rate: bool = False,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...
