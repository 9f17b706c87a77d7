# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Any, Literal

from everstep.optimizers.contract.declarations import Slot
from everstep.optimizers.contract.definition import Definition

class Overwritten(Definition):
    def __init__(
        self,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class OverwrittenByMaximum(Definition):
    maximum: Slot
    def __init__(
        self,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

def overwritten(definition: Definition) -> Overwritten: ...

def is_overwritten(variable: Any) -> Any: ...

def has_stock_slots(optimizer: Any, variable: Any) -> Any: ...
