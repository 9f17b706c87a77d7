# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Any

from everstep.optimizers.contract.declarations import Option
from everstep.optimizers.contract.schedule_base import Schedule
from everstep.optimizers.contract.types import HyperValue

class InverseTimeDecay(Schedule):
    initial: Option[float]
    rate: Option[float]
    def __init__(self, initial: float = 0.001, rate: float = 0.0) -> None: ...

class ExponentialDecay(Schedule):
    initial: Option[float]
    decay_steps: Option[float]
    rate: Option[float]
    staircase: Option[bool]
    def __init__(
        self,
        initial: float = 0.001,
        decay_steps: float = 1.0,
        rate: float = 0.96,
        staircase: bool = False,
    ) -> None: ...

class PolynomialDecay(Schedule):
    initial: Option[float]
    decay_steps: Option[float]
    end: Option[float]
    power: Option[float]
    cycle: Option[bool]
    def __init__(
        self,
        initial: float = 0.001,
        decay_steps: float = 1.0,
        end: float = 0.0001,
        power: float = 1.0,
        cycle: bool = False,
    ) -> None: ...

class PiecewiseConstantDecay(Schedule):
    boundaries: Option[Any]
    values: Option[Any]
    def __init__(self, boundaries: Any = (), values: Any = ...) -> None: ...

class CosineDecay(Schedule):
    initial: Option[float]
    decay_steps: Option[float]
    alpha: Option[float]
    warmup_target: Option[float | None]
    warmup_steps: Option[float]
    def __init__(
        self,
        initial: float = 0.001,
        decay_steps: float = 1.0,
        alpha: float = 0.0,
        warmup_target: float | None = None,
        warmup_steps: float = 0.0,
    ) -> None: ...

class CosineDecayRestarts(Schedule):
    initial: Option[float]
    decay_steps: Option[float]
    multiplier: Option[float]
    peak: Option[float]
    alpha: Option[float]
    done: Option[int]
    def cycle(self, ops: Any, updates: Any) -> Any: ...
    def __init__(
        self,
        initial: float = 0.001,
        decay_steps: float = 1.0,
        multiplier: float = 1.0,
        peak: float = 1.0,
        alpha: float = 0.0,
        done: int = 0,
    ) -> None: ...

class Warmup(Schedule):
    of: Option[HyperValue]
    steps: Option[float]
    start: Option[float]
    shift: Option[bool]
    def __init__(
        self,
        of: HyperValue = 0.001,
        steps: float = 1.0,
        start: float = 0.0,
        shift: bool = False,
    ) -> None: ...
