# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Literal

from everstep.optimizers.contract.composite import Wrapper
from everstep.optimizers.contract.declarations import Option
from everstep.optimizers.contract.definition import Definition

class Clip(Wrapper):
    norm: Option[float | None]
    global_norm: Option[float | None]
    value: Option[float | None]
    value_first: Option[bool]
    def __init__(
        self,
        inner: Definition,
        norm: float | None = None,
        global_norm: float | None = None,
        value: float | None = None,
        value_first: bool = False,
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
) -> Clip: ...
