# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Literal

from everstep.optimizers.contract.declarations import Hyper, Option
from everstep.optimizers.contract.decoupled import Decoupled
from everstep.optimizers.contract.types import HyperValue
from everstep.optimizers.sgd import SGD

class SGDW(Decoupled, SGD):
    weight_decay: Hyper
    decay_times_rate: Option[bool]
    def __init__(
        self,
        learning_rate: HyperValue = 0.01,
        momentum: HyperValue = 0.0,
        nesterov: bool = False,
        rate_in_velocity: bool = True,
        weight_decay: HyperValue = 0.004,
        decay_times_rate: bool = True,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...
