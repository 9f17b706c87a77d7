# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Literal

from everstep.optimizers.contract.declarations import Hyper, Option
from everstep.optimizers.contract.types import HyperValue
from everstep.optimizers.radam import RAdam

class AdaBelief(RAdam):
    epsilon: Hyper
    rectify: Option[bool]
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        beta_1: HyperValue = 0.9,
        beta_2: HyperValue = 0.999,
        epsilon: HyperValue = 1e-14,
        weight_decay: HyperValue = 0.0,
        amsgrad: bool = False,
        sma_threshold: HyperValue = 5.0,
        corrected_root: bool = True,
        rectify: bool = True,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...
