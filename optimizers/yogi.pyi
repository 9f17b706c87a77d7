# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Literal

from everstep.optimizers.contract.declarations import Hyper, Option, Slot
from everstep.optimizers.contract.definition import Definition
from everstep.optimizers.contract.types import HyperValue

class Yogi(Definition):
    learning_rate: Hyper
    beta_1: Hyper
    beta_2: Hyper
    epsilon: Hyper
    l1: Hyper
    l2: Hyper
    initial_accumulator_value: Option[float]
    activation: Option[Literal["sign", "tanh"]]
    m: Slot
    v: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.01,
        beta_1: HyperValue = 0.9,
        beta_2: HyperValue = 0.999,
        epsilon: HyperValue = 0.001,
        l1: HyperValue = 0.0,
        l2: HyperValue = 0.0,
        initial_accumulator_value: float = 1e-06,
        activation: Literal["sign", "tanh"] = "sign",
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...
