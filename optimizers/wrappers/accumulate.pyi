# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Literal

from everstep.optimizers.contract.composite import Wrapper
from everstep.optimizers.contract.declarations import Option, Slot
from everstep.optimizers.contract.definition import Definition
from everstep.optimizers.contract.schedule import Schedule

class Accumulate(Wrapper):
    steps: Option[int | Schedule]
    reduction: Option[Literal["mean", "sum"]]
    sum: Slot
    def __init__(
        self,
        inner: Definition,
        steps: int | Schedule = 1,
        reduction: Literal["mean", "sum"] = "mean",
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = ...,
        dense_ok: bool = ...,
    ) -> None: ...

def accumulate(
    definition: Definition,
    steps: int | Schedule,
    reduction: Literal["mean", "sum"] = "mean",
) -> Accumulate: ...
