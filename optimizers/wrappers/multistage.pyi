# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Any, Literal, NamedTuple

from everstep.optimizers.contract.composite import Wrapper
from everstep.optimizers.contract.declarations import Option, Scalar, Slot
from everstep.optimizers.contract.definition import Definition

TABLEAUS: Any

class Tableau(NamedTuple):
    points: Any
    weights: Any
    error: Any
    order: Any

class Multistage(Wrapper):
    tableau: Option[Any]
    tolerance: Option[float | None]
    start: Slot
    slope_1: Slot
    slope_2: Slot
    slope_3: Slot
    slope_4: Slot
    slope_5: Slot
    slope_6: Slot
    slope_7: Slot
    slope_8: Slot
    slope_9: Slot
    slope_10: Slot
    slope_11: Slot
    slope_12: Slot
    slope_13: Slot
    slope_14: Slot
    slope_15: Slot
    size: Scalar
    used: Scalar
    def __init__(
        self,
        inner: Definition,
        tableau: Any = "heun",
        tolerance: float | None = None,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = ...,
        dense_ok: bool = ...,
    ) -> None: ...

def multistage(
    definition: Definition,
    tableau: Any = "heun",
    tolerance: float | None = None,
) -> Multistage: ...
