# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Any, Literal

from everstep.optimizers.contract.declarations import Hyper, Option, Scalar, Slot
from everstep.optimizers.contract.definition import Definition
from everstep.optimizers.contract.types import HyperValue

class RAdam(Definition):
    learning_rate: Hyper
    beta_1: Hyper
    beta_2: Hyper
    epsilon: Hyper
    weight_decay: Hyper
    amsgrad: Option[bool]
    sma_threshold: Hyper
    corrected_root: Option[bool]
    m: Slot
    v: Slot
    v_hat: Slot
    weights_sum: Scalar
    ages_sum: Scalar
    def second_moment(self, grad: Any, m: Any, v: Any, hyper: Any) -> Any: ...
    def direction(self, ops: Any, m_hat: Any, root: Any, hyper: Any) -> Any: ...
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        beta_1: HyperValue = 0.9,
        beta_2: HyperValue = 0.999,
        epsilon: HyperValue = 1e-07,
        weight_decay: HyperValue = 0.0,
        amsgrad: bool = False,
        sma_threshold: HyperValue = 5.0,
        corrected_root: bool = True,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...
