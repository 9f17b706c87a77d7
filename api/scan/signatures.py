"""The order of the arguments of stock classes, and the versions that take each.

tests/test_scan_places.py compares both with the installed classes.
"""
from __future__ import absolute_import, division, print_function

_TRAIN = {
    "GradientDescentOptimizer": "learning_rate use_locking name",
    "MomentumOptimizer": "learning_rate momentum use_locking name use_nesterov",
    "RMSPropOptimizer": "learning_rate decay momentum epsilon use_locking centered name",
    "AdagradOptimizer": "learning_rate initial_accumulator_value use_locking name",
    "AdadeltaOptimizer": "learning_rate rho epsilon use_locking name",
    "AdamOptimizer": "learning_rate beta1 beta2 epsilon use_locking name",
    "FtrlOptimizer": "learning_rate learning_rate_power initial_accumulator_value l1_regularization_strength "
                     "l2_regularization_strength use_locking name accum_name linear_name "
                     "l2_shrinkage_regularization_strength beta",
    "ProximalAdagradOptimizer": "learning_rate initial_accumulator_value l1_regularization_strength "
                                "l2_regularization_strength use_locking name",
    "ProximalGradientDescentOptimizer": "learning_rate l1_regularization_strength l2_regularization_strength "
                                        "use_locking name",
    "AdagradDAOptimizer": "learning_rate global_step initial_gradient_squared_accumulator_value "
                          "l1_regularization_strength l2_regularization_strength use_locking name",
    "LazyAdamOptimizer": "learning_rate beta1 beta2 epsilon use_locking name",
    "AdamGSOptimizer": "global_step learning_rate beta1 beta2 epsilon use_locking name",
    "LazyAdamGSOptimizer": "global_step learning_rate beta1 beta2 epsilon use_locking name",
    "RegAdagradOptimizer": "learning_rate initial_accumulator_value use_locking name",
    "AdaMaxOptimizer": "learning_rate beta1 beta2 epsilon use_locking name",
    "NadamOptimizer": "learning_rate beta1 beta2 epsilon use_locking name",
    "AdamWOptimizer": "weight_decay learning_rate beta1 beta2 epsilon use_locking name",
    "MomentumWOptimizer": "weight_decay learning_rate momentum use_locking name use_nesterov",
    "AddSignOptimizer": "learning_rate alpha beta sign_decay_fn use_locking name",
    "PowerSignOptimizer": "learning_rate base beta sign_decay_fn use_locking name",
    "LARSOptimizer": "learning_rate momentum weight_decay eeta epsilon name skip_list use_nesterov",
}
_BETAS = "learning_rate beta_1 beta_2 epsilon"
_KERAS = {  # of OptimizerV2 and later
    "SGD": "learning_rate momentum nesterov", "RMSprop": "learning_rate rho momentum epsilon centered",
    "Adagrad": "learning_rate initial_accumulator_value epsilon", "Adadelta": "learning_rate rho epsilon",
    "Adam": _BETAS + " amsgrad", "Adamax": _BETAS, "Nadam": _BETAS,
    "Ftrl": "learning_rate learning_rate_power initial_accumulator_value l1_regularization_strength "
            "l2_regularization_strength",
    "AdamW": "learning_rate weight_decay beta_1 beta_2 epsilon amsgrad", "Lion": "learning_rate beta_1 beta_2",
    "Lamb": _BETAS, "Adafactor": "learning_rate beta_2_decay epsilon_1 epsilon_2 clip_threshold relative_step",
    "Muon": "learning_rate adam_beta_1 adam_beta_2 adam_weight_decay epsilon weight_decay",
    "ScheduleFreeAdamW": _BETAS + " warmup_steps",
}
_GET_UPDATES = {
    "SGD": "lr momentum decay nesterov", "RMSprop": "lr rho epsilon decay", "Adagrad": "lr epsilon decay",
    "Adadelta": "lr rho epsilon decay", "Adam": "lr beta_1 beta_2 epsilon decay amsgrad",
    "Adamax": "lr beta_1 beta_2 epsilon decay", "Nadam": "lr beta_1 beta_2 epsilon schedule_decay",
}
_GET_UPDATES_2_3 = {  # of Keras 2.3, where more arguments need their names
    "SGD": "lr momentum nesterov", "RMSprop": "lr rho", "Adagrad": "lr", "Adadelta": "lr rho",
    "Adam": "lr beta_1 beta_2 amsgrad", "Adamax": "lr beta_1 beta_2", "Nadam": "lr beta_1 beta_2",
}
_TF_KERAS = dict(_KERAS, Adam=_BETAS)  # an argument of newer ones comes before amsgrad
_ADDONS = {
    "LAMB": _BETAS, "LazyAdam": _BETAS, "NovoGrad": _BETAS, "AdaBelief": _BETAS, "RectifiedAdam": _BETAS,
    "AdamW": "weight_decay learning_rate beta_1 beta_2 epsilon amsgrad",
    "SGDW": "weight_decay learning_rate momentum nesterov", "Yogi": "learning_rate beta1 beta2 epsilon",
    "ConditionalGradient": "learning_rate lambda_ epsilon", "COCOB": "alpha",
    "ProximalAdagrad": "learning_rate initial_accumulator_value",
}
_TRANSFORMERS = {"AdamWeightDecay": _BETAS + " amsgrad weight_decay_rate"}
_IGNORED = ("name", "use_locking", "accum_name", "linear_name", "jit_compile", "global_step")
_EMA = ("use_ema", "ema_momentum", "ema_overwrite_frequency")
# Arguments of every class of an API, beside its own.
_BESIDE = {
    "tf_train": ("use_locking", "name"),
    "get_updates": ("lr", "decay", "clipnorm", "clipvalue"),
    "optimizer_v2": ("name", "lr", "decay", "clipnorm", "clipvalue", "global_clipnorm"),
    "update_step": ("name", "weight_decay", "clipnorm", "clipvalue", "global_clipnorm", "jit_compile") + _EMA,
    "keras3": ("name", "weight_decay", "clipnorm", "clipvalue", "global_clipnorm", "loss_scale_factor",
               "gradient_accumulation_steps") + _EMA,
}
_ONE_CLASS = {  # arguments of a class that compute nothing, or that are read beside the table
    "FtrlOptimizer": ("accum_name", "linear_name"), "LARSOptimizer": ("skip_list",), "Nadam": ("schedule_decay",),
    "AdagradDAOptimizer": ("global_step",), "AdamGSOptimizer": ("global_step",),
    "LazyAdamGSOptimizer": ("global_step",),
    "AddSignOptimizer": ("sign_decay_fn",), "PowerSignOptimizer": ("sign_decay_fn",),
}
# {(product, API, argument): the first version that takes it}
_SINCE = {
    ("TF", "get_updates", "amsgrad"): "1.6", ("Keras", "get_updates", "amsgrad"): "2.1",
    ("TF", "optimizer_v2", "global_clipnorm"): "2.4", ("Keras", "get_updates", "learning_rate"): "2.3",
    ("TF", "tf_train", "beta"): "2.4", ("TF", "optimizer_v2", "beta"): "2.4",
}


def order(span, name):
    """Returns the names of a class's arguments in order, in some versions; () if they are not known."""
    tables = {"TensorFlow Addons": _ADDONS, "Transformers": _TRANSFORMERS, "tf_keras": _TF_KERAS}
    if (span.product, span.first) == ("Keras", "2.3"):
        return tuple(_GET_UPDATES_2_3.get(name, "").split())
    of_target = {"tf_train": _TRAIN, "get_updates": _GET_UPDATES}
    table = tables.get(span.product) or of_target.get(span.target, _KERAS)
    return tuple(table.get(name, "").split())


def computes(name):
    """Returns whether an argument matters to what is computed."""
    return name not in _IGNORED


def taking(span, entry, given):
    """Returns the part of some versions that takes an argument, without what it does there; None if there is none.

    Args:
        span: a `Span`.
        entry: the `Stock` of the class.
        given: the name of the argument.
    """
    if span.product == "TF" and span.target == "get_updates" and given == "learning_rate":
        return None  # it is lr there
    if given == "schedule_decay" and span.target in ("update_step", "keras3"):
        return None
    if given == "lr" and entry.native == "Ftrl":
        return None  # OptimizerV2's takes it, and does not use it
    if given == "decay" and entry.native == "Nadam" and span.target == "get_updates":
        return None
    known = given in entry.names and not (given == "decay" and span.target == "optimizer_v2")
    if not known and given not in _BESIDE[span.target] and given not in _ONE_CLASS.get(entry.native, ()):
        return None
    return span.cut(_SINCE.get((span.product, span.target, given)))
