# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Literal

from everstep.optimizers.contract.declarations import Hyper
from everstep.optimizers.contract.definition import Definition
from everstep.optimizers.contract.types import HyperValue

class ConditionalGradient(Definition):
    learning_rate: Hyper
    lambda_: Hyper
    epsilon: Hyper
    def __init__(
        self,
        learning_rate: HyperValue = 0.99,
        lambda_: HyperValue = 0.01,
        epsilon: HyperValue = 1e-07,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...
