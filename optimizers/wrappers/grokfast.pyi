# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Literal

from everstep.optimizers.contract.composite import Wrapper
from everstep.optimizers.contract.declarations import Hyper, Slot
from everstep.optimizers.contract.definition import Definition
from everstep.optimizers.contract.types import HyperValue

class Grokfast(Wrapper):
    average_decay: Hyper
    factor: Hyper
    average: Slot
    def __init__(
        self,
        inner: Definition,
        average_decay: HyperValue = 0.98,
        factor: HyperValue = 2.0,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = ...,
        dense_ok: bool = ...,
    ) -> None: ...

def grokfast(
    definition: Definition,
    average_decay: HyperValue = 0.98,
    factor: HyperValue = 2.0,
) -> Grokfast: ...
