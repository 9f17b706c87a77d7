# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Literal

from everstep.optimizers.contract.composite import Wrapper
from everstep.optimizers.contract.declarations import Hyper, Option, Slot
from everstep.optimizers.contract.definition import Definition
from everstep.optimizers.contract.types import HyperValue

class Lookahead(Wrapper):
    sync_period: Option[int]
    slow_step_size: Hyper
    slow: Slot
    def __init__(
        self,
        inner: Definition,
        sync_period: int = 6,
        slow_step_size: HyperValue = 0.5,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = ...,
        dense_ok: bool = ...,
    ) -> None: ...

def lookahead(
    definition: Definition,
    sync_period: int = 6,
    slow_step_size: HyperValue = 0.5,
) -> Lookahead: ...
