# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Literal

from everstep.optimizers.contract.declarations import Hyper, Option, Scalar, Slot
from everstep.optimizers.contract.definition import Definition
from everstep.optimizers.contract.types import HyperValue

class Prodigy(Definition):
    learning_rate: Hyper
    beta_1: Hyper
    beta_2: Hyper
    beta_3: Option[float | None]
    epsilon: Hyper
    weight_decay: Hyper
    d0: Option[float]
    d_coef: Hyper
    growth_rate: Option[float | None]
    bias_correction: Option[bool]
    safeguard_warmup: Option[bool]
    m: Slot
    v: Slot
    s: Slot
    start: Slot
    growth: Scalar
    growth_before: Scalar
    greatest: Scalar
    numerator: Scalar
    denominator: Scalar
    def __init__(
        self,
        learning_rate: HyperValue = 1.0,
        beta_1: HyperValue = 0.9,
        beta_2: HyperValue = 0.999,
        beta_3: float | None = None,
        epsilon: HyperValue = 1e-08,
        weight_decay: HyperValue = 0.0,
        d0: float = 1e-06,
        d_coef: HyperValue = 1.0,
        growth_rate: float | None = None,
        bias_correction: bool = False,
        safeguard_warmup: bool = False,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...
