# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Any, Literal

from everstep.optimizers.contract.composite import Composite
from everstep.optimizers.contract.declarations import Option
from everstep.optimizers.contract.definition import Definition

DEFAULT: str

class Partition(Composite):
    rules: Option[Any]
    chosen: Option[Any]
    settings: Any
    def branch_of(self, variable: Any) -> Any: ...
    def __init__(
        self,
        rules: Any = (),
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = ...,
        dense_ok: bool = ...,
        chosen: Any = None,
        **branches: Definition,
    ) -> None: ...

def partition(rules: Any, default: Any = None) -> Partition: ...
