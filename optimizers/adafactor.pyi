# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Literal

from everstep.optimizers.contract.declarations import Hyper, Option, Slot
from everstep.optimizers.contract.definition import Definition
from everstep.optimizers.contract.types import HyperValue

class Adafactor(Definition):
    learning_rate: Hyper
    beta_2_decay: Hyper
    epsilon_1: Hyper
    epsilon_2: Hyper
    clip_threshold: Hyper
    relative_step: Option[bool]
    scale_parameter: Option[bool]
    factored: Option[bool]
    rows: Slot
    columns: Slot
    v: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        beta_2_decay: HyperValue = -0.8,
        epsilon_1: HyperValue = 1e-30,
        epsilon_2: HyperValue = 0.001,
        clip_threshold: HyperValue = 1.0,
        relative_step: bool = True,
        scale_parameter: bool = True,
        factored: bool = True,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...
