# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Literal

from everstep.optimizers.contract.declarations import Hyper
from everstep.optimizers.contract.definition import Definition
from everstep.optimizers.contract.types import HyperValue

class ProximalGradientDescent(Definition):
    learning_rate: Hyper
    l1: Hyper
    l2: Hyper
    def __init__(
        self,
        learning_rate: HyperValue = 0.01,
        l1: HyperValue = 0.0,
        l2: HyperValue = 0.0,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...
