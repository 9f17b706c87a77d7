# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from typing import Any, Literal

from everstep.optimizers.contract.declarations import Hyper, Option, Scalar, Slot
from everstep.optimizers.contract.definition import Definition
from everstep.optimizers.contract.types import HyperValue
from everstep.optimizers.wrappers import Accumulate as Accumulate
from everstep.optimizers.wrappers import Cautious as Cautious
from everstep.optimizers.wrappers import Centralize as Centralize
from everstep.optimizers.wrappers import Clip as Clip
from everstep.optimizers.wrappers import DecoupledWeightDecay as DecoupledWeightDecay
from everstep.optimizers.wrappers import GradientNoise as GradientNoise
from everstep.optimizers.wrappers import Grokfast as Grokfast
from everstep.optimizers.wrappers import L2Penalty as L2Penalty
from everstep.optimizers.wrappers import LearningRateMultipliers as LearningRateMultipliers
from everstep.optimizers.wrappers import Lookahead as Lookahead
from everstep.optimizers.wrappers import LossScale as LossScale
from everstep.optimizers.wrappers import MasterCopies as MasterCopies
from everstep.optimizers.wrappers import MovingAverage as MovingAverage
from everstep.optimizers.wrappers import Multistage as Multistage
from everstep.optimizers.wrappers import Partition as Partition
from everstep.optimizers.wrappers import RateDecay as RateDecay
from everstep.optimizers.wrappers import SharpnessAware as SharpnessAware
from everstep.optimizers.wrappers import StochasticWeightAveraging as StochasticWeightAveraging

class AdaBelief(RAdam):
    epsilon: Hyper
    rectify: Option[bool]
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        beta_1: HyperValue = 0.9,
        beta_2: HyperValue = 0.999,
        epsilon: HyperValue = 1e-14,
        weight_decay: HyperValue = 0.0,
        amsgrad: bool = False,
        sma_threshold: HyperValue = 5.0,
        corrected_root: bool = True,
        rectify: bool = True,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class AdaBound(Definition):
    learning_rate: Hyper
    beta_1: Hyper
    beta_2: Hyper
    epsilon: Hyper
    final_rate: Hyper
    gamma: Hyper
    amsgrad: Option[bool]
    m: Slot
    v: Slot
    v_hat: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        beta_1: HyperValue = 0.9,
        beta_2: HyperValue = 0.999,
        epsilon: HyperValue = 1e-08,
        final_rate: HyperValue = 0.1,
        gamma: HyperValue = 0.001,
        amsgrad: bool = False,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class Adadelta(Definition):
    learning_rate: Hyper
    rho: Hyper
    epsilon: Hyper
    mean_square: Slot
    mean_square_step: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        rho: HyperValue = 0.95,
        epsilon: HyperValue = 1e-07,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class Adafactor(Definition):
    learning_rate: Hyper
    beta_2_decay: Hyper
    epsilon_1: Hyper
    epsilon_2: Hyper
    clip_threshold: Hyper
    relative_step: Option[bool]
    scale_parameter: Option[bool]
    factored: Option[bool]
    epsilon_floor: Option[bool]
    variable_dtype: Option[str]
    rows: Slot
    columns: Slot
    v: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        beta_2_decay: HyperValue = -0.8,
        epsilon_1: HyperValue = 1e-30,
        epsilon_2: HyperValue = 0.001,
        clip_threshold: HyperValue = 1.0,
        relative_step: bool = True,
        scale_parameter: bool = True,
        factored: bool = True,
        epsilon_floor: bool = False,
        variable_dtype: str = "float32",
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class Adagrad(Definition):
    learning_rate: Hyper
    initial_accumulator_value: Option[float]
    epsilon: Hyper
    epsilon_in_root: Option[bool]
    accumulator: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        initial_accumulator_value: float = 0.1,
        epsilon: HyperValue = 1e-07,
        epsilon_in_root: bool = False,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class AdagradDA(Definition):
    learning_rate: Hyper
    initial_accumulator_value: Option[float]
    l1: Hyper
    l2: Hyper
    gradient_sum: Slot
    accumulator: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        initial_accumulator_value: float = 0.1,
        l1: HyperValue = 0.0,
        l2: HyperValue = 0.0,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class AdagradDecay(Definition):
    learning_rate: Hyper
    decay_rate: Hyper
    decay_steps: Option[int]
    initial_accumulator_value: Option[float]
    accumulator: Slot
    decays: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        decay_rate: HyperValue = 0.9,
        decay_steps: int = 100000,
        initial_accumulator_value: float = 0.1,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class Adam(Definition):
    learning_rate: Hyper
    beta_1: Hyper
    beta_2: Hyper
    epsilon: Hyper
    amsgrad: Option[bool]
    bias_correction: Option[bool]
    corrected_root: Option[bool]
    m: Slot
    v: Slot
    v_hat: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        beta_1: HyperValue = 0.9,
        beta_2: HyperValue = 0.999,
        epsilon: HyperValue = 1e-07,
        amsgrad: bool = False,
        bias_correction: bool = True,
        *,
        corrected_root: bool = False,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class AdamMini(Definition):
    learning_rate: Hyper
    beta_1: Hyper
    beta_2: Hyper
    epsilon: Hyper
    weight_decay: Hyper
    block: Option[Literal["output", "row", "column", "head", "variable"]]
    m: Slot
    v_output: Slot
    v_row: Slot
    v_column: Slot
    v_head: Slot
    v_variable: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        beta_1: HyperValue = 0.9,
        beta_2: HyperValue = 0.999,
        epsilon: HyperValue = 1e-08,
        weight_decay: HyperValue = 0.0,
        block: Literal["output", "row", "column", "head", "variable"] = "output",
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class Adamax(Definition):
    learning_rate: Hyper
    beta_1: Hyper
    beta_2: Hyper
    epsilon: Hyper
    epsilon_in_norm: Option[bool]
    m: Slot
    u: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        beta_1: HyperValue = 0.9,
        beta_2: HyperValue = 0.999,
        epsilon: HyperValue = 1e-07,
        epsilon_in_norm: bool = False,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class AdaMod(Definition):
    learning_rate: Hyper
    beta_1: Hyper
    beta_2: Hyper
    beta_3: Hyper
    epsilon: Hyper
    weight_decay: Hyper
    m: Slot
    v: Slot
    average_rate: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        beta_1: HyperValue = 0.9,
        beta_2: HyperValue = 0.999,
        beta_3: HyperValue = 0.999,
        epsilon: HyperValue = 1e-08,
        weight_decay: HyperValue = 0.0,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class AdamW(Adam):
    weight_decay: Hyper
    decay_times_rate: Option[bool]
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        beta_1: HyperValue = 0.9,
        beta_2: HyperValue = 0.999,
        epsilon: HyperValue = 1e-07,
        amsgrad: bool = False,
        bias_correction: bool = True,
        weight_decay: HyperValue = 0.004,
        decay_times_rate: bool = True,
        *,
        corrected_root: bool = False,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class Adan(Definition):
    learning_rate: Hyper
    beta_1: Hyper
    beta_2: Hyper
    beta_3: Hyper
    epsilon: Hyper
    weight_decay: Hyper
    proximal: Option[bool]
    m: Slot
    d: Slot
    v: Slot
    previous_grad: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        beta_1: HyperValue = 0.98,
        beta_2: HyperValue = 0.92,
        beta_3: HyperValue = 0.99,
        epsilon: HyperValue = 1e-08,
        weight_decay: HyperValue = 0.0,
        proximal: bool = True,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class AddSign(Definition):
    learning_rate: Hyper
    alpha: Hyper
    beta: Hyper
    sign_decay: Hyper
    m: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.1,
        alpha: HyperValue = 1.0,
        beta: HyperValue = 0.9,
        sign_decay: HyperValue = 1.0,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class AdEMAMix(Definition):
    learning_rate: Hyper
    beta_1: Hyper
    beta_2: Hyper
    beta_3: Hyper
    alpha: Hyper
    epsilon: Hyper
    weight_decay: Hyper
    alpha_warmup: Option[int]
    beta_3_warmup: Option[int]
    m: Slot
    v: Slot
    slow: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        beta_1: HyperValue = 0.9,
        beta_2: HyperValue = 0.999,
        beta_3: HyperValue = 0.9999,
        alpha: HyperValue = 2.0,
        epsilon: HyperValue = 1e-08,
        weight_decay: HyperValue = 0.0,
        alpha_warmup: int = 0,
        beta_3_warmup: int = 0,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class ADOPT(Definition):
    learning_rate: Hyper
    beta_1: Hyper
    beta_2: Hyper
    epsilon: Hyper
    weight_decay: Hyper
    clip: Option[bool]
    m: Slot
    v: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        beta_1: HyperValue = 0.9,
        beta_2: HyperValue = 0.9999,
        epsilon: HyperValue = 1e-06,
        weight_decay: HyperValue = 0.0,
        clip: bool = True,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class APOLLO(Definition):
    learning_rate: Hyper
    beta_1: Hyper
    beta_2: Hyper
    epsilon: Hyper
    weight_decay: Hyper
    rank: Option[int]
    period: Option[int]
    scale: Option[float]
    growth: Option[float]
    tensor_wise: Option[bool]
    seed: Option[int]
    variable: Option[str]
    side: Option[Literal["columns", "rows", "none"]]
    m: Slot
    v: Slot
    projection: Slot
    norm: Slot
    def new_projection(self, ops: Any, grad: Any, var: Any, slots: Any, hyper: Any) -> Any: ...
    def __init__(
        self,
        learning_rate: HyperValue = 0.01,
        beta_1: HyperValue = 0.9,
        beta_2: HyperValue = 0.999,
        epsilon: HyperValue = 1e-06,
        weight_decay: HyperValue = 0.0,
        rank: int = 256,
        period: int = 200,
        scale: float = 1.0,
        growth: float = 1.01,
        tensor_wise: bool = False,
        seed: int = 0,
        variable: str = "",
        side: Literal["columns", "rows", "none"] = "none",
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class ASGD(Definition):
    learning_rate: Hyper
    lambd: Hyper
    alpha: Hyper
    t0: Hyper
    average: Slot
    eta: Slot
    mu: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.01,
        lambd: HyperValue = 0.0001,
        alpha: HyperValue = 0.75,
        t0: HyperValue = 1000000.0,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class CAME(Definition):
    learning_rate: Hyper
    beta_1: Hyper
    beta_2: Hyper
    beta_3: Hyper
    epsilon_1: Hyper
    epsilon_2: Hyper
    clip_threshold: Hyper
    weight_decay: Hyper
    factored: Option[bool]
    m: Slot
    v: Slot
    rows: Slot
    columns: Slot
    distrust_rows: Slot
    distrust_columns: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.0002,
        beta_1: HyperValue = 0.9,
        beta_2: HyperValue = 0.999,
        beta_3: HyperValue = 0.9999,
        epsilon_1: HyperValue = 1e-30,
        epsilon_2: HyperValue = 1e-16,
        clip_threshold: HyperValue = 1.0,
        weight_decay: HyperValue = 0.0,
        factored: bool = True,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class COCOB(Definition):
    learning_rate: Hyper
    alpha: Hyper
    initial_largest: Option[float]
    largest: Slot
    absolute_sum: Slot
    gradient_sum: Slot
    offset: Slot
    reward: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 1.0,
        alpha: HyperValue = 100.0,
        initial_largest: float = 1e-08,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class ConditionalGradient(Definition):
    learning_rate: Hyper
    lambda_: Hyper
    epsilon: Hyper
    def __init__(
        self,
        learning_rate: HyperValue = 0.99,
        lambda_: HyperValue = 0.01,
        epsilon: HyperValue = 1e-07,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class DAdaptAdam(Definition):
    learning_rate: Hyper
    beta_1: Hyper
    beta_2: Hyper
    epsilon: Hyper
    weight_decay: Hyper
    d0: Option[float]
    growth_rate: Option[float | None]
    bias_correction: Option[bool]
    m: Slot
    v: Slot
    s: Slot
    growth: Scalar
    growth_before: Scalar
    numerator: Scalar
    denominator: Scalar
    def __init__(
        self,
        learning_rate: HyperValue = 1.0,
        beta_1: HyperValue = 0.9,
        beta_2: HyperValue = 0.999,
        epsilon: HyperValue = 1e-08,
        weight_decay: HyperValue = 0.0,
        d0: float = 1e-06,
        growth_rate: float | None = None,
        bias_correction: bool = False,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class DiffGrad(Definition):
    learning_rate: Hyper
    beta_1: Hyper
    beta_2: Hyper
    epsilon: Hyper
    m: Slot
    v: Slot
    previous_grad: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        beta_1: HyperValue = 0.9,
        beta_2: HyperValue = 0.999,
        epsilon: HyperValue = 1e-07,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class Ftrl(Definition):
    learning_rate: Hyper
    learning_rate_power: Hyper
    initial_accumulator_value: Option[float]
    l1: Hyper
    l2: Hyper
    l2_shrinkage: Hyper
    beta: Hyper
    accumulator: Slot
    linear: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        learning_rate_power: HyperValue = -0.5,
        initial_accumulator_value: float = 0.1,
        l1: HyperValue = 0.0,
        l2: HyperValue = 0.0,
        l2_shrinkage: HyperValue = 0.0,
        beta: HyperValue = 0.0,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class GaLoreAdamW(Definition):
    learning_rate: Hyper
    beta_1: Hyper
    beta_2: Hyper
    epsilon: Hyper
    weight_decay: Hyper
    rank: Option[int]
    period: Option[int]
    scale: Option[float]
    side: Option[Literal["columns", "rows", "none"]]
    m: Slot
    v: Slot
    projection: Slot
    def new_projection(self, ops: Any, grad: Any, var: Any, slots: Any, hyper: Any) -> Any: ...
    def __init__(
        self,
        learning_rate: HyperValue = 0.01,
        beta_1: HyperValue = 0.9,
        beta_2: HyperValue = 0.999,
        epsilon: HyperValue = 1e-06,
        weight_decay: HyperValue = 0.0,
        rank: int = 128,
        period: int = 200,
        scale: float = 0.25,
        side: Literal["columns", "rows", "none"] = "none",
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class LAMB(Definition):
    learning_rate: Hyper
    beta_1: Hyper
    beta_2: Hyper
    epsilon: Hyper
    weight_decay: Hyper
    exclude_from_weight_decay: Option[str]
    exclude_from_layer_adaptation: Option[str]
    m: Slot
    v: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        beta_1: HyperValue = 0.9,
        beta_2: HyperValue = 0.999,
        epsilon: HyperValue = 1e-06,
        weight_decay: HyperValue = 0.0,
        exclude_from_weight_decay: str = "",
        exclude_from_layer_adaptation: str = "",
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class LARS(Definition):
    learning_rate: Hyper
    momentum: Hyper
    weight_decay: Hyper
    trust_coefficient: Hyper
    epsilon: Hyper
    nesterov: Option[bool]
    exclude_from_layer_adaptation: Option[str]
    velocity: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.01,
        momentum: HyperValue = 0.9,
        weight_decay: HyperValue = 0.0001,
        trust_coefficient: HyperValue = 0.001,
        epsilon: HyperValue = 0.0,
        nesterov: bool = False,
        exclude_from_layer_adaptation: str = "",
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class Lion(Definition):
    learning_rate: Hyper
    beta_1: Hyper
    beta_2: Hyper
    weight_decay: Hyper
    m: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        beta_1: HyperValue = 0.9,
        beta_2: HyperValue = 0.99,
        weight_decay: HyperValue = 0.0,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class MARS(Definition):
    learning_rate: Hyper
    beta_1: Hyper
    beta_2: Hyper
    gamma: Hyper
    epsilon: Hyper
    weight_decay: Hyper
    amsgrad: Option[bool]
    m: Slot
    v: Slot
    v_max: Slot
    previous_grad: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.003,
        beta_1: HyperValue = 0.95,
        beta_2: HyperValue = 0.99,
        gamma: HyperValue = 0.025,
        epsilon: HyperValue = 1e-08,
        weight_decay: HyperValue = 0.0,
        amsgrad: bool = False,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class Muon(Definition):
    learning_rate: Hyper
    momentum: Hyper
    weight_decay: Hyper
    adam_beta_1: Hyper
    adam_beta_2: Hyper
    epsilon: Hyper
    adam_weight_decay: Hyper
    adam_rate_ratio: Hyper
    nesterov: Option[bool]
    ns_steps: Option[int]
    ns_a: Option[float]
    ns_b: Option[float]
    ns_c: Option[float]
    rms_rate: Option[float]
    original_scale: Option[bool]
    exclude: Option[Any]
    exclude_embeddings: Option[bool]
    uses_adam: Option[bool]
    m: Slot
    v: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        momentum: HyperValue = 0.95,
        weight_decay: HyperValue = 0.004,
        adam_beta_1: HyperValue = 0.9,
        adam_beta_2: HyperValue = 0.999,
        epsilon: HyperValue = 1e-07,
        adam_weight_decay: HyperValue = 0.004,
        adam_rate_ratio: HyperValue = 1.0,
        nesterov: bool = True,
        ns_steps: int = 5,
        ns_a: float = 3.4445,
        ns_b: float = -4.775,
        ns_c: float = 2.0315,
        rms_rate: float = 0.2,
        original_scale: bool = False,
        exclude: Any = (),
        exclude_embeddings: bool = True,
        uses_adam: bool = True,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class Nadam(Definition):
    learning_rate: Hyper
    beta_1: Hyper
    beta_2: Hyper
    epsilon: Hyper
    momentum_decay: Hyper
    momentum_schedule: Option[bool]
    m: Slot
    v: Slot
    momentum_product: Scalar
    @staticmethod
    def scheduled(hyper: Any, t: Any) -> Any: ...
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        beta_1: HyperValue = 0.9,
        beta_2: HyperValue = 0.999,
        epsilon: HyperValue = 1e-07,
        momentum_decay: HyperValue = 0.004,
        momentum_schedule: bool = True,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class NadamW(Nadam):
    weight_decay: Hyper
    decay_times_rate: Option[bool]
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        beta_1: HyperValue = 0.9,
        beta_2: HyperValue = 0.999,
        epsilon: HyperValue = 1e-07,
        momentum_decay: HyperValue = 0.004,
        momentum_schedule: bool = True,
        weight_decay: HyperValue = 0.004,
        decay_times_rate: bool = True,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class NovoGrad(Definition):
    learning_rate: Hyper
    beta_1: Hyper
    beta_2: Hyper
    epsilon: Hyper
    weight_decay: Hyper
    grad_averaging: Option[bool]
    amsgrad: Option[bool]
    rate_in_velocity: Option[bool]
    m: Slot
    v: Slot
    v_hat: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        beta_1: HyperValue = 0.9,
        beta_2: HyperValue = 0.999,
        epsilon: HyperValue = 1e-07,
        weight_decay: HyperValue = 0.0,
        grad_averaging: bool = False,
        amsgrad: bool = False,
        rate_in_velocity: bool = True,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class PowerSign(Definition):
    learning_rate: Hyper
    power_base: Hyper
    beta: Hyper
    sign_decay: Hyper
    m: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.1,
        power_base: HyperValue = 2.718281828459045,
        beta: HyperValue = 0.9,
        sign_decay: HyperValue = 1.0,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class Prodigy(Definition):
    learning_rate: Hyper
    beta_1: Hyper
    beta_2: Hyper
    beta_3: Option[float | None]
    epsilon: Hyper
    weight_decay: Hyper
    d0: Option[float]
    d_coef: Hyper
    growth_rate: Option[float | None]
    bias_correction: Option[bool]
    safeguard_warmup: Option[bool]
    m: Slot
    v: Slot
    s: Slot
    start: Slot
    growth: Scalar
    growth_before: Scalar
    greatest: Scalar
    numerator: Scalar
    denominator: Scalar
    def __init__(
        self,
        learning_rate: HyperValue = 1.0,
        beta_1: HyperValue = 0.9,
        beta_2: HyperValue = 0.999,
        beta_3: float | None = None,
        epsilon: HyperValue = 1e-08,
        weight_decay: HyperValue = 0.0,
        d0: float = 1e-06,
        d_coef: HyperValue = 1.0,
        growth_rate: float | None = None,
        bias_correction: bool = False,
        safeguard_warmup: bool = False,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class ProximalAdagrad(Definition):
    learning_rate: Hyper
    initial_accumulator_value: Option[float]
    l1: Hyper
    l2: Hyper
    accumulator: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        initial_accumulator_value: float = 0.1,
        l1: HyperValue = 0.0,
        l2: HyperValue = 0.0,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class ProximalGradientDescent(Definition):
    learning_rate: Hyper
    l1: Hyper
    l2: Hyper
    def __init__(
        self,
        learning_rate: HyperValue = 0.01,
        l1: HyperValue = 0.0,
        l2: HyperValue = 0.0,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class QHAdam(Definition):
    learning_rate: Hyper
    beta_1: Hyper
    beta_2: Hyper
    nu_1: Hyper
    nu_2: Hyper
    epsilon: Hyper
    m: Slot
    v: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        beta_1: HyperValue = 0.9,
        beta_2: HyperValue = 0.999,
        nu_1: HyperValue = 1.0,
        nu_2: HyperValue = 1.0,
        epsilon: HyperValue = 1e-08,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class RAdam(Definition):
    learning_rate: Hyper
    beta_1: Hyper
    beta_2: Hyper
    epsilon: Hyper
    weight_decay: Hyper
    amsgrad: Option[bool]
    sma_threshold: Hyper
    corrected_root: Option[bool]
    m: Slot
    v: Slot
    v_hat: Slot
    weights_sum: Scalar
    ages_sum: Scalar
    def second_moment(self, grad: Any, m: Any, v: Any, hyper: Any) -> Any: ...
    def direction(self, ops: Any, m_hat: Any, root: Any, hyper: Any) -> Any: ...
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        beta_1: HyperValue = 0.9,
        beta_2: HyperValue = 0.999,
        epsilon: HyperValue = 1e-07,
        weight_decay: HyperValue = 0.0,
        amsgrad: bool = False,
        sma_threshold: HyperValue = 5.0,
        corrected_root: bool = True,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class RMSprop(Definition):
    learning_rate: Hyper
    rho: Hyper
    momentum: Hyper
    epsilon: Hyper
    centered: Option[bool]
    epsilon_in_root: Option[Literal[None, False, True]]
    initial_mean_square: Option[float]
    rate_in_velocity: Option[bool]
    mean_square: Slot
    mean_grad: Slot
    velocity: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        rho: HyperValue = 0.9,
        momentum: HyperValue = 0.0,
        epsilon: HyperValue = 1e-07,
        centered: bool = False,
        epsilon_in_root: Literal[None, False, True] = None,
        initial_mean_square: float = 0.0,
        rate_in_velocity: bool = True,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class Rprop(Definition):
    learning_rate: Hyper
    eta_minus: Hyper
    eta_plus: Hyper
    step_size_min: Hyper
    step_size_max: Hyper
    previous_grad: Slot
    step_size: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.01,
        eta_minus: HyperValue = 0.5,
        eta_plus: HyperValue = 1.2,
        step_size_min: HyperValue = 1e-06,
        step_size_max: HyperValue = 50.0,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class ScheduleFreeAdamW(Definition):
    learning_rate: Hyper
    beta_1: Hyper
    beta_2: Hyper
    epsilon: Hyper
    weight_decay: Hyper
    warmup_steps: Option[int]
    averaging_power: Hyper
    rate_power: Hyper
    correction_in_rate: Option[bool]
    z: Slot
    v: Slot
    greatest_rate: Scalar
    weights_sum: Scalar
    def rate(self, ops: Any, hyper: Any, t: Any) -> Any: ...
    @staticmethod
    def weight(hyper: Any, greatest: Any, t: Any) -> Any: ...
    def __init__(
        self,
        learning_rate: HyperValue = 0.0025,
        beta_1: HyperValue = 0.9,
        beta_2: HyperValue = 0.999,
        epsilon: HyperValue = 1e-08,
        weight_decay: HyperValue = 0.0,
        warmup_steps: int = 0,
        averaging_power: HyperValue = 0.0,
        rate_power: HyperValue = 2.0,
        correction_in_rate: bool = False,
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class SGD(Definition):
    learning_rate: Hyper
    momentum: Hyper
    nesterov: Option[bool]
    rate_in_velocity: Option[bool]
    dampening: Option[float]
    velocity: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.01,
        momentum: HyperValue = 0.0,
        nesterov: bool = False,
        rate_in_velocity: bool = True,
        *,
        dampening: float = 0.0,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class SGDW(SGD):
    weight_decay: Hyper
    decay_times_rate: Option[bool]
    def __init__(
        self,
        learning_rate: HyperValue = 0.01,
        momentum: HyperValue = 0.0,
        nesterov: bool = False,
        rate_in_velocity: bool = True,
        weight_decay: HyperValue = 0.004,
        decay_times_rate: bool = True,
        *,
        dampening: float = 0.0,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class Shampoo(Definition):
    learning_rate: Hyper
    momentum: Hyper
    epsilon: Hyper
    weight_decay: Hyper
    beta: Option[float]
    period: Option[int]
    max_size: Option[int]
    sides: Option[Literal["both", "left", "right", "none", "vector"]]
    m: Slot
    v: Slot
    left: Slot
    right: Slot
    left_root: Slot
    right_root: Slot
    def roots(self, ops: Any, grad: Any, var: Any, slots: Any, hyper: Any) -> Any: ...
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        momentum: HyperValue = 0.0,
        epsilon: HyperValue = 1e-06,
        weight_decay: HyperValue = 0.0,
        beta: float = 1.0,
        period: int = 10,
        max_size: int = 4096,
        sides: Literal["both", "left", "right", "none", "vector"] = "both",
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class SOAP(Definition):
    learning_rate: Hyper
    beta_1: Hyper
    beta_2: Hyper
    epsilon: Hyper
    weight_decay: Hyper
    shampoo_beta: Option[float | None]
    period: Option[int]
    max_size: Option[int]
    sides: Option[Literal["both", "left", "right", "none"]]
    m: Slot
    v: Slot
    left: Slot
    left_basis: Slot
    right: Slot
    right_basis: Slot
    def sided(self) -> Any: ...
    def first_basis(self, ops: Any, grad: Any, var: Any, slots: Any, hyper: Any) -> Any: ...
    def next_basis(self, ops: Any, grad: Any, var: Any, slots: Any, hyper: Any) -> Any: ...
    def __init__(
        self,
        learning_rate: HyperValue = 0.003,
        beta_1: HyperValue = 0.95,
        beta_2: HyperValue = 0.95,
        epsilon: HyperValue = 1e-08,
        weight_decay: HyperValue = 0.01,
        shampoo_beta: float | None = None,
        period: int = 10,
        max_size: int = 10000,
        sides: Literal["both", "left", "right", "none"] = "both",
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class SophiaH(Definition):
    learning_rate: Hyper
    beta_1: Hyper
    beta_2: Hyper
    gamma: Hyper
    epsilon: Hyper
    weight_decay: Hyper
    distance: Hyper
    noise: Option[Literal["normal", "signs"]]
    seed: Option[int]
    variable: Option[str]
    m: Slot
    h: Slot
    start: Slot
    first_grad: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.0006,
        beta_1: HyperValue = 0.96,
        beta_2: HyperValue = 0.99,
        gamma: HyperValue = 0.01,
        epsilon: HyperValue = 1e-12,
        weight_decay: HyperValue = 0.0,
        distance: HyperValue = 0.001,
        noise: Literal["normal", "signs"] = "normal",
        seed: int = 0,
        variable: str = "",
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class Tiger(Definition):
    learning_rate: Hyper
    beta: Hyper
    weight_decay: Hyper
    relative_rate: Option[Literal["", "row", "variable"]]
    m: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.001,
        beta: HyperValue = 0.965,
        weight_decay: HyperValue = 0.01,
        relative_rate: Literal["", "row", "variable"] = "",
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

class Yogi(Definition):
    learning_rate: Hyper
    beta_1: Hyper
    beta_2: Hyper
    epsilon: Hyper
    l1: Hyper
    l2: Hyper
    initial_accumulator_value: Option[float]
    activation: Option[Literal["sign", "tanh"]]
    m: Slot
    v: Slot
    def __init__(
        self,
        learning_rate: HyperValue = 0.01,
        beta_1: HyperValue = 0.9,
        beta_2: HyperValue = 0.999,
        epsilon: HyperValue = 0.001,
        l1: HyperValue = 0.0,
        l2: HyperValue = 0.0,
        initial_accumulator_value: float = 1e-06,
        activation: Literal["sign", "tanh"] = "sign",
        *,
        sparse: Literal["exact", "rows", "catch_up", "variable_rows"] = "exact",
        dense_ok: bool = False,
    ) -> None: ...

__all__ = [
    "ADOPT",
    "APOLLO",
    "ASGD",
    "Accumulate",
    "AdEMAMix",
    "AdaBelief",
    "AdaBound",
    "AdaMod",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "AdagradDA",
    "AdagradDecay",
    "Adam",
    "AdamMini",
    "AdamW",
    "Adamax",
    "Adan",
    "AddSign",
    "CAME",
    "COCOB",
    "Cautious",
    "Centralize",
    "Clip",
    "ConditionalGradient",
    "DAdaptAdam",
    "DecoupledWeightDecay",
    "DiffGrad",
    "Ftrl",
    "GaLoreAdamW",
    "GradientNoise",
    "Grokfast",
    "L2Penalty",
    "LAMB",
    "LARS",
    "LearningRateMultipliers",
    "Lion",
    "Lookahead",
    "LossScale",
    "MARS",
    "MasterCopies",
    "MovingAverage",
    "Multistage",
    "Muon",
    "Nadam",
    "NadamW",
    "NovoGrad",
    "Partition",
    "PowerSign",
    "Prodigy",
    "ProximalAdagrad",
    "ProximalGradientDescent",
    "QHAdam",
    "RAdam",
    "RMSprop",
    "RateDecay",
    "Rprop",
    "SGD",
    "SGDW",
    "SOAP",
    "ScheduleFreeAdamW",
    "Shampoo",
    "SharpnessAware",
    "SophiaH",
    "StochasticWeightAveraging",
    "Tiger",
    "Yogi",
]
