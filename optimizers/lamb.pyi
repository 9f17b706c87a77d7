# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Literal

from everstep.optimizers.contract.declarations import Hyper, Option, Slot
from everstep.optimizers.contract.definition import Definition
from everstep.optimizers.contract.types import HyperValue

class LAMB(Definition):
    learning_rate: Hyper
    beta_1: Hyper
    beta_2: Hyper
    epsilon: Hyper
    weight_decay: Hyper
    exclude_from_weight_decay: Option[str]
    exclude_from_layer_adaptation: Option[str]
    m: Slot
    v: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        beta_1: HyperValue = 0.9,
        beta_2: HyperValue = 0.999,
        epsilon: HyperValue = 1e-06,
        weight_decay: HyperValue = 0.0,
        exclude_from_weight_decay: str = "",
        exclude_from_layer_adaptation: str = "",
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...
