# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Literal

from everstep.optimizers.contract.declarations import Hyper, Option, Slot
from everstep.optimizers.contract.definition import Definition
from everstep.optimizers.contract.types import HyperValue

class LARS(Definition):
    learning_rate: Hyper
    momentum: Hyper
    weight_decay: Hyper
    trust_coefficient: Hyper
    epsilon: Hyper
    nesterov: Option[bool]
    exclude_from_layer_adaptation: Option[str]
    velocity: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.01,
        momentum: HyperValue = 0.9,
        weight_decay: HyperValue = 0.0001,
        trust_coefficient: HyperValue = 0.001,
        epsilon: HyperValue = 0.0,
        nesterov: bool = False,
        exclude_from_layer_adaptation: str = "",
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...
