"""Tells which dotted names are optimizer classes, schedules and wrappers, and which versions have them.

tests/test_scan_places.py looks for every class in the installed versions.
"""
from __future__ import absolute_import, division, print_function

from collections import namedtuple

from everstep.compat.stock.table import STOCK, UNSUPPORTED
from everstep.compat.stock.third_party import OTHERS
from everstep.scan.versions import Span

_TF_KERAS = (
    Span("TF", "1.4", "1.13", "get_updates"), Span("TF", "1.14", "2.10", "optimizer_v2"),
    Span("TF", "2.11", "2.15", "update_step"), Span("TF", "2.16", "2.21", "keras3"),
)
# {module: where it is}. Keras 2.4 to 2.8 are left out: 2.4 is the tf.keras beside it, later ones have no class here.
MODULES = {
    "tensorflow.train": (Span("TF", "1.4", "1.15", "tf_train"),),
    "tensorflow.compat.v1.train": (Span("TF", "1.13", "2.21", "tf_train"),),
    "tensorflow.contrib.opt": (Span("TF", "1.4", "1.15", "tf_train"),),
    "tensorflow.keras.optimizers": _TF_KERAS,
    "tensorflow.compat.v1.keras.optimizers": (
        Span("TF", "1.13", "1.13", "get_updates"), Span("TF", "1.14", "2.15", "optimizer_v2"), _TF_KERAS[3]),
    "tensorflow.contrib.keras.optimizers": (Span("TF", "1.4", "1.15", "get_updates"),),
    "tensorflow.optimizers": (Span("TF", "2.0", "2.10", "optimizer_v2"),) + _TF_KERAS[2:],
    "tensorflow.keras.optimizers.legacy": (Span("TF", "2.9", "2.15", "optimizer_v2"),),
    "tensorflow.optimizers.legacy": (Span("TF", "2.9", "2.15", "optimizer_v2"),),
    # those of 2.9 and 2.10 are another class
    "tensorflow.keras.optimizers.experimental": (Span("TF", "2.11", "2.15", "update_step"),),
    "keras.optimizers": (
        Span("Keras", "2.0", "2.2", "get_updates"), Span("Keras", "2.3", "2.3", "get_updates"),
        Span("Keras", "2.9", "2.12", "optimizer_v2"),
        Span("Keras", "2.13", "2.15", "update_step"), Span("Keras", "3.0", "3.15", "keras3"),
    ),
    "keras.optimizers.legacy": (Span("Keras", "2.13", "2.15", "optimizer_v2"),),
    "tf_keras.optimizers": (Span("tf_keras", "2.16", "2.21", "update_step"),),
    "tf_keras.optimizers.legacy": (Span("tf_keras", "2.16", "2.21", "optimizer_v2"),),
    "tensorflow_addons.optimizers": (Span("TensorFlow Addons", "0.19", "0.23", "optimizer_v2"),),
    "transformers": (Span("Transformers", "4", "4", "optimizer_v2"),),
}
SCHEDULES = {
    "tensorflow.keras.optimizers.schedules": (Span("TF", "1.14", "2.21", ""),),
    "tensorflow.optimizers.schedules": (Span("TF", "2.0", "2.21", ""),),
    "keras.optimizers.schedules": (Span("Keras", "2.13", "3.15", ""),),
    "tf_keras.optimizers.schedules": (Span("tf_keras", "2.16", "2.21", ""),),
}
# Other names of those modules, or of their beginnings. The first that fits counts.
_SAME = (
    ("tensorflow.compat.v1.compat.v1.", "tensorflow.compat.v1."), ("tensorflow.compat.v1.compat.v2.", "tensorflow."),
    ("tensorflow.python.ops.clip_ops.", "tensorflow."), ("tf_slim.layers.optimizers.", "tf_slim."),
    ("tf_slim.layers.", "tf_slim."), ("tensorflow.compat.v2.", "tensorflow."),
    ("tensorflow.python.keras.api._v1.keras.", "tensorflow.keras."),
    ("tensorflow.python.keras.api._v2.keras.", "tensorflow.keras."),
    ("tensorflow.compat.v1.contrib.", "tensorflow.contrib."), ("tensorflow_core.", "tensorflow."),
    ("tensorflow.compat.v1.optimizers.", "tensorflow.compat.v1.keras.optimizers."),
    ("tensorflow_addons.optimizers.", "tensorflow_addons.optimizers."),
)
# {(product, class): the first version that has the class}. Others came with their module.
FIRST = {  # TF 1.5 has AddSignOptimizer, but its list of public names lacks a comma, and so the class
    ("TF", "AddSignOptimizer"): "1.6", ("TF", "PowerSignOptimizer"): "1.5", ("TF", "MultitaskOptimizerWrapper"): "1.5",
    ("TF", "ElasticAverageOptimizer"): "1.5", ("TF", "ModelAverageOptimizer"): "1.6", ("TF", "AdaMaxOptimizer"): "1.9",
    ("TF", "AdamWOptimizer"): "1.10", ("TF", "MomentumWOptimizer"): "1.10", ("TF", "GGTOptimizer"): "1.10",
    ("TF", "LARSOptimizer"): "1.11", ("TF", "ShampooOptimizer"): "1.11", ("TF", "RegAdagradOptimizer"): "1.11",
    ("TF", "AGNOptimizer"): "1.12", ("TF", "AdamGSOptimizer"): "1.13", ("TF", "LazyAdamGSOptimizer"): "1.13",
    ("TF", "Ftrl"): "1.14", ("TF", "AdamW"): "2.12", ("TF", "Adafactor"): "2.12", ("TF", "Lion"): "2.13",
    ("TF", "cosine_decay"): "1.5", ("TF", "cosine_decay_restarts"): "1.5", ("TF", "linear_cosine_decay"): "1.5",
    ("TF", "noisy_linear_cosine_decay"): "1.5", ("TF", "piecewise_constant_decay"): "1.13",
    ("Keras", "Ftrl"): "2.9", ("Keras", "AdamW"): "2.13", ("Keras", "Adafactor"): "2.13", ("Keras", "Lion"): "2.13",
    ("Keras", "Lamb"): "3.5", ("Keras", "Muon"): "3.14", ("Keras", "ScheduleFreeAdamW"): "3.15",
}
# Classes that tf.keras of TF 2.16 and newer has if the Keras beside it is new enough: none can be said of TensorFlow.
_BY_KERAS_ALONE = ("Lamb", "Muon", "ScheduleFreeAdamW")
_PRIVATE = ("tensorflow.python.", "keras.src.", "tf_keras.src.", "tensorflow.contrib.opt.python.")

# Functions and classes that are no optimizers. {name in the module: kind}
_TRAIN_SCHEDULES = ("exponential_decay", "natural_exp_decay", "inverse_time_decay", "polynomial_decay",
                    "piecewise_constant", "piecewise_constant_decay", "cosine_decay", "cosine_decay_restarts",
                    "linear_cosine_decay", "noisy_linear_cosine_decay")
KERAS_SCHEDULES = ("ExponentialDecay", "InverseTimeDecay", "PolynomialDecay", "PiecewiseConstantDecay", "CosineDecay",
                   "CosineDecayRestarts")
_WRAPPERS = {
    "horovod.tensorflow.DistributedOptimizer": "Horovod", "horovod.keras.DistributedOptimizer": "Horovod",
    "horovod.tensorflow.keras.DistributedOptimizer": "Horovod",
    "tensorflow.train.ExponentialMovingAverage": "averages",
    "tensorflow.contrib.tpu.CrossShardOptimizer": "replicas", "tensorflow.tpu.CrossShardOptimizer": "replicas",
    "tensorflow.contrib.estimator.TowerOptimizer": "replicas",
    "tensorflow.contrib.opt.extend_with_decoupled_weight_decay": "weight decay",
    "tensorflow_addons.optimizers.extend_with_decoupled_weight_decay": "weight decay",
    "tensorflow.contrib.estimator.clip_gradients_by_norm": "clipping",
    "tensorflow.train.experimental.enable_mixed_precision_graph_rewrite": "loss scale",
    "tensorflow.keras.mixed_precision.LossScaleOptimizer": "loss scale",
    "tensorflow.keras.mixed_precision.experimental.LossScaleOptimizer": "loss scale",
    "tensorflow.contrib.mixed_precision.LossScaleOptimizer": "loss scale",
    "tensorflow.mixed_precision.enable_mixed_precision_graph_rewrite": "loss scale",
    "tensorflow.clip_by_global_norm": "clipping",
}
_INTERFACES = ("ScipyOptimizerInterface", "ExternalOptimizerInterface")  # tf.contrib.opt
_TRAIN_WRAPPERS = {
    "SyncReplicasOptimizer": "replicas", "ExponentialMovingAverage": "averages", "AGNOptimizer": "workers",
    "ElasticAverageOptimizer": "workers", "ModelAverageOptimizer": "workers", "DropStaleGradientOptimizer": "workers",
    "MovingAverageOptimizer": "averages", "MultitaskOptimizerWrapper": "several optimizers",
    "VariableClippingOptimizer": "clipping",
}
_KERAS_WRAPPERS = {
    "LossScaleOptimizer": "loss scale", "MultiOptimizer": "several optimizers", "Lookahead": "lookahead",
    "MovingAverage": "averages", "SWA": "SWA",
}

# kind: optimizer (a class that the stock table knows), unsupported (one that no definition follows), base, schedule,
# wrapper, get, optimize_loss. module: a key of MODULES, or the rest of the name; name: in it. spans: where it exists,
# () if that is not known. entry: whether it is of another package than TensorFlow and Keras.
Place = namedtuple("Place", "kind module name spans detail")


def place_of(dotted):
    """Returns the `Place` of a full dotted name; None if it is nothing of optimizers."""
    name = canonical(dotted)
    if name.startswith(_PRIVATE):
        return _private(name)
    module, _, last = name.rpartition(".")
    wraps = _WRAPPERS.get(name.replace("tensorflow.compat.v1.", "tensorflow."))
    if wraps:
        return Place("wrapper", module, last, (), wraps)
    if name.endswith("contrib.layers.optimize_loss") or name == "tf_slim.optimize_loss":
        return Place("optimize_loss", module, last, (), "")
    if module in SCHEDULES and last in KERAS_SCHEDULES:
        spans = [span.cut("2.5" if span.product == "TF" and last.startswith("Cosine") else None)
                 for span in SCHEDULES[module]]
        return Place("schedule", module, last, tuple(spans), "")
    return _in_module(module, last) if module in MODULES else None


def schedule_base(dotted):
    """Returns the spans of a full dotted name if it is the class that people's own schedules extend; () for others."""
    module, _, last = canonical(dotted).rpartition(".")
    return SCHEDULES.get(module, ()) if last == "LearningRateSchedule" else ()


def canonical(dotted):
    """Returns the name with the public module that it is found in."""
    for short, full in _SAME:
        if dotted.startswith(short):
            dotted = full + dotted[len(short):]
    return dotted


def _in_module(module, name):
    spans = _spans(module, name)
    is_train = spans and spans[0].target == "tf_train" or module in ("tensorflow.train", "tensorflow.contrib.opt")
    wrappers = _TRAIN_WRAPPERS if is_train else _KERAS_WRAPPERS
    if name in wrappers:
        return Place("wrapper", module, name, spans, wrappers[name])
    if is_train and name in _TRAIN_SCHEDULES and module != "tensorflow.contrib.opt":
        return Place("schedule", module, name, spans, "")
    if name == "Optimizer" and module not in ("transformers", "tensorflow_addons.optimizers", "tensorflow.contrib.opt"):
        return Place("base", module, name, spans, "")
    if name in ("get", "deserialize", "optimizer_from_config") and not is_train and module.endswith("optimizers"):
        return Place("get", module, name, spans, "")
    if module == "transformers":
        return Place("optimizer", module, name, spans, "") if name == "AdamWeightDecay" else None
    if module == "tensorflow_addons.optimizers":
        known = ("tensorflow_addons", name) in OTHERS
    else:
        known = any(entry.native == name for entry in STOCK if entry.target in _targets(module)
                    and (entry.home == "tf.contrib.opt") == (module == "tensorflow.contrib.opt"))
    if known:
        return Place("optimizer", module, name, spans, "")
    if module == "tensorflow.contrib.opt" and name in _INTERFACES:
        return Place("unsupported", module, name, spans, "it runs a minimizer of another package, not steps")
    if name in UNSUPPORTED and not name.startswith("_"):
        return Place("unsupported", module, name, spans, UNSUPPORTED[name])
    return None


def _targets(module):
    return [span.target for span in MODULES[module]]


def _spans(module, name):
    """Returns the spans of a class in a module."""
    spans, of_table = [], [entry.target for entry in STOCK if entry.native == name]
    is_experimental = module.endswith("experimental")
    for span in MODULES[module]:
        cut = span if is_experimental else span.cut(FIRST.get((span.product, name)))
        missing = span.product == "TF" and name in _BY_KERAS_ALONE or is_experimental and name == "Lion"
        missing = missing or bool(of_table) and span.product != "TensorFlow Addons" and span.target not in of_table
        if cut is not None and not missing:
            spans.append(cut)
    return tuple(spans)


def _private(name):
    """Returns the Place of a class in a private module of TensorFlow or Keras. Nothing is said about its versions."""
    module, _, last = name.rpartition(".")
    homes = []
    if name.startswith("tensorflow.python.training."):
        homes = ["tensorflow.train"]
    elif name.startswith("tensorflow.contrib.opt.python."):
        homes = ["tensorflow.contrib.opt"]
    elif ".keras.optimizer" in name or name.startswith(("keras.src.optimizers.", "tf_keras.src.optimizers.")):
        homes = ["tensorflow.keras.optimizers" if name.startswith("tensorflow") else name.partition(".")[0] +
                 ".optimizers"]
    for home in homes:
        place = _in_module(home, "Optimizer" if last == "OptimizerV2" else last)
        if place is not None and "optimizer_v2" in module:
            place = place._replace(spans=tuple(span for span in place.spans if span.target == "optimizer_v2"))
        if place is not None:
            is_class = place.kind in ("optimizer", "base")  # the detail of others says what they are
            return place._replace(module=module, name=last, **(dict(detail="private") if is_class else dict(spans=())))
    return None


def is_optimizer_module(dotted):
    """Returns whether a dotted name is a module of optimizers, whose classes may be looked up by a computed name."""
    return canonical(dotted) in MODULES and dotted != "transformers"


def shown(module, name=None):
    """Returns a dotted name as people write it: tf.train.AdamOptimizer."""
    text = module if name is None else module + "." + name
    return "tf." + text[len("tensorflow."):] if text.startswith("tensorflow.") else text
