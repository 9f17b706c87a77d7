# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Literal

from everstep.optimizers.contract.declarations import Hyper, Option, Slot
from everstep.optimizers.contract.definition import Definition
from everstep.optimizers.contract.types import HyperValue

class SGD(Definition):
    learning_rate: Hyper
    momentum: Hyper
    nesterov: Option[bool]
    rate_in_velocity: Option[bool]
    velocity: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.01,
        momentum: HyperValue = 0.0,
        nesterov: bool = False,
        rate_in_velocity: bool = True,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...
