"""What each stock optimizer computes, as a definition: the one table behind `from_native` and `to_native_config`.

A line says which definition it is, what its arguments are called there, and which options make the form of that API
(the tables in the definitions' docstrings say the same to people).
"""
from __future__ import absolute_import, division, print_function

from collections import namedtuple

from everstep.optimizers.adadelta import Adadelta
from everstep.optimizers.adafactor import Adafactor
from everstep.optimizers.adagrad import Adagrad
from everstep.optimizers.adam import Adam
from everstep.optimizers.adamax import Adamax
from everstep.optimizers.adamw import AdamW
from everstep.optimizers.addsign import AddSign
from everstep.optimizers.ftrl import Ftrl
from everstep.optimizers.lamb import LAMB
from everstep.optimizers.lars import LARS
from everstep.optimizers.lion import Lion
from everstep.optimizers.nadam import Nadam
from everstep.optimizers.powersign import PowerSign
from everstep.optimizers.proximal_adagrad import ProximalAdagrad
from everstep.optimizers.rmsprop import RMSprop
from everstep.optimizers.schedule_free_adamw import ScheduleFreeAdamW
from everstep.optimizers.sgd import SGD
from everstep.optimizers.sgdw import SGDW

# target: of targets/detect.py; native: the class's name; names: {its argument: ours}; fixed: options of this form;
# sparse: what a sparse gradient does, or a function of the arguments that says it.
Form = namedtuple("Form", "target native definition names fixed sparse")

_RATE = {"learning_rate": "learning_rate"}
_BETAS = dict(_RATE, beta_1="beta_1", beta_2="beta_2", epsilon="epsilon")
_TRAIN_BETAS = dict(_RATE, beta1="beta_1", beta2="beta_2", epsilon="epsilon")
_MOMENTUM = dict(_RATE, momentum="momentum", nesterov="nesterov")
_TRAIN_MOMENTUM = dict(_RATE, momentum="momentum", use_nesterov="nesterov")
_RHO = dict(_RATE, rho="rho", epsilon="epsilon")
_RMSPROP = dict(_RHO, momentum="momentum", centered="centered")
_ACCUMULATOR = dict(_RATE, initial_accumulator_value="initial_accumulator_value")
_PROXIMAL = dict(_ACCUMULATOR, l1_regularization_strength="l1", l2_regularization_strength="l2")
_FTRL = dict(
    _PROXIMAL,
    learning_rate_power="learning_rate_power",
    l2_shrinkage_regularization_strength="l2_shrinkage",
    beta="beta",
)
_KERAS_3 = ("update_step", "keras3")


def _with_momentum(arguments):
    return "rows" if arguments.get("momentum") else "exact"


def _forms():
    yield Form("tf_train", "GradientDescentOptimizer", SGD, _RATE, {}, "exact")
    yield Form("tf_train", "MomentumOptimizer", SGD, _TRAIN_MOMENTUM, {"rate_in_velocity": False}, "rows")
    yield Form(
        "tf_train",
        "RMSPropOptimizer",
        RMSprop,
        dict(_RATE, decay="rho", momentum="momentum", epsilon="epsilon", centered="centered"),
        {"epsilon_in_root": True, "initial_mean_square": 1.0},
        "rows",
    )
    yield Form("tf_train", "AdagradOptimizer", Adagrad, _ACCUMULATOR, {"epsilon": 0.0}, "exact")
    yield Form("tf_train", "AdadeltaOptimizer", Adadelta, _RHO, {}, "rows")
    yield Form("tf_train", "AdamOptimizer", Adam, _TRAIN_BETAS, {"amsgrad": False}, "exact")
    yield Form("tf_train", "FtrlOptimizer", Ftrl, _FTRL, {}, "rows")
    yield Form("tf_train", "LazyAdamOptimizer", Adam, _TRAIN_BETAS, {"amsgrad": False}, "rows")
    yield Form("tf_train", "AdaMaxOptimizer", Adamax, _TRAIN_BETAS, {}, "rows")
    yield Form("tf_train", "NadamOptimizer", Nadam, _TRAIN_BETAS, {"momentum_schedule": False}, "variable_rows")
    yield Form(
        "tf_train",
        "AdamWOptimizer",
        AdamW,
        dict(_TRAIN_BETAS, weight_decay="weight_decay"),
        {"amsgrad": False, "decay_times_rate": False},
        "exact",
    )
    yield Form(
        "tf_train",
        "MomentumWOptimizer",
        SGDW,
        dict(_TRAIN_MOMENTUM, weight_decay="weight_decay"),
        {"rate_in_velocity": False, "decay_times_rate": False},
        "rows",
    )
    yield Form("tf_train", "ProximalAdagradOptimizer", ProximalAdagrad, _PROXIMAL, {}, "rows")
    yield Form(
        "tf_train",
        "AddSignOptimizer",
        AddSign,
        dict(_RATE, alpha="alpha", beta="beta"),
        {"sign_decay": 1.0},
        "variable_rows",
    )
    yield Form(
        "tf_train",
        "PowerSignOptimizer",
        PowerSign,
        dict(_RATE, base="power_base", beta="beta"),
        {"sign_decay": 1.0},
        "variable_rows",
    )
    yield Form(
        "tf_train",
        "LARSOptimizer",
        LARS,
        dict(_TRAIN_MOMENTUM, weight_decay="weight_decay", eeta="trust_coefficient", epsilon="epsilon"),
        {"exclude_from_layer_adaptation": ""},
        "exact",
    )

    yield Form("optimizer_v2", "SGD", SGD, _MOMENTUM, {"rate_in_velocity": True}, _with_momentum)
    yield Form(
        "optimizer_v2",
        "RMSprop",
        RMSprop,
        _RMSPROP,
        {"epsilon_in_root": None, "initial_mean_square": 0.0},
        _with_momentum,
    )
    yield Form(
        "optimizer_v2",
        "Adagrad",
        Adagrad,
        dict(_ACCUMULATOR, epsilon="epsilon"),
        {"epsilon_in_root": False},
        "exact",
    )
    yield Form("optimizer_v2", "Adadelta", Adadelta, _RHO, {}, "rows")
    yield Form("optimizer_v2", "Adam", Adam, dict(_BETAS, amsgrad="amsgrad"), {}, "exact")
    yield Form("optimizer_v2", "Adamax", Adamax, _BETAS, {}, "rows")
    # Its config calls schedule_decay "decay".
    yield Form(
        "optimizer_v2",
        "Nadam",
        Nadam,
        dict(_BETAS, decay="momentum_decay"),
        {"momentum_schedule": True},
        "variable_rows",
    )
    yield Form("optimizer_v2", "Ftrl", Ftrl, _FTRL, {}, "rows")

    yield Form("get_updates", "SGD", SGD, _MOMENTUM, {"rate_in_velocity": True}, "exact")
    yield Form(
        "get_updates",
        "RMSprop",
        RMSprop,
        _RHO,
        {"epsilon_in_root": False, "initial_mean_square": 0.0, "momentum": 0.0, "centered": False},
        "exact",
    )
    yield Form(
        "get_updates",
        "Adagrad",
        Adagrad,
        dict(_RATE, epsilon="epsilon"),
        {"initial_accumulator_value": 0.0, "epsilon_in_root": False},
        "exact",
    )
    yield Form("get_updates", "Adadelta", Adadelta, _RHO, {}, "exact")
    yield Form("get_updates", "Adam", Adam, dict(_BETAS, amsgrad="amsgrad"), {}, "exact")
    yield Form("get_updates", "Adamax", Adamax, _BETAS, {}, "exact")
    yield Form(
        "get_updates",
        "Nadam",
        Nadam,
        dict(_BETAS, schedule_decay="momentum_decay"),
        {"momentum_schedule": True},
        "exact",
    )

    for target in _KERAS_3:
        yield Form(target, "SGD", SGD, _MOMENTUM, {"rate_in_velocity": True}, "exact")
        yield Form(
            target, "RMSprop", RMSprop, _RMSPROP, {"epsilon_in_root": True, "initial_mean_square": 0.0}, "exact"
        )
        yield Form(
            target, "Adagrad", Adagrad, dict(_ACCUMULATOR, epsilon="epsilon"), {"epsilon_in_root": True}, "exact"
        )
        yield Form(target, "Adadelta", Adadelta, _RHO, {}, "exact")
        yield Form(target, "Adam", Adam, dict(_BETAS, amsgrad="amsgrad"), {}, "exact")
        yield Form(
            target,
            "AdamW",
            AdamW,
            dict(_BETAS, amsgrad="amsgrad", weight_decay="weight_decay"),
            {"decay_times_rate": True},
            "exact",
        )
        yield Form(target, "Adamax", Adamax, _BETAS, {}, "exact")
        yield Form(
            target, "Nadam", Nadam, _BETAS, {"momentum_schedule": True, "momentum_decay": 1.0}, "exact"
        )
        yield Form(target, "Ftrl", Ftrl, _FTRL, {}, "exact")
        yield Form(
            target, "Lion", Lion, dict(_RATE, beta_1="beta_1", beta_2="beta_2"), {"weight_decay": 0.0}, "exact"
        )
        # Its relative_step=False changes nothing.
        yield Form(
            target,
            "Adafactor",
            Adafactor,
            dict(
                _RATE,
                beta_2_decay="beta_2_decay",
                epsilon_1="epsilon_1",
                epsilon_2="epsilon_2",
                clip_threshold="clip_threshold",
            ),
            {"relative_step": True, "scale_parameter": True, "factored": True},
            "exact",
        )
    excluded = {"exclude_from_weight_decay": "", "exclude_from_layer_adaptation": ""}
    yield Form("keras3", "Lamb", LAMB, _BETAS, dict(excluded, weight_decay=0.0), "exact")
    yield Form(
        "keras3",
        "ScheduleFreeAdamW",
        ScheduleFreeAdamW,
        dict(_BETAS, warmup_steps="warmup_steps"),
        {"weight_decay": 0.0, "averaging_power": 0.0, "rate_power": 0.0, "correction_in_rate": False},
        "exact",
    )


FORMS = tuple(_forms())
