# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Any, Literal

from everstep.optimizers.contract.by_name import ByName
from everstep.optimizers.contract.composite import Wrapper
from everstep.optimizers.contract.declarations import Hyper, Option
from everstep.optimizers.contract.definition import Definition
from everstep.optimizers.contract.types import HyperValue

class DecoupledWeightDecay(ByName, Wrapper):
    weight_decay: Hyper
    times_rate: Option[bool]
    base_rate: Option[float]
    l1: Option[float]
    factors: Option[Any]
    otherwise: Option[float]
    beside: Option[bool]
    def scale(self, hyper: Any) -> Any: ...
    def __init__(
        self,
        inner: Definition,
        weight_decay: HyperValue = 0.004,
        times_rate: bool = True,
        base_rate: float = 1.0,
        l1: float = 0.0,
        factors: Any = (),
        otherwise: float = 1.0,
        beside: bool = False,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = ...,
        dense_ok: bool = ...,
    ) -> None: ...

def decoupled_weight_decay(
    definition: Definition,
    weight_decay: HyperValue = 0.004,
    times_rate: bool = True,
    base_rate: float = 1.0,
    l1: float = 0.0,
    include: Any = None,
    exclude: Any = None,
    beside: bool = False,
) -> DecoupledWeightDecay: ...
