# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Literal

from everstep.optimizers.contract.composite import Wrapper
from everstep.optimizers.contract.declarations import Option
from everstep.optimizers.contract.definition import Definition

class Cautious(Wrapper):
    xi: Option[float]
    def __init__(
        self,
        inner: Definition,
        xi: float = 0.001,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = ...,
        dense_ok: bool = ...,
    ) -> None: ...

def cautious(definition: Definition, xi: float = 0.001) -> Cautious: ...
