# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Literal

from everstep.optimizers.contract.declarations import Hyper, Option, Slot
from everstep.optimizers.contract.definition import Definition
from everstep.optimizers.contract.types import HyperValue

class RMSprop(Definition):
    learning_rate: Hyper
    rho: Hyper
    momentum: Hyper
    epsilon: Hyper
    centered: Option[bool]
    epsilon_in_root: Option[Literal[None, False, True]]
    initial_mean_square: Option[float]
    mean_square: Slot
    mean_grad: Slot
    velocity: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        rho: HyperValue = 0.9,
        momentum: HyperValue = 0.0,
        epsilon: HyperValue = 1e-07,
        centered: bool = False,
        epsilon_in_root: Literal[None, False, True] = None,
        initial_mean_square: float = 0.0,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...
