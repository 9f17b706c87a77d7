# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Any, Literal

from everstep.optimizers.contract.declarations import Hyper, Option, Slot
from everstep.optimizers.contract.definition import Definition
from everstep.optimizers.contract.types import HyperValue

class Muon(Definition):
    learning_rate: Hyper
    momentum: Hyper
    weight_decay: Hyper
    adam_beta_1: Hyper
    adam_beta_2: Hyper
    epsilon: Hyper
    adam_weight_decay: Hyper
    adam_rate_ratio: Hyper
    nesterov: Option[bool]
    ns_steps: Option[int]
    ns_a: Option[float]
    ns_b: Option[float]
    ns_c: Option[float]
    rms_rate: Option[float]
    original_scale: Option[bool]
    exclude: Option[Any]
    exclude_embeddings: Option[bool]
    uses_adam: Option[bool]
    m: Slot
    v: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        momentum: HyperValue = 0.95,
        weight_decay: HyperValue = 0.004,
        adam_beta_1: HyperValue = 0.9,
        adam_beta_2: HyperValue = 0.999,
        epsilon: HyperValue = 1e-07,
        adam_weight_decay: HyperValue = 0.004,
        adam_rate_ratio: HyperValue = 1.0,
        nesterov: bool = True,
        ns_steps: int = 5,
        ns_a: float = 3.4445,
        ns_b: float = -4.775,
        ns_c: float = 2.0315,
        rms_rate: float = 0.2,
        original_scale: bool = False,
        exclude: Any = (),
        exclude_embeddings: bool = True,
        uses_adam: bool = True,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...
