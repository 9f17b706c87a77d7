# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Literal

from everstep.optimizers.adam import Adam
from everstep.optimizers.contract.declarations import Hyper, Option
from everstep.optimizers.contract.decoupled import Decoupled
from everstep.optimizers.contract.types import HyperValue

class AdamW(Decoupled, Adam):
    weight_decay: Hyper
    decay_times_rate: Option[bool]
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        beta_1: HyperValue = 0.9,
        beta_2: HyperValue = 0.999,
        epsilon: HyperValue = 1e-07,
        amsgrad: bool = False,
        bias_correction: bool = True,
        weight_decay: HyperValue = 0.004,
        decay_times_rate: bool = True,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...
