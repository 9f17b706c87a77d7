# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Literal

from everstep.optimizers.contract.declarations import Option
from everstep.optimizers.contract.schedule_base import Schedule
from everstep.optimizers.contract.types import HyperValue

class OneCycle(Schedule):
    peak: Option[float]
    steps: Option[float]
    rise: Option[float | None]
    start_divisor: Option[float]
    end_divisor: Option[float]
    shape: Option[Literal["cosine", "linear"]]
    three_phases: Option[bool]
    def __init__(
        self,
        peak: float = 0.001,
        steps: float = 1.0,
        rise: float | None = None,
        start_divisor: float = 25.0,
        end_divisor: float = 10000.0,
        shape: Literal["cosine", "linear"] = "cosine",
        three_phases: bool = False,
    ) -> None: ...

class Cyclical(Schedule):
    low: Option[float]
    high: Option[float]
    rise: Option[float]
    fall: Option[float | None]
    mode: Option[Literal["triangular", "triangular2", "exp_range"]]
    rate: Option[float]
    def __init__(
        self,
        low: float = 0.0001,
        high: float = 0.001,
        rise: float = 2000.0,
        fall: float | None = None,
        mode: Literal["triangular", "triangular2", "exp_range"] = "triangular",
        rate: float = 1.0,
    ) -> None: ...

class Noam(Schedule):
    factor: Option[float]
    model_size: Option[float]
    warmup: Option[float]
    def __init__(self, factor: float = 1.0, model_size: float = 512.0, warmup: float = 4000.0) -> None: ...

class InverseSquareRoot(Schedule):
    initial: Option[float]
    steps: Option[float]
    def __init__(self, initial: float = 0.001, steps: float = 10000.0) -> None: ...

class WarmupStableDecay(Schedule):
    peak: Option[float]
    warmup: Option[float]
    stable: Option[float]
    fall: Option[float]
    start: Option[float]
    end: Option[float]
    shape: Option[Literal["linear", "cosine", "sqrt"]]
    def __init__(
        self,
        peak: float = 0.001,
        warmup: float = 0.0,
        stable: float = 0.0,
        fall: float = 1.0,
        start: float = 0.0,
        end: float = 0.0,
        shape: Literal["linear", "cosine", "sqrt"] = "linear",
    ) -> None: ...

class Hold(Schedule):
    of: Option[HyperValue]
    after: Option[float]
    def __init__(self, of: HyperValue = 0.001, after: float = 1.0) -> None: ...
