# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Literal

from everstep.optimizers.contract.declarations import Hyper, Slot
from everstep.optimizers.contract.definition import Definition
from everstep.optimizers.contract.types import HyperValue

class Adadelta(Definition):
    learning_rate: Hyper
    rho: Hyper
    epsilon: Hyper
    mean_square: Slot
    mean_square_step: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        rho: HyperValue = 0.95,
        epsilon: HyperValue = 1e-07,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...
