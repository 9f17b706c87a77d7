"""The stock table: every stock optimizer of each API.

An entry has a class's arguments and defaults, the options of the definition that compute the same, the treatment of
sparse gradients, and the slots and counters on disk. These use the table: `from_native` and `to_native_config`, reading
and writing of files, `read_checkpoint(optimizer=)`, `everstep inspect`, and the stock tables in the docstrings of
definitions. tests/test_stock_table.py compares it with the classes of each framework.

Slots are in the order of the file. `a b | c d` are two blocks; in each block, the slots of one variable come before
those of the next. `name=native` means that the API has another name for the slot. `*` marks a slot that exists even if
it is unused, `^` one that only variables of rank 2 or more have, `-` one that they do not have, `.` one of another
shape than the variable's.
"""
from __future__ import absolute_import, division, print_function

import math

from everstep.compat.stock.entry import Stock
from everstep.optimizers.adadelta import Adadelta
from everstep.optimizers.adafactor import Adafactor
from everstep.optimizers.adagrad import Adagrad
from everstep.optimizers.adagrad_da import AdagradDA
from everstep.optimizers.adam import Adam
from everstep.optimizers.adamax import Adamax
from everstep.optimizers.adamw import AdamW
from everstep.optimizers.addsign import AddSign
from everstep.optimizers.contract.declarations import REQUIRED
from everstep.optimizers.ftrl import Ftrl
from everstep.optimizers.lamb import LAMB
from everstep.optimizers.lars import LARS
from everstep.optimizers.lion import Lion
from everstep.optimizers.muon import Muon
from everstep.optimizers.nadam import Nadam
from everstep.optimizers.powersign import PowerSign
from everstep.optimizers.proximal_adagrad import ProximalAdagrad
from everstep.optimizers.proximal_gradient_descent import ProximalGradientDescent
from everstep.optimizers.rmsprop import RMSprop
from everstep.optimizers.schedule_free_adamw import ScheduleFreeAdamW
from everstep.optimizers.sgd import SGD
from everstep.optimizers.sgdw import SGDW

_PROXIMAL = dict(initial_accumulator_value=0.1, l1_regularization_strength=0.0, l2_regularization_strength=0.0)
_FTRL = dict(_PROXIMAL, learning_rate_power=-0.5, l2_shrinkage_regularization_strength=0.0)
_BETAS = dict(learning_rate=0.001, beta_1=0.9, beta_2=0.999, epsilon=1e-7)
_KERAS = dict(  # arguments of classes that are equal in every tf.keras and in Keras 3
    SGD=dict(learning_rate=0.01, momentum=0.0, nesterov=False),
    RMSprop=dict(learning_rate=0.001, rho=0.9, momentum=0.0, epsilon=1e-7, centered=False),
    Adagrad=dict(learning_rate=0.001, initial_accumulator_value=0.1, epsilon=1e-7),
    Adadelta=dict(learning_rate=0.001, rho=0.95, epsilon=1e-7),
    Adam=dict(_BETAS, amsgrad=False), Adamax=_BETAS, Nadam=_BETAS, Ftrl=dict(_FTRL, learning_rate=0.001, beta=0.0),
)


def _rows_with_momentum(options):
    momentum = options.get("momentum", 0.0)
    return "exact" if isinstance(momentum, (int, float)) and not momentum else "rows"  # a tensor may be 0 now


def _train(definition, native, op, slots="", home="tf.train", **fields):
    """Returns an entry of tf.train or tf.contrib.opt. For `op`, see `Stock`."""
    return Stock("tf_train", native, definition, op=op, slots=slots, home=home, **fields)


def _tf_train():
    betas = dict(learning_rate=0.001, beta1=0.9, beta2=0.999, epsilon=1e-8)
    powers = "beta1_power beta2_power"
    contrib = "tf.contrib.opt"
    yield _train(SGD, "GradientDescentOptimizer", "GradientDescent", arguments=dict(learning_rate=REQUIRED))
    yield _train(
        SGD, "MomentumOptimizer", "Momentum", "velocity=momentum",
        arguments=dict(learning_rate=REQUIRED, momentum=REQUIRED, use_nesterov=False),
        fixed={"rate_in_velocity": False}, sparse="rows",
    )
    yield _train(
        RMSprop, "RMSPropOptimizer", "RMSProp", "mean_square=rms mean_grad=mg velocity=momentum*",
        arguments=dict(learning_rate=REQUIRED, decay=0.9, momentum=0.0, epsilon=1e-10, centered=False),
        renamed={"decay": "rho"}, fixed={"epsilon_in_root": True, "initial_mean_square": 1.0}, sparse="rows",
    )
    yield _train(
        Adagrad, "AdagradOptimizer", "Adagrad", "accumulator",
        arguments=dict(learning_rate=REQUIRED, initial_accumulator_value=0.1), fixed={"epsilon": 0.0},
    )
    yield _train(
        Adadelta, "AdadeltaOptimizer", "Adadelta", "mean_square=accum mean_square_step=accum_update",
        arguments=dict(learning_rate=0.001, rho=0.95, epsilon=1e-8), sparse="rows",
    )
    yield _train(Adam, "AdamOptimizer", "Adam", "m v", counters=powers, arguments=betas, fixed={"amsgrad": False})
    yield _train(
        Ftrl, "FtrlOptimizer", "Ftrl", "accumulator=accum linear",
        arguments=dict(_FTRL, learning_rate=REQUIRED, beta=0.0), sparse="rows",
    )
    yield _train(
        ProximalAdagrad, "ProximalAdagradOptimizer", "ProximalAdagrad", "accumulator",
        arguments=dict(_PROXIMAL, learning_rate=REQUIRED), sparse="rows",
    )
    yield _train(
        ProximalGradientDescent, "ProximalGradientDescentOptimizer", "ProximalGradientDescent", sparse="rows",
        arguments=dict(
            learning_rate=REQUIRED, l1_regularization_strength=0.0, l2_regularization_strength=0.0
        ),
    )
    yield _train(
        AdagradDA, "AdagradDAOptimizer", "AdagradDA",
        "gradient_sum=gradient_accumulator accumulator=gradient_squared_accumulator",
        arguments=dict(
            learning_rate=REQUIRED, initial_gradient_squared_accumulator_value=0.1, l1_regularization_strength=0.0,
            l2_regularization_strength=0.0,
        ),
        renamed={"initial_gradient_squared_accumulator_value": "initial_accumulator_value"}, sparse="rows",
        note="its global_step is the count of updates",
    )
    yield _train(
        Adam, "LazyAdamOptimizer", "Adam", "m v", contrib, counters=powers, arguments=betas, fixed={"amsgrad": False},
        sparse="rows",
    )
    counted = "its global_step is the count of updates"
    yield _train(
        Adam, "AdamGSOptimizer", "Adam", "m v", contrib, arguments=betas, fixed={"amsgrad": False}, note=counted
    )
    yield _train(
        Adam, "LazyAdamGSOptimizer", "Adam", "m v", contrib, arguments=betas, fixed={"amsgrad": False}, sparse="rows",
        note=counted,
    )
    yield _train(
        Adagrad, "RegAdagradOptimizer", "RegAdagrad", "accumulator", contrib,
        arguments=dict(learning_rate=REQUIRED, initial_accumulator_value=0.1), fixed={"epsilon": 0.0},
        note="it can leave its accumulator alone in some steps, which Adagrad cannot",
    )
    yield _train(
        Adamax, "AdaMaxOptimizer", "AdaMax", "m u=v", contrib, counters="beta1_power", arguments=betas, sparse="rows",
    )
    yield _train(
        Nadam, "NadamOptimizer", "Adam", "m v", contrib, counters=powers, arguments=betas,
        fixed={"momentum_schedule": False}, sparse="variable_rows",
    )
    yield _train(
        AdamW, "AdamWOptimizer", "AdamW", "m v", contrib, counters=powers, arguments=dict(betas, weight_decay=REQUIRED),
        fixed={"amsgrad": False, "decay_times_rate": False},
        differs="stock AdamWOptimizer moves all rows of a sparse gradient, and decays some",
    )
    yield _train(
        SGDW, "MomentumWOptimizer", "MomentumW", "velocity=momentum", contrib,
        arguments=dict(learning_rate=REQUIRED, momentum=REQUIRED, use_nesterov=False, weight_decay=REQUIRED),
        fixed={"rate_in_velocity": False, "decay_times_rate": False}, sparse="rows",
    )
    signs = {"sign_decay_fn": "it is a function of tf.train's global_step; give sign_decay an everstep.Schedule that "
             "does the same"}
    yield _train(
        AddSign, "AddSignOptimizer", "AddSignOptimizer", "m", contrib,
        arguments=dict(learning_rate=0.1, alpha=1.0, beta=0.9), fixed={"sign_decay": 1.0}, refused=signs,
        sparse="variable_rows", note="its sign_decay_fn is a schedule for sign_decay",
    )
    yield _train(
        PowerSign, "PowerSignOptimizer", "PowerSignOptimizer", "m", contrib,
        arguments=dict(learning_rate=0.1, base=math.e, beta=0.9), fixed={"sign_decay": 1.0}, refused=signs,
        sparse="variable_rows", note="its sign_decay_fn is a schedule for sign_decay",
    )
    yield _train(
        LARS, "LARSOptimizer", "LARSOptimizer", "velocity=momentum*", contrib,
        arguments=dict(
            learning_rate=REQUIRED, momentum=0.9, use_nesterov=False, weight_decay=1e-4, eeta=0.001, epsilon=0.0
        ),
        fixed={"exclude_from_layer_adaptation": ""}, note="its skip_list is exclude_from_layer_adaptation",
        differs="stock LARSOptimizer does plain momentum for sparse gradients, and before TF 1.15 its ratio is outside "
        "of the velocity, its weight decay in the ratio alone",
    )


def _optimizer_v2():
    def entry(definition, slots, counters="updates=iter", **fields):
        fields.setdefault("arguments", _KERAS[definition.__name__])
        return Stock("optimizer_v2", definition.__name__, definition, slots=slots, counters=counters, **fields)

    yield entry(SGD, "velocity=momentum", fixed={"rate_in_velocity": True}, sparse=_rows_with_momentum)
    yield entry(
        RMSprop, "mean_square=rms | velocity=momentum | mean_grad=mg",
        fixed={"epsilon_in_root": None, "initial_mean_square": 0.0}, sparse=_rows_with_momentum,
    )
    yield entry(Adagrad, "accumulator", fixed={"epsilon_in_root": False})
    yield entry(Adadelta, "mean_square=accum_grad | mean_square_step=accum_var", sparse="rows")
    yield entry(Adam, "m | v | v_hat=vhat")
    yield entry(Adamax, "m | u=v", sparse="rows")
    yield entry(
        Nadam, "m | v", counters="updates=iter momentum_product=momentum_cache",
        arguments=dict(_BETAS, decay=0.004), renamed={"decay": "momentum_decay"}, fixed={"momentum_schedule": True},
        sparse="variable_rows", note="its schedule_decay (in a config: decay) is momentum_decay",
    )
    yield entry(Ftrl, "accumulator linear", sparse="rows")


def _get_updates():
    def entry(definition, slots, counters="updates=iterations", **fields):
        fields.setdefault("arguments", _KERAS[definition.__name__])
        race = "stock get_updates reads its counter before or after moving it, at random"
        name = definition.__name__
        return Stock("get_updates", name, definition, slots=slots, counters=counters, differs=race, **fields)

    before_2_3 = "updates=iterations?"  # Keras before 2.3 does not save the counter of these
    yield entry(SGD, "velocity*", fixed={"rate_in_velocity": True})
    yield entry(
        RMSprop, "mean_square", counters=before_2_3,
        arguments=dict(learning_rate=0.001, rho=0.9, epsilon=1e-7),
        fixed={"epsilon_in_root": False, "initial_mean_square": 0.0, "momentum": 0.0, "centered": False},
    )
    yield entry(
        Adagrad, "accumulator", counters=before_2_3, arguments=dict(learning_rate=0.01, epsilon=1e-7),
        fixed={"initial_accumulator_value": 0.0, "epsilon_in_root": False},
    )
    yield entry(
        Adadelta, "mean_square | mean_square_step", counters=before_2_3,
        arguments=dict(learning_rate=1.0, rho=0.95, epsilon=1e-7),
    )
    yield entry(Adam, "m | v | v_hat*")
    yield entry(Adamax, "m | u", arguments=dict(_BETAS, learning_rate=0.002))
    yield entry(
        Nadam, "m | v", counters="updates=iterations momentum_product=m_schedule?",
        arguments=dict(_BETAS, learning_rate=0.002, schedule_decay=0.004), renamed={"schedule_decay": "momentum_decay"},
        fixed={"momentum_schedule": True},
    )


def _new_style(target):
    def entry(definition, slots, native=None, **fields):
        native = native or definition.__name__
        fields = dict(dict(counters=counters, differs=differs), **fields)
        fields.setdefault("arguments", _KERAS.get(native))
        return Stock(target, native, definition, slots=slots, **fields)

    keras_3 = target == "keras3"
    counters = "updates=iteration learning_rate?" if keras_3 else "updates=iteration"
    differs = "stock Keras 3 on TensorFlow applies equal rows of a sparse gradient one by one" if keras_3 else None
    adaptive = {} if keras_3 else {"adaptive_epsilon": "epsilon is then times the root of the bias correction"}
    yield entry(SGD, "velocity" if keras_3 else "velocity*", fixed={"rate_in_velocity": True})
    yield entry(
        RMSprop, "mean_square | velocity | mean_grad", fixed={"epsilon_in_root": True, "initial_mean_square": 0.0}
    )
    yield entry(Adagrad, "accumulator", fixed={"epsilon_in_root": True})
    yield entry(Adadelta, "mean_square mean_square_step")
    yield entry(Adam, "m v | v_hat", refused=adaptive)
    yield entry(
        AdamW, "m v | v_hat", arguments=dict(_BETAS, amsgrad=False, weight_decay=0.004),
        fixed={"decay_times_rate": True}, note="weight_decay of its other optimizers is the same",
    )
    yield entry(Adamax, "m u")
    # Keras 3.0 saves the product before the slots. Later versions save it after them or not at all.
    yield entry(
        Nadam, "m v", counters=counters + " momentum_product=_u_product? | momentum_product=_u_product?",
        fixed={"momentum_schedule": True, "momentum_decay": 1.0},
        differs=differs or "stock new-style Nadam multiplies its momentum product once per variable in a compiled step",
    )
    yield entry(Ftrl, "accumulator linear")
    yield entry(
        Lion, "m", arguments=dict(learning_rate=0.001 if keras_3 else 1e-4, beta_1=0.9, beta_2=0.99),
        fixed={"weight_decay": 0.0}, note="weight_decay= is the same",
    )
    yield entry(
        Adafactor, "rows=r^ columns=c^ v*",
        arguments=dict(learning_rate=0.001, beta_2_decay=-0.8, epsilon_1=1e-30, epsilon_2=0.001, clip_threshold=1.0),
        fixed={"relative_step": True, "scale_parameter": True, "factored": True},
        note="its relative_step=False changes nothing",
    )
    if keras_3:
        yield entry(
            LAMB, "m v", "Lamb", arguments=_BETAS,
            fixed={"weight_decay": 0.0, "exclude_from_weight_decay": "", "exclude_from_layer_adaptation": ""},
            note="its weight_decay= is not part of the trust ratio",
        )
        yield entry(
            Muon, "m v-",
            arguments=dict(
                learning_rate=0.001, adam_beta_1=0.9, adam_beta_2=0.999, adam_weight_decay=0.004, epsilon=1e-7,
                weight_decay=0.004, exclude_layers=(), exclude_embeddings=True, muon_a=3.4445, muon_b=-4.775,
                muon_c=2.0315, adam_lr_ratio=1.0, momentum=0.95, ns_steps=5, nesterov=True, rms_rate=0.2,
            ),
            renamed=dict(
                exclude_layers="exclude", muon_a="ns_a", muon_b="ns_b", muon_c="ns_c", adam_lr_ratio="adam_rate_ratio"
            ),
            none=dict(weight_decay=0.0, adam_weight_decay=0.0, exclude_layers=(), rms_rate=0.0),
            fixed={"original_scale": False},
            needed={"rms_rate": "the Muon of Keras 3.10 to 3.13 has none, scales updates by their rows and takes "
                                "arrays of rank 3 as matrices; no definition computes it. Use the Muon of Keras 3.14 "
                                "or newer"},
            note="its exclude_layers are exclude, its muon_a, _b, _c ns_a, _b, _c",
        )
        yield entry(
            ScheduleFreeAdamW, "z v",
            arguments=dict(learning_rate=0.0025, beta_1=0.9, beta_2=0.999, epsilon=1e-8, warmup_steps=0),
            fixed={"weight_decay": 0.0, "averaging_power": 0.0, "rate_power": 0.0, "correction_in_rate": False},
            note="its weight_decay= decays y only",
            differs="stock ScheduleFreeAdamW takes its average from a slot that it has changed already, except on JAX",
        )


_APIS = _tf_train(), _optimizer_v2(), _get_updates(), _new_style("update_step"), _new_style("keras3")
STOCK = tuple(entry for entries in _APIS for entry in entries)

_TAKES_ANOTHER = "it wraps any optimizer of tf.train: give it a bound definition"
_MATRICES = "it takes roots of a matrix for each dimension of a variable; no definition computes it"
_WORKERS = "it exchanges weights between workers, around any optimizer of tf.train: give it a bound definition"
_LOSS_SCALE = "it scales the loss for another optimizer; read that one, and see everstep.loss_scale"
# {class name: why} of stock optimizers without a definition. For classes in `contrib.optimizer_v2`, see
# UNSUPPORTED_MODULES.
UNSUPPORTED = {
    "GGTOptimizer": "it decomposes the last gradients of all variables together; a definition sees one variable",
    "ShampooOptimizer": _MATRICES, "ShampooWOptimizer": _MATRICES,
    "SGLDOptimizer": "its noise depends on the rate and on the squares of gradients; no definition computes it yet",
    "VariationalSGDOptimizer": "its rates come from the variance of each gradient; no definition computes it yet",
    "KfacOptimizer": "it needs the layers of the model, not gradients alone",
    "NonFusedAdam": "it divides by sqrt(v) - epsilon in TF 2.8 to 2.10; use Adam",
    "AGNOptimizer": _WORKERS,
    "ElasticAverageOptimizer": _WORKERS,
    "ModelAverageOptimizer": _WORKERS,
    "DropStaleGradientOptimizer": _TAKES_ANOTHER,
    "ExternalOptimizerInterface": "it runs another library's minimizer over the whole loss",
    "MovingAverageOptimizer": "everstep.moving_average around the inner definition does the same",
    "MultitaskOptimizerWrapper": "it replaces methods that a bound optimizer does not use; see docs/wrappers.md",
    "MultiOptimizer": "everstep.partition of the inner definitions does the same",
    "VariableClippingOptimizer": _TAKES_ANOTHER,
    "SyncReplicasOptimizer": "it collects gradients of workers for another optimizer; it takes a bound definition",
    "CrossShardOptimizer": "it sums gradients of TPU cores for another optimizer; it takes a bound definition",
    "KerasCrossShardOptimizer": "it sums gradients of TPU cores for another optimizer",
    "TowerOptimizer": "it sums gradients of towers for another optimizer",
    "_TransformGradients": _TAKES_ANOTHER,
    "LossScaleOptimizer": _LOSS_SCALE,
    "LossScaleOptimizerV1": _LOSS_SCALE,
    "LossScaleOptimizerV3": _LOSS_SCALE,
    "MixedPrecisionLossScaleOptimizer": _LOSS_SCALE,
    "TFOptimizer": "it wraps an optimizer of tf.train for Keras; read that one",
    "RestoredOptimizer": "it holds the variables of a loaded SavedModel and cannot train",
    "_RestoredOptimizer": "it holds the variables of a loaded SavedModel and cannot train",
}
# {part of a module's name: why}
UNSUPPORTED_MODULES = {
    "contrib.optimizer_v2": "the first OptimizerV2, of tf.contrib only; tf.train and tf.keras have the same rules",
    "dtensor": "it trains on a DTensor mesh, which everstep does not support",
}
# {part of a module's name: why} for classes of no known API. TF 2.11 has its new-style optimizers in a module of that
# name, so this does not hold for classes of a known API.
UNSUPPORTED_WITHOUT_API = {"experimental": "the experimental optimizers of TF 2.9 and 2.10 differ from those of 2.11"}
