# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Literal

from everstep.optimizers.contract.composite import Wrapper
from everstep.optimizers.contract.definition import Definition

class Undecayed(Wrapper):
    def __init__(
        self,
        inner: Definition,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = ...,
        dense_ok: bool = ...,
    ) -> None: ...

def undecayed(definition: Definition) -> Undecayed: ...
