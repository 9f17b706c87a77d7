# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Any, Literal

from everstep.optimizers.contract.composite import Wrapper
from everstep.optimizers.contract.declarations import Option, Scalar
from everstep.optimizers.contract.definition import Definition

class Clip(Wrapper):
    norm: Option[float | None]
    global_norm: Option[float | None]
    value: Option[float | None]
    value_first: Option[bool]
    unit_norm: Option[float | None]
    percentile: Option[float | None]
    axes: Option[Any]
    height_1: Scalar
    height_2: Scalar
    height_3: Scalar
    height_4: Scalar
    height_5: Scalar
    place_2: Scalar
    place_3: Scalar
    place_4: Scalar
    seen: Scalar
    def __init__(
        self,
        inner: Definition,
        norm: float | None = None,
        global_norm: float | None = None,
        value: float | None = None,
        value_first: bool = False,
        unit_norm: float | None = None,
        percentile: float | None = None,
        axes: Any = ...,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = ...,
        dense_ok: bool = ...,
    ) -> None: ...

def clip(
    definition: Definition,
    norm: float | None = None,
    global_norm: float | None = None,
    value: float | None = None,
    value_first: bool = False,
    unit_norm: float | None = None,
    percentile: float | None = None,
) -> Clip: ...
