# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Literal

from everstep.optimizers.contract.composite import Wrapper
from everstep.optimizers.contract.declarations import Option
from everstep.optimizers.contract.definition import Definition

class Centralize(Wrapper):
    minimum_rank: Option[int]
    centers: Option[bool]
    def __init__(
        self,
        inner: Definition,
        minimum_rank: int = 2,
        centers: bool = True,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = ...,
        dense_ok: bool = ...,
    ) -> None: ...

def centralize(definition: Definition, minimum_rank: int = 2) -> Centralize: ...
