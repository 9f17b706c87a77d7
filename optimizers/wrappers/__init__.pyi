# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Any, Literal

from everstep.optimizers.contract.composite import Composite, Wrapper
from everstep.optimizers.contract.declarations import Hyper, Option, Scalar, Slot
from everstep.optimizers.contract.definition import Definition
from everstep.optimizers.contract.schedule_base import Schedule
from everstep.optimizers.contract.types import HyperValue

class Accumulate(Wrapper):
    steps: Option[int | Schedule]
    reduction: Option[Literal["mean", "sum"]]
    sum: Slot
    def __init__(
        self,
        inner: Definition,
        steps: int | Schedule = 1,
        reduction: Literal["mean", "sum"] = "mean",
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = ...,
        dense_ok: bool = ...,
    ) -> None: ...

class Cautious(Wrapper):
    xi: Option[float | Schedule]
    def __init__(
        self,
        inner: Definition,
        xi: float | Schedule = 0.001,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = ...,
        dense_ok: bool = ...,
    ) -> None: ...

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

class Clip(Wrapper):
    norm: Option[float | None | Schedule]
    global_norm: Option[float | None | Schedule]
    value: Option[float | None | Schedule]
    value_first: Option[bool]
    unit_norm: Option[float | None | Schedule]
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
        norm: float | None | Schedule = None,
        global_norm: float | None | Schedule = None,
        value: float | None | Schedule = None,
        value_first: bool = False,
        unit_norm: float | None | Schedule = None,
        percentile: float | None = None,
        axes: Any = ...,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = ...,
        dense_ok: bool = ...,
    ) -> None: ...

class DecoupledWeightDecay(Wrapper):
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

class GradientNoise(Wrapper):
    eta: Hyper
    gamma: Hyper
    seed: Option[int]
    variable: Option[str]
    def __init__(
        self,
        inner: Definition,
        eta: HyperValue = 0.01,
        gamma: HyperValue = 0.55,
        seed: int = 0,
        variable: str = "",
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = ...,
        dense_ok: bool = ...,
    ) -> None: ...

class Grokfast(Wrapper):
    average_decay: Hyper
    factor: Hyper
    average: Slot
    def __init__(
        self,
        inner: Definition,
        average_decay: HyperValue = 0.98,
        factor: HyperValue = 2.0,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = ...,
        dense_ok: bool = ...,
    ) -> None: ...

class L2Penalty(Wrapper):
    weight_decay: Hyper
    def __init__(
        self,
        inner: Definition,
        weight_decay: HyperValue = 0.0,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = ...,
        dense_ok: bool = ...,
    ) -> None: ...

class LearningRateMultipliers(Wrapper):
    factors: Option[Any]
    otherwise: Option[float]
    def __init__(
        self,
        inner: Definition,
        factors: Any = (),
        otherwise: float = 1.0,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = ...,
        dense_ok: bool = ...,
    ) -> None: ...

class Lookahead(Wrapper):
    sync_period: Option[int]
    slow_step_size: Hyper
    slow: Slot
    def __init__(
        self,
        inner: Definition,
        sync_period: int = 6,
        slow_step_size: HyperValue = 0.5,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = ...,
        dense_ok: bool = ...,
    ) -> None: ...

class LossScale(Wrapper):
    initial_scale: Option[float]
    growth_interval: Option[int]
    growth: Option[float]
    backoff: Option[float]
    factor: Scalar
    finite: Scalar
    used: Scalar
    def __init__(
        self,
        inner: Definition,
        initial_scale: float = 32768.0,
        growth_interval: int = 2000,
        growth: float = 2.0,
        backoff: float = 0.5,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = ...,
        dense_ok: bool = ...,
    ) -> None: ...

class MasterCopies(Wrapper):
    stored: Option[str]
    value: Slot
    def __init__(
        self,
        inner: Definition,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = ...,
        dense_ok: bool = ...,
        stored: str = "",
    ) -> None: ...

class MovingAverage(Wrapper):
    average_decay: Hyper
    warm_up: Option[Literal["none", "ramp", "zero_debias"]]
    start: Option[int]
    overwrite_every: Option[int]
    average: Slot
    def __init__(
        self,
        inner: Definition,
        average_decay: HyperValue = 0.99,
        warm_up: Literal["none", "ramp", "zero_debias"] = "none",
        start: int = 0,
        overwrite_every: int = 0,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = ...,
        dense_ok: bool = ...,
    ) -> None: ...

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

class Partition(Composite):
    rules: Option[Any]
    chosen: Option[Any]
    starts: Option[Any]
    settings: Any
    def branch_of(self, variable: Any) -> Any: ...
    def __init__(
        self,
        rules: Any = (),
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = ...,
        dense_ok: bool = ...,
        chosen: Any = None,
        starts: Any = (),
        **branches: Definition,
    ) -> None: ...

class RateDecay(Wrapper):
    rate: Hyper
    def __init__(
        self,
        inner: Definition,
        rate: HyperValue = 0.0,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = ...,
        dense_ok: bool = ...,
    ) -> None: ...

class SharpnessAware(Wrapper):
    rho: Hyper
    adaptive: Option[bool]
    eta: Option[float | Schedule]
    start: Slot
    def __init__(
        self,
        inner: Definition,
        rho: HyperValue = 0.05,
        adaptive: bool = False,
        eta: float | Schedule = 0.01,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = ...,
        dense_ok: bool = ...,
    ) -> None: ...

class StochasticWeightAveraging(Wrapper):
    start: Option[int]
    period: Option[int]
    average: Slot
    def __init__(
        self,
        inner: Definition,
        start: int = 0,
        period: int = 10,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = ...,
        dense_ok: bool = ...,
    ) -> None: ...

def accumulate(
    definition: Definition,
    steps: int | Schedule,
    reduction: Literal["mean", "sum"] = "mean",
) -> Accumulate: ...

def cautious(definition: Definition, xi: float | Schedule = 0.001) -> Cautious: ...

def centralize(definition: Definition, minimum_rank: int = 2) -> Centralize: ...

def clip(
    definition: Definition,
    norm: float | None | Schedule = None,
    global_norm: float | None | Schedule = None,
    value: float | None | Schedule = None,
    value_first: bool = False,
    unit_norm: float | None | Schedule = None,
    percentile: float | None = None,
) -> Clip: ...

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

def gradient_noise(
    definition: Definition,
    eta: HyperValue = 0.01,
    gamma: HyperValue = 0.55,
    seed: int = 0,
) -> GradientNoise: ...

def grokfast(
    definition: Definition,
    average_decay: HyperValue = 0.98,
    factor: HyperValue = 2.0,
) -> Grokfast: ...

def l2_penalty(definition: Definition, weight_decay: HyperValue = 0.0) -> L2Penalty: ...

def learning_rate_multipliers(
    definition: Definition,
    factors: Any,
    otherwise: float = 1.0,
) -> LearningRateMultipliers: ...

def lookahead(
    definition: Definition,
    sync_period: int = 6,
    slow_step_size: HyperValue = 0.5,
) -> Lookahead: ...

def loss_scale(
    definition: Definition,
    initial_scale: float = 32768.0,
    growth_interval: int = 2000,
    growth: float = 2.0,
    backoff: float = 0.5,
) -> LossScale: ...

def master_copies(definition: Definition) -> MasterCopies: ...

def moving_average(
    definition: Definition,
    average_decay: HyperValue = 0.99,
    warm_up: Literal["none", "ramp", "zero_debias"] = "none",
    start: int = 0,
    overwrite_every: int = 0,
) -> MovingAverage: ...

def multistage(
    definition: Definition,
    tableau: Any = "heun",
    tolerance: float | None = None,
) -> Multistage: ...

def partition(rules: Any, default: Any = None, starts: Any = ()) -> Partition: ...

def rate_decay(definition: Definition, rate: HyperValue) -> RateDecay: ...

def sharpness_aware(
    definition: Definition,
    rho: HyperValue = 0.05,
    adaptive: bool = False,
    eta: float | Schedule = 0.01,
) -> SharpnessAware: ...

def stochastic_weight_averaging(
    definition: Definition,
    start: int = 0,
    period: int = 10,
) -> StochasticWeightAveraging: ...

__all__ = [
    "Accumulate",
    "Cautious",
    "Centralize",
    "Clip",
    "DecoupledWeightDecay",
    "GradientNoise",
    "Grokfast",
    "L2Penalty",
    "LearningRateMultipliers",
    "Lookahead",
    "LossScale",
    "MasterCopies",
    "MovingAverage",
    "Multistage",
    "Partition",
    "RateDecay",
    "SharpnessAware",
    "StochasticWeightAveraging",
    "accumulate",
    "cautious",
    "centralize",
    "clip",
    "decoupled_weight_decay",
    "gradient_noise",
    "grokfast",
    "l2_penalty",
    "learning_rate_multipliers",
    "lookahead",
    "loss_scale",
    "master_copies",
    "moving_average",
    "multistage",
    "partition",
    "rate_decay",
    "sharpness_aware",
    "stochastic_weight_averaging",
]
