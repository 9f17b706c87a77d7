# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Any, Literal

from everstep.optimizers.contract.declarations import Hyper, Option, Scalar, Slot
from everstep.optimizers.contract.definition import Definition
from everstep.optimizers.contract.types import HyperValue

class Nadam(Definition):
    learning_rate: Hyper
    beta_1: Hyper
    beta_2: Hyper
    epsilon: Hyper
    momentum_decay: Hyper
    momentum_schedule: Option[bool]
    m: Slot
    v: Slot
    momentum_product: Scalar
    @staticmethod
    def scheduled(hyper: Any, t: Any) -> Any: ...
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        beta_1: HyperValue = 0.9,
        beta_2: HyperValue = 0.999,
        epsilon: HyperValue = 1e-07,
        momentum_decay: HyperValue = 0.004,
        momentum_schedule: bool = True,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...
